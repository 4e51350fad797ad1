"""The kernels that levels 2 and 5 run, on `N` float32 unless said otherwise, in whichever form a device takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from tile_ir.contents import Contents
from tile_ir.dtype import DType
from tile_ir.kernels import BufferInfo, BufferKind, KernelList, Step, StepKind
from tile_ir.semtree.nodes import Access, Alloc, Binary, Function, Load, Store, Type, Var
from tile_ir.stripe import nodes as stripe

from tile_hal.conformance.kernels import (
    I,
    Sample,
    add,
    elementwise,
    function,
    kernel_list,
    kernel_of,
    load,
    loop,
    mul,
    number,
    param,
    store,
)  # fmt: skip
from tile_hal.interfaces import Device

F32, I32 = DType.FLOAT32, DType.INT32
N = 64


def increment(by: float = 1.0) -> Sample:
    """``out = in + by``."""
    item = elementwise(lambda a: add(a, number(by, F32)), F32, [F32], N)
    return Sample(item, f"function (A[N]) -> (R) {{ R = A + {by!r}; }}")


def double() -> Sample:
    """``out = 2 in``."""
    item = elementwise(lambda a: mul(a, number(2.0, F32)), F32, [F32], N)
    return Sample(item, "function (A[N]) -> (R) { R = A * 2.0; }")


def halve_and_increment() -> Sample:
    """``out = in / 2 + 1``."""
    item = elementwise(lambda a: add(mul(a, number(0.5, F32)), number(1.0, F32)), F32, [F32], N)
    return Sample(item, "function (A[N]) -> (R) { R = A * 0.5 + 1.0; }")


def total() -> Sample:
    """``out = in0 + in1``."""
    return Sample(elementwise(add, F32, [F32, F32], N), "function (A[N], B[N]) -> (R) { R = A + B; }")


def private_sum(count: int, rounds: int) -> Function:
    """``out = (rounds + 1) in`` for `count` int32, added up in a private array."""
    array = Var("sums", Type(I32, count=count))
    here = Load(array, I, Type(I32))
    added = loop("i", count, Store(array, I, add(here, load("in", I32, I))))
    return function(
        [param("out", I32, count, Access.WRITE), param("in", I32, count)],
        Alloc("sums", Type(I32, count=count)),
        loop("i", count, Store(array, I, load("in", I32, I))),
        loop("r", rounds, added),
        loop("i", count, store("out", I, here)),
        name="private_sum",
    )


def both_ends(count: int) -> Sample:
    """The first and the last of `count` int32."""
    item = function(
        [param("out", I32, 2, Access.WRITE), param("in", I32, count)],
        store("out", number(0), load("in", I32, number(0))),
        store("out", number(1), load("in", I32, number(count - 1))),
    )
    return Sample(item, "function (A[N]) -> (R) { R[i : 2] = +(A[(N - 1)*i]); }")


def chain(device: Device) -> KernelList:
    """``t = 2 in; u = t + constant; out = 2 u``: temporaries in one arena, and a constant. Bindings: in, out."""
    size = 4 * N
    kinds = [BufferKind.INPUT, BufferKind.OUTPUT, BufferKind.TEMP, BufferKind.TEMP, BufferKind.CONST]
    offsets = [0, 0, 0, size, 0]
    buffers = tuple(
        BufferInfo(n, f"b{n}", kind, (N,), F32, size, 0, offset)
        for n, (kind, offset) in enumerate(zip(kinds, offsets, strict=True))
    )
    kernels = tuple(replace(kernel_of(device, s), name=f"k{n}") for n, s in enumerate((double(), total())))
    steps = (
        Step(StepKind.KERNEL, 0, (2, 0)),
        Step(StepKind.KERNEL, 1, (3, 2, 4), (0,)),
        Step(StepKind.KERNEL, 0, (1, 3), (1,)),
    )
    three = np.full(N, 3, np.float32).tobytes()
    constant = stripe.ConstantBuffer("b4", stripe.TensorType.row_major(F32, (N,)), Contents(three))
    return KernelList(kernels, buffers, steps, device.target, (constant,), (2 * size,))


# --- malformed ---------------------------------------------------------------------------------------


def undeclared(device: Device) -> KernelList:
    """It stores a value that nothing defines."""
    body = store("out", number(0), Var("nowhere", Type(F32)))
    return _malformed(device, function([param("out", F32, N, Access.WRITE)], body), _store_nothing)


def unknown_operation(device: Device) -> KernelList:
    """It computes by an operation that does not exist."""
    value = Binary("frobnicate", number(1.0, F32), number(2.0, F32), Type(F32))
    item = function([param("out", F32, N, Access.WRITE)], store("out", number(0), value))
    return _malformed(device, item, _frobnicate)


Change = Callable[[stripe.Statement], stripe.Statement]


def _store_nothing(statement: stripe.Statement) -> stripe.Statement:
    return replace(statement, src="$nowhere") if isinstance(statement, stripe.Store) else statement


def _frobnicate(statement: stripe.Statement) -> stripe.Statement:
    return replace(statement, name="frobnicate") if isinstance(statement, stripe.Op) else statement


def _malformed(device: Device, broken: Function, change: Change) -> KernelList:
    """`broken`; or for a device that takes Stripe, what is right for it but for what `change` does to its statements."""
    if device.target.codegen != "stripe":
        return kernel_list(device, broken)
    kernels = kernel_list(device, increment())
    (kernel,) = kernels.kernels
    changed = _changed(kernel.stripe, change)
    assert changed != kernel.stripe, "the schedule has no statement to break"
    return replace(kernels, kernels=(replace(kernel, stripe=changed),))


def _changed(block: stripe.Block, change: Change) -> stripe.Block:
    body = tuple(_changed(s, change) if isinstance(s, stripe.Block) else change(s) for s in block.body)
    return replace(block, body=body)
