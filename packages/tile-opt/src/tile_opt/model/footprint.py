"""Distinct cache lines that an access touches while some loops run, and how they fall into the sets of a cache."""

from __future__ import annotations

from collections.abc import Iterable, Set
from math import ceil, gcd, prod

from tile_ir.frozen import frozen
from tile_ir.machine import Cache

from tile_opt.model.scheduled import Access


@frozen
class Box:
    """`rows` of runs: each run `run` bytes long, rows ``(stride, count)`` bytes apart, from `start` on."""

    start: int
    run: int
    rows: tuple[tuple[int, int], ...]
    """Ascending strides, each beyond a line."""

    @property
    def count(self) -> int:
        """Runs."""
        return prod(n for _, n in self.rows)

    def covers(self, other: Box) -> bool:
        """The other lies within this one's first run."""
        end = other.start + other.run + sum(stride * (count - 1) for stride, count in other.rows)
        return self.start <= other.start and end <= self.start + self.run

    def lines(self, line: int) -> float:
        """Distinct lines; runs that do not start on one touch a further one with some likelihood."""
        return self.count * _lines(self.run, self._aligned(line), line)

    def _aligned(self, line: int) -> int:
        """Bytes of which every run's start is a multiple."""
        found = gcd(line, self.start)
        for stride, _ in self.rows:
            found = gcd(found, stride)
        return found

    def pressure(self, cache: Cache, page: int) -> float:
        """Lines in each set that the box can reach, over the ways: above 1 they cannot all stay.

        `page` is the size of a page whose physical place is random, 0 where addresses are those of the cache.
        """
        lines = self.lines(cache.line)
        span = max(cache.line, cache.bytes // cache.ways)
        period = page if 0 < page < span else span
        starts = 1
        for stride, count in self.rows:
            starts = min(period, starts * min(count, period // gcd(stride, period)))
        each = _lines(self.run, self._aligned(cache.line), cache.line)
        slots = min(period / cache.line, starts * each)
        return lines / min(slots * (span / period), lines) / cache.ways


def footprint_sets(rows: int, stride: int, run: int, cache: Cache, page: int = 0) -> float:
    """Lines in each set that `rows` runs of `run` bytes, `stride` bytes apart, can reach, over the ways of `cache`.

    Above 1 the rows cannot all stay; strided rows are lost from about a half on. Schedules ask this before they rely on a
    panel that is read in place; `page` as in `Box.pressure`.
    """
    return Box(0, run, ((stride, rows),)).pressure(cache, page)


def box(access: Access, fixed: Set[str], line: int) -> Box:
    """What `access` touches while the loops `fixed` stand at their first values and all others run."""
    run = access.dtype.bytes
    rows: list[tuple[int, int]] = []
    for stride, count in _spread(access, fixed):
        if stride <= max(run, line if not rows else 0):
            run += stride * (count - 1)
        elif rows and stride < rows[-1][0] * rows[-1][1]:
            rows[-1] = (rows[-1][0], rows[-1][1] + -(-stride * (count - 1) // rows[-1][0]))
        else:
            rows.append((stride, count))
    return Box(access.offset, run, tuple(rows))


def _spread(access: Access, fixed: Set[str]) -> list[tuple[int, int]]:
    """Strides in ascending order with their counts; loops of one stride slide over each other."""
    steps: list[tuple[int, int]] = []
    for term in access.terms:
        if term.loops <= fixed:
            continue
        if steps and steps[-1][0] == term.stride:
            steps[-1] = (term.stride, steps[-1][1] + term.extent - 1)
        else:
            steps.append((term.stride, term.extent))
    return steps


def union(boxes: Iterable[Box], line: int) -> list[Box]:
    """Boxes of one buffer with those that overlap taken together."""
    found: list[Box] = []
    for other in sorted(boxes, key=lambda b: (b.rows, b.start)):
        if found and not found[0].rows and found[0].covers(other):
            continue
        if not found or (joined := _joined(found[-1], other, line)) is None:
            found.append(other)
        else:
            found[-1] = joined
    return found


def _joined(a: Box, b: Box, line: int) -> Box | None:
    """One box for two whose runs touch, or whose rows continue each other; None where they lie apart."""
    if [s for s, _ in a.rows] != [s for s, _ in b.rows]:
        return None
    distance = b.start - a.start
    rows: list[tuple[int, int]] = []
    for (stride, count), (_, other) in zip(reversed(a.rows), reversed(b.rows), strict=True):
        steps, distance = divmod(distance, stride)
        if steps > count:
            return None
        rows.append((stride, max(count, steps + other)))
    if distance > a.run + line:
        return None
    return Box(a.start, max(a.run, distance + b.run), tuple(reversed(rows)))


def _lines(run: int, aligned: int, line: int) -> float:
    """Lines of a run whose start is a multiple of `aligned` bytes, on average over such starts."""
    if aligned >= line:
        return ceil(run / line)
    return max(1.0, (run + line - aligned) / line)
