"""Measuring drawn kernels, and the plans of each, into a recording: several processes compile beside each other, one at a time runs.

Runs that the system interrupts do not count, as far as others are not. Kernels whose two fastest rounds differ by more than
a tenth are measured again, up to sixteen rounds. All that is done by several sets of processes, one after the other, and the
fastest round counts: where a process's memory lies decides, too.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from resource import RUSAGE_SELF, getrusage

import tile_runtime as tile
from classes import Class, Work, named
from classes.cpu import CLASSES as ON_HOST
from classes.gpu import CLASSES as ON_GPU
from recorded import Key, Recording, Run, agree, append, begin, read
from tile_hal.interfaces import Device
from tile_ir.diagnostics import TileError
from tile_ir.stripe.nodes import Block
from tile_ir.stripe.printer import print_block
from tile_ir.target import Target
from tile_opt.kernel.view import open_kernel
from tile_opt.passes import create
from tile_opt.passes.scheduling import SchedulingPass
from tile_opt.plan.text import print_plans
from tile_runtime.lowered import Lowered
from tile_runtime.measuring import calibration
from tile_runtime.measuring.measure import Launch, launches
from tile_runtime.measuring.tuning import Trial, measure

LONGEST, ELEMENTS = 0.05, 2e7
"""Seconds, by a rough count, and elements of all inputs beyond which a case is left out: noise grows with them."""
ROUNDS, LATER = 5, 6
"""Runs of a kernel when its case is drawn, and again with each of so many further cases: what disturbs a machine often lasts longer
than one kernel. The best run counts."""
MOST = 16
"""Rounds after which a kernel whose rounds do not agree is left as it is."""
Alone = AbstractContextManager[object]
"""Held while the device runs."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a recording shall hold."""

    path: Path
    device: str
    seed: int
    """What shapes are drawn from."""
    points: int
    """Kernels by themselves."""
    orders: int
    """Kernels whose plans are measured."""
    plans: int
    """Most plans of each of them, drawn evenly from all that are weighed."""
    seconds: float
    """No case begins after so long."""
    jobs: int
    """Processes that compile beside each other."""
    sets: int
    """Of processes that measure all kernels, one after the other."""
    calibrate: bool
    """Measure the device first."""


def record(wanted: Wanted) -> Recording:
    """What the file holds and what is still wanted, measured now."""
    end = time.time() + wanted.seconds
    begin(wanted.path, _target(wanted))
    for number in range(wanted.sets):
        context, shares = get_context("spawn"), _shares(wanted, number > 0, end)
        with ProcessPoolExecutor(wanted.jobs, context, initializer=_hold, initargs=(context.Lock(),)) as pool:
            list(pool.map(_work, shares))
    return read(wanted.path)


def _target(wanted: Wanted) -> Target:
    """The target that all is compiled for: that of the recording, where it has begun."""
    if wanted.path.exists() and wanted.path.stat().st_size:
        return read(wanted.path).target
    device = tile.device(wanted.device)
    machine = calibration.calibrate(device).machine if wanted.calibrate else device.target.machine
    return replace(device.target, machine=machine)


@dataclass(frozen=True, slots=True)
class Share:
    """What one of several processes does."""

    wanted: Wanted
    number: int
    points: int
    orders: int
    again: bool
    """Measure what is there once more instead of something new."""
    end: float
    """By the clock, when no case begins any more."""


def _shares(wanted: Wanted, again: bool, end: float) -> list[Share]:
    """What is still wanted, in equal parts."""
    found = read(wanted.path)
    points, orders = wanted.points - len(found.points), wanted.orders - len(found.orders)
    points, orders = (0, 0) if again else (max(0, -(-n // wanted.jobs)) for n in (points, orders))
    return [Share(wanted, number, points, orders, again, end) for number in range(wanted.jobs)]


def _hold(lock: Alone) -> None:
    """In a process of several: what it holds while the device runs."""
    _held.append(lock)


_held: list[Alone] = []


def _work(share: Share) -> None:
    found = read(share.wanted.path)
    device = tile.device(share.wanted.device)
    device.target = found.target
    recorder = _Recorder(share.wanted.path, share.wanted.plans, _held[0], set(found.runs))
    drawn = found.cases.items() if share.again else _drawn(device.target, share.wanted.seed)
    for case, class_ in islice(drawn, share.number, None, share.wanted.jobs):
        enough = recorder.points >= share.points and recorder.orders >= share.orders and not share.again
        if enough or time.time() > share.end:
            break
        if share.again or case not in found.cases:
            recorder.case(class_, case, device, orders=recorder.orders < share.orders)
    recorder.end()


def _classes(target: Target) -> Mapping[str, Class]:
    return ON_GPU if target.machine.is_gpu else ON_HOST


def _drawn(target: Target, seed: int) -> Iterator[tuple[str, str]]:
    """(case, class) in turn from every class, without those that take long."""
    rate = 1e12 if target.machine.is_gpu else 2e10 * target.machine.cores
    drawn = {n: c.cases(n, seed) for n, c in _classes(target).items() if not n.startswith("calls")}
    while True:
        for name, cases in drawn.items():
            case = next(cases)
            if not (case.work.operations > rate * LONGEST or case.work.elements > ELEMENTS or case.work.gradients):
                yield case.name, name


def _lowered(work: Work, device: Device, reduced: bool) -> Lowered:
    inputs = [tile.placeholder(work.dtype_of(n), shape, name=n) for n, shape in work.inputs.items()]
    return tile.Evaluator(device, reduced_precision=reduced).lower(tile.Function(work.tile), *inputs)


@dataclass(slots=True)
class _Recorder:
    """Measures cases one after the other, those before once more with each."""

    path: Path
    plans: int
    alone: Alone
    known: set[Key]
    """Runs whose Stripe the file has."""
    points: int = 0
    orders: int = 0
    watched: deque[list[_Running]] = field(default_factory=deque[list["_Running"]])
    """The kernels of the last cases."""

    def case(self, class_: str, name: str, device: Device, orders: bool) -> None:
        """Measure the kernels of a case, and with `orders` their plans; one that cannot be compiled is told of."""
        try:
            low = _lowered(named(name).work, device, _classes(device.target)[class_].reduced)
            with self.alone:
                self._kernels(class_, name, low)
            if orders:
                self._orders(class_, name, low)
        except TileError as problem:
            print(f"{name}: {str(problem).splitlines()[0]}", flush=True)

    def end(self) -> None:
        """The last rounds of all that is still watched."""
        with self.alone:
            while self.watched:
                self._settle()

    def _kernels(self, class_: str, name: str, low: Lowered) -> None:
        self.watched.append(list(_started(class_, name, low)))
        self.points += len(self.watched[-1])
        for running in (r for case in self.watched for r in case):
            self._add(running.measure())
        if len(self.watched) > LATER:
            self._settle()

    def _settle(self) -> None:
        """The rounds of the oldest that it takes until two agree."""
        for running in self.watched.popleft():
            while not agree(running.rounds) and len(running.rounds) < MOST:
                self._add(running.measure())

    def _orders(self, class_: str, name: str, low: Lowered) -> None:
        tried = [_tried(class_, name, t, low.target) for t in self._trials(low) if t.measured]
        self.orders += len({run.kernel for run in tried})
        with self.alone:
            for run in tried:
                self._add(run)

    def _trials(self, low: Lowered) -> tuple[Trial, ...]:
        return measure(low, self.plans, alone=self.alone, spread=True).trials

    def _add(self, run: Run) -> None:
        append(self.path, replace(run, blocks=()) if run.key in self.known else run)
        self.known.add(run.key)


@dataclass(slots=True)
class _Running:
    """A kernel that may be measured again, by itself."""

    run: Run
    launch: Launch
    rounds: tuple[float, ...] = ()

    def measure(self) -> Run:
        """One more round, as a line for the recording."""
        self.rounds = (*self.rounds, _round(self.launch))
        return replace(self.run, rounds=self.rounds[-1:])


def _round(launch: Launch) -> float:
    """The fastest of some runs, without those during which the system gave a processor of ours to somebody else."""
    free, others = list[float](), list[float]()
    for _ in range(ROUNDS):
        before = getrusage(RUSAGE_SELF).ru_nivcsw
        seconds = launch.seconds()
        (free if getrusage(RUSAGE_SELF).ru_nivcsw == before else others).append(seconds)
    return min(free or others)


def _started(class_: str, case: str, low: Lowered) -> Iterator[_Running]:
    """Each kernel of a case once."""
    kernels = {kernel.stripe.name: kernel.stripe for kernel in low.kernels.kernels}
    for launch in launches(low):
        if (kernel := kernels.pop(launch.kernel, None)) is not None:
            yield _Running(Run(class_, case, launch.kernel, "", (print_block(kernel),), ()), launch)


def _tried(class_: str, case: str, trial: Trial, target: Target) -> Run:
    """A plan that was run, of a kernel and of those that are equal to it."""
    first = trial.kernels[0]
    built = first.scheduler.build(first.view, trial.plan, target)
    blocks = [print_block(_scheduled(b, target)) for b in (built.kernel, *built.before, *built.after)]
    text = print_plans({trial.kernel: trial.plan})
    return Run(class_, case, trial.kernel, text, tuple(blocks), (trial.seconds,), len(trial.kernels))


def _scheduled(block: Block, target: Target) -> Block:
    """A kernel; one in normal form, which a plan added, as the target's last pass of that kind schedules it."""
    view, passes = open_kernel(block), map(create, reversed(target.passes))
    last = next(p for p in passes if isinstance(p, SchedulingPass))
    chosen = last.choose(view, target) if view is not None else None
    return block if chosen is None else chosen[1].kernel
