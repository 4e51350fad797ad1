"""Sums below largest elements of rows that are cut: each part of a row gives both once, and the results are those of whole rows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import tile_lang
from attention_samples import BODIES, SCORES, SOFTMAX, VALUES, source
from hypothesis import given, settings
from hypothesis import strategies as st
from test_partition import Array, bound, grids, run
from tile_dask.partitions import Grid, Partition, partition
from tile_dask.partitions.merges import Below
from tile_ir.program.nodes import Program
from tile_ir.target import Target

SHAPES = {"Q": (2, 6, 3), "K": (2, 16, 3), "V": (2, 16, 3), "B": (6, 16)}
PLAIN = Target("plain")
KEYS = {"K": Grid(((2,), (4,) * 4, (3,))), "V": Grid(((2,), (4,) * 4, (3,)))}
LOG_SUM_EXP = """function (X[M, N]) -> (Z) {
    T[i : M] = >(X[i, j]); B[i, j : M, N] = =(T[i]); E = exp(X - B); L[i : M] = +(E[i, j]); Z = log(L) + T; }"""


def arrays(**shapes: tuple[int, ...]) -> dict[str, Array]:
    random = np.random.default_rng(0)
    return {name: random.normal(0, 1, shape).astype(np.float32) for name, shape in shapes.items()}


def close(part: Partition, program: Program, inputs: Mapping[str, Array]) -> None:
    want = tile_lang.evaluate(program, dict(inputs))
    for name, found in run(part, inputs).items():
        np.testing.assert_allclose(found, want[name], rtol=2e-5, atol=2e-6, err_msg=name)


def merged(part: Partition) -> list[tuple[str, ...]]:
    """The largest element and the sums of each array that has such."""
    merges = (stage.merge for stage in part.stages)
    return [(m.largest, *m.sums) for m in merges if isinstance(m, Below)]


@pytest.mark.parametrize("body", BODIES)
@given(st.data())
@settings(max_examples=6, deadline=None)
def test_any_chunks_of_queries_and_keys_give_the_same_attention(body: str, data: st.DataObject) -> None:
    program = bound(source(BODIES[body]), **SHAPES)
    cut = {name: data.draw(grids(shape), name) for name, shape in SHAPES.items()}
    out = {"O": data.draw(grids((2, 6, 3)))} if data.draw(st.booleans()) else {}
    close(partition(program, cut, out), program, arrays(**SHAPES))


@pytest.mark.parametrize("body", BODIES)
def test_scores_of_each_chunk_of_keys_are_computed_once(body: str) -> None:
    part = partition(bound(source(BODIES[body]), **SHAPES), KEYS)
    readers = [stage for stage in part.stages if "K" in stage.reads]
    assert [(s.splits.chunks, {"K", "V"} <= {*s.reads}) for s in readers] == [(4, True)]
    assert [sum(box.size for _, box in task.needs.reads) < 6 * 16 * 3 for task in part.tasks(readers[0])] == [True] * 4


@pytest.mark.parametrize("pivot", ["M", "(M == -inf ? 0 : M)", "(M == -inf ? -3e38 : M)"])
def test_chunks_and_rows_of_which_nothing_is_left_and_infinities_give_what_whole_rows_give(pivot: str) -> None:
    body = f"{SCORES} X = P + B; {SOFTMAX.format(x='X').replace('X - M', f'X - {pivot}')} {VALUES.format(y='E').replace('O[', 'W[')} O = W / Z;"
    program, inputs = bound(source(body), **SHAPES), arrays(**SHAPES)
    inputs["B"][0], inputs["B"][1, 3], inputs["B"][2, :6], inputs["B"][3, 4:8] = -np.inf, np.inf, -np.inf, -np.inf
    inputs["V"][0, 5, 0] = np.inf
    part = partition(program, KEYS)
    assert len(merged(part)) == 1
    close(part, program, inputs)


def test_gradients_of_attention_take_the_sums_that_they_need_below_the_largest_element() -> None:
    text = """function (Q[M, D], K[N, D], V[N, D], G[M, D]) -> (R) {
        S[i, j : M, N] = +(Q[i, d] * K[j, d]); T[i, 0 : M, 1] = >(S[i, j]); E = exp(S - T); U[i, 0 : M, 1] = +(E[i, j]); P = E / U;
        W[i, j : M, N] = +(G[i, d] * V[j, d]); Y[i, 0 : M, 1] = +(P[i, j] * W[i, j]); R = P * (W - Y); }"""
    shapes = {"Q": (6, 3), "K": (16, 3), "V": (16, 3), "G": (6, 3)}
    program, keys = bound(text, **shapes), Grid(((4,) * 4, (3,)))
    part = partition(program, {"K": keys, "V": keys})
    assert [len(found) for found in merged(part)] == [3]  # the sum of weights, and that of them with their derivatives
    close(part, program, arrays(**shapes))


@pytest.mark.parametrize(("columns", "stages"), [((64,), 1), ((16,) * 4, 2)])
def test_logarithms_of_sums_of_exponentials_are_taken_so_where_rows_are_cut(
    columns: tuple[int, ...], stages: int
) -> None:
    program = bound(LOG_SUM_EXP, X=(6, 64))
    part = partition(program, {"X": Grid(((3, 3), columns))})
    assert (len(merged(part)), len(part.stages)) == (stages - 1, stages)
    close(part, program, arrays(X=(6, 64)))


def test_what_is_written_twice_is_one_largest_element_with_its_sums() -> None:
    text = """function (X[M, N]) -> (R) {
        T[i, 0 : M, 1] = >(X[i, j]); E = exp(X - T); U[i, 0 : M, 1] = >(X[i, j]); F = exp(X - U); S[i, 0 : M, 1] = +(F[i, j]);
        R = E / S; }"""
    part = partition(bound(text, X=(6, 64)), {"X": Grid(((3, 3), (16,) * 4))})
    assert [stage.name for stage in part.stages] == ["T_below", "R"]


def test_sums_whose_own_cells_are_cut_stay_stages_of_their_own() -> None:
    part = partition(bound(source(BODIES["scaled"]), **SHAPES), KEYS | {"V": Grid(((2,), (4,) * 4, (1, 2)))})
    assert merged(part) == [("M", "Z")]
    close(part, part.program, arrays(**SHAPES))


def test_the_table_says_what_parts_of_rows_give() -> None:
    text = partition(bound(source(BODIES["scaled"]), **SHAPES), KEYS).explain()
    assert "M_below: M and the sums below it (Z, O), of each part of a row once; a tree merges them." in text


U = 2.0**-24


def test_bounds_of_pairs_grow_with_the_tree_that_merges_them() -> None:
    """Whole rows, one task that merges their four parts, and two levels of such: each takes an exponential more."""
    program = bound(LOG_SUM_EXP, X=(4, 16))
    parts = [partition(program, {"X": Grid(((4,), (16 // n,) * n))}).error_bounds(PLAIN)["Z"] for n in (1, 4, 16)]
    assert [p.relation for p in parts] == ["terms"] * 3 and [p.exponent for p in parts] == [0.0] * 3
    whole, once, twice = (p.roundoff / U for p in parts)
    assert once == pytest.approx(whole - 12 + 3 + 2 * 111, abs=1) and twice == pytest.approx(once + 3 - 3 + 111, abs=1)


def test_the_bound_of_attention_is_printed() -> None:
    part = partition(bound(source(BODIES["normalised last"]), **SHAPES), KEYS)
    (found,) = part.error_bounds(PLAIN).values()
    assert found.relation == "terms" and found.roundoff < 60 * U and 4 * U < found.exponent < 60 * U
    assert part.explain(target=PLAIN).endswith(f"Rounding errors:\n  O  {found.text}")
