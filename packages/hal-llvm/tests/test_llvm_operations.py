"""Every scalar operation, dtype by dtype, at one lane and as vectors, against `tile_ir.numerics`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tile_ir import numerics
from tile_ir.dtype import DType
from tile_ir.ops import OPS, Signature
from tile_ir.semtree.nodes import (
    Binary,
    Block,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Fma,
    For,
    Load,
    Select,
    Statement,
    Store,
    Type,
    Unary,
    Var,
)

N = 192
I64 = Type(DType.INT64)
LANES = (1, 8, 24)
Samples = Callable[[DType, int], Any]


def at(place: int, dtype: DType, lanes: int) -> Expr:
    return Load(Var(f"p{place}", Type(dtype, ptr=True)), Var("i", I64), Type(dtype, lanes))


def each(value: Expr, lanes: int, count: int = N) -> list[Statement]:
    """p0[i…] = value, over all i."""
    store = Store(Var("p0", Type(value.type.dtype, ptr=True)), Var("i", I64), value)
    return [For("i", Const(0, I64), Const(count, I64), lanes, Block((store,)))]


def same(got: Any, expected: Any) -> None:
    if got.dtype.kind != "f" and got.dtype.name != "bfloat16":
        np.testing.assert_array_equal(got, expected)
        return
    np.testing.assert_array_equal(got.astype(np.float64), np.asarray(expected).astype(np.float64))


def node(op: str, dtype: DType, lanes: int, args: list[Expr]) -> Expr:
    match OPS[op].signature, args:
        case Signature.COMPARE, [a, b]:
            return Compare(op, a, b, Type(DType.BOOL, lanes))
        case Signature.SELECT, [c, a, b]:
            return Select(c, a, b, Type(dtype, lanes))
        case Signature.MATH, _:
            return Call(op, tuple(args), Type(dtype, lanes))
        case _, [a]:
            return Unary(op, a, Type(dtype, lanes))
        case _, [a, b]:
            return Binary(op, a, b, Type(dtype, lanes))
        case _:
            raise AssertionError(op)


ARITHMETIC = ["add", "sub", "mul", "div", "max", "min", "neg", "abs"]
COMPARISONS = [name for name, op in OPS.items() if op.signature is Signature.COMPARE]
BITS = ["bit_and", "bit_or", "bit_xor", "bit_not"]


def check(launch_all: Any, samples: Samples, dtype: DType, names: list[str]) -> None:
    cases, expected = [], []
    for name in names:
        op = OPS[name]
        args = [samples(dtype, 10 + n) for n in range(op.arity)]
        result = DType.BOOL if op.signature is Signature.COMPARE else dtype
        for lanes in LANES:
            value = node(name, dtype, lanes, [at(n + 1, dtype, lanes) for n in range(op.arity)])
            cases.append((each(value, lanes), [np.zeros(N, result.numpy), *args]))
            expected.append((name, numerics.apply(name, args, result)))
    for got, (_, want) in zip(launch_all(cases), expected, strict=True):
        same(got, want)


@pytest.mark.parametrize("dtype", DType, ids=str)
def test_arithmetic(launch_all: Any, samples: Samples, dtype: DType) -> None:
    check(launch_all, samples, dtype, ARITHMETIC + COMPARISONS)


@pytest.mark.parametrize("dtype", [d for d in DType if not d.is_float], ids=str)
def test_bits(launch_all: Any, samples: Samples, dtype: DType) -> None:
    check(launch_all, samples, dtype, BITS)


@pytest.mark.parametrize("dtype", [d for d in DType if d.is_float], ids=str)
def test_exact_math(launch_all: Any, samples: Samples, dtype: DType) -> None:
    check(launch_all, samples, dtype, ["sqrt", "ceil", "floor", "round", "recip"])


@pytest.mark.parametrize("dtype", [d for d in DType if not d.is_float], ids=str)
def test_shifts_take_any_count(launch_all: Any, samples: Samples, dtype: DType) -> None:
    cases, expected = [], []
    value = samples(dtype, 1)
    for count_dtype in (DType.INT8, DType.UINT8, DType.INT32, DType.INT64, DType.UINT64):
        wild = samples(count_dtype, 2)
        counts = np.where(np.arange(N) % 3 == 0, wild, (np.arange(N) % 67).astype(count_dtype.numpy))
        for name in ("bit_left", "bit_right"):
            for lanes in (1, 8):
                shifted = Binary(name, at(1, dtype, lanes), at(2, count_dtype, lanes), Type(dtype, lanes))
                cases.append((each(shifted, lanes), [np.zeros(N, dtype.numpy), value, counts]))
                expected.append(numerics.apply(name, [value, counts], dtype))
    for got, want in zip(launch_all(cases), expected, strict=True):
        same(got, want)


@pytest.mark.parametrize("source", DType, ids=str)
def test_casts(launch_all: Any, samples: Samples, source: DType) -> None:
    value = samples(source, 3)
    if source in (DType.FLOAT32, DType.FLOAT64):
        value[1::4] = np.random.default_rng(0).integers(-(2**40), 2**40, value[1::4].size)
    cases = [
        (each(Cast(at(1, source, lanes), Type(target, lanes)), lanes), [np.zeros(N, target.numpy), value])
        for target in DType
        for lanes in LANES
    ]
    expected = [numerics.cast_array(value, target) for target in DType for _ in LANES]
    for got, want in zip(launch_all(cases), expected, strict=True):
        same(got, want)


@pytest.mark.parametrize("dtype", DType, ids=str)
def test_select(launch_all: Any, samples: Samples, dtype: DType) -> None:
    mask, yes, no = samples(DType.BOOL, 4), samples(dtype, 5), samples(dtype, 6)
    cases = []
    for lanes in LANES:
        value = Select(at(1, DType.BOOL, lanes), at(2, dtype, lanes), at(3, dtype, lanes), Type(dtype, lanes))
        cases.append((each(value, lanes), [np.zeros(N, dtype.numpy), mask, yes, no]))
    for got in launch_all(cases):
        same(got, np.where(mask, yes, no))


@pytest.mark.parametrize("dtype", DType, ids=str)
def test_fma(launch_all: Any, samples: Samples, dtype: DType) -> None:
    args = [np.random.default_rng(n).integers(0, 5, N).astype(dtype.numpy) for n in range(3)]
    product = numerics.apply("mul", args[:2], dtype)
    want = numerics.apply("add", [product, args[2]], dtype)
    cases = []
    for lanes in LANES:
        value = Fma(*(at(n, dtype, lanes) for n in (1, 2, 3)), Type(dtype, lanes))
        cases.append((each(value, lanes), [np.zeros(N, dtype.numpy), *args]))
    for got in launch_all(cases):
        same(got, want)


def test_fma_rounds_once(launch: Any) -> None:
    a = np.array([1 + 2.0**-12], np.float32)
    c = np.array([-(1 + 2.0**-11)], np.float32)
    t = Type(DType.FLOAT32)
    load = [Load(Var(f"p{n}", Type(DType.FLOAT32, ptr=True)), Const(0, I64), t) for n in (1, 2)]
    body = [Store(Var("p0", Type(DType.FLOAT32, ptr=True)), Const(0, I64), Fma(load[0], load[0], load[1], t))]
    assert launch(body, np.zeros(1, np.float32), a, c)[0][0] == 2.0**-24


@pytest.mark.parametrize("divisor", [7, -3, 1, -1, 0])
def test_constant_divisors(launch: Any, samples: Samples, divisor: int) -> None:
    value = samples(DType.INT32, 7)
    t = Type(DType.INT32, 8)
    load = at(1, DType.INT32, 8)
    got = launch(each(Binary("div", load, Const(divisor, t), t), 8), np.zeros(N, np.int32), value)[0]
    same(got, numerics.apply("div", [value, np.int32(divisor)], DType.INT32))
    got = launch(each(Binary("mod", load, Const(divisor, t), t), 8), np.zeros(N, np.int32), value)[0]
    safe = np.where(value == np.iinfo(np.int32).min, 0, value) if divisor == -1 else value
    same(got, np.mod(safe, np.int32(divisor)) if divisor else np.zeros(N, np.int32))


@pytest.mark.parametrize("dtype", [DType.INT64, DType.UINT64])
def test_long_integers_over_constants(launch: Any, dtype: DType) -> None:
    """Next to whole numbers of times, where a reciprocal that is too large or too small shows."""
    t, top = Type(dtype, 4), dtype.max_value
    for by in (3, 7, 10, 641, (1 << 32) - 1, (1 << 32) + 1, 10**15 + 37, top // 2 + 2, top - 1, top):
        times = [k * by for k in (0, 1, 2, 3, top // by // 2, top // by - 1, top // by)]
        near = [m + d for m in times for d in (-1, 0, 1) if m + d >= 0] + [top, top - 1, top // 2, top // 2 + 1]
        near += [dtype.min_value + k for k in range(3)] + [-n for n in near if dtype.is_signed]
        value = np.resize(np.array([n for n in near if dtype.min_value <= n <= top], dtype.numpy), N)
        got = launch(each(Binary("div", at(1, dtype, 4), Const(by, t), t), 4), np.zeros(N, dtype.numpy), value)[0]
        same(got, numerics.apply("div", [value, dtype.numpy.type(by)], dtype))


@pytest.mark.parametrize("dtype", [DType.INT16, DType.UINT16])
def test_quotients_of_vectors_next_to_whole_numbers(launch: Any, dtype: DType) -> None:
    """They are computed as floats: rounded up, the largest below a whole number would be that number."""
    t, divisors = Type(dtype, 8), np.resize(np.arange(1, dtype.max_value, 31), N).astype(dtype.numpy)
    below = (dtype.max_value // divisors * divisors - 1).astype(dtype.numpy)
    got = launch(
        each(Binary("div", at(1, dtype, 8), at(2, dtype, 8), t), 8), np.zeros(N, dtype.numpy), below, divisors
    )[0]
    same(got, numerics.apply("div", [below, divisors], dtype))


@pytest.mark.parametrize("constant", [0.0, -3.0, np.inf, np.nan])
@pytest.mark.parametrize("name", ["max", "min"])
def test_extremes_with_a_constant(launch: Any, samples: Samples, name: str, constant: float) -> None:
    value = samples(DType.FLOAT32, 8)
    t = Type(DType.FLOAT32, 8)
    want = numerics.apply(name, [value, np.float32(constant)], DType.FLOAT32)
    for pair in ((at(1, DType.FLOAT32, 8), Const(constant, t)), (Const(constant, t), at(1, DType.FLOAT32, 8))):
        same(launch(each(Binary(name, *pair, t), 8), np.zeros(N, np.float32), value)[0], want)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("lanes", [1, 16, 32])
@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16], ids=str)
def test_every_half_float_beside_zero(launch_all: Any, dtype: DType, lanes: int) -> None:
    """Of -0 and 0 the sum is 0; the sum with -0 is the number itself."""
    every = np.arange(1 << 16, dtype=np.uint16).view(dtype.numpy)
    t, zeros = Type(dtype, lanes), (0.0, -0.0)
    value = at(1, dtype, lanes)
    sums = [s for z in zeros for s in (Binary("add", value, Const(z, t), t), Binary("add", Const(z, t), value, t))]
    got = launch_all([(each(s, lanes, every.size), [np.zeros_like(every), every]) for s in sums])
    for n, found in enumerate(got):
        want = numerics.apply("add", [every, np.full_like(every, zeros[n // 2])], dtype)
        same(found, want)
        numbers = ~np.isnan(every.astype(np.float32))
        np.testing.assert_array_equal(
            np.signbit(found.astype(np.float32)[numbers]), np.signbit(want.astype(np.float32)[numbers])
        )
