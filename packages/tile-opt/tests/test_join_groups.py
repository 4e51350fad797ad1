"""Gradients of weights of groups of few channels: several groups at once give the same sums."""

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
from tile_opt.program import JoinGroups, rewrite, rewrites_for
from tile_opt.translate import to_stripe

BF16 = DType.BFLOAT16
ALWAYS = JoinGroups(dtypes=frozenset({BF16}), channels=6, least=0)
LAST = """function (D[N, X, Y, C], G[N, Z, W, O]) -> (R) {
    R[u, v, c, 2*g + o : 3, 3, 3, 8] = +(G[n, x, y, 2*g + o] * D[n, x + u - 1, y + v - 1, 3*g + c]), g < 4, c < 3, o < 2;
}"""
FIRST = """function (D[N, C, X], G[N, O, Z]) -> (R) {
    R[2*g + o, c, u : 8, 3, 3] = +(G[n, 2*g + o, x] * D[n, 3*g + c, 2*x + u - 1]), g < 4, c < 3, o < 2;
}"""
DATA = """function (G[N, X, O], K[U, C, O]) -> (R) {
    R[n, x + u - 1, 3*g + c : N, X, 12] = +(G[n, x, 2*g + o] * K[u, c, 2*g + o]), g < 4, c < 3, o < 2;
}"""
IMAGES: Mapping[str, tuple[int, ...]] = {"D": (2, 5, 6, 12), "G": (2, 5, 6, 8)}


def joined(program: Program) -> list[tuple[int, ...]]:
    ops = ALWAYS.apply(program).ops
    return [op.type.shape for op in ops if isinstance(op, Contraction) and "groups" in op.name]


@pytest.mark.parametrize(
    ("source", "shapes", "products"),
    [
        (LAST, IMAGES, (1, 3, 3, 12, 8)),
        (FIRST, {"D": (2, 12, 9), "G": (2, 8, 5)}, (1, 8, 12, 3)),
        (LAST.replace("g < 4", "g < 3"), IMAGES, (1, 3, 3, 9, 6)),
    ],
    ids=["channels last", "channels first", "not all groups"],
)
def test_several_groups_have_the_sums_of_each(
    source: str, shapes: Mapping[str, tuple[int, ...]], products: tuple[int, ...]
) -> None:
    program = bound(source, BF16, **shapes)
    assert joined(program) == [products]
    rng = np.random.default_rng(0)  # integers, whose sums are exact
    inputs = {n: rng.integers(-2, 3, shape).astype(BF16.numpy) for n, shape in shapes.items()}
    inputs["D"][0].flat[:3] = np.inf  # of one group alone
    with np.errstate(invalid="ignore"):
        before, after = (interpret.run(to_stripe(p), inputs)["R"] for p in (program, ALWAYS.apply(program)))
    assert np.array_equal(before, after, equal_nan=True) and np.isfinite(before.astype(np.float32)).any()


@pytest.mark.parametrize(
    ("source", "shapes"),
    [
        (DATA, {"G": (2, 5, 8), "K": (3, 3, 8)}),
        (LAST.replace("g < 4", "g + c < 4"), IMAGES),
        (LAST.replace("3*g + c]", "2*g + c]"), IMAGES),
    ],
    ids=["of data", "channels are left out", "groups share channels"],
)
def test_other_sums_stay(source: str, shapes: Mapping[str, tuple[int, ...]]) -> None:
    program = bound(source, BF16, **shapes)
    assert ALWAYS.apply(program) is program


@pytest.mark.parametrize(
    ("channels", "dtype", "taken"), [(16, BF16, 64), (4, BF16, 64), (64, BF16, 0), (16, DType.FLOAT64, 0)]
)
def test_groups_of_few_channels_fill_an_instruction(channels: int, dtype: DType, taken: int) -> None:
    teams = replace(TENSOR, matrix=tuple(MATRIX_INSTRUCTIONS))
    source = f"""function (D[N, X, Y, C], G[N, X, Y, C]) -> (R) {{
        R[u, c, {channels}*g + o : 3, {channels}, C] = +(G[n, x, y, {channels}*g + o] * D[n, x + u - 1, y, {channels}*g + c]),
            g < {256 // channels}, c < {channels}, o < {channels};
    }}"""
    program = rewrite(bound(source, dtype, D=(16, 28, 28, 256), G=(16, 28, 28, 256)), rewrites_for(teams))
    made = [op.type.shape for op in program.ops if isinstance(op, Contraction) and "groups" in op.name]
    assert made == ([(256 // taken, 3, taken, taken)] if taken else [])
