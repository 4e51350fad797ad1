"""A case on the CPU: its arrays, our function and the peers', all checked against float64 before any clock starts."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import tile_runtime as tile
from classes import Case, Class, Work
from numpy.typing import NDArray
from peers import PEERS, Arrays, Contestants, expression
from rounds import PAUSE, Contestant
from rows import OURS

SHORTEST = 3e-3
"""Seconds that one sample takes at least: shorter work is repeated, and its mean counts."""
HOPELESS = 2.0
"""A peer this many times slower than the best one at first sight is not measured further."""
EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
REDUCED = 2.0**-10
"""Of float32 factors that matrix instructions round."""


class WrongResult(Exception):
    """A result differs from the reference by more than the dtype and the length of the sums allow."""


class NoPeer(Exception):
    """Nobody else can compute the case."""


@dataclass
class OnHost:
    """A case whose parts are made when they are first asked for."""

    case: Case
    evaluator: tile.Evaluator

    @cached_property
    def arrays(self) -> Arrays:
        work, rng = self.case.work, np.random.default_rng(0)
        return [_array(work, name, rng) for name in work.inputs]

    @cached_property
    def function(self) -> tile.Function | tile.Derivative:
        return tile_function(self.case.work)

    @cached_property
    def lowered(self) -> tile.Lowered:
        return self.evaluator.lower(self.function, *self.arrays)

    @cached_property
    def compile_seconds(self) -> float:
        """From text to machine code."""
        start = time.perf_counter()
        _ = self.lowered.executable
        return time.perf_counter() - start

    @cached_property
    def moved(self) -> float:
        """Bytes that must move at least."""
        touched = self.case.work.touched
        return float(sum(a.nbytes for a in (*self.arrays, *listed(self.run())))) if touched is None else touched

    @cached_property
    def reference(self) -> list[NDArray[Any]]:
        """In float64, by a peer's expression."""
        wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in self.arrays]
        work = self.case.work
        if work.numpy:
            return listed(expression(work.numpy, work, np=np)(*wide))
        return listed(next(iter(PEERS["torch"].contestants(work, wide).values()))())

    def run(self) -> Any:
        return self.evaluator(self.function, *self.arrays)

    def contestants(self, class_: Class) -> tuple[dict[str, Contestant], list[str]]:
        """Ours and the promising peers', each of which measures itself; and the peers that cannot, with why.

        Raises WrongResult when ours is wrong, and NoPeer.
        """
        compared(OURS, self.case.work, listed(self.run()), self.reference)
        found: dict[str, Callable[[], Any]] = {}
        missing: list[str] = []
        for name in class_.peers:
            try:
                found |= self._right(PEERS[name].contestants(self.case.work, self.arrays))
            except Exception as problem:  # noqa: BLE001 - a library that fails is named, and the others go on
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


def tile_function(work: Work) -> tile.Function | tile.Derivative:
    """The case's function, or that of its gradients."""
    made = tile.Function(work.tile)
    return tile.vjp(made, wrt=work.gradients) if work.gradients else made


def compared(
    who: str, work: Work, results: Sequence[NDArray[Any]], expected: Sequence[NDArray[Any]], *, reduced: bool = False
) -> None:
    """Raises WrongResult. `reduced` allows matrix instructions."""
    allowed = tolerance(work, reduced)
    for got, want in zip(results, expected, strict=True):
        if got.shape != want.shape:
            raise WrongResult(f"{who}: shape {got.shape}, expected {want.shape}")
        error = np.abs(got.astype(np.float64) - want).max(initial=0) / max(1e-30, np.abs(want).max(initial=0))
        if not error <= allowed:
            raise WrongResult(f"{who}: error {error:.2g}, allowed {allowed:.2g}")


def tolerance(work: Work, reduced: bool = False) -> float:
    """Largest error relative to the largest result: rounding of the dtype, and of float32 sums as they grow."""
    rough = max(EPSILON.get(work.dtype_of(n), 0.0) for n in work.inputs)
    return 8 * max(rough, REDUCED if reduced else 0.0) + EPSILON["float32"] * (8 + 2 * math.sqrt(work.length))


def repeated(run: Callable[[], Any]) -> Contestant:
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


def listed(result: Any) -> list[NDArray[Any]]:
    """One or several results of any library, as arrays."""
    parts: Sequence[Any] = result if isinstance(result, tuple | list) else (result,)
    return [np.asarray(p) for p in parts]


def _array(work: Work, name: str, rng: np.random.Generator) -> NDArray[Any]:
    shape, dtype = work.inputs[name], np.dtype(work.dtype_of(name))
    if dtype.kind == "f":
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
