"""Measuring what a device does not say: rates and launch costs, by small programs whose time the model explains.

Each probe's time is mostly due to one number of the machine, which is changed until the predicted time is the measured
one. A number is kept where other programs, the trials, are then predicted better: so a calibration never makes
predictions of them worse. `tile_runtime.measuring.machines` keeps what was measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from math import inf, log
from typing import TYPE_CHECKING, Generic, TypeVar

from tile_hal.interfaces import Device
from tile_ir.diagnostics import TileDeviceError
from tile_ir.frozen import frozen
from tile_ir.machine import Machine

from tile_runtime.measuring.machines import probed
from tile_runtime.measuring.probing import Probe, Trial, probes, trials

if TYPE_CHECKING:
    from tile_ir.stripe.nodes import Block

    from tile_runtime.lowered import Lowered

Program = TypeVar("Program", bound=Trial, covariant=True)
MOST = 8.0
"""A number is changed by at most this factor: what seems to need more was disturbed, or is not what the model thinks."""
PASSES = 3
"""How often all programs are measured in turn: what disturbs a machine often lasts longer than one program."""
ROUNDS, LONG = 6, 0.03
"""Runs of each program in a pass at least, and seconds that short ones are repeated for."""
TYPICAL = 4
"""The run counts that one in so many is no slower than: the best of thousands is luck that few kernels have."""
TURNS = 2
"""How often the numbers are fitted, and judged: they depend on each other a little."""
STEPS = 10
"""Halvings of the interval of a factor."""
FLAT = 0.02
"""Share of the time below which a change does not count."""
STEP, GRIP = 0.8, 0.05
"""A number is made better step by step, as long as each step shortens the probe by this share: beyond that other causes
hide it, and what is left between prediction and measurement is theirs."""
SHARES = (1.0, 0.5, 0.0)
"""Of a number's change, as far as the trials bear it out."""
GAIN = 0.01
"""Share of the trials' error that a change must save."""


@frozen
class Timed(Generic[Program]):
    """A program's scheduled kernels and the seconds of a typical run of all of them; none, and infinite, where it failed."""

    program: Program
    blocks: Sequence[Block]
    seconds: float


@frozen
class Measured:
    """A program's time, and what was predicted before and after; `seconds` is infinite where it failed."""

    program: Trial
    seconds: float
    before: float
    after: float


@frozen
class Calibration:
    """The machine as measured, and the programs behind it."""

    machine: Machine
    probes: tuple[Measured, ...]
    trials: tuple[Measured, ...]


def calibrate(device: Device, watch: Callable[[str], None] = lambda name: None) -> Calibration:
    """Measure `device`; probes that fail leave their numbers. `watch` is told what is measured next.

    TileDeviceError when the device runs nothing.
    """
    if not device.capabilities.executes:
        raise TileDeviceError(f"device {device.id} runs nothing, so nothing can be measured", code="TILE-E519")
    device.target = replace(device.target, machine=probed(device))
    before = device.target.machine
    asked, judging = [*probes(before)], [*trials(before)]
    seconds = _timed(device, [*asked, *judging], watch)
    found = [Timed(p, *t) for p, t in zip(asked, seconds, strict=False)]
    judges = [Timed(p, *t) for p, t in zip(judging, seconds[len(asked) :], strict=True)]
    machine = judged(device, found, fitted(device, found), judges)
    results = (tuple(_measured(device, machine, t) for t in some) for some in (found, judges))
    return Calibration(machine, *results)


# --- measuring ------------------------------------------------------------------------------------


def _timed(
    device: Device, programs: Sequence[Trial], watch: Callable[[str], None]
) -> list[tuple[Sequence[Block], float]]:
    """(scheduled kernels, seconds of a typical run of all of them) of each program, the best of several passes."""
    ready: list[tuple[Sequence[Block], Callable[[], float]]] = []
    for program in programs:
        watch(program.name)
        ready.append(_prepared(device, program))
    best = [inf] * len(ready)
    for _ in range(PASSES):
        for n, (blocks, run) in enumerate(ready):
            watch(programs[n].name)
            best[n] = min(best[n], _typical(run)) if blocks else inf
    return [(blocks, best[n]) if 0 < best[n] < inf else ((), inf) for n, (blocks, _) in enumerate(ready)]


def _prepared(device: Device, program: Trial) -> tuple[Sequence[Block], Callable[[], float]]:
    """(scheduled kernels, what runs them all and says how long they took); no kernels where that fails."""
    from tile_runtime.measuring.measure import launches, totals

    try:
        low = _lowered(device, program)
        steps = launches(low)
    except (TileDeviceError, MemoryError):
        return (), lambda: inf
    return [kernel.stripe for kernel in low.kernels.kernels], lambda: sum(totals(steps).values())


def _typical(run: Callable[[], float]) -> float:
    try:
        runs = sorted(_runs(run))
    except (TileDeviceError, MemoryError):
        return inf
    return runs[len(runs) // TYPICAL]


def _runs(run: Callable[[], float]) -> Iterator[float]:
    """Seconds of run after run."""
    end = time.perf_counter() + LONG
    for number in count():
        if number >= ROUNDS and time.perf_counter() > end:
            return
        yield run()


def _lowered(device: Device, program: Trial) -> Lowered:
    from tile_runtime.function import Function
    from tile_runtime.symbols import placeholder

    return Function(program.source).lower(
        *(placeholder("float32", s, name="AB"[n]) for n, s in enumerate(program.shapes)), device=device
    )


# --- fitting --------------------------------------------------------------------------------------


def fitted(device: Device, found: Sequence[Timed[Probe]]) -> Mapping[str, float]:
    """By probe, the factor of its number with which it is predicted as measured, as far as its own cause goes."""
    machine = device.target.machine
    factors: dict[str, float] = {}
    for timed in list(found) * TURNS:
        if not timed.blocks:
            continue
        before = factors.get(timed.program.name, 1.0)
        at = partial(_changed, device, machine, timed)
        factor = _factor(at, timed.seconds, MOST / before, 1 / MOST / before)
        machine = timed.program.change(machine, factor)
        factors[timed.program.name] = before * factor
    return factors


def _changed(device: Device, machine: Machine, timed: Timed[Probe], factor: float) -> float:
    return _predicted(device, timed.program.change(machine, factor), timed.blocks)


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


def judged(
    device: Device, found: Sequence[Timed[Probe]], factors: Mapping[str, float], judges: Sequence[Timed[Trial]]
) -> Machine:
    """The device's machine with those changes, or halves of them, that make predictions of the trials better."""
    changes = [(t.program, factors[t.program.name]) for t in found if t.program.name in factors]
    running = [t for t in judges if t.blocks]
    shares = [0.0 if running else 1.0] * len(changes)
    least = _error(device, _with(device.target.machine, changes, shares), running)
    for n in list(range(len(changes))) * TURNS:
        for share in SHARES:
            tried = [*shares[:n], share, *shares[n + 1 :]]
            error = _error(device, _with(device.target.machine, changes, tried), running)
            if error < least * (1 - GAIN):
                shares, least = tried, error
    return _with(device.target.machine, changes, shares)


def _with(machine: Machine, changes: Sequence[tuple[Probe, float]], shares: Sequence[float]) -> Machine:
    for (probe, factor), share in zip(changes, shares, strict=True):
        machine = probe.change(machine, factor**share) if share else machine
    return machine


def _error(device: Device, machine: Machine, judges: Sequence[Timed[Trial]]) -> float:
    """How far predicted and measured times are apart: the mean of the logarithms of their ratios."""
    apart = [abs(log(_predicted(device, machine, t.blocks) / t.seconds)) for t in judges]
    return sum(apart) / max(1, len(apart))


def _predicted(device: Device, machine: Machine, blocks: Sequence[Block]) -> float:
    """Seconds of all kernels of a program."""
    from tile_opt.model.estimate import estimate

    target = replace(device.target, machine=machine)
    return sum(estimate(block, target).seconds for block in blocks)


def _measured(device: Device, machine: Machine, timed: Timed[Probe] | Timed[Trial]) -> Measured:
    before = _predicted(device, device.target.machine, timed.blocks)
    return Measured(timed.program, timed.seconds, before, _predicted(device, machine, timed.blocks))
