"""Kernels whose parts run one after the other on tiles of a result, and exchange boxes of temporaries that stay in a cache.

In Stripe such a kernel is ``kernel [tile loops] { boxes; part [own loops] { stages }; part … }``: a part is a kernel in
normal form (`kernel.view`) to which the tile loops are passed down. `open_pipeline` gives the parts as kernels that
have these loops themselves, bound to the grid, so that whatever handles a kernel handles a part; `close_pipeline` joins them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from types import MappingProxyType

from tile_ir.frozen import frozen, replace
from tile_ir.names import claim
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Bind, Block, Direction, Index, Refinement
from tile_ir.stripe.walk import blocks_in

NOWHERE: Mapping[str, Affine] = MappingProxyType({})


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


def close_pipeline(pipeline: Pipeline, places: Mapping[str, Affine] = NOWHERE) -> Block:
    """The kernel of a pipeline; it is scheduled when its parts are. Of some tile loops they are told the number in `places`."""
    parts = tuple(_passed_loops(p, places) for p in pipeline.parts)
    return Block(
        pipeline.name,
        indexes=pipeline.loops,
        refs=(*_outside(pipeline.parts, {b.into for b in pipeline.boxes}), *pipeline.boxes),
        body=parts,
        tags=frozenset[str]().union(*(p.tags for p in pipeline.parts)),
        comment="\n".join(p.comment for p in pipeline.parts if p.comment),
        origin=pipeline.parts[-1].origin,
    )


def close_scoped(pipeline: Pipeline, copies: Sequence[Block], panels: Sequence[Refinement], groups: int) -> Block:
    """The kernel of a pipeline that makes `copies` anew for each iteration of the tile loops that these have.

    A group makes them, into `panels` that are its own, and then runs the tiles of one iteration, or of a part of those where
    there are to be so many groups.
    """
    names = {i.name for c in copies for i in c.indexes if i.bind is Bind.GRID}
    around = tuple(i for i in pipeline.loops if i.name in names)
    taken = {i.name for p in pipeline.parts for i in p.indexes}
    tiles = [replace(i, bind=Bind.NONE) for i in pipeline.loops if i.name not in names]
    first, *others = tiles or [Index(claim("tile", taken), 1)]
    parts = max(1, min(first.range, -(-groups // prod(i.range for i in around))))
    run = -(-first.range // parts)
    group, step = (claim(f"{first.name}_{kind}", taken) for kind in ("group", "step"))
    place = Affine.of({group: run, step: 1})
    inner = close_pipeline(pipeline, {first.name: place})
    loops = (*around, Index(group, -(-first.range // run), bind=Bind.GRID))
    left = (place * -1 + (first.range - 1),) if first.range % run else ()
    run_all = replace(inner, indexes=(*loops, Index(step, run), *others), constraints=left, comment="")
    made = close_pipeline(Pipeline(pipeline.name, loops, tuple(panels), (*copies, run_all)))
    return replace(made, comment=inner.comment)


def _own_loops(part: Block, loops: tuple[Index, ...]) -> Block:
    """A part as a kernel of its own."""
    own = tuple(i for i in part.indexes if i.value is None)
    return replace(part, indexes=loops + own, tags=part.tags | {"kernel"})


def _passed_loops(part: Block, places: Mapping[str, Affine]) -> Block:
    """A kernel with its loops over the grid handed down from around it."""
    passed = ((i, places.get(i.name, Affine.var(i.name))) for i in part.indexes)
    indexes = tuple(Index(i.name, 1, value) if i.bind is Bind.GRID else i for i, value in passed)
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
