"""Copies inside a kernel in panels: each tile that a register takes of a copy lies in one piece, row behind row."""

from __future__ import annotations

from tile_ir.frozen import replace
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Refinement

from tile_opt.kernel.view import Stage
from tile_opt.plan.panels import Panels
from tile_opt.plan.tree import Nest, Node, map_nests


def cut_copy(nest: Nest, order: tuple[str, ...], width: int, panel: str) -> tuple[Nest, Panels] | None:
    """`nest`, which begins with a copy over the loops of `order`, and the copy in panels of so many of the last one's iterations.

    What fills the copy goes through a row's panels by the loop `panel`. None where panels do not divide the rows.
    """
    (alloc,) = nest.allocs
    *_, last = alloc.type.sizes
    if last % width or last == width:
        return None
    body: list[Node] = []
    for node in nest.body:
        fills = isinstance(node, Stage) and any(u.writes and u.buffer == alloc.into for u in node.uses)
        body += (
            _lanes_apart(_cut(node, order[-1], width, panel), order[-1])
            if isinstance(node, Stage) and fills
            else [node]
        )
    target = next(u for n in body if isinstance(n, Stage) for u in n.uses if u.buffer == alloc.into)
    extents = dict(zip(order, alloc.type.sizes, strict=True))
    panels = Panels(target, alloc.into, order, {order[-1]: width}, alloc.type, extents, alloc.type.dtype)
    return replace(nest, body=tuple(body)), panels


def _cut(stage: Stage, along: str, width: int, panel: str) -> Stage:
    """What fills the copy, panel by panel."""
    moved = stage.substitute({along: Affine.var(panel, width) + Affine.var(along)})
    others = (i for i in stage.loops if i.name != along)
    (whole,) = (i for i in stage.loops if i.name == along)
    pair = (replace(whole, name=panel, range=whole.range // width), replace(whole, range=width))
    return replace(moved, loops=(*others, *pair))


def _lanes_apart(stage: Stage, along: str) -> tuple[Stage, ...]:
    """The stage where a constraint holds in all lanes of a vector, without asking each, and where it holds in some."""
    met = [c for c in stage.constraints if along in c.names]
    nearest = {c.terms: min((d for d in met if d.terms == c.terms), key=lambda d: d.const) for c in met}
    others = tuple(c for c in stage.constraints if c not in met)
    if len(nearest) != 1:
        return (stage,)
    (limit,) = nearest.values()
    (lanes,) = (i.range for i in stage.loops if i.name == along)
    ends = [limit.substitute({along: Affine((), at)}) for at in (0, lanes - 1)]
    all_hold, one_holds = sorted(ends, key=lambda c: c.const)
    whole = replace(stage, constraints=(*others, all_hold))
    return whole, replace(stage, constraints=(*others, one_holds, all_hold * -1 - 1, limit))


def in_panels(tree: Nest, panels: Panels) -> Nest:
    """The tree in which the copy is allocated in panels."""
    type = panels.type

    def seen(ref: Refinement) -> Refinement:
        return replace(ref, type=type, access=(Affine(),) * len(type.sizes)) if ref.into == panels.name else ref

    return map_nests(tree, lambda n: replace(n, allocs=tuple(map(seen, n.allocs))))
