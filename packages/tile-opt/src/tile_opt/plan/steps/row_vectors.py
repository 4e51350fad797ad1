"""What fills the rows of a copy, in vectors along them."""

from __future__ import annotations

from tile_ir.frozen import replace
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Bind, Index

from tile_opt.kernel.view import Stage
from tile_opt.kernel.widen import narrowed
from tile_opt.plan.tree import Nest, Node


def along_rows(stage: Stage, lanes: int, name: str) -> Node:
    """The stage, whose last loop walks rows of memory, by a loop `name` over vectors; what is left of a row is a short one."""
    stage = narrowed(stage)
    whole, rest = divmod(stage.loops[-1].range, lanes)
    vectors = _part(stage, Index(name, whole), lanes, 0) if whole else None
    short = _part(stage, None, rest, whole * lanes) if rest else None
    parts = tuple(p for p in (vectors, short) if p is not None)
    return parts[0] if len(parts) == 1 else Nest(stage.name, body=parts)


def _part(stage: Stage, steps: Index | None, lanes: int, first: int) -> Stage:
    """A vector of each row, from its element `first` on, or so many steps of them."""
    *outer, row = stage.loops
    at = Affine.of({row.name: 1, **({steps.name: lanes} if steps else {})}, first)
    vector = replace(row, range=lanes, bind=Bind.VECTOR, lanes=lanes)
    return replace(stage.substitute({row.name: at}), loops=(*outer, *([steps] if steps else []), vector))
