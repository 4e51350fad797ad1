"""Large views are read where they lie."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
import tile_runtime as tile
from numpy.typing import NDArray
from pytest import MonkeyPatch
from tile_ir.diagnostics import TileTypeError
from tile_runtime import arrays

SUM = tile.Function("function (A[M, N]) -> (S) { S[n : N] = +(A[m, n]); }")
PRODUCT = tile.Function("function (A[M, K], B[K, N]) -> (C) { C[i, j : M, N] = +(A[i, k] * B[k, j]); }")
DOUBLE = tile.Function("function (A) -> (S) { S = A + A; }")
TWO = tile.Function("function (A, B) -> (S, D) { S = A + B; D = A - B; }")


def array(*shape: int) -> NDArray[np.float32]:
    found = np.random.default_rng(0).integers(-4, 5, shape).astype(np.float32)
    assert found.nbytes >= arrays.LARGE_VIEW
    return found


@pytest.fixture(scope="module")
def evaluator() -> tile.Evaluator:
    pytest.importorskip("hal_llvm")
    return tile.Evaluator("llvm")


VIEWS: dict[str, Callable[[NDArray[np.float32]], NDArray[np.float32]]] = {
    "axes in another order": lambda x: x.transpose(2, 0, 1),
    "reversed axes": lambda x: x[::-1, :, ::-1],
    "slices": lambda x: x[1:60, 2:, 3:-1],
    "steps": lambda x: x[:, ::2, 1::2],
    "steps backwards, turned": lambda x: x.T[::-2, :, 5:],
    "repeated": lambda x: np.broadcast_to(x[:, :1], (64, 70, 66)),
    "windows": lambda x: np.lib.stride_tricks.sliding_window_view(x[0, 0], 30),
    "few elements of much memory": lambda x: x[:, :, ::9],
    "one place": lambda x: np.broadcast_to(x[:1, :1, :1], (64, 65, 66)),
    "no view": lambda x: x,
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_every_view_gives_what_a_copy_gives(
    evaluator: tile.Evaluator, view: Callable[[NDArray[np.float32]], NDArray[np.float32]], monkeypatch: MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays, "LARGE_VIEW", 1)
    lying = view(array(64, 65, 66))
    plain = np.ones(lying.shape, np.float32)
    for a, b in ((lying, plain), (plain, lying), (lying, lying)):
        total, difference = evaluator(TWO, a, b)
        np.testing.assert_array_equal(total, a + b)
        np.testing.assert_array_equal(difference, a - b)


def test_arrays_and_views_of_one_shape_take_turns(evaluator: tile.Evaluator) -> None:
    square, right = array(513, 513), np.eye(513, 2, dtype=np.float32)
    for given in (square, square.T, square, square.T, square.T):
        np.testing.assert_array_equal(evaluator(PRODUCT, given, right), given[:, :2])


@pytest.mark.parametrize("lying", [array(700, 600).T, array(700, 600)[::-1, 1:]], ids=["turned", "reversed"])
def test_a_view_is_not_copied(evaluator: tile.Evaluator, lying: NDArray[np.float32]) -> None:
    evaluator(SUM, lying)
    tracemalloc.start()
    try:
        total = evaluator(SUM, lying)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(total, lying.sum(0))
    assert peak < lying.nbytes / 4


def test_results_go_where_they_are_wanted(evaluator: tile.Evaluator) -> None:
    lying, out = array(700, 600).T, np.empty(700, np.float32)
    assert evaluator(SUM, lying, out=out) is out
    np.testing.assert_array_equal(out, lying.sum(0))
    square = array(600, 600)
    with pytest.raises(TileTypeError, match="overlaps input 'A'"):
        evaluator(DOUBLE, square.T, out=square)


def test_a_view_of_an_unknown_dtype_is_refused_by_name(evaluator: tile.Evaluator) -> None:
    with pytest.raises(TileTypeError, match="'A'"):
        evaluator(SUM, array(600, 600).astype(np.complex64).T)
