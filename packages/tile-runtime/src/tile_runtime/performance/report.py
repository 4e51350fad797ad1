"""What a performance run found, as JSON and as Markdown, in the form of the conformance reports."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tile_hal.conformance.report import versions
from tile_hal.interfaces import Device
from tile_ir.frozen import frozen
from tile_ir.machine import Machine

from tile_runtime.measuring.machines import probed
from tile_runtime.performance.kernels import SMALL

if TYPE_CHECKING:
    from tile_opt.explain import KernelReport

FORMAT = 1
"""Version of the JSON document."""
SHOWN = 3
"""Kernels of the lowest shares whose prediction is shown in full."""
ABOVE = (
    "A share above 100 % says that the target's machine states less than the device does; `tile calibrate` measures it."
)


DISTRIBUTIONS = ("numpy", "tile-hal", "tile-ir", "tile-opt", "tile-runtime")
"""Whose versions a report tells."""


@frozen
class RunFacts:
    """How it was run: what somebody needs to run it again."""

    backend: str
    seed: int
    seconds: float
    """For each kernel."""
    time: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    """When it began, UTC."""
    host: str = field(default_factory=platform.platform)
    versions: dict[str, str] = field(default_factory=lambda: versions(*DISTRIBUTIONS))


@frozen
class KernelPart:
    """One kernel of a function, as `explain` sees it."""

    name: str
    plan: str
    measured: float | None
    predicted: float | None
    causes: tuple[tuple[str, float, str], ...]
    """(resource, seconds, why) of the prediction, the largest first."""

    @staticmethod
    def of(report: KernelReport) -> KernelPart:
        found = report.plan.prediction
        causes = tuple((c.name, c.seconds, c.note) for c in found.causes) if found else ()
        return KernelPart(report.name, report.plan.kind, report.plan.measured, found.seconds if found else None, causes)


@frozen
class Measurement:
    """One function on one device; `problem` says why it was not measured."""

    name: str
    source: str
    inputs: dict[str, str] = field(default_factory=dict[str, str])
    seconds: float = 0.0
    """Of one run on the device; of small calls: of one call, as its caller sees it."""
    device_seconds: float = 0.0
    operations: int = 0
    read: int = 0
    """Bytes of all inputs and constants; `written` those of all outputs."""
    written: int = 0
    launches: int = 1
    parts: tuple[KernelPart, ...] = ()
    problem: str = ""


@frozen
class Peaks:
    """What a device could do."""

    operations: float
    """On float32, a second."""
    memory: tuple[float, float]
    """Bytes a second, read and written."""
    start: float
    """Seconds of the smallest kernel: that of small calls where they were measured, else what the machine says."""
    stated: bool
    """The numbers are those of the target's machine; else the best that was measured here."""
    caches: tuple[tuple[int, float, float], ...] = ()
    """(bytes, read, written) of each level with all cores, nearest first."""

    @staticmethod
    def of(device: Device, measured: Sequence[Measurement]) -> Peaks:
        """The arithmetic that the driver states, the rates of memory as they were calibrated, the start as it was measured."""
        from tile_opt.explain.plans import peak

        runs = [m for m in measured if m.device_seconds]
        start = next((m.device_seconds for m in runs if m.name == SMALL), device.target.machine.launch.kernel)
        best = max((m.operations / m.device_seconds for m in runs), default=0.0)
        moved = max(((m.read + m.written) / m.device_seconds for m in runs), default=0.0)
        machine = device.target.machine
        if machine == Machine():
            return Peaks(best, (moved, moved), start, False)
        all_cores, cycles = machine.memory.all_cores, machine.clock_ghz * 1e9 * machine.cores
        memory = (1e9 * all_cores.read, 1e9 * max(all_cores.write, all_cores.non_temporal))
        caches = tuple(
            (c.bytes * max(1, machine.cores // c.shared), c.bandwidth * cycles, (c.write or c.bandwidth) * cycles)
            for c in machine.caches
        )
        return Peaks(peak(probed(device)), memory, start, True, caches)

    def floor(self, m: Measurement) -> tuple[str, float]:
        """What bounds a run, and the seconds that this takes at least."""
        read, written = next(((r, w) for size, r, w in self.caches if 2 * (m.read + m.written) <= size), self.memory)
        floors = {
            "arithmetic": m.operations / self.operations if self.operations else 0.0,
            "memory": m.read / read + m.written / written if read and written else 0.0,
            "start": m.launches * self.start,
        }
        name = max(floors, key=lambda key: floors[key])
        return name, floors[name]


@frozen
class DeviceReport:
    """All kernels on one device."""

    id: str
    name: str
    fingerprint: str
    calibrated: bool
    peaks: Peaks
    kernels: tuple[Measurement, ...]

    @staticmethod
    def of(device: Device, measured: Sequence[Measurement]) -> DeviceReport:
        calibrated = probed(device) != device.target.machine
        peaks = Peaks.of(device, measured)
        return DeviceReport(device.id, device.name, device.compiler.fingerprint, calibrated, peaks, tuple(measured))

    def share(self, m: Measurement) -> float:
        """The seconds that the device needs at least, over those that it took."""
        return self.peaks.floor(m)[1] / m.seconds if m.seconds else 0.0

    @property
    def lowest(self) -> list[Measurement]:
        """Those that were measured, the lowest share first; small calls, whose time is mostly the caller's, last."""
        return sorted((m for m in self.kernels if not m.problem), key=lambda m: (m.name == SMALL, self.share(m)))


@frozen
class PerformanceReport:
    """The outcome of a run."""

    run: RunFacts
    devices: tuple[DeviceReport, ...]

    @property
    def passed(self) -> bool:
        """True when every kernel was measured on every device."""
        return not any(m.problem for d in self.devices for m in d.kernels)

    def to_json(self) -> str:
        document: dict[str, Any] = {"format": FORMAT, "passed": self.passed, **asdict(self.run), "devices": []}
        for device in self.devices:
            made = asdict(device)
            for row, m in zip(made["kernels"], device.kernels, strict=True):
                row |= {"bound": device.peaks.floor(m)[0], "share": device.share(m)}
            document["devices"].append(made)
        return json.dumps(document, indent=1)

    def to_markdown(self) -> str:
        lines = [f"# Performance of `{self.run.backend}`", ""]
        for device in self.devices:
            lines += [*_device(device), ""]
        run = self.run
        lines += [f"Run at {run.time} on {run.host}; seed {run.seed}, {run.seconds:g} s for each kernel."]
        return "\n".join([*lines, ", ".join(f"{n} {v}" for n, v in sorted(run.versions.items())) + ".", ""])


def _device(device: DeviceReport) -> Iterable[str]:
    from tile_opt.explain.text import duration

    peaks = device.peaks
    source = "the best measured here, as its target states no machine"
    if peaks.stated:
        source = "as calibrated" if device.calibrated else "as its target states; `tile calibrate` measures them"
    yield f"## `{device.id}` ({device.name})\n"
    rates = "{:.3g} GFLOP/s; {:.3g} GB/s read and {:.3g} GB/s written".format(
        *(rate / 1e9 for rate in (peaks.operations, *peaks.memory))
    )
    yield f"Peaks: {rates} ({source}). The smallest kernel takes {duration(peaks.start)}.\n"
    yield "| kernel | inputs | time | GFLOP/s | GB/s | bound by | share of peak | predicted |\n|---|---|---|---|---|---|---|---|"
    for m in device.kernels:
        yield f"| {m.name} | {m.problem} | | | | | not measured | |" if m.problem else _row(device, m)
    if any(device.share(m) > 1.005 for m in device.kernels):
        yield f"\n{ABOVE}"
    for m in device.lowest[:SHOWN]:
        yield from _explained(device, m)


def _row(device: DeviceReport, m: Measurement) -> str:
    from tile_opt.explain.text import duration

    known = [p.predicted for p in m.parts if p.predicted is not None]
    predicted = duration(sum(known)) if known and len(known) == len(m.parts) else ""
    inputs = ", ".join(f"`{name}={text}`" for name, text in m.inputs.items())
    rates = (m.operations / m.seconds / 1e9, (m.read + m.written) / m.seconds / 1e9)
    cells = (m.name, inputs, duration(m.seconds), *(f"{r:.3g}" for r in rates), device.peaks.floor(m)[0])
    return "| " + " | ".join([*cells, f"{device.share(m):.1%}", predicted]) + " |"


def _explained(device: DeviceReport, m: Measurement) -> Iterable[str]:
    """What `explain` says about a kernel of a low share."""
    from tile_opt.explain.text import duration

    yield f"\n### {m.name}: {device.share(m):.1%}\n"
    for part in m.parts:
        measured = f"{duration(part.measured)} measured" if part.measured is not None else ""
        predicted = f"{duration(part.predicted)} predicted" if part.predicted is not None else ""
        yield f"- `{part.name}` ({part.plan}): {', '.join(filter(None, (measured, predicted))) or 'not modelled'}"
        yield from (f"  - {name}: {duration(s)}{f' ({note})' if note else ''}" for name, s, note in part.causes[:SHOWN])
