"""A case made ready on a device, and whether a result is right."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import tile_runtime as tile
from classes import Case, Class, Work
from numpy.typing import NDArray
from rounds import Contestant
from rows import OURS

EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
REDUCED = 2.0**-10
"""Of float32 factors that matrix instructions round."""


class WrongResult(Exception):
    """A result differs from the reference by more than the dtype and the length of the sums allow."""


class NoPeer(Exception):
    """Nobody else can compute the case."""


@dataclass
class Ready(ABC):
    """A case on a device, whose parts are made when they are first asked for."""

    case: Case
    evaluator: tile.Evaluator

    @abstractmethod
    def given(self) -> Sequence[Any]:
        """Arrays or Tensors, in the order in which the work names them."""

    @abstractmethod
    def contestants(self, class_: Class) -> tuple[dict[str, Contestant], list[str]]:
        """Ours and the peers', each of which measures itself; and the peers that cannot, with why.

        Raises WrongResult when ours is wrong, and NoPeer.
        """

    @cached_property
    def inputs(self) -> Sequence[Any]:
        return self.given()

    @cached_property
    def outputs(self) -> Sequence[Any]:
        """Of one run of ours, always several."""
        made = self.run()
        return made if isinstance(made, tuple) else (made,)

    def run(self) -> Any:
        return self.evaluator(self.function, *self.inputs)

    @cached_property
    def function(self) -> Any:
        """The work's function, or that of its gradients."""
        work = self.case.work
        made = tile.Function(work.tile)
        return tile.vjp(made, wrt=work.gradients) if work.gradients else made

    @cached_property
    def lowered(self) -> tile.Lowered:
        return self.evaluator.lower(self.function, *self.inputs)

    @cached_property
    def compile_seconds(self) -> float:
        """From text to machine code, or to what the driver accepted."""
        start = time.perf_counter()
        _ = self.lowered.executable
        return time.perf_counter() - start

    @property
    def predicted(self) -> float | None:
        """Seconds of one run by the optimizer's model; None on devices that it has no model of."""
        return None

    @cached_property
    def moved(self) -> float:
        """Bytes that must move at least: every input and output once, unless the work says otherwise."""
        touched = self.case.work.touched
        return float(sum(a.nbytes for a in (*self.inputs, *self.outputs))) if touched is None else touched


def compared(who: str, work: Work, results: Sequence[NDArray[Any]], expected: Sequence[NDArray[Any]]) -> None:
    """Raises WrongResult."""
    for got, want in zip(results, expected, strict=True):
        if got.shape != want.shape:
            raise WrongResult(f"{who}: shape {got.shape}, expected {want.shape}")
        error = np.abs(got.astype(np.float64) - want).max(initial=0) / max(1e-30, np.abs(want).max(initial=0))
        judged(who, work, float(error), worst_case=who != OURS)


def judged(who: str, work: Work, error: float, *, reduced: bool = False, worst_case: bool = False) -> None:
    """Raises WrongResult when an error, relative to the largest result, is too large. `reduced` allows matrix instructions,
    `worst_case` what a sum taken one by one may lose: libraries add columns so."""
    allowed = tolerance(work, reduced, worst_case)
    if not error <= allowed:
        raise WrongResult(f"{who}: error {error:.2g}, allowed {allowed:.2g}")


def tolerance(work: Work, reduced: bool = False, worst_case: bool = False) -> float:
    """Largest error relative to the largest result: rounding of the dtype, and of float32 sums as they grow."""
    grown = work.length if worst_case else 2 * math.sqrt(work.length)
    rough = max(EPSILON.get(work.dtype_of(n), 0.0) for n in work.inputs)
    return 8 * max(rough, REDUCED if reduced else 0.0) + EPSILON["float32"] * (8 + grown)


def listed(result: Any) -> list[NDArray[Any]]:
    """One or several results of any library, as arrays."""
    parts: Sequence[Any] = result if isinstance(result, tuple | list) else (result,)
    return [np.asarray(p) for p in parts]
