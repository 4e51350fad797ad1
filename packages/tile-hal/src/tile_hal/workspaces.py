"""Temporaries of a kernel list: sets of them, each for one run at a time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import get_ident

from tile_ir.diagnostics import TileDeviceError
from tile_ir.kernels import BufferInfo, BufferKind, KernelList

from tile_hal.interfaces import Buffer, Event, Memory

MAX_WORKSPACES = 64
"""Sets of temporaries of one kernel list that may be in use by pending runs; the next run waits for the oldest."""
MAX_WORKSPACE_BYTES = 1 << 30
"""The same limit in bytes (one set is always allowed)."""
_IDLE = 2


@dataclass(slots=True, eq=False)
class Workspace:
    """One set of temporaries, and the event of the run that used it last (None while that run is being started)."""

    buffers: dict[int, Buffer]
    last: Event | None = None
    thread: int = field(default_factory=get_ident)
    """Which one starts that run."""

    @property
    def idle(self) -> bool:
        return self.last is not None and self.last.done


class Workspaces:
    """Temporaries of one kernel list, reused once the run that used them is done.

    No lock is held, for a signal's handler may run the same kernels while this thread looks for a set: who removes one
    from the list, which is one step, has it.
    """

    def __init__(self, memory: Memory, kernels: KernelList, ordered: bool) -> None:
        """`ordered`: the device itself orders what uses the memory of a set that was dropped, so every run takes a new one."""
        self._memory = memory
        self._ordered = ordered
        self._temps = [b for b in kernels.buffers if b.kind is BufferKind.TEMP]
        self.arenas = _arena_sizes(self._temps, kernels.arenas)
        self.nbytes = sum(self.arenas)
        """Bytes of one set."""
        self._limit = max(1, min(MAX_WORKSPACES, MAX_WORKSPACE_BYTES // max(1, self.nbytes)))
        self._all: list[Workspace] = []

    def acquire(self) -> Workspace:
        """A set that no pending run uses; whoever takes it sets `last`. Blocks while too many are in use."""
        if self._ordered or not self._temps:
            return Workspace(self.allocate())
        while (workspace := self._reused() or self._grown()) is None:
            busy = next((last for w in [*self._all] if (last := w.last) is not None), None)
            if busy is None:
                time.sleep(1e-4)  # every set belongs to a run that another thread is starting right now
            else:
                with contextlib.suppress(Exception):
                    busy.wait()
        return workspace

    def _reused(self) -> Workspace | None:
        """One whose run is done. What this thread has begun with and not started yet is nobody's next one.

        That run was interrupted, or it waits for this one, which a signal's handler has called: then it keeps what it has.
        """
        here = get_ident()
        for begun in [w for w in self._all if w.last is None and w.thread == here]:
            self._removed(begun)
        idle = [w for w in self._all if w.idle]
        for extra in idle[_IDLE:]:
            self._removed(extra)
        return next((w for w in idle[:_IDLE] if self._taken(w)), None)

    def _taken(self, workspace: Workspace) -> bool:
        """Whether this run has it now; it may have been another's since it was seen."""
        if not self._removed(workspace):
            return False
        taken = workspace.idle
        if taken:
            workspace.last, workspace.thread = None, get_ident()
        self._all.append(workspace)
        return taken

    def _removed(self, workspace: Workspace) -> bool:
        try:
            self._all.remove(workspace)
        except ValueError:
            return False
        return True

    def _grown(self) -> Workspace | None:
        if len(self._all) >= self._limit:
            return None
        workspace = Workspace({})
        self._all.append(workspace)  # counted before it has its memory, so that all threads together keep to the limit
        try:
            workspace.buffers = self.allocate()
        except BaseException as problem:
            self._removed(workspace)
            if isinstance(problem, TileDeviceError) and self._all:
                return None  # out of memory: wait for a set in use
            raise
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
