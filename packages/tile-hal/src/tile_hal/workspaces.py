"""Temporaries of a kernel list: sets of them, each for one run at a time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import get_ident

from tile_ir import forking
from tile_ir.diagnostics import TileDeviceError
from tile_ir.kernels import BufferInfo, BufferKind, KernelList

from tile_hal.interfaces import Buffer, Event, Memory

MAX_WORKSPACES = 64
"""Sets of temporaries of one kernel list that may be in use by pending runs; the next run waits for the oldest."""
MAX_WORKSPACE_BYTES = 1 << 30
"""The same limit in bytes (one set is always allowed)."""
_IDLE = 2


@dataclass(slots=True)
class Workspace:
    """One set of temporaries, and the event of the run that used it last (None while that run is being started)."""

    buffers: dict[int, Buffer]
    last: Event | None = None
    thread: int = field(default_factory=get_ident)
    """Which one starts that run."""


class Workspaces:
    """Temporaries of one kernel list, reused once the run that used them is done."""

    def __init__(self, memory: Memory, kernels: KernelList, ordered: bool) -> None:
        """`ordered`: the device itself orders what uses the memory of a set that was dropped, so every run takes a new one."""
        self._memory = memory
        self._ordered = ordered
        self._temps = [b for b in kernels.buffers if b.kind is BufferKind.TEMP]
        self.arenas = _arena_sizes(self._temps, kernels.arenas)
        self.nbytes = sum(self.arenas)
        """Bytes of one set."""
        self._limit = max(1, min(MAX_WORKSPACES, MAX_WORKSPACE_BYTES // max(1, self.nbytes)))
        self._lock = forking.lock()
        self._all: list[Workspace] = []

    def acquire(self) -> Workspace:
        """A set that no pending run uses; whoever takes it sets `last`. Blocks while too many are in use."""
        if self._ordered or not self._temps:
            return Workspace(self.allocate())
        while True:
            with self._lock:
                workspace = self._reuse() or self._grow()
                if workspace is not None:
                    return workspace
                busy = next((w.last for w in self._all if w.last is not None), None)
            if busy is None:
                time.sleep(1e-4)  # every set belongs to a run that another thread is starting right now
            else:
                with contextlib.suppress(Exception):
                    busy.wait()

    def _reuse(self) -> Workspace | None:
        """One whose run is done. What this thread has begun with and not started yet is nobody's next one.

        That run was interrupted, or it waits for this one, which a signal's handler has called: then it keeps what it has.
        """
        here = get_ident()
        self._all = [w for w in self._all if w.last is not None or w.thread != here]
        idle = [w for w in self._all if w.last is not None and w.last.done]
        for extra in idle[_IDLE:]:
            self._all.remove(extra)
        if not idle:
            return None
        idle[0].last, idle[0].thread = None, here
        return idle[0]

    def _grow(self) -> Workspace | None:
        if len(self._all) >= self._limit:
            return None
        try:
            workspace = Workspace(self.allocate())
        except TileDeviceError:
            if self._all:
                return None  # out of memory: wait for a set in use
            raise
        self._all.append(workspace)
        return workspace

    def allocate(self) -> dict[int, Buffer]:
        """One more set, which belongs to the caller."""
        buffers: dict[int, Buffer] = {}
        for number, size in enumerate(self.arenas):
            temps = [b for b in self._temps if b.arena == number]
            if temps:
                arena = self._memory.allocate(size)
                buffers.update((b.id, self._place(b, arena)) for b in temps)
        return buffers

    def _place(self, info: BufferInfo, arena: Buffer) -> Buffer:
        view = self._memory.view(arena, info.offset, info.bytes)
        return self._memory.allocate(info.bytes) if view is None else view


def _arena_sizes(temps: Sequence[BufferInfo], stated: Sequence[int]) -> list[int]:
    """Bytes of each arena: as stated, but never less than its buffers need."""
    count = max([len(stated), *(b.arena + 1 for b in temps)], default=0)
    sizes = [*stated, *[0] * (count - len(stated))]
    for info in temps:
        sizes[info.arena] = max(sizes[info.arena], info.offset + info.bytes)
    return sizes
