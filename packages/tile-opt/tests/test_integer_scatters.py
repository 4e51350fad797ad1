"""Scatters as scatters of integers: the same values, in any order of the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import fsum
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tile_ir.dtype import DType, from_numpy
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import Program, Scatter, TensorType
from tile_ir.stripe.nodes import Block, Order, Store
from tile_ir.target import PassConfig, Target
from tile_lang import bind, parse
from tile_lang.evaluate import evaluate
from tile_opt.blocks.tree import kernels_of
from tile_opt.kernel.view import open_kernel
from tile_opt.passes.kernels.atomics import Atomics
from tile_opt.program import IntegerScatters, integer_scatters, rewrites_for
from tile_opt.translate import to_stripe

Array = npt.NDArray[Any]
SUBSCRIPTS = {
    "rows": "function (U[K, C], I[K], D[N, C]) -> (O) {{ O[I[k], c : N, C] = {agg}(U[k, c]){default}; }}",
    "along an axis": "function (U[N, K], I[N, K], D[N, C]) -> (O) {{ O[n, I[n, k] : N, C] = {agg}(U[n, k]){default}; }}",
    "points": "function (U[K], I[K], J[K], D[N, C]) -> (O) {{ O[I[k], J[k] : N, C] = {agg}(U[k]){default}; }}",
    "blocks": "function (U[K, L, C], I[K, L], D[N, C]) -> (O) {{ O[I[k, l], c : N, C] = {agg}(U[k, l, c]){default}; }}",
}
DTYPES = ("float16", "float32", "float64", "int8", "uint8", "int16", "int32", "uint32", "int64")


def values(random: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Values of many sizes, NaN, infinities and zeros of both signs among those of floats."""
    if not dtype.startswith("float"):
        limits = np.iinfo(dtype)
        return random.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)
    powers = (3, 30, 300)[("float16", "float32", "float64").index(dtype)]
    found = random.normal(0, 1, shape) * 10.0 ** random.integers(-powers, powers, shape)
    special = random.choice([np.nan, np.inf, -np.inf, 0.0, -0.0], shape)
    with np.errstate(over="ignore"):
        return np.where(random.random(shape) < 0.03, special, found).astype(dtype)


def inputs(kind: str, dtype: str, seed: int) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    rows = {"rows": (40,), "along an axis": (9, 20), "points": (60,), "blocks": (6, 7)}[kind]
    shape = (*rows, 5) if kind in ("rows", "blocks") else rows
    found = {"U": values(random, shape, dtype), "I": random.integers(-3, 14, rows)}
    if kind == "points":
        found["J"] = random.integers(-1, 6, rows, np.int32)
    return {**found, "D": values(random, (9, 5), dtype)}


def program(kind: str, agg: Aggregation, default: str, given: Mapping[str, Array]) -> Program:
    types = {name: TensorType(from_numpy(a.dtype), a.shape) for name, a in given.items()}
    return bind(parse(SUBSCRIPTS[kind].format(agg=agg.symbol, default=default)), types)


@pytest.mark.diagonal(3)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", SUBSCRIPTS)
@pytest.mark.parametrize("sparse", [False, True])
def test_values_are_those_of_the_scatter(kind: str, dtype: str, sparse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integer_scatters, "SPARE", -(1 << 30) if sparse else 1 << 30)
    for seed, agg in enumerate(Aggregation):
        for default in ("", " default D"):
            given = inputs(kind, dtype, seed)
            asked = program(kind, agg, default, given)
            made = IntegerScatters().apply(asked)
            with np.errstate(all="ignore"):
                found, expected = evaluate(made, given)["O"], evaluate(asked, given)["O"]
            if agg is Aggregation.SUM and dtype.startswith("float"):
                assert_sums(kind, found, expected, given)
            else:
                np.testing.assert_array_equal(found, expected)


def assert_sums(kind: str, found: Array, expected: Array, given: Mapping[str, Array]) -> None:
    """Within the rounding of a sum in order: as many roundings as values, of the sum of their sizes."""
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    sizes = {**given, "U": np.abs(given["U"])}
    with np.errstate(all="ignore"):
        total = evaluate(program(kind, Aggregation.SUM, "", sizes), sizes)["O"].astype(float)
    steps = given["U"].size if found.dtype != np.float16 else 4
    with np.errstate(all="ignore"):
        close = np.abs(found.astype(float) - expected.astype(float)) <= steps * np.finfo(found.dtype).eps * total
    assert np.all(close | (found == expected) | np.isnan(expected))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_have_the_same_bits_in_every_order_and_hardly_round(dtype: str) -> None:
    random = np.random.default_rng(3)
    given = {
        "U": random.normal(0, 1, (500, 1)).astype(dtype),
        "I": random.integers(0, 3, 500),
        "D": np.zeros((3, 1), dtype),
    }
    made = IntegerScatters().apply(program("rows", Aggregation.SUM, "", given))
    order = random.permutation(500)
    turned = {**given, "U": given["U"][order], "I": given["I"][order]}
    found = evaluate(made, given)["O"]
    np.testing.assert_array_equal(found, evaluate(made, turned)["O"])
    exact = [fsum(given["U"][given["I"] == n, 0].astype(float)) for n in range(3)]
    np.testing.assert_allclose(found[:, 0], exact, 2 * np.finfo(dtype).eps)


def test_scatters_that_remain_merge_integers_and_assign_nothing() -> None:
    for kind in SUBSCRIPTS:
        for agg in set(Aggregation) - {Aggregation.PROD}:
            made = IntegerScatters().apply(program(kind, agg, "", inputs(kind, "float32", 0)))
            scatters = [op for op in made.ops if isinstance(op, Scatter)]
            assert scatters
            assert all(op.agg is not Aggregation.ASSIGN and op.type.dtype.bits >= 32 for op in scatters)
            assert not any(op.type.dtype.is_float for op in scatters)


@pytest.mark.parametrize("agg", [a for a in Aggregation if a is not Aggregation.ASSIGN])
@pytest.mark.parametrize("default", ["", " default D"])
def test_integers_that_keep_flags_have_them_merged_in_any_order(agg: Aggregation, default: str) -> None:
    given = inputs("points", "int32", 0)
    stripe = to_stripe(IntegerScatters().apply(program("points", agg, default, given)), Target("made"))
    views = [open_kernel(k) for k in kernels_of(Atomics().apply(stripe, Target("made"))) if isinstance(k, Block)]
    stores = [s for v in views if v is not None for g in v.stages for s in g.body if isinstance(s, Store)]
    data = [s for s in stores if any(isinstance(at, str) for at in s.at)]
    assert data and all(s.atomic for s in data)


def test_cells_that_rest_at_what_an_aggregation_starts_from_need_no_flags() -> None:
    text = "function (U[K], I[K]) -> (O) { L = lowest(U); O[I[k] : 9] = >(U[k]) default L; }"
    types = {"U": TensorType(DType.INT32, (40,)), "I": TensorType(DType.INT32, (40,))}
    asked = bind(parse(text), types)
    assert IntegerScatters().apply(asked) is asked


def test_products_of_floats_and_what_is_too_wide_stay() -> None:
    given = inputs("rows", "float32", 0)
    for agg, narrow in ((Aggregation.PROD, 64), (Aggregation.SUM, 32)):
        asked = program("rows", agg, "", given)
        assert IntegerScatters(widest=narrow).apply(asked) is asked
    asked = program("rows", Aggregation.MAX, "", given)
    assert IntegerScatters(widest=32).apply(asked) is not asked


def test_only_targets_with_atomics_want_it() -> None:
    target = Target("made", nodes=frozenset({"Atomic", "Bitcast"}))
    narrow = replace(target, passes=(PassConfig("scan"), PassConfig("atomics", options={"widest": 32})))
    assert not any(isinstance(r, IntegerScatters) for r in rewrites_for(target))
    assert IntegerScatters(widest=32) in rewrites_for(narrow)
    assert IntegerScatters(widest=32) not in rewrites_for(replace(narrow, nodes=frozenset({"Atomic"})))


def stores(agg: Aggregation, dtype: str, widest: int) -> list[tuple[bool, bool]]:
    """Of each stage that stores at data: whether it is atomic, and whether a loop is ordered."""
    given = {"U": np.zeros((40, 5), dtype), "I": np.zeros(40, np.int64), "D": np.zeros((9, 5), dtype)}
    made = Atomics(widest).apply(to_stripe(program("rows", agg, "", given), Target("made")), Target("made"))
    views = [open_kernel(k) for k in kernels_of(made) if isinstance(k, Block)]
    stages = [s for view in views if view is not None for s in view.stages]
    return [
        (statement.atomic, any(i.order is Order.ORDERED for i in stage.loops))
        for stage in stages
        for statement in stage.body
        if isinstance(statement, Store) and any(isinstance(at, str) for at in statement.at) and "hit" not in stage.name
    ]


@pytest.mark.parametrize(
    ("agg", "dtype", "widest", "atomic"),
    [
        (Aggregation.SUM, "int32", 64, True),
        (Aggregation.MAX, "uint64", 64, True),
        (Aggregation.SUM, "int64", 32, False),
        (Aggregation.SUM, "int8", 64, False),
        (Aggregation.SUM, "float32", 64, False),
        (Aggregation.ASSIGN, "int32", 64, False),
    ],
)
def test_only_integers_that_memory_merges_need_no_order(
    agg: Aggregation, dtype: str, widest: int, atomic: bool
) -> None:
    assert stores(agg, dtype, widest) == [(atomic, not atomic)]
