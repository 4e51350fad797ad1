"""Where temporaries live: byte offsets in one arena, shared by buffers that are never live at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from tile_ir.frozen import frozen

ALIGN = 64
Places = npt.NDArray[np.int64]


@frozen
class Lifetime:
    """A temporary's size and the first and last step that touch it."""

    bytes: int
    first: int
    last: int


def place(lifetimes: Sequence[Lifetime]) -> tuple[tuple[int, ...], int]:
    """An offset for each temporary and the arena's size; the largest are placed first, each as low as it fits.

    Arrays, because long programs have thousands of temporaries and each is held against all before it.
    """
    count = len(lifetimes)
    order = sorted(range(count), key=lambda n: (-lifetimes[n].bytes, n))
    first, last, low, high = (np.zeros(count, np.int64) for _ in range(4))
    for k, number in enumerate(order):
        life = lifetimes[number]
        meets = (first[:k] <= life.last) & (last[:k] >= life.first) & (high[:k] > low[:k])
        at = _lowest(life.bytes, low[:k][meets], high[:k][meets])
        first[k], last[k], low[k], high[k] = life.first, life.last, at, at + life.bytes
    offsets = dict(zip(order, low.tolist(), strict=True))
    return tuple(offsets[n] for n in range(count)), int(high.max(initial=0))


def _lowest(size: int, low: Places, high: Places) -> int:
    """The lowest aligned offset where `size` bytes meet none of the intervals, of which none is negative."""
    order = np.argsort(low, kind="stable")
    # The aligned end of what lies before each gap, and where the gap ends.
    ends = -(-np.maximum.accumulate(high[order]) // ALIGN) * ALIGN
    starts = np.concatenate(([0], ends))
    room = np.concatenate((low[order], [np.iinfo(np.int64).max])) - starts >= size
    return int(starts[np.argmax(room)])


def overlapping(intervals: Sequence[tuple[int, int]]) -> list[set[int]]:
    """For each interval [low, high) the numbers of those that share something with it; an empty one shares nothing."""
    found: list[set[int]] = [set() for _ in intervals]
    open_now: list[int] = []
    for number in sorted(range(len(intervals)), key=lambda n: intervals[n]):
        low, high = intervals[number]
        if low == high:
            continue
        open_now = [n for n in open_now if intervals[n][1] > low]
        found[number].update(open_now)
        for other in open_now:
            found[other].add(number)
        open_now.append(number)
    return found


@frozen
class Touch:
    """The buffers that a step reads and writes."""

    reads: frozenset[int]
    writes: frozenset[int]


def dependencies(steps: Sequence[Touch], overlaps: Sequence[frozenset[int]]) -> list[tuple[int, ...]]:
    """Earlier steps that each step must wait for, without those that others imply.

    `overlaps[b]` are the buffers that share bytes with buffer b, itself included.
    """
    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    ancestors: list[int] = []
    result: list[tuple[int, ...]] = []
    for number, step in enumerate(steps):
        wanted: set[int] = {writer[o] for b in step.reads for o in overlaps[b] if o in writer}
        for buffer in step.writes:
            for other in overlaps[buffer]:
                wanted.update(readers.get(other, ()))
                if other in writer:
                    wanted.add(writer[other])
        kept, reach = _reduced(wanted, ancestors)
        ancestors.append(reach)
        result.append(kept)
        for buffer in step.writes:
            writer[buffer] = number
            readers[buffer] = []
        for buffer in step.reads - step.writes:
            readers.setdefault(buffer, []).append(number)
    return result


def _reduced(wanted: set[int], ancestors: Sequence[int]) -> tuple[tuple[int, ...], int]:
    """`wanted` without steps that another wanted step already waits for; and all steps waited for, as bits."""
    kept: list[int] = []
    reach = 0
    for step in sorted(wanted, reverse=True):
        if not reach >> step & 1:
            kept.append(step)
            reach |= ancestors[step] | 1 << step
    return tuple(reversed(kept)), reach
