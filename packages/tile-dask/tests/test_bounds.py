"""What crosses chunks is the exact result within the bound that the partition prints: any chunks, masked cells and rows, infinities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import dask.array
import numpy as np
import numpy.typing as npt
import pytest
import tile_dask
import tile_runtime as tile
from hypothesis import given, settings
from hypothesis import strategies as st

da: Any = dask.array
Array = npt.NDArray[Any]
ROWS, KEYS, DEPTH = 9, 24, 5
MASKED = tile.Function(
    """
function (Q[N, D], K[M, D], V[M, E], B[N, M]) -> (O) {
    S[i, j : N, M] = +(Q[i, d] * K[j, d]);
    X = S + B;
    T[i, 0 : N, 1] = >(X[i, j]);
    P = exp(X - (T == -inf ? 0 : T));
    L[i, 0 : N, 1] = +(P[i, j]);
    W[i, e : N, E] = +(P[i, j] * V[j, e]);
    O = W / L;
}""",
    name="masked.tile",
)
SOFTMAX = tile.Function(
    "function (X[M, N]) -> (P) { T[i, 0 : M, 1] = >(X[i, j]); E = exp(X - T); L[i, 0 : M, 1] = +(E[i, j]); P = E / L; }",
    name="softmax.tile",
)
LOG_SUM = tile.Function(
    """
function (X[N, M]) -> (Z) {
    T[i, 0 : N, 1] = >(X[i, j]);
    P = exp(X - (T == -inf ? 0 : T));
    L[i, 0 : N, 1] = +(P[i, j]);
    Z = log(L) + T;
}""",
    name="log_sum.tile",
)
STATISTICS = tile.Function(
    """
function (X[N, M]) -> (Mean, Variance) {
    S[i : N] = +(X[i, j]);
    Mean = S / 24;
    D = X - reshape(Mean, N, 1);
    Q[i : N] = +(D[i, j] * D[i, j]);
    Variance = Q / 24;
}""",
    name="statistics.tile",
)


class Exact(NamedTuple):
    """Results in float64, what their errors are relative to, and the largest exponent of absolute values."""

    values: tuple[Array, ...]
    sizes: tuple[Array, ...]
    exponent: float = 0.0


def _weights(x: Array, size: Array) -> tuple[Array, Array, float]:
    """Exponentials below the rows' largest elements, these, and the largest exponent; `size` is |x| in absolute values."""
    largest: Array = np.max(x, 1, keepdims=True)
    pivot = np.where(np.isneginf(largest), 0.0, largest)
    kept = np.where(np.isneginf(x), 0.0, size)
    return np.exp(x - pivot), largest, float((kept + kept.max(1, keepdims=True)).max(initial=0.0))


def attention(q: Array, k: Array, v: Array, b: Array) -> Exact:
    weights, _, exponent = _weights(q @ k.T + b, abs(q) @ abs(k).T + np.where(np.isneginf(b), 0.0, abs(b)))
    total = weights.sum(1, keepdims=True)
    return Exact((weights @ v / total,), (weights @ abs(v) / total,), exponent)


def softmax(x: Array) -> Exact:
    weights, _, _ = _weights(x, abs(x))
    found = weights / weights.sum(1, keepdims=True)
    return Exact((found,), (found,))


def log_sum(x: Array) -> Exact:
    weights, largest, _ = _weights(x, abs(x))
    found = np.log(weights.sum(1, keepdims=True))
    return Exact((found + largest,), (1 + abs(found) + abs(largest),))


def statistics(x: Array) -> Exact:
    apart = x - x.mean(1, keepdims=True)
    size = abs(x) + abs(x).mean(1, keepdims=True)
    return Exact((x.mean(1), (apart**2).mean(1)), (abs(x).mean(1), (size**2).mean(1)))


Case = tuple[tile.Function, Callable[..., Exact], tuple[tuple[int, ...], ...]]
CASES: dict[str, Case] = {
    "attention": (MASKED, attention, ((ROWS, DEPTH), (KEYS, DEPTH), (KEYS, 3), (ROWS, KEYS))),
    "softmax": (SOFTMAX, softmax, ((ROWS, KEYS),)),
    "log of a sum": (LOG_SUM, log_sum, ((ROWS, KEYS),)),
    "statistics": (STATISTICS, statistics, ((ROWS, KEYS),)),
}
MASKS = ("attention", "log of a sum")
"""Of the last array some cells, and whole rows, may be -inf."""


def sizes(total: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Any chunks along an axis."""
    cuts = st.sets(st.integers(1, total - 1), max_size=4).map(sorted)
    return cuts.map(lambda c: tuple(int(n) for n in np.diff([0, *c, total])))


@pytest.mark.parametrize("name", CASES)
@given(data=st.data())
@settings(max_examples=2, deadline=None)
def test_results_are_exact_within_the_printed_bound(name: str, data: st.DataObject) -> None:
    function, exact, shapes = CASES[name]
    random = np.random.default_rng(data.draw(st.integers(0, 99), "seed"))
    given = [
        (random.standard_normal(s) * data.draw(st.sampled_from([0.1, 1.0, 4.0]))).astype(np.float32) for s in shapes
    ]
    if name in MASKS:
        given[-1][random.random(shapes[-1]) < data.draw(st.sampled_from([0.0, 0.3, 0.9]))] = -np.inf
        given[-1][data.draw(st.integers(0, ROWS - 1)), : data.draw(st.integers(0, KEYS))] = -np.inf
    cut = [da.from_array(a, tuple(data.draw(sizes(n)) for n in a.shape)) for a in given]
    bounds = tile_dask.partition(function, *cut).error_bounds(tile.device().target)
    with np.errstate(all="ignore"):
        wanted = exact(*(a.astype(np.float64) for a in given))
    found = tile_dask.apply(function, *cut)
    for (_, bound), made, value, size in zip(
        bounds.items(), _as_tuple(found), wanted.values, wanted.sizes, strict=True
    ):
        factor, got = bound.factor_for(wanted.exponent), made.compute()
        assert factor is not None and factor < 0.01, bound.text
        np.testing.assert_array_equal(np.isfinite(got), np.isfinite(value))
        known = np.isfinite(value)
        assert np.all(abs(got[known] - value[known]) <= factor * size[known] + 1e-37), bound.text


def _as_tuple(results: Any) -> tuple[Any, ...]:
    return cast("tuple[Any, ...]", results) if isinstance(results, tuple) else (results,)
