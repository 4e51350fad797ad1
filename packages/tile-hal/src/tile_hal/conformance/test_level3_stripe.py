"""Level 3 for devices that take scheduled Stripe: every scalar operation, dtype by dtype, as programs of one statement.

The semtree of the other level-3 files never reaches such a device, and the language inserts casts and promotions of
its own; these programs hold the one operation, between a load and a store.
"""

from __future__ import annotations

import numpy as np
import pytest
from tile_ir import numerics
from tile_ir.dtype import DType
from tile_ir.ops import OPS, ScalarOp, Signature
from tile_ir.program.nodes import Elementwise, Literal, Operand, Param, Program, TensorType

from tile_hal.conformance import programs, subnormals, tolerance
from tile_hal.conformance.kernels import (
    BITCASTS,
    Array,
    assert_same,
    covering,
    dtype_of,
    hard_values,
    need,
    pairs,
    shift_counts,
    values,
    without_nan,
)
from tile_hal.interfaces import Device

pytestmark = pytest.mark.takes("stripe")

COUNT = 1000
"""Elements of a test: tiles of powers of two have a remainder."""
ALL = tuple(DType)


def run(device: Device, ops: list[Elementwise], args: list[Array]) -> Array:
    """The last operation's value; inputs are called ``A``, ``B``…"""
    need(device, *(op.type.dtype for op in ops), *map(dtype_of, args))
    inputs = dict(zip("ABC", args, strict=False))
    params = tuple(Param(n, TensorType(dtype_of(a), a.shape)) for n, a in inputs.items())
    program = Program("one", params, tuple(ops), (("R", ops[-1].name),))
    return programs.run(device, program, inputs)["R"]


def one(op: str, out: DType, *args: Operand, name: str = "R") -> Elementwise:
    return Elementwise(name, TensorType(out, (COUNT,)), op, args)


def defined_on(op: ScalarOp) -> tuple[DType, ...]:
    """Operand dtypes on which an operation has a meaning."""
    match op.signature:
        case Signature.MATH:
            return tuple(d for d in DType if d.is_float)
        case Signature.SHIFT:
            return tuple(d for d in DType if d.is_integer)
        case Signature.BITS:
            return tuple(d for d in DType if not d.is_float)
        case _:
            return tuple(d for d in DType if d is not DType.BOOL or op.name not in ("neg", "abs", "div"))


def operands(op: ScalarOp, dtype: DType) -> list[Array]:
    """Arguments that are hard for the operation."""
    if op.signature is Signature.SELECT:
        return [hard_values(DType.BOOL, COUNT), *pairs(dtype, COUNT)]
    if op.signature is Signature.SHIFT:
        return [hard_values(dtype, COUNT), shift_counts(dtype, dtype, COUNT)]
    args = list(pairs(dtype, COUNT)) if op.arity == 2 else [hard_values(dtype, COUNT)]
    return covering(op.name, args) if op.signature is Signature.MATH else args


def agree(device: Device, op: str, out: DType, args: list[Array]) -> None:
    """One operation, within its bound on the dtype of its result, which for most is 0."""
    args = subnormals.operands(device, args)
    got = run(device, [one(op, out, *"ABC"[: len(args)])], args)
    bound = tolerance.ulp_bound(op, out) if out.is_float else 0.0
    if bound:
        found = subnormals.results(device, got, tolerance.math_reference(op, args, out))
        tolerance.assert_ulp(*found, bound, args)
    else:
        assert_same(*subnormals.results(device, got, numerics.apply(op, args, out)), op, args)


APART = (Signature.CAST, Signature.BITCAST, Signature.DOT)
"""Casts are tested below; dot products are in the programs of targets that list them alone."""
OPERATIONS = [(op.name, d) for op in OPS.values() if op.signature not in APART for d in defined_on(op)]


@pytest.mark.parametrize(("op", "dtype"), OPERATIONS)
def test_operation(tile_device: Device, op: str, dtype: DType) -> None:
    args = operands(OPS[op], dtype)
    out = DType.BOOL if OPS[op].signature is Signature.COMPARE else dtype
    agree(tile_device, op, out, args)


@pytest.mark.parametrize(("source", "target"), BITCASTS)
def test_bitcast(tile_device: Device, source: DType, target: DType) -> None:
    agree(tile_device, "bitcast", target, [without_nan(hard_values(source, COUNT))])


@pytest.mark.parametrize("dtype", [d for d in DType if d is DType.BOOL or (d.is_integer and d is not DType.INT32)])
@pytest.mark.parametrize("op", ["bit_left", "bit_right"])
def test_shifts_by_int32(tile_device: Device, op: str, dtype: DType) -> None:
    args = [hard_values(dtype, COUNT), shift_counts(dtype, DType.INT32, COUNT)]
    agree(tile_device, op, dtype, args)


@pytest.mark.parametrize(("source", "target"), [(a, b) for b in ALL for a in ALL if a is not b])
def test_conversion(tile_device: Device, source: DType, target: DType) -> None:
    for data in (hard_values(source, COUNT), values(source, COUNT)):
        agree(tile_device, "cast", target, [data])


@pytest.mark.parametrize("dtype", ALL)
def test_literals(tile_device: Device, dtype: DType) -> None:
    """Limits, subnormals, infinities and NaN as literals."""
    args = [hard_values(DType.BOOL, COUNT), values(dtype, COUNT)]
    for value in hard_values(dtype, 28):
        got = run(tile_device, [one("cond", dtype, "A", Literal(value.item(), dtype), "B")], args)
        assert_same(got, np.where(args[0], value, args[1]), repr(value))


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.FLOAT64])
def test_products_and_sums_are_rounded_twice(tile_device: Device, dtype: DType) -> None:
    """Elementwise results have the same bits everywhere: ``a * b + c`` is no fused multiply-add."""
    random = np.random.default_rng(3)
    a, b = (random.normal(0, 1, COUNT).astype(dtype.numpy) for _ in range(2))
    # What a fused form would leave is exactly the rounding error of the product.
    got = run(tile_device, [one("mul", dtype, "A", "B", name="P"), one("add", dtype, "P", "C")], [a, b, -(a * b)])
    assert_same(got, np.zeros(COUNT, dtype.numpy))
