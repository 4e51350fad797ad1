"""Results that steps of windows interleave are made with their channels last, and copied: the same sums."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from tensor_support import bound
from tile_ir.dtype import DType
from tile_ir.program.nodes import Contraction
from tile_ir.stripe import interpret
from tile_opt.program import TurnResults
from tile_opt.translate import to_stripe

BF16 = DType.BFLOAT16
ALWAYS = TurnResults(dtypes=frozenset({BF16}), columns=2, least=0)
FIRST = "function (G[N, O, Y, X], K[O, C, I, J]) -> (R) { R[n, c, 2*y + i - 1, 2*x + j - 1 : N, C, 9, 8] = +(G[n, o, y, x] * K[o, c, i, j]); }"
LAST = "function (G[N, Y, X, O], K[I, J, C, O]) -> (R) { R[n, 2*y + i - 1, 2*x + j - 1, c : N, 9, 8, C] = +(G[n, y, x, o] * K[i, j, c, o]); }"
Shapes = Mapping[str, tuple[int, ...]]
SHAPES: Shapes = {"G": (2, 5, 5, 4), "K": (5, 3, 3, 2)}


def test_channels_are_last_first() -> None:
    program = bound(FIRST, BF16, **SHAPES)
    after = ALWAYS.apply(program)
    assert [op.type.shape for op in after.ops if isinstance(op, Contraction)] == [(2, 9, 8, 3), (2, 3, 9, 8)]
    rng = np.random.default_rng(0)  # integers, whose sums are exact
    inputs = {n: rng.integers(-2, 3, shape).astype(BF16.numpy) for n, shape in SHAPES.items()}
    got, want = (interpret.run(to_stripe(p), inputs)["R"] for p in (after, program))
    assert np.array_equal(got, want) and got.any()


@pytest.mark.parametrize(
    ("source", "shapes", "rewrite"),
    [
        (LAST, {"G": (2, 5, 4, 5), "K": (3, 2, 3, 5)}, ALWAYS),
        (FIRST.replace("2*x + j", "x + j"), SHAPES, ALWAYS),
        (FIRST, SHAPES, TurnResults(dtypes=frozenset({BF16}), columns=4, least=0)),
        (FIRST, SHAPES, TurnResults(dtypes=frozenset({BF16}), columns=2)),
        (FIRST, SHAPES, TurnResults(columns=2, least=0)),
        (FIRST.replace("= +(", "= >("), SHAPES, ALWAYS),
    ],
    ids=["last already", "no steps", "few channels", "few products", "another dtype", "maxima"],
)
def test_what_stays(source: str, shapes: Shapes, rewrite: TurnResults) -> None:
    program = bound(source, BF16, **shapes)
    assert rewrite.apply(program) is program
