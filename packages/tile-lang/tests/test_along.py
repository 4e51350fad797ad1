"""Built-in functions along an axis, by the reference evaluator, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bind_support import run

RNG = np.random.default_rng(11)
DTYPES = (np.float32, np.int32, np.float16, np.uint8)


def numbers(dtype: Any, shape: tuple[int, ...] = (4, 5, 3)) -> Any:
    """Small numbers with ties, and NaN among floats."""
    found = RNG.integers(0, 6, shape).astype(dtype)
    if found.dtype.kind == "f":
        found.reshape(-1)[::17] = np.nan
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", range(3))
def test_places_and_order(dtype: Any, axis: int) -> None:
    x = numbers(dtype)
    np.testing.assert_array_equal(run(f"O = argmax(X, {axis});", X=x), x.argmax(axis))
    np.testing.assert_array_equal(run(f"O = argmin(X, {axis});", X=x), x.argmin(axis))
    np.testing.assert_array_equal(run(f"O = sort(X, {axis});", X=x), np.sort(x, axis))
    np.testing.assert_array_equal(run(f"O = argsort(X, {axis});", X=x), np.argsort(x, axis, kind="stable"))
    ranks = np.unique(x, return_inverse=True)[1].reshape(x.shape)
    down = np.argsort(-ranks, axis, kind="stable")
    np.testing.assert_array_equal(run(f"O = argsort(X, {axis}, 1);", X=x), down)
    places = down.take([0, 1], axis)
    np.testing.assert_array_equal(run(f"O = element(top_k(X, 2, {axis}), 1);", X=x), places)
    np.testing.assert_array_equal(
        run(f"O = element(top_k(X, 2, {axis}), 0);", X=x), np.take_along_axis(x, places, axis)
    )


@pytest.mark.parametrize("axis", range(3))
def test_running_totals(axis: int) -> None:
    x = RNG.integers(-3, 4, (4, 5, 3)).astype(np.float32)
    np.testing.assert_array_equal(run(f"O = cumsum(X, {axis});", X=x), x.cumsum(axis))
    np.testing.assert_array_equal(run(f"O = cumprod(X, {axis});", X=x), x.cumprod(axis))
    np.testing.assert_array_equal(run(f"O = cummax(X, {axis});", X=x), np.maximum.accumulate(x, axis))
    np.testing.assert_array_equal(run(f"O = cummin(X, {axis});", X=x), np.minimum.accumulate(x, axis))


@pytest.mark.parametrize("size", [0, 1, 2, 7, 8, 9, 100])
def test_searching_a_sorted_vector(size: int) -> None:
    table = np.sort(RNG.integers(0, 9, size)).astype(np.float32)
    if size > 7:
        table[-2:] = np.nan
    values = np.append(RNG.integers(-1, 10, 11), np.nan).astype(np.float32).reshape(3, 4)
    np.testing.assert_array_equal(run("O = searchsorted(S, V);", S=table, V=values), np.searchsorted(table, values))
    right = np.searchsorted(table, values, "right")
    np.testing.assert_array_equal(run("O = searchsorted(S, V, 1);", S=table, V=values), right)


def test_one_hot_is_true_at_the_index() -> None:
    indices = np.array([[1, -1], [0, 3]], np.int64)
    np.testing.assert_array_equal(run("O = one_hot(I, 3);", I=indices), indices[..., None] == np.arange(3))


def test_extremes_of_every_kind_of_type() -> None:
    empty = np.zeros((2, 0), np.int8)
    source = "L = lowest(X); H = highest(X); A[i : 2] = >(X[i, j]) default L; B[i : 2] = <(X[i, j]) default H; O = A == L & B == H;"
    assert run(source, X=empty).all() and run(source, X=empty.astype(np.float16)).all()
