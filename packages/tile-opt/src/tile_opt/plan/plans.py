"""What the optimizer decided for one kernel, as data that passes apply and `explain` prints."""

from __future__ import annotations

from dataclasses import dataclass

from tile_ir.matrix import MatrixInstruction


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
