"""Worker processes that may crash or hang: each is forked for a run of numbers, and says what it is at.

The parent has the packages imported and no threads, so that a child costs milliseconds; a child has as many threads as the
numbers say. A child that ends early, or says nothing for too long, has failed at what it said last; the next child goes on
behind it.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any

from tile_ir.diagnostics import TileError

from farm.draw import draw
from farm.failures import Failure, Symptom, symptom
from farm.judge import Trial
from farm.sample import Sample
from farm.ways import THREADS, Way, ways

BATCH = 50
"""Numbers that one child tries."""
Say = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Job:
    """What a child does: programs from `first` to before `stop`."""

    seed: int
    first: int
    stop: int
    backends: tuple[str, ...]

    @property
    def threads(self) -> int:
        """Threads of processors: the same for a whole batch."""
        return Random(f"threads {self.seed}/{self.first // BATCH}").choice(THREADS)


def cases(job: Job, number: int) -> tuple[Sample | None, list[Way]]:
    """A program and the configurations that it is tried under."""
    sample = draw(job.seed, number)
    if sample is None:
        return None, []
    return sample, [*ways(sample, Random(f"ways {job.seed}/{number}"), job.threads, job.backends)]


def attempt(job: Job, number: int, say: Say) -> None:
    """Try one program in every way; `say` hears of each step, of each failure, and of the counts at the end."""
    counts: Counter[str] = Counter()
    say({"at": number, "way": -1})
    try:
        sample, several = cases(job, number)
        trial = None if sample is None else Trial(sample)
        if trial is not None:
            trial.sample.expected  # noqa: B018 - the reference refuses what cannot be run
    except (TileError, ImportError):
        # Nobody can run it here: a mutated source, or a dtype that NumPy has only with an extra package.
        trial, several = None, []
    except Exception as problem:
        say({"failure": asdict(symptom(problem)), "way": -1, "at": number})
        return
    if trial is None:
        counts["refused before it ran"] += 1
    for k, way in enumerate(several):
        say({"at": number, "way": k})
        counts[_tried(trial, way, k, number, say)] += 1
    say({"counts": counts})


def _tried(trial: Trial | None, way: Way, k: int, number: int, say: Say) -> str:
    assert trial is not None
    try:
        return f"{trial.check(way).value}: {way.kind}: {trial.sample.kind}: {trial.sample.order}"
    except Exception as problem:
        say({"failure": asdict(symptom(problem)), "way": k, "at": number})
        return f"failed: {way.kind}: {trial.sample.kind}: {trial.sample.order}"


# --- children ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class Child:
    """A running worker."""

    job: Job
    pid: int
    pipe: int
    folder: str
    at: int
    way: int = -1
    heard: float = field(default_factory=time.monotonic)
    rest: bytes = b""


def start(job: Job) -> Child:
    """Fork a child for a job; it caches in a folder of its own."""
    folder = tempfile.mkdtemp(prefix="farm")
    out, into = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        _run(job, into, folder)
    os.close(into)
    os.set_blocking(out, False)
    return Child(job, pid, out, folder, job.first)


def _run(job: Job, pipe: int, folder: str) -> None:
    """The child's life."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        warnings.simplefilter("ignore")
        os.environ |= {"TILE_NUM_THREADS": str(job.threads), "TILE_CACHE_DIR": folder}
        with open(pipe, "wb", buffering=0) as stream:
            for number in range(job.first, job.stop):
                attempt(job, number, lambda said: _write(stream, said))
            _write(stream, {"end": True})
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _write(stream: Any, said: dict[str, Any]) -> None:
    stream.write(json.dumps(said).encode() + b"\n")


def finish(child: Child) -> int:
    """Kill what is left of it, and give its exit status (negative: the signal that ended it)."""
    with suppress(ProcessLookupError):
        os.kill(child.pid, signal.SIGKILL)
    _, status = os.waitpid(child.pid, 0)
    os.close(child.pipe)
    shutil.rmtree(child.folder, ignore_errors=True)
    return os.waitstatus_to_exitcode(status)


def heard(child: Child) -> Iterator[dict[str, Any]]:
    """What the child has said since it was last asked; {"gone": True} when its pipe is closed."""
    with suppress(BlockingIOError):
        data = os.read(child.pipe, 1 << 16)
        child.heard = time.monotonic()
        *lines, child.rest = (child.rest + data).split(b"\n")
        for line in lines:
            said = json.loads(line)
            child.at, child.way = said.get("at", child.at), said.get("way", child.way)
            yield said
        if not data:
            yield {"gone": True}


# --- the farm ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Harvest:
    """What was counted and what failed."""

    counts: Counter[str] = field(default_factory=Counter[str])
    failures: list[Failure] = field(default_factory=list[Failure])
    programs: int = 0
    seconds: float = 0.0

    def total(self, verdict: str) -> int:
        return sum(n for key, n in self.counts.items() if key.startswith(verdict))


@dataclass
class Farm:
    """Children in so many places until the time is over, or all numbers are tried."""

    seed: int
    backends: Sequence[str]
    jobs: int = 1
    seconds: float = 60.0
    first: int = 0
    stop: int = 1 << 40
    deadline: float = 120.0
    """Seconds that a child may be silent: no case takes so long."""
    tell: Callable[[Harvest], None] = lambda _: None

    def run(self) -> Harvest:
        """Everything that was tried; interrupting it ends it early."""
        self.harvest, self.next = Harvest(), self.first
        self.children: list[Child] = []
        self.selector = selectors.DefaultSelector()
        began = time.monotonic()
        try:
            while (time.monotonic() - began < self.seconds and self.next < self.stop) or self.children:
                late = time.monotonic() - began > self.seconds
                self._fill(late)
                if late:
                    break
                self._listen()
                self.harvest.seconds = time.monotonic() - began
                self.tell(self.harvest)
        except KeyboardInterrupt:
            pass
        finally:
            for child in self.children:
                finish(child)
        self.harvest.seconds = time.monotonic() - began
        return self.harvest

    def _fill(self, late: bool) -> None:
        while not late and len(self.children) < self.jobs and self.next < self.stop:
            stop = min((self.next // BATCH + 1) * BATCH, self.stop)
            self._start(Job(self.seed, self.next, stop, tuple(self.backends)))
            self.next = stop

    def _start(self, job: Job) -> None:
        child = start(job)
        self.children.append(child)
        self.selector.register(child.pipe, selectors.EVENT_READ, child)

    def _listen(self) -> None:
        for key, _ in self.selector.select(1.0):
            for said in heard(key.data):
                self._hear(key.data, said)
        for child in [c for c in self.children if time.monotonic() - c.heard > self.deadline]:
            self._gone(child, "hang")

    def _hear(self, child: Child, said: dict[str, Any]) -> None:
        if "counts" in said:
            self.harvest.counts.update(said["counts"])
            self.harvest.programs += 1
        elif "failure" in said:
            self._failed(child, Symptom(**said["failure"]))
        elif "end" in said or "gone" in said:
            self._gone(child, "" if "end" in said else "crash")

    def _gone(self, child: Child, kind: str) -> None:
        if child not in self.children:
            return
        self.selector.unregister(child.pipe)
        self.children.remove(child)
        status = finish(child)
        if not kind:
            return
        self._failed(child, Symptom(kind, "", f"exit status {status}" if kind == "crash" else "no end"))
        if child.at + 1 < child.job.stop:
            job = child.job
            self._start(Job(job.seed, child.at + 1, job.stop, job.backends))

    def _failed(self, child: Child, found: Symptom) -> None:
        try:
            sample, several = cases(child.job, child.at)
        except Exception:
            sample, several = None, []
        sample = sample or Sample("function (A) -> (B) { B = A; }", {}, kind="drawing failed")
        way = several[child.way] if child.way >= 0 else Way("reference")
        self.harvest.failures.append(Failure(child.job.seed, child.at, sample, way, found))
