"""The hardware model of an accelerator, parsed and checked.

``clock_mhz``, ``mem_units`` {count, size_KiB}, ``exec_units`` {count, ops_per_cycle, pipeline_depth}, ``tx_units``
{count} and ``buses`` [{sources, sinks, bytes_per_cycle}]. A bus joins any of its sources with any of its sinks;
the data path between two units is the shortest chain of buses whose inner stops are transfer units.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, cast

from tile_ir.diagnostics import Diagnostic, TileDeviceError
from tile_ir.frozen import frozen

Port = tuple[str, int]
"""One unit: ``("SRAM", 2)`` is ``SRAM[2]``."""
_PORT = re.compile(r"([A-Za-z_]\w*)\[(\d+)\]")


@frozen
class MemUnit:
    """`count` memories of `size_KiB` KiB each."""

    count: int = 1
    size_KiB: float = 0

    @property
    def bytes(self) -> int:
        """Bytes of one unit."""
        return int(self.size_KiB * 1024)


@frozen
class ExecUnit:
    """`count` units that each do `ops_per_cycle` scalar operations; a kernel pays `pipeline_depth` cycles to fill one."""

    count: int = 1
    ops_per_cycle: int = 1
    pipeline_depth: int = 1


@frozen
class TxUnit:
    """Units that move data: DMA engines, networks on chip."""

    count: int = 1


@frozen
class Bus:
    """A shared connection: one transfer at a time, `bytes_per_cycle` of it a cycle."""

    sources: tuple[Port, ...]
    sinks: tuple[Port, ...]
    bytes_per_cycle: int


@dataclass(frozen=True)
class HardwareModel:
    """A machine. `energy` maps "op" and memory or transfer unit names to picojoules per operation or byte."""

    clock_mhz: float
    mem_units: Mapping[str, MemUnit]
    exec_units: Mapping[str, ExecUnit]
    tx_units: Mapping[str, TxUnit]
    buses: tuple[Bus, ...]
    energy: Mapping[str, float] = field(default_factory=dict[str, float])

    def count(self, unit: str) -> int:
        """How many units are called `unit`; 0 for an unknown name."""
        return next((t[unit].count for t in (self.mem_units, self.exec_units, self.tx_units) if unit in t), 0)

    def path(self, source: Port, sink: Port) -> tuple[int, ...] | None:
        """Numbers of the buses from `source` to `sink` by the fewest hops; None when nothing connects them."""
        frontier: list[tuple[Port, tuple[int, ...]]] = [(source, ())]
        seen = {source}
        while frontier:
            following: list[tuple[Port, tuple[int, ...]]] = []
            for port, way in frontier:
                for number, bus in enumerate(self.buses):
                    if port not in bus.sources:
                        continue
                    if sink in bus.sinks:
                        return (*way, number)
                    fresh = [p for p in bus.sinks if p[0] in self.tx_units and p not in seen]
                    seen.update(fresh)
                    following += [(p, (*way, number)) for p in fresh]
            frontier = following
        return None


def hardware_model(document: Mapping[str, Any]) -> HardwareModel:
    """Parse and check a model; TileDeviceError TILE-E411 lists everything that is wrong with it."""
    problems: list[Diagnostic] = []
    reader = _Reader(problems)
    reader.known(
        document, {"clock_mhz", "mem_units", "exec_units", "tx_units", "buses", "energy"}, "the hardware model"
    )
    mem = reader.units(document, "mem_units", MemUnit, {"count", "size_KiB"})
    execs = reader.units(document, "exec_units", ExecUnit, {"count", "ops_per_cycle", "pipeline_depth"})
    tx = reader.units(document, "tx_units", TxUnit, {"count"})
    counts = {name: unit.count for table in (mem, execs, tx) for name, unit in table.items()}
    buses = reader.buses(document, counts)
    clock = reader.number(document, "clock_mhz", "the hardware model", positive=True)
    energy = {
        str(k): reader.number(reader.table(document, "energy"), str(k), "energy")
        for k in reader.table(document, "energy")
    }
    if len(counts) < len(mem) + len(execs) + len(tx):
        reader.bad("a unit name stands in more than one of mem_units, exec_units and tx_units")
    if problems:
        raise TileDeviceError(problems)
    return HardwareModel(clock, mem, execs, tx, buses, energy)


class _Reader:
    """Reads fields and collects what is wrong."""

    def __init__(self, problems: list[Diagnostic]) -> None:
        self.problems = problems

    def bad(self, message: str, hint: str = "") -> None:
        self.problems.append(Diagnostic("TILE-E411", message, hint=hint))

    def known(self, table: Mapping[str, Any], names: set[str], where: str) -> None:
        for key in table:
            if key not in names:
                close = get_close_matches(key, names, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(names))}"
                self.bad(f"{where} has no field {key!r}", hint)

    def table(self, document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        value: Any = document.get(key, {})
        if isinstance(value, Mapping):
            return cast("Mapping[str, Any]", value)
        self.bad(f"{key} is {type(value).__name__}, not a table of names")
        return {}

    def number(
        self, table: Mapping[str, Any], key: str, where: str, *, positive: bool = False, whole: bool = False
    ) -> Any:
        value: Any = table.get(key)
        kind = "a whole number" if whole else "a number"
        if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
            self.bad(f"{where} needs {key}, {kind}" + ("" if value is None else f", not {value!r}"))
            return 1
        if value < 0 or (positive and not value):
            self.bad(f"{key} of {where} is {value}; it must be {'above 0' if positive else 'at least 0'}")
            return 1
        return value

    def units(self, document: Mapping[str, Any], key: str, cls: Any, names: set[str]) -> dict[str, Any]:
        if key not in document:
            self.bad(f"the hardware model has no {key}")
        made: dict[str, Any] = {}
        for name, fields in self.table(document, key).items():
            where = f"{key} {name}"
            if not isinstance(fields, Mapping):
                self.bad(f"{where} is {fields!r}, not a table", 'such as { "count": 1 }')
                continue
            table = cast("Mapping[str, Any]", fields)
            self.known(table, names, where)
            values = {
                n: self.number(table, n, where, positive=True, whole=n != "size_KiB")
                for n in sorted(names)
                if n in table or n != "pipeline_depth"
            }
            made[name] = cls(**values)
        return made

    def buses(self, document: Mapping[str, Any], counts: Mapping[str, int]) -> tuple[Bus, ...]:
        entries: Any = document.get("buses", [])
        if not isinstance(entries, list):
            self.bad("buses is not a list")
            return ()
        made: list[Bus] = []
        for number, entry in enumerate(cast("list[Any]", entries)):
            where = f"bus {number}"
            if not isinstance(entry, Mapping):
                self.bad(f"{where} is {entry!r}, not a table")
                continue
            table = cast("Mapping[str, Any]", entry)
            self.known(table, {"sources", "sinks", "bytes_per_cycle"}, where)
            ends = [self.ports(table, side, where, counts) for side in ("sources", "sinks")]
            made.append(Bus(ends[0], ends[1], self.number(table, "bytes_per_cycle", where, positive=True, whole=True)))
        return tuple(made)

    def ports(self, bus: Mapping[str, Any], side: str, where: str, counts: Mapping[str, int]) -> tuple[Port, ...]:
        found: list[Port] = []
        names: Any = bus.get(side, [])
        for name in cast("list[Any]", names) if isinstance(names, list) else [names]:
            match = _PORT.fullmatch(name) if isinstance(name, str) else None
            if match is None:
                self.bad(f"{where}: {name!r} names no unit", 'a unit is written "SRAM[0]"')
            elif match[1] not in counts:
                close = get_close_matches(match[1], counts, n=1)
                self.bad(f"{where}: there is no unit {match[1]!r}", f"did you mean {close[0]!r}?" if close else "")
            elif int(match[2]) >= counts[match[1]]:
                self.bad(f"{where}: {name} is out of range, {match[1]} has {counts[match[1]]} units")
            else:
                found.append((match[1], int(match[2])))
        if not names:
            self.bad(f"{where} has no {side}")
        return tuple(found)
