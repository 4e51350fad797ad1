"""Several kernels as the parts of one that runs over tiles of the last one's result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from tile_ir.frozen import frozen, replace
from tile_ir.names import claim
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Bind, Index, Location, Refinement, Scope, TensorType

from tile_opt.kernel.pipeline import Pipeline
from tile_opt.kernel.regroup import packed
from tile_opt.kernel.view import KernelView, Stage, Use, close_kernel
from tile_opt.kernel.windows import Window, dimension
from tile_opt.kernel.work import nbytes

PRIVATE = Location("LOCAL", scope=Scope.THREAD)
MANY = 4
"""Tiles that read the same, for which it is worth a copy in the order in which they do."""


@frozen
class TiledLoop:
    """A loop of the last kernel cut into tiles, and what each kernel computes for a tile."""

    extent: int
    tile: int
    number: str
    """The loop over tiles."""
    windows: tuple[Window, ...]

    @property
    def index(self) -> Index:
        return Index(self.number, -(-self.extent // self.tile), bind=Bind.GRID)


@frozen
class Tiled:
    """Kernels under common loops over tiles."""

    loops: tuple[Index, ...]
    boxes: tuple[Refinement, ...]
    views: tuple[KernelView, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the boxes."""
        return sum(nbytes(box.type) for box in self.boxes)

    def pipeline(self) -> Pipeline:
        """One kernel of them all."""
        first, last = self.views[0].name, self.views[-1].name
        return Pipeline(f"{first}_to_{last}", self.loops, self.boxes, tuple(map(close_kernel, self.views)))


def tiled(
    views: Sequence[KernelView], boxes: Mapping[str, int], cuts: Sequence[TiledLoop], where: Location = PRIVATE
) -> Tiled:
    """The kernels with their rows cut to what a tile needs; `boxes` has the producer of each temporary, which lies `where`.

    Boxes that many items share are filled whole: what lies past the ends nobody takes for an element.
    """
    shapes = {name: replace(box, loc=where) for name, box in _boxes(views, boxes, cuts).items()}
    parts = tuple(_part(view, k, boxes, shapes, cuts, views) for k, view in enumerate(views))
    return Tiled(tuple(cut.index for cut in cuts), tuple(shapes.values()), parts)


def private_bytes(views: Sequence[KernelView], boxes: Mapping[str, int], cuts: Sequence[TiledLoop]) -> int:
    """Bytes of the boxes of one tile."""
    return sum(nbytes(box.type) for box in _boxes(views, boxes, cuts).values())


def numbers(views: Sequence[KernelView], loops: Sequence[str]) -> tuple[str, ...]:
    """Names for the loops over tiles that no kernel uses."""
    taken = {name for view in views for name in view.ranges}
    return tuple(claim(f"{loop}_tile", taken) for loop in loops)


def read_again(view: KernelView) -> frozenset[str]:
    """Buffers outside its boxes of which `MANY` tiles, or more, of a part of a pipeline read the same, and none writes any."""
    tiles = [i for i in view.loops if i.bind is Bind.GRID]
    moved: dict[str, set[str]] = {}
    for use in (u for u in view.uses):
        moved.setdefault(use.buffer, set()).update(n for f in use.forms for n in f.names)
    outside = {r.into for r in view.refs if r.loc != PRIVATE} - view.writes()
    return frozenset(
        b for b, names in moved.items() if b in outside and prod(i.range for i in tiles if i.name not in names) >= MANY
    )


def _boxes(views: Sequence[KernelView], boxes: Mapping[str, int], cuts: Sequence[TiledLoop]) -> dict[str, Refinement]:
    return {b: _box(views[p], b, [(cut, cut.windows[p]) for cut in cuts]) for b, p in boxes.items()}


def _box(view: KernelView, buffer: str, cuts: Sequence[tuple[TiledLoop, Window]]) -> Refinement:
    """What a tile needs of a temporary."""
    whole = view.type_of(buffer)
    sizes = list(whole.sizes)
    for cut, window in cuts:
        dim = dimension(view, buffer, window.loop)
        assert dim is not None
        sizes[dim] = window.count(cut.tile)
    type = packed(whole, tuple(sizes))
    return Refinement.allocation(buffer, type, PRIVATE)


def _part(
    view: KernelView,
    k: int,
    boxes: Mapping[str, int],
    shapes: Mapping[str, Refinement],
    cuts: Sequence[TiledLoop],
    views: Sequence[KernelView],
) -> KernelView:
    """One kernel on the rows of a tile; rows past the ends of its result do not run."""
    rows = {cut.windows[k].loop: cut.windows[k].first(cut.tile, cut.number) for cut in cuts}
    counts = {cut.windows[k].loop: cut.windows[k].count(cut.tile) for cut in cuts}
    origins = {b: _origin(views[p], b, p, cuts) for b, p in boxes.items()}
    values = {name: first + Affine.var(name) for name, first in rows.items()}
    extents = {i.name: i.range for i in view.loops}
    loops = tuple(replace(i, range=counts.get(i.name, i.range)) for i in view.loops)
    around = tuple(cut.index for cut in cuts)
    known = {i.name: (0, i.range - 1) for i in (*around, *loops)}
    ends = [c for n, f in values.items() for c in (f, f * -1 + (extents[n] - 1)) if c.bounds(known)[0] < 0]
    filled = all(shapes[b].loc != PRIVATE for b in view.writes() & shapes.keys())
    limits = ends if k == len(views) - 1 or not filled else []
    part = replace(
        view,
        loops=around + loops,
        stages=tuple(_moved(s, values, origins) for s in view.stages),
        refs=tuple(_seen(r, shapes) for r in view.refs),
        constraints=(*(c.substitute(values) for c in view.constraints), *limits),
    )
    return replace(part, again=read_again(part))


def _origin(producer: KernelView, buffer: str, p: int, cuts: Sequence[TiledLoop]) -> tuple[Affine, ...]:
    """The first element of a box."""
    origin = [Affine()] * len(producer.type_of(buffer).sizes)
    for cut in cuts:
        window = cut.windows[p]
        dim = dimension(producer, buffer, window.loop)
        assert dim is not None
        origin[dim] = window.first(cut.tile, cut.number)
    return tuple(origin)


def _moved(stage: Stage, values: dict[str, Affine], origins: Mapping[str, tuple[Affine, ...]]) -> Stage:
    def boxed(use: Use) -> Use:
        origin = origins.get(use.buffer)
        if origin is None:
            return use
        return replace(use, forms=tuple(f - o for f, o in zip(use.forms, origin, strict=True)))

    return stage.substitute(values).map_uses(boxed)


def _seen(ref: Refinement, shapes: Mapping[str, Refinement]) -> Refinement:
    """A buffer as a part sees it."""
    box = shapes.get(ref.into)
    type: TensorType = ref.type if box is None else box.type
    return ref if box is None else replace(ref, type=type, loc=box.loc)
