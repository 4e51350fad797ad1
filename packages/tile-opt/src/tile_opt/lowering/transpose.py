"""Transposing a tile of vector registers by shuffles of two vectors."""

from __future__ import annotations

from collections.abc import Sequence

from tile_ir.powers import power_of_two
from tile_ir.semtree.nodes import Expr, Shuffle

from tile_opt.lowering.builder import Builder

SEGMENT = 16
"""Bytes of a vector within which, and whole, processors shuffle by instructions that need no table of lanes."""


def columns(builder: Builder, rows: Sequence[Expr]) -> list[Expr]:
    """The columns of a tile as vectors, from its rows: at most as many as a row has lanes, and that a power of two.

    Rows are interleaved within segments, as many at a time as a segment has lanes: then one holds what a column has of
    them. The segments of a column come together whole. So n rows take n log2(n) shuffles.
    """
    type = rows[0].type
    lanes = min(type.lanes, max(1, SEGMENT // type.dtype.bytes))
    groups = [rows[at : at + lanes] for at in range(0, len(rows), lanes)]
    tall = lanes if len(groups) > 2 else 0
    mixed = [_interleaved(builder, _filled(group, tall), lanes, 1) for group in groups]
    return [_column(builder, mixed, c, len(rows), lanes) for c in range(type.lanes)]


def _filled(rows: Sequence[Expr], least: int) -> list[Expr]:
    """A power of two of rows; what the added ones hold does not matter."""
    count = max(least, power_of_two(len(rows)))
    return [*rows, *[rows[0]] * (count - len(rows))]


def _interleaved(builder: Builder, rows: list[Expr], lanes: int, run: int) -> list[Expr]:
    """In each segment of so many lanes, column after column: `run` neighbours of each row at a time."""
    if len(rows) == 1:
        return rows
    pairs = list(zip(rows[::2], rows[1::2], strict=True))
    halves = [[_zipped(builder, a, b, lanes, run, half) for a, b in pairs] for half in (0, 1)]
    return [vector for half in halves for vector in _interleaved(builder, half, lanes, 2 * run)]


def _zipped(builder: Builder, left: Expr, right: Expr, lanes: int, run: int, half: int) -> Expr:
    """Runs of two vectors in turn, from one half of each segment."""
    width = left.type.lanes
    starts = [s + r for s in range(0, width, lanes) for r in range(half * lanes // 2, (half + 1) * lanes // 2, run)]
    picks = tuple(side + at + k for at in starts for side in (0, width) for k in range(run))
    return builder.let("t", Shuffle(left, right, picks, left.type))


def _column(builder: Builder, mixed: list[list[Expr]], column: int, count: int, lanes: int) -> Expr:
    """One column of `count` rows out of the interleaved groups of them."""
    segment, place = divmod(column, lanes)
    vectors = [group[place * len(group) // lanes] for group in mixed]
    width, together = vectors[0].type.lanes, 1
    while len(vectors) > 2:
        odd, segment = segment % 2, segment // 2
        pairs = zip(vectors[::2], [*vectors[1::2], vectors[-1]], strict=False)
        vectors = [_every_second(builder, a, b, lanes, odd) for a, b in pairs]
        together *= 2
    picks: list[int] = []
    for number, group in enumerate(mixed):
        vector, part = divmod(number, together)
        first = vector * width + part * (width // together) + segment * lanes + place * len(group) % lanes
        picks += range(first, first + min(lanes, count - number * lanes))
    if picks == list(range(width)):
        return vectors[0]
    return builder.let("t", Shuffle(vectors[0], vectors[-1], tuple(picks), vectors[0].type.vector(count)))


def _every_second(builder: Builder, left: Expr, right: Expr, lanes: int, odd: int) -> Expr:
    """Every second segment of two vectors."""
    width = left.type.lanes
    picks = tuple(at + k for at in range(odd * lanes, 2 * width, 2 * lanes) for k in range(lanes))
    shuffle = Shuffle(left, right, picks, left.type)
    return builder.pure(f"segments{odd}", (left, right), shuffle, "t")
