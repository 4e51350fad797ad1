"""Stagings before the kernel: weights that no call changes are copied to panels, by kernels of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from math import prod

import numpy as np
import pytest
import tile_lang
from hypothesis import given, settings
from hypothesis import strategies as st
from program_samples import random_inputs
from test_register_tiles import processor
from tile_ir.diagnostics import Source, TilePlanError
from tile_ir.dtype import DType
from tile_ir.program.nodes import Program, TensorType
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.interpret import run
from tile_ir.stripe.nodes import Bind, Block
from tile_ir.target import Target
from tile_lang.evaluate import evaluate
from tile_opt.blocks.tree import kernels_of, main_of
from tile_opt.kernel.strides import decided_outside
from tile_opt.pipeline import Scheduled, schedule
from tile_opt.plan.plan import Plan
from tile_opt.plan.text import parse_plans, print_plans
from tile_opt.translate import to_stripe

CONVOLUTION = "X[N, C, H, V], W[O, C, I, J]) -> (Y) { Y[n, o, h, v : N, O, H, V] = +(X[n, c, h + i - 1, v + j - 1] * W[o, c, i, j]);"
IN_REGISTERS = (Bind.UNROLL, Bind.VECTOR)
PRODUCT = "X[M, K], W[N, K]) -> (Y) { Y[m, n : M, N] = +(X[m, k] * W[n, k]);"


def program(text: str, *, bound: bool = True, **shapes: tuple[int, ...]) -> Program:
    """A function of two tensors, the second of which is bound: no call changes it."""
    types = {n: TensorType(DType.FLOAT32, s) for n, s in shapes.items()}
    made = tile_lang.bind(tile_lang.parse(Source(f"function ({text} }}", "test")), types)
    return replace(made, inputs=tuple(replace(p, bound=bound and p.name == "W") for p in made.inputs))


def convolution(channels: int, filters: int, side: int, *, bound: bool = True) -> Program:
    return program(CONVOLUTION, bound=bound, X=(1, channels, side, side), W=(filters, channels, 3, 3))


def scheduled(made: Program, target: Target, plans: Mapping[str, Plan] | None = None) -> Scheduled:
    return schedule(to_stripe(made), target, verify=True, plans=plans)


def same(made: Scheduled, of: Program) -> None:
    inputs = random_inputs(of)
    np.testing.assert_allclose(run(made.program, inputs)["Y"], evaluate(of, inputs)["Y"], rtol=1e-4, atol=1e-4)


def ahead(made: Scheduled) -> set[str]:
    """What the first kernel's plan stages before it."""
    main = next(iter(made.decisions.values()))
    return {s.operand for s in main.plan.stagings if s.level < 0}


def test_weights_of_a_convolution_are_copied_once_and_read_panel_by_panel() -> None:
    made = scheduled(convolution(32, 64, 9), processor(1))
    assert ahead(made) == {"W"}
    copy, _ = kernels_of(made.program)
    assert isinstance(copy, Block)
    assert {r.source for r in copy.refs} >= {"W", "W_panels"}
    (buffer,) = (r for r in main_of(made.program).refs if r.into == "W_panels")
    blocks, *loops, lanes = buffer.type.sizes
    assert (blocks * lanes, sorted(loops)) == (64, [3, 3, 32])


def test_a_panel_that_is_not_full_is_tested_for_once_a_tile() -> None:
    """Registers hold 16 filters by 16 channels, and filters end between tiles: no row and no lane has a test of its own."""
    of = program(PRODUCT, X=(6, 40), W=(80, 40))
    lines = ("stage W in DRAM as [k, n]", "serial m:3", "serial n:48", "serial k:1", "unroll m:1", "vector n:1 x16")
    given_plans = parse_plans(Source("\n".join(["plan kernel_0 {", *lines, "edge n mask", "}"]), "plans"))
    made = scheduled(of, processor(1), given_plans)
    copy, _ = kernels_of(made.program)
    assert isinstance(copy, Block)
    tested = {(b.name, i.name) for b in blocks(copy) for i in b.indexes for c in b.constraints if i.name in c.names}
    assert tested and not tested & {(b.name, i.name) for b in blocks(copy) for i in b.indexes if i.bind in IN_REGISTERS}
    same(made, of)


def blocks(block: Block) -> Iterator[Block]:
    yield block
    for inner in block.body:
        if isinstance(inner, Block):
            yield from blocks(inner)


@given(
    st.lists(st.integers(-24, 24), min_size=1, max_size=2), st.integers(-3, 3), st.integers(1, 20), st.integers(-99, 99)
)
def test_what_a_tile_does_not_decide_is_about_the_loops_around_it(
    outer: list[int], step: int, tile: int, const: int
) -> None:
    form = Affine.of([*((f"o{n}", c) for n, c in enumerate(outer)), ("i", step)], const)
    made = decided_outside(form, {"i": (0, tile - 1)})
    for point in product(*(range(-3, 4) for _ in outer), range(tile)):
        values = {**{f"o{n}": v for n, v in enumerate(point)}, "i": point[-1]}
        assert (made.evaluate(values) >= 0) == (form.evaluate(values) >= 0)


def test_taps_that_are_read_of_larger_weights_are_put_side_by_side() -> None:
    """A map of one cell meets the middle of each window, and nothing reads a weight twice."""
    of = convolution(40, 70, 1)
    made = scheduled(of, processor(1))
    assert ahead(made) == {"W"}
    (buffer,) = (r for r in main_of(made.program).refs if r.into == "W_panels")
    assert 40 * 70 <= prod(buffer.type.sizes) <= 40 * 128
    same(made, of)
    assert not ahead(scheduled(convolution(40, 70, 1, bound=False), processor(1)))


def test_what_a_call_may_change_is_copied_just_in_time() -> None:
    assert not ahead(scheduled(convolution(32, 64, 9, bound=False), processor(1)))


@settings(max_examples=12)
@given(st.integers(1, 5), st.integers(16, 50), st.integers(3, 6), st.booleans())
def test_panels_of_any_size_keep_the_meaning(channels: int, filters: int, side: int, masks: bool) -> None:
    target = processor(1, room=1 << 12)
    target = replace(target, settings=replace(target.settings, masks=masks))
    of = convolution(channels, filters, side)
    same(scheduled(of, target), of)


def test_panels_know_every_loop_that_moves_the_weights() -> None:
    spread = "X[N, C, H, V], W[C, O, I, J]) -> (Y) { Y[n, o, 2*h + i, 2*v + j : N, O, 2*H, 2*V] = +(X[n, c, h, v] * W[c, o, i, j]);"
    of = program(spread, X=(1, 24, 6, 7), W=(24, 40, 2, 2))
    made = scheduled(of, processor(1))
    assert ahead(made) == {"W"}
    same(made, of)


def test_a_plan_that_leaves_a_loop_out_is_refused() -> None:
    short = "plan kernel_0 {\n stage W in DRAM as [k]\n serial m:3\n}"
    with pytest.raises(TilePlanError, match="moves with just the loops k"):
        scheduled(program(PRODUCT, X=(6, 20), W=(40, 20)), processor(1), parse_plans(Source(short, "plans")))


def plans(edge: str) -> Mapping[str, Plan]:
    lines = (
        "stage W in DRAM as [k, n]",
        "serial m:3",
        "serial n:16",
        "serial k:1",
        "unroll m:1",
        "vector n:1 x16",
        edge,
    )
    return parse_plans(Source("\n".join(["plan kernel_0 {", *lines, "}"]), "plans"))


@pytest.mark.parametrize("bound", [True, False])
def test_a_plan_may_stage_any_operand_before_the_kernel(bound: bool) -> None:
    of, given_plans = program(PRODUCT, bound=bound, X=(6, 20), W=(40, 20)), plans("edge n mask")
    assert parse_plans(Source(print_plans(given_plans), "again")) == given_plans
    made = scheduled(of, processor(1), given_plans)
    assert len(kernels_of(made.program)) == 2
    same(made, of)


def test_tiles_that_begin_inside_panels_are_refused() -> None:
    with pytest.raises(TilePlanError, match="cannot be staged before the kernel"):
        scheduled(program(PRODUCT, X=(6, 20), W=(40, 20)), processor(1), plans("edge n overlap"))


def test_what_the_kernel_itself_writes_is_not_copied_before_it() -> None:
    types = {"A": TensorType(DType.INT8, (2,)), "B": TensorType(DType.UINT8, (2,))}
    text = "function (A[N], B[N]) -> (X) { X[B[i] : 8] = >(A[i]); }"
    made = tile_lang.bind(tile_lang.parse(Source(text, "test")), types)
    target = processor(1)
    kernel = next(
        k.name for k in kernels_of(scheduled(made, target).program) if {"X_hit", "X"} <= {r.into for r in k.refs}
    )
    plans = parse_plans(f"plan {kernel} {{\n  stage X_hit in DRAM as [i0_1]\n  serial\n}}\n")
    with pytest.raises(TilePlanError, match="the kernel itself writes 'X_hit'"):
        scheduled(made, target, plans)


@pytest.mark.parametrize("side", [8, 9, 13, 14])
def test_steps_over_small_maps_run_along_their_rows(side: int) -> None:
    """Channels, a whole map apart, would be fetched lane by lane."""
    half = (side + 1) // 2
    text = f"X[C, H, V], W[C, I, J]) -> (Y) {{ Y[c, h, v : C, {half}, {half}] = +(X[c, 2*h + i - 1, 2*v + j - 1] * W[c, i, j]);"
    of = program(text, X=(40, side, side), W=(40, 3, 3))
    made = scheduled(of, processor(1))
    (decision,) = made.decisions.values()
    vectors = [level for level in decision.plan.levels if level.bind is Bind.VECTOR]
    assert [(c.loop, level.lanes) for level in vectors for c in level.covers] == [("v", 4)]
    same(made, of)
