"""Products of matrices and vectors, in every layout of the operands."""

from __future__ import annotations

from math import prod

from classes.draw import sizes
from classes.work import Work, program


@program
def matmul(m: int, k: int, n: int, layout: str = "nn", dtype: str = "float32") -> Work:
    """[m, k] × [k, n]; `layout` nn, nt, tn or tt says which operands are stored transposed."""
    left, right = layout
    a, sa, ea = ("A[M, L]", "A[i, k]", "A") if left == "n" else ("A[L, M]", "A[k, i]", "A.T")
    b, sb, eb = ("B[L, N]", "B[k, j]", "B") if right == "n" else ("B[N, L]", "B[j, k]", "B.T")
    shapes = {"A": (m, k) if left == "n" else (k, m), "B": (k, n) if right == "n" else (n, k)}
    text = f"function ({a}, {b}) -> (C) {{ C[i, j : M, N] = +({sa} * {sb}); }}"
    return Work(
        text, shapes, f"{ea} @ {eb}", f"{ea} @ {eb}", operations=2.0 * m * k * n, fused=True, length=k, dtype=dtype
    )


@program
def batched_matmul(b: int, m: int, k: int, n: int, dtype: str = "float32") -> Work:
    """[b, m, k] × [b, k, n]."""
    text = "function (A[Z, M, L], B[Z, L, N]) -> (C) { C[z, i, j : Z, M, N] = +(A[z, i, k] * B[z, k, j]); }"
    shapes = {"A": (b, m, k), "B": (b, k, n)}
    return Work(text, shapes, "A @ B", "A @ B", operations=2.0 * b * m * k * n, fused=True, length=k, dtype=dtype)


@program
def gemv(m: int, n: int, side: str = "right") -> Work:
    """[m, n] times a vector on its right or its left."""
    if side == "right":
        text = "function (A[M, N], X[N]) -> (Y) { Y[i : M] = +(A[i, j] * X[j]); }"
        return Work(text, {"A": (m, n), "X": (n,)}, "A @ X", "A @ X", operations=2.0 * m * n, fused=True, length=n)
    text = "function (A[M, N], X[M]) -> (Y) { Y[j : N] = +(X[i] * A[i, j]); }"
    return Work(text, {"A": (m, n), "X": (m,)}, "X @ A", "X @ A", operations=2.0 * m * n, fused=True, length=m)


@program
def einsum(left: str, right: str, out: str, shape: str, dtype: str = "float32") -> Work:
    """Two tensors whose axes are named by letters, such as cdba and ca, to ad; `shape` has the sizes of a, b, c, …"""
    extents = dict(zip("abcdefgh", sizes(shape), strict=False))
    heads = {name: ", ".join(f"N{axis}" for axis in axes) for name, axes in (("A", left), ("B", right), ("O", out))}
    text = f"""function (A[{heads["A"]}], B[{heads["B"]}]) -> (O) {{
        O[{", ".join(out)} : {heads["O"]}] = +(A[{", ".join(left)}] * B[{", ".join(right)}]);
    }}"""
    call = f"einsum('{left},{right}->{out}', A, B"
    return Work(
        text, {"A": tuple(extents[a] for a in left), "B": tuple(extents[a] for a in right)},
        f"np.{call}, optimize=True)", f"torch.{call}).contiguous()", dtype=dtype,
        operations=2.0 * prod(extents.values()), fused=True,
        length=prod(size for axis, size in extents.items() if axis not in out),
    )  # fmt: skip
