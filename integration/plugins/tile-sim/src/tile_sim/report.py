"""What a simulated run says: cycles, time per kernel, utilisation per unit, bytes per bus, energy."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from tile_ir.hardware import HardwareModel

from tile_sim.memory import Memory
from tile_sim.timeline import Timeline, port_name


@dataclass(frozen=True, slots=True)
class KernelReport:
    """One statement of main: when its first work starts and its last ends, in cycles, and its operations."""

    name: str
    start: int
    end: int
    ops: int
    microseconds: float


@dataclass(frozen=True, slots=True)
class Report:
    """A whole run. `utilisation` is busy cycles over all cycles; energies are picojoules by cause."""

    cycles: int
    microseconds: float
    kernels: tuple[KernelReport, ...]
    utilisation: Mapping[str, float]
    bus_bytes: Mapping[str, int]
    ops: Mapping[str, int]
    energy_pj: Mapping[str, float]
    peak_bytes: Mapping[str, int]
    """Highest byte in use per memory unit."""

    @property
    def energy_per_op_pj(self) -> float:
        """All energy over all operations."""
        return sum(self.energy_pj.values()) / max(1, sum(self.ops.values()))

    def to_json(self) -> str:
        return json.dumps({**asdict(self), "energy_per_op_pj": self.energy_per_op_pj}, indent=2)

    def __str__(self) -> str:
        lines = [f"{self.cycles} cycles, {self.microseconds:.1f} us, {self.energy_per_op_pj:.2f} pJ per operation"]
        lines += ["", "kernel                            start        end      time us   operations"]
        lines += [
            f"{k.name[:30]:30} {k.start:>9} {k.end:>10} {k.microseconds:>12.2f} {k.ops:>12}" for k in self.kernels
        ]
        lines += ["", *(f"{name:10} {share:7.1%} busy" for name, share in self.utilisation.items())]
        lines += ["", *(f"{name:40} {n:>12} bytes" for name, n in self.bus_bytes.items())]
        lines += ["", *(f"{name:10} {pj / 1e6:12.3f} uJ" for name, pj in self.energy_pj.items())]
        lines += ["", *(f"{name:10} at most {n} bytes in use" for name, n in self.peak_bytes.items())]
        return "\n".join(lines)


def make_report(
    model: HardwareModel, timeline: Timeline, memories: Sequence[Memory], kernels: Sequence[KernelReport]
) -> Report:
    """The report of a finished timeline."""
    cycles = timeline.end
    return Report(
        cycles,
        cycles / model.clock_mhz,
        tuple(kernels),
        {port_name(port): calendar.busy / max(1, cycles) for port, calendar in sorted(timeline.units.items())},
        {_bus_name(model, number): n for number, n in sorted(timeline.bus_bytes.items())},
        dict(sorted(timeline.ops.items())),
        dict(sorted(timeline.energy.items())),
        {port_name(m.port): m.peak for m in memories},
    )


def _bus_name(model: HardwareModel, number: int) -> str:
    bus = model.buses[number]
    ends = [port_name(side[0]) + ("…" if len(side) > 1 else "") for side in (bus.sources, bus.sinks)]
    return f"{number}: {ends[0]} -> {ends[1]}"
