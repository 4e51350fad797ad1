"""Hand-made kernels: short builders for semtree, and running a function or a sample on a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest
import tile_lang
import tile_opt
from tile_ir.dtype import DType, from_numpy
from tile_ir.frozen import frozen
from tile_ir.kernels import BufferInfo, BufferKind, Kernel, KernelList, Step, StepKind
from tile_ir.program.nodes import TensorType
from tile_ir.semtree.nodes import (
    Access,
    Binary,
    Block,
    Const,
    Expr,
    For,
    Function,
    Load,
    Param,
    Space,
    Splat,
    Statement,
    Store,
    Type,
    Var,
)  # fmt: skip
from tile_ir.stripe import nodes as stripe

import tile_hal
from tile_hal.conformance import subnormals
from tile_hal.conformance.buffers import check_guards, download, guarded
from tile_hal.interfaces import Device, Library

Array = npt.NDArray[Any]
INT = Type(DType.INT32)


Formula = Callable[[Expr], Expr] | Callable[[Expr, Expr], Expr] | Callable[[Expr, Expr, Expr], Expr]
"""What an elementwise kernel computes from its operands."""


def number(value: float | bool, dtype: DType = DType.INT32, lanes: int = 1) -> Const:
    return Const(value, Type(dtype, lanes))


def pointer(name: str, dtype: DType) -> Var:
    return Var(name, Type(dtype, space=Space.GLOBAL, ptr=True))


def add(left: Expr, right: Expr) -> Binary:
    return Binary("add", left, right, left.type)


def mul(left: Expr, right: Expr) -> Binary:
    return Binary("mul", left, right, left.type)


def load(name: str, dtype: DType, index: Expr, lanes: int = 1) -> Load:
    return Load(pointer(name, dtype), index, Type(dtype, lanes))


def store(name: str, index: Expr, value: Expr) -> Store:
    return Store(pointer(name, value.type.dtype), index, value)


def loop(name: str, stop: int, *body: Statement, start: int = 0, step: int = 1, dtype: DType = DType.INT32) -> For:
    return For(name, number(start, dtype), number(stop, dtype), step, Block(body))


I = Var("i", INT)  # noqa: E741 - the loop variable of every small kernel
"""The int32 variable ``i``."""


def param(name: str, dtype: DType, elements: int, access: Access = Access.READ) -> Param:
    return Param(name, pointer(name, dtype).type, access, dtype.bytes, elements)


def function(params: Sequence[Param], *body: Statement, name: str = "kernel", **more: Any) -> Function:
    return Function(name, tuple(params), Block(body), **more)


def elementwise(
    expr: Formula, out: DType, inputs: Sequence[DType], count: int, *, lanes: int = 1, again: Sequence[int] = ()
) -> Function:
    """``out[i] = expr(in0[i], in1[i], …)`` for `count` elements (a multiple of `lanes`), `lanes` at a time.

    The same `again`, so many at a time, into an output of its own.
    """
    widths = {"out": lanes, **{f"out{n}": width for n, width in enumerate(again, 1)}}
    params = [param(name, out, count, Access.WRITE) for name in widths]
    params += [param(f"in{n}", dtype, count) for n, dtype in enumerate(inputs)]
    return function(params, *(_each(expr, name, inputs, count, width) for name, width in widths.items()))


def _each(expr: Formula, out: str, inputs: Sequence[DType], count: int, lanes: int) -> For:
    at = Var(out.replace("out", "i"), INT)
    values = [load(f"in{n}", dtype, at, lanes) for n, dtype in enumerate(inputs)]
    return loop(at.name, count, store(out, at, cast(Callable[..., Expr], expr)(*values)), step=lanes)


def splat(value: Expr, lanes: int) -> Expr:
    return value if lanes == 1 else Splat(value, Type(value.type.dtype, lanes))


# --- both forms --------------------------------------------------------------------------------------


@frozen
class Sample:
    """One kernel in the two forms that devices take: semtree, and Tile for what takes scheduled Stripe.

    Only a device's own passes know its units and memories, so that its Stripe cannot be written by hand. Both
    forms have the same parameters (one output, then the inputs) and the same meaning.
    """

    function: Function
    source: str
    """A Tile function of one statement; its inputs are the function's, in order."""


Item = Function | Sample
"""What the helpers below take; a device that takes Stripe can run samples only."""


def function_of(item: Item) -> Function:
    return item.function if isinstance(item, Sample) else item


def kernel_of(device: Device, item: Item, groups: tuple[int, int, int] = (1, 1, 1)) -> Kernel:
    """The kernel in the form that the device takes."""
    made = function_of(item)
    if isinstance(item, Sample) and device.target.codegen == "stripe":
        return Kernel(made.name, _scheduled(device, item), None, groups)
    return Kernel(made.name, stripe.Block(made.name), made, groups)


def _scheduled(device: Device, sample: Sample) -> stripe.Block:
    parsed = tile_lang.parse(sample.source)
    read = [p for p in sample.function.params if p.access is Access.READ]
    types = [TensorType(p.type.dtype, (p.elements,)) for p in read]
    program = tile_lang.bind(parsed, dict(zip((p.name.id for p in parsed.inputs), types, strict=True)))
    (kernel,) = tile_opt.compile(program, device.target).kernels.kernels
    # By its own name: a list may hold several samples.
    return replace(kernel.stripe, name=sample.function.name)


# --- running ---------------------------------------------------------------------------------------


def kernel_list(device: Device, *items: Item, groups: tuple[int, int, int] = (1, 1, 1)) -> KernelList:
    """One kernel and one step per item, each on buffers of its own; independent of each other."""
    buffers: list[BufferInfo] = []
    steps: list[Step] = []
    for index, item in enumerate(items):
        first = len(buffers)
        for p in function_of(item).params:
            kind = BufferKind.INPUT if p.access is Access.READ else BufferKind.OUTPUT
            size = p.elements * p.type.dtype.bytes
            buffers.append(BufferInfo(len(buffers), p.name, kind, (p.elements,), p.type.dtype, size))
        steps.append(Step(StepKind.KERNEL, index, tuple(range(first, len(buffers)))))
    kernels = tuple(kernel_of(device, item, groups) for item in items)
    return KernelList(kernels, tuple(buffers), tuple(steps), device.target)


def build(device: Device, item: Item, groups: tuple[int, int, int] = (1, 1, 1)) -> tile_hal.Kernel:
    """A kernel ready to run."""
    library = device.compiler.build(kernel_list(device, item, groups=groups))
    return device.executor.prepare(library, 0)


def launch(
    device: Device, item: Item, arrays: Sequence[Array], groups: tuple[int, int, int] = (1, 1, 1)
) -> list[Array]:
    """Run an item on copies of `arrays` (one per parameter); the arrays of all parameters it writes."""
    return launch_all(device, [item], [arrays], groups)[0]


def launch_all(
    device: Device,
    items: Sequence[Item],
    arrays: Sequence[Sequence[Array]],
    groups: tuple[int, int, int] = (1, 1, 1),
) -> list[list[Array]]:
    """Run several items as one kernel list."""
    kernels = kernel_list(device, *items, groups=groups)
    flat = [array for group in arrays for array in group]
    written = iter(launch_list(device, device.compiler.build(kernels), kernels, flat))
    return [[next(written) for p in function_of(item).params if p.access is not Access.READ] for item in items]


def launch_list(device: Device, library: Library, kernels: KernelList, arrays: Sequence[Array]) -> list[Array]:
    """Run the steps of a list on copies of `arrays` (one per buffer); the arrays of its outputs."""
    buffers = [guarded(device, info.name, array) for info, array in zip(kernels.buffers, arrays, strict=True)]
    bound = {info.id: made.buffer for info, made in zip(kernels.buffers, buffers, strict=True)}
    tile_hal.submit(device, library, kernels, bound).wait()
    check_guards(buffers)
    outputs = [info for info in kernels.buffers if info.kind is BufferKind.OUTPUT]
    return [download(bound[info.id], info.dtype)[: info.shape[0]] for info in outputs]


def reference(item: Function, arrays: Sequence[Array], groups: tuple[int, int, int] = (1, 1, 1)) -> list[Array]:
    """What `launch` has to give, by the semtree interpreter."""
    from tile_ir.semtree.interpret import launch as interpret

    copies = [np.array(array).reshape(-1) for array in arrays]
    interpret(item, groups, copies)
    return [a for a, p in zip(copies, item.params, strict=True) if p.access is not Access.READ]


def check(
    device: Device, item: Function, arrays: Sequence[Array], groups: tuple[int, int, int] = (1, 1, 1)
) -> list[Array]:
    """Run on the device and demand exactly what the interpreter gives."""
    got = launch(device, item, arrays, groups)
    for actual, expected in zip(got, reference(item, arrays, groups), strict=True):
        assert_same(actual, expected)
    return got


def assert_same(actual: Array, expected: Array, what: str = "", args: Sequence[Array] = ()) -> None:
    """Equal values; NaN equals NaN, and the sign of zero does not count. `args` are what they were computed from."""
    wide = [a.astype(np.float32) if a.dtype.name == "bfloat16" else a for a in (actual, expected)]
    if np.array_equal(wide[0], wide[1], equal_nan=wide[0].dtype.kind == "f"):
        return
    same = (wide[0] == wide[1]) | ((wide[0] != wide[0]) & (wide[1] != wide[1]))
    bad = np.flatnonzero(~same.reshape(-1))
    shown = ", ".join(f"[{i}] {actual.reshape(-1)[i]!r} instead of {expected.reshape(-1)[i]!r}" for i in bad[:5])
    text = f"{what}{': ' if what else ''}{len(bad)} of {actual.size} elements differ: {shown}"
    pytest.fail(text + subnormals.advice(actual, expected, ~same, args), pytrace=False)


# --- requirements ------------------------------------------------------------------------------------


def need(device: Device, *things: DType | str) -> None:
    """Skip, with the reason, when the device lacks a dtype or an optional node."""
    for thing in things:
        if isinstance(thing, DType):
            if thing not in device.capabilities.dtypes:
                pytest.skip(f"device has no {thing}")
            if thing is DType.BFLOAT16:
                pytest.importorskip("ml_dtypes")
        elif thing not in device.capabilities.nodes:
            pytest.skip(f"device has no {thing} node")


def need_threads(device: Device, threads: int, *nodes: DType | str) -> None:
    """`need`, and groups of so many work items."""
    need(device, *nodes)
    if threads > device.capabilities.max_group_size:
        pytest.skip(f"device has groups of at most {device.capabilities.max_group_size}")


def lanes_of(device: Device, dtype: DType) -> int:
    """Lanes of one vector register of the device, 1 without vectors."""
    if "Splat" not in device.capabilities.nodes:
        return 1
    return max(2, min(16, device.target.settings.vector_bytes // dtype.bytes))


def values(dtype: DType, count: int, seed: int = 0) -> Array:
    """Ordinary values: small integers, or floats of moderate size."""
    random = np.random.default_rng(seed)
    if dtype is DType.BOOL:
        return random.integers(0, 2, count).astype(bool)
    if dtype.is_float:
        return random.normal(0, 3, count).astype(np.float32).astype(dtype.numpy)
    return random.integers(0 if not dtype.is_signed else -20, 20, count).astype(dtype.numpy)


def hard_values(dtype: DType, count: int, seed: int = 0) -> Array:
    """Extremes first, then values of every size: limits, zeros, subnormals, infinities, NaN."""
    random = np.random.default_rng(seed)
    if dtype is DType.BOOL:
        return random.integers(0, 2, count).astype(bool)
    edges = _float_edges(dtype) if dtype.is_float else _integer_edges(dtype)
    bits = random.integers(0, 256, count * dtype.bytes, dtype=np.uint8).view(dtype.numpy)
    mixed = np.where(random.random(count) < 0.5, bits, values(dtype, count, seed + 1))
    mixed[: len(edges)] = edges[:count]
    return mixed


def _integer_edges(dtype: DType) -> Array:
    low, high = int(dtype.min_value), int(dtype.max_value)
    return np.array([low, low + 1, 0, 1, 2, 3, high - 1, high, *([-1, -2] if dtype.is_signed else [])], dtype.numpy)


def _float_edges(dtype: DType) -> Array:
    info = _finfo(dtype)
    positive = [0.0, float(info.tiny), float(info.tiny) / 4, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, float(info.max), np.inf]
    values = np.array([s * v for v in positive for s in (1, -1)] + [np.nan], np.float64).astype(dtype.numpy)
    # Not-a-number with every bit of its payload: what rounds it like a number makes it a zero.
    full = np.array([(1 << (dtype.bits - 1)) - 1], f"u{dtype.bytes}").view(dtype.numpy)
    return np.concatenate([values, full])


def _finfo(dtype: DType) -> Any:
    # NumPy knows nothing of bfloat16; its extension does.
    return np.finfo(dtype.numpy) if dtype is not DType.BFLOAT16 else import_module("ml_dtypes").finfo(dtype.numpy)


NUMBERS = [d for d in DType if d is not DType.BOOL]
BITCASTS = [(a, b) for a in NUMBERS for b in NUMBERS if a is not b and a.bits == b.bits]
"""Dtypes whose bits may be read as the other's."""


def without_nan(array: Array) -> Array:
    """1 for NaN, whose bits are open."""
    return np.where(array == array, array, array.dtype.type(1))


def narrows(source: DType, target: DType) -> bool:
    """Whether a cast rounds floats to shorter ones."""
    return source.is_float and target.is_float and source.bits > target.bits


def near_ties(source: DType, target: DType) -> list[Array]:
    """Floats of the wider `source` just beside the middle between two of `target`: what is rounded twice comes out wrong."""
    if not narrows(source, target):
        return []
    low = np.abs(values(target, 1024, 9)).astype(np.float64)
    step = 2.0 ** np.floor(np.log2(np.maximum(low, 0.1))) * float(_finfo(target).eps)
    return [(low + step * (0.5 + off)).astype(source.numpy) for off in (2.0**-30, -(2.0**-30), 0.0)]


def pairs(dtype: DType, count: int, seed: int = 0) -> tuple[Array, Array]:
    """Two operands in which every two edges meet, then random pairs."""
    pool = _float_edges(dtype) if dtype.is_float else hard_values(dtype, 10)
    left, right = (a.reshape(-1) for a in np.meshgrid(pool, pool))
    rest = max(0, count - len(left))
    more = [hard_values(dtype, rest, seed + n) for n in (2, 3)]
    return np.concatenate([left, more[0]])[:count], np.concatenate([right, more[1]])[:count]


def covering(name: str, args: Sequence[Array]) -> list[Array]:
    """The arguments with their second half in the math function's interesting range."""
    half = len(args[0]) // 2
    count, dtype = len(args[0]) - half, dtype_of(args[0])
    if name == "pow":
        inner = [np.abs(values(dtype, count, 5)), values(dtype, count, 6)]
    else:
        scale = {
            **dict.fromkeys(("asin", "acos", "atanh"), 1.2), **dict.fromkeys(("exp", "sinh", "cosh", "expm1"), 100.0),
            **dict.fromkeys(("tanh", "erf", "erfc"), 5.0),
        }.get(name, 50.0)  # fmt: skip
        inner = [np.random.default_rng(7 + n).normal(0, scale / 2, count).astype(dtype.numpy) for n in range(len(args))]
    return [np.concatenate([a[:half], b]) for a, b in zip(args, inner, strict=True)]


def shift_counts(shifted: DType, counts: DType, count: int) -> Array:
    """Counts below zero, within and beyond the width of what they shift, and extremes."""
    by = np.resize(np.arange(-3 if counts.is_signed else 0, shifted.bits + 4), count).astype(counts.numpy)
    by[-2:] = [counts.min_value, counts.max_value]
    return by


def dtype_of(array: Array) -> DType:
    return from_numpy(array.dtype)
