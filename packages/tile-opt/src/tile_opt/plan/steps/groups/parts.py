"""What the items of a group do, part by part, and the kernel that is made of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod

from tile_ir.frozen import frozen, replace
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import STATIC, Block, Index, Location, Refinement, Scope, Sync

from tile_opt.kernel.unify import is_atomic, is_indirect
from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.plan.tree import GROUP_MEMORY, Nest, Node, close_tree, stages_of

MOST_EDGES = 4
"""Edges of a tile that have code of their own."""
LARGE = 256
"""Points of straight-line code that is not written again for every edge."""
DEVICE_MEMORY = Location("DRAM", scope=Scope.DEVICE)
SHARED = (GROUP_MEMORY, DEVICE_MEMORY)
Access = tuple[Stage, Use]


@frozen
class Version:
    """What the items of a group do where all forms of `guard` (of the grid's indexes) are >= 0."""

    parts: tuple[Node, ...]
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
    own = tuple(a for a in allocs if a.loc not in SHARED)
    known = {i.name for i in (*grid, *items)}
    made: list[Nest] = []
    for number, version in enumerate(versions):
        parts, limits = _hoisted(version.parts, known)
        made.append(Nest(f"{view.name}_item{number or ''}", items, parts, limits, version.guard, own))
    return close_tree(view, Nest(view.name, grid, tuple(made), allocs=shared))


def _hoisted(parts: tuple[Node, ...], known: set[str]) -> tuple[tuple[Node, ...], tuple[Affine, ...]]:
    """Constraints of items that all stages have are checked once, where no item waits for another."""
    stages = [p for p in parts if isinstance(p, Stage)]
    if len(stages) < len(parts):
        return parts, ()
    common = [c for c in stages[0].constraints if set(c.names) <= known]
    limits = tuple(c for c in dict.fromkeys(common) if all(c in s.constraints for s in stages))
    return tuple(replace(s, constraints=_without(s.constraints, limits)) for s in stages), limits


def inner_and_edges(
    parts: Sequence[Node], around: tuple[Index, ...], grid: set[str], most: int = LARGE
) -> list[Version]:
    """Groups whose iterations all meet the constraints do not check them; those at an edge do, each edge by itself.

    Code of more than `most` points is not written again. Where items wait for each other there is one version: compilers do not all take barriers in branches.
    """
    if not all(isinstance(p, Stage) for p in parts):
        return [Version(tuple(parts))]
    least = {c: _least(c, p, around, grid) for p in parts if isinstance(p, Stage) for c in p.constraints}
    edges = _tightest(e for e in least.values() if e is not None)
    points = [prod(i.range for i in p.loops if i.bind in STATIC) for p in parts if isinstance(p, Stage)]
    if not 0 < len(edges) <= MOST_EDGES or max(points) == 1 or sum(points) > most:
        return [Version(tuple(parts))]
    terms = {c: e.terms for c, e in least.items() if e is not None}
    outer = [Version(_met(parts, terms, edges[:k]), (*edges[:k], e * -1 + -1)) for k, e in enumerate(edges)]
    return [Version(_met(parts, terms, edges), edges), *outer]


def _met(parts: Sequence[Node], terms: Mapping[Affine, object], edges: Sequence[Affine]) -> tuple[Node, ...]:
    """The parts where groups are on the inner side of these edges: without the constraints that say so, by the terms of each."""
    known = {e.terms for e in edges}
    met = tuple(c for c, t in terms.items() if t in known)
    return tuple(replace(p, constraints=_without(p.constraints, met)) if isinstance(p, Stage) else p for p in parts)


def _tightest(edges: Iterable[Affine]) -> tuple[Affine, ...]:
    """Of edges that lie beside each other those which, met, leave the others met."""
    found: dict[object, Affine] = {}
    for edge in edges:
        found[edge.terms] = min(found.get(edge.terms, edge), edge, key=lambda e: e.const)
    return tuple(found.values())


def _least(constraint: Affine, stage: Stage, around: tuple[Index, ...], grid: set[str]) -> Affine | None:
    """The least value of the constraint in a group, as a form of the grid's indexes; None where that decides nothing."""
    ranges = {i.name: (0, i.range - 1) for i in (*around, *stage.loops)}
    group = Affine.of([(n, c) for n, c in constraint.terms if n in grid], constraint.const)
    if not group.terms or set(constraint.names) <= grid:
        return None
    least = group + (constraint - group).bounds(ranges)[0]
    low, high = least.bounds(ranges)
    return least if low < 0 <= high else None


def synchronised(parts: list[Node], shared: set[str], apart: set[str], barrier: Sync) -> list[Node]:
    """Barriers between what items store to the group's memory and what others read or store there after them.

    Equal subscripts mean one item's own cell, but for the buffers `apart`, which one item makes for all, and where data
    are subscripts, too.
    """
    made: list[Node] = []
    open_: dict[str, list[Access]] = {}
    for part in parts:
        accesses = [(s, u) for s in stages_of(part) for u in s.uses if u.buffer in shared]
        if any(_waits(a, open_.get(a[1].buffer, []), a[1].buffer in apart) for a in accesses):
            made.append(barrier)
            open_ = {}
        made.append(part)
        for access in accesses:
            open_.setdefault(access[1].buffer, []).append(access)
    return made


def _waits(access: Access, earlier: list[Access], apart: bool) -> bool:
    """Another item may have to be done with the cell first."""
    meeting = (e for e in earlier if not (is_atomic(*access) and is_atomic(*e)))
    return any((access[1].writes or e[1].writes) and (apart or not same_cell(access, e)) for e in meeting)


def same_cell(access: Access, other: Access) -> bool:
    """Equal loops lead both to the same single element, whatever the data."""
    (stage, use), (other_stage, other_use) = access, other
    alike = use.forms == other_use.forms and not (use.extent or other_use.extent)
    return alike and not is_indirect(stage, use) and not is_indirect(other_stage, other_use)


def _without(constraints: tuple[Affine, ...], known: tuple[Affine, ...]) -> tuple[Affine, ...]:
    return tuple(c for c in constraints if c not in known)
