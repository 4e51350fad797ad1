"""Results of matrix instructions on their way through local memory, from where a sub-group stores neighbours side by side.

A lane holds pairs of a row, a sub-group eight rows of them: stored from there, what has two bytes fills a part of each
sector that it touches. So a sub-group sets some of its columns at a time in a place of its own:

    parts of the columns { set them; Sync; store them, whole pieces of 16 bytes; Sync }
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import gcd, prod

from tile_ir.dtype import DType
from tile_ir.frozen import replace
from tile_ir.matrix import MatrixInstruction
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Bind, Direction, Index, Refinement, Scope, Sync

from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.kernel.work import MERGING
from tile_opt.plan.plan import Plan, Staging
from tile_opt.plan.steps.groups.copy import GroupCopy, Items, Ranges, group_copy
from tile_opt.plan.steps.groups.fragments import LANE_INDEXES
from tile_opt.plan.steps.groups.tensorise import on_fragments, tile_name
from tile_opt.plan.tree import Node

PART_BYTES = 64
"""Of a row that is set at a time: two sectors."""


def part_of(columns: int, dtype: DType) -> int:
    """Columns of a sub-group that it sets at a time."""
    return gcd(columns, PART_BYTES // dtype.bytes)


def staged_results(view: KernelView, plan: Plan) -> dict[str, Staging]:
    """Stored buffers whose results go through local memory."""
    stored = {u.buffer for s in view.stages for u in s.uses if u.writes and not view.is_local(u.buffer)}
    return {s.operand: s for s in plan.stagings if s.unit == "LOCAL" and s.operand in stored}


def given(view: KernelView, stage: Stage, ragged: set[str]) -> Use | None:
    """The result that a stage stores once, and does nothing else with; None where local memory cannot be between.

    What a tile has beyond the end of a loop lies beyond the buffer too, so that its end keeps it from being stored.
    """
    stored = [u for u in stage.uses if u.writes and not view.is_local(u.buffer)]
    if len(stored) != 1 or stage.constraints or stage.loops or stage.guard:
        return None
    (use,) = stored
    often = sum(u.buffer == use.buffer for s in view.stages for u in s.uses)
    ends = {(Affine.var(n), view.ranges[n]) for n in ragged}
    dims = zip(use.forms, view.type_of(use.buffer).sizes, strict=True)
    inside = all(ragged.isdisjoint(form.names) or (form, size) in ends for form, size in dims)
    plain = often == 1 and not (use.reads or use.extent) and use.agg not in MERGING
    return use if plain and inside else None


@dataclass(frozen=True)
class Parts:
    """How the sub-groups of a kernel set and store one result."""

    view: KernelView
    instruction: MatrixInstruction
    use: Use
    staging: Staging
    warps: tuple[Index, ...]
    tile: Mapping[str, int]
    """Iterations of a sub-group's tile, columns last."""
    values: Mapping[str, Affine]
    """Shared loops at a point of the tile."""
    around: Ranges
    inside: Mapping[str, str]
    """The loops inside the tile."""

    @property
    def columns(self) -> str:
        return list(self.tile)[-1]

    @property
    def size(self) -> int:
        """Columns of a part."""
        return part_of(self.tile[self.columns], self.view.type_of(self.use.buffer).dtype)

    @cached_property
    def number(self) -> Affine:
        """Of the sub-group."""
        number = Affine()
        for index in self.warps:
            number = number * index.range + Affine.var(index.name)
        return number

    def copy(self, first: int) -> GroupCopy:
        """The part that begins at a column."""
        moved = {self.inside[self.columns]: Affine.var(self.inside[self.columns]) + first}
        forms = tuple(f.substitute(dict(self.values)).substitute(moved) for f in self.use.forms)
        inner = {self.inside[n]: size for n, size in (*self.tile.items(), (self.columns, self.size))}
        staging = replace(self.staging, versions=prod(i.range for i in self.warps))
        names = {"local": f"{self.use.name}_part", "held": f"{self.use.name}_held"}
        source = self.view.type_of(self.use.buffer)
        return group_copy(self.use, forms, source, staging, inner, self.around, Items(LANE_INDEXES), names)

    @property
    def local(self) -> Refinement:
        return self.copy(0).local

    def nodes(self, stage: Stage, sums: set[str]) -> Iterator[Node]:
        """What the stage does, part after part."""
        meet = Sync(Scope.SUBGROUP)
        for first in range(0, self.tile[self.columns], self.size):
            yield from (meet,) if first else ()
            copy = self.copy(first)
            stored = copy.give(self.number, LANE_INDEXES)
            loops = tuple(replace(i, bind=Bind.UNROLL) if i.bind is Bind.NONE else i for i in stored.loops)
            yield from (self._set(stage, copy, first, sums), meet, replace(stored, loops=loops))

    def _set(self, stage: Stage, copy: GroupCopy, first: int, sums: set[str]) -> Stage:
        """A part into local memory; `stage` is at the points of the tile."""
        column = self.inside[self.columns]
        back = {column: Affine.var(column) - first}
        forms = tuple(f.substitute(back) for f in copy.inside(self.number))
        target = Use(self.use.name, copy.local.into, forms, Direction.OUT)
        uses = tuple(target if u.name == self.use.name else u for u in stage.uses)
        *beside, rows = (Index(self.inside[n], size) for n, size in list(self.tile.items())[:-1])
        columns = Index(column, self.size)
        moved = on_fragments(replace(stage, uses=uses), self.instruction, tuple(beside), rows, columns, sums)
        name = tile_name(column)
        return moved.substitute({name: Affine.var(name) + first // self.instruction.c.sizes[1]})
