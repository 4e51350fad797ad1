"""Windows of gradients of few channels become columns: the same sums, over positions or over results alone."""

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
from tile_opt.program import UnfoldGradients, rewrite, rewrites_for
from tile_opt.translate import to_stripe

BF16 = DType.BFLOAT16
ALWAYS = UnfoldGradients(dtypes=frozenset({BF16}), window=1, columns=1, least=0, spread=100)
Shapes = Mapping[str, tuple[int, ...]]
DATA = "function (G[N, O, Y, X], K[O, C, I, J]) -> (R) { R[n, c, 2*y + i - 1, 2*x + j - 1 : N, C, 9, 8] = +(G[n, o, y, x] * K[o, c, i, j]); }"
WEIGHT = "function (G[N, O, Y, X], D[N, C, H, W]) -> (R) { R[o, c, i, j : O, C, 3, 2] = +(G[n, o, y, x] * D[n, c, 2*y + i - 1, 2*x + j - 1]); }"
LAST_DATA = "function (G[N, Y, X, O], K[I, J, C, O]) -> (R) { R[n, y + i - 1, x + 2*j - 2, c : N, 5, 6, C] = +(K[i, j, c, o] * G[n, y, x, o]); }"
LAST_WEIGHT = "function (D[N, H, W, C], G[N, Y, X, O]) -> (R) { R[i, j, c, o : 3, 3, C, O] = +(D[n, y + i - 1, x + 2*j - 2, c] * G[n, y, x, o]); }"
LINE = "function (G[X, O], D[W]) -> (R) { R[o, j : O, 3] = +(G[x, o] * D[3*x + j - 1]); }"
CASES: Mapping[str, tuple[str, Shapes, tuple[int, ...]]] = {
    "of data": (DATA, {"G": (2, 5, 5, 4), "K": (5, 3, 3, 2)}, (2, 3, 3, 2, 5, 4)),
    "of weights": (WEIGHT, {"G": (2, 5, 5, 4), "D": (2, 3, 9, 8)}, (2, 3, 3, 2, 5, 4)),
    "of data, channels last": (LAST_DATA, {"G": (2, 5, 6, 4), "K": (3, 3, 2, 4)}, (2, 5, 6, 3, 3, 2)),
    "of weights, channels last": (LAST_WEIGHT, {"D": (2, 5, 6, 2), "G": (2, 5, 6, 4)}, (3, 3, 2, 2, 5, 6)),
    "of weights without channels": (LINE, {"G": (7, 4), "D": (20,)}, (3, 7)),
}


def windows(program: Program) -> list[tuple[int, ...]]:
    ops = ALWAYS.apply(program).ops
    return [op.type.shape for op in ops if isinstance(op, Contraction) and "windows" in op.name]


@pytest.mark.parametrize("name", CASES)
def test_windows_have_the_sums_of_gradients(name: str) -> None:
    source, shapes, over = CASES[name]
    program = bound(source, BF16, **shapes)
    assert windows(program) == [over]
    rng = np.random.default_rng(0)  # integers, whose sums are exact
    inputs = {n: rng.integers(-2, 3, shape).astype(BF16.numpy) for n, shape in shapes.items()}
    before, after = (interpret.run(to_stripe(p), inputs)["R"] for p in (program, ALWAYS.apply(program)))
    assert np.array_equal(before, after) and before.any()


@pytest.mark.parametrize(
    ("source", "shapes"),
    [
        (DATA, {"G": (2, 5, 5, 4), "K": (5, 16, 3, 2)}),
        (DATA.replace("K[O, C, I, J]", "K[C, O, I, J]").replace("K[o, c,", "K[c, o,"), {"G": (2, 5, 5, 4), "K": (3, 5, 3, 2)}),
        (DATA.replace("2*x + j - 1", "2*x + i - 1"), {"G": (2, 5, 5, 4), "K": (5, 3, 3, 2)}),
        (
            "function (X[N, C, H, W], K[O, C, I, J]) -> (R) { R[n, o, y, x : N, O, 9, 9] = +(X[n, c, y + i - 1, x + j - 1] * K[o, c, i, j]); }",
            {"X": (2, 3, 9, 9), "K": (5, 3, 3, 3)},
        ),
        ("function (G[X], D[X]) -> (R) { R[] = +(G[x] * D[x]); }", {"G": (7,), "D": (7,)}),
    ],
    ids=["channels are many", "windows lie apart", "one index in two subscripts", "a convolution", "one number"],
)  # fmt: skip
def test_other_sums_stay(source: str, shapes: Shapes) -> None:
    program = bound(source, BF16, **shapes)
    assert ALWAYS.apply(program) is program


def test_only_where_teams_of_sub_groups_multiply_and_it_pays() -> None:
    teams = replace(TENSOR, matrix=tuple(MATRIX_INSTRUCTIONS))
    source = DATA.replace("9, 8", "112, 112")
    programs = [
        bound(source, dtype, G=(count, outs, 56, 56), K=(outs, 3, side, side))
        for dtype, count, outs, side in (
            (BF16, 64, 64, 3), (BF16, 1, 64, 3), (BF16, 64, 16, 3), (BF16, 64, 64, 7), (DType.FLOAT64, 64, 64, 3),
        )
    ]  # fmt: skip
    assert [len(rewrite(p, rewrites_for(teams)).ops) for p in programs] == [2, 1, 1, 1, 1]
    assert len(rewrite(programs[0], rewrites_for(TENSOR)).ops) == 1
