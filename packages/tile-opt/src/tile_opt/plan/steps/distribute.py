"""Loops from a nest into its stages, and from a stage into a nest of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Location, Refinement, TensorType

from tile_opt.kernel.view import Stage, Use
from tile_opt.plan.tree import ARRAY, REGISTER, Nest


def distribute(nest: Nest, places: Mapping[str, Location] | None = None) -> Nest:
    """Every stage of `nest` runs over the nest's loops by itself.

    The nest's own buffers get a cell per iteration: registers where they held one cell, an array of the thread
    otherwise; `places` says otherwise by buffer.
    """
    own = {a.into for a in nest.allocs}
    cell = tuple(Affine.var(i.name) for i in nest.loops)

    def moved(use: Use) -> Use:
        return replace(use, forms=use.forms + cell) if use.buffer in own else use

    body = tuple(_run_by_itself(s, nest, tuple(moved(u) for u in s.uses)) for s in nest.body if isinstance(s, Stage))
    assert len(body) == len(nest.body), f"{nest.name} holds more than stages"
    allocs = tuple(_grown(a, nest, (places or {}).get(a.into)) for a in nest.allocs)
    return replace(nest, loops=(), constraints=(), allocs=allocs, body=body)


def _run_by_itself(stage: Stage, nest: Nest, uses: tuple[Use, ...]) -> Stage:
    constraints = nest.constraints + stage.guard + stage.constraints
    return replace(stage, loops=nest.loops + stage.loops, uses=uses, constraints=constraints, guard=())


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
