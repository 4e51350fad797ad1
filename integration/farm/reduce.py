"""A failing case made minimal by itself: whatever can go, and leaves the same symptom, goes.

The program first (statements, outputs, indexes, sizes, dtypes), then the plan, the passes, the machine and the threads; and
again from the beginning until nothing more can go, or the time is over.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import tile_hal
from tile_ir.diagnostics import TileError
from tile_opt.plan.plan import Plan
from tile_opt.plan.text import parse_plans, print_plans

from farm import machines
from farm.failures import Failure, Symptom, symptom
from farm.judge import Trial
from farm.sample import Sample
from farm.shrink import families
from farm.ways import Way

Family = Callable[[Failure], Iterator[Failure]]
Probe = Callable[[Sample, Way], Symptom | None]
"""How a case fails; None when it does not, or is no case at all."""


def reduce(failure: Failure, probe: Probe, seconds: float = 60.0) -> Failure:
    """The smallest case found with the same symptom."""
    failure = replace(failure, way=replace(failure.way, again=False))
    search = _Search(failure, probe, time.monotonic() + seconds)
    search.tries(_with_plans_as_text(failure))
    while search.round():
        pass
    return search.best


@dataclass
class _Search:
    best: Failure
    probe: Probe
    end: float

    def round(self) -> bool:
        """Take what can go of each family in turn; whether anything went."""
        before = self.best
        for family in FAMILIES:
            while any(self.tries(c) for c in family(self.best)):
                pass
        return self.best is not before and time.monotonic() < self.end

    def tries(self, case: Failure) -> bool:
        """Whether the case fails in the same way: then it is the best one."""
        if time.monotonic() > self.end:
            return False
        seen = self.probe(case.sample, case.way)
        if seen is None or seen.signature != self.best.symptom.signature:
            return False
        self.best = replace(case, symptom=seen)
        return True


def _with_plans_as_text(failure: Failure) -> Failure:
    sample, way = failure.sample, failure.way
    with suppress(Exception):
        device = tile_hal.device("interp" if way.backend == "stripe" else way.backend)
        text = Trial(sample).plans(way, machines.target(way.machine, way.passes, device))
        return replace(failure, way=replace(way, plans=text))
    return failure


# --- ways ------------------------------------------------------------------------------------------------


def _quicker(way: Way) -> Iterator[Way]:
    if way.backend not in ("stripe", "differences") and way.form == "compiled":
        yield replace(way, backend="stripe")
    if way.threads > 1:
        yield replace(way, threads=1, again=False)
    if way.cache != "off":
        yield replace(way, cache="off")
    if way.form == "composed":
        yield replace(way, form="called")


def _simpler_ways(way: Way) -> Iterator[Way]:
    if way.plans:
        yield replace(way, plans="")
        yield from (replace(way, plans=text) for text in _simpler_plans(way.plans))
    if way.passes is not None:
        yield replace(way, passes=None)
    own = machines.MACHINES[way.machine][1] if way.machine in machines.MACHINES and way.form == "compiled" else ()
    names = own if way.passes is None else way.passes
    for at in range(len(names)):
        yield replace(way, passes=(*names[:at], *names[at + 1 :]))


def _simpler_plans(text: str) -> Iterator[str]:
    try:
        plans = dict(parse_plans(text))
    except TileError:
        return
    for name, plan in plans.items():
        if len(plans) > 1:
            yield str(print_plans({n: p for n, p in plans.items() if n != name}))
        for less in _simpler_plan(plan):
            yield str(print_plans({**plans, name: less}))


def _simpler_plan(plan: Plan) -> Iterator[Plan]:
    for field in ("levels", "stagings", "reductions", "edges"):
        parts = getattr(plan, field)
        for at in range(len(parts)):
            yield replace(plan, **{field: (*parts[:at], *parts[at + 1 :])})


def _of_samples(family: Callable[[Sample], Iterator[Sample]]) -> Family:
    return lambda failure: (replace(failure, sample=sample) for sample in family(failure.sample))


def _of_ways(family: Callable[[Way], Iterator[Way]]) -> Family:
    return lambda failure: (replace(failure, way=way) for way in family(failure.way))


FAMILIES: Sequence[Family] = (_of_ways(_quicker), *map(_of_samples, families()), _of_ways(_simpler_ways))
"""What may go, in the order in which it is tried."""


# --- probes ----------------------------------------------------------------------------------------------


def tried(sample: Sample, way: Way) -> Symptom | None:
    """Run a case in this process."""
    trial = Trial(sample)
    try:
        trial.sample.expected  # noqa: B018 - the reference refuses what means nothing
    except Exception:
        return None
    try:
        trial.check(way)
    except Exception as problem:
        return symptom(problem)
    return None


def forked(deadline: float = 60.0, probe: Probe = tried) -> Probe:
    """Run each case in a child with as many threads as the case says, which may crash or hang."""

    def run(sample: Sample, way: Way) -> Symptom | None:
        out, into = os.pipe()
        with tempfile.TemporaryDirectory(prefix="farm") as folder:
            pid = os.fork()
            if pid == 0:
                _answer(probe, sample, way, into, folder)
            os.close(into)
            return _answered(pid, out, deadline)

    return run


def _answer(probe: Probe, sample: Sample, way: Way, pipe: int, folder: str) -> None:
    try:
        os.environ |= {"TILE_NUM_THREADS": str(way.threads), "TILE_CACHE_DIR": folder}
        if way.cache == "warm":
            probe(sample, replace(way, cache="cold"))
        with open(pipe, "wb") as stream:
            stream.write(pickle.dumps(probe(sample, way)))
    finally:
        os._exit(0)


def _answered(pid: int, pipe: int, deadline: float) -> Symptom | None:
    end, data = time.monotonic() + deadline, b""
    try:
        while True:
            ready, _, _ = select.select([pipe], [], [], max(0.0, end - time.monotonic()))
            piece = os.read(pipe, 1 << 16) if ready else None
            if not piece:
                break
            data += piece
    finally:
        os.close(pipe)
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    if piece is None:
        return Symptom("hang", "", "no end")
    code = os.waitstatus_to_exitcode(status)
    return pickle.loads(data) if data else Symptom("crash", "", f"exit status {code}")
