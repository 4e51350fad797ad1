"""Rows that are walked piece by piece, by several groups: what these find gives what one that walks all of the row gives."""

from __future__ import annotations

import numpy as np
import pytest
from lowering_support import execute
from test_rows_in_steps import (
    BODIES,
    MASKS,
    MATRIX,
    SCORES,
    SOFTMAX,
    TEAMS,
    VALUES,
    arrays,
    kernels,
    program,
    scheduled,
    small_tiles,
    unrounded,
)  # fmt: skip
from tile_ir.dtype import DType
from tile_ir.frozen import replace
from tile_ir.machine import Machine
from tile_ir.program.nodes import TensorType
from tile_ir.stripe.interpret import run
from tile_ir.stripe.nodes import Block
from tile_ir.target import Target
from tile_lang import bind, parse
from tile_opt.blocks.tree import kernels_of
from tile_opt.kernel.rows_in_steps import rows_in_steps
from tile_opt.kernel.view import open_kernel
from tile_opt.kernel.work import prepares
from tile_opt.lower_kernels import lower_kernels
from tile_opt.plan.builders.shared_rows import share
from tile_opt.plan.space.tensor import rows_in_steps as space
from tile_opt.plan.steps.groups.last_group import waits_for_all
from tile_opt.program import DropDead, NormaliseLast, ShareCommon, SplitReduction, rewrite

__all__ = ["small_tiles"]


def many(target: Target, cores: int = 4) -> Target:
    """With more cores than there are rows for."""
    return replace(target, machine=replace(target.machine, cores=cores))


BODY = {
    **{name: BODIES[name][0] for name in ("scaled", "biased", "capped")},
    **{
        n: f"{SCORES} X = {m} ? P : -inf; {SOFTMAX.format(x='X')} Y = E / Z; {VALUES.format(y='Y')}"
        for n, m in MASKS.items()
    },
    "nothing left": BODIES["rows of which nothing may be left"][0],
}
SIZES = {"scaled": (2, 16, 64, 16)}


@pytest.fixture(autouse=True)
def worth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups share rows whatever it takes to put together what they find."""
    monkeypatch.setattr(space, "COMBINES", 0)
    monkeypatch.setattr(space, "joining_seconds", _at_once)


def _at_once(cells: int, machine: Machine) -> float:
    """What the last group of a tile takes."""
    del cells, machine
    return 0.0


@pytest.mark.parametrize("name", BODY)
def test_what_groups_find_of_their_pieces_gives_what_whole_rows_give(name: str) -> None:
    inputs = arrays(*SIZES.get(name, (1, 20, 70, 8)), DType.FLOAT16)
    given = program(BODY[name], "O", inputs)
    made = scheduled(given, many(MATRIX))
    assert kernels(made.program) == 2
    with np.errstate(all="ignore"):
        want = unrounded(BODY[name], "O", inputs)["O"]
        got = run(made.program, dict(inputs))["O"]
    np.testing.assert_allclose(got.astype(float), want, 2e-3, 2e-3, equal_nan=True)


def test_a_row_by_itself_is_walked_by_teams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its product with keys is one of a matrix and a vector, and so is that with values."""
    monkeypatch.setattr(space, "PIECES", (64,))
    monkeypatch.setattr(space, "WARPS", (4,))
    inputs = arrays(2, 1, 70, 64, DType.FLOAT16)
    given = program(BODY["scaled"], "O", inputs)
    made = scheduled(given, TEAMS).program
    assert kernels(made) == 1
    got, want = run(made, dict(inputs))["O"], unrounded(BODY["scaled"], "O", inputs)["O"]
    np.testing.assert_allclose(got.astype(float), want, 2e-3, 2e-3)


@pytest.mark.parametrize("s", [20, 37])
def test_the_last_group_of_a_tile_puts_together_what_all_found(s: int) -> None:
    """Each of its sub-groups has some columns; rows may be left over."""
    inputs = arrays(2, s, 70, 8, DType.FLOAT16)
    given = program(BODY["biased"], "O", inputs)
    base = many(MATRIX, 12)
    slow = replace(base.machine, launch=replace(base.machine.launch, kernel=1e-3))
    target = replace(base, nodes=base.nodes | {"LastGroup"}, machine=slow)
    made = scheduled(given, target).program
    (kernel,) = kernels_of(made)
    assert isinstance(kernel, Block) and waits_for_all(kernel)
    want = unrounded(BODY["biased"], "O", inputs)["O"]
    got = execute(lower_kernels(made, target), inputs)["O"] if s == 20 else run(made, dict(inputs))["O"]
    np.testing.assert_allclose(got.astype(float), want, 2e-3, 2e-3)


def test_rows_that_nobody_shares_take_as_long_as_their_scores() -> None:
    """Whole pieces of 3001 scores counted: smaller ones, which leave less over, were taken, and took 12 % longer on an H200."""
    inputs = arrays(2, 32, 41, 16, DType.FLOAT16)
    ((_, decision),) = scheduled(program(BODY["scaled"], "O", inputs), MATRIX).decisions.items()
    kinds = rows_in_steps(decision.view)
    assert kinds is not None
    longer = space.seconds(kinds, decision.plan, MATRIX)
    whole = scheduled(program(BODY["scaled"], "O", arrays(2, 32, 48, 16, DType.FLOAT16)), MATRIX).decisions
    ((_, other),) = whole.items()
    others = rows_in_steps(other.view)
    assert others is not None and longer < space.seconds(others, other.plan, MATRIX)


def test_all_teams_have_the_largest_element_of_a_row_that_shares_are_put_together_below() -> None:
    """One team of several had found it: the others' sums were below minus infinity."""
    given = program(BODY["scaled"], "O", arrays(1, 20, 100, 8, DType.FLOAT16))
    ((_, decision),) = scheduled(given, MATRIX).decisions.items()
    kinds = rows_in_steps(decision.view)
    assert kinds is not None
    shared = share(kinds, 3)
    view = open_kernel(shared.combine)
    assert view is not None
    (*_, largest, first, _), (init, *_) = ([s for s in view.stages if s.loops], view.stages)
    assert prepares(view, largest, first) and not prepares(view, first, first) and not prepares(view, init, first)


@pytest.mark.parametrize(("dtypes", "parts"), [((DType.FLOAT16,), 0), ((DType.BFLOAT16,), 2)], ids=str)
def test_rows_that_kernels_walk_are_left_whole(dtypes: tuple[DType, ...], parts: int) -> None:
    """Chunks of their largest elements and sums were kernels of their own, so that scores were stored."""
    sizes = {"Q": (8, 1, 64), "K": (8, 1 << 19, 64), "V": (8, 1 << 19, 64), "B": (1, 1 << 19)}
    text = f"function (Q[H, S, D], K[H, T, D], V[H, T, D], B[S, T]) -> (O) {{ {BODY['scaled']} }}"
    given = bind(parse(text), {n: TensorType(DType.FLOAT16, s) for n, s in sizes.items()})
    whole = rewrite(given, (ShareCommon(), DropDead(), NormaliseLast(kept=4), DropDead()))
    made = SplitReduction(units=132, walked=frozenset(dtypes)).apply(whole)

    assert len(made.ops) == len(whole.ops) + parts
