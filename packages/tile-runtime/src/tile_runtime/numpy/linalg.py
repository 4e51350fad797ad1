"""`tile_runtime.numpy.linalg`: systems of equations, factors and norms of matrices in the last two axes.

Solutions and factors are loops on the device, a row or column in each round, for all matrices of a stack at once. What needs a
number of rounds that depends on data (eigenvalues, singular values, and what follows from them) is not here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from tile_ir.dtype import DType

from tile_runtime.arrays import dtype_of
from tile_runtime.numpy.dtypes import astype, result_type
from tile_runtime.numpy.elementwise import abs, log, pow, sign, sqrt, square
from tile_runtime.numpy.linear import cross, matmul, matrix_transpose, outer, tensordot, trace, vecdot
from tile_runtime.numpy.manipulation import broadcast_to, expand_dims, squeeze
from tile_runtime.numpy.operands import Axes, Operand, Result, axes_of, called, integer_of, shape_of
from tile_runtime.numpy.shaping import diagonal as _diagonal
from tile_runtime.numpy.statistical import count_nonzero, max, min, sum
from tile_runtime.ops import linalg
from tile_runtime.ops.values import Value

__all__ = [
    "cholesky",
    "cross",
    "det",
    "diagonal",
    "inv",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_transpose",
    "norm",
    "outer",
    "slogdet",
    "solve",
    "solve_triangular",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]


def _floats(*operands: Operand) -> list[Result]:
    """All in the one float dtype, of 32 bits at least, in which they meet."""
    dtype = DType.FLOAT64 if result_type(*operands) is DType.FLOAT64 else DType.FLOAT32
    return [v if v.dtype is dtype else astype(v, dtype) for v in operands]


def _squares(*operands: Operand) -> list[Result]:
    """As floats; ValueError where the first is no stack of square matrices."""
    shape = tuple(operands[0].shape)
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise ValueError(f"a square matrix is wanted, or a stack of such: this has shape {shape}")
    return _floats(*operands)


def solve(x1: Operand, x2: Operand, /) -> Result:
    """X of ``x1 @ X = x2``; `x2` of one axis is a vector. Not finite where a matrix is singular."""
    matrix, right = _squares(x1, x2)
    if len(right.shape) == 1:
        return squeeze(called(_solved, matrix, expand_dims(right, -1)), -1)
    return called(_solved, matrix, right)


def _together(matrix: Value, right: Value) -> tuple[Value, Value]:
    """Both with the same axes ahead of their last two; ValueError where one has other rows than the other."""
    if matrix.shape[-1] != right.shape[-2]:
        raise ValueError(f"matrices of {matrix.shape[-1]} rows and right sides of {right.shape[-2]} do not fit")
    return linalg.together(matrix, right)


def _solved(matrix: Value, right: Value) -> Value:
    matrix, right = _together(matrix, right)
    return linalg.solved_by(*linalg.lu(matrix), right)


def inv(x: Operand, /) -> Result:
    """The inverse; not finite where there is none."""
    (matrix,) = _squares(x)
    return solve(matrix, np.eye(matrix.shape[-1], dtype=matrix.dtype.numpy))


def solve_triangular(x1: Operand, x2: Operand, /, *, lower: bool = False) -> Result:
    """X of ``x1 @ X = x2``, of whose first one triangle is read."""
    matrix, right = _squares(x1, x2)
    if len(right.shape) == 1:
        return squeeze(solve_triangular(matrix, expand_dims(right, -1), lower=lower), -1)
    return called(partial(_triangular, lower=lower), matrix, right)


def _triangular(matrix: Value, right: Value, lower: bool) -> Value:
    return linalg.solved(*_together(matrix, right), lower=lower)


def cholesky(x: Operand, /, *, upper: bool = False) -> Result:
    """The lower triangle L of ``L @ L.mT``, or that turned; NaN where a matrix is not positive definite."""
    found = called(linalg.cholesky, *_squares(x))
    return matrix_transpose(found) if upper else found


def det(x: Operand, /) -> Result:
    """The determinant."""
    return called(_determinant, *_squares(x))


def _determinant(matrix: Value) -> Value:
    factors, swaps = linalg.lu(matrix)
    return linalg.determinant(linalg.diagonal(factors), swaps)


def slogdet(x: Operand, /) -> tuple[Result, Result]:
    """The sign of the determinant, and the logarithm of its size."""
    return called(_signed, *_squares(x))


def _signed(matrix: Value) -> tuple[Value, Value]:
    factors, swaps = linalg.lu(matrix)
    cells = linalg.diagonal(factors)
    return linalg.determinant(sign(cells), swaps), sum(log(abs(cells)), -1)


def matrix_power(x: Operand, n: int, /) -> Result:
    """`n` matrices multiplied, integers as integers; of a negative number the inverse ones."""
    n, (matrix,) = integer_of("n", n), _squares(x)
    if n < 0:
        return matrix_power(inv(matrix), -n)
    dtype = dtype_of(x.dtype)
    matrix = matrix if dtype.is_float else astype(x, dtype)
    found = None
    while n:
        if n & 1:
            found = matrix if found is None else matmul(found, matrix)
        n >>= 1
        matrix = matmul(matrix, matrix) if n else matrix
    unit = np.eye(shape_of(x)[-1], dtype=matrix.dtype.numpy)
    return broadcast_to(astype(unit, matrix.dtype), shape_of(x)) if found is None else found


def diagonal(x: Operand, /, *, offset: int = 0) -> Result:
    """The cells of the last two axes whose places differ by `offset`."""
    return _diagonal(x, offset, -2, -1)


def vector_norm(x: Operand, /, *, axis: Axes = None, keepdims: bool = False, ord: float = 2) -> Result:
    """The length of vectors along axes, of all elements where none is named: the root of order `ord`, or the largest for inf."""
    sizes = abs(x)
    match ord:
        case 2:
            return sqrt(sum(square(sizes), axis, keepdims=keepdims))
        case 1:
            return sum(sizes, axis, keepdims=keepdims)
        case 0:
            return astype(count_nonzero(x, axis, keepdims=keepdims), sizes.dtype)
        case float() if ord == np.inf:
            return max(sizes, axis, keepdims=keepdims)
        case float() if ord == -np.inf:
            return min(sizes, axis, keepdims=keepdims)
        case _:
            return pow(sum(pow(sizes, float(ord)), axis, keepdims=keepdims), 1 / ord)


def matrix_norm(x: Operand, /, *, keepdims: bool = False, ord: float | str = "fro") -> Result:
    """Of the last two axes: Frobenius's, or the largest (smallest, if negative) sum of a column (1) or row (inf)."""
    if ord == "fro":
        return vector_norm(x, axis=(-2, -1), keepdims=keepdims)
    if ord not in (1, -1, np.inf, -np.inf):
        raise ValueError(f"the norm of order {ord!r} needs singular values: 'fro', 1, -1, inf and -inf are here")
    sums = sum(abs(x), -2 if ord in (1, -1) else -1, keepdims=True)
    found = (max if ord in (1, np.inf) else min)(sums, (-2, -1), keepdims=True)  # type: ignore[operator]
    return found if keepdims else squeeze(found, (-2, -1))


def norm(
    x: Operand, ord: float | str | None = None, axis: int | Sequence[int] | None = None, keepdims: bool = False
) -> Result:
    """As NumPy's: a norm of vectors, along one axis, or of matrices, along two; of all elements where nothing is named."""
    places = axes_of(len(shape_of(x)), axis)
    if ord is None or (len(places) == 1 and not isinstance(ord, str)):
        return vector_norm(x, axis=places, keepdims=keepdims, ord=2 if ord is None else float(ord))
    if places != (len(shape_of(x)) - 2, len(shape_of(x)) - 1):
        raise ValueError(f"a norm of matrices is over the last two axes, not over {places}")
    return matrix_norm(x, keepdims=keepdims, ord=ord)
