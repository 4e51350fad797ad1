"""Custom gradients, Jacobian- and Hessian-vector products of functions and compositions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tile_runtime as tile

ROUND = tile.Function("function (A) -> (O) { O = round(A); }")
CUBE = tile.Function("function (A, B) -> (O) { O = A * A * B; }")
X = np.array([0.2, 1.7, -3.3], np.float32)
ONE = np.ones(3, np.float32)


@tile.custom_vjp(ROUND)
def straight_through(x: Any, y: Any, dy: Any) -> Any:
    return dy


def _composed() -> Any:
    x = tile.placeholder("float32", (3,), name="X")
    return tile.compose([x], [CUBE(straight_through(x), x)])


def test_the_value_is_the_functions_and_the_gradient_its_own() -> None:
    np.testing.assert_array_equal(straight_through(X), np.round(X))
    np.testing.assert_array_equal(tile.vjp(straight_through, "A")(X, ONE), ONE)
    np.testing.assert_array_equal(tile.vjp(ROUND, "A")(X, ONE), 0 * ONE)
    assert straight_through.name == "straight_through"


def test_custom_gradients_survive_composition_and_further_differentiation() -> None:
    y, f = np.round(X), _composed()
    np.testing.assert_allclose(tile.vjp(f, "X")(X, ONE), 2 * y * X + y * y, rtol=1e-6)
    np.testing.assert_allclose(tile.jvp(f, "X")(X, ONE), 2 * y * X + y * y, rtol=1e-6)
    twice = tile.vjp(tile.vjp(f, "X"), "X")
    np.testing.assert_allclose(twice(X, ONE, ONE), 2 * X + 4 * y, rtol=1e-6)


def test_a_tile_function_as_gradient() -> None:
    backward = tile.Function("function (A, B, O, D) -> (DA, DB) { DA = 10 * D * B + 0 * O; DB = D * A; }")
    times = tile.custom_vjp(tile.Function("function (A, B) -> (O) { O = A * B; }"), backward)
    da, db = tile.vjp(times, ("A", "B"))(X, X + 1, ONE)
    np.testing.assert_allclose(da, 10 * (X + 1), rtol=1e-6)
    np.testing.assert_allclose(db, X, rtol=1e-6)


def test_none_is_a_zero_gradient_and_an_output_may_be_an_input() -> None:
    still = tile.custom_vjp(
        tile.Function("function (A, B) -> (O, P) { O = A; P = B * A; }"), lambda a, b, o, p, do, dp: (None, dp)
    )
    da, db = tile.vjp(still, ("A", "B"))(X, X, ONE, 2 * ONE)
    np.testing.assert_array_equal(da, 0 * ONE)
    np.testing.assert_array_equal(db, 2 * ONE)


@pytest.mark.parametrize("backward", [lambda a, y, dy: 3, lambda a, y, dy: (dy, dy), ROUND])
def test_gradients_that_do_not_fit_are_errors(backward: Any) -> None:
    with pytest.raises(tile.TileTypeError, match="TILE-E514"):
        tile.vjp(tile.custom_vjp(ROUND, backward), "A")(X, ONE)


def test_gradients_of_the_wrong_shape_are_errors() -> None:
    total = tile.Function("function (A[N]) -> (O) { O[] = +(A[i]); }")
    with pytest.raises(tile.TileTypeError, match="TILE-E804"):
        tile.vjp(tile.custom_vjp(ROUND, lambda a, y, dy: total(dy)), "A")(X, ONE)


def test_products_with_jacobian_and_hessian() -> None:
    np.testing.assert_allclose(tile.jvp(CUBE, "A")(X, X, ONE), 2 * X * X, rtol=1e-6)
    ha, hb = tile.hessian_vector_product(CUBE, ("A", "B"))(X, X, ONE, ONE, 0 * ONE)
    np.testing.assert_allclose(ha, 2 * X, rtol=1e-6)
    np.testing.assert_allclose(hb, 2 * X, rtol=1e-6)


def test_tangents_must_have_the_inputs_types() -> None:
    with pytest.raises(tile.TileTypeError, match="t_A"):
        tile.jvp(CUBE, "A")(X, X, np.ones(4, np.float32))
