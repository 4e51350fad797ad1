"""A case made ready: its arrays, our function and the peers', all checked against float64 before any clock starts."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import tile_runtime as tile
from classes.work import Case, Work
from numpy.typing import NDArray
from peers import PEERS, Arrays, Contestants, expression
from rounds import PAUSE, Contestant
from rows import OURS

SHORTEST = 3e-3
"""Seconds that one sample takes at least: shorter work is repeated, and its mean counts."""
HOPELESS = 2.0
"""A peer this many times slower than the best one at first sight is not measured further."""
SKIPPED = (ModuleNotFoundError, RuntimeError, NotImplementedError, TypeError)
"""What a peer raises that is missing or cannot express the case."""


class WrongResult(Exception):
    """Somebody's result differs from the reference by more than the dtype and the length of the sums allow."""


@dataclass
class Prepared:
    """A case whose parts are made when they are first asked for."""

    case: Case
    evaluator: tile.Evaluator

    @cached_property
    def arrays(self) -> Arrays:
        work, rng = self.case.work, np.random.default_rng(0)
        return [_array(work, name, rng) for name in work.inputs]

    @cached_property
    def function(self) -> tile.Function | tile.Derivative:
        work = self.case.work
        made = tile.Function(work.tile)
        return tile.vjp(made, wrt=work.gradients) if work.gradients else made

    @cached_property
    def lowered(self) -> tile.Lowered:
        return self.evaluator.lower(self.function, *self.arrays)

    @cached_property
    def compile_seconds(self) -> float:
        """From text to machine code."""
        start = time.perf_counter()
        _ = self.lowered.executable
        return time.perf_counter() - start

    @property
    def kernels(self) -> int:
        return len(self.lowered.kernels.kernels)

    @cached_property
    def reference(self) -> Sequence[NDArray[Any]]:
        """In float64, by a peer's expression."""
        wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in self.arrays]
        work = self.case.work
        if work.numpy and not work.gradients:
            return _listed(expression(work.numpy, work, np=np)(*wide))
        return _listed(next(iter(PEERS["torch"](work, wide).values()))())

    def run(self) -> Any:
        return self.evaluator(self.function, *self.arrays)

    def contestants(self, peers: Sequence[str]) -> tuple[dict[str, Contestant], list[str]]:
        """Ours and the promising peers', each of which measures itself; and the peers that were left out, with why.

        Raises WrongResult when ours is wrong.
        """
        self.check(OURS, self.run())
        found: dict[str, Callable[[], Any]] = {}
        missing: list[str] = []
        for name in peers:
            try:
                found |= self._right(PEERS[name](self.case.work, self.arrays))
            except (*SKIPPED, WrongResult) as problem:
                missing.append(f"{name}: {type(problem).__name__}")
        first = {name: _first(run) for name, run in found.items()}
        best = min(first.values(), default=math.inf)
        kept = {OURS: self.run} | {n: run for n, run in found.items() if first[n] <= HOPELESS * best}
        return {n: repeated(run, first.get(n)) for n, run in kept.items()}, missing

    def _right(self, made: Contestants) -> Contestants:
        for name, run in made.items():
            self.check(name, run())
        return made

    def check(self, who: str, result: Any) -> None:
        allowed = tolerance(self.case.work)
        for got, want in zip(_listed(result), self.reference, strict=True):
            if got.shape != want.shape:
                raise WrongResult(f"{who}: shape {got.shape}, expected {want.shape}")
            error = np.abs(got.astype(np.float64) - want).max(initial=0) / max(1e-30, np.abs(want).max(initial=0))
            if not error <= allowed:
                raise WrongResult(f"{who}: error {error:.2g}, allowed {allowed:.2g}")


def repeated(run: Callable[[], Any], once: float | None = None) -> Contestant:
    """Seconds of one run, from as many as one sample needs; before short ones, one warms what a pause cooled."""
    once = min(_seconds(run) for _ in range(3)) if once is None else once
    times = max(1, math.ceil(SHORTEST / max(1e-8, once)))

    def sample() -> float:
        if times > 1:
            run()
        start = time.perf_counter()
        for _ in range(times):
            run()
        return (time.perf_counter() - start) / times

    return sample


def tolerance(work: Work) -> float:
    """Largest error relative to the largest result: rounding of the dtype, and of float32 sums as they grow."""
    kinds = {np.dtype(work.dtype_of(n)) for n in work.inputs}
    rough = max((float(np.finfo(k).eps) for k in kinds if k.kind == "f"), default=0.0)
    return 8 * rough + float(np.finfo(np.float32).eps) * (8 + 2 * math.sqrt(work.length))


def bytes_moved(prepared: Prepared) -> float:
    """What must move at least: every input and every output once, unless the work says otherwise."""
    if prepared.case.work.touched is not None:
        return prepared.case.work.touched
    results = _listed(prepared.run())
    return float(sum(a.nbytes for a in (*prepared.arrays, *results)))


def _array(work: Work, name: str, rng: np.random.Generator) -> NDArray[Any]:
    shape, dtype = work.inputs[name], np.dtype(work.dtype_of(name))
    if dtype.kind == "f":
        return rng.standard_normal(shape, np.float32).astype(dtype)
    low, high = (0, work.highest.get(name, 100))
    return rng.integers(low, high, shape, dtype)


def _listed(result: Any) -> list[NDArray[Any]]:
    parts: Sequence[Any] = result if isinstance(result, tuple | list) else (result,)
    return [np.asarray(p) for p in parts]


def _seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _first(run: Callable[[], Any]) -> float:
    """Seconds at first sight, after other libraries' threads went to sleep."""
    time.sleep(PAUSE)
    return min(_seconds(run) for _ in range(3))
