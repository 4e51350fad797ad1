"""What is ranked: tiles of a kernel, of its shares, and of the kernel on copies of its factors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tile_opt.kernel.view import KernelView
from tile_opt.plan.panels import Panels
from tile_opt.plan.plan import Plan, Staging
from tile_opt.plan.space.gpu.copied import with_copies
from tile_opt.plan.space.tensor.later import Later
from tile_opt.plan.space.tensor.shares import Shared
from tile_opt.plan.space.tensor.tile import Tile


@dataclass(frozen=True)
class Copies:
    """A kernel on copies of its factors, and the seconds that making them takes."""

    view: KernelView
    stagings: tuple[Staging, ...]
    panels: tuple[Panels, ...]
    seconds: float

    def of(self, found: Iterable[Ranked | Later[Ranked]]) -> Iterator[CopiedTile | Later[CopiedTile]]:
        """Tiles of the kernel on copies, as those of the kernel that has none."""
        for tile in found:
            match tile:
                case Later():
                    yield Later(tile.seconds + self.seconds, lambda later=tile: self.of(later.made))
                case Tile() | Shared():
                    yield CopiedTile(tile, self)
                case CopiedTile():
                    yield tile


@dataclass(frozen=True)
class CopiedTile:
    """A tile of the kernel on copies."""

    tile: Tile | Shared
    copies: Copies

    @property
    def seconds(self) -> float:
        return self.tile.seconds + self.copies.seconds

    @property
    def may_be_built(self) -> bool:
        return self.tile.may_be_built

    def plan(self) -> Plan:
        """The plan of the kernel that has no copies."""
        return with_copies(self.tile.plan(), self.copies.stagings, self.copies.panels)


Ranked = CopiedTile | Tile | Shared
