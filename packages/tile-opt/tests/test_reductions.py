"""Reductions over any axes: split into chunks that no size divides, they keep their meaning and run across lanes."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest
import tile_lang
import tile_opt
from contraction_samples import contraction, p
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from program_samples import random_inputs
from tile_ir.diagnostics import Source
from tile_ir.dtype import DType
from tile_ir.machine import Cache, Pages
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import Param, Program, TensorType
from tile_ir.semtree.verify import OPTIONAL_NODES
from tile_ir.stripe.interpret import run
from tile_ir.stripe.nodes import Bind, Block
from tile_ir.target import HardwareSettings, PassConfig, Target
from tile_lang.evaluate import evaluate
from tile_opt.blocks.tree import kernels_of
from tile_opt.pipeline import Scheduled, schedule
from tile_opt.program import FewColumns, SplitReduction, WholeRounds
from tile_opt.translate import to_stripe

PASSES = tuple(PassConfig(n) for n in ("inline", "fuse", "merge", "accumulate", "schedule_kernels"))
SETTINGS = settings(max_examples=40, suppress_health_check=list(HealthCheck))
AGGREGATIONS = (Aggregation.SUM, Aggregation.PROD, Aggregation.MAX, Aggregation.MIN)
LONG = 4096
"""Points from which on a kernel has to use lanes."""


def processor(masks: bool) -> Target:
    return Target(
        "tiny",
        HardwareSettings(vector_bytes=16, registers=16, cores=4, masks=masks),
        nodes=OPTIONAL_NODES,
        passes=PASSES,
    )


def reduction(agg: Aggregation, shape: tuple[int, ...], over: frozenset[int]) -> Program:
    """Of one operand over the axes `over`."""
    indexes = [p(**{name: 1}) for name in "ijkl"[: len(shape)]]
    kept = [a for a in range(len(shape)) if a not in over]
    made = contraction(([indexes[a] for a in kept], [shape[a] for a in kept]), (indexes, list(shape)), agg=agg)
    return Program("reduction", (Param("A", TensorType(DType.FLOAT32, shape)),), (made,), (("O", "O"),))


@st.composite
def reductions(draw: st.DrawFn, most: int) -> Program:
    shape = tuple(draw(st.lists(st.integers(1, most), min_size=1, max_size=4)))
    over = draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    return reduction(draw(st.sampled_from(AGGREGATIONS)), shape, frozenset(over))


def scheduled(program: Program, masks: bool, chunk: int, columns: FewColumns | None = None) -> Scheduled:
    split = SplitReduction(chunk_points=chunk, max_chunks=8, long=chunk).apply(program)
    return schedule(to_stripe(split if columns is None else columns.apply(split)), processor(masks), verify=True)


@given(program=reductions(most=9), masks=st.booleans())
@SETTINGS
def test_chunks_that_no_size_divides_keep_the_meaning(program: Program, masks: bool) -> None:
    made = scheduled(program, masks, 4).program
    inputs = random_inputs(program)
    np.testing.assert_allclose(run(made, inputs)["O"], evaluate(program, inputs)["O"], rtol=1e-5, atol=1e-5)


@given(program=reductions(most=500), masks=st.booleans())
@settings(SETTINGS, max_examples=15)
def test_long_reductions_run_across_lanes(program: Program, masks: bool) -> None:
    made = scheduled(program, masks, LONG)
    for decision in made.decisions.values():
        if prod(decision.view.ranges.values()) >= LONG:
            assert decision.plan.bound(Bind.VECTOR), decision.remarks


@pytest.mark.parametrize("masks", [True, False])
@pytest.mark.parametrize(
    ("shape", "over"),
    [((102_587,), {0}), ((1, 102_587), {1}), ((7, 10_007), {1}), ((382, 875), {0, 1}), ((9, 7891, 3), {1, 2})],
)
def test_ragged_chunks_leave_few_points_to_scalars(shape: tuple[int, ...], over: set[int], masks: bool) -> None:
    made = scheduled(reduction(Aggregation.SUM, shape, frozenset(over)), masks, LONG)
    wide, narrow = (
        sum(counts)
        for counts in zip(*(points(k) for k in kernels_of(made.program) if isinstance(k, Block)), strict=True)
    )
    assert wide >= prod(shape) * 0.9
    assert narrow < prod(shape) * 0.2


def points(block: Block, times: int = 1, wide: bool = False) -> tuple[int, int]:
    """Iterations of the innermost blocks across lanes, and those one by one; those that constraints leave out count, too."""
    loops = [i for i in block.indexes if i.value is None]
    times *= prod(i.range for i in loops)
    wide = wide or any(i.bind is Bind.VECTOR for i in loops)
    inner = [points(b, times, wide) for b in block.body if isinstance(b, Block)]
    if not inner:
        return (times, 0) if wide else (0, times)
    return sum(w for w, _ in inner), sum(n for _, n in inner)


@given(program=reductions(most=9), masks=st.booleans(), run_=st.integers(2, 24), chunk=st.sampled_from((4, LONG)))
@SETTINGS
def test_rows_of_few_columns_keep_the_meaning(program: Program, masks: bool, run_: int, chunk: int) -> None:
    made = scheduled(program, masks, chunk, FewColumns(run=run_, steps=1)).program
    inputs = random_inputs(program)
    np.testing.assert_allclose(run(made, inputs)["O"], evaluate(program, inputs)["O"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("chunk", [LONG, 1 << 20])
@pytest.mark.parametrize("agg", [Aggregation.SUM, Aggregation.MAX])
@pytest.mark.parametrize(
    ("shape", "over"), [((10_007, 2), {0}), ((7919, 3), {0}), ((3001, 8), {0}), ((30, 40, 10, 3), {0, 1, 2})]
)
def test_few_columns_fill_vectors_and_none_waits_for_the_one_before(
    shape: tuple[int, ...], over: set[int], agg: Aggregation, chunk: int
) -> None:
    made = scheduled(reduction(agg, shape, frozenset(over)), True, chunk, FewColumns())
    sums = max(made.decisions.values(), key=lambda d: prod(d.view.ranges.values()))
    (level,) = sums.plan.bound(Bind.VECTOR)
    run = next(i.range for i in sums.view.loops if i.name == level.covers[0].loop)
    assert 64 < run <= FewColumns().run, "rows side by side are one loop"
    chunks = [i.range for i in sums.view.loops if i.range not in (1, run)]
    assert len(chunks) == (chunk == LONG), "nothing else is around the sums"


@given(program=reductions(most=9), masks=st.booleans(), run_=st.integers(2, 24), chunk=st.sampled_from((4, LONG)))
@settings(SETTINGS, max_examples=25)
def test_whole_rounds_and_what_is_left_keep_the_meaning(program: Program, masks: bool, run_: int, chunk: int) -> None:
    columns = FewColumns(run=run_, steps=1)
    made = scheduled(WholeRounds(columns=columns).apply(program), masks, chunk, columns).program
    inputs = random_inputs(program)
    np.testing.assert_allclose(run(made, inputs)["O"], evaluate(program, inputs)["O"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("shape", "over"), [((10_007, 3), {0}), ((37_449, 7), {0}), ((31, 11, 13, 5), {0, 1, 2})])
def test_few_columns_whose_rows_fill_no_last_round_leave_few_points_to_scalars(
    shape: tuple[int, ...], over: set[int]
) -> None:
    program = WholeRounds().apply(reduction(Aggregation.SUM, shape, frozenset(over)))
    made = scheduled(program, False, LONG, FewColumns())
    narrow = sum(points(k)[1] for k in kernels_of(made.program) if isinstance(k, Block))
    assert narrow < prod(shape) * 0.05


def test_columns_that_another_rewrite_left_have_whole_rounds_too() -> None:
    """Of what is weighed column by column the columns are added up first."""
    text = "function (A[B, C, X], W[X]) -> (O) { O[b : B] = +(A[b, c, x] * W[x]); }"
    types = {"A": TensorType(DType.FLOAT32, (2, 13_001, 6)), "W": TensorType(DType.FLOAT32, (6,))}
    program = tile_lang.bind(tile_lang.parse(Source(text, "text.tile")), types)
    made = tile_opt.compile(program, processor(False))
    narrow = sum(points(k)[1] for k in kernels_of(made.stripe) if isinstance(k, Block))
    assert narrow < 2 * 13_001 * 6 * 0.05


@pytest.mark.parametrize("rows", [307, 300])
def test_halves_are_rounded_once_where_rounds_and_the_rest_meet(rows: int) -> None:
    text = "function (A[M, N]) -> (O) { O[n : N] = +(A[m, n]); }"
    types = {"A": TensorType(DType.FLOAT16, (rows, 5))}
    program = tile_lang.bind(tile_lang.parse(Source(text, "text.tile")), types)
    made = WholeRounds().apply(program)
    assert made is not program
    inputs = {"A": np.random.default_rng(0).standard_normal((rows, 5)).astype(np.float16)}
    exact = inputs["A"].astype(np.float64).sum(0).astype(np.float16)
    assert evaluate(made, inputs)["O"].tolist() == exact.tolist()


def test_columns_that_are_many_or_do_not_lie_as_results_do_stay() -> None:
    for shape, over in (((4096, 100), {0}), ((4096, 3), {1}), ((3000, 1), {0}), ((12, 3), {0}), ((900, 70, 3), {1})):
        program = reduction(Aggregation.SUM, shape, frozenset(over))
        assert FewColumns().apply(program) is program


def test_columns_beside_something_smaller_stay() -> None:
    """Distances from a mean: few rows side by side would be two loops, not one."""
    text = "function (A[N, M], B[M]) -> (O) {{ D = {0}; O[m : M] = +(D[n, m]); }}"
    types = {"A": TensorType(DType.FLOAT32, (5000, 3)), "B": TensorType(DType.FLOAT32, (3,))}
    uneven, even = (
        tile_lang.bind(tile_lang.parse(Source(text.format(d), "text.tile")), types) for d in ("A - B", "A * A")
    )
    assert FewColumns().apply(uneven) is uneven
    assert FewColumns().apply(even) is not even


def test_cumulative_columns_stay() -> None:
    text = "function (A[M, N]) -> (O) { O[i, j : M, N] = +(A[k, j]), i - k < M; }"
    types = {"A": TensorType(DType.FLOAT32, (58, 24))}
    program = tile_lang.bind(tile_lang.parse(Source(text, "text.tile")), types)
    assert FewColumns().apply(program) is program


@pytest.mark.parametrize(
    ("rows", "cores", "kept"),
    [(64, 2, True), (64, 8, True), (63, 8, True), (57, 8, False), (15, 8, False), (16, 8, True), (64, 0, False)],
)
def test_rows_that_are_enough_for_the_cores_are_left_whole(rows: int, cores: int, kept: bool) -> None:
    program = reduction(Aggregation.SUM, (rows, 40_000), frozenset({1}))
    assert (SplitReduction(cores=cores).apply(program) is program) is kept
    columns = reduction(Aggregation.SUM, (40_000, rows), frozenset({0}))
    assert SplitReduction(cores=cores).apply(columns) is not columns
    few = reduction(Aggregation.SUM, (rows, 40_000, 3), frozenset({1}))
    assert (SplitReduction(cores=cores).apply(few) is few) is kept, "columns in between"


@pytest.mark.parametrize("columns", [32, 44, 52])
@pytest.mark.parametrize("agg", [Aggregation.SUM, Aggregation.MAX])
def test_columns_are_summed_in_one_walk_where_registers_hold_all_sums(columns: int, agg: Aggregation) -> None:
    """A second walk would fetch the lines of all rows again; what is loaded is added at once and takes no register for long."""
    program = reduction(agg, (300, columns), frozenset({0}))
    (decision,) = schedule(to_stripe(program), processor(False), verify=True).decisions.values()
    (vector,) = (c for level in decision.plan.bound(Bind.VECTOR) for c in level.covers)
    tiles = [c.size for level in decision.plan.levels if (c := level.cover(vector.loop)) is not None and c.size > 1]
    assert min(tiles, default=columns) >= columns


@pytest.mark.parametrize(
    ("shape", "walked"), [((40, 12, 20), True), ((40, 12, 3), False), ((12, 6, 200), False), ((2, 12, 20), False)]
)
@pytest.mark.parametrize("agg", [Aggregation.SUM, Aggregation.MAX])
def test_short_runs_that_are_summed_from_page_to_page_are_walked_together(
    shape: tuple[int, ...], walked: bool, agg: Aggregation
) -> None:
    """Each run alone is waited for at each step; runs that lie side by side are one long one."""
    target = processor(False)
    caches = (Cache(1, 1 << 10), Cache(2, 1 << 12))
    machine = replace(target.machine, caches=caches, pages=Pages(256))
    target = replace(target, machine=machine, settings=replace(target.settings, l3_bytes=1 << 14))
    program = reduction(agg, shape, frozenset({0, 2}))
    made = schedule(to_stripe(program), target, verify=True)
    (decision,) = made.decisions.values()
    assert bool(list(decision.plan.bound(Bind.UNROLL))) == walked
    inputs = random_inputs(program)
    np.testing.assert_allclose(run(made.program, inputs)["O"], evaluate(program, inputs)["O"], rtol=1e-5, atol=1e-5)
