"""Factors of matrices, and systems of equations: loops on the device, a row or column in each round.

Matrices are the last two axes of float32 or float64; the axes before them count matrices, and are equal for all operands.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tile_runtime.loops import scan
from tile_runtime.ops.moving import expanded, flipped, permuted
from tile_runtime.ops.text import Shape, at, contraction, function, listed, names, reshaped
from tile_runtime.ops.values import Value, apply, dtype_of, symbol
from tile_runtime.symbols import Symbol, constant


def turned(value: Value) -> Value:
    """Matrices with rows as columns."""
    rank = len(value.shape)
    return permuted(value, (*range(rank - 2), rank - 1, rank - 2))


def cholesky(matrix: Value) -> Symbol:
    """The lower triangle L of ``L @ L.T``, of which the lower triangle is read; NaN where it is not positive definite."""
    shape, whole = tuple(matrix.shape), symbol(matrix)
    text = _column(shape)

    def step(triangle: Symbol, k: Symbol) -> tuple[Symbol, None]:
        return apply(text, whole, triangle, k), None

    return scan(step, constant(np.zeros(shape, dtype_of(matrix).numpy)), _numbers(shape[-1]))[0]


def solved(matrix: Value, right: Value, *, lower: bool, on_left: bool = True, unit: bool = False) -> Value:
    """X of ``A X = B``, or of ``X A = B``; of A one triangle is read, and with `unit` its diagonal counts as ones."""
    if not on_left:
        return turned(solved(turned(matrix), turned(right), lower=not lower, unit=unit))
    if lower:
        return _solved(matrix, right, unit)
    rows = len(right.shape) - 2
    return flipped(_solved(flipped(matrix, [rows, rows + 1]), flipped(right, [rows]), unit), [rows])


def lu(matrix: Value) -> tuple[Symbol, Value]:
    """L below the diagonal, where L itself has ones, and U on and above it; and the row each row was swapped with (int32)."""
    *stack, height, width = matrix.shape
    if not min(height, width):
        return symbol(matrix), np.zeros((*stack, 0), np.int32)
    text = _elimination((*stack, height, width))

    def step(factors: Symbol, k: Symbol) -> tuple[Symbol, Symbol]:
        return apply(text, factors, k)

    found, swaps = scan(step, symbol(matrix), _numbers(min(height, width)))
    return found, permuted(swaps, (*range(1, len(stack) + 1), 0))


def order(swaps: Value, height: int) -> Value:
    """Which row is where after one swap after the other, int32 of [..., height]."""
    stack = tuple(swaps.shape[:-1])
    axis = len(stack)
    rows = (*stack, height)
    index = names(axis, "b")
    moved = contraction("Y", rows, (*index, "i"), "=", at("I", (*index, at("R", (*index, "i")))))
    text = function("IPK", "Y", _swapped("I", stack), moved)

    def step(now: Symbol, row: tuple[Symbol, Symbol]) -> tuple[Symbol, None]:
        return apply(text, now, *row), None

    start = constant(np.array(np.broadcast_to(np.arange(height, dtype=np.int32), rows)))
    by_round = permuted(swaps, (axis, *range(axis)))
    return scan(step, start, (symbol(by_round), _numbers(swaps.shape[-1])))[0]


def solved_by(factors: Value, swaps: Value, right: Value, *, turn: bool = False) -> Value:
    """X of ``A X = B``, or with `turn` of ``A.T X = B``, by the factors and swaps of A."""
    if not factors.shape[-1]:
        return right
    where = order(swaps, factors.shape[-1])
    if not turn:
        first = solved(factors, _rows(right, where), lower=True, unit=True)
        return solved(factors, first, lower=False)
    first = solved(turned(factors), right, lower=True)
    last = solved(turned(factors), first, lower=False, unit=True)
    return _rows(last, apply(function("I", "Y", f"Y = argsort(I, {len(where.shape) - 1});"), where))


def determinant(diagonal: Value, swaps: Value) -> Value:
    """The product of a diagonal of factors, negative after an odd number of swaps."""
    shape = tuple(diagonal.shape[:-1])
    axis, index = len(shape), names(len(shape) + 1)
    signed = f"S = P == index(P, {axis}) ? D : -D;"
    product = contraction("Y", shape, index[:-1], "*", at("S", index), "default One")
    return apply(function("DP", "Y", "One = 1;", signed, product), diagonal, swaps)


def diagonal(matrix: Value) -> Value:
    """The cells whose row and column are the same."""
    *stack, height, width = matrix.shape
    index = names(len(stack) + 1)
    taken = contraction("D", (*stack, min(height, width)), index, "=", at("A", (*index, index[-1])))
    return apply(function("A", "D", taken), matrix)


def together(matrix: Value, right: Value) -> tuple[Value, Value]:
    """Both with the same axes ahead of their last two."""
    stack = np.broadcast_shapes(matrix.shape[:-2], right.shape[:-2])
    return expanded(matrix, (*stack, *matrix.shape[-2:])), expanded(right, (*stack, *right.shape[-2:]))


def _rows(value: Value, where: Value) -> Value:
    """Rows of matrices in another order."""
    stack = names(len(value.shape) - 2, "b")
    taken = at("X", (*stack, at("I", (*stack, "i")), "j"))
    return apply(function("XI", "Y", contraction("Y", value.shape, (*stack, "i", "j"), "=", taken)), value, where)


def _swapped(rows: str, stack: Sequence[int]) -> str:
    """R: the places of rows after row K of each matrix and row P have changed places; `rows` names a [..., height]."""
    place, other = f"index({rows}, {len(stack)})", reshaped("P", (*stack, 1))
    return f"R = {place} == K ? {other} : ({place} == {other} ? K : {place});"


def _numbers(count: int) -> Symbol:
    return constant(np.arange(count, dtype=np.int32))


# --- one round ----------------------------------------------------------------------------------------


def _column(shape: Shape) -> str:
    """Column K of the triangle L of A, from the columns before it."""
    size, stack = shape[-1], names(len(shape) - 2, "b")
    rows = (*shape[:-2], size)
    row = contraction("R", rows, (*stack, "k"), "=", at("L", (*stack, "K[]", "k")))
    seen = contraction("P", rows, (*stack, "i"), "+", f"{at('L', (*stack, 'i', 'k'))} * {at('R', (*stack, 'k'))}")
    own = contraction("C", rows, (*stack, "i"), "=", at("A", (*stack, "i", "K[]")))
    middle = contraction("D", (*shape[:-2], 1), (*stack, "0"), "=", at("N", (*stack, "K[]")))
    axis, column = len(shape) - 2, listed((*rows, 1))
    return function(
        ("A", "L", "K"), ("Y",), row, seen, own, "N = C - P;", middle,
        f"Q = index(N, {axis}) < K ? 0 : N / sqrt(D);", f"W = reshape(Q, {column});",
        f"Y = index(L, {axis + 1}) == K ? W : L;",
    )  # fmt: skip


def _solved(matrix: Value, right: Value, unit: bool) -> Value:
    """X of ``A X = B`` with the lower triangle of A: one row after the other."""
    shape, size = tuple(right.shape), matrix.shape[-1]
    rank = len(shape)
    below = function("A", "S", f"S = index(A, {rank - 1}) < index(A, {rank - 2}) ? A : 0;")
    whole, given = symbol(matrix), symbol(right)
    strict = apply(below, whole)
    stack = names(rank - 2, "b")
    rows = (*shape[:-2], 1, shape[-1])
    seen = contraction(
        "P", rows, (*stack, "0", "j"), "+", f"{at('T', (*stack, 'K[]', 'k'))} * {at('X', (*stack, 'k', 'j'))}"
    )
    own = contraction("R", rows, (*stack, "0", "j"), "=", at("B", (*stack, "K[]", "j")))
    middle = contraction("D", (*shape[:-2], 1, 1), (*stack, "0", "0"), "=", at("A", (*stack, "K[]", "K[]")))
    row = "(R - P)" if unit else "(R - P) / D"
    text = function("ATBXK", "Y", seen, own, middle, f"W = {row};", f"Y = index(X, {rank - 2}) == K ? W : X;")
    start = constant(np.zeros(shape, dtype_of(right).numpy))

    def step(found: Symbol, k: Symbol) -> tuple[Symbol, None]:
        return apply(text, whole, strict, given, found, k), None

    return scan(step, start, _numbers(size))[0]


def _elimination(shape: Shape) -> str:
    """Row K swapped with the one whose column K is largest, and what is below column K eliminated."""
    *ahead, height, width = shape
    axis, stack = len(ahead), names(len(ahead), "b")
    rows, columns = (*ahead, height), (*ahead, width)
    row, column = reshaped("U", (*ahead, 1, width)), reshaped("L", (*rows, 1))
    return function(
        "AK", "YP",
        contraction("C", rows, (*stack, "i"), "=", at("A", (*stack, "i", "K[]"))),
        f"Q = index(C, {axis}) < K ? -1 : abs(C);",
        f"P = argmax(Q, {axis});",
        _swapped("C", ahead),
        contraction("W", shape, (*stack, "i", "j"), "=", at("A", (*stack, at("R", (*stack, "i")), "j"))),
        contraction("V", rows, (*stack, "i"), "=", at("W", (*stack, "i", "K[]"))),
        contraction("D", (*ahead, 1), (*stack, "0"), "=", at("V", (*stack, "K[]"))),
        f"L = index(V, {axis}) <= K ? 0 : (D == 0 ? V : V / D);",
        contraction("U", columns, (*stack, "j"), "=", at("W", (*stack, "K[]", "j"))),
        f"B = {column};",
        f"E = (index(W, {axis}) > K) & (index(W, {axis + 1}) == K);",
        f"Y = E ? B : (index(W, {axis + 1}) < K ? W : W - B * {row});",
    )  # fmt: skip
