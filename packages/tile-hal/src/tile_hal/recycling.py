"""Large blocks of host memory that were given up, kept for the next of the same size.

The system clears every page of new memory when it is first touched, which takes longer than most kernels that
write it. What is kept is bounded, and the block that was given up first goes first.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
from tile_ir import forking

Bytes = npt.NDArray[np.uint8]

LARGE = 1 << 20
"""Bytes from which on a block is kept: NumPy's own allocations are quicker below, where the C library mostly keeps them."""


class Recycler:
    """At most `most` bytes; every method may be called from any thread, and by the garbage collector inside another."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.kept = 0
        """Bytes that wait for their next use."""
        self._blocks: deque[Bytes] = deque()
        self._lock = forking.lock()

    def block(self, nbytes: int) -> Bytes:
        """So many bytes of any content; when the last array over them is gone they are kept. MemoryError as `numpy.empty`."""
        owner = self._take(nbytes)
        if owner is None:
            owner = self._new(nbytes)
        # An array over a memoryview is what arrays over it refer to; one that owns its memory would vanish with it.
        shown = np.frombuffer(owner.data, np.uint8)
        weakref.finalize(shown, self._keep, owner).atexit = False
        return shown

    def clear(self) -> None:
        """Give all that waits back to the system, unless it is being counted right now."""
        with self._alone() as alone:
            if alone:
                self._blocks.clear()
                self.kept = 0

    def _new(self, nbytes: int) -> Bytes:
        try:
            return np.empty(nbytes, np.uint8)
        except MemoryError:
            self.clear()
            return np.empty(nbytes, np.uint8)

    def _take(self, nbytes: int) -> Bytes | None:
        with self._alone() as alone:
            last = len(self._blocks) - 1
            # The newest first: caches may still hold it.
            newest = (last - k for k, b in enumerate(reversed(self._blocks)) if b.nbytes == nbytes)
            found = next(newest, None) if alone else None
            if found is None:
                return None
            block = self._blocks[found]
            del self._blocks[found]
            self.kept -= nbytes
            return block

    def _keep(self, block: Bytes) -> None:
        with self._alone() as alone:
            if not alone or block.nbytes > self.most:
                return
            self._blocks.append(block)
            self.kept += block.nbytes
            while self.kept > self.most:
                self.kept -= self._blocks.popleft().nbytes

    @contextmanager
    def _alone(self) -> Generator[bool, None, None]:
        """Whether nobody else counts blocks now: the garbage collector may call while the same thread does, so none waits."""
        alone = self._lock.acquire(blocking=False)
        try:
            yield alone
        finally:
            if alone:
                self._lock.release()
