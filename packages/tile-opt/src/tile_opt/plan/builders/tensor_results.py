"""Results of matrix instructions on their way through local memory, from where a sub-group stores neighbours side by side.

A lane holds pairs of a row, a sub-group eight rows of them: stored from there, what has two bytes fills a part of each
sector that it touches. So a sub-group sets some of its columns at a time in a place of its own; or all of a group do in one
place, where rows lie side by side in memory, of which each has few. What the results are made of beside the sums,
residuals say, comes the same way, copied there while earlier parts are set:

    copy the operands of the first parts
    parts of the columns {
      copy the operands of a later part; Wait for those of this one
      Sync; set results; Sync; store them, whole pieces of 16 bytes
    }
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import gcd, prod

from tile_ir.frozen import replace
from tile_ir.matrix import LANES, MatrixInstruction
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Bind, Direction, Index, Refinement, Scope, Sync, Wait, number_of

from tile_opt.kernel.strides import flat_stride, row_starts
from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.kernel.work import MERGING
from tile_opt.model.contraction import SECTOR
from tile_opt.plan.plan import Staging
from tile_opt.plan.steps.groups.copy import GroupCopy, Items, Ranges, group_copy
from tile_opt.plan.steps.groups.fragments import LANE_INDEXES
from tile_opt.plan.steps.groups.staging import NARROWEST
from tile_opt.plan.steps.groups.tensorise import on_fragments, tile_name
from tile_opt.plan.tree import Node

PART_BYTES, WIDE_BYTES = 64, 128
"""Of a row that is set at a time: two sectors; and where few sub-groups leave local memory for that twice as many. Of rows that begin anywhere
an element of each lane is, whatever that takes: ends are parts of sectors (an H200: 154 MB of float32 by 64 bytes 118 µs, by 128 97)."""
FEW = 4
"""Sub-groups whose places are small beside those of a step."""


def part_of(view: KernelView, use: Use, columns: int, sub_groups: int) -> int:
    """Columns of a result that each of so many sub-groups sets at a time, or all of them in one place."""
    least = PART_BYTES if begins_with_sectors(view, use) else LANES * view.type_of(use.buffer).dtype.bytes
    most = max(PART_BYTES, least) if sub_groups > FEW else WIDE_BYTES
    return gcd(columns, most // view.type_of(use.buffer).dtype.bytes)


def begins_with_sectors(view: KernelView, use: Use) -> bool:
    """Rows of a result in memory do."""
    others = [i.name for i in view.loops if flat_stride(view, use, i.name) != 1]
    return row_starts(view, use, others) * view.type_of(use.buffer).dtype.bytes % SECTOR == 0


def given(view: KernelView, stage: Stage, tile: Mapping[str, int], ragged: set[str]) -> Use | None:
    """The result that a stage stores once, and does nothing else with; None where local memory cannot be between.

    What a `tile` has beyond the end of a loop lies beyond the buffer too, so that its end keeps it from being stored.
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
    return use if plain and inside and _is_packed(use, tile) else None


def _is_packed(use: Use, tile: Mapping[str, int]) -> bool:
    """Loops of the tile that walk a dimension together are digits of it: a box has what lies between rows of a flat one, too."""
    walked = (sorted((abs(c), tile[n]) for n, c in f.terms if tile.get(n, 1) > 1) for f in use.forms)
    return all(far <= near * size for steps in walked for (near, size), (far, _) in pairwise(steps))


def taken(view: KernelView, stage: Stage, tile: Mapping[str, int]) -> tuple[Use, ...]:
    """What a stage reads that copies ahead may bring: every point of a sub-group's rows and columns has its own element."""
    return tuple(u for u in stage.uses if u.dir is Direction.IN and not u.extent and _moved(view, u, tile))


def _moved(view: KernelView, use: Use, tile: Mapping[str, int]) -> bool:
    """A buffer outside that both rows and columns, the tile's last loops, move in, by pieces that copies ahead may have."""
    own = all(flat_stride(view, use, n) for n in list(tile)[-2:])
    if not own or view.is_local(use.buffer) or not _is_packed(use, tile):
        return False
    values = {n: Affine.var(n, size) + Affine.var(f"{n}_t") for n, size in tile.items()}
    around = {n: (0, -(-size // tile.get(n, 1)) - 1) for n, size in view.ranges.items()}
    source, staging = view.type_of(use.buffer), Staging(use.buffer, 0, "LOCAL")
    forms = tuple(f.substitute(values) for f in use.forms)
    inner, names = {f"{n}_t": size for n, size in tile.items()}, {"local": "", "held": ""}
    copy = group_copy(use, forms, source, staging, inner, around, Items(LANE_INDEXES), names)
    return copy.plan.lanes * source.dtype.bytes >= NARROWEST


@dataclass(frozen=True)
class Parts:
    """How the sub-groups of a kernel set and store one result."""

    view: KernelView
    instruction: MatrixInstruction
    use: Use
    taken: tuple[Use, ...]
    """What comes through local memory too."""
    stagings: Mapping[str, Staging]
    """By buffer."""
    warps: tuple[Index, ...]
    tile: Mapping[str, int]
    """Iterations of a sub-group's tile, columns last."""
    group: Mapping[str, int]
    """The same of all sub-groups."""
    corner: Mapping[str, Affine]
    """The first iterations of these."""
    within: Mapping[str, Affine]
    """Iterations inside the group's tile at a point of the sub-group's."""
    around: Ranges
    inside: Mapping[str, str]
    """The loops inside the tile."""

    @property
    def columns(self) -> str:
        return list(self.tile)[-1]

    @property
    def size(self) -> int:
        """Columns of a part."""
        return part_of(self.view, self.use, self.tile[self.columns], prod(i.range for i in self.warps))

    @property
    def _together(self) -> bool:
        """All sub-groups set a part, and store it."""
        return self.stagings[self.use.buffer].scope is Scope.GROUP

    @cached_property
    def _box(self) -> dict[str, int]:
        """Iterations of a part inside."""
        rows = self.group if self._together else self.tile
        return {self.inside[n]: rows[n] for n in self.tile} | {self.inside[self.columns]: self.size}

    @cached_property
    def _values(self) -> dict[str, Affine]:
        """Shared loops at a point of what is set together."""
        points = {n: Affine.var(self.inside[n]) for n in self.tile} if self._together else self.within
        return {n: at + points[n] if n in points else at for n, at in self.corner.items()}

    def copy(self, use: Use, first: int) -> GroupCopy:
        """The part of a result, or of an operand, that begins at a column."""
        moved = {self.inside[self.columns]: Affine.var(self.inside[self.columns]) + first}
        forms = tuple(f.substitute(self._values).substitute(moved) for f in use.forms)
        planned, apart = self.stagings[use.buffer], () if self._together else self.warps
        staging = replace(planned, versions=planned.versions * prod(i.range for i in apart))
        items = Items((*self.warps, *LANE_INDEXES) if self._together else LANE_INDEXES)
        names = {"local": f"{use.name}_part", "held": f"{use.name}_held"}
        return group_copy(use, forms, self.view.type_of(use.buffer), staging, self._box, self.around, items, names)

    def _version(self, use: Use, first: int) -> Affine:
        """The place of a part."""
        versions = self.stagings[use.buffer].versions
        number = Affine() if self._together else number_of(self.warps)
        return number * versions + first // self.size % versions

    @property
    def locals(self) -> tuple[Refinement, ...]:
        return tuple(self.copy(u, 0).local for u in (self.use, *self._copied))

    @cached_property
    def _first(self) -> Mapping[str, Use]:
        """By the name of what is taken the first use of the same elements, whose copy serves all of them."""
        places: dict[tuple[str, tuple[Affine, ...]], Use] = {}
        return {u.name: places.setdefault((u.buffer, u.forms), u) for u in self.taken}

    @property
    def _copied(self) -> tuple[Use, ...]:
        return tuple(u for u in self.taken if self._first[u.name] is u)

    @property
    def _parts(self) -> int:
        return self.tile[self.columns] // self.size

    @property
    def _ahead(self) -> int:
        """Parts whose operands are under way while one is set."""
        return min((self.stagings[u.buffer].versions for u in self.taken), default=1) - 1

    def _operands(self, part: int) -> tuple[Stage, ...]:
        """The copies of a part's operands."""
        first = part * self.size
        copies = ((u, self.copy(u, first)) for u in self._copied if part < self._parts)
        return tuple(c.ahead(self._version(u, first), LANE_INDEXES) for u, c in copies)

    def first(self) -> Iterator[Node]:
        """Copies the operands of the first parts; a wait closes the batch of copies before it."""
        for part in range(self._ahead):
            yield from (*self._operands(part), Wait(0, self._ahead))

    def nodes(self, stage: Stage, sums: set[str]) -> Iterator[Node]:
        """What the stage does, part after part, behind `first`."""
        meet = Sync() if self._together else Sync(Scope.SUBGROUP)
        for part in range(self._parts):
            first = part * self.size
            if self.taken:
                yield from (*self._operands(part + self._ahead), Wait(0, self._ahead))
            yield from (meet,) if part or self.taken else ()
            stored = self.copy(self.use, first).give(self._version(self.use, first), LANE_INDEXES)
            loops = tuple(replace(i, bind=Bind.UNROLL) if i.bind is Bind.NONE else i for i in stored.loops)
            yield from (self._set(stage, first, sums), meet, replace(stored, loops=loops))

    def _set(self, stage: Stage, first: int, sums: set[str]) -> Stage:
        """A part into local memory; `stage` is at the points of the tile."""
        column = self.inside[self.columns]
        moved = {u.name: self._near(u, first) for u in (self.use, *self.taken)}
        uses = tuple(moved.get(u.name, u) for u in stage.uses)
        *beside, rows = (Index(self.inside[n], size) for n, size in list(self.tile.items())[:-1])
        columns = Index(column, self.size)
        found = on_fragments(replace(stage, uses=uses), self.instruction, tuple(beside), rows, columns, sums)
        name = tile_name(column)
        return found.substitute({name: Affine.var(name) + first // self.instruction.c.sizes[1]})

    def _near(self, use: Use, first: int) -> Use:
        """The use of a part in local memory."""
        copy, column = self.copy(self._first.get(use.name, use), first), self.inside[self.columns]
        points = self.within if self._together else {n: Affine.var(self.inside[n]) for n in self.tile}
        back = {self.inside[n]: points[n] for n in self.tile} | {column: points[self.columns] - first}
        forms = tuple(f.substitute(back) for f in copy.inside(self._version(use, first)))
        return Use(use.name, copy.local.into, forms, use.dir)
