"""Tiles by the hundred, best first, of which those are made last that can hardly be the best."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush

from tile_opt.kernel.view import KernelView
from tile_opt.plan.panels import Panels
from tile_opt.plan.plan import Plan, Staging
from tile_opt.plan.space.gpu.copied import with_copies
from tile_opt.plan.space.tensor.shares import Shared
from tile_opt.plan.space.tensor.tile import Tile


@dataclass(frozen=True)
class Copies:
    """A kernel on copies of its factors, and the seconds that making them takes."""

    view: KernelView
    stagings: tuple[Staging, ...]
    panels: tuple[Panels, ...]
    seconds: float

    def of(self, found: Iterable[Ranked | Later]) -> Iterator[CopiedTile | Later]:
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


@dataclass(frozen=True)
class Later:
    """Tiles that are made when they are asked for, none of which takes less than `seconds`."""

    seconds: float
    make: Callable[[], Iterable[Ranked | Later]]

    @cached_property
    def made(self) -> tuple[Ranked | Later, ...]:
        return tuple(self.make())


def best_first(found: Iterable[Ranked | Later]) -> Iterator[Ranked]:
    """All of them in the order of their seconds, of equal ones those first that come first; made as late as that allows."""
    heap: list[tuple[float, tuple[int, ...], Ranked | Later]] = []

    def add(several: Iterable[Ranked | Later], place: tuple[int, ...]) -> None:
        for n, each in enumerate(several):
            heappush(heap, (each.seconds, (*place, n), each))

    add(found, ())
    while heap:
        _, place, first = heappop(heap)
        if isinstance(first, Later):
            add(first.made, place)
        else:
            yield first
