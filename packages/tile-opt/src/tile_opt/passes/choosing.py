"""Passes that decide by cost: whether to fuse kernels, tile them together, or recompute a value; each choice is recorded.

Each choice is kept with what it was made by: the two times of a forecast, or the reason why it was none.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from tile_ir.frozen import frozen
from tile_ir.stripe.nodes import Program
from tile_ir.target import Target

from tile_opt.kernel.view import KernelView
from tile_opt.passes.base import Pass

SIDE_BY_SIDE = "rows that lie side by side are put in order at once"
"""Why a sort has copies of rows as columns before it and behind it: it would take steps of a row in lanes, if any."""


class Chosen(StrEnum):
    """What became of a producer and its consumers."""

    FUSED = "fused"
    """One kernel, stage after stage."""
    TILED = "tiled"
    """One kernel, tile after tile."""
    INLINED = "inlined"
    """The consumers compute it where they read it."""
    APART = "apart"
    """Kernels of their own."""
    STORED = "stored"
    """Not inlined."""


@frozen
class Choice:
    """What was chosen for the kernels that compute `producer` and `consumer`, which name their results."""

    chosen: Chosen
    producer: str
    consumer: str
    together: float | None = None
    """Seconds, by a forecast: as one."""
    apart: float | None = None
    """Seconds, by a forecast: as kernels of their own."""
    reason: str = ""
    """Why, where no forecast was asked."""

    @property
    def key(self) -> tuple[str, str]:
        """A later choice for the same two takes the place of an earlier one."""
        return self.producer, self.consumer


@frozen
class Choices:
    """A rewritten program, and what was chosen on the way."""

    program: Program
    choices: tuple[Choice, ...]


@dataclass(frozen=True)
class ChoosingPass(Pass):
    """A pass that says what it chose."""

    @abstractmethod
    def choose(self, program: Program, target: Target) -> Choices:
        """The rewritten program: same results, structurally valid; and the choices, in order."""

    def apply(self, program: Program, target: Target) -> Program:
        return self.choose(program, target).program


def results(views: Iterable[KernelView]) -> str:
    """What kernels are called in a choice: by what they write."""
    return ", ".join(sorted({name for view in views for name in view.writes()}))
