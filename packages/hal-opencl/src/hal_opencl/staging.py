"""Large copies between the host's memory and that of a device of its own, by several threads through pinned memory.

A device's copy engine reaches only memory that cannot be moved, so a driver copies everything else once more, in one thread, or
makes as much of such memory as a mapping shows, the first time: on a host with H200s 7 and 1.3 GB/s for an engine of 54. New
pages of the host's, which a result needs, come at 3 GB/s and thread. Each piece costs threads 0.09 ms in which they wait for each
other: 8 threads copy 1 GB by pieces of 1, 4 and 16 MB at 9, 26 and 33 GB/s.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from tile_hal.host_queue import HostQueue
from tile_hal.interfaces import Event

from hal_opencl import binding
from hal_opencl.events import failure

if TYPE_CHECKING:
    from hal_opencl.context import DeviceContext

STAGED = 1 << 18
"""Bytes from which on a copy is staged."""
SMALL, LARGE = 4 << 20, 16 << 20
"""Bytes of a piece of pinned memory, in most copies and in those that have enough of them for all threads."""
THREADS = max(1, min(8, (os.cpu_count() or 1) // 2))
"""Each has a piece in hand: it fills or empties that, and waits while the device copies it. As many go each way: a device copies
both ways at once, and results need not wait behind all that is still to be brought."""
SHARE = 1
"""Large pieces that each thread has at least."""

Bytes = npt.NDArray[np.uint8]
Moved = Callable[[binding.RawQueue, Bytes, Bytes, int], None]
"""Moves some bytes, of the host's, by a piece of pinned memory and a queue; the last is where they are in the buffer."""


class Staging:
    """Of one device; from any thread, any number of which share the threads that copy."""

    def __init__(self, context: DeviceContext, small: int = SMALL, large: int = LARGE, threads: int = THREADS) -> None:
        """`small` and `large` are bytes of pieces."""
        self._context, self._small, self._large = context, small, large
        self._bringing = HostQueue(threads, "hal-opencl-writes")
        self._fetching = HostQueue(threads, "hal-opencl-reads")
        self._preparing = HostQueue(threads, "hal-opencl-pages")
        self._enough = threads * SHARE * large
        """Bytes from which on a copy goes by large pieces."""
        self._free: dict[int, list[tuple[binding.RawQueue, binding.RawBuffer, Bytes]]] = {small: [], large: []}
        """By size, queues and pieces that nobody uses now: a signal's handler finds another one than whom it interrupts."""

    def write(self, buffer: binding.RawBuffer, data: Bytes) -> None:
        """Set the first bytes of a buffer, which no command uses, to `data`."""

        def move(lane: binding.RawQueue, pinned: Bytes, part: Bytes, start: int) -> None:
            pinned[:] = part
            binding.write(lane, buffer, start, pinned)

        self._all(data, move, self._bringing)

    def read(self, buffer: binding.RawBuffer, into: Bytes) -> None:
        """Copy the first bytes of a buffer, which no command writes, to `into`."""

        def move(lane: binding.RawQueue, pinned: Bytes, part: Bytes, start: int) -> None:
            binding.read(lane, buffer, start, pinned)
            part[:] = pinned

        self._all(into, move, self._fetching)

    def prepare(self, into: Bytes) -> None:
        """Have pages for all of `into`, whose bytes are lost, before there is anything to copy: a read would wait for each."""

        def touch(start: int) -> None:
            into[start : start + self._large : mmap.PAGESIZE] = 0

        starts = range(0, into.nbytes, self._large)
        _raise_first([self._preparing.run(partial(touch, start), inline=False) for start in starts])

    def _all(self, host: Bytes, move: Moved, copying: HostQueue) -> None:
        """Move all bytes, some at a time; the first failure is raised when nothing works on them any more.

        A single piece goes ahead of those that wait for a thread: mostly somebody waits for it.
        """
        piece = self._large if host.nbytes >= self._enough else self._small
        if host.nbytes <= piece:
            self._one(host, move, 0, piece)
            return
        starts = range(0, host.nbytes, piece)
        done = [copying.run(partial(self._one, host, move, start, piece), inline=False) for start in starts]
        _raise_first(done)

    def _one(self, host: Bytes, move: Moved, start: int, piece: int) -> None:
        part = host[start : start + piece]
        try:
            free = self._free[piece]
            held = free.pop() if free else self._made(piece)
            lane, _, pinned = held
            move(lane, pinned[: part.nbytes], part, start)
        except binding.cl_error as problem:
            raise failure(problem) from problem
        self._free[piece].append(held)

    def _made(self, piece: int) -> tuple[binding.RawQueue, binding.RawBuffer, Bytes]:
        context = self._context
        lane = binding.make_queue(context.raw, context.info.raw)
        return lane, *binding.pinned(context.raw, lane, piece)


def _raise_first(done: Sequence[Event]) -> None:
    """Wait for all, then raise the first failure."""
    problems = [p for p in map(_outcome, done) if p is not None]
    if problems:
        raise problems[0]


def _outcome(event: Event) -> BaseException | None:
    """How it failed, once it is over: also where somebody is tired of waiting for it."""
    problem: BaseException | None = None
    waited = False
    while not (waited and event.done):
        waited = True
        try:
            event.wait()
        except BaseException as found:
            problem = problem or found
    return problem
