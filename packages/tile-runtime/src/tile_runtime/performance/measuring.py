"""Running the kernels: each grows until it takes long enough to be measured, or fills memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import TypeVar

import numpy as np
from tile_hal.interfaces import Device
from tile_ir.diagnostics import TileDeviceError, TileError
from tile_ir.kernels import BufferKind, StepKind

from tile_runtime.function import Function
from tile_runtime.lowered import Lowered
from tile_runtime.measuring.measure import Launch, launches, totals
from tile_runtime.performance.kernels import SMALL, TASKS, Shape, Task, drawn
from tile_runtime.performance.report import DeviceReport, KernelPart, Measurement, PerformanceReport, RunFacts
from tile_runtime.symbols import placeholder

T = TypeVar("T")
SECONDS = 0.05
"""How long a kernel is repeated, and about how long one run should take at most."""
FIRST = 256
"""Elements that a kernel begins with: what an interpreter still ends soon."""
FASTEST = 256.0
"""By how much a size grows at most at a time."""
ROUNDS, CALLS = 3, 50
BEYOND_CACHES = 4
MOST_BYTES = 256 << 20
"""Bytes of the largest arrays: so many times the last cache, and never more than this."""


def run(
    backend: str,
    *,
    seed: int = 0,
    seconds: float = SECONDS,
    kernels: Sequence[str] = (),
    json: str | Path | None = None,
    markdown: str | Path | None = None,
    watch: Callable[[str], None] = lambda name: None,
) -> PerformanceReport:
    """Measure every device of `backend` (a driver name or a device id); its report, also written where paths are given.

    `seed` draws the shapes, `kernels` selects by name, `seconds` is the time for each, and `watch` hears what is measured next.
    TileDeviceError for an unknown backend or kernel, and where there is no device that runs anything.
    """
    unknown = [name for name in kernels if name not in {task.name for task in TASKS}]
    if unknown:
        known = ", ".join(task.name for task in TASKS)
        raise TileDeviceError(f"there is no kernel {', '.join(unknown)}; there are {known}", code="TILE-E521")
    found = [_device(device, seed, seconds, kernels, watch) for device in _devices(backend)]
    report = PerformanceReport(RunFacts(backend, seed, seconds), tuple(found))
    for path, text in ((json, report.to_json), (markdown, report.to_markdown)):
        if path is not None:
            Path(path).write_text(text(), encoding="utf-8")
    return report


def _devices(backend: str) -> list[Device]:
    import tile_hal

    from tile_runtime.devices import device

    ids = [backend] if ":" in backend else [d.id for d in tile_hal.devices(backend)]
    found = [d for d in map(device, ids) if d.capabilities.executes]
    if not found:
        raise TileDeviceError(f"backend {backend!r} has no device here that runs anything", code="TILE-E519")
    return found


def _device(
    device: Device, seed: int, seconds: float, names: Sequence[str], watch: Callable[[str], None]
) -> DeviceReport:
    measured: list[Measurement] = []
    for task, factors in drawn(seed, names):
        watch(f"{device.id}: {task.name}")
        try:
            measured.append(_measured(device, task, factors, seconds))
        except (TileError, MemoryError) as problem:
            measured.append(Measurement(task.name, task.source, problem=str(problem).splitlines()[0]))
    return DeviceReport.of(device, measured)


def _measured(device: Device, task: Task, factors: tuple[float, float, float], seconds: float) -> Measurement:
    size, most = FIRST, _most(device)
    while True:
        low = _lowered(device, task, task.dims(size, *factors))
        once = partial(_run, launches(low))
        once()  # a driver may compile only now
        runs = list(_rounds(once, 0.0))
        spent = min(passed for _, passed in runs)
        if spent >= seconds / 2 or size >= most or not task.growth:
            break
        size = min(most, round(size * min(FASTEST, max(2.0, (seconds / spent) ** (1 / task.growth)))))
    best = min(measured for measured, _ in (*runs, *_rounds(once, seconds)))
    whole = _call_seconds(device, task, factors) if task.name == SMALL else best
    return _facts(low, task, factors, size, whole, best)


def _run(steps: list[Launch]) -> tuple[float, float]:
    """Seconds of all steps as the device says, and as they pass here: a simulator's are not those that it takes."""
    start = time.perf_counter()
    measured = sum(totals(steps).values())
    return measured, max(measured, time.perf_counter() - start)


def _most(device: Device) -> int:
    """Elements of the largest arrays."""
    caches = device.target.machine.caches
    wanted = min(MOST_BYTES, BEYOND_CACHES * (caches[-1].bytes if caches else 16 << 20))
    return max(FIRST, min(wanted, device.memory.size_goal // 8) // 4)


def _lowered(device: Device, task: Task, shapes: Mapping[str, Shape]) -> Lowered:
    symbols = [placeholder(task.dtypes.get(name, "float32"), shape, name=name) for name, shape in shapes.items()]
    return Function(task.source).lower(*symbols, device=device)


def _rounds(once: Callable[[], T], seconds: float) -> Iterator[T]:
    """What run after run gives, for so long."""
    end = time.perf_counter() + seconds
    for number in count():
        if number >= ROUNDS and time.perf_counter() > end:
            return
        yield once()


def _call_seconds(device: Device, task: Task, factors: tuple[float, float, float]) -> float:
    """What a call with arrays costs the caller."""
    function = Function(task.source)
    args = [np.ones(shape, np.float32) for shape in task.dims(FIRST, *factors).values()]

    def once() -> float:
        start = time.perf_counter()
        for _ in range(CALLS):
            function(*args, device=device)
        return (time.perf_counter() - start) / CALLS

    once()
    return min(_rounds(once, 0.0))


def _facts(
    low: Lowered, task: Task, factors: tuple[float, float, float], size: int, seconds: float, device_seconds: float
) -> Measurement:
    launched = [low.kernels.kernels[s.kernel] for s in low.kernels.steps if s.kind is StepKind.KERNEL]
    moved = {kind: sum(b.bytes for b in low.kernels.buffers if b.kind is kind) for kind in BufferKind}
    reports = low.report(measure=True).kernels
    return Measurement(
        task.name,
        task.source,
        {name: _type(task, name, shape) for name, shape in task.dims(size, *factors).items()},
        seconds,
        device_seconds,
        operations=sum(k.flops for k in launched),
        read=moved[BufferKind.INPUT] + moved[BufferKind.CONST],
        written=moved[BufferKind.OUTPUT],
        launches=len(low.kernels.steps),
        parts=tuple(KernelPart.of(report) for report in reports),
    )


def _type(task: Task, name: str, shape: Shape) -> str:
    return f"{task.dtypes.get(name, 'float32')}[{', '.join(map(str, shape))}]"
