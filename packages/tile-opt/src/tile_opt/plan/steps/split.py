"""Splitting loops into levels, moving them outward, and joining nests that hold nothing but a nest."""

from __future__ import annotations

from tile_ir.frozen import replace
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Bind

from tile_opt.kernel.view import Stage
from tile_opt.plan.tree import Nest, Node, substitute


def split(nest: Nest, loop: str, size: int, name: str, bind: Bind = Bind.NONE, count: int = 0) -> Nest:
    """A new loop `name` around `nest` steps over blocks of `size` iterations of its loop, which keeps its name inside.

    Where blocks do not divide the loop, the last one is cut short by a constraint. With a `count` there are so many
    blocks, the last of them perhaps empty.
    """
    whole = nest.loop(loop)
    assert whole is not None, f"{nest.name} has no loop {loop}"
    count = max(count, -(-whole.range // size))
    form = Affine.var(name, size) + Affine.var(loop)
    inner = substitute(replace(nest, guard=()), {loop: form})
    past = (form * -1 + (whole.range - 1),) if count * size > whole.range else ()
    loops = tuple(replace(i, range=size) if i.name == loop else i for i in nest.loops)
    inner = replace(inner, loops=loops, constraints=inner.constraints + past)
    return Nest(nest.name, (replace(whole, name=name, range=count, bind=bind),), (inner,), guard=nest.guard)


def hoist(nest: Nest, *loops: str) -> Nest:
    """The given loops of `nest` in a nest of their own around it, in the given order."""
    outer = tuple(i for n in loops if (i := nest.loop(n)) is not None)
    names = {i.name for i in outer}
    inside = {i.name for i in nest.loops} - names
    early = tuple(c for c in nest.constraints if not inside.intersection(c.names))
    kept = replace(
        nest,
        loops=tuple(i for i in nest.loops if i.name not in names),
        constraints=tuple(c for c in nest.constraints if c not in early),
        guard=(),
    )
    return Nest(nest.name, outer, (kept,), early, nest.guard)


def joined(nest: Nest) -> Nest:
    """The same tree, nests that hold one nest joined with it, and nests that hold one stage become that stage."""
    flat: list[Node] = []
    for node in nest.body:
        made = into_stage(joined(node)) if isinstance(node, Nest) else node
        flat += made.body if isinstance(made, Nest) and _is_bare(made) else (made,)
    nest = replace(nest, body=tuple(flat))
    match nest.body:
        case (Nest() as only,) if _may_join(nest, only):
            constraints = nest.constraints + only.guard + only.constraints
            return replace(
                only, name=nest.name, loops=nest.loops + only.loops, constraints=constraints, guard=nest.guard
            )
        case _:
            return nest


def _is_bare(nest: Nest) -> bool:
    return not (nest.loops or nest.constraints or nest.guard or nest.allocs)


def _may_join(nest: Nest, only: Nest) -> bool:
    """The grid stands alone, outermost."""
    if any(i.bind is Bind.GRID for i in nest.loops):
        return bool(only.loops) and not (only.constraints or only.guard) and _is_grid(only) and not nest.allocs
    return not nest.allocs and not _is_grid(only)


def _is_grid(nest: Nest) -> bool:
    return bool(nest.loops) and all(i.bind is Bind.GRID for i in nest.loops)


def into_stage(nest: Nest) -> Nest | Stage:
    """A nest around one stage as that stage with all loops, where nothing else needs the nest.

    A stage that is one instruction has no loops but the instruction's.
    """
    match nest.body:
        case (Stage() as stage,) if not (nest.allocs or _is_grid(nest) or stage.instr):
            return replace(
                stage,
                loops=nest.loops + stage.loops,
                constraints=nest.constraints + stage.constraints + stage.guard,
                guard=nest.guard,
            )
        case _:
            return nest
