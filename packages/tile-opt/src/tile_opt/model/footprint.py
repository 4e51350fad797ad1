"""Distinct cache lines that an access touches while some loops run, and how they fall into the sets of a cache."""

from __future__ import annotations

from collections.abc import Iterable, Set
from functools import lru_cache
from math import ceil, gcd, prod

import numpy as np
from numpy.typing import NDArray
from tile_ir.frozen import frozen
from tile_ir.machine import Cache

from tile_opt.model.scheduled import Access

MOST_ROWS = 1 << 15
"""Rows that are looked at one by one."""


@frozen
class Box:
    """`rows` of runs: each run `run` bytes long, rows ``(stride, count)`` bytes apart, from `start` on."""

    start: int
    run: int
    rows: tuple[tuple[int, int], ...]
    """Ascending strides, each beyond a line."""

    @property
    def strides(self) -> tuple[int, ...]:
        return tuple(stride for stride, _ in self.rows)

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
        """Lines that share a line's set, itself included, over the ways: above 1 they cannot all stay. A mean over the lines.

        `page` is the size of a page whose physical place is random, 0 where addresses are those of the cache.
        """
        span = max(cache.line, cache.bytes // cache.ways)
        period = page if 0 < page < span else span
        rows = tuple((stride % period, count) for stride, count in self.rows)
        sharing = _sharing(self.start % cache.line, self.run, rows, cache.line, period, span // period)
        return sharing / cache.ways


def footprint_sets(rows: int, stride: int, run: int, cache: Cache, page: int = 0) -> float:
    """Lines in each set that `rows` runs of `run` bytes, `stride` bytes apart, can reach, over the ways of `cache`.

    Above 1 the rows cannot all stay; strided rows are lost from about a half on. Schedules ask this before they rely on a
    panel that is read in place; `page` as in `Box.pressure`.
    """
    return Box(0, run, ((stride, rows),)).pressure(cache, page)


def box(access: Access, fixed: Set[str], line: int) -> Box:
    """What `access` touches while the loops `fixed` stand at their first values and all others run."""
    return stepped(access.offset, access.dtype.bytes, _spread(access, fixed), line)


def stepped(start: int, run: int, steps: Iterable[tuple[int, int]], line: int) -> Box:
    """What loops of such strides, ascending, and counts touch that take `run` bytes in each iteration."""
    rows: list[tuple[int, int]] = []
    for stride, count in steps:
        if stride <= max(run, line if not rows else 0):
            run += stride * (count - 1)
        elif rows and stride < rows[-1][0] * rows[-1][1]:
            rows[-1] = (rows[-1][0], rows[-1][1] + -(-stride * (count - 1) // rows[-1][0]))
        else:
            rows.append((stride, count))
    return Box(start, run, tuple(rows))


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
    for other in sorted(boxes, key=lambda b: (b.strides, b.start)):
        if found and not found[0].rows and found[0].covers(other):
            continue
        if not found or (joined := _joined(found[-1], other, line)) is None:
            found.append(other)
        else:
            found[-1] = joined
    return found


def _joined(a: Box, b: Box, line: int) -> Box | None:
    """One box for two, `b` beginning no earlier, whose runs touch or whose rows continue each other; None where they lie apart."""
    if a.strides != b.strides:
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


@lru_cache(maxsize=4096)
def _sharing(start: int, run: int, rows: tuple[tuple[int, int], ...], line: int, period: int, places: int) -> float:
    """Lines that share a line's set, on average over the lines of all rows.

    Sets repeat after `period` bytes; where pages are put anywhere, lines of one place in a page have so many `places`.
    """
    slots, (starts, each) = period // line, _starts(start, rows, period)
    first = starts // line
    whole, rest = np.divmod((starts + run - 1) // line - first + 1, slots)
    first, end = first % slots, first % slots + rest
    steps = np.bincount(first, minlength=slots) - np.bincount(end % slots, minlength=slots)
    counts = (steps.cumsum() + np.count_nonzero(end >= slots) + whole.sum()) * each
    return float((counts * np.maximum(1.0, counts / places)).sum() / counts.sum())


def _starts(start: int, rows: Iterable[tuple[int, int]], period: int) -> tuple[NDArray[np.int64], float]:
    """Where rows start within a period, and how many each stands for: of very many, the first of each loop are looked at."""
    starts, each = np.array([start], np.int64), 1.0
    for stride, count in rows:
        some = min(count, max(1, MOST_ROWS // len(starts)))
        starts = np.add.outer(np.arange(some) * stride, starts).ravel() % period
        each *= count / some
    return starts, each


def _lines(run: int, aligned: int, line: int) -> float:
    """Lines of a run whose start is a multiple of `aligned` bytes, on average over such starts."""
    if aligned >= line:
        return ceil(run / line)
    return max(1.0, (run + line - aligned) / line)
