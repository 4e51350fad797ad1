"""Device memory that was given up, kept for the next of its size.

Making a buffer costs a driver tens of microseconds at its first use, a kernel's launch five. Blocks are of few sizes, so that
they fit again; what waits is bounded, and goes back to the device when that runs out of memory.

A block may be given up while commands that use it are still queued: it remembers them, and whoever uses it next is ordered
behind them (see `hal_opencl.events`). So a chain of calls needs two blocks, however far the host runs ahead.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from tile_ir import forking
from tile_ir.diagnostics import TileDeviceError

from hal_opencl.endings import owner

if TYPE_CHECKING:
    from hal_opencl.events import Uses

SMALLEST = 512
"""Bytes of the smallest block."""
LARGEST_STEP = 2 << 20
"""Bytes that a large block has at most beyond what was asked for."""
UNCOUNTED = 8
"""Blocks that were given up and may be taken again before anybody counts them."""
VIEWS = 256
"""Views of a block that are kept with it."""

_serials = itertools.count(1)


def next_serial() -> int:
    """A number that no other memory object has had, so that arguments may be compared by it."""
    return next(_serials)


@lru_cache(1024)
def rounded(nbytes: int) -> int:
    """The size of the block for `nbytes`: eight sizes to each power of two, then every `LARGEST_STEP` bytes."""
    step = min(max(SMALLEST, 1 << max(0, nbytes.bit_length() - 4)), LARGEST_STEP)
    return max(step, -(-nbytes // step) * step)


@owner
@dataclass(frozen=True, slots=True)
class View:
    """A part of a block."""

    raw: Any
    serial: int
    nbytes: int


@owner
@dataclass(slots=True, eq=False)
class Block:
    """One memory object of the device."""

    raw: Any
    nbytes: int
    host: npt.NDArray[np.uint8] | None = None
    """The host memory that it uses in place."""
    uses: Uses = field(default_factory=dict)  # type: ignore[assignment]
    """The last command on each queue that uses it."""
    views: dict[tuple[int, int], View] = field(default_factory=dict[tuple[int, int], View])
    """Parts of it by (start, bytes)."""
    serial: int = field(default_factory=next_serial)
    lost: bool = False
    """Somebody looks at its memory still, though the buffer is gone: it must not be used again."""


class Pool:
    """Blocks of one device; every method may be called from any thread, `give` by the garbage collector inside another."""

    def __init__(
        self,
        make: Callable[[int], Block],
        drop: Callable[[Block], None],
        most: int,
        largest: int,
        capacity: int | None = None,
        settle: Callable[[], None] = lambda: None,
    ) -> None:
        """At most `most` idle bytes. `make` may raise TileDeviceError; `drop` gets every block that leaves the pool.

        No block is larger than `largest`. From `capacity` bytes on, the device is expected to have no more, and idle
        blocks go before a new one is made. `settle` waits until what was dropped is gone.
        """
        self._largest = largest
        self._make = make
        self._drop = drop
        self._settle = settle
        self.most = most
        self._capacity = capacity
        self.held = 0
        """Bytes of all blocks that there are."""
        self.idle = 0
        """Bytes of those that wait for their next use."""
        self.made = 0
        """Blocks that have been made so far."""
        self.peak = 0
        """The most bytes that were in use at once."""
        self._blocks: dict[int, list[Block]] = {}
        self._ages: dict[Block, None] = {}
        """The idle blocks, longest idle first."""
        self._given: deque[Block] = deque()
        """Given up, not yet counted: a finalizer may run while the lock is held by its own thread."""
        self._lock = forking.rlock()

    @property
    def used(self) -> int:
        """Bytes of the blocks that are in use."""
        self._within(self._count)
        return self.held - self.idle

    def take(self, nbytes: int) -> Block:
        """A block of at least so many bytes (`largest` at most), of any content.

        TileDeviceError when there is no memory even without the idle blocks.
        """
        size = rounded(nbytes)
        if size > self._largest:
            size = self._largest
        return self._just_given(size) or self._within(partial(self._waiting, size)) or self._new(size)

    def _just_given(self, size: int) -> Block | None:
        """The block that was given up last, when it fits: in a chain of calls it does, and costs no lock."""
        given = self._given
        if not 0 < len(given) <= UNCOUNTED:
            return None
        try:
            block = given.pop()
        except IndexError:  # another thread was quicker
            return None
        if block.nbytes == size and not block.lost:
            return block
        given.append(block)
        return None

    def _waiting(self, size: int) -> Block | None:
        self._count()
        waiting = self._blocks.get(size)
        if waiting:
            block = waiting.pop()  # the newest: caches may still hold it
            del self._ages[block]
            self.idle -= block.nbytes
            self.peak = max(self.peak, self.held - self.idle)
            return block
        if self._capacity is not None and self.held + size > self._capacity:
            self._shrink()
        return None

    def _within(self, action: Callable[[], Block | None]) -> Block | None:
        """One thread after the other; None from a signal's handler that interrupts one: it does without what waits."""
        interrupts = forking.mine(self._lock)
        with self._lock:
            return None if interrupts else action()

    def give(self, block: Block) -> None:
        """The block is no longer used, but for commands that are queued already."""
        self._given.append(block)

    def trim(self) -> None:
        """Give all that waits back to the device; commands that use it still end first."""
        self._within(self._count)
        self._within(self._shrink)
        self._settle()

    def _new(self, size: int) -> Block:
        try:
            block = self._make(size)
        except TileDeviceError:
            self.trim()
            block = self._make(size)
        with self._lock:
            self.held += block.nbytes
            self.made += 1
            self.peak = max(self.peak, self.held - self.idle)
        return block

    def _count(self) -> None:
        while self._given:
            block = self._given.popleft()
            if block.lost:
                self.held -= block.nbytes
                continue
            self._blocks.setdefault(block.nbytes, []).append(block)
            self._ages[block] = None
            self.idle += block.nbytes
        if self.idle > self.most:
            self._shrink(self.most)

    def _shrink(self, most: int = 0) -> None:
        """Drop blocks, those that have been idle longest first, until no more than `most` bytes are."""
        while self.idle > most:
            block = next(iter(self._ages))
            del self._ages[block]
            self._blocks[block.nbytes].remove(block)
            self.idle -= block.nbytes
            self.held -= block.nbytes
            self._drop(block)
