"""How fast the machine multiplies and copies right now.

Neighbours on a shared host take processors for minutes at a time, and every library loses differently then.
So each round of a comparison stands between two probes, and only rounds at nearly full speed count.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

import numpy as np
import tile_hal
import tile_runtime as tile
from numpy.typing import NDArray
from tile_hal.interfaces import Device, Event, Kernel
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
    Space,
    Statement,
    Store,
    Type,
    Var,
    WorkId,
)
from tile_ir.stripe.nodes import Block as StripeBlock

CHAINS = 12
"""Independent sums: enough to hide the latency of a multiply-add on two units, few enough for 16 registers."""
F32, I64 = Type(DType.FLOAT32), Type(DType.INT64)
LEAST = 1 << 22
"""Bytes, more than caches of one core hold."""
Pair = tuple[NDArray[np.float32], NDArray[np.float32]]
POINTER = Type(DType.FLOAT32, space=Space.GLOBAL, ptr=True)


class Probe:
    """Measures GFLOP/s of independent multiply-adds: a loop of them on every thread of the CPU, or all over a GPU."""

    def __init__(self, device: Device, groups: int, *, items: int = 1, lanes: int = 1, steps: int = 60_000) -> None:
        """`groups` of `items` work items, each with vectors of `lanes`, for `steps` rounds."""
        self.device = device
        self.groups, self.items, self.lanes, self.steps = groups, items, lanes, steps

    @classmethod
    def of_cpu(cls, threads: int) -> Probe:
        """A run of a millisecond or two."""
        device = tile_hal.device("llvm")
        return cls(device, threads, lanes=device.target.settings.vector_bytes // 4)

    @property
    def flops(self) -> int:
        return 2 * CHAINS * self.lanes * self.steps * self.groups * self.items

    def __call__(self) -> float:
        """GFLOP/s of one run, the better of two; by the device's clock where it has one."""
        return self.flops / min(self.seconds() for _ in range(2)) / 1e9

    def seconds(self) -> float:
        """Of one run: of a launch, where there is next to nothing to do."""
        return _seconds(*self._ready)

    def start(self) -> Event:
        """Begin a run that is timed, before others: these begin when the host has launched them all."""
        kernel, buffers = self._ready
        return kernel.run(buffers, profile=True)

    @cached_property
    def _ready(self) -> tuple[Kernel, list[tile_hal.Buffer]]:
        function = self._function()
        info = KernelInfo("probe", StripeBlock("probe"), function, (self.groups, 1, 1), self.flops)
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
        item = Cast(WorkId(IdKind.GLOBAL, 0), I64)
        place = Let("at", Binary("mul", item, _number(CHAINS * self.lanes), I64))
        last = [
            Store(Var("C", POINTER), Binary("add", Var("at", I64), _number(k * self.lanes), I64), Var(n, vector))
            for k, n in enumerate(names)
        ]
        body = Block((factor, *first, For("k", _number(0), _number(self.steps), 1, Block(step)), place, *last))
        size = CHAINS * self.lanes * self.groups * self.items
        params = (Param("C", POINTER, Access.WRITE, 64, size), Param("B", POINTER, Access.READ, 64, self.lanes))
        return Function("probe", params, body, (self.items, 1, 1))


def copied(size: int, evaluator: tile.Evaluator) -> float:
    """Bytes a second of a copy on the CPU that reads and writes `size` bytes in all; the best of several."""
    copy = tile.Function("function (A) -> (O) { O = A + 1.0; }")
    source = np.ones(size // 8, np.float32)
    target = np.empty_like(source)
    times = max(1, (1 << 23) // size)
    return size * times / min(_elapsed(lambda: evaluator(copy, source, out=target), times) for _ in range(9))


def numpy_copied(size: int, threads: int) -> float:
    """Seconds in which NumPy, on so many threads, reads and writes `size` bytes in all; the best of several.

    Sizes below `LEAST` take their share of it: Python's own work would show.
    """
    held = max(size, LEAST)
    pairs = [
        (np.empty(held // 8 // threads, np.float32), np.ones(held // 8 // threads, np.float32)) for _ in range(threads)
    ]
    times = max(1, (1 << 25) // held)

    def copy(pair: Pair) -> None:
        for _ in range(times):
            np.copyto(*pair)

    with ThreadPoolExecutor(threads) as pool:
        best = min(_elapsed(lambda: list(pool.map(copy, pairs)), 1) for _ in range(5))
    return best / times * size / held


def _elapsed(run: Callable[[], object], times: int) -> float:
    run()
    start = time.perf_counter()
    for _ in range(times):
        run()
    return time.perf_counter() - start


def _seconds(kernel: Kernel, buffers: Sequence[tile_hal.Buffer]) -> float:
    start = time.perf_counter()
    measured = kernel.run(buffers, profile=True).wait().seconds
    return measured or time.perf_counter() - start


def _number(value: int) -> Const:
    return Const(value, I64)
