"""A plan: every decision about how one kernel runs on one machine, as a value.

The same type serves processors, graphics processors and accelerators. `plan.text` prints and parses it,
`plan.build` makes scheduled Stripe of it, `model` says what that costs.
"""

from __future__ import annotations

from enum import Enum
from math import prod

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.stripe.nodes import Bind, Scope, Swizzle

TF32 = "tf32"
"""The dtype of a staging that the device rounds: float32 in which fewer bits count."""


@frozen
class Cover:
    """What one point of a level covers of a loop: `size` neighbouring iterations.

    With `stride` above 0 the iterations are dealt out: a point takes `size` of them in pieces of `stride`, and neighbouring
    points take neighbouring pieces, so that items of a group touch memory side by side.
    """

    loop: str
    size: int
    stride: int = 0


@frozen
class Level:
    """One level of the nest: its points are bound to `bind`, and step through the loops in this order, outermost first.

    A loop that a level does not name is covered as in the level outside it; outside all levels a point covers everything.
    `lanes` is the width of a vector level's registers, in elements.
    """

    bind: Bind
    covers: tuple[Cover, ...]
    lanes: int = 1
    ordered: bool = False
    """Points run one after the other, each seeing what the one before stored."""

    def cover(self, loop: str) -> Cover | None:
        return next((c for c in self.covers if c.loop == loop), None)


@frozen
class Staging:
    """A copy of what a level's point touches of one operand, kept in a nearer memory unit.

    `operand` names a buffer (or one of the kernel's own); accumulators and outputs are operands too. `level` is the number
    of the level, from 0: the copy is made once per point of it; -1 is before the kernel, in a kernel of its own, and what it
    copies is kept where nothing but constants moves it.
    """

    operand: str
    level: int
    unit: str
    """A unit of the machine: REG, LOCAL, an SRAM, or the level of cache that it is meant to stay in (L1, L2)."""
    order: tuple[str, ...] = ()
    """Loops of the copy's dimensions, outermost first (packing); empty keeps the operand's own dimensions.

    A result that has them is set in the copy, and stored from there."""
    scope: Scope = Scope.THREAD
    """Who shares the copy, and copies it together."""
    pad: int = 0
    """Elements added to each row, so that rows fall into different banks or sets."""
    swizzle: Swizzle | None = None
    versions: int = 1
    """Copies under way at once (software pipelining)."""
    dtype: str = ""
    """Converted to this dtype on the way; "" keeps the operand's. `TF32` rounds float32, by copies of a tensor's boxes."""

    def kept_as(self, own: DType) -> DType:
        """What elements of dtype `own` are in the copy."""
        return own if self.dtype in ("", TF32) else DType(self.dtype)


class Across(Enum):
    """What a reduction loop is split across."""

    SERIAL = "serial"
    LANES = "lanes"
    ITEMS = "items"
    GROUPS = "groups"
    """Of the grid: partial results are combined by a second kernel."""
    SCAN = "scan"
    """Every partial result is wanted: in order, or in blocks whose totals are scanned first."""


@frozen
class Reduction:
    """How partial results of a reduction loop are kept and combined, for any aggregation."""

    loop: str
    across: Across
    ways: int = 1
    """Partial results that are kept side by side for each cell (lanes times copies, items, or groups)."""


class Edge(Enum):
    """What happens where tiles do not divide a loop, or a constraint cuts it; none ever adds a contribution."""

    PEEL = "peel"
    """Smaller tiles, straight-line code of their own."""
    OVERLAP = "overlap"
    """The last tile reaches back and computes some cells twice, to the same values."""
    MASK = "mask"
    """Iterations past the end are skipped one by one, or lane by lane."""
    PAD = "pad"
    """The staged copy is filled up, and what is computed from the filling is not stored."""


@frozen
class Instruction:
    """The multiply-accumulate that does the innermost levels: its name in the machine's list, and the loop of each role."""

    name: str
    loops: tuple[tuple[str, str], ...] = ()
    """(role, loop): m, n and k of a matrix instruction."""


@frozen
class Plan:
    """All decisions for one kernel."""

    levels: tuple[Level, ...]
    stagings: tuple[Staging, ...] = ()
    reductions: tuple[Reduction, ...] = ()
    edges: tuple[tuple[str, Edge], ...] = ()
    instruction: Instruction | None = None
    reason: str = ""
    """Why this plan, in a few words."""

    def bound(self, *binds: Bind) -> tuple[Level, ...]:
        """The levels bound so, outermost first."""
        return tuple(level for level in self.levels if level.bind in binds)

    def tile(self, loop: str, level: int, extent: int) -> int:
        """Iterations of `loop` that one point of level number `level` covers; `extent` outside all levels."""
        sizes = (c.size for other in reversed(self.levels[: level + 1]) if (c := other.cover(loop)) is not None)
        return next(sizes, extent)

    def points(self, level: int, extents: dict[str, int]) -> int:
        """How many points level number `level` has within one point of the level outside it."""
        covers = self.levels[level].covers
        return prod(-(-self.tile(c.loop, level - 1, extents[c.loop]) // max(1, c.size)) for c in covers)

    def edge(self, loop: str) -> Edge:
        return next((edge for name, edge in self.edges if name == loop), Edge.PEEL)
