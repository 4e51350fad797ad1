"""Transposing a tile of vector registers by shuffles of two vectors."""

from __future__ import annotations

from collections.abc import Sequence

from tile_ir.semtree.nodes import Expr, Shuffle

from tile_opt.lowering.builder import Builder


def columns(builder: Builder, rows: Sequence[Expr]) -> list[Expr]:
    """The columns of a tile as vectors, from its rows: at most as many as a row has lanes, and that a power of two.

    Each step separates even from odd columns of two rows at a time, so that n rows take n log2(n) shuffles.
    """
    count, width = len(rows), rows[0].type.lanes
    tall = 1 << (count - 1).bit_length()
    separated = _separated(builder, [*rows, *[rows[0]] * (tall - count)])
    step = width // tall
    return [_column(builder, separated[c % tall], c // tall, step, count) for c in range(width)]


def _separated(builder: Builder, rows: list[Expr]) -> list[Expr]:
    """Vector r of n: the columns that are r modulo n, row after row."""
    if len(rows) == 1:
        return rows
    pairs = list(zip(rows[::2], rows[1::2], strict=True))
    even = _separated(builder, [_every_second(builder, a, b, 0) for a, b in pairs])
    odd = _separated(builder, [_every_second(builder, a, b, 1) for a, b in pairs])
    return [vector for pair in zip(even, odd, strict=True) for vector in pair]


def _every_second(builder: Builder, left: Expr, right: Expr, first: int) -> Expr:
    lanes = tuple(range(first, 2 * left.type.lanes, 2))
    return builder.let("t", Shuffle(left, right, lanes, left.type))


def _column(builder: Builder, vector: Expr, at: int, step: int, count: int) -> Expr:
    """Lanes `at`, `at + step`, … of a vector, `count` of them."""
    if step == 1 and count == vector.type.lanes:
        return vector
    lanes = tuple(at + step * k for k in range(count))
    return builder.let("t", Shuffle(vector, vector, lanes, vector.type.vector(count)))
