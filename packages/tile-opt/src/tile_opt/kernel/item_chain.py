"""Kernels under common loops over tiles as one kernel, an iteration of which computes a tile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tile_ir.frozen import replace
from tile_ir.names import claim
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Bind, Direction, Index, Location, Refinement, Scope, TensorType

from tile_opt.kernel.tiles import Tiled
from tile_opt.kernel.view import KernelView, Stage, Use

ITEMS = "item_chain"
"""The tag of kernels of which an iteration is worth an item, however much it does: it selects their plan."""
REGISTERS = Location("REG", scope=Scope.THREAD)
"""Where an item has what its stages hand on."""
GROUP = Location("LOCAL", scope=Scope.GROUP)
"""Where a group has it."""


def item_chain(made: Tiled) -> KernelView:
    """Stage after stage of all kernels, each over its part of a tile; their boxes are the kernel's own buffers."""
    taken = {i.name for i in made.loops} | {r.into for v in made.views for r in (*v.refs, *v.allocs)}
    boxes = {b.into for b in made.boxes}
    refs: dict[str, Refinement] = {r.into: r for v in made.views for r in v.refs if r.into not in boxes}
    parts = [_part(view, taken) for view in made.views]
    last = made.views[-1]
    return KernelView(
        last.name,
        tuple(replace(i, bind=Bind.NONE) for i in made.loops),
        tuple(s for stages, _ in parts for s in stages),
        tuple(refs.values()),
        (
            *(b if b.loc == GROUP else replace(b, loc=REGISTERS) for b in made.boxes),
            *(a for _, allocs in parts for a in allocs),
        ),
        frozenset({ITEMS}).union(*(v.tags for v in made.views)),
        "\n".join(v.comment for v in made.views if v.comment),
        last.origin,
    )


def _part(view: KernelView, taken: set[str]) -> tuple[list[Stage], list[Refinement]]:
    """The stages of one kernel, and its own buffers: what an iteration has for itself each cell of the tile has."""
    around = [i for i in view.loops if i.bind is not Bind.GRID]
    sizes = tuple(i.range for i in around if i.range > 1)
    own = {a.into: _each(a, sizes, claim(a.into, taken)) for a in view.allocs}
    names = {i.name: claim(i.name, taken) for i in around if i.range > 1}
    return [_stage(view, s, around, names, own, taken) for s in view.stages], list(own.values())


def _each(alloc: Refinement, sizes: tuple[int, ...], name: str) -> Refinement:
    """A buffer for each cell of a tile."""
    type = TensorType.row_major(alloc.type.dtype, (*sizes, *alloc.type.sizes))
    return replace(
        alloc, into=name, access=(Affine(),) * len(type.sizes), type=type, dir=Direction.ALLOC, loc=REGISTERS
    )


def _stage(
    view: KernelView,
    stage: Stage,
    around: Sequence[Index],
    cells: Mapping[str, str],
    own: Mapping[str, Refinement],
    taken: set[str],
) -> Stage:
    """A stage with the loops of its kernel that go over a tile as its own, under the names `cells`."""
    names = {**cells, **{i.name: claim(i.name, taken) for i in stage.loops}}
    single = {i.name: Affine() for i in around if i.range == 1}
    values = single | {old: Affine.var(new) for old, new in names.items()}
    loops = tuple(replace(i, name=names[i.name]) for i in (*around, *stage.loops) if i.name in names)
    cell = tuple(map(Affine.var, cells.values()))

    def moved(use: Use) -> Use:
        found = own.get(use.buffer)
        return use if found is None else replace(use, buffer=found.into, forms=(*cell, *use.forms))

    limits = tuple(c.substitute(values) for c in view.constraints)
    made = stage.substitute(values)
    name, uses = claim(f"{view.name}_{stage.name}", taken), tuple(map(moved, made.uses))
    return replace(made, name=name, loops=loops, uses=uses, constraints=(*limits, *made.constraints))
