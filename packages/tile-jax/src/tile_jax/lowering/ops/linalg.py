"""Factors of matrices, and systems with triangular ones: loops on the device, a row or column in each round."""

from __future__ import annotations

import numpy as np
from tile_ir.dtype import DType
from tile_runtime.loops import scan
from tile_runtime.ops.moving import flipped, permuted
from tile_runtime.ops.text import at, contraction, function, names
from tile_runtime.ops.values import Value, apply, dtype_of
from tile_runtime.symbols import Symbol
from tile_runtime.symbols import constant as known

from tile_jax.lowering.elements import converted, counted, elementwise, full, symbol, where
from tile_jax.lowering.op import Op
from tile_jax.lowering.registry import operation


def _numbers(count: int) -> Symbol:
    return known(np.arange(count, dtype=np.int32))


def _turned(value: Value) -> Value:
    """Matrices with rows as columns."""
    rank = len(value.shape)
    return permuted(value, (*range(rank - 2), rank - 1, rank - 2))


def _wide(dtype: DType) -> DType:
    return DType.FLOAT32 if dtype in (DType.FLOAT16, DType.BFLOAT16) else dtype


@operation("stablehlo.cholesky")
def cholesky(op: Op) -> Value:
    """The triangle whose product with itself turned is the matrix; NaN where it is not positive definite.

    Only the triangle of the same side is read.
    """
    shape, made, lower = op.shape(), op.result(), op.number("lower")
    if 0 in shape:
        return full(0, made.dtype, shape)
    matrix = converted(op.values[0], _wide(made.dtype))
    matrix = symbol(matrix if lower else _turned(matrix))
    start = symbol(full(0, _wide(made.dtype), shape))
    text = _column(shape)

    def step(triangle: Symbol, k: Symbol) -> tuple[Symbol, None]:
        return apply(text, matrix, triangle, k), None

    found, _ = scan(step, start, _numbers(shape[-1]))
    return converted(found if lower else _turned(found), made.dtype)


def _column(shape: tuple[int, ...]) -> str:
    """One round: column K of the triangle L of A, from the columns before it."""
    size, stack = shape[-1], names(len(shape) - 2, "b")
    rows = (*shape[:-2], size)
    row = contraction("R", rows, (*stack, "k"), "=", at("L", (*stack, "K[]", "k")))
    seen = contraction("P", rows, (*stack, "i"), "+", f"{at('L', (*stack, 'i', 'k'))} * {at('R', (*stack, 'k'))}")
    own = contraction("C", rows, (*stack, "i"), "=", at("A", (*stack, "i", "K[]")))
    middle = contraction("D", (*shape[:-2], 1), (*stack, "0"), "=", at("N", (*stack, "K[]")))
    axis, column = len(shape) - 2, ", ".join(map(str, (*rows, 1)))
    return function(
        ("A", "L", "K"), ("Y",), row, seen, own, "N = C - P;", middle,
        f"Q = index(N, {axis}) < K ? 0 : N / sqrt(D);", f"W = reshape(Q, {column});",
        f"Y = index(L, {axis + 1}) == K ? W : L;",
    )  # fmt: skip


@operation("stablehlo.triangular_solve")
def triangular_solve(op: Op) -> Value:
    """X of ``op(A) X = B`` or ``X op(A) = B``; of A only one triangle is read."""
    made = op.result()
    if 0 in made.shape:
        return full(0, made.dtype, made.shape)
    matrix, right = (converted(v, _wide(made.dtype)) for v in op.values)
    lower, on_left = bool(op.number("lower")), bool(op.number("left_side"))
    turns = op.text("transpose_a", "NO_TRANSPOSE") in ("TRANSPOSE", "ADJOINT")
    if turns is on_left:
        matrix, lower = _turned(matrix), not lower
    right = right if on_left else _turned(right)
    if not lower:
        axes = [len(made.shape) - 2]
        matrix, right = flipped(matrix, [*axes, axes[0] + 1]), flipped(right, axes)
    found = _solved(matrix, right, bool(op.number("unit_diagonal")))
    found = found if lower else flipped(found, [len(made.shape) - 2])
    return converted(found if on_left else _turned(found), made.dtype)


def _solved(matrix: Value, right: Value, unit: bool) -> Value:
    """X of ``A X = B`` with the lower triangle of A: one row after the other."""
    shape, size = tuple(right.shape), matrix.shape[-1]
    rank = len(shape)
    below = elementwise("({0} < {1})", counted(matrix.shape, rank - 1), counted(matrix.shape, rank - 2))
    strict = symbol(where(below, matrix, full(0, dtype_of(matrix)), matrix.shape))
    whole, given = symbol(matrix), symbol(right)
    stack = names(rank - 2, "b")
    rows = (*shape[:-2], 1, shape[-1])
    seen = contraction(
        "P", rows, (*stack, "0", "j"), "+", f"{at('T', (*stack, 'K[]', 'k'))} * {at('X', (*stack, 'k', 'j'))}"
    )
    own = contraction("R", rows, (*stack, "0", "j"), "=", at("B", (*stack, "K[]", "j")))
    middle = contraction("D", (*shape[:-2], 1, 1), (*stack, "0", "0"), "=", at("A", (*stack, "K[]", "K[]")))
    row = "(R - P)" if unit else "(R - P) / D"
    text = function("ATBXK", "Y", seen, own, middle, f"W = {row};", f"Y = index(X, {rank - 2}) == K ? W : X;")
    start = symbol(full(0, dtype_of(right), shape))

    def step(solved: Symbol, k: Symbol) -> tuple[Symbol, None]:
        return apply(text, whole, strict, given, solved, k), None

    found, _ = scan(step, start, _numbers(size))
    return found
