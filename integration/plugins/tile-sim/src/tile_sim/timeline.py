"""Cycles: units and buses that are busy for intervals, and work that starts in the first gap where all it needs is free.

The model, in full:

- A transfer takes one unit of its kind and every bus on the way, for bytes / (slowest bus) cycles.
- A kernel on an execution unit takes max(operations / ops_per_cycle + pipeline_depth, bytes / rate of each bus on
  the way of its operands) cycles; each operand's view crosses once. It holds its unit, and a transfer unit
  (the network) where its operands come through one; buses between a unit and its own memory are not contended.
- Units take ready work out of order: hazards on data are the only order.
- Energy is "op" per operation and, per byte, that of every memory and transfer unit it is read from, written to or
  passes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil

from tile_ir.diagnostics import Diagnostic, TileDeviceError
from tile_ir.hardware import HardwareModel, Port


@dataclass(slots=True)
class Calendar:
    """When a unit or bus is busy: disjoint intervals in order."""

    starts: list[int] = field(default_factory=list[int])
    ends: list[int] = field(default_factory=list[int])
    busy: int = 0

    def free(self, ready: int, cycles: int) -> int:
        """The first start >= `ready` of a gap of `cycles`."""
        at = bisect_right(self.ends, ready)
        while at < len(self.starts) and self.starts[at] < ready + cycles:
            ready = max(ready, self.ends[at])
            at += 1
        return ready

    def take(self, start: int, cycles: int) -> None:
        """Busy for `cycles` from `start`, which must be free."""
        self.busy += cycles
        if not cycles:
            return
        at = bisect_right(self.starts, start)
        if at and self.ends[at - 1] == start:
            self.ends[at - 1] += cycles
            if at < len(self.starts) and self.starts[at] == self.ends[at - 1]:
                self.ends[at - 1] = self.ends.pop(at)
                self.starts.pop(at)
            return
        self.starts.insert(at, start)
        self.ends.insert(at, start + cycles)


@dataclass(frozen=True, slots=True)
class Operand:
    """Bytes that a kernel moves between a memory and its unit."""

    memory: Port
    nbytes: int
    written: bool


@dataclass
class Timeline:
    """The machine while it runs."""

    model: HardwareModel
    units: dict[Port, Calendar] = field(default_factory=dict[Port, Calendar])
    buses: dict[int, Calendar] = field(default_factory=dict[int, Calendar])
    bus_bytes: dict[int, int] = field(default_factory=dict[int, int])
    ops: dict[str, int] = field(default_factory=dict[str, int])
    energy: dict[str, float] = field(default_factory=dict[str, float])
    end: int = 0

    def __post_init__(self) -> None:
        for table in (self.model.exec_units, self.model.tx_units):
            self.units |= {(name, k): Calendar() for name, unit in table.items() for k in range(unit.count)}

    def transfer(self, source: Port, sink: Port, unit: str, nbytes: int, ready: int) -> int:
        """Move bytes on a unit of kind `unit`; gives the end cycle."""
        ways = {k: self._through(source, (unit, k), sink) for k in range(self.model.count(unit))}
        if not ways:
            raise refuse(f"there is no transfer unit {unit!r}")
        plans = [(self._start(((unit, k),), way, ready, self._cycles(nbytes, way)), k, way) for k, way in ways.items()]
        start, number, way = min(plans)
        cycles = self._cycles(nbytes, way)
        self._take(((unit, number),), way, start, cycles, nbytes)
        self._spend(source[0], nbytes)
        self._spend(sink[0], nbytes)
        self._spend(unit, nbytes)
        return self._finish(start + cycles)

    def compute(self, unit: Port, ops: int, operands: Sequence[Operand], ready: int) -> tuple[int, int]:
        """Run a kernel of `ops` operations; gives (start, end)."""
        kind = self.model.exec_units[unit[0]]
        cycles = ceil(ops / kind.ops_per_cycle) + kind.pipeline_depth
        shared: dict[int, None] = {}
        stops: dict[Port, None] = {}
        loads: dict[int, int] = {}
        for operand in operands:
            way = self._way(unit, operand)
            for bus in way:
                loads[bus] = loads.get(bus, 0) + operand.nbytes
            self._spend(operand.memory[0], operand.nbytes)
            for stop in self._stops(way):
                shared |= dict.fromkeys(way)
                stops[stop] = None
                self._spend(stop[0], operand.nbytes)
        cycles = max([cycles, *(self._cycles(n, (bus,)) for bus, n in loads.items())])
        start = self._start((unit, *stops), tuple(shared), ready, cycles)
        self._take((unit, *stops), tuple(shared), start, cycles, 0)
        for bus, n in loads.items():
            self.bus_bytes[bus] = self.bus_bytes.get(bus, 0) + n
        self.ops[unit[0]] = self.ops.get(unit[0], 0) + ops
        self._spend("op", ops)
        return start, self._finish(start + cycles)

    def _way(self, unit: Port, operand: Operand) -> tuple[int, ...]:
        ends = (unit, operand.memory) if operand.written else (operand.memory, unit)
        way = self.model.path(*ends)
        if way is None:
            raise refuse(f"no bus leads from {port_name(ends[0])} to {port_name(ends[1])}")
        return way

    def _through(self, source: Port, unit: Port, sink: Port) -> tuple[int, ...]:
        first, second = self.model.path(source, unit), self.model.path(unit, sink)
        if first is None or second is None:
            raise refuse(f"no bus leads from {port_name(source)} through {port_name(unit)} to {port_name(sink)}")
        return (*first, *second)

    def _cycles(self, nbytes: int, way: Sequence[int]) -> int:
        return ceil(nbytes / min(self.model.buses[bus].bytes_per_cycle for bus in way)) if way else 0

    def _stops(self, way: Sequence[int]) -> list[Port]:
        """The transfer units where one bus of a way hands over to the next."""
        buses = [self.model.buses[number] for number in way]
        return [next(p for p in a.sinks if p in b.sources) for a, b in pairwise(buses)]

    def _start(self, units: Sequence[Port], way: Sequence[int], ready: int, cycles: int) -> int:
        """The first cycle from `ready` in which all units and buses are free for long enough."""
        calendars = [*(self.units[unit] for unit in units), *(self.buses.setdefault(bus, Calendar()) for bus in way)]
        start = ready
        while True:
            later = start
            for calendar in calendars:
                later = calendar.free(later, cycles)
            if later == start:
                return start
            start = later

    def _take(self, units: Sequence[Port], way: Sequence[int], start: int, cycles: int, nbytes: int) -> None:
        for unit in units:
            self.units[unit].take(start, cycles)
        for bus in dict.fromkeys(way):
            self.buses[bus].take(start, cycles)
            self.bus_bytes[bus] = self.bus_bytes.get(bus, 0) + nbytes

    def _spend(self, kind: str, amount: int) -> None:
        self.energy[kind] = self.energy.get(kind, 0.0) + amount * self.model.energy.get(kind, 0.0)

    def _finish(self, end: int) -> int:
        self.end = max(self.end, end)
        return end


def port_name(port: Port) -> str:
    return f"{port[0]}[{port[1]}]"


def refuse(message: str, hint: str | None = None) -> TileDeviceError:
    """What the simulator says to a schedule that its machine cannot run."""
    return TileDeviceError(Diagnostic("TILE-E720", message, hint=hint))
