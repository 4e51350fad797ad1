"""What the optimizer decided for one kernel, as data that passes apply and `explain` prints."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tile_ir.matrix import MatrixInstruction


@dataclass(frozen=True, slots=True)
class GroupTile:
    """One shared loop within a group: `items` work items, each with `each` iterations.

    `pieces` of four iterations alternate between items when `interleaved`; otherwise an item's are in a row.
    """

    loop: str
    items: int
    each: int
    interleaved: bool = False

    @property
    def size(self) -> int:
        return self.items * self.each


@dataclass(frozen=True, slots=True)
class StagePlan:
    """A contraction staged through local memory: tiles of shared loops, and the step of the reduction."""

    tiles: tuple[GroupTile, ...]
    """Outermost first; the last one is contiguous in the output."""
    reduction: str
    """The own loop that is cut into steps."""
    step: int
    window: tuple[str, ...]
    """Own loops that run completely within each step."""

    @property
    def items(self) -> int:
        return prod(t.items for t in self.tiles)

    def tile(self, loop: str) -> GroupTile | None:
        return next((t for t in self.tiles if t.loop == loop), None)


@dataclass(frozen=True, slots=True)
class Roles:
    """Which loops and operands of a contraction are those of ``c[m, n] += a[m, k] * b[k, n]``."""

    instruction: MatrixInstruction
    rows: str
    columns: str
    reduction: str
    left: str
    """Local name of the operand with rows."""
    right: str


@dataclass(frozen=True, slots=True)
class WarpTile:
    """Warps along rows and columns of a group's tile, and the instruction's tiles of each warp."""

    down: int
    across: int
    tall: int
    wide: int
    rate: float
    """Share of the best tile's rate when every multiprocessor is busy."""
    resident: int
    """Groups that a multiprocessor holds at once."""


@dataclass(frozen=True, slots=True)
class TensorPlan:
    """A contraction on matrix instructions: the warps' tiles, the step of the reduction, and copies under way."""

    roles: Roles
    shape: WarpTile
    step: int
    stages: int
    """Steps whose operands are in local memory at once."""

    @property
    def warps(self) -> int:
        return self.shape.down * self.shape.across

    @property
    def warp_rows(self) -> int:
        return self.shape.tall * self.roles.instruction.shape[0]

    @property
    def warp_columns(self) -> int:
        return self.shape.wide * self.roles.instruction.shape[1]

    @property
    def rows(self) -> int:
        """Rows of a group's tile."""
        return self.shape.down * self.warp_rows

    @property
    def columns(self) -> int:
        return self.shape.across * self.warp_columns
