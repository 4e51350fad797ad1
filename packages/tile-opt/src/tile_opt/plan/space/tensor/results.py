"""Results of a tile on matrix instructions on their way to memory: straight from fragments, or by way of local memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

from tile_ir.stripe.nodes import Bind, Scope

from tile_opt.plan.builders.tensor_plans import LEVELS
from tile_opt.plan.builders.tensor_results import given, part_of, taken
from tile_opt.plan.plan import Staging
from tile_opt.plan.space.tensor import stores
from tile_opt.plan.space.tensor.way import Way

TOGETHER = 0.5, 2.0
"""Times as long again that it takes to set results in one place of a group: its sub-groups meet twice for each part, and pairs lie apart; and
where rows begin anywhere."""


@dataclass(frozen=True, eq=False)
class Results:
    """Of one tile."""

    way: Way
    group: Mapping[str, int]
    """Iterations of rows and columns that a group has."""
    warp: Mapping[str, int]
    """Those of a sub-group, columns last."""

    @cached_property
    def staged(self) -> tuple[Staging, ...]:
        """Those that go through local memory: where lanes touch more sectors than they fill, and nothing else is stored."""
        work, view = self.way.work, self.way.view
        if work is None or not self.way.gives(self.run):
            return ()
        ragged = {n for n, size in self.group.items() if view.ranges[n] % size}
        stages = [s for s in view.stages if s is not self.way.match.main and given(view, s, self._set, ragged)]
        operands = (u for s in stages for u in taken(view, s, self._set))
        scope = Scope.GROUP if self.way.gives_rows else Scope.SUBGROUP
        return stores.given_results(work, operands, LEVELS.index(Bind.SUBGROUP), scope) if stages else ()

    @property
    def _sub_groups(self) -> int:
        return prod(self.group[n] // size for n, size in self.warp.items())

    @cached_property
    def bytes(self) -> int:
        """Of local memory, for parts of results and their operands."""
        places = 1 if self.way.gives_rows else self._sub_groups
        return places * sum(stores.given_bytes(self.way.view, s, self._part) for s in self.staged)

    @cached_property
    def run(self) -> int:
        """Bytes of a row that are stored one after the other, if they go through local memory."""
        return 0 if self.way.work is None else stores.run_bytes(self.way.work, self._part)

    @cached_property
    def _set(self) -> Mapping[str, int]:
        """Iterations that lie in one place in local memory, all columns of them."""
        return {n: self.group[n] for n in self.warp} if self.way.gives_rows else self.warp

    @cached_property
    def _part(self) -> dict[str, int]:
        """Those that do at a time."""
        columns, uses = self.way.loops["n"], self.way.work.results if self.way.work else ()
        parts = (part_of(self.way.view, u, self.warp[columns], self._sub_groups) for u in uses)
        return {**self._set, columns: min(parts, default=self.warp[columns])}

    def seconds(self, least: float, *, alone: bool) -> float:
        """In which they are stored, at `least` so many; from a core's lone group, or from several, whose fragments go beside each other."""
        way, work = self.way, self.way.work
        if work is None:
            return 0.0
        if not self.staged:
            return max(least, way.stored / (1 if alone else 2)) * way.ragged
        stored = way.given(self.run) * stores.parts_of_sectors(self.run)
        each, setting = (
            stores.set_seconds(way.view, way.match.main, way.target.machine, alone=lone) for lone in (False, alone)
        )
        return max(least, stored + setting) + (TOGETHER[way.ragged > 1] * each if way.gives_rows else 0.0)
