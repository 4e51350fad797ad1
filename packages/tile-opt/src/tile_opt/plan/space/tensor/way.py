"""A contraction by a matrix instruction of a target: what all tiles of it have in common, which are hundreds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import prod

from tile_ir.target import Target

from tile_opt.kernel.instructions import Match, volume
from tile_opt.kernel.view import KernelView, Use
from tile_opt.model.contraction import Contraction, contraction
from tile_opt.model.group_cost import GroupCost, beside
from tile_opt.plan.builders.local import team_local_bytes
from tile_opt.plan.space.tensor import stores
from tile_opt.plan.space.tensor.pitches import whole_piece


@dataclass(frozen=True, eq=False)
class Way:
    """One of a kernel's matches on a target."""

    view: KernelView
    match: Match
    target: Target

    @cached_property
    def loops(self) -> dict[str, str]:
        """By role."""
        return dict(self.match.loops)

    @cached_property
    def per_cycle(self) -> float:
        """Instructions that a core starts per cycle."""
        return self.target.machine.rate(self.match.instruction.name) or 1.0

    @cached_property
    def work(self) -> Contraction | None:
        return contraction(self.view)

    @cached_property
    def cost(self) -> GroupCost | None:
        """Of what groups fetch and store, whatever local memory they declare."""
        return None if self.work is None else GroupCost(self.work, self.target.machine, 0)

    @cached_property
    def matrix_seconds(self) -> float:
        """Of all points at the instructions' full rate."""
        machine = self.target.machine
        points = prod(self.view.ranges.values()) / prod(self.match.instruction.shape) / self.per_cycle
        return points / (max(1, machine.cores) * machine.clock_ghz * 1e9)

    @cached_property
    def least_seconds(self) -> float:
        """No tile takes less: whole instructions at their full rate beside both factors once through memory, and the launch."""
        machine, sides = self.target.machine, self.loops.values()
        others = prod(extent for n, extent in self.view.ranges.items() if n not in sides)
        cycles = volume(self.view, self.match) * others / prod(self.match.instruction.shape) / self.per_cycle
        seconds = cycles / max(1, machine.cores) / (machine.clock_ghz * 1e9)
        return seconds if self.cost is None else beside((seconds, self.cost.read)) + machine.launch.kernel

    @cached_property
    def local_bytes(self) -> int:
        """Bytes of local memory that a group may declare; a team's tiles may take nearly all that a core has."""
        settings = self.target.settings
        if self.match.instruction.team > 1:
            return team_local_bytes(self.target) or settings.max_mem
        return settings.static_local_bytes or settings.max_mem

    # --- results ----------------------------------------------------------------------------------------

    @cached_property
    def stored(self) -> float:
        """Seconds in which sub-groups store results straight from fragments; 0 where nobody knows."""
        loops, machine = self.loops, self.target.machine
        return 0.0 if self.work is None else stores.store_seconds(self.work, loops["m"], loops["n"], machine)

    @cached_property
    def ragged(self) -> float:
        """Times longer that takes because rows begin anywhere."""
        return 1.0 if self.work is None else 1 + stores.ragged(self.work)

    def given(self, run: int) -> float:
        """Seconds in which they do by way of local memory, so many bytes of a row at a time."""
        return 0.0 if self.work is None else stores.given_seconds(self.work, self.target.machine, run)

    def gives(self, run: int) -> bool:
        """Results are better stored so: single sub-groups leave no local memory beside their steps."""
        alone = self.work is not None and len(self.work.results) == 1
        return alone and self.match.instruction.team > 1 and self.stored * self.ragged > self.given(run)

    @cached_property
    def gives_rows(self) -> bool:
        """Rows lie side by side in memory, of which a group has more than its sub-groups."""
        return self.work is not None and self.work.contiguous == self.loops["m"]

    # --- operands ---------------------------------------------------------------------------------------

    @cached_property
    def pieces(self) -> dict[str, int]:
        """Bytes of each factor that lie together, and where 16 bytes may begin."""
        return {name: whole_piece(self.view, self.match, name) for name in (self.match.left, self.match.right)}

    @cached_property
    def rows(self) -> dict[str, tuple[str, ...]]:
        """The instruction's loops along each factor as they follow in memory, the closest last."""
        return {use.name: self.lying((use,)) for use in self.match.factors}

    def lying(self, uses: Iterable[Use]) -> tuple[str, ...]:
        """The same along one buffer."""
        apart = {
            n: stride
            for use in uses
            for form, stride in zip(use.forms, self.view.type_of(use.buffer).strides, strict=True)
            for n in form.names
            if n in self.loops.values()
        }
        return tuple(sorted(apart, key=lambda n: -apart[n]))
