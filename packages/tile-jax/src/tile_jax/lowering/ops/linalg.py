"""Factors of matrices, and systems with triangular ones."""

from __future__ import annotations

from tile_runtime.ops import linalg
from tile_runtime.ops.linalg import turned
from tile_runtime.ops.values import Value, symbol

from tile_jax.lowering.elements import converted, full
from tile_jax.lowering.op import Op
from tile_jax.lowering.registry import operation


@operation("stablehlo.cholesky")
def cholesky(op: Op) -> Value:
    """The triangle whose product with itself turned is the matrix; NaN where it is not positive definite.

    Only the triangle of the same side is read.
    """
    shape, made, lower = op.shape(), op.result(), op.number("lower")
    if 0 in shape:
        return full(0, made.dtype, shape)
    matrix = symbol(converted(op.values[0], made.dtype.accumulator))
    found = linalg.cholesky(matrix if lower else turned(matrix))
    return converted(found if lower else turned(found), made.dtype)


@operation("stablehlo.triangular_solve")
def triangular_solve(op: Op) -> Value:
    """X of ``op(A) X = B`` or ``X op(A) = B``; of A only one triangle is read."""
    made = op.result()
    if 0 in made.shape:
        return full(0, made.dtype, made.shape)
    matrix, right = (symbol(converted(v, made.dtype.accumulator)) for v in op.values)
    lower, unit, on_left = (bool(op.number(name)) for name in ("lower", "unit_diagonal", "left_side"))
    if op.text("transpose_a", "NO_TRANSPOSE") in ("TRANSPOSE", "ADJOINT"):
        matrix, lower = turned(matrix), not lower
    return converted(linalg.solved(matrix, right, lower=lower, on_left=on_left, unit=unit), made.dtype)
