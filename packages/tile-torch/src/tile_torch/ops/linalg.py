"""Linear algebra: triangular systems, factors of Cholesky, and what follows from the factors of Gauss."""

from __future__ import annotations

from math import prod

import numpy as np
import torch
from tile_runtime.ops import linalg
from tile_runtime.ops.linalg import turned
from tile_runtime.ops.moving import expanded, reshaped, sliced
from tile_runtime.ops.text import Shape, at, contraction, expression, function, names
from tile_runtime.ops.text import reshaped as reshaped_text
from tile_runtime.ops.values import Value, apply, dtype_of

from tile_torch.call import Call
from tile_torch.registry import operator

aten = torch.ops.aten


@operator(aten.linalg_solve_triangular.default)
def solve_triangular(
    call: Call, input: Value, other: Value, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Value:
    matrix, right = linalg.together(input, other)
    return linalg.solved(matrix, right, lower=not upper, on_left=left, unit=unitriangular)


@operator(aten.triangular_solve.default)
def triangular_solve(
    call: Call, input: Value, matrix: Value, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Value, Value]:
    """X of ``A X = B``, and A."""
    matrix, right = linalg.together(matrix, input)
    turn = turned(matrix) if transpose else matrix
    return linalg.solved(turn, right, lower=upper is transpose, unit=unitriangular), matrix


@operator(aten.linalg_cholesky_ex.default)
def cholesky(call: Call, input: Value, *, upper: bool = False, check_errors: bool = False) -> tuple[Value, Value]:
    """The triangle, and the first row, counted from 1, at which the matrix is not positive definite, or 0."""
    found = linalg.cholesky(turned(input) if upper else input)
    info = _first(function("D", "B", "B = as_int(D > 0, 32) == 0;"), linalg.diagonal(found), call.type(1)[0])
    return turned(found) if upper else found, info


@operator(aten.cholesky_solve.default)
def cholesky_solve(call: Call, input: Value, factor: Value, upper: bool = False) -> Value:
    triangle, right = linalg.together(factor, input)
    lower = turned(triangle) if upper else triangle
    return linalg.solved(turned(lower), linalg.solved(lower, right, lower=True), lower=False)


# --- factors of Gauss ---------------------------------------------------------------------------------


@operator(aten.linalg_lu_factor_ex.default)
def lu_factor(
    call: Call, input: Value, *, pivot: bool = True, check_errors: bool = False
) -> tuple[Value, Value, Value]:
    """Both triangles in one matrix, the row that each was swapped with, counted from 1, and the first pivot that is zero."""
    if not pivot:
        raise call.unsupported("it does not choose pivots", "pivot=True is stable, too")
    factors, swaps = linalg.lu(input)
    return factors, _from_one(swaps), _zero_pivot(factors, call.type(2)[0])


@operator(aten.linalg_lu_solve.default)
def lu_solve(
    call: Call, factors: Value, pivots: Value, other: Value, *, left: bool = True, adjoint: bool = False
) -> Value:
    return _by_factors(factors, _from_zero(pivots), other, left, adjoint)


def _by_factors(factors: Value, swaps: Value, other: Value, left: bool, adjoint: bool = False) -> Value:
    """X of ``A X = B``, of ``X A = B``, or of these with A turned; `swaps` count from 0."""
    factors, right = linalg.together(factors, other)
    swaps = expanded(swaps, (*factors.shape[:-2], swaps.shape[-1]))
    if left:
        return linalg.solved_by(factors, swaps, right, turn=adjoint)
    return turned(linalg.solved_by(factors, swaps, turned(right), turn=not adjoint))


@operator(aten.lu_unpack.default)
def lu_unpack(
    call: Call, factors: Value, pivots: Value, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Value, ...]:
    """The matrix of the permutation, and both triangles; what is not unpacked has no elements."""
    none = np.zeros(0, dtype_of(factors).numpy)
    permutation = _permutation(call, pivots) if unpack_pivots else none
    if not unpack_data:
        return permutation, none, none
    row, column = (f"index(X, {len(factors.shape) - k})" for k in (2, 1))
    texts = f"{row} > {column} ? X : as_float({row} == {column}, {call.dtype.bits})", f"{row} > {column} ? 0 : X"
    lower, upper = (apply(expression("X", t), _cut(factors, call.type(k)[0])) for k, t in enumerate(texts, 1))
    return permutation, lower, upper


def _permutation(call: Call, pivots: Value) -> Value:
    """Ones where row r of the product with it is row i of the factors."""
    *stack, size, _ = call.shape
    where = linalg.order(_from_zero(pivots), size)
    column = np.arange(size, dtype=np.int32)[:, None]
    same = f"Y = as_float({reshaped_text('I', (*stack, 1, size))} == R, {call.dtype.bits});"
    return apply(function("IR", "Y", same), where, column)


def _cut(matrix: Value, shape: Shape) -> Value:
    return sliced(matrix, [slice(n) for n in shape])


@operator(aten._linalg_solve_ex.default)
def solve(
    call: Call, input: Value, other: Value, *, left: bool = True, check_errors: bool = False
) -> tuple[Value, ...]:
    factors, swaps = linalg.lu(input)
    is_vector = len(other.shape) == 1 or tuple(other.shape) == tuple(input.shape[:-1])
    right = reshaped(other, (*other.shape, 1)) if is_vector else other
    found = _by_factors(factors, swaps, right, left or is_vector)
    return reshaped(found, call.shape), factors, _from_one(swaps), _zero_pivot(factors, call.type(3)[0])


@operator(aten.linalg_inv_ex.default)
def inverse(call: Call, input: Value, *, check_errors: bool = False) -> tuple[Value, Value]:
    factors, swaps = linalg.lu(input)
    unit = np.broadcast_to(np.eye(input.shape[-1], dtype=dtype_of(input).numpy), tuple(input.shape))
    return linalg.solved_by(factors, swaps, np.array(unit)), _zero_pivot(factors, call.type(1)[0])


@operator(aten._linalg_det.default)
def determinant(call: Call, input: Value) -> tuple[Value, ...]:
    factors, swaps = _either(call, input)
    found = linalg.determinant(linalg.diagonal(factors), swaps)
    return found, factors, _from_one(swaps)


@operator(aten._linalg_slogdet.default)
def log_determinant(call: Call, input: Value) -> tuple[Value, ...]:
    factors, swaps = _either(call, input)
    diagonal = linalg.diagonal(factors)
    found = linalg.determinant(apply(function("D", "S", "S = sign(D);"), diagonal), swaps)
    index = names(len(diagonal.shape))
    total = contraction("T", call.shape, index[:-1], "+", at("L", index))
    amount = apply(function("D", "T", "L = log(abs(D));", total), diagonal)
    return found, amount, factors, _from_one(swaps)


def _zero_pivot(factors: Value, shape: Shape) -> Value:
    return _first(function("D", "B", "B = D == 0;"), linalg.diagonal(factors), shape)


def _first(test: str, diagonal: Value, shape: Shape) -> Value:
    """The first place, counted from 1, that passes a test; 0 where there is none."""
    size, rank = diagonal.shape[-1], len(diagonal.shape)
    index = names(rank)
    least = contraction("N", shape, index[:-1], "<", at("P", index))
    places = f"P = B ? index(B, {rank - 1}) + 1 : {size + 1};"
    return apply(function("B", "Y", places, least, f"Y = N > {size} ? 0 : N;"), apply(test, diagonal))


def _from_one(swaps: Value) -> Value:
    return apply(function("P", "Y", "Y = P + 1;"), swaps)


def _from_zero(pivots: Value) -> Value:
    return apply(function("P", "Y", "Y = P - 1;"), pivots)


def _either(call: Call, matrix: Value) -> tuple[Value, Value]:
    """The factors that PyTorch makes: those of the turned matrix where its rows lie one behind the other."""
    shape, strides = tuple(matrix.shape), call.strides[0] or ()
    steps = [prod(shape[k + 1 :]) for k in range(len(shape))]
    turn = all(n == 1 or own == step for n, own, step in zip(shape, strides, steps, strict=True))
    return linalg.lu(turned(matrix) if turn else matrix)
