"""Kernels for the thread pool, made ready with their buffers."""

from __future__ import annotations

from typing import Any

import numpy as np
from hal_llvm.compiler import machine_for
from hal_llvm.emit.module import emit_modules
from tile_ir.dtype import DType
from tile_ir.kernels import Kernel, KernelList
from tile_ir.semtree.nodes import (
    Access,
    Alloc,
    Binary,
    Block,
    Const,
    For,
    Function,
    IdKind,
    Let,
    Load,
    Param,
    Store,
    Type,
    Var,
    WorkId,
)

I64, F32 = Type(DType.INT64), Type(DType.FLOAT32)
POINTER = Type(DType.FLOAT32, ptr=True)


def doubling(elements: int, groups: int, flops: int, repeats: int = 1, scratch: int = 0) -> Kernel:
    """y = 2 * x, by groups; `repeats` times over."""
    each = elements // groups
    i = Binary("add", Binary("mul", WorkId(IdKind.GROUP, 0, I64), Const(each, I64), I64), Var("i", I64), I64)
    load = Load(Var("x", POINTER), i, F32)
    twice = Store(Var("y", POINTER), i, Binary("add", load, load, F32))
    loop = For("i", Const(0, I64), Const(each, I64), 1, Block((twice,)))
    body: list[Any] = [For("r", Const(0, I64), Const(repeats, I64), 1, Block((loop,)))]
    if scratch:
        t = Var("t", Type(DType.FLOAT32, count=scratch))
        number = Binary("add", Var("g", I64), Const(1, I64), I64)
        body = [
            Alloc("t", Type(DType.FLOAT32, count=scratch)),
            Let("g", WorkId(IdKind.GROUP, 0, I64)),
            For("i", Const(0, I64), Const(each, I64), 1, Block((Store(t, Var("i", I64), load),))),
            For("i", Const(0, I64), Const(each, I64), 1, Block((Store(Var("y", POINTER), i, Binary("add", Load(t, Var("i", I64), F32), load, F32)),))),
            Let("unused", number),
        ]  # fmt: skip
    params = (Param("y", POINTER, Access.WRITE, 64, elements), Param("x", POINTER, Access.READ, 64, elements))
    return Kernel("double", None, Function("double", params, Block(tuple(body))), (groups, 1, 1), flops)  # type: ignore[arg-type]


def ready(device: Any, kernel: Kernel, seed: int = 0) -> tuple[Any, list[Any], Any, Any]:
    library = device.compiler.build(KernelList((kernel,), (), (), device.target))
    assert kernel.function is not None
    buffers = [device.memory.allocate(4 * p.elements) for p in kernel.function.params]
    y, x = (b.as_array(np.float32) for b in buffers)
    x[:] = np.random.default_rng(seed).random(x.size)
    y[:] = 0
    return device.executor.prepare(library, 0), buffers, y, x


BIG = 10**9
"""Estimated operations that make a kernel go to the pool, and not a long one."""


def modules(device: Any, count: int) -> list[str]:
    """IR of `count` modules of one kernel each."""
    machine = machine_for(device.compiler.processor)
    return [m.text for m in emit_modules([doubling(64 * n, 4, 1) for n in range(1, count + 1)], machine, longest=1)]
