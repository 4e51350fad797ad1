"""Large blocks of host memory that were given up, kept for the next of the same size.

The system clears every page of new memory when it is first touched, which takes longer than most kernels that
write it. What is kept is bounded: beyond a few blocks, it never exceeds with what is in use what was in use at once
before, so that a program needs no more memory for it. The block that was given up first goes first.
"""

from __future__ import annotations

import ctypes
from collections import deque
from dataclasses import dataclass
from typing import Any
from weakref import ref

import numpy as np
import numpy.typing as npt
from tile_ir import forking

Array = np.ndarray[Any, np.dtype[Any]]

ALIGNMENT = 64
"""Bytes: a cache line and the widest vector register, the alignment every block has."""
PAGE = 4096
APART, PLACES = 832, 4
"""Bytes between places in a page, and how many of them blocks begin at in turn, none where NumPy's own do.

Processors compare loads with earlier stores by the place in a page alone: operands and a result at one place wait for
each other, and rows of both fall into the same sets of the first cache.
"""
LARGE = 1 << 18
"""Bytes from which on a block is kept: NumPy's own allocations are quicker below, where the C library mostly keeps them."""


@dataclass(slots=True, eq=False)
class _Block:
    """Memory for `nbytes` bytes, which begin at an aligned place.

    Not an array and no view of one: NumPy lets arrays refer to those past the array that is lent.
    """

    memory: Any
    """An array of ctypes."""
    start: int
    nbytes: int
    given_up: int = 0
    """When, on the recycler's clock."""


class Recycler:
    """At most `most` bytes, of which `few` may wait whatever is in use.

    Every method may be called from any thread, and by the garbage collector inside another. Nobody waits for the lock,
    since its holder may be further up in the same thread: blocks are let go instead.
    """

    __slots__ = (
        "__weakref__",
        "_blocks",
        "_changes",
        "_clock",
        "_lent",
        "_lock",
        "_peak",
        "_used",
        "few",
        "kept",
        "made",
        "most",
    )

    def __init__(self, most: int, few: int = 0) -> None:
        self.most, self.few = most, min(most, few)
        self.kept = 0
        """Bytes that wait for their next use."""
        self.made = 0
        """Blocks that were made so far."""
        self._used = self._peak = 0
        self._changes: deque[int] = deque()
        """Bytes that came into use, or went out of it (negative), and that nobody has added up yet."""
        self._blocks: dict[int, deque[_Block]] = {}
        """By size, the last one given up behind."""
        self._lent: dict[int, tuple[ref[Array], _Block]] = {}
        """The blocks in use and the ends of their arrays, by the identity of the end."""
        self._clock = 0
        self._lock = forking.lock()

    def array(self, shape: tuple[int, ...], dtype: npt.DTypeLike, nbytes: int) -> Array:
        """An array of `nbytes` bytes of any content; when the last array over them is gone they are kept.

        MemoryError as `numpy.empty`.
        """
        block = self._take(nbytes) or self._new(nbytes)
        array: Array = np.ndarray(shape, dtype, block.memory, block.start)
        end = ref(array, self._given_up)  # every view of the array refers to it
        self._lent[id(end)] = end, block
        return array

    @property
    def used(self) -> tuple[int, int]:
        """Bytes in use, and the most that were in use at once, as far as nobody else is counting."""
        if self._lock.acquire(False):
            try:
                self._count()
            finally:
                self._lock.release()
        return self._used, self._peak

    def _count(self) -> None:
        """Add up the changes, in order."""
        while self._changes:
            self._used += self._changes.popleft()
            self._peak = max(self._peak, self._used)

    def clear(self) -> None:
        """Give all that waits back to the system, unless it is being counted right now."""
        if self._lock.acquire(False):
            self._blocks.clear()
            self.kept = 0
            self._lock.release()

    def _new(self, nbytes: int) -> _Block:
        self._make_room(nbytes)
        try:
            raw = np.empty(nbytes + PAGE, np.uint8)
        except MemoryError:
            self.clear()
            raw = np.empty(nbytes + PAGE, np.uint8)
        self.made += 1
        self._changes.append(nbytes)
        memory = (ctypes.c_char * raw.nbytes).from_buffer(raw.data)
        place = (1 + self.made % PLACES) * APART
        return _Block(memory, (place - ctypes.addressof(memory)) % PAGE, nbytes)

    def _make_room(self, nbytes: int) -> None:
        """Let go of what waits in other sizes, as far as `nbytes` more would need it."""
        if self.kept and self._lock.acquire(False):
            try:
                self._count()
                self._shrink(nbytes)
            finally:
                self._lock.release()

    def _shrink(self, wanted: int) -> None:
        """Forget blocks until those that wait, those in use and `wanted` bytes are no more than were ever in use, or few wait."""
        most = min(self.most, max(self._peak - self._used - wanted, self.few))
        while self.kept > most:
            self._forget_oldest()

    def _take(self, nbytes: int) -> _Block | None:
        """The newest block of the size: caches may still hold it."""
        waiting = self._blocks.get(nbytes)
        if not waiting or not self._lock.acquire(False):
            return None
        try:
            if not waiting:
                return None
            self.kept -= nbytes
            self._used += nbytes
            if self._used > self._peak:
                self._peak = self._used
            return waiting.pop()
        finally:
            self._lock.release()

    def _given_up(self, end: ref[Array]) -> None:
        """The block of the array that ends waits for its next use, unless somebody is counting."""
        _, block = self._lent.pop(id(end))
        nbytes = block.nbytes
        if not self._lock.acquire(False):
            self._changes.append(-nbytes)
            return
        try:
            if self._changes:
                self._count()
            self._used -= nbytes
            if nbytes > self.most:
                return
            self._clock = block.given_up = self._clock + 1
            waiting = self._blocks.get(nbytes)
            if waiting is None:
                waiting = self._blocks[nbytes] = deque()
            waiting.append(block)
            self.kept += nbytes
            if self.kept > self.few:
                self._shrink(0)
        finally:
            self._lock.release()

    def _forget_oldest(self) -> None:
        waiting = min((found for found in self._blocks.values() if found), key=lambda found: found[0].given_up)
        nbytes = waiting.popleft().nbytes
        self.kept -= nbytes
        if not waiting:
            del self._blocks[nbytes]
