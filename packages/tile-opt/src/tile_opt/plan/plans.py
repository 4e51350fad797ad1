"""What the optimizer decided for one kernel, as data that passes apply and `explain` prints."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import prod

from tile_ir.matrix import MatrixInstruction

from tile_opt.kernel.segments import Segment


class Role(Enum):
    """What a shared loop becomes inside a tile."""

    OUTER = "outer"
    UNROLL = "unroll"
    VECTOR = "vector"


@dataclass(frozen=True, slots=True)
class LoopPlan:
    """One shared loop: its tile segments (the flag marks edges), lanes, and tiles per work group."""

    name: str
    role: Role
    segments: tuple[tuple[Segment, bool], ...]
    lanes: int = 1
    chunk: int | None = None
    """Tile positions per work group; None when all positions are in each group."""

    @property
    def positions(self) -> int:
        return sum(s.count for s, _ in self.segments)

    @property
    def groups(self) -> int:
        return 1 if self.chunk is None else -(-self.positions // self.chunk)

    @property
    def tile(self) -> int:
        return max((s.size for s, _ in self.segments), default=1)


@dataclass(frozen=True, slots=True)
class RowPlan:
    """Vectorisation of a stage's own loop: `lanes` wide, `copies` vectors at a time."""

    stage: int
    loop: str
    lanes: int
    copies: int


@dataclass(frozen=True, slots=True)
class TilePlan:
    """Loops of a kernel in nest order (outermost first), and the stages vectorised along their own loops."""

    loops: tuple[LoopPlan, ...]
    rows: tuple[RowPlan, ...] = ()
    packed: tuple[str, ...] = ()
    """Operand buffers to copy into panels first."""
    efficiency: float = 0.0
    """Predicted share of peak arithmetic inside the main tile."""
    reason: str = ""

    def loop(self, role: Role) -> LoopPlan | None:
        return next((p for p in self.loops if p.role is role), None)


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
