"""Kernels whose parts run one after the other on tiles of a result, and exchange boxes of temporaries that stay in a cache.

In Stripe such a kernel is ``kernel [tile loops] { boxes; part [own loops] { stages }; part … }``: a part is a kernel in
normal form (`kernel.view`) to which the tile loops are passed down. `open_pipeline` gives the parts as kernels that
have these loops themselves, bound to the grid, so that whatever handles a kernel handles a part; `close_pipeline` joins them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tile_ir.frozen import frozen, replace
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Bind, Block, Direction, Index, Refinement
from tile_ir.stripe.walk import blocks_in


@frozen
class Pipeline:
    """Tile loops, the boxes that are private to one tile, and the parts in order."""

    name: str
    loops: tuple[Index, ...]
    """Bound to the grid."""
    boxes: tuple[Refinement, ...]
    parts: tuple[Block, ...]
    """Kernels around which the tile loops stand; they see the boxes as buffers."""

    def map(self, step: Callable[[Block], Block]) -> Pipeline:
        """The pipeline with every part rewritten."""
        return replace(self, parts=tuple(step(part) for part in self.parts))


def open_pipeline(block: Block) -> Pipeline | None:
    """The pipeline of a kernel that is one, and is not scheduled yet."""
    if "kernel" not in block.tags or "scheduled" in block.tags or block.constraints or block.guard:
        return None
    parts = [s for s in block.body if isinstance(s, Block)]
    if not parts or len(parts) < len(block.body) or not all(any(b is not p for b in blocks_in(p)) for p in parts):
        return None
    boxes = tuple(r for r in block.refs if r.dir is Direction.ALLOC)
    return Pipeline(block.name, block.indexes, boxes, tuple(_own_loops(p, block.indexes) for p in parts))


def close_pipeline(pipeline: Pipeline) -> Block:
    """The kernel of a pipeline; it is scheduled when its parts are."""
    parts = tuple(_passed_loops(p) for p in pipeline.parts)
    return Block(
        pipeline.name,
        indexes=pipeline.loops,
        refs=(*_outside(pipeline.parts, {b.into for b in pipeline.boxes}), *pipeline.boxes),
        body=parts,
        tags=frozenset[str]().union(*(p.tags for p in pipeline.parts)),
        comment="\n".join(p.comment for p in pipeline.parts if p.comment),
        origin=pipeline.parts[-1].origin,
    )


def _own_loops(part: Block, loops: tuple[Index, ...]) -> Block:
    """A part as a kernel of its own."""
    own = tuple(i for i in part.indexes if i.value is None)
    return replace(part, indexes=loops + own, tags=part.tags | {"kernel"})


def _passed_loops(part: Block) -> Block:
    """A kernel with its loops over the grid handed down from around it."""
    indexes = tuple(Index(i.name, 1, Affine.var(i.name)) if i.bind is Bind.GRID else i for i in part.indexes)
    return replace(part, indexes=indexes, tags=part.tags - {"kernel", "scheduled"}, comment=part.comment)


def _outside(parts: Sequence[Block], boxes: set[str]) -> tuple[Refinement, ...]:
    """Main's buffers, in the direction in which all parts together use them."""
    found: dict[str, list[Refinement]] = {}
    for ref in (r for p in parts for r in p.refs if r.dir is not Direction.ALLOC and r.source not in boxes):
        found.setdefault(ref.source, []).append(ref)
    return tuple(replace(refs[0], into=source, dir=_together(refs)) for source, refs in found.items())


def _together(refs: list[Refinement]) -> Direction:
    found = {r.dir for r in refs}
    return found.pop() if len(found) == 1 else Direction.INOUT
