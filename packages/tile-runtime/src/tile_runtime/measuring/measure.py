"""Timing the kernels of a program one by one, on its device."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Protocol

import numpy as np
from tile_hal.interfaces import Buffer, Device, Direct, DirectStep, Library
from tile_hal.submission import Prepared
from tile_ir.dtype import DType
from tile_ir.kernels import BufferInfo, BufferKind, KernelList, Step, StepKind, Window, counted_steps, windows_in

from tile_runtime.arrays import numpy_dtype

ROUNDS = 5
"""Timed runs; the best one counts."""
BRIEF = 20e-6
"""Seconds of a step, with what it costs to start it from here, below which several runs are timed in one call."""
REPEATED = 32


Buffers = dict[tuple[str, int], Buffer]
"""By name and bytes; compilations that run one after the other may share them."""


class Loaded(Protocol):
    """A program's kernels on its device, such as `lowered.Lowered`."""

    @property
    def kernels(self) -> KernelList: ...
    @property
    def library(self) -> Library: ...
    @property
    def device(self) -> Device: ...


class Launch:
    """One step of a program, made ready to run alone.

    Where a step is over sooner than a call from Python, its runs are counted by the dozen in one native call, if the
    device has such calls: then the time is that of the step in a program that is called directly.
    """

    __slots__ = ("_again", "_brief", "buffers", "kernel", "prepared", "times")

    def __init__(
        self,
        kernel: str,
        prepared: Prepared,
        buffers: tuple[Buffer, ...],
        again: Callable[[], Direct | None],
        times: int = 1,
    ) -> None:
        self.kernel = kernel
        """Name of the scheduled kernel; "" for a fill or a copy of a whole buffer."""
        self.times = times
        """How often a run of the program starts it."""
        self.buffers = buffers
        self.prepared, self._again = prepared, again
        self._brief: Direct | None = None

    def seconds(self) -> float:
        """Run it and wait: as long as the device says that it took, else as long as it took here."""
        if self._brief is None and (once := self._once()) > BRIEF:
            return once
        self._brief = self._brief or self._again()
        if self._brief is None:
            return self._once()
        start = time.perf_counter()
        self._brief.run()
        return (time.perf_counter() - start) / REPEATED

    def _once(self) -> float:
        start = time.perf_counter()
        measured = self.prepared.run(self.buffers, profile=True).wait().seconds
        return time.perf_counter() - start if measured is None else measured


def launches(low: Loaded, shared: Buffers | None = None) -> list[Launch]:
    """The steps of a program in order, on inputs of ones; each leaves what the following ones read. Those of a loop's round are
    listed once.

    Buffers are taken from `shared` where it has them, else put there.
    """
    kernels, known = low.kernels, {} if shared is None else shared
    constants = {c.name: c.data for c in kernels.constants}
    infos = (*kernels.buffers, *map(_row, windows_in(kernels.steps)))
    for info in infos:
        if (info.name, info.bytes) not in known:
            known[info.name, info.bytes] = _filled(low, info, constants)
    buffers = {info.id: known[info.name, info.bytes] for info in infos}
    listed = {info.id: replace(info, kind=BufferKind.OUTPUT, offset=0) for info in infos}

    def launch(step: Step, times: int) -> Launch:
        used = tuple(dict.fromkeys(step.buffers))
        alone = replace(
            kernels,
            buffers=tuple(listed[b] for b in used),
            steps=(replace(step, deps=(), once=False),),
            constants=(),
            arenas=(),
        )
        name = kernels.kernels[step.kernel].stripe.name if step.kind is StepKind.KERNEL else ""
        again = partial(_repeated, low, step, buffers)
        return Launch(name, Prepared(low.device, low.library, alone), tuple(buffers[b] for b in used), again, times)

    return [launch(step, times) for step, times in counted_steps(kernels.steps)]


def _row(window: Window) -> BufferInfo:
    """What a window of a loop is in one round, as a buffer."""
    return BufferInfo(window.id, f"window {-window.id}", BufferKind.TEMP, (window.bytes,), DType.UINT8, window.bytes)


def _repeated(low: Loaded, step: Step, buffers: Mapping[int, Buffer]) -> Direct | None:
    """`REPEATED` runs of one step as one call, where the device has such calls."""
    executor = low.device.executor
    kernel = executor.prepare(low.library, step.kernel) if step.kind is StepKind.KERNEL else None
    used = tuple(buffers[b] for b in step.buffers)
    return executor.direct([DirectStep(step.kind, used, used[0].nbytes, kernel)] * REPEATED, [])


def _filled(low: Loaded, info: BufferInfo, constants: dict[str, memoryview]) -> Buffer:
    buffer = low.device.memory.allocate(info.bytes)
    view = np.frombuffer(buffer.map_discard(), np.uint8, info.bytes)
    view[:] = np.frombuffer(constants[info.name], np.uint8) if info.kind is BufferKind.CONST else 0
    if info.kind is BufferKind.INPUT:
        elements = view.view(numpy_dtype(f"input {info.name!r}", info.dtype))
        elements[:] = np.ones((), elements.dtype)
    buffer.unmap().wait()
    return buffer


def kernel_seconds(low: Loaded, rounds: int = ROUNDS) -> dict[str, float]:
    """Seconds of each kernel, all its launches in one run of the program together; the best of several runs.

    TileDeviceError when a kernel fails.
    """
    steps = launches(low)
    runs = [totals(steps) for _ in range(rounds + 1)][1:]
    return {name: min(run[name] for run in runs) for name in runs[0]}


def totals(steps: list[Launch]) -> dict[str, float]:
    """Seconds by kernel of one run of all steps, one after the other."""
    spent: dict[str, float] = {}
    for step in steps:
        spent[step.kernel] = spent.get(step.kernel, 0.0) + step.seconds() * step.times
    return spent
