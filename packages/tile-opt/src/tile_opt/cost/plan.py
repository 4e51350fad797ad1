"""What the optimizer decided for one kernel, as data that passes apply and `explain` prints."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tile_opt.schedule.segments import Segment


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
class Candidate:
    """A tile that a model evaluated: iterations of each tiled loop, and the predicted share of peak arithmetic."""

    tile: tuple[tuple[str, int], ...]
    rate: float
    verdict: str = ""
    """Why it was refused, where it was."""
    note: str = ""
    """What else tells it from other candidates."""


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
