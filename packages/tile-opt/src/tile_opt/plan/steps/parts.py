"""What the items of a group do, part by part, and the kernel that is made of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Bind, Block, Direction, Index, Location, Refinement, Scope, Statement, Sync

from tile_opt.kernel.view import KernelView, Stage, Use, close_stage
from tile_opt.plan.nest import GROUP_MEMORY, scheduled, whole_refs
from tile_opt.plan.steps.combine import Total

MOST_EDGES = 4
"""Edges of a tile that have code of their own."""
DEVICE_MEMORY = Location("DRAM", scope=Scope.DEVICE)
SHARED = (GROUP_MEMORY, DEVICE_MEMORY)
STATIC = (Bind.UNROLL, Bind.VECTOR)


@dataclass(frozen=True, slots=True)
class Loop:
    """Stages that an item runs together, step by step."""

    name: str
    steps: tuple[Index, ...]
    body: tuple[Stage | Sync, ...]

    def block(self, view: KernelView, buffers: Mapping[str, Refinement], outer: tuple[str, ...]) -> Block:
        """The loop in a parent that has the loops `outer` and sees `buffers`."""
        stages = tuple(s for s in self.body if isinstance(s, Stage))
        used = {n for s in stages for n in s.names()}
        inside = {r.into: r for r in whole_refs(replace(view, refs=tuple(buffers.values())), stages)}
        known = (*outer, *(i.name for i in self.steps))
        passed = tuple(Index(n, 1, Affine.var(n)) for n in outer if n in used)
        body = tuple(close_stage(s, inside, known) if isinstance(s, Stage) else s for s in self.body)
        return Block(self.name, indexes=passed + self.steps, refs=tuple(inside.values()), body=body)


Part = Stage | Loop | Total | Sync


@dataclass(frozen=True, slots=True)
class Version:
    """What the items of a group do where all forms of `guard` (of the grid's indexes) are >= 0."""

    parts: tuple[Part, ...]
    guard: tuple[Affine, ...] = ()


def item_kernel(
    view: KernelView,
    grid: tuple[Index, ...],
    items: tuple[Index, ...],
    versions: Sequence[Version],
    allocs: tuple[Refinement, ...],
) -> Block:
    """The scheduled block: groups, their items, and what each item does in order."""
    shared = tuple(a for a in allocs if a.loc in SHARED)
    body = tuple(_item(view, k, grid, items, v, allocs) for k, v in enumerate(versions))
    return scheduled(view, grid, body, shared)


def _item(
    view: KernelView,
    number: int,
    grid: tuple[Index, ...],
    items: tuple[Index, ...],
    version: Version,
    allocs: tuple[Refinement, ...],
) -> Block:
    parts, limits = _hoisted(version.parts, {i.name for i in (*grid, *items)})
    mentioned = {n for p in parts for s in stages_of(p) for n in s.names()} | {n for c in limits for n in c.names}
    passed = tuple(Index(i.name, 1, Affine.var(i.name)) for i in grid if i.name in mentioned)
    buffers = {r.into: r for r in (*view.refs, *allocs)}
    names = tuple(i.name for i in (*grid, *items))
    return Block(
        f"{view.name}_item{number or ''}",
        indexes=(*passed, *items),
        constraints=limits,
        guard=version.guard,
        refs=(
            *whole_refs(view, view.stages),
            *(replace(a, dir=Direction.INOUT, source=a.into) for a in allocs if a.loc in SHARED),
            *(a for a in allocs if a.loc not in SHARED),
        ),
        body=tuple(s for p in parts for s in _statements(view, p, buffers, names)),
    )


def _hoisted(parts: tuple[Part, ...], known: set[str]) -> tuple[tuple[Part, ...], tuple[Affine, ...]]:
    """Constraints of items that all stages have are checked once, where no item waits for another."""
    stages = [p for p in parts if isinstance(p, Stage)]
    if len(stages) < len(parts):
        return parts, ()
    common = [c for c in stages[0].constraints if set(c.names) <= known]
    limits = tuple(c for c in dict.fromkeys(common) if all(c in s.constraints for s in stages))
    return tuple(replace(s, constraints=_without(s.constraints, limits)) for s in stages), limits


def inner_and_edges(parts: Sequence[Part], around: tuple[Index, ...], grid: set[str]) -> list[Version]:
    """Groups whose iterations all meet the constraints do not check them; those at an edge do, each edge by itself.

    Where items wait for each other there is one version: compilers do not all take barriers in branches.
    """
    if not all(isinstance(p, Stage) for p in parts):
        return [Version(tuple(parts))]
    least = {c: _least(c, p, around, grid) for p in parts if isinstance(p, Stage) for c in p.constraints}
    edges = tuple(dict.fromkeys(e for e in least.values() if e is not None))
    straight = any(i.bind in STATIC for p in parts if isinstance(p, Stage) for i in p.loops)
    if not 0 < len(edges) <= MOST_EDGES or not straight:
        return [Version(tuple(parts))]
    met = tuple(c for c, e in least.items() if e is not None)
    inner = tuple(replace(p, constraints=_without(p.constraints, met)) if isinstance(p, Stage) else p for p in parts)
    outer = [Version(tuple(parts), (*edges[:k], e * -1 + -1)) for k, e in enumerate(edges)]
    return [Version(inner, edges), *outer]


def _least(constraint: Affine, stage: Stage, around: tuple[Index, ...], grid: set[str]) -> Affine | None:
    """The least value of the constraint in a group, as a form of the grid's indexes; None where that decides nothing."""
    ranges = {i.name: (0, i.range - 1) for i in (*around, *stage.loops)}
    group = Affine.of([(n, c) for n, c in constraint.terms if n in grid], constraint.const)
    if not group.terms or set(constraint.names) <= grid:
        return None
    least = group + (constraint - group).bounds(ranges)[0]
    low, high = least.bounds(ranges)
    return least if low < 0 <= high else None


def stages_of(part: Part) -> tuple[Stage, ...]:
    """The stages of a part, in order."""
    match part:
        case Stage():
            return (part,)
        case Loop():
            return tuple(s for s in part.body if isinstance(s, Stage))
        case _:
            return ()


def _statements(
    view: KernelView, part: Part, buffers: dict[str, Refinement], names: tuple[str, ...]
) -> list[Statement]:
    match part:
        case Loop():
            return [part.block(view, buffers, names)]
        case Total():
            return part.statements()
        case Sync():
            return [part]
        case Stage():
            return [close_stage(part, buffers, names)]


def synchronised(parts: list[Part], shared: set[str], barrier: Sync) -> list[Part]:
    """Barriers between what items store to the group's memory and what others read or store there after them."""
    made: list[Part] = []
    open_: dict[str, list[Use]] = {}
    for part in parts:
        uses = [u for s in stages_of(part) for u in s.uses if u.buffer in shared]
        if any(_waits(use, open_.get(use.buffer, [])) for use in uses):
            made.append(barrier)
            open_ = {}
        made.append(part)
        for use in uses:
            open_.setdefault(use.buffer, []).append(use)
    return made


def _waits(use: Use, earlier: list[Use]) -> bool:
    """Another item may have to be done with the cell first."""
    return any((use.writes or e.writes) and e.forms != use.forms for e in earlier)


def _without(constraints: tuple[Affine, ...], known: tuple[Affine, ...]) -> tuple[Affine, ...]:
    return tuple(c for c in constraints if c not in known)
