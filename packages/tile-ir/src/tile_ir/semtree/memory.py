"""Memory of the interpreter: bounds, initialisation and data races are checked at every access.

A race is two accesses of one element, not both reads and not both atomic, by different work items
with nothing in between that orders them: within a group, or within a sub-group, a barrier of it whose
fence covers the memory, between groups nothing at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

import numpy as np

from tile_ir.semtree.errors import SemtreeRuntimeError
from tile_ir.semtree.nodes import Space, Type

_MANY = -1


class Stamp(NamedTuple):
    """Who touched an element, and between which barriers; -1 for several items, groups or sub-groups."""

    stage: int
    item: int
    group: int
    subgroup: int
    step: int = 0
    """Between which barriers of the sub-group."""


@dataclass(slots=True, eq=False)
class Thread:
    """One work item while it runs."""

    item: int
    group: int
    ids: tuple[tuple[int, int, int], tuple[int, int, int], tuple[int, int, int]]
    """Global, group and local number."""
    locals: dict[int, Memory]
    """The group's local arrays by allocation."""
    shared: Stamp
    """When it is, as accesses of global memory see it."""
    local: Stamp
    """And as accesses of local memory do."""
    copies: dict[int, list[list[Callable[[], None]]]] = field(
        default_factory=dict[int, "list[list[Callable[[], None]]]"]
    )
    """Batches of unfinished copies by group, the last one open."""
    tiles: dict[int, Any] = field(default_factory=dict[int, Any])
    """What its tile registers hold, as words or as sums."""
    common: dict[Any, Any] = field(default_factory=dict[Any, Any])
    """What items of the group compute alike until the next barrier: the first one does."""

    def __str__(self) -> str:
        return f"work item {self.ids[2]} of group {self.ids[1]}"


class Shadow:
    """The last readers, writers and atomic users of every element of one piece of storage."""

    __slots__ = ("atomics", "reads", "writes")

    def __init__(self, size: int) -> None:
        self.reads: list[Stamp | None] = [None] * size
        self.writes: list[Stamp | None] = [None] * size
        self.atomics: list[Stamp | None] = [None] * size


def _conflicts(old: Stamp | None, new: Stamp) -> bool:
    if old is None:
        return False
    return old.group != new.group or (old.item != new.item and not _apart(old, new))


def _apart(old: Stamp, new: Stamp) -> bool:
    """Whether a barrier of their group, or of their sub-group, is between them."""
    return old.stage != new.stage or (old.subgroup == new.subgroup != _MANY and old.step != new.step)


def _merged(old: Stamp | None, new: Stamp) -> Stamp:
    if old is None or old.item == new.item:
        return new
    group = new.group if old.group == new.group else _MANY
    if _apart(old, new):
        return Stamp(new.stage, new.item, group, new.subgroup, new.step)
    merged = Stamp(new.stage, _MANY, group, new.subgroup if old.subgroup == new.subgroup else _MANY, new.step)
    return old if old == merged else merged


class Memory:
    """A buffer as a kernel sees it: `size` elements, each `unit` values of `data`."""

    __slots__ = ("data", "known", "name", "offset", "shadow", "size", "space", "unit")

    def __init__(self, name: str, data: Any, t: Type, size: int, known: bool = True) -> None:
        self.name, self.data, self.space, self.unit, self.size = name, data, t.space, t.lanes, size
        self.known: bytearray | None = None if known else bytearray(len(data))
        """Which values have been written; None when all have."""
        self.shadow: Shadow | None = None
        self.offset = 0

    def locate(self, index: int, lanes: int, mask: Any, thread: Thread, verb: str) -> range | list[int]:
        """Positions in `data` of the active lanes, from element `index` on; raises when one is outside."""
        first, end = index * self.unit, self.size * self.unit
        if mask is None:
            positions: range | list[int] = range(first, first + lanes)
        else:
            positions = [first + lane for lane in range(lanes) if mask[lane]]
        if positions and not (positions[0] >= 0 and positions[-1] < end):
            wrong = next(p for p in positions if not 0 <= p < end)
            self.fail(f"{verb} out of bounds ({self.size} elements)", wrong // self.unit, thread)
        return positions

    def on_read(self, positions: range | list[int], thread: Thread, several: bool = False) -> None:
        """Record a read, of `several` items of the group; raises on a race or when nothing was written there."""
        known, shadow = self.known, self.shadow
        if known is not None:
            for p in positions:
                if not known[p]:
                    self.fail("read of an element that nothing has written (or a copy still fills)", p, thread)
        if shadow is None:
            return
        stamp, reads = self._stamp(thread), shadow.reads
        stamp = stamp._replace(item=_MANY, subgroup=_MANY) if several else stamp
        for p in positions:
            at = p + self.offset
            if reads[at] is not stamp:
                if shadow.writes[at] is not None:
                    self._check(shadow.writes[at], stamp, p, thread, "read", "write")
                if shadow.atomics[at] is not None:
                    self._check(shadow.atomics[at], stamp, p, thread, "read", "atomic")
                reads[at] = _merged(reads[at], stamp)

    def on_write(self, positions: range | list[int], thread: Thread) -> None:
        """Record a write; raises on a race."""
        if self.known is not None:
            for p in positions:
                self.known[p] = 1
        shadow = self.shadow
        if shadow is None:
            return
        stamp, writes = self._stamp(thread), shadow.writes
        for p in positions:
            at = p + self.offset
            self._check(shadow.reads[at], stamp, p, thread, "write", "read")
            self._check(writes[at], stamp, p, thread, "write", "write")
            self._check(shadow.atomics[at], stamp, p, thread, "write", "atomic")
            writes[at] = stamp

    def on_atomic(self, position: int, thread: Thread) -> None:
        """Record an atomic update; raises on a race with plain accesses."""
        if self.known is not None and not self.known[position]:
            self.fail("atomic update of an element that nothing has written", position, thread)
        if self.shadow is None:
            return
        stamp, at = self._stamp(thread), position + self.offset
        self._check(self.shadow.reads[at], stamp, position, thread, "atomic", "read")
        self._check(self.shadow.writes[at], stamp, position, thread, "atomic", "write")
        self.shadow.atomics[at] = _merged(self.shadow.atomics[at], stamp)

    def settle(self) -> None:
        """All accesses so far are before those that follow."""
        if self.shadow is not None:
            for stamps in (self.shadow.reads, self.shadow.writes, self.shadow.atomics):
                stamps[:] = [None] * len(stamps)

    def _stamp(self, thread: Thread) -> Stamp:
        return thread.local if self.space is Space.LOCAL else thread.shared

    def _check(self, old: Stamp | None, new: Stamp, position: int, thread: Thread, now: str, before: str) -> None:
        if old is not None and _conflicts(old, new):
            who = f"work item {old.item}" if old.item != _MANY else "several work items"
            between = "another group" if old.group != new.group else "its group, with no barrier in between"
            message = f"data race: {now} after {before} by {who} (linear number) of {between},"
            self.fail(message, position // self.unit, thread)

    def fail(self, what: str, index: int, thread: Thread) -> NoReturn:
        raise SemtreeRuntimeError(f"{what} at {self.name}[{index}] by {thread}")


def allocate(name: str, t: Type, checked: bool) -> Memory:
    """An uninitialised array; a LOCAL one watches for races when `checked`."""
    memory = Memory(name, np.zeros(t.count * t.lanes, t.dtype.numpy), t, t.count, known=False)
    if checked and t.space is Space.LOCAL:
        memory.shadow = Shadow(len(memory.data))
    return memory


def share_shadows(memories: list[Memory], written: set[str]) -> None:
    """Give race detection to every buffer that overlaps one of `written`; overlapping buffers share it.

    Buffers that overlap with different element sizes are watched apart.
    """
    spans = sorted(((*_span(m.data), m) for m in memories if len(m.data)), key=lambda s: s[:2])
    cluster: list[tuple[int, int, Memory]] = []
    for span in spans:
        if cluster and span[0] >= max(end for _, end, _ in cluster):
            _watch(cluster, written)
            cluster = []
        cluster.append(span)
    _watch(cluster, written)


def _span(data: Any) -> tuple[int, int]:
    start = int(data.__array_interface__["data"][0])
    last = start + (len(data) - 1) * int(data.strides[0])
    return min(start, last), max(start, last) + int(data.itemsize)


def _watch(cluster: list[tuple[int, int, Memory]], written: set[str]) -> None:
    if not any(m.name in written for _, _, m in cluster):
        return
    shadows: dict[tuple[int, int], Shadow] = {}
    low, high = cluster[0][0], max(end for _, end, _ in cluster)
    for start, _, memory in cluster:
        stride = int(memory.data.strides[0])
        key = (stride, (start - low) % abs(stride or 1))
        if key not in shadows:
            shadows[key] = Shadow((high - low) // abs(stride or 1) + 1)
        memory.shadow = shadows[key]
        memory.offset = (start - low) // abs(stride or 1)
