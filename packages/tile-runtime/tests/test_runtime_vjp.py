"""Gradients as functions (their values are tile-autodiff's affair)."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import tile_autodiff
import tile_runtime as tile

needs_gradients = pytest.mark.skipif(not hasattr(tile_autodiff, "gradient"), reason="tile_autodiff has no gradient yet")
MATMUL = tile.Function("function (A[M, L], B[L, N]) -> (C) { C[i, j : M, N] = +(A[i, k] * B[k, j]); }")


def test_inputs_and_outputs() -> None:
    g = tile.vjp(MATMUL, wrt=("B", "A"))
    assert (g.inputs, g.outputs) == (("A", "B", "d_C"), ("d_B", "d_A"))
    with pytest.raises(tile.TileTypeError, match="no input 'Q'"):
        tile.vjp(MATMUL, wrt="Q")
    with pytest.raises(tile.TileTypeError, match="wrt is empty"):
        tile.vjp(MATMUL, wrt=())
    with pytest.raises(tile.TileTypeError, match="'d_B', which is what its cotangent"):
        x, d = (tile.placeholder("float32", (2,), name=n) for n in ("x", "d_B"))
        tile.vjp(tile.compose([x, d], [tile.Function("function (A, C) -> (B) { B = A + C; }")(x, d)]), wrt="x")
    with pytest.raises(tile.TileTypeError, match="'A' twice"):
        tile.vjp(MATMUL, wrt=("A", "A"))


@needs_gradients
@pytest.mark.parametrize("device", ["interp", "llvm"])
def test_values(device: str) -> None:
    rng = np.random.default_rng(5)
    a, b, d = (rng.standard_normal(s).astype(np.float32) for s in ((2, 3), (3, 4), (2, 4)))
    g = tile.vjp(MATMUL, wrt=("A", "B"))
    for got in (g(a, b, d, device=device), pickle.loads(pickle.dumps(g))(a, b, d_C=d, device=device)):
        np.testing.assert_allclose(got[0], d @ b.T, rtol=1e-5)
        np.testing.assert_allclose(got[1], a.T @ d, rtol=1e-5)
    np.testing.assert_allclose(tile.vjp(MATMUL, wrt="B")(a, b, d, device=device), a.T @ d, rtol=1e-5)
    assert tile.eval_shape(g, a, b, d)[1].shape == (3, 4)


@needs_gradients
def test_a_cotangent_of_another_type_is_named() -> None:
    a = np.zeros((2, 2), np.float32)
    with pytest.raises(tile.TileTypeError, match=r"d_C is float32\[2\].*float32\[2, 2\]"):
        tile.vjp(MATMUL, wrt="A")(a, a, a[0])


@needs_gradients
def test_gradients_of_gradients_and_compositions() -> None:
    square = tile.Function("function (X) -> (Y) { Y = X * X * X; }")
    x, one = np.array([1, 2, 3], np.float32), np.ones(3, np.float32)
    second = tile.vjp(tile.vjp(square, wrt="X"), wrt="X")
    np.testing.assert_allclose(second(x, one, one), 6 * x, rtol=1e-5)
    s = tile.placeholder("float32", (3,), name="s")
    f = tile.compose([s], [square(square(s))])
    np.testing.assert_allclose(tile.vjp(f, wrt="s")(x, one), 9 * x**8, rtol=1e-4)
