"""Accuracy of the math functions over the whole range, and equal bits at every lane count."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hal_llvm import compiler
from hal_llvm.compiler import machine_for
from tile_ir.dtype import DType
from tile_ir.ops import OPS
from tile_ir.semtree.nodes import Block, Call, Const, For, Load, Statement, Store, Type, Var

N = 1 << 15
I64 = Type(DType.INT64)
Reference = Callable[..., Any]

BOUNDS: dict[str, tuple[float, Reference]] = {
    "exp": (3, np.exp), "log": (3, np.log), "sin": (4, np.sin), "cos": (4, np.cos), "tan": (5, np.tan),
    "asin": (4, np.arcsin), "acos": (4, np.arccos), "atan": (5, np.arctan), "sinh": (4, np.sinh),
    "cosh": (4, np.cosh), "tanh": (5, np.tanh), "sqrt": (0.5, np.sqrt), "pow": (16, np.power),
    "expm1": (3, np.expm1), "log1p": (2, np.log1p), "asinh": (4, np.arcsinh), "acosh": (4, np.arccosh),
    "atanh": (5, np.arctanh), "erf": (16, np.vectorize(math.erf)), "erfc": (16, np.vectorize(math.erfc)),
    "atan2": (6, np.arctan2), "fmod": (0, np.fmod), "trunc": (0, np.trunc), "round_even": (0, np.rint),
}  # fmt: skip
"""OpenCL's full-profile bounds in ulp."""
INEXACT = [name for name in BOUNDS if name not in ("sqrt", "fmod", "trunc", "round_even")]


def arity_of(name: str) -> int:
    return OPS[name].arity


SPECIAL = [
    0.0,
    -0.0,
    np.inf,
    -np.inf,
    np.nan,
    1,
    -1,
    0.5,
    -0.5,
    2,
    -2,
    3,
    -3,
    1e-45,
    -1e-45,
    1e-38,
    3e38,
    -3e38,
    2.5,
    16777217,
    1e10,
]


def call(name: str, dtype: DType, lanes: int, arity: int, count: int = N) -> list[Statement]:
    t, pointer, i = Type(dtype, lanes), Type(dtype, ptr=True), Var("i", I64)
    args = tuple(Load(Var(f"p{n + 1}", pointer), i, t) for n in range(arity))
    store = Store(Var("p0", pointer), i, Call(name, args, t))
    return [For("i", Const(0, I64), Const(count, I64), lanes, Block((store,)))]


def ulps(got: Any, exact: Any) -> Any:
    """Error in units of the float32 grid at the exact value; results that round alike count as 0."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(np.float32)
        grid = np.ldexp(1.0, np.maximum(np.frexp(np.abs(exact))[1], -125) - 24)
        error = np.abs(got.astype(np.float64) - exact) / grid
        error = np.where((got == rounded) | (np.isnan(got) & np.isnan(rounded)), 0.0, error)
        # Beyond float32's range an ulp or two may fall on either side of infinity.
        near_top = np.isinf(rounded) & (np.abs(got) >= np.float32(3.4028e38))
    return np.where(near_top, 0.0, np.where(np.isnan(error), np.inf, error))


def bits_of(values: Any) -> Any:
    """Patterns of bits; NaNs are all one, since of two operands that are NaN processors may take either's."""
    return np.where(np.isnan(values), np.float32(np.nan), values).view(np.uint32)


def inputs(arity: int, kind: str) -> list[Any]:
    generator = np.random.default_rng(len(kind))
    if arity == 2 and kind == "special":
        return [np.resize(a, N) for a in np.meshgrid(*[np.array(SPECIAL, np.float32)] * 2)]
    if kind == "exponents":
        # 64 mantissas of every exponent and sign; a second operand in another order.
        every = (np.arange(N, dtype=np.uint32) << 17 | generator.integers(0, 1 << 17, N, np.uint32)).view(np.float32)
        return [every, generator.permutation(every)][:arity]
    ranges = {"wide": (-110, 110), "unit": (-1, 1), "one": (0.4, 2.5), "large": (1e5, 1e7)}
    if kind in ranges:
        return [generator.uniform(*ranges[kind], N).astype(np.float32) for _ in range(arity)]
    bits = [generator.integers(0, 2**32, N, np.uint32).view(np.float32) for _ in range(arity)]
    bits[0][: len(SPECIAL)] = SPECIAL
    return bits


@pytest.mark.parametrize("fused", [True, False], ids=["fma", "no fma"])
@pytest.mark.parametrize("name", BOUNDS)
def test_float32_within_bounds_and_equal_in_every_lane(
    launch_all: Any, name: str, fused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "machine_for", lambda p: replace(machine_for(p), fma=machine_for(p).fma and fused))
    bound, reference = BOUNDS[name]
    arity, kinds = arity_of(name), ("bits", "exponents", "special", "wide", "unit", "one", "large")
    # All in one array: a kernel for each kind would be compiled for each.
    args = [np.concatenate(operand) for operand in zip(*(inputs(arity, kind) for kind in kinds), strict=True)]
    out = np.zeros(args[0].size, np.float32)
    cases = [(call(name, DType.FLOAT32, lanes, arity, out.size), [out, *args]) for lanes in (1, 4, 16)]
    scalar, narrow, vector = launch_all(cases)
    np.testing.assert_array_equal(bits_of(scalar), bits_of(narrow))
    np.testing.assert_array_equal(bits_of(scalar), bits_of(vector))
    with np.errstate(all="ignore"):
        exact = reference(*(a.astype(np.float64) for a in args))
    error = ulps(vector, exact)
    worst = int(np.argmax(error))
    assert error[worst] <= bound, (kinds[worst // N], [a[worst] for a in args], vector[worst], exact[worst])
    zeros = (vector == 0) & (exact == 0)
    assert (np.signbit(vector) == np.signbit(exact))[zeros].all()


@pytest.mark.parametrize("name", INEXACT)
@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16], ids=str)
def test_halves_compute_in_float32(launch_all: Any, name: str, dtype: DType) -> None:
    arity = arity_of(name)
    args = [a.astype(dtype.numpy) for a in inputs(arity, "unit")]
    got, single = launch_all([
        (call(name, dtype, 8, arity), [np.zeros(N, dtype.numpy), *args]),
        (call(name, DType.FLOAT32, 8, arity), [np.zeros(N, np.float32), *(a.astype(np.float32) for a in args)]),
    ])  # fmt: skip
    want = single.astype(dtype.numpy)
    np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32))


def doubles(kind: str, seed: int) -> Any:
    generator = np.random.default_rng(seed)
    ranges = {"wide": (-760, 760), "unit": (-1, 1), "one": (0.4, 2.5), "large": (1e5, 1e7)}
    if kind in ranges:
        return generator.uniform(*ranges[kind], N)
    if kind == "turns":  # the numbers nearest to multiples of pi/4, the worst of all to reduce
        return np.arange(N) * (np.pi / 4)
    bits = generator.integers(0, 2**64, N, np.uint64)
    if kind == "exponents":  # of every exponent and sign some mantissas
        bits = generator.permutation(np.arange(N, dtype=np.uint64)) << np.uint64(49) | bits >> np.uint64(15)
    return bits.view(np.float64)


def double_inputs(arity: int, kind: str) -> list[Any]:
    if kind == "special":
        return [np.resize(a, N) for a in np.meshgrid(*[np.array([*SPECIAL, 5e-324, -1e-310, 1e308])] * 2)][:arity]
    return [doubles(kind, seed) for seed in range(arity)]


def exactly(name: str, args: list[Any]) -> Any:
    """Results of a longer format, of the error functions of float64: they may be off by one more unit."""
    longer = np.float64 if name in ("erf", "erfc") else np.longdouble
    with np.errstate(all="ignore"):
        return BOUNDS[name][1](*(a.astype(longer) for a in args)).astype(np.longdouble)


def long_ulps(got: Any, exact: Any) -> Any:
    """Error in units of the float64 grid at the exact value; results that round alike count as 0."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(np.float64)
        grid = np.ldexp(np.longdouble(1), np.maximum(np.frexp(np.abs(exact))[1], -1021) - 53)
        error = np.abs(got.astype(np.longdouble) - exact) / grid
    error = np.where((got == rounded) | (np.isnan(got) & np.isnan(rounded)), 0, error)
    return np.where(np.isnan(error), np.inf, error)


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 60, reason="no format is more exact here")
@pytest.mark.parametrize("fused", [True, False], ids=["fma", "no fma"])
@pytest.mark.parametrize("name", BOUNDS)
def test_float64_within_bounds_and_equal_in_every_lane(
    launch_all: Any, name: str, fused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "machine_for", lambda p: replace(machine_for(p), fma=machine_for(p).fma and fused))
    arity, kinds = arity_of(name), ("bits", "exponents", "special", "wide", "unit", "one", "large", "turns")
    args = [np.concatenate(operand) for operand in zip(*(double_inputs(arity, kind) for kind in kinds), strict=True)]
    out = np.zeros(args[0].size)
    scalar, vector = launch_all([(call(name, DType.FLOAT64, lanes, arity, out.size), [out, *args]) for lanes in (1, 8)])
    nan = np.isnan(scalar) & np.isnan(vector)  # of two operands that are NaN processors may take either's
    np.testing.assert_array_equal(scalar.view(np.uint64)[~nan], vector.view(np.uint64)[~nan])
    exact = exactly(name, args)
    error = long_ulps(vector, exact)
    worst = int(np.argmax(error))
    assert error[worst] <= BOUNDS[name][0], (kinds[worst // N], [a[worst] for a in args], vector[worst], exact[worst])
    zeros = (vector == 0) & (exact == 0)
    assert (np.signbit(vector) == np.signbit(exact))[zeros].all()
