"""Contractions with other bodies and aggregations, and cumulative sums."""

from __future__ import annotations

from classes.work import Work, program


@program
def distances(m: int, n: int, k: int, norm: int = 2) -> Work:
    """Sums over k of |a - b| or (a - b)², for every pair of rows: two instructions a term."""
    body = "D * D" if norm == 2 else "abs(D)"
    text = f"""function (A[M, L], B[N, L]) -> (O) {{
        D = reshape(A, M, 1, L) - reshape(B, 1, N, L);
        Q = {body};
        O[i, j : M, N] = +(Q[i, j, k]);
    }}"""
    measured = "({} - B).abs()" if norm == 1 else "({} - B) ** 2"
    pairs = f"({measured.format('A[:, None]')}).sum(-1)"
    each = f"torch.stack([({measured.format('a')}).sum(-1) for a in A])"
    numpy = each.replace("torch", "np").replace("(a - B).abs()", "abs(a - B)")
    return Work(
        text, {"A": (m, k), "B": (n, k)}, numpy, pairs, "torch.cdist(A, B, p=1)" if norm == 1 else each,
        f"distances{norm}", operations=2.0 * m * n * k, length=k,
    )  # fmt: skip


@program
def max_plus(m: int, k: int, n: int) -> Work:
    """A product of matrices in the max-plus semiring."""
    text = "function (A[M, L], B[L, N]) -> (C) { C[i, j : M, N] = >(A[i, k] + B[k, j]); }"
    pairs, each = "(A[:, :, None] + B).amax(1)", "torch.stack([(a[:, None] + B).amax(0) for a in A])"
    return Work(
        text, {"A": (m, k), "B": (k, n)}, each.replace("torch", "np").replace("amax", "max"), pairs, each, "max_plus",
        operations=2.0 * m * k * n,
    )  # fmt: skip


@program
def cumulative_sum(n: int) -> Work:
    """Of a vector, as the tutorial writes it."""
    text = "function (A[N]) -> (O) { O[i : N] = +(A[k]), i - k < N; }"
    return Work(text, {"A": (n,)}, "np.cumsum(A)", "torch.cumsum(A, 0)", operations=float(n), length=n)


@program
def cumulative_rows(m: int, n: int, axis: int = 1) -> Work:
    """Of every row (axis 1) or column (axis 0) of a matrix."""
    text = (
        "function (A[M, N]) -> (O) { O[i, j : M, N] = +(A[i, k]), j - k < N; }"
        if axis
        else "function (A[M, N]) -> (O) { O[i, j : M, N] = +(A[k, j]), i - k < M; }"
    )
    numpy, torch = f"np.cumsum(A, {axis})", f"torch.cumsum(A, {axis})"
    return Work(text, {"A": (m, n)}, numpy, torch, operations=float(m * n), length=(m, n)[axis])
