"""How fast the machine multiplies right now: a loop of independent fused multiply-adds on every thread.

Neighbours on a shared host take processors for minutes at a time, and every library loses differently then.
So each round of a comparison stands between two probes, and only rounds at nearly full speed count.
"""

from __future__ import annotations

import time
from functools import cached_property

import numpy as np
import tile_hal
from tile_hal.interfaces import Device, Kernel
from tile_ir.dtype import DType
from tile_ir.kernels import Kernel as KernelInfo
from tile_ir.kernels import KernelList
from tile_ir.semtree.nodes import (
    Access,
    Assign,
    Binary,
    Block,
    Cast,
    Const,
    Fma,
    For,
    Function,
    IdKind,
    Let,
    Load,
    Param,
    Statement,
    Store,
    Type,
    Var,
    WorkId,
)
from tile_ir.stripe.nodes import Block as StripeBlock

CHAINS = 12
"""Independent sums: enough to hide the latency of a multiply-add on two units, few enough for 16 registers."""
STEPS = 60_000
F32, I64 = Type(DType.FLOAT32), Type(DType.INT64)
POINTER = Type(DType.FLOAT32, ptr=True)


class Probe:
    """Measures GFLOP/s of multiply-adds on all threads of the CPU device."""

    def __init__(self, threads: int) -> None:
        self.device: Device = tile_hal.device("llvm")
        self.threads = threads
        self.lanes = self.device.target.settings.vector_bytes // 4

    @property
    def flops(self) -> int:
        return 2 * CHAINS * self.lanes * STEPS * self.threads

    def __call__(self) -> float:
        """GFLOP/s of one run of a millisecond or two, the better of two."""
        kernel, buffers = self._ready
        best = float("inf")
        for _ in range(2):
            start = time.perf_counter()
            kernel.run(buffers).wait()
            best = min(best, time.perf_counter() - start)
        return self.flops / best / 1e9

    @cached_property
    def _ready(self) -> tuple[Kernel, list[tile_hal.Buffer]]:
        function = self._function()
        info = KernelInfo("probe", StripeBlock("probe"), function, (self.threads, 1, 1), self.flops)
        library = self.device.compiler.build(KernelList((info,), (), (), self.device.target))
        buffers = [self.device.memory.allocate(4 * p.elements) for p in function.params]
        for buffer in buffers:
            np.frombuffer(buffer.map_discard(), np.float32)[:] = 0.5
            buffer.unmap().wait()
        return self.device.executor.prepare(library, 0), buffers

    def _function(self) -> Function:
        vector = Type(DType.FLOAT32, self.lanes)
        names = [f"x{n}" for n in range(CHAINS)]
        factor = Let("m", Load(Var("B", POINTER), _number(0), vector))
        first: list[Statement] = [Let(n, Load(Var("B", POINTER), _number(0), vector), mutable=True) for n in names]
        step = tuple(Assign(n, Fma(Var(n, vector), Var("m", vector), Var("m", vector), vector)) for n in names)
        group = Cast(WorkId(IdKind.GROUP, 0), I64)
        place = Let("at", Binary("mul", group, _number(CHAINS * self.lanes), I64))
        last = [
            Store(Var("C", POINTER), Binary("add", Var("at", I64), _number(k * self.lanes), I64), Var(n, vector))
            for k, n in enumerate(names)
        ]
        body = Block((factor, *first, For("k", _number(0), _number(STEPS), 1, Block(step)), place, *last))
        size = CHAINS * self.lanes * self.threads
        params = (Param("C", POINTER, Access.WRITE, 64, size), Param("B", POINTER, Access.READ, 64, self.lanes))
        return Function("probe", params, body)


def _number(value: int) -> Const:
    return Const(value, I64)
