"""Permutations of elements narrower than a word: items turn blocks in registers, so that local memory is met in whole words."""

from __future__ import annotations

import pytest
from test_gpu_rows import agree, plan_of, stripe_of, target
from tile_ir.dtype import DType
from tile_opt.plan.steps.groups.banks import BANK_BYTES

TURNED = "function (X[M, N]) -> (R) { R[j, i : N, M] = =(X[i, j]); }"
SHIFTED = "function (X[M, N]) -> (R) { R[j, i : N, M] = =(X[i, j - 3]); }"
SUMMED = "function (X[M, N], Y[N, M]) -> (R) { T[j, i : N, M] = =(X[i, j]); R = T + Y; }"
BATCHES = "function (X[M, N, P]) -> (R) { R[j, k, i : N, P, M] = =(X[i, j, k]); }"


@pytest.mark.parametrize("dtype", [DType.UINT8, DType.INT8, DType.INT16, DType.FLOAT16])
@pytest.mark.parametrize("shape", [(132, 136), (136, 131), (128, 160), (131, 136)])
@pytest.mark.diagonal(2)
def test_narrow_elements_keep_their_places(dtype: DType, shape: tuple[int, int]) -> None:
    """Beyond a tile of 128 bytes."""
    rows, columns = (n // dtype.bytes for n in shape)
    agree(stripe_of(TURNED, dtype, X=(rows, columns)), target(threads=64))


@pytest.mark.parametrize("source", [SHIFTED, SUMMED])
def test_blocks_are_turned_beside_other_operands_and_at_edges(source: str) -> None:
    shapes = {"X": (72, 80), "Y": (80, 72)} if source is SUMMED else {"X": (72, 80)}
    agree(stripe_of(source, DType.INT8, **shapes), target(threads=64))


def test_blocks_of_several_loops() -> None:
    agree(stripe_of(BATCHES, DType.UINT8, X=(36, 12, 20)), target(threads=32))


@pytest.mark.parametrize(
    ("dtype", "shape", "turned"),
    [(DType.UINT8, (256, 260), True), (DType.UINT8, (256, 259), True), (DType.UINT8, (257, 260), False),
     (DType.FLOAT16, (256, 258), True), (DType.FLOAT32, (256, 256), False)],
)  # fmt: skip
def test_tiles_lie_as_the_results_do_where_these_are_stored_in_words(
    dtype: DType, shape: tuple[int, int], turned: bool
) -> None:
    plan = plan_of(TURNED, target(threads=256), dtype, X=shape)
    (staged,) = plan.stagings
    assert staged.order == (("i",) if turned else ("j",))
    if turned:
        assert plan.levels[-1].lanes * dtype.bytes == BANK_BYTES
