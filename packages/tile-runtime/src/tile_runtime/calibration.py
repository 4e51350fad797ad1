"""Measuring what a device does not say: rates and launch costs, by small programs whose time the model explains.

Each probe's time is mostly due to one number of the machine, which is changed until the predicted time is the measured
one. `tile_runtime.machines` keeps what was measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from tile_hal.interfaces import Device
from tile_ir.diagnostics import TileDeviceError
from tile_ir.machine import Bandwidths, Cache, Machine

from tile_runtime.machines import probed

if TYPE_CHECKING:
    from tile_ir.stripe.nodes import Block

    from tile_runtime.lowered import Lowered

MOST = 8.0
"""A number is changed by at most this factor: what seems to need more was disturbed, or is not what the model thinks."""
ROUNDS, LONG = 12, 0.1
"""Runs of each probe at least, and seconds that short ones are repeated for."""
TYPICAL = 4
"""The run counts that one in so many is no slower than: the best of thousands is luck that few kernels have."""
TURNS = 2
"""How often the numbers are fitted: they depend on each other a little."""
STEPS = 10
"""Halvings of the interval of a factor."""
FLAT = 0.02
"""Share of the time below which a change does not count."""
STEP, GRIP = 0.8, 0.05
"""A number is made better step by step, as long as each step shortens the probe by this share: beyond that other causes
hide it, and what is left between prediction and measurement is theirs."""
LARGEST = 1 << 27
"""Elements of a probe of memory, bytes of one of a cache, at most."""
_SUM = "function (A[M, N]) -> (S) { S[i : M] = +(A[i, j]); }"
_ADD = "function (A, B) -> (C) { C = A + B; }"
_PRODUCT = "function (A[M, L], B[L, N]) -> (C) { C[i, j : M, N] = +(A[i, k] * B[k, j]); }"


@dataclass(frozen=True, slots=True)
class Probe:
    """A program whose time is mostly due to one number; `change` makes what that number stands for take so many times as long."""

    name: str
    source: str
    shapes: tuple[tuple[int, ...], ...]
    change: Callable[[Machine, float], Machine]


@dataclass(frozen=True, slots=True)
class Measured:
    """A probe's time, and what was predicted before and after the fit; `seconds` is infinite where it failed."""

    probe: Probe
    seconds: float
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """The machine as measured, and the probes behind it."""

    machine: Machine
    measured: tuple[Measured, ...]


def probes(machine: Machine) -> Iterator[Probe]:
    """What is measured on a machine: its start, arithmetic, work for several cores, each cache, and memory both ways."""
    last = _all_of(machine, machine.caches[-1]) if machine.caches else 1 << 20
    many = max(1 << 22, min(LARGEST, last // 4 * 4))
    yield Probe("start", _ADD, ((8,), (8,)), _start)
    side = 1024 if machine.is_gpu else 192
    yield Probe("arithmetic", _PRODUCT, ((side, side), (side, side)), _clock)
    if machine.cores > 1 and not machine.is_gpu:
        yield Probe("hand-off", _PRODUCT, ((80, 80), (80, 80)), _handoff)
    for number, cache in enumerate(machine.caches[1:], 1):
        rows = max(16, min(_all_of(machine, cache) // 3, LARGEST) // 4096)
        yield Probe(f"L{cache.level}", _SUM, ((rows, 1024),), _cache(number))
    yield Probe("memory, reading", _SUM, ((many // 1024, 1024),), _read)
    yield Probe("memory, both ways", _ADD, ((many // 2,), (many // 2,)), _write)


def _all_of(machine: Machine, cache: Cache) -> int:
    """Bytes of a level in all cores that work together: what one core has holds a small part of a probe's data."""
    return cache.bytes * max(1, machine.cores // cache.shared)


def _start(machine: Machine, factor: float) -> Machine:
    return replace(machine, launch=replace(machine.launch, kernel=machine.launch.kernel * factor))


def _handoff(machine: Machine, factor: float) -> Machine:
    return replace(machine, launch=replace(machine.launch, handoff=machine.launch.handoff * factor))


def _clock(machine: Machine, factor: float) -> Machine:
    return replace(machine, clock_ghz=machine.clock_ghz / factor)


def _cache(number: int) -> Callable[[Machine, float], Machine]:
    def change(machine: Machine, factor: float) -> Machine:
        caches: list[Cache] = list(machine.caches)
        old = caches[number]
        caches[number] = replace(old, bandwidth=old.bandwidth / factor, write=old.write / factor)
        return replace(machine, caches=tuple(caches))

    return change


def _read(machine: Machine, factor: float) -> Machine:
    return _bandwidths(machine, lambda b: replace(b, read=b.read / factor))


def _write(machine: Machine, factor: float) -> Machine:
    return _bandwidths(machine, lambda b: replace(b, write=b.write / factor, non_temporal=b.non_temporal / factor))


def _bandwidths(machine: Machine, change: Callable[[Bandwidths], Bandwidths]) -> Machine:
    memory = machine.memory
    changed = replace(memory, one_core=change(memory.one_core), all_cores=change(memory.all_cores))
    return replace(machine, memory=changed)


# --- measuring ------------------------------------------------------------------------------------


def calibrate(device: Device, watch: Callable[[str], None] = lambda name: None) -> Calibration:
    """Measure `device`; probes that fail leave their numbers. `watch` is told what is measured next.

    TileDeviceError when the device runs nothing.
    """
    if not device.capabilities.executes:
        raise TileDeviceError(f"device {device.id} runs nothing, so nothing can be measured", code="TILE-E519")
    device.target = replace(device.target, machine=probed(device))
    found: list[tuple[Probe, Sequence[Block], float]] = []
    for probe in probes(device.target.machine):
        watch(probe.name)
        found.append((probe, *_timed(device, probe)))
    machine = fitted(device, found)
    return Calibration(machine, tuple(_measured(device, machine, *each) for each in found))


def _timed(device: Device, probe: Probe) -> tuple[Sequence[Block], float]:
    """(scheduled kernels, seconds of a typical run of all of them); no kernels where that fails."""
    from tile_runtime.measure import launches, totals

    try:
        low = _lowered(device, probe)
        steps = launches(low)
        runs = sorted(_runs(lambda: sum(totals(steps).values())))
    except (TileDeviceError, MemoryError):
        return (), float("inf")
    return [kernel.stripe for kernel in low.kernels.kernels], runs[len(runs) // TYPICAL]


def _runs(run: Callable[[], float]) -> Iterator[float]:
    """Seconds of run after run."""
    end = time.perf_counter() + LONG
    for number in count():
        if number >= ROUNDS and time.perf_counter() > end:
            return
        yield run()


def _lowered(device: Device, probe: Probe) -> Lowered:
    from tile_runtime.function import Function
    from tile_runtime.symbols import placeholder

    return Function(probe.source).lower(
        *(placeholder("float32", s, name="AB"[n]) for n, s in enumerate(probe.shapes)), device=device
    )


def fitted(device: Device, found: Sequence[tuple[Probe, Sequence[Block], float]]) -> Machine:
    """The device's machine, changed until it predicts what was measured, as far as each probe's own cause goes."""
    machine = device.target.machine
    factors: dict[str, float] = {}
    for probe, blocks, seconds in list(found) * TURNS:
        if not blocks:
            continue
        before = factors.get(probe.name, 1.0)
        at = partial(_changed, device, machine, probe, blocks)
        factor = _factor(at, seconds, MOST / before, 1 / MOST / before)
        machine = probe.change(machine, factor)
        factors[probe.name] = before * factor
    return machine


def _changed(device: Device, machine: Machine, probe: Probe, blocks: Sequence[Block], factor: float) -> float:
    return _predicted(device, probe.change(machine, factor), blocks)


def _factor(predicted: Callable[[float], float], seconds: float, most: float, least: float) -> float:
    """The factor nearest to 1 that brings the predicted time to `seconds`, or as near as it gets between the bounds."""
    grow = seconds > predicted(1.0)
    near, far = 1.0, most if grow else _reach(predicted, least)
    end = predicted(far)
    goal = min(seconds, end * (1 - FLAT)) if grow else max(seconds, end * (1 + FLAT))
    if (goal <= predicted(1.0)) is grow:
        return 1.0  # this number does not matter to the probe
    for _ in range(STEPS):
        middle = (near * far) ** 0.5
        if (predicted(middle) < goal) is grow:
            near = middle
        else:
            far = middle
    return far


def _reach(predicted: Callable[[float], float], least: float) -> float:
    """The least factor that still shows in the predicted time."""
    found, seconds = 1.0, predicted(1.0)
    while found * STEP >= least and predicted(found * STEP) < seconds * (1 - GRIP):
        found *= STEP
        seconds = predicted(found)
    return found


def _predicted(device: Device, machine: Machine, blocks: Sequence[Block]) -> float:
    """Seconds of all kernels of a probe."""
    from tile_opt.model.estimate import estimate

    target = replace(device.target, machine=machine)
    return sum(estimate(block, target).seconds for block in blocks)


def _measured(device: Device, machine: Machine, probe: Probe, blocks: Sequence[Block], seconds: float) -> Measured:
    before = _predicted(device, device.target.machine, blocks)
    return Measured(probe, seconds, before, _predicted(device, machine, blocks))
