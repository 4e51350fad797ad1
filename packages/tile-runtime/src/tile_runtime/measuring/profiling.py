"""Where time goes: how long each kernel takes in the calls of a stretch of a program."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tile_hal.interfaces import Device
from tile_ir.diagnostics import Span
from tile_ir.frozen import frozen
from tile_ir.kernels import StepKind, labels_of, listed, windows_in
from tile_ir.program.provenance import origins

from tile_runtime.recording import RECORDERS

if TYPE_CHECKING:
    from tile_hal.submission import Prepared, StepTime
    from tile_ir.kernels import KernelList, Step

    from tile_runtime.typed import Typed

COLUMNS = ("kernel", "of", "launches", "total", "share", "each", "GFLOP/s", "GB/s", "roofline", "part of")


@frozen
class Launch:
    """One step of one call."""

    kernel: str
    """Its name; "fill" and "copy" for steps that are none."""
    program: str
    """What the function is called."""
    device: str
    begin: float
    """Seconds since the profile began."""
    seconds: float
    """As the device measured it; as the host saw it, where the device does not measure."""
    operations: int
    bytes: int
    """Compulsory traffic: each distinct byte once."""
    labels: tuple[str, ...]
    """Of the applications that it computes (`tile.provenance`)."""
    lines: tuple[str, ...]
    """``file:line`` of the statements that it computes."""


@frozen
class KernelTime:
    """All launches of one kernel."""

    kernel: str
    program: str
    device: str
    launches: int
    seconds: float
    """Of all launches."""
    share: float
    """Of the profile's time in kernels."""
    operations: int
    """Of all launches, as are `bytes`."""
    bytes: int
    roofline: float | None
    """The least time that the device's arithmetic and memory allow, over the time taken; None where no rates are known."""
    labels: tuple[str, ...]
    lines: tuple[str, ...]


class Profile:
    """Measured times of kernels; made by `profile`."""

    def __init__(self) -> None:
        self._begin = time.perf_counter()
        self._launches: list[Launch] = []
        self._floors: dict[tuple[str, int, int], float] = {}
        self._known: dict[int, tuple[Typed, Mapping[int, Span]]] = {}

    def __enter__(self) -> Profile:
        self._begin = time.perf_counter()
        RECORDERS.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        RECORDERS.remove(self)

    @property
    def launches(self) -> tuple[Launch, ...]:
        """Every step that was run, in order."""
        return tuple(self._launches)

    @property
    def seconds(self) -> float:
        """Time in kernels, fills and copies of whole buffers."""
        return sum(launch.seconds for launch in self._launches)

    @property
    def kernels(self) -> tuple[KernelTime, ...]:
        """Launches by kernel, those that take longest first."""
        groups: dict[tuple[str, str, str, int, int], list[Launch]] = {}
        for launch in self._launches:
            key = (launch.device, launch.program, launch.kernel, launch.operations, launch.bytes)
            groups.setdefault(key, []).append(launch)
        total = self.seconds or 1.0
        found = (self._summed(group, total) for group in groups.values())
        return tuple(sorted(found, key=lambda kernel: -kernel.seconds))

    def table(self) -> str:
        """A row per kernel, those that take longest first."""
        from tile_runtime.tables import table_text

        return table_text(COLUMNS, [_row(kernel) for kernel in self.kernels])

    __str__ = table

    def __repr__(self) -> str:
        return f"<tile Profile of {len(self._launches)} steps in {self.seconds:.6f} s>"

    def _repr_html_(self) -> str:
        """The table, for notebooks."""
        from html import escape

        return f"<pre>{escape(self.table())}</pre>"

    def to_dict(self) -> dict[str, Any]:
        """Kernels and launches as JSON types; seconds, operations and bytes as they are."""
        kernels, launches = [asdict(k) for k in self.kernels], [asdict(launch) for launch in self._launches]
        return {"seconds": self.seconds, "kernels": kernels, "launches": launches}

    def to_json(self, path: str | Path) -> None:
        """Write `to_dict` to a file."""
        Path(path).write_text(json.dumps(self.to_dict(), indent=1), encoding="utf-8")

    def to_trace(self, path: str | Path) -> None:
        """Write a trace that chrome://tracing and https://ui.perfetto.dev show: a row per device."""
        rows = {device: number for number, device in enumerate(dict.fromkeys(x.device for x in self._launches), 1)}
        events = [_named(device, number) for device, number in rows.items()]
        events += [_event(launch, rows[launch.device]) for launch in self._launches]
        Path(path).write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}), encoding="utf-8")

    def add(self, typed: Typed, prepared: Prepared, times: Sequence[StepTime]) -> None:
        """Take note of one run of a program; any thread may, and a signal's handler meanwhile: no lock is held."""
        places = self._places(typed)
        kernels, device = prepared.kernel_list, prepared.device
        self._launches.extend([self._launch(typed.name, device, kernels, found, places) for found in times])

    def _places(self, typed: Typed) -> Mapping[int, Span]:
        """Where the operations of a program come from; asked once, as it may have to be typed for that."""
        if id(typed) not in self._known:
            self._known[id(typed)] = typed, origins(typed.program)
        return self._known[id(typed)][1]

    def _launch(
        self, program: str, device: Device, kernels: KernelList, found: StepTime, places: Mapping[int, Span]
    ) -> Launch:
        step = found.step
        kernel = kernels.kernels[step.kernel] if step.kind is StepKind.KERNEL else None
        operations, moved = (kernel.flops, kernel.bytes) if kernel else (0, _moved(step, kernels))
        self._floors.setdefault((device.id, operations, moved), _floor(device, operations, moved))
        return Launch(
            kernel=kernel.name if kernel else step.kind.value,
            program=program,
            device=device.id,
            begin=max(0.0, found.begin - self._begin),
            seconds=found.seconds,
            operations=operations,
            bytes=moved,
            labels=labels_of(step, places),
            lines=_lines(step, places),
        )

    def _summed(self, group: Sequence[Launch], total: float) -> KernelTime:
        first, seconds, count = group[0], sum(x.seconds for x in group), len(group)
        floor = self._floors[first.device, first.operations, first.bytes]
        return KernelTime(
            first.kernel,
            first.program,
            first.device,
            count,
            seconds,
            seconds / total,
            first.operations * count,
            first.bytes * count,
            floor * count / seconds if floor and seconds else None,
            tuple(dict.fromkeys(label for x in group for label in x.labels)),
            tuple(dict.fromkeys(line for x in group for line in x.lines)),
        )


def profile() -> Profile:
    """Measure every kernel that runs inside, on any device and in any thread::

        with tile.profile() as p:
            model(x)
        print(p)                      # a table; also p.kernels, p.launches, p.to_json(path), p.to_trace(path)

    Calls run one step after the other and wait for each, so a call as a whole takes longer than without; what is computed
    once, when a program is prepared, is not part of it. Outside, nothing is measured, and calls cost what they always do.
    """
    return Profile()


def _moved(step: Step, kernels: KernelList) -> int:
    """Bytes that a fill or a copy of whole buffers moves."""
    sizes = {b.id: b.bytes for b in (*kernels.buffers, *windows_in(kernels.steps))}
    return sum(sizes[b] for b in step.buffers)


def _lines(step: Step, places: Mapping[int, Span]) -> tuple[str, ...]:
    spans = (places[op] for op in step.ops if op in places)
    return tuple(dict.fromkeys(f"{s.source.name}:{s.line}" for s in spans if s.is_place))


def _floor(device: Device, operations: int, moved: int) -> float:
    """The least seconds of one launch by what is known of the machine; 0 where that is nothing."""
    from tile_runtime.performance.report import Measurement, Peaks

    peaks = Peaks.of(device, ())
    if not peaks.stated:
        return 0.0
    return peaks.floor(Measurement("", "", operations=operations, read=moved, launches=0))[1]


def _row(kernel: KernelTime) -> tuple[str, ...]:
    from tile_opt.explain.text import duration

    each = kernel.seconds / kernel.launches
    rates = (
        f"{n / kernel.seconds * 1e-9:.3g}" if n and kernel.seconds else "" for n in (kernel.operations, kernel.bytes)
    )
    return (
        kernel.kernel,
        f"{kernel.program} on {kernel.device}",
        str(kernel.launches),
        duration(kernel.seconds),
        f"{kernel.share:.1%}",
        duration(each),
        *rates,
        "" if kernel.roofline is None else f"{kernel.roofline:.0%}",
        listed(kernel.labels or kernel.lines, 3),
    )


def _named(device: str, row: int) -> dict[str, Any]:
    return {"name": "process_name", "ph": "M", "pid": row, "args": {"name": device}}


def _event(launch: Launch, row: int) -> dict[str, Any]:
    """One launch as a complete event of the trace format; times in microseconds."""
    facts = {key: value for key, value in asdict(launch).items() if key not in ("begin", "seconds")}
    name = listed(launch.labels, 2) or launch.kernel
    return {"name": name, "cat": launch.program, "ph": "X", "pid": row, "tid": 1, "ts": launch.begin * 1e6,
            "dur": launch.seconds * 1e6, "args": facts}  # fmt: skip
