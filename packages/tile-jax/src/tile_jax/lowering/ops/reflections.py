"""Orthogonal factors by Householder's reflections: the calls that JAX leaves to a platform, as loops on the device."""

from __future__ import annotations

import numpy as np
from tile_runtime.loops import scan
from tile_runtime.ops.moving import permuted
from tile_runtime.ops.text import at, contraction, function, names
from tile_runtime.ops.values import Value, apply, dtype_of, symbol
from tile_runtime.symbols import Symbol
from tile_runtime.symbols import constant as known

from tile_jax.lowering.elements import converted, counted, elementwise, full
from tile_jax.lowering.op import Op, Shape
from tile_jax.lowering.ops.moving import placed


def reflected(op: Op) -> tuple[Value, Value]:
    """R in and above the diagonal, the reflections below it with their factors: what LAPACK's geqrf gives."""
    shape, made = op.shape(), op.result()
    rounds = min(shape[-2:])
    if 0 in shape:
        return full(0, made.dtype, shape), full(0, made.dtype, op.result(1).shape)
    text = _reflection(shape)

    def step(matrix: Symbol, k: Symbol) -> tuple[Symbol, Symbol]:
        return apply(text, matrix, k)

    start = symbol(converted(op.values[0], made.dtype.accumulator))
    found, factors = scan(step, start, known(np.arange(rounds, dtype=np.int32)))
    stack = len(shape) - 2
    taus = permuted(factors, (*range(1, stack + 1), 0))
    return converted(found, made.dtype), converted(taus, made.dtype)


def _reflection(shape: Shape) -> str:
    """One round: the reflection that clears column K of A below the diagonal; the matrix after it, and its factor."""
    stack, below = names(len(shape) - 2, "b"), shape[:-2]
    rows, columns = shape[-2:]
    axis, column = len(shape) - 2, f"{', '.join(map(str, (*below, rows, 1)))}"
    one = ", ".join(map(str, (*below, 1)))
    return function(
        ("A", "K"), ("Y", "T"),
        contraction("C", (*below, rows), (*stack, "i"), "=", at("A", (*stack, "i", "K[]"))),
        f"U = index(C, {axis}) > K ? C : 0;",
        contraction("S", (*below, 1), (*stack, "0"), "+", f"{at('U', (*stack, 'i'))} * {at('U', (*stack, 'i'))}"),
        contraction("H", (*below, 1), (*stack, "0"), "=", at("C", (*stack, "K[]"))),
        "E = S == 0 ? H : (H > 0 ? -sqrt(H * H + S) : sqrt(H * H + S));",
        "F = S == 0 ? 0 : (E - H) / E;",
        f"V = index(C, {axis}) == K ? 1 : (S == 0 ? 0 : U / (H - E));",
        contraction("P", (*below, columns), (*stack, "j"), "+", f"{at('V', (*stack, 'i'))} * {at('A', (*stack, 'i', 'j'))}"),
        f"W = reshape(V, {column});",
        f"Q = reshape(F, {one}, 1) * W * reshape(P, {', '.join(map(str, (*below, 1, columns)))});",
        f"M = index(A, {axis}) < K ? 0 : Q;",
        f"N = index(A, {axis}) > K ? W : (index(A, {axis}) == K ? reshape(E, {one}, 1) : A);",
        f"Y = index(A, {axis + 1}) < K ? A : (index(A, {axis + 1}) == K ? N : A - M);",
        f"T = reshape(F, {', '.join(map(str, below)) or '1'});" if below else contraction("T", (), (), "=", "F[0]"),
    )  # fmt: skip


def product(op: Op) -> Value:
    """The orthogonal matrix of reflections and their factors: what LAPACK's orgqr gives."""
    shape, made = op.shape(), op.result()
    if 0 in shape:
        return full(0, made.dtype, shape)
    matrix, taus = (symbol(converted(v, made.dtype.accumulator)) for v in op.values[:2])
    text = _application(shape)
    rank = len(shape)
    unit = elementwise("({0} == {1})", counted(shape, rank - 2), counted(shape, rank - 1))
    start = symbol(placed(converted(unit, dtype_of(matrix)), tuple(range(rank)), shape))
    numbers = known(np.arange(taus.shape[-1], dtype=np.int32))

    def step(orthogonal: Symbol, k: Symbol) -> tuple[Symbol, None]:
        return apply(text, matrix, taus, orthogonal, k), None

    found, _ = scan(step, start, numbers, reverse=True)
    return converted(found, made.dtype)


def _application(shape: Shape) -> str:
    """One round: reflection K of A applied to Q."""
    stack, below = names(len(shape) - 2, "b"), shape[:-2]
    rows, columns = shape[-2:]
    axis = len(shape) - 2
    return function(
        ("A", "T", "Q", "K"), ("Y",),
        contraction("C", (*below, rows), (*stack, "i"), "=", at("A", (*stack, "i", "K[]"))),
        contraction("F", (*below, 1, 1), (*stack, "0", "0"), "=", at("T", (*stack, "K[]"))),
        f"V = index(C, {axis}) == K ? 1 : (index(C, {axis}) > K ? C : 0);",
        contraction("P", (*below, 1, columns), (*stack, "0", "j"), "+", f"{at('V', (*stack, 'i'))} * {at('Q', (*stack, 'i', 'j'))}"),
        f"W = reshape(V, {', '.join(map(str, (*below, rows, 1)))});",
        "Y = Q - F * W * P;",
    )  # fmt: skip
