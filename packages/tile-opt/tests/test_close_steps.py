"""Elements a few steps apart: vectors are fetched straight from the operand, whatever the ends of the loops."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tile_lang
from explain_support import NODES, compiled
from hypothesis import given, settings
from hypothesis import strategies as st
from model_support import processor
from test_widen import agree
from tile_ir.diagnostics import Source
from tile_ir.dtype import DType
from tile_ir.program.nodes import TensorType
from tile_ir.semtree.printer import print_function
from tile_ir.stripe.nodes import Bind, Program
from tile_ir.target import HardwareSettings, PassConfig, Target
from tile_opt.pipeline import schedule
from tile_opt.plan.plan import Edge
from tile_opt.plan.text import parse_plans
from tile_opt.translate import to_stripe

PASSES = tuple(map(PassConfig, ("inline", "fuse", "merge", "stream", "schedule_kernels")))
SMALL = Target("small", HardwareSettings(registers=32, vector_bytes=16, cores=2), nodes=NODES, passes=PASSES)
DEAL = "function (A[X, Y]) -> (O) { O[y, x : Y, X] = =(A[x, y]); }"


def dealt(rows: int, steps: int, dtype: DType = DType.FLOAT32) -> Program:
    types = {"A": TensorType(dtype, (rows, steps))}
    return to_stripe(tile_lang.bind(tile_lang.parse(Source(DEAL, "deal.tile")), types))


@settings(max_examples=15, deadline=None)
@given(st.integers(2, 90), st.integers(2, 10))
def test_results_stay_the_same(rows: int, steps: int) -> None:
    agree(dealt(rows, steps), SMALL)


@pytest.mark.parametrize(("steps", "close"), [(2, True), (8, True), (9, False)])
def test_few_steps_need_no_tile_in_registers(steps: int, close: bool) -> None:
    (decision,) = schedule(dealt(64, steps), SMALL).decisions.values()
    assert (decision.plan.stagings == ()) is close


@pytest.mark.parametrize(
    ("dtype", "steps", "close"),
    [(DType.FLOAT32, 8, True), (DType.FLOAT32, 9, False), (DType.INT8, 7, True), (DType.INT8, 8, False)],
)
def test_tiles_of_eight_rows_of_narrow_elements_take_fewer_shuffles_than_as_many_steps(
    dtype: DType, steps: int, close: bool
) -> None:
    (decision,) = schedule(dealt(64, steps, dtype), WIDE).decisions.values()
    assert (decision.plan.stagings == ()) is close


RUNS = "function (A[W, X, Y, Z]) -> (O) { O[w, y, x, z : W, Y, X, Z] = =(A[w, x, y, z]); }"
WIDE = replace(SMALL, settings=replace(SMALL.settings, vector_bytes=64))


def runs(*shape: int) -> Program:
    types = {"A": TensorType(DType.FLOAT32, shape)}
    return to_stripe(tile_lang.bind(tile_lang.parse(Source(RUNS, "runs.tile")), types))


@settings(max_examples=10, deadline=None)
@given(st.tuples(*[st.integers(1, 20)] * 4))
def test_runs_of_any_length_stay_the_same(shape: tuple[int, ...]) -> None:
    agree(runs(*shape), WIDE)


@pytest.mark.parametrize(
    ("across", "run", "lanes", "together"),
    [(20, 4, 4, 8), (24, 8, 8, 8), (23, 4, 4, 8), (20, 6, 8, 8), (20, 16, 16, 1)],
)
def test_runs_that_are_shorter_vectors_are_moved_without_masks(
    across: int, run: int, lanes: int, together: int
) -> None:
    """As many at a time as make whole vectors, whether or not they divide a row's."""
    (decision,) = schedule(runs(6, across, 30, run), WIDE).decisions.values()
    levels = decision.plan.levels
    assert levels[-1].lanes == lanes
    assert Edge.MASK not in dict(decision.plan.edges).values()
    steps = {cover.loop: cover.size for level in levels if level.bind is Bind.NONE for cover in level.covers}
    assert steps["x"] == together


@pytest.mark.parametrize(("lanes", "step", "loads"), [(4, 2, 2), (4, 3, 3), (16, 2, 2), (4, 5, 0), (2, 2, 0)])
def test_vectors_of_elements_a_few_apart_are_shuffled_where_that_is_less_than_to_put_them_together(
    lanes: int, step: int, loads: int
) -> None:
    """Fewer vectors than lanes hold all that lies between the first lane's element and the last one's."""
    plan = parse_plans(f"plan kernel_0 {{\n serial i:{lanes}\n vector i:1 x{lanes}\n}}")
    text = f"function (X[N]) -> (R) {{ R[i : 64] = =(X[{step}*i]); }}"
    made = compiled(text, replace(processor("zen4"), codegen="semtree"), plans=plan, X=(step * 64,))
    (kernel,) = made.kernels.kernels
    assert kernel.function is not None
    code = print_function(kernel.function)
    assert ("insert" in code) is (loads == 0)
    assert code.count("shuffle") == loads
