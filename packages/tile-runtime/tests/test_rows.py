"""Programs for any number of rows: how these are divided, and which programs may be."""

from __future__ import annotations

from itertools import pairwise

import pytest
import tile_lang
from hypothesis import given
from hypothesis import strategies as st
from tile_ir.diagnostics import TileTypeError
from tile_ir.dtype import DType
from tile_ir.program.nodes import Program, TensorType
from tile_runtime.rows import least_rows, row_values, runs


@given(st.integers(1, 5000), st.sampled_from((1, 2, 8, 64)), st.sampled_from((0, 10**4, 10**9)))
def test_runs_cover_all_rows_with_one_piece_or_two(rows: int, least: int, shared: int) -> None:
    found = runs(rows, least, 64, shared)
    assert found[0].start == 0 and found[-1].end == rows
    assert all(one.start < other.start <= one.end < other.end for one, other in pairwise(found))
    assert all(r.start % least == 0 and r.used <= r.rows for r in found)
    assert not any(r.filled for r in found[:-1])
    assert len(found) <= 2
    assert sum(r.rows for r in found) <= rows * 9 / 8 + 2 * least


def test_there_are_few_pieces() -> None:
    """Eight for each doubling of the number of rows, and as many for the last rows as for few rows."""
    sizes = {r.rows for rows in range(1, 4097) for r in runs(rows, 1, 4096)}
    assert len(sizes) <= 8 * 12
    assert all(n % (1 << max(0, n.bit_length() - 4)) == 0 for n in sizes)


def test_only_the_last_rows_are_copied_where_a_second_piece_costs_little() -> None:
    assert [(r.start, r.rows) for r in runs(31, 1, 4096)] == [(0, 30), (30, 1)]
    assert [(r.start, r.rows) for r in runs(1001, 4, 4096)] == [(0, 960), (960, 44)]
    assert [(r.start, r.used, r.rows) for r in runs(1001, 1, 4096)] == [(0, 960, 960), (957, 44, 44)]
    assert [(r.used, r.rows) for r in runs(2, 16)] == [(2, 2)]


def test_all_rows_are_one_piece_where_what_they_share_would_be_read_twice() -> None:
    assert [(r.used, r.rows) for r in runs(50, 1, 4096, 10**7)] == [(50, 52)]
    assert [(r.used, r.rows) for r in runs(50, 1, 4096, 0)] == [(48, 48), (2, 2)]


def test_rows_begin_where_views_may() -> None:
    assert least_rows((64, 16), 16) == 1
    assert least_rows((68,), 16) == 4
    assert least_rows((1, 64), 16) == 16
    assert least_rows((12, 20), 256) == 64


def _bound(text: str, rows: int) -> Program:
    types = {"X": (rows, 4), "W": (4, 3), "B": (3,), "I": (rows,), "T": (9, 3), "U": (rows, 3)}
    syntax = tile_lang.parse(text)
    dtype = {"I": DType.INT32}
    names = [p.name.id for p in syntax.inputs]
    return tile_lang.bind(syntax, {n: TensorType(dtype.get(n, DType.FLOAT32), types[n]) for n in names})


ALLOWED = {
    "product": "function (X[N, K], W[K, M]) -> (Y) { Y[n, m : N, M] = +(X[n, k] * W[k, m]); }",
    "broadcast": "function (X[N, K], W[K, M], B[M]) -> (Y) { Z[n, m : N, M] = +(X[n, k] * W[k, m]); Y = relu(Z + B) * 2; }",
    "softmax": "function (X[N, K]) -> (Y) { M[n, 0 : N, 1] = >(X[n, k]); E = exp(X - M); S[n, 0 : N, 1] = +(E[n, k]); Y = E / S; }",
    "reshape": "function (X[N, K]) -> (Y) { Y = reshape(X, N, 2, 2); }",
    "column numbers": "function (X[N, K]) -> (Y) { Y = X + index(X, 1); }",
    "lookup": "function (T[R, C], I[N]) -> (Y) { Y = gather(T, I); }",
    "running sums": "function (X[N, K]) -> (Y) { Y[n, k : N, K] = +(X[n, j]), k - j < K; }",
    "beside": "function (X[N, K], W[K, M]) -> (Y, V) { Y = X + 1; V = W * 2; }",
    "of nothing": "function (X[N, K], B[M]) -> (Y) { Z[n, m : N, M] = +(B[m]); Y = Z; }",
    "sorted": "function (X[N, K]) -> (Y) { Y = argsort(X, 1); }",
}


@pytest.mark.parametrize("text", ALLOWED.values(), ids=ALLOWED.keys())
def test_programs_that_keep_rows_apart(text: str) -> None:
    for rows, other in ((1, 2), (5, 6), (5, 8)):
        found = _bound(text, rows)
        results = {value for _, value in found.outputs} - ({"V"} if "V" in text else set())
        assert results <= row_values(found, _bound(text, other))


REFUSED = {
    "sum over rows": ("function (X[N, K]) -> (Y) { Y[k : K] = +(X[n, k]); }", "other rows"),
    "neighbours": ("function (X[N, K]) -> (Y) { Y[n, k : N, K] = +(X[n + j, k]), j < 2; }", "other rows"),
    "turned": ("function (X[N, K]) -> (Y) { Y[k, n : K, N] = =(X[n, k]); }", "first dimension"),
    "reversed": ("function (X[N, K]) -> (Y) { Y[n, k : N, K] = =(X[N - 1 - n, k]); }", "other rows"),
    "number of rows": ("function (X[N, K]) -> (Y) { Y = X / N; }", "computes with the number of rows"),
    "row numbers": ("function (X[N, K]) -> (Y) { Y = X + index(X, 0); }", "where a row stands"),
    "all in one": ("function (X[N, K]) -> (Y) { Y = reshape(X, 4 * N); }", "first dimension"),
    "first row": ("function (X[N, K]) -> (Y) { Y[k : K] = =(X[0, k]); }", "other rows"),
    "sorted rows": ("function (X[N, K]) -> (Y) { Y = argsort(X, 0); }", "where a row stands"),
    "counted": ("function (U[N, C], I[N], T[R, C]) -> (Y) { Y = scatter(U, I, T); }", "other rows"),
    "first rows": ("function (X[N, K]) -> (Y) { Y[n, k : N, K] = +(X[n, k]), n < 6; }", "computes with the number"),
    "some rows": ("function (X[N, K]) -> (Y) { Y[n, k : N, K] = +(X[n, k]), n < 2; }", "where a row stands"),
    "limit by rows": ("function (X[N, K]) -> (Y) { Y[n, k : N, K] = +(X[n, j]), n - j < 2; }", "where a row stands"),
}


@pytest.mark.parametrize(("text", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_programs_that_mix_rows_are_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(TileTypeError, match=reason) as error:
        row_values(_bound(text, 6), _bound(text, 7))
    (diagnostic,) = error.value.diagnostics
    assert diagnostic.code == "TILE-E547"
