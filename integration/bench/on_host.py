"""A case on the CPU: ours and the peers', all checked against float64 before any clock starts."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from classes import Class, Work
from contest import EPSILON, NoPeer, Ready, compared, listed
from numpy.typing import NDArray
from peers import PEERS, Arrays, Contestants, expression
from rounds import PAUSE, Contestant
from rows import OURS
from tile_ir.dtype import DType
from tile_ir.kernels import StepKind
from tile_opt.model.estimate import estimate

SHORTEST = 3e-3
"""Seconds that one sample takes at least: shorter work is repeated, and its mean counts."""
HOPELESS = 2.0
"""A peer this many times slower than the best one at first sight is not measured further."""


class OnHost(Ready):
    """A case for the CPU and the libraries on it."""

    def given(self) -> Arrays:
        work, rng = self.case.work, np.random.default_rng(0)
        return [_array(work, name, rng) for name in work.inputs]

    @property
    def predicted(self) -> float:
        """Of all launches, one after the other."""
        kernels, target = self.lowered.kernels, self.evaluator.device.target
        once = [estimate(kernel.stripe, target).seconds for kernel in kernels.kernels]
        return sum(once[step.kernel] for step in kernels.steps if step.kind is StepKind.KERNEL)

    @cached_property
    def reference(self) -> list[NDArray[Any]]:
        """In float64, by a peer's expression."""
        wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in self.inputs]
        work = self.case.work
        if work.numpy:
            return listed(expression(work.numpy, work, np=np)(*wide))
        return listed(next(iter(PEERS["torch"].contestants(work, wide).values()))())

    def contestants(self, class_: Class) -> tuple[dict[str, Contestant], list[str]]:
        """Peers that look hopeless at first sight are left out."""
        compared(OURS, self.case.work, self.outputs, self.reference)
        found: dict[str, Callable[[], Any]] = {}
        missing: list[str] = []
        for name in class_.peers:
            try:
                found |= self._right(PEERS[name].contestants(self.case.work, self.inputs))
            except Exception as problem:
                missing.append(f"{name}: {type(problem).__name__}")
        if not found:
            raise NoPeer(", ".join(missing))
        first = {name: _first(run) for name, run in found.items()}
        best = min(first.values())
        kept = {OURS: self.run} | {n: run for n, run in found.items() if first[n] <= HOPELESS * best}
        return {n: repeated(run) for n, run in kept.items()}, missing

    def _right(self, made: Contestants) -> Contestants:
        for name, run in made.items():
            compared(name, self.case.work, listed(run()), self.reference)
        return made


def repeated(run: Callable[[], Any]) -> Callable[[], float]:
    """Seconds of one run, from as many as one sample needs; before short ones, one warms what a pause cooled."""
    once = min(_seconds(run) for _ in range(3))
    times = max(1, math.ceil(SHORTEST / max(1e-8, once)))

    def sample() -> float:
        if times > 1:
            run()
        start = time.perf_counter()
        for _ in range(times):
            run()
        return (time.perf_counter() - start) / times

    return sample


def _array(work: Work, name: str, rng: np.random.Generator) -> NDArray[Any]:
    shape, dtype = work.inputs[name], DType(work.dtype_of(name)).numpy
    if work.dtype_of(name) in EPSILON:
        return rng.standard_normal(shape, np.float32).astype(dtype)
    return rng.integers(0, work.highest.get(name, 100), shape, dtype)


def _first(run: Callable[[], Any]) -> float:
    """Seconds at first sight, after other libraries' threads went to sleep."""
    time.sleep(PAUSE)
    return min(_seconds(run) for _ in range(3))


def _seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
