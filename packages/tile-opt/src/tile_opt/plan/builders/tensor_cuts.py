"""Steps of a contraction that constraints over several loops leave out, and zeros where they leave out part of a step.

A triangle times a matrix: ``C[i, j] = +(A[i, k] * B[k, j]), i - k < N``. A group goes through no step of which its rows
take nothing. Where the diagonal runs through a step, its items put zeros into the copy of the factor before it is
multiplied. A constraint over results alone leaves out all steps of a group, or single results behind them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from tile_ir.dtype import DType
from tile_ir.frozen import replace
from tile_ir.ops import Aggregation
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Const, Direction, Index, Store, Sync, number_of

from tile_opt.kernel.view import Stage, Use
from tile_opt.plan.builders.tensor_plans import in_tile
from tile_opt.plan.builders.tensor_sizes import TensorSizes
from tile_opt.plan.steps.groups.copy import GroupCopy
from tile_opt.plan.steps.groups.fragments import HIGH, LANE_INDEXES, LOW
from tile_opt.plan.tree import Nest


def extreme(form: Affine, inside: Mapping[str, int], *, most: bool) -> Affine:
    """The largest or the smallest value of a form while the loops inside run."""
    ends = {n: Affine((), size - 1 if (form.coefficient(n) > 0) == most else 0) for n, size in inside.items()}
    return form.substitute(ends)


def grows(cuts: Sequence[Affine], loop: str) -> bool:
    """Later iterations of a shared loop have more steps, as every constraint that names it says."""
    steps = [c.coefficient(loop) for c in cuts if loop in c.names]
    return bool(steps) and min(steps) > 0


def cut_factor(sizes: TensorSizes, cut: Affine) -> str:
    """The factor whose copy has zeros where the constraint fails: that which the constraint's loops walk."""
    rows = {*sizes.beside, sizes.loops["m"]}
    return sizes.match.left if rows.intersection(cut.names) or sizes.loops["n"] not in cut.names else sizes.match.right


def may_cut(sizes: TensorSizes) -> bool:
    """Every step has all of the reduction's other loops, and each constraint that a step may fail walks one factor alone."""
    steps = [c for c in sizes.match.cuts if sizes.loops["k"] in c.names]
    rows, columns = {*sizes.beside, sizes.loops["m"]}, sizes.loops["n"]
    return not sizes.match.cuts or (
        not sizes.taps and not sizes.outer and not any(columns in c.names and rows & {*c.names} for c in steps)
    )


@dataclass(frozen=True)
class Cuts:
    """The constraints of a match in a group's tile, whose first iterations are at `corner`."""

    sizes: TensorSizes
    corner: Mapping[str, Affine]

    @property
    def inside(self) -> dict[str, int]:
        """Iterations of the loops in a tile, and in a step."""
        sizes = {in_tile(n): self.sizes.group[n] for n in self.sizes.warp}
        return sizes | {in_tile(self.sizes.loops["k"]): self.sizes.deep}

    def _at(self, cut: Affine, step: Affine) -> Affine:
        depth = self.sizes.loops["k"]
        values = {n: form + Affine.var(in_tile(n), int(n in self.sizes.warp)) for n, form in self.corner.items()}
        return cut.substitute(values | {depth: step * self.sizes.deep + Affine.var(in_tile(depth))})

    def begun(self, step: Affine) -> tuple[Affine, ...]:
        """What is >= 0 for groups to which some product of a step may count, and that no step fails in front of one that does not."""
        return tuple(self._most(c, step) for c in self.sizes.match.cuts if c.coefficient(self.sizes.loops["k"]) <= 0)

    def opened(self, step: Affine) -> tuple[Affine, ...]:
        """One that steps fail in front of those that do not, if there is any; of several, others count in copies alone."""
        return tuple(self._most(c, step) for c in self.sizes.match.cuts if c.coefficient(self.sizes.loops["k"]) > 0)[:1]

    def _most(self, cut: Affine, step: Affine) -> Affine:
        return extreme(self._at(cut, step), self.inside, most=True)

    def masked(
        self, step: Affine, copies: Mapping[str, GroupCopy], number: Affine, warps: tuple[Index, ...]
    ) -> list[Nest]:
        """Zeros in the copies of a step for what constraints leave out, where they leave out some of it."""
        found: list[Nest] = []
        for n, cut in enumerate(self.sizes.match.cuts):
            if self.sizes.loops["k"] in cut.names:
                form, copy = self._at(cut, step), copies[cut_factor(self.sizes, cut)]
                guard = (extreme(form, self.inside, most=False) * -1 - 1,)
                stage = self._zeros(f"cut_{n}", form, copy, number, warps)
                found.append(Nest(f"cut_{n}_of_step", (), (stage, Sync()), guard=guard))
        return found

    def _zeros(self, name: str, form: Affine, copy: GroupCopy, number: Affine, warps: tuple[Index, ...]) -> Stage:
        """Zeros in a factor's copy where the form is below zero, by all items: those of a four along the depth."""
        first, depth = copy.use.name == self.sizes.match.left, in_tile(self.sizes.loops["k"])
        *beside, side = map(in_tile, (*self.sizes.beside, self.sizes.loops["m"]) if first else (self.sizes.loops["n"],))
        high, low = (i.range for i in LANE_INDEXES)
        lines = high * prod(i.range for i in warps)
        down, along = (
            Index(f"{name}_side", -(-self.inside[side] // lines)),
            Index(f"{name}_depth", self.inside[depth] // low),
        )
        at = {
            side: Affine.of({down.name: lines, HIGH: 1}) + number_of(warps) * high,
            depth: Affine.of({along.name: low, LOW: 1}),
        }
        loops = (*LANE_INDEXES, *(Index(n, self.inside[n]) for n in beside), down, along)
        target = Use("dst", copy.local.into, copy.inside(number), Direction.OUT).substitute(at)
        over = () if self.inside[side] % lines == 0 else (at[side] * -1 + (self.inside[side] - 1),)
        return _zero(name, loops, (form.substitute(at) * -1 - 1, *over), target, copy.local.type.dtype)

    def results(self) -> tuple[Affine, ...]:
        """Constraints over results alone."""
        return tuple(c for c in self.sizes.match.cuts if self.sizes.loops["k"] not in c.names)


def zero_results(name: str, cut: Affine, sums: Use, dtype: DType) -> Stage:
    """Zero where a constraint over results fails."""
    return _zero(name, (), (cut * -1 - 1,), replace(sums, name="dst", dir=Direction.OUT, agg=None), dtype)


def _zero(name: str, loops: tuple[Index, ...], where: tuple[Affine, ...], target: Use, dtype: DType) -> Stage:
    return Stage(
        name, loops, where, (target,), (Const("$zero", Aggregation.SUM.identity(dtype), dtype), Store("dst", "$zero"))
    )
