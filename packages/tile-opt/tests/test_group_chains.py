"""Chains of sliding boxes in the memory of groups: one kernel, the same results, for any aggregation, size and edge."""

from __future__ import annotations

import numpy as np
import pytest
from lowering_support import check, random_inputs
from test_item_chains import BLUR, SAMPLES, stripe_of, target
from tile_ir.dtype import DType
from tile_ir.frozen import replace
from tile_ir.stripe import interpret
from tile_ir.stripe.nodes import Block, Program, Scope
from tile_ir.stripe.walk import blocks_in
from tile_opt.blocks.tree import kernels_of
from tile_opt.passes.kernels import item_chains
from tile_opt.pipeline import optimize
from tile_opt.plan.space.gpu import chain

POINTWISE = """function (A[H, W], K[T]) -> (O) {
    P[y, x : H, W] = +(A[y, x + t - HALF] * K[t]);
    O[y, x : H, W] = >(P[y + t - HALF, x]), t < T;
    R = O - A;
}"""

STEPS = """function (A[H, W]) -> (O) {
    U[y, x : H, W] = +(A[y - 1, x]); D[y, x : H, W] = +(A[y + 1, x]); L[y, x : H, W] = +(A[y, x - 1]);
    B = U + D + L;
    V[y, x : H, W] = +(B[y - 1, x]); E[y, x : H, W] = +(B[y + 1, x]); M[y, x : H, W] = +(B[y, x - 1]);
    O = V + E + M;
}"""

COLUMNS_FIRST = """function (A[H, W], K[T]) -> (O) {
    P[y, x : H, W] = +(A[y + t - HALF, x] * K[t]);
    O[y, x : H, W] = +(P[y, x + t - HALF] * K[t]);
}"""


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles that small pictures have several of, and none of single items."""
    monkeypatch.setattr(item_chains, "RUNS", ())
    monkeypatch.setattr(item_chains, "WIDE", (16,))
    monkeypatch.setattr(item_chains, "TALL", (4,))
    monkeypatch.setattr(chain, "SHARING", 8)


def made(source: str, dtype: DType, height: int, width: int, taps: int) -> tuple[Program, Program]:
    stripe = stripe_of(source.replace("HALF", str(taps // 2)), dtype, A=(height, width), K=(taps,))
    return stripe, optimize(stripe, target(), verify=True)


def boxes(scheduled: Program) -> list[Block]:
    """The blocks with buffers of groups' own."""
    blocks = (b for k in kernels_of(scheduled) if isinstance(k, Block) for b in blocks_in(k))
    return [b for b in blocks if any(r.loc.scope is Scope.GROUP and not r.source for r in b.refs)]


@pytest.mark.usefixtures("small_groups")
@pytest.mark.diagonal(2)
@pytest.mark.parametrize(("source", "dtype"), [*SAMPLES, (POINTWISE, DType.FLOAT32)])
@pytest.mark.parametrize(("height", "width", "taps"), [(9, 40, 3), (5, 33, 5)])
def test_groups_hand_on_what_they_keep(source: str, dtype: DType, height: int, width: int, taps: int) -> None:
    stripe, scheduled = made(source, dtype, height, width, taps)
    assert len(list(kernels_of(scheduled))) == 1
    assert boxes(scheduled)
    inputs = {name: np.rint(value).astype(value.dtype) for name, value in random_inputs(stripe).items()}
    expected = interpret.run(stripe, inputs)
    if dtype is DType.FLOAT16:
        for name, value in expected.items():
            np.testing.assert_allclose(interpret.run(scheduled, inputs)[name], value, rtol=2e-2)
    else:
        check(scheduled, inputs, target(), expected=expected)


@pytest.mark.usefixtures("small_groups")
def test_cells_beside_a_picture_add_nothing_to_the_next_step() -> None:
    """What lies there has no sum, though groups at edges have registers for it."""
    stripe = stripe_of(STEPS, DType.FLOAT32, A=(32, 32))
    scheduled = optimize(stripe, target(), verify=True)
    assert boxes(scheduled)
    inputs = {"A": np.arange(32 * 32, dtype=np.float32).reshape(32, 32)}
    check(scheduled, inputs, target(), expected=interpret.run(stripe, inputs))


@pytest.mark.usefixtures("small_groups")
@pytest.mark.parametrize(("width", "taps"), [(40, 3), (33, 5), (40, 9)])
def test_windows_along_memory_are_in_boxes_of_whole_vectors(width: int, taps: int) -> None:
    """What the second pass needs beside a tile begins and ends on multiples of vectors."""
    stripe, scheduled = made(COLUMNS_FIRST, DType.FLOAT32, 9, width, taps)
    (block,) = boxes(scheduled)
    assert [r.type.sizes[-1] % 4 for r in block.refs if r.loc.scope is Scope.GROUP and not r.source] == [0]
    inputs = random_inputs(stripe)
    check(scheduled, inputs, target(), expected=interpret.run(stripe, inputs))


@pytest.mark.parametrize(("taps", "shared"), [(3, False), (5, True), (31, True)])
def test_groups_take_what_items_would_load_again(taps: int, shared: bool) -> None:
    """Memory bounds both ways for five taps, for which items load twice as much."""
    on = replace(target(), settings=replace(target().settings, threads=256))
    stripe = stripe_of(BLUR.replace("HALF", str(taps // 2)), DType.FLOAT32, A=(4096, 4096), K=(taps,))
    assert bool(boxes(optimize(stripe, on))) is shared


def test_nothing_is_handed_on_where_each_cell_needs_but_itself() -> None:
    """Sums of rows and of columns that meet in one cell: its item makes both."""
    source = """function (A[H, W]) -> (O) {
        X[y, x : H - 2, W - 2] = +(A[y + i, x]), i < 3; Y[y, x : H - 2, W - 2] = +(A[y, x + i]), i < 3; O = X * Y;
    }"""
    scheduled = optimize(stripe_of(source, DType.FLOAT32, A=(4096, 4096)), target())
    assert len(list(kernels_of(scheduled))) == 1 and not boxes(scheduled)


@pytest.mark.parametrize(("taps", "rows"), [(15, 2), (31, 1)])
def test_short_windows_are_loaded_for_two_rows_at_once(taps: int, rows: int) -> None:
    assert chain.Dealt("x", 128, "y", 64, (), taps).ahead == rows


def test_chains_are_no_work_of_a_last_group() -> None:
    """One group of rows would do them one part after another, which have no items in common there."""
    source = """function (A[X, Y, Z], K[T]) -> (O) {
        P[x, y, z : X, Y, Z] = +(A[x + t - 3, y, z] * K[t]); Q[x, y, z : X, Y, Z] = +(P[x, y + t - 3, z] * K[t]);
        O[x, y, z : X, Y, Z] = +(Q[x, y, z + t - 3] * K[t]);
    }"""
    stripe, on = stripe_of(source, DType.FLOAT32, A=(4, 30, 33), K=(7,)), target()
    scheduled = optimize(stripe, replace(on, nodes=on.nodes | {"LastGroup"}), verify=True)
    assert len(list(kernels_of(scheduled))) == 2
    assert boxes(scheduled)
