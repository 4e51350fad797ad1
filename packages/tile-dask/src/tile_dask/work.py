"""The functions that dask's workers call."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from tile_ir.diagnostics import TileError

from tile_dask.boxes import Array, Read, Slices, assembled
from tile_dask.kernels import Kernel
from tile_dask.resident import Resident, boxes, has_own_memory, with_room

Key = Any
HERE = frozenset({"waiting", "ready", "constrained", "executing", "long-running", "memory"})
"""What dask's worker says of a task that is computed there, or was."""


def compute(
    kernels: Sequence[Kernel],
    kernel: int,
    place: object,
    reads: tuple[Read, ...],
    numbers: tuple[int, ...],
    *given: Any,
) -> Array | Resident:
    """A chunk, or a partial result of one, from chunks of other arrays and edges of them, by one of the kernels.

    It stays in the memory of a device that has its own. A TileError gets a note that says which chunk of what it is about.
    """
    chosen = kernels[kernel]
    about = f"in chunk {place} of {chosen.of}"
    scalars = [np.int32(n) for n in numbers]
    try:
        device = chosen.device
        if not has_own_memory(device):
            waiting = iter(given)
            return np.asarray(chosen(*[assembled(read, waiting) for read in reads], *scalars, device=device))
        return with_room(device, lambda: Resident(chosen(*boxes(reads, given, device), *scalars, device=device), about))
    except TileError as problem:
        problem.add_note(about)
        raise


def edge(chunk: Array | Resident, part: Slices, beside: Sequence[Key] = ()) -> Array | Resident:
    """A thin part of a chunk, as an array of its own, also where the part is contiguous: no view keeps the chunk.

    Tasks read it with the chunks `beside` it. Where these are on the same worker, it stays on the device, too, and nobody waits for
    it. Else it is over when the part is there: tasks run ahead of a device only until they come to this. Others may run meanwhile.
    """
    if not isinstance(chunk, Resident):
        return chunk[part].copy()
    found = chunk.part(part)
    if not isinstance(found, Resident) or _are_here(beside):
        return found
    if not found.ready:
        _step_aside()
    return found.copied()


def _are_here(chunks: Sequence[Key]) -> bool:
    """The worker that asks has these chunks, or is about to have them: so tasks that read them will run here. In one process all do."""
    worker = _worker()
    if worker is None:
        return True
    found = [worker.state.tasks.get(key) for key in chunks]
    return bool(found) and all(task is not None and task.state in HERE for task in found)


def _worker() -> Any:
    """The worker of dask's distributed scheduler whose task this is; None elsewhere."""
    distributed: Any = sys.modules.get("distributed")
    if distributed is not None:
        with suppress(ValueError):
            return distributed.get_worker()
    return None


def _step_aside() -> None:
    """Give a worker of dask's distributed scheduler another thread for the tasks behind this one, which only waits."""
    distributed: Any = sys.modules.get("distributed")
    if distributed is not None:
        with suppress(ValueError, AttributeError):  # no worker's thread
            distributed.secede()


def result(chunk: Array | Resident) -> Array:
    """A chunk as users of dask arrays expect it. While it is being made, others may run."""
    if isinstance(chunk, Resident) and not chunk.ready:
        _step_aside()
    return np.asarray(chunk)
