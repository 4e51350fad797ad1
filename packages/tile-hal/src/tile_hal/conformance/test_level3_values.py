"""Level 3, values: every scalar operation, cast, constant and math function, dtype by dtype."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from tile_ir import numerics
from tile_ir.dots import DOTS
from tile_ir.dtype import DType
from tile_ir.ops import OPS, Signature
from tile_ir.semtree.nodes import (
    Access,
    Binary,
    Bitcast,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Fma,
    Limit,
    Select,
    Type,
    Unary,
)  # fmt: skip
from tile_ir.semtree.verify import OPTIONAL_FUNCTIONS

from tile_hal.conformance import subnormals, tolerance
from tile_hal.conformance.kernels import (
    BITCASTS,
    Array,
    assert_same,
    covering,
    elementwise,
    function,
    hard_values,
    launch,
    narrows,
    near_ties,
    need,
    number,
    pairs,
    param,
    shift_counts,
    store,
    values,
    without_nan,
)  # fmt: skip
from tile_hal.conformance.rows import COUNT, Case, compute
from tile_hal.interfaces import Device

pytestmark = pytest.mark.takes("semtree")

ALL = tuple(DType)
FLOATS = tuple(d for d in DType if d.is_float)
INTEGERS = tuple(d for d in DType if d.is_integer)
WHOLE = (DType.BOOL, *INTEGERS)
Reference = Callable[[str, list[Array], DType], Array]
"""The right results of an operation."""


def unary(op: str, value: Expr) -> Expr:
    return Unary(op, value, value.type)


def binary(op: str, left: Expr, right: Expr) -> Expr:
    return Binary(op, left, right, left.type)


def compare(op: str, left: Expr, right: Expr) -> Expr:
    return Compare(op, left, right, Type(DType.BOOL, left.type.lanes))


def call(op: str, *args: Expr) -> Expr:
    return Call(op, args, args[0].type)


def dot(op: str, *args: Expr) -> Expr:
    return Call(op, args, args[-1].type)


def run(device: Device, case: Case, args: Sequence[Array], row: Sequence[Case] = ()) -> Array:
    """The formula's values over `args`, scalar; and the same bits from the vector form, where there are vectors."""
    need(device, case.out, *case.dtypes, *([case.node] if case.node else []))
    results = compute(device, case, args, row)
    if len(results) > 1:
        assert_same(*subnormals.results(device, results[1], results[0]), "the lanes differ from the scalar form")
    return results[0]


def exact(device: Device, case: Case, args: list[Array], row: Sequence[Case] = ()) -> None:
    args = subnormals.operands(device, args)
    got = run(device, case, args, row)
    assert_same(*subnormals.results(device, got, numerics.apply(case.name, args, case.out)), case.name, args)


def close(device: Device, case: Case, args: list[Array], expected: Reference, row: Sequence[Case] = ()) -> None:
    """Within the bound of a math function."""
    args = subnormals.operands(device, args)
    got = run(device, case, args, row)
    found = subnormals.results(device, got, expected(case.name, args, case.out))
    tolerance.assert_ulp(*found, tolerance.ulp_bound(case.name, case.out), args)


UNARY = [(op, d) for op in ("neg", "abs") for d in (*INTEGERS, *FLOATS)] + [("bit_not", d) for d in WHOLE]
ARITHMETIC = [(op, d) for op in ("add", "sub", "mul", "max", "min") for d in ALL]
BITS = [(op, d) for op in ("bit_and", "bit_or", "bit_xor") for d in WHOLE]
COMPARISONS = [(name, d) for name, op in OPS.items() if op.signature is Signature.COMPARE for d in ALL]
MATH = [(name, d) for name, op in OPS.items() if op.signature is Signature.MATH for d in FLOATS]


def unary_case(op: str, dtype: DType) -> Case:
    return Case(op, partial(unary, op), dtype, (dtype,))


@pytest.mark.parametrize(("op", "dtype"), UNARY)
def test_unary(tile_device: Device, op: str, dtype: DType) -> None:
    need(tile_device, dtype)
    row = [unary_case(*of) for of in UNARY if of[0] == op]
    exact(tile_device, unary_case(op, dtype), [hard_values(dtype, COUNT)], row)


BINARY = [*ARITHMETIC, *BITS, *(("div", d) for d in INTEGERS)]


def binary_case(op: str, dtype: DType) -> Case:
    return Case(op, partial(binary, op), dtype, (dtype, dtype))


@pytest.mark.parametrize(("op", "dtype"), BINARY)
def test_binary(tile_device: Device, op: str, dtype: DType) -> None:
    need(tile_device, dtype)
    row = [binary_case(*of) for of in BINARY if of[0] == op]
    exact(tile_device, binary_case(op, dtype), list(pairs(dtype, COUNT)), row)


@pytest.mark.parametrize("dtype", [DType.INT32, DType.INT64])
def test_index_modulus_is_floored(tile_device: Device, dtype: DType) -> None:
    """Defined for positive divisors: the only ones that subscripts have."""
    need(tile_device, dtype)
    left = values(dtype, COUNT)
    right = (np.abs(values(dtype, COUNT, 1)) + 1).astype(dtype.numpy)
    assert_same(run(tile_device, binary_case("mod", dtype), [left, right]), left % right)


SHIFTS = ("bit_left", "bit_right")


def shift_case(op: str, dtype: DType, counts: DType) -> Case:
    return Case(op, partial(binary, op), dtype, (dtype, counts))


@pytest.mark.parametrize("op", SHIFTS)
@pytest.mark.parametrize("dtype", WHOLE)
def test_shifts_are_total(tile_device: Device, op: str, dtype: DType) -> None:
    """Counts below zero and beyond the width give 0, or the sign; a bool has eight bits."""
    need(tile_device, dtype)
    by = dict.fromkeys((DType.INT32 if dtype is DType.BOOL else dtype, DType.INT32))
    row = [shift_case(o, dtype, counts) for o in SHIFTS for counts in by]
    for counts in by:
        args = [hard_values(dtype, COUNT), shift_counts(dtype, counts, COUNT)]
        exact(tile_device, shift_case(op, dtype, counts), args, row)


def compare_case(op: str, dtype: DType) -> Case:
    return Case(op, partial(compare, op), DType.BOOL, (dtype, dtype))


@pytest.mark.parametrize(("op", "dtype"), COMPARISONS)
def test_compare(tile_device: Device, op: str, dtype: DType) -> None:
    need(tile_device, dtype)
    row = [compare_case(*of) for of in COMPARISONS if of[0] == op]
    exact(tile_device, compare_case(op, dtype), list(pairs(dtype, COUNT)), row)


def select_case(dtype: DType) -> Case:
    return Case("cond", lambda c, a, b: Select(c, a, b, a.type), dtype, (DType.BOOL, dtype, dtype))


@pytest.mark.parametrize("dtype", ALL)
def test_select(tile_device: Device, dtype: DType) -> None:
    need(tile_device, dtype)
    args = [hard_values(DType.BOOL, COUNT), *pairs(dtype, COUNT)]
    exact(tile_device, select_case(dtype), args, [select_case(d) for d in ALL])


def cast_case(source: DType, target: DType) -> Case:
    count = COUNT * (5 if narrows(source, target) else 2)
    return Case("cast", lambda v: Cast(v, Type(target, v.type.lanes)), target, (source,), count)


@pytest.mark.parametrize("source", ALL)
@pytest.mark.parametrize("target", ALL)
def test_cast(tile_device: Device, source: DType, target: DType) -> None:
    need(tile_device, source, target)
    if source is target:
        pytest.skip("no conversion")
    row = [cast_case(other, target) for other in ALL if other is not target]
    data = np.concatenate([hard_values(source, COUNT), values(source, COUNT), *near_ties(source, target)])
    exact(tile_device, cast_case(source, target), [data], row)


def bitcast_case(source: DType, target: DType) -> Case:
    return Case("bitcast", lambda v: Bitcast(v, Type(target, v.type.lanes)), target, (source,), node="Bitcast")


@pytest.mark.parametrize(("source", "target"), BITCASTS)
def test_bitcast(tile_device: Device, source: DType, target: DType) -> None:
    need(tile_device, source, target)
    row = [bitcast_case(*of) for of in BITCASTS if of[0] is source]
    exact(tile_device, bitcast_case(source, target), [without_nan(hard_values(source, COUNT))], row)


def math_case(op: str, dtype: DType) -> Case:
    needed = op if op in OPTIONAL_FUNCTIONS else ""
    return Case(op, partial(call, op), dtype, (dtype,) * OPS[op].arity, node=needed)


@pytest.mark.parametrize(("op", "dtype"), MATH)
def test_math(tile_device: Device, op: str, dtype: DType) -> None:
    need(tile_device, dtype)
    args = covering(op, [hard_values(dtype, COUNT)] if OPS[op].arity == 1 else [*pairs(dtype, COUNT)])
    row = [math_case(op, d) for d in FLOATS]
    close(tile_device, math_case(op, dtype), args, tolerance.math_reference, row)


@pytest.mark.parametrize("op", DOTS)
def test_dot_products_of_words(tile_device: Device, op: str) -> None:
    """Nothing saturates, and the total of integers wraps; that of floats is rounded as often, and in the order, that is said."""
    total = DOTS[op].c
    extremes = np.array([0, -1, 0x7F7F7F7F, -0x7F7F7F80, 0x01010101, -0x80000000, 0x7FFF7FFF], np.int32)
    args = [*pairs(DType.INT32, COUNT), hard_values(total, COUNT)]
    for n, factor in enumerate(args[:2]):
        factor[: extremes.size**2] = np.meshgrid(extremes, extremes)[n].reshape(-1)
    exact(tile_device, Case(op, partial(dot, op), total, (DType.INT32, DType.INT32, total), node=op), args)


@pytest.mark.parametrize("dtype", FLOATS)
def test_division(tile_device: Device, dtype: DType) -> None:
    need(tile_device, dtype)
    row = [binary_case("div", d) for d in FLOATS]
    close(tile_device, binary_case("div", dtype), list(pairs(dtype, COUNT)), numerics.apply, row)


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.FLOAT64])
def test_products_and_sums_are_not_contracted(tile_device: Device, dtype: DType) -> None:
    """``a * b + c`` without an Fma node is rounded twice: elementwise results have the same bits everywhere."""
    need(tile_device, dtype)
    random = np.random.default_rng(3)
    a, b = (random.normal(0, 1, COUNT).astype(dtype.numpy) for _ in range(2))
    c = -(a * b)  # what a fused form would leave is exactly the rounding error of the product

    def expr(x: Expr, y: Expr, z: Expr) -> Expr:
        return binary("add", binary("mul", x, y), z)

    got = run(tile_device, Case("sum of a product", expr, dtype, (dtype,) * 3), [a, b, c])
    assert_same(got, np.zeros(COUNT, dtype.numpy))


@pytest.mark.parametrize("dtype", FLOATS)
def test_fma_rounds_once(tile_device: Device, dtype: DType) -> None:
    need(tile_device, "Fma", dtype)
    random = np.random.default_rng(4)
    args = [random.normal(0, 1, COUNT).astype(dtype.numpy) for _ in range(3)]
    got = run(tile_device, Case("fma", lambda a, b, c: Fma(a, b, c, a.type), dtype, (dtype,) * 3), args)
    # Exact in extended precision for the narrow types; float64 is checked to the last place but one.
    wide = np.longdouble if dtype is DType.FLOAT64 else np.float64
    exact_sum = args[0].astype(wide) * args[1].astype(wide) + args[2].astype(wide)
    bound = 1.0 if dtype is DType.FLOAT64 else 0.0
    if dtype in (DType.FLOAT16, DType.BFLOAT16):
        exact_sum, bound = exact_sum.astype(np.float32), 1.0
    tolerance.assert_ulp(got, exact_sum.astype(dtype.numpy), bound, args)


ROUNDED = {0.1, -0.7, 2 / 3, 1e-3, 12345.678}
"""Numbers that no binary format holds: a constant is the nearest value of its type."""


@pytest.mark.parametrize("dtype", ALL)
def test_constants_and_limits(tile_device: Device, dtype: DType) -> None:
    need(tile_device, dtype)
    literals: set[Any] = {v.item() for v in hard_values(dtype, 40) if v == v}
    literals |= ROUNDED if dtype.is_float else set()
    exprs: list[Expr] = [Const(bool(v) if dtype is DType.BOOL else v, Type(dtype)) for v in sorted(literals)]
    if dtype.is_float:
        exprs.append(Const(float("nan"), Type(dtype)))
    exprs += [Limit(which, Type(dtype)) for which in ("min", "max")]
    expected = [*sorted(literals), *([np.nan] if dtype.is_float else []), dtype.min_value, dtype.max_value]
    out = param("out", dtype, len(exprs), Access.WRITE)
    stores = [store("out", number(n), value) for n, value in enumerate(exprs)]
    (got,) = launch(tile_device, function([out], *stores), [np.zeros(len(exprs), dtype.numpy)])
    wanted = np.array(expected, np.float64).astype(dtype.numpy) if dtype.is_float else np.array(expected, dtype.numpy)
    assert_same(got, wanted, "constants")


@pytest.mark.parametrize("dtype", ALL)
def test_every_value_survives_a_copy_kernel(tile_device: Device, dtype: DType) -> None:
    """A copy kernel keeps every bit pattern, NaN payloads aside."""
    need(tile_device, dtype)
    data = hard_values(dtype, COUNT)
    got = launch(tile_device, elementwise(lambda v: v, dtype, [dtype], COUNT), [np.zeros(COUNT, dtype.numpy), data])
    assert_same(got[0], data)
