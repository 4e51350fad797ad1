"""Loops from a nest into its stages, and from a stage into a nest of its own."""

from __future__ import annotations

from collections.abc import Mapping, Set

from tile_ir.frozen import replace
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Load, Location, Refinement, Statement, Store, TensorType

from tile_opt.kernel.bodies import facts
from tile_opt.kernel.view import Stage, Use
from tile_opt.plan.tree import ARRAY, REGISTER, Nest


def distribute(nest: Nest, places: Mapping[str, Location] | None = None) -> Nest:
    """Every stage of `nest` runs over the nest's loops by itself.

    The nest's own buffers get a cell per iteration: registers where they held one cell, an array of the thread
    otherwise; `places` says otherwise by buffer.
    """
    own = {a.into for a in nest.allocs}
    cell = tuple(Affine.var(i.name) for i in nest.loops)

    body = tuple(_run_by_itself(_deeper(s, own, cell), nest) for s in nest.body if isinstance(s, Stage))
    assert len(body) == len(nest.body), f"{nest.name} holds more than stages"
    allocs = tuple(_grown(a, nest, (places or {}).get(a.into)) for a in nest.allocs)
    return replace(nest, loops=(), constraints=(), allocs=allocs, body=body)


def _run_by_itself(stage: Stage, nest: Nest) -> Stage:
    constraints = nest.constraints + stage.guard + stage.constraints
    return replace(stage, loops=nest.loops + stage.loops, constraints=constraints, guard=())


def _deeper(stage: Stage, buffers: Set[str], cell: tuple[Affine, ...]) -> Stage:
    """Accesses to `buffers` with a cell's subscripts behind their own, and behind those that the body adds."""
    rest = (1,) * len(cell)

    def moved(use: Use) -> Use:
        return replace(use, forms=use.forms + cell, extent=use.extent and use.extent + rest)

    names = {u.name for u in stage.uses if u.buffer in buffers}
    uses = tuple(moved(u) if u.name in names else u for u in stage.uses)
    by_data = names & facts(stage.body).indirect
    body = tuple(_at_cell(s, by_data, len(cell)) for s in stage.body) if by_data else stage.body
    return replace(stage, uses=uses, body=body)


def _at_cell(statement: Statement, views: Set[str], rank: int) -> Statement:
    match statement:
        case Load(src=view, at=at) | Store(dst=view, at=at) if view in views:
            return replace(statement, at=(*at, *(Affine() for _ in range(rank))))
        case _:
            return statement


def _grown(alloc: Refinement, nest: Nest, place: Location | None) -> Refinement:
    sizes = alloc.type.sizes + tuple(i.range for i in nest.loops)
    if place is None:
        place = REGISTER if alloc.loc.unit == "REG" or all(s == 1 for s in alloc.type.sizes) else ARRAY
    type = TensorType.row_major(alloc.type.dtype, sizes, align=64)
    return replace(alloc, type=type, access=(Affine(),) * len(sizes), loc=place)


def gathered(stage: Stage) -> Nest:
    """A stage as a nest with the stage's loops around it."""
    inner = replace(stage, loops=(), guard=(), constraints=())
    return Nest(stage.name, stage.loops, (inner,), stage.constraints, stage.guard)
