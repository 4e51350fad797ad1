"""Convolutions on matrix instructions whose steps have several taps: all of them read one box with the halo of the tile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from tensor_support import (
    SMALL,
    TENSOR,
    Array,
    Sample,
    bound,
    inputs_of,
    near,
    optimize_given,
    run_kernels,
    tf32,
    view_of,
)
from test_tensor_copied import ONLY_TEAMS, rounding_as_they_read
from test_tensor_teams import BUSY_TEAMS
from tile_ir.diagnostics import TilePlanError
from tile_ir.dtype import DType
from tile_ir.stripe.nodes import Program as Stripe
from tile_ir.target import Target
from tile_opt.kernel.instructions import matches, usable
from tile_opt.passes.kernels.tensor_tile import TensorTile
from tile_opt.plan.plan import Cover, Plan
from tile_opt.plan.space.tensor.later import best_first
from tile_opt.plan.space.tensor.taps import MOST, tapped
from tile_opt.plan.space.tensor.tiles import tiles_of
from tile_opt.plan.text import print_plans

F32, F16, BF16 = DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16


def convolution(
    dtype: DType, size: tuple[int, int], channels: tuple[int, int], step: int = 1, dilation: int = 1
) -> Sample:
    """A padded image of 3 x 3 taps, some `dilation` apart, every `step`-th place alone."""
    (high, wide), (ci, co) = size, channels
    rows, columns = -(-high // step), -(-wide // step)
    at = (f"{step}*{n} + {dilation}*{t} - {dilation}" for n, t in (("y", "u"), ("x", "v")))
    source = f"""function (D[Y, X, C], K[U, V, C, O]) -> (R) {{
        R[y, x, o : {rows}, {columns}, O] = +(D[{", ".join(at)}, c] * K[u, v, c, o]); }}"""

    def operands(x: Mapping[str, Array]) -> tuple[Array, Array]:
        padded = np.pad(x["D"].astype(np.float32), ((dilation, dilation), (dilation, dilation), (0, 0)))
        taps = [
            padded[u : u + high : step, v : v + wide : step]
            for u, v in product(range(0, 3 * dilation, dilation), repeat=2)
        ]
        return np.stack(taps, axis=2).reshape(rows, columns, -1), x["K"].astype(np.float32).reshape(-1, co)

    return Sample(bound(source, dtype, D=(high, wide, ci), K=(3, 3, ci, co)), operands)


def with_taps(plan: Plan, taps: str) -> Plan:
    """Steps that have all iterations of some of the loops u and v, and one of the other; two of them under way."""
    *outer, steps, last = plan.levels
    covers = tuple(replace(c, size=3 if c.loop in taps else 1) if c.loop in "uv" else c for c in steps.covers)
    single = tuple(c for c in last.covers if c.loop not in "uv") + tuple(Cover(t, 1) for t in taps)
    stagings = tuple(replace(s, versions=2) if s.level == 2 else s for s in plan.stagings)
    return replace(
        plan, levels=(*outer, replace(steps, covers=covers), replace(last, covers=single)), stagings=stagings
    )


def first(sample: Sample, target: Target) -> Plan:
    return next(TensorTile().candidates(view_of(sample, target), target))


def given(sample: Sample, target: Target, plan: Plan) -> Stripe:
    return optimize_given(sample, target, print_plans({view_of(sample, target).name: plan}))


def agrees(sample: Sample, target: Target, taps: str) -> None:
    """Results of the sample's first plan, with these loops in every step."""
    inputs = inputs_of(sample.program)
    stripe = given(sample, target, with_taps(first(sample, target), taps))
    near(run_kernels(stripe, target, inputs), sample, inputs, tf32, 1e-6)


@pytest.mark.parametrize(
    ("dtype", "size", "channels", "step", "dilation", "taps"),
    [
        (BF16, (3, 18), (16, 8), 1, 1, "v"),
        (BF16, (5, 18), (16, 8), 1, 1, "uv"),
        (F16, (3, 35), (24, 8), 2, 1, "uv"),
        (F32, (3, 17), (8, 8), 1, 2, "uv"),
    ],
    ids=["one loop", "both", "steps", "dilated"],
)
def test_taps_of_a_step_read_one_box(
    dtype: DType, size: tuple[int, int], channels: tuple[int, int], step: int, dilation: int, taps: str
) -> None:
    agrees(convolution(dtype, size, channels, step, dilation), SMALL if taps == "v" else TENSOR, taps)


def flat(place: str) -> Sample:
    """24 channels, which end within a step of 16 or 32, of weights whose rows are at a place by channels c and taps v."""
    source = f"""function (D[X, C], K[L, O]) -> (R) {{ R[x, o : X, O] = +(D[x + v - 1, c] * K[{place}, o]), v < 3; }}"""

    def operands(x: Mapping[str, Array]) -> tuple[Array, Array]:
        padded = np.pad(x["D"].astype(np.float32), ((1, 1), (0, 0)))
        return np.stack([padded[v : v + 18] for v in range(3)], axis=2).reshape(18, -1), x["K"].astype(np.float32)

    return Sample(bound(source, BF16, D=(18, 24), K=(72, 8)), operands)


def test_channels_end_behind_all_taps_of_flat_weights() -> None:
    agrees(flat("3*c + v"), SMALL, "v")


def test_rows_of_flat_weights_follow_one_another_for_teams() -> None:
    """Those of other taps would lie between the channels of one."""
    source = "function (D[X, C], K[L, O]) -> (R) { R[x, o : X, O] = +(D[x + v - 1, c] * K[3*c + v, o]), v < 3; }"
    sample = Sample(bound(source, BF16, D=(64, 64), K=(192, 64)), lambda x: (x["D"], x["K"]))
    with pytest.raises(TilePlanError, match="rows of a team follow one another"):
        given(sample, ONLY_TEAMS, with_taps(first(sample, ONLY_TEAMS), "v"))


def test_taps_end_alike_where_the_last_step_is_shallower() -> None:
    sample = flat("c + v")
    with pytest.raises(TilePlanError, match="farther apart than a step's taps"):
        given(sample, SMALL, with_taps(first(sample, SMALL), "v"))


@pytest.mark.parametrize(("size", "taps"), [((2, 64), "v"), ((2, 64), "u")], ids=["along rows", "across rows"])
def test_taps_of_teams(size: tuple[int, int], taps: str) -> None:
    agrees(convolution(BF16, size, (16, 64)), ONLY_TEAMS, taps)


def test_rows_of_a_team_follow_one_another_in_the_box() -> None:
    """Half of a team's rows would lie behind the halo of the others."""
    sample = convolution(BF16, (4, 32), (16, 64))
    plans = TensorTile().candidates(view_of(sample, ONLY_TEAMS), ONLY_TEAMS)
    plan = next(p for p in plans if [p.tile(n, 0, 0) for n in "yx"] == [2, 32])
    with pytest.raises(TilePlanError, match="rows of a team follow one another"):
        given(sample, ONLY_TEAMS, with_taps(plan, "v"))


def test_items_that_round_a_factor_read_it_in_steps_of_one_tap() -> None:
    """Where a row lies in its panel follows from the first one, which taps would move."""
    sample = convolution(F32, (2, 64), (32, 64))
    plan = next(rounding_as_they_read(sample, ONLY_TEAMS))
    with pytest.raises(TilePlanError, match="in steps of one tap"):
        given(sample, ONLY_TEAMS, with_taps(plan, "v"))


def test_windows_along_rows_of_local_memory_have_steps_of_their_own() -> None:
    """Lines of fragments would begin between 16 bytes."""
    source = "function (D[C, X], K[V, C, O]) -> (R) { R[x, o : 32, O] = +(D[c, x + v] * K[v, c, o]); }"
    sample = Sample(bound(source, BF16, D=(16, 40), K=(3, 16, 8)), lambda x: (x["D"], x["K"]))
    plan = first(sample, SMALL)
    assert plan.tile("v", 2, 3) == 1
    with pytest.raises(TilePlanError, match="slide across rows in local memory"):
        given(sample, SMALL, with_taps(plan, "v"))


def test_steps_have_all_taps_of_a_window_or_one() -> None:
    sample = convolution(BF16, (3, 18), (16, 8))
    plan = with_taps(first(sample, SMALL), "v")
    steps = replace(
        plan.levels[2], covers=tuple(replace(c, size=2) if c.loop == "v" else c for c in plan.levels[2].covers)
    )
    with pytest.raises(TilePlanError, match="1 iterations of 'v' are no multiple of 2"):
        given(sample, SMALL, replace(plan, levels=(*plan.levels[:2], steps, *plan.levels[3:])))


@pytest.mark.parametrize(("taps", "together"), [(3, True), (1, False)], ids=["several", "one"])
def test_neighbours_of_groups_of_few_channels_share_what_is_copied(taps: int, together: bool) -> None:
    """Steps of a tap each would copy nearly all of it again."""
    pad = taps // 2
    source = f"""function (D[N, Y, X, G, C], K[U, V, C, G, O]) -> (R) {{
        R[n, y, x, g, o : N, 28, 28, G, O] = +(D[n, y + u - {pad}, x + v - {pad}, g, c] * K[u, v, c, g, o]); }}"""
    program = bound(source, BF16, D=(16, 28, 28, 32, 16), K=(taps, taps, 16, 32, 16))
    plan = first(Sample(program, lambda x: (x["D"], x["K"])), BUSY_TEAMS)
    assert any(c.loop in "uv" and c.size > 1 for c in plan.levels[2].covers) is together


def test_few_tiles_are_tried_with_several_taps_as_late_as_may_be() -> None:
    """Whether a tile can be built takes ten times as long to ask as what it takes at least."""
    view = view_of(convolution(BF16, (56, 56), (64, 64)), BUSY_TEAMS)
    (match, *_) = (m for i in usable(BUSY_TEAMS) if i.team > 1 for m in matches(view, i))
    found = list(tiles_of(view, match, BUSY_TEAMS))
    several = list(tapped(found * 9))
    assert several and not any("may_be_built" in vars(tile) for tile in found)
    assert 0 < len(list(best_first(several))) <= 4 * MOST
