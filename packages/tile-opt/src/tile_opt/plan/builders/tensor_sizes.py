"""What a plan for matrix instructions says of a kernel's loops: tiles of groups and sub-groups, and steps of the reduction."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

from tile_ir.frozen import replace
from tile_ir.stripe.nodes import Bind, Index, Order

from tile_opt.kernel.instructions import Match
from tile_opt.kernel.view import KernelView
from tile_opt.plan.builders.tensor_plans import LEVELS, beside_rows, taps
from tile_opt.plan.plan import Plan, Staging


@dataclass(frozen=True)
class TensorSizes:
    """Iterations of a kernel's loops in groups, sub-groups and steps."""

    view: KernelView
    match: Match
    plan: Plan

    @cached_property
    def loops(self) -> dict[str, str]:
        """The loop of each role."""
        return dict(self.match.loops)

    @cached_property
    def staged(self) -> dict[str, Staging]:
        """The factors' local copies by buffer."""
        levels = self.plan.levels
        local = (s for s in self.plan.stagings if s.unit == "LOCAL")
        return {s.operand: s for s in local if levels[s.level].bind is not Bind.SUBGROUP}

    def _covered(self, loop: str, bind: Bind) -> int:
        """Iterations of a loop that one point of the level bound so covers."""
        return self.plan.tile(loop, LEVELS.index(bind), self.view.ranges[loop])

    @cached_property
    def group(self) -> dict[str, int]:
        """Iterations of every shared loop in a group's tile."""
        return {i.name: self._covered(i.name, Bind.GRID) for i in self.view.loops}

    @cached_property
    def beside(self) -> list[str]:
        """Loops that a group's rows follow beside those of the instruction."""
        return beside_rows(self.view, self.match, self.plan)

    @cached_property
    def warp(self) -> dict[str, int]:
        """A sub-group's tile: rows, the last of them those of the instruction, and columns."""
        return {n: self._covered(n, Bind.SUBGROUP) for n in (*self.beside, self.loops["m"], self.loops["n"])}

    @cached_property
    def deep(self) -> int:
        """Iterations of the depth in one step."""
        return self._covered(self.loops["k"], Bind.NONE)

    @property
    def steps(self) -> int:
        return -(-self.view.ranges[self.loops["k"]] // self.deep)

    @property
    def slices(self) -> int:
        """Instructions along the depth of a step."""
        return self.deep // self.match.instruction.sides["k"]

    @cached_property
    def taps(self) -> tuple[Index, ...]:
        """Reduction loops beside the depth that every step goes through: what it copies serves all their iterations."""
        return taps(self.match, self.plan)

    @cached_property
    def outer(self) -> tuple[Index, ...]:
        """Reduction loops around the steps."""
        loops = (i for i in self.match.main.loops if i.name != self.loops["k"] and i not in self.taps)
        return tuple(replace(i, name=f"{i.name}_o", order=Order.ORDERED) for i in loops)

    @property
    def rounds(self) -> int:
        """Times that the steps are gone through."""
        return prod(i.range for i in self.outer)
