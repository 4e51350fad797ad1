"""Memories with real bytes: allocations live at their placed offsets, and every access is checked against them.

An allocation owns its bytes from its first write until another takes some of them; reading it afterwards is
refused. Hazards: a read waits for the last write of the bytes, a write for the last read and write.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from tile_ir.dtype import DType
from tile_ir.hardware import Port

from tile_sim.timeline import port_name, refuse

Array = npt.NDArray[Any]
Box = tuple[tuple[int, ...], tuple[int, ...]]
"""Origin and sizes."""


@dataclass(slots=True, eq=False)
class Times:
    """When the last write and the last read of some bytes end."""

    write: int = 0
    read: int = 0


@dataclass(slots=True, eq=False)
class Memory:
    """One memory unit. `data` is None while only time is simulated."""

    port: Port
    size: int
    data: npt.NDArray[np.uint8] | None
    owners: dict[tuple[int, int], Allocation] = field(default_factory=dict[tuple[int, int], "Allocation"])
    peak: int = 0

    def claim(self, allocation: Allocation) -> None:
        """Make the allocation own its bytes; whoever had some of them has nothing any more."""
        low, high = allocation.span
        if self.owners.get((low, high)) is allocation:
            return
        if high > self.size or low < 0:
            raise refuse(
                f"{allocation.name} at bytes {low}..{high} does not fit {port_name(self.port)} of {self.size} bytes",
                "give the schedule the memory's size as mem_KiB",
            )
        for span in [s for s in self.owners if s[0] < high and low < s[1]]:
            old = self.owners.pop(span)
            old.lost = True
            times = old.all_times()
            allocation.base.write = max(allocation.base.write, times.write)
            allocation.base.read = max(allocation.base.read, times.read)
        self.owners[low, high] = allocation
        allocation.lost = False
        self.peak = max(self.peak, high)
        if self.data is not None:
            self.data[low:high] = 0xA5


@dataclass(slots=True, eq=False)
class Allocation:
    """A placed buffer: a view of the bytes of a memory (or of a host buffer), and its hazards."""

    name: str
    memory: Memory
    offset: int
    dtype: DType
    sizes: tuple[int, ...]
    host: Array | None = None
    """A user's buffer in DRAM, outside the arena of temporaries."""
    base: Times = field(default_factory=Times)
    boxes: dict[Box, Times] = field(default_factory=dict[Box, Times])
    grid: Box | None = None
    """Sizes and phase of the boxes while they are tiles of one grid, which are equal or disjoint."""
    is_grid: bool = True
    last_write: int = 0
    lost: bool = False
    claimed: bool = False

    @property
    def nbytes(self) -> int:
        return prod(self.sizes) * self.dtype.bytes

    @property
    def span(self) -> tuple[int, int]:
        return self.offset, self.offset + self.nbytes

    def array(self) -> Array | None:
        """The buffer as an array over the memory's bytes; None while only time is simulated."""
        if self.host is not None:
            return self.host
        if self.memory.data is None:
            return None
        return np.ndarray(self.sizes, self.dtype.numpy, self.memory.data.data, self.offset)

    def touch(self, writing: bool) -> None:
        """Check an access: the bytes must be the allocation's own."""
        if self.host is not None or not self.nbytes:
            return
        if self.lost and not writing:
            raise refuse(f"{self.name} in {port_name(self.memory.port)} was overwritten before it was read")
        if writing or not self.claimed:
            self.memory.claim(self)
            self.claimed = True

    def ready(self, box: Box, writing: bool) -> int:
        """The cycle from which an access of a box may begin."""
        when = max(self.base.write, self.base.read if writing else 0)
        same = self.boxes.get(box)
        if same is not None:
            when = max(when, same.write, same.read if writing else 0)
        if (self.is_grid and self._phase(box) == self.grid) or (not writing and self.last_write <= when):
            return when
        for other, times in self.boxes.items():
            if other != box and (times.write > when or (writing and times.read > when)) and _overlap(box, other):
                when = max(when, times.write, times.read if writing else 0)
        return when

    def done(self, box: Box, writing: bool, end: int) -> None:
        times = self.boxes.setdefault(box, Times())
        self.grid = self.grid or self._phase(box)
        self.is_grid = self.is_grid and self.grid == self._phase(box)
        if writing:
            self.last_write = max(self.last_write, end)
            times.write = max(times.write, end)
        else:
            times.read = max(times.read, end)

    def all_times(self) -> Times:
        """The last write and read of any part."""
        whole = Times(self.base.write, self.base.read)
        for times in self.boxes.values():
            whole.write, whole.read = max(whole.write, times.write), max(whole.read, times.read)
        return whole

    def settle(self) -> None:
        """Forget boxes: what comes next waits for all of them."""
        self.base = self.all_times()
        self.boxes, self.grid, self.is_grid = {}, None, True

    @staticmethod
    def _phase(box: Box) -> Box:
        return box[1], tuple(o % s if s else 0 for o, s in zip(*box, strict=True))


def _overlap(a: Box, b: Box) -> bool:
    return all(x < y + t and y < x + s for x, s, y, t in zip(a[0], a[1], b[0], b[1], strict=True))
