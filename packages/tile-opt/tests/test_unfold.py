"""Windows of few channels become rows: the same sums, of which an instruction's depth has many terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from tensor_support import TENSOR, bound
from tile_ir.dtype import DType
from tile_ir.matrix import MATRIX_INSTRUCTIONS
from tile_ir.program.nodes import Contraction, Program
from tile_ir.stripe import interpret
from tile_opt.program import Unfold, rewrite, rewrites_for
from tile_opt.translate import to_stripe

BF16 = DType.BFLOAT16
ALWAYS = Unfold(dtypes=frozenset({BF16}), columns=1, least=0)
STEM = "function (X[N, C, H, W], K[O, C, I, J]) -> (R) { R[n, o, y, x : N, O, 4, 5] = +(X[n, c, 2*y + i - 2, 2*x + j - 1] * K[o, c, i, j]); }"
LAST = "function (X[N, H, W, C], K[O, I, J, C]) -> (R) { R[n, y, x, o : N, 6, 6, O] = +(X[n, y + i - 1, x + j, c] * K[o, i, j, c]); }"
STORED = "function (X[N, H, W, C], K[I, J, C, O]) -> (R) { R[n, y, x, o : N, 5, 4, O] = +(X[n, 2*y + i - 3, 2*x + j - 3, c] * K[i, j, c, o]); }"
LINE = "function (X[N, W], K[O, J]) -> (R) { R[n, x, o : N, 9, O] = +(X[n, 3*x + j - 4] * K[o, j]); }"
Shapes = Mapping[str, tuple[int, ...]]
CASES: Mapping[str, tuple[str, Shapes, tuple[int, ...]]] = {
    "part of a window": (STEM, {"X": (2, 3, 9, 9), "K": (5, 3, 7, 7)}, (2, 9, 5, 8, 4)),
    "whole window": (STEM, {"X": (2, 3, 8, 9), "K": (5, 3, 3, 2)}, (2, 4, 5, 4, 2, 4)),
    "channels last": (LAST, {"X": (1, 6, 7, 5), "K": (3, 3, 2, 5)}, (1, 6, 6, 4, 2, 8)),
    "no channels": (LINE, {"X": (4, 28), "K": (3, 7)}, (4, 9, 8)),
}


TOGETHER: Mapping[str, tuple[str, Shapes, tuple[int, ...]]] = {
    "part of a window": (STORED, {"X": (2, 10, 8, 3), "K": (7, 7, 3, 5)}, (2, 10, 4, 32)),
    "whole window": (LAST, {"X": (1, 6, 7, 5), "K": (3, 3, 2, 5)}, (1, 6, 6, 4, 16)),
    "channels are apart": (STEM, {"X": (2, 3, 9, 9), "K": (5, 3, 7, 7)}, (2, 9, 5, 32)),
}


def unfolded(program: Program, way: Unfold = ALWAYS) -> list[Contraction]:
    return [op for op in way.apply(program).ops if isinstance(op, Contraction)]


@pytest.mark.parametrize("name", CASES)
def test_rows_have_the_sums_of_windows(name: str) -> None:
    assert_same_sums(*CASES[name], ALWAYS)


@pytest.mark.parametrize("name", TOGETHER)
def test_rows_have_one_index(name: str) -> None:
    source, shapes, rows = TOGETHER[name]
    way = replace(ALWAYS, joined=True)
    assert_same_sums(source, shapes, rows, way)
    product = unfolded(bound(source, BF16, **shapes), way)[-1]
    assert sum(n.startswith("row") for n in product.indexes) == 1


def assert_same_sums(source: str, shapes: Shapes, rows: tuple[int, ...], way: Unfold) -> None:
    program = bound(source, BF16, **shapes)
    copy = next(op for op in unfolded(program, way) if "rows of" in op.text)
    assert copy.type.shape == rows
    rng = np.random.default_rng(0)  # integers, whose sums are exact
    inputs = {n: rng.integers(-2, 3, shape).astype(BF16.numpy) for n, shape in shapes.items()}
    before, after = (interpret.run(to_stripe(p), inputs)["R"] for p in (program, way.apply(program)))
    assert np.array_equal(before, after) and before.any()


def test_what_a_window_does_not_touch_stays_out_of_its_sums() -> None:
    """Where a row is filled up, zeros meet zeros: infinity elsewhere is none of theirs."""
    program = bound(STEM, BF16, X=(1, 3, 9, 9), K=(5, 3, 7, 7))
    x = np.ones((1, 3, 9, 9), np.float32)
    x[..., 8] = np.inf  # the last column, which the first windows end before
    inputs = {"X": x.astype(BF16.numpy), "K": np.ones((5, 3, 7, 7), BF16.numpy)}
    before, after = (interpret.run(to_stripe(p), inputs)["R"] for p in (program, ALWAYS.apply(program)))
    assert np.array_equal(before, after) and np.isfinite(before.astype(np.float32)).any()


@pytest.mark.parametrize(
    ("source", "shapes"),
    [
        (STEM, {"X": (2, 16, 9, 9), "K": (5, 16, 7, 7)}),
        (STEM, {"X": (2, 3, 9, 9), "K": (5, 3, 3, 17)}),
        (LINE.replace("K[o, j]", "K[o, j + 1]"), {"X": (4, 28), "K": (3, 7)}),
    ],
    ids=["channels are many", "windows are long", "a part of the weights"],
)
def test_other_sums_stay(source: str, shapes: Shapes) -> None:
    program = bound(source, BF16, **shapes)
    assert ALWAYS.apply(program) is program


def test_only_where_teams_of_sub_groups_multiply_and_it_pays() -> None:
    teams = replace(TENSOR, matrix=tuple(MATRIX_INSTRUCTIONS))
    stem = "function (X[N, C, H, W], K[O, C, I, J]) -> (R) { R[n, o, y, x : N, O, 112, 112] = +(X[n, c, 2*y + i - 3, 2*x + j - 3] * K[o, c, i, j]); }"
    programs = [
        bound(stem, dtype, X=(count, 3, 224, 224), K=(outs, 3, 7, 7))
        for dtype, count, outs in ((BF16, 32, 64), (BF16, 1, 64), (BF16, 32, 16), (DType.FLOAT64, 32, 64))
    ]
    copies = [sum("rows of" in getattr(op, "text", "") for op in rewrite(p, rewrites_for(teams)).ops) for p in programs]
    assert copies == [2, 0, 0, 0]
    assert len(rewrite(programs[0], rewrites_for(TENSOR)).ops) == 1
