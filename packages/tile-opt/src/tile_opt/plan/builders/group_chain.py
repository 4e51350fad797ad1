"""A chain of stencils whose groups keep in local memory what its parts hand on.

    kernel [grid] {                                 one group per tile of the result
      boxes of what parts hand on
      group [items] {
        windows that are the same for all cells
        rounds { windows; cells of the first part }   a sibling per kind of edge
        Sync
        rounds { windows; cells of the next part }
      }
    }

All parts are dealt out to the same items. An item's cells of a part are neighbours, so that a window around them in its
registers serves them all: along loops on which windows slide, and in whole vectors along memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Protocol

from tile_ir.frozen import frozen, replace
from tile_ir.names import claim
from tile_ir.stripe.affine import Affine, names_in
from tile_ir.stripe.nodes import STATIC, Bind, Block, Index, Load, Refinement, Scope, Sync

from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.kernel.work import merged_use
from tile_opt.plan.plan import Plan
from tile_opt.plan.steps.digits import Digit, Split, split
from tile_opt.plan.steps.groups.copy import local_type
from tile_opt.plan.steps.groups.homes import row_part
from tile_opt.plan.steps.groups.overlaps import with_shared_overlaps
from tile_opt.plan.steps.groups.parts import LARGE, Version, inner_and_edges, item_kernel, synchronised
from tile_opt.plan.steps.groups.staging import WIDEST
from tile_opt.plan.steps.groups.window import Window, side_by_side, window
from tile_opt.plan.tree import GROUP_MEMORY, Nest, Node

BODY = 2048
"""Points of a part's straight-line code beside which that of its edges stands."""


class Place(Protocol):
    """Where an item has a buffer."""

    def use(self, use: Use) -> Use:
        """The access there."""
        ...


@frozen
class Part:
    """Neighbouring stages over the same cells: what one of them hands on to another stays in an item's registers."""

    cells: tuple[str, ...]
    """Loops over what its stages make."""
    stages: tuple[Stage, ...]


def cells_of(stage: Stage) -> tuple[str, ...]:
    """The loops of a stage that move what it makes; the others are reduced."""
    made = names_in(f for u in stage.uses if u.writes for f in u.forms)
    return tuple(n for n in stage.loop_names if n in made)


def parts_of(view: KernelView) -> tuple[Part, ...]:
    """The stages of a chain, part by part: a part ends where others' cells are read."""
    found: list[Part] = []
    for stage in view.stages:
        cells = cells_of(stage)
        if found and found[-1].cells == cells and not _reads_others(found[-1], stage):
            found[-1] = replace(found[-1], stages=(*found[-1].stages, stage))
        else:
            found.append(Part(cells, (stage,)))
    return tuple(found)


def _reads_others(part: Part, stage: Stage) -> bool:
    made = {u.buffer: u.forms for s in part.stages for u in s.uses if u.writes}
    return any(u.extent or u.forms != made.get(u.buffer, u.forms) for u in stage.uses)


@dataclass(frozen=True)
class GroupChain:
    """Builds the kernel of a chain (`kernel.item_chain`) whose boxes lie in the group's memory."""

    view: KernelView
    plan: Plan

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        return parts_of(self.view)

    # --- loops ----------------------------------------------------------------------------------------

    @cached_property
    def splits(self) -> dict[str, Split]:
        return self.planned()

    def planned(self) -> dict[str, Split]:
        """The loops as the plan's levels cut them."""
        loops = (*self.view.loops, *(i for s in self.view.stages for i in s.loops))
        return {i.name: split(self.plan, i) for i in loops}

    @cached_property
    def grid(self) -> tuple[Index, ...]:
        return tuple(d.index for i in self.view.loops for d in self.splits[i.name].bound(Bind.GRID))

    @cached_property
    def items(self) -> tuple[Index, ...]:
        """Those of the last part, which the others are dealt out to as well."""
        return self.dealt(self.parts[-1])

    @property
    def count(self) -> int:
        """Items of a group; ValueError where the parts want different ones, or none."""
        for part in self.parts:
            self.forms(part)
        if not self.items:
            raise ValueError(f"{self.view.name!r} has no items that could share its boxes")
        return prod(i.range for i in self.items)

    def dealt(self, part: Part) -> tuple[Index, ...]:
        return tuple(d.index for d in self.digits(part.cells, Bind.GROUP))

    def digits(self, loops: Sequence[str], *binds: Bind) -> tuple[Digit, ...]:
        return tuple(d for n in loops for d in self.splits[n].bound(*binds))

    def forms(self, part: Part) -> dict[str, Affine]:
        """Loops as forms of the digits; ValueError where items do not fit the part."""
        mine = self.dealt(part)
        if [i.range for i in mine] != [i.range for i in self.items]:
            raise ValueError(f"all parts of {self.view.name!r} need the same items, along the same loops")
        names = {a.name: Affine.var(b.name) for a, b in zip(mine, self.items, strict=True)}
        return {n: s.form.substitute(names) for n, s in self.splits.items()}

    # --- buffers --------------------------------------------------------------------------------------

    @cached_property
    def private(self) -> dict[str, Part]:
        """Buffers that no other part sees."""
        seen = {
            a.into: [p for p in self.parts if any(u.buffer == a.into for s in p.stages for u in s.uses)]
            for a in self.view.allocs
        }
        return {name: parts[0] for name, parts in seen.items() if len(parts) == 1}

    @cached_property
    def registers(self) -> tuple[Refinement, ...]:
        """The same where an item has them."""
        own = (a for a in self.view.allocs if a.into in self.private)
        return tuple(row_part(a, self.run(self.private[a.into])).alloc for a in own)

    @cached_property
    def boxes(self) -> dict[str, Refinement]:
        """What parts hand on, in rows of whole vectors."""
        return {a.into: _in_group(a) for a in self.view.allocs if a.into not in self.private}

    @cached_property
    def outside(self) -> KernelView:
        """The view with boxes as memory: only registers are an item's own."""
        private = tuple(a for a in self.view.allocs if a.into in self.private)
        return replace(self.view, refs=(*self.view.refs, *self.boxes.values()), allocs=private)

    # --- stages ---------------------------------------------------------------------------------------

    def run(self, part: Part) -> tuple[Digit, ...]:
        """What an item has of the part at once."""
        return self.digits(part.cells, *STATIC)

    def homes(self, part: Part) -> Mapping[str, Place]:
        """Where an item has buffers of its own while it is at the part."""
        return {a.into: row_part(a, self.run(part)) for a in self.view.allocs if self.private.get(a.into) is part}

    def around(self, part: Part) -> tuple[Index, ...]:
        """Loops around what an item has of the part at once."""
        return (*self.grid, *self.items, *self.rounds(part))

    def begun(self, part: Part) -> tuple[Affine, ...]:
        """Forms of the loops around that are >= 0 where there is something of the part to do."""
        del part
        return ()

    def rounds(self, part: Part) -> tuple[Index, ...]:
        """Loops around that, of the part by itself."""
        return tuple(d.index for d in self.digits(part.cells, Bind.NONE))

    def kept(self, stage: Stage, part: Part) -> Stage:
        """The stage with the part's own buffers in registers, over the digits of its loops."""
        over = self.over(stage, part)
        wanted = zip(over.constraints, self.wanted(stage, part), strict=True)
        left = tuple(c for c, plain in wanted if not self.is_met(plain, stage, part))
        return side_by_side(self.placed(replace(over, constraints=left), part), self.outside)

    def guarded(self, stage: Stage, part: Part) -> Stage:
        """The same, in cells of the part alone: others would lie beyond what boxes have for it."""
        return side_by_side(self.placed(self.over(stage, part), part), self.outside)

    def over(self, stage: Stage, part: Part) -> Stage:
        """The stage over digits, with everything that somebody might have to look at."""
        homes = self.homes(part)
        uses = tuple(homes[u.buffer].use(u) if u.buffer in homes else u for u in stage.uses)
        own = [n for n in stage.loop_names if n not in part.cells]
        loops = (*self.digits(own, Bind.NONE, *STATIC), *self.run(part))
        moved = replace(stage, uses=uses, loops=tuple(d.index for d in loops), constraints=self.wanted(stage, part))
        return moved.substitute(self.forms(part))

    def wanted(self, stage: Stage, part: Part) -> tuple[Affine, ...]:
        """Forms that are >= 0 where the stage has something to do."""
        return (*stage.constraints, *(c for n in part.cells for c in _inside(self.splits[n])))

    def placed(self, stage: Stage, part: Part) -> Stage:
        """A stage over digits with what the group has copies of in these."""
        del part
        return stage

    def is_met(self, constraint: Affine, stage: Stage, part: Part) -> bool:
        """Nobody has to look: registers are there wherever an item is, and who stores their cells looks where these end."""
        return self.starts(stage, part) or (self.sums(stage, part) and constraint in self._ends(part))

    def _ends(self, part: Part) -> frozenset[Affine]:
        """What all that store cells of a part ask."""
        stores = [s for s in part.stages if any(u.writes and self.private.get(u.buffer) is not part for u in s.uses)]
        asked = [frozenset(self.wanted(s, part)) for s in stores]
        return asked[0].intersection(*asked[1:]) if asked else frozenset()

    def starts(self, stage: Stage, part: Part) -> bool:
        """It touches nothing but registers, of which each item has all."""
        return all(u.writes and not u.reads and self.private.get(u.buffer) is part for u in stage.uses)

    def sums(self, stage: Stage, part: Part) -> bool:
        """It merges into registers."""
        merged = merged_use(stage)
        return merged is not None and merged.buffer in self.private

    def in_a_loop(self, stage: Stage, part: Part) -> Stage:
        """A stage over digits whose reduction is a loop, not straight-line code."""
        cells = {d.index.name for d in self.run(part)}
        return replace(stage, loops=tuple(i if i.name in cells else replace(i, bind=Bind.NONE) for i in stage.loops))

    @cached_property
    def shared(self) -> set[str]:
        return {i.name for i in self.view.loops}

    def windows(self, stage: Stage) -> Iterator[tuple[Use, Window]]:
        """Of a stage over digits: what an item holds of what it reads."""
        inner = {i.name: i for i in stage.loops if i.bind in STATIC}
        for use in stage.uses:
            if use.reads and not use.writes and use.buffer not in self.private:
                type = self.outside.type_of(use.buffer)
                yield use, window(use, use.forms, type, inner, type.dtype, f"{use.buffer}_window")

    def is_whole(self, found: Window, stage: Stage) -> bool:
        """Nothing that the window reaches for lies beyond its box: each element is loaded where it is used first."""
        around = (
            *self.grid,
            *self.items,
            *(d.index for s in self.splits.values() for d in s.digits),
            *stage.loops,
            *found.cells[0],
        )
        return all(c.bounds({i.name: (0, i.range - 1) for i in around})[0] >= 0 for c in found.ends)

    # --- the kernel -----------------------------------------------------------------------------------

    def build(self) -> Block:
        assert self.count
        made = Made(self)
        parts = [node for part in self.parts for node in made.nodes(part)]
        parts = [*made.before, *parts]
        parts = synchronised(parts, {*self.boxes}, set(), Sync(Scope.GROUP))
        allocs = (*self.boxes.values(), *self.registers, *made.held)
        items = tuple(replace(i, axis=0) for i in self.items)
        return item_kernel(self.view, self.grid, items, [Version(tuple(parts))], allocs)


class Made:
    """The nodes of parts, the windows that they share, and what these are held in."""

    def __init__(self, chain: GroupChain) -> None:
        self.chain = chain
        self.taken = chain.view.buffers
        self.before: list[Node] = []
        self.held: list[Refinement] = []
        self.fetches: set[str] = set()
        """Names of stages that fill windows."""
        self.compact: dict[str, Node] = {}
        """Long stages as loops, which groups at edges run: by name."""
        self.registers = {a.into: a.type for a in chain.registers}
        """Types of what items have for themselves, by name."""
        self.known: dict[object, Refinement] = {}
        """Windows that are the same for all cells, by what they are of."""

    def nodes(self, part: Part) -> list[Node]:
        """A nest of rounds for each kind of edge."""
        chain = self.chain
        stages = [s for stage in part.stages for s in self._stage(stage, part)]
        sums = [s for s in stages if merged_use(s) is not None or s.name in self.fetches]
        name = part.stages[-1].name
        made: list[Node] = []
        for k, version in enumerate(inner_and_edges(sums, chain.around(part), {i.name for i in chain.grid}, BODY)):
            inside = dict(zip((s.name for s in sums), version.parts, strict=True)) | (self.compact if k else {})
            body = tuple(with_shared_overlaps(self._as_loaded(inside.get(s.name, s)), self.registers) for s in stages)
            made.append(
                Nest(f"{name}_part{k or ''}", chain.rounds(part), body, guard=(*chain.begun(part), *version.guard))
            )
        return made

    def _stage(self, stage: Stage, part: Part) -> Iterator[Stage]:
        chain = self.chain
        moved = chain.kept(stage, part)
        uses = {u.name: u for u in moved.uses}
        windows = [
            (u, w) for u, w in chain.windows(moved) if u.buffer not in chain.boxes or not chain.is_whole(w, moved)
        ]
        ragged = any(u.buffer in chain.boxes for u, _ in windows)
        direct = all(_is_constant(w) or u.buffer in chain.boxes for u, w in windows)
        if direct and prod(i.range for i in moved.loops) > LARGE:
            self.compact[moved.name] = chain.in_a_loop(chain.guarded(stage, part) if ragged else moved, part)
        for use, found in windows:
            kept, new = self._holding(found)
            if new and _is_constant(found):
                self.before.append(_fetched(found, kept))
            elif new:
                loads = _fetched(found, kept)
                self.fetches.add(loads.name)
                yield replace(loads, constraints=() if chain.is_whole(found, moved) else found.ends)
            uses[use.name] = replace(use, buffer=kept.into, forms=found.inside)
        yield replace(moved, uses=tuple(uses.values()))

    def _as_loaded(self, node: Node) -> Node:
        """Loads that lie inside wherever the version runs need no second look; all others take the nearest element inside."""
        if not isinstance(node, Stage) or node.name not in self.fetches:
            return node
        clamp = bool(node.constraints)
        body = tuple(replace(s, clamp=clamp) if isinstance(s, Load) else s for s in node.body)
        return replace(node, constraints=(), body=body)

    def _holding(self, found: Window) -> tuple[Refinement, bool]:
        """Registers for a window, and whether they are to be filled."""
        key = (found.use.buffer, found.corner, found.held.type) if _is_constant(found) else object()
        if key in self.known:
            return self.known[key], False
        kept = self.known[key] = replace(found.held, into=claim(found.held.into, self.taken))
        self.held.append(kept)
        return kept, True


def _is_constant(found: Window) -> bool:
    return not any(c.terms for c in found.corner)


def _fetched(found: Window, kept: Refinement) -> Stage:
    stage = found.fetch()
    return replace(
        stage,
        name=f"fetch_{kept.into}",
        uses=tuple(replace(u, buffer=kept.into) if u.writes else u for u in stage.uses),
    )


def _inside(of: Split) -> tuple[Affine, ...]:
    """What keeps cells inside of a loop that its digits reach beyond."""
    low = (Affine.var(of.loop),) if of.start < 0 else ()
    return (*low, Affine.var(of.loop, -1) + (of.extent - 1)) if of.ragged else low


def _in_group(box: Refinement) -> Refinement:
    """In the group's memory, in rows of whole vectors: what a vector has beside a row's cells nobody uses."""
    type = box.type
    lanes = max(1, WIDEST // type.dtype.bytes)
    order = sorted(range(len(type.sizes)), key=lambda d: (-type.strides[d], d))
    sizes = tuple(s if d != order[-1] else -(-s // lanes) * lanes for d, s in enumerate(type.sizes))
    return replace(box, type=local_type(sizes, order, type.dtype), loc=GROUP_MEMORY)
