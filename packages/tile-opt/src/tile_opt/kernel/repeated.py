"""A kernel of small reductions, repeated for every stretch of the elements that another one computes from their results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from tile_ir.frozen import frozen, replace
from tile_ir.names import claim, fresh
from tile_ir.stripe.affine import Affine, names_in
from tile_ir.stripe.nodes import Index

from tile_opt.kernel.regroup import fresh_all, localised, packed, unique_loops
from tile_opt.kernel.strides import flat_stride
from tile_opt.kernel.view import KernelView, Stage, Use, is_parallel

LEAST = 64
"""Elements of a stretch."""
BESIDES = 8
"""Iterations of a reduction that items do not share."""


@frozen
class Repeated:
    """Which of the reader's loops become a stretch's own: from `split` on, which is cut into pieces of `size` iterations."""

    cells: Mapping[str, str]
    """Loops of the maker -> those of the reader."""
    whole: tuple[str, ...]
    """Loops that a stretch has whole."""
    split: str
    """The loop that is cut, "" where none is."""
    piece: int
    """Iterations of it."""
    size: int
    """Elements of a stretch, for each cell."""
    beside: int
    """Neighbouring cells of a group."""


def stretches(maker: KernelView, reader: KernelView, most: int, beside: int) -> Iterator[Repeated]:
    """What a group may go over, for which it repeats `maker`: up to `most` elements, the longest stretch first."""
    cells = _cells(maker, reader)
    if (
        cells is None
        or not reader.loops
        or any(s.loops for s in reader.stages)
        or any(_rest(s) > BESIDES for s in maker.stages)
    ):
        return
    along = _along(reader)
    side = min(beside, reader.ranges[along]) if along in cells.values() else 1
    free = [i for i in reader.loops if i.name not in cells.values()]
    if not free or any(not is_parallel(i) for i in free):
        return
    limit = most // side
    while limit >= LEAST:
        yield _stretch(cells, free, limit, side)
        limit //= 2


def _rest(stage: Stage) -> int:
    """Iterations that every item does by itself: of all loops but the longest, which items share."""
    return prod(i.range for i in stage.loops) // max((i.range for i in stage.loops), default=1)


def _stretch(cells: Mapping[str, str], free: list[Index], limit: int, beside: int) -> Repeated:
    whole: list[str] = []
    size = 1
    for loop in reversed(free):
        if size * loop.range > limit:
            pieces = -(-loop.range // max(1, limit // size))
            piece = -(-loop.range // pieces)
            return Repeated(cells, tuple(whole), loop.name, piece, size * piece, beside)
        whole.append(loop.name)
        size *= loop.range
    return Repeated(cells, tuple(whole), "", 1, size, beside)


def _along(reader: KernelView) -> str:
    """The loop along which most elements are neighbours."""
    uses = [u for u in reader.uses if not reader.is_local(u.buffer)]
    sizes = [(u, prod(reader.ranges[n] for n in names_in(u.forms))) for u in uses]

    def near(loop: str) -> int:
        return sum(size for u, size in sizes if abs(flat_stride(reader, u, loop)) == 1)

    return max((i.name for i in reader.loops), key=near)


def _cells(maker: KernelView, reader: KernelView) -> dict[str, str] | None:
    """The reader's loop that is each of the maker's, by how both subscript what passes between them."""
    found: dict[str, str] = {}
    written = {u.buffer: u for u in maker.uses if u.writes and not maker.is_local(u.buffer)}
    for use in (u for u in reader.uses if u.buffer in written):
        for mine, theirs in zip(written[use.buffer].forms, use.forms, strict=True):
            if mine == theirs and mine.is_const:
                continue
            a, b = _plain(mine), _plain(theirs)
            if not (a and b) or found.setdefault(a, b) != b or maker.ranges[a] != reader.ranges[b]:
                return None
    return found if {*found} == {i.name for i in maker.loops} and len({*found.values()}) == len(found) else None


def _plain(form: Affine) -> str:
    """The one loop that the form is; "" for any other."""
    return form.names[0] if len(form.names) == 1 and form == Affine.var(form.names[0]) else ""


def repeated(maker: KernelView, reader: KernelView, how: Repeated) -> KernelView:
    """One kernel: for each stretch the stages of `maker`, then those of `reader`, whose elements are the stages' own.

    The reductions get as many iterations as the stretch's longest loop, so that items share both alike.
    """
    taken = {i.name for i in reader.loops}
    own, around, moved, limits = _divided(reader, how, taken)
    passed = maker.writes()
    inner = _renamed(maker, how.cells, reader)
    longest = max((i.range for s in inner.stages for i in s.loops), default=1)
    walked = max(own, key=lambda i: i.range)
    length = max(walked.range, longest)
    if length > walked.range:
        limits = (*limits, Affine.var(walked.name, -1) + (walked.range - 1))
        own = tuple(replace(i, range=length) if i is walked else i for i in own)
    first = tuple(_as_long(s, replace(walked, range=length)) for s in inner.stages)
    then = tuple(
        replace(s.substitute(moved), loops=own, constraints=(*(c.substitute(moved) for c in s.constraints), *limits))
        for s in reader.stages
    )
    refs = {r.into: r for r in (*inner.refs, *reader.refs)}
    both = replace(
        reader, loops=around, stages=(*first, *then), refs=tuple(refs.values()), allocs=(*inner.allocs, *reader.allocs),
        comment="\n".join(c for c in (maker.comment, reader.comment) if c),
    )  # fmt: skip
    return unique_loops(_single(localised(both, passed), passed))


def _divided(
    reader: KernelView, how: Repeated, taken: set[str]
) -> tuple[tuple[Index, ...], tuple[Index, ...], dict[str, Affine], tuple[Affine, ...]]:
    """A stretch's own loops, those around it, what the cut loop is of these, and the limit of a ragged last piece."""
    own = tuple(i for i in reader.loops if i.name in how.whole)
    around = tuple(i for i in reader.loops if i.name not in how.whole and i.name != how.split)
    if not how.split:
        return own, around, {}, ()
    cut = next(i for i in reader.loops if i.name == how.split)
    chunk = replace(cut, name=fresh(f"{cut.name}_chunk", taken), range=-(-cut.range // how.piece))
    form = Affine.var(chunk.name, how.piece) + Affine.var(cut.name)
    limits = () if cut.range % how.piece == 0 else (form * -1 + (cut.range - 1),)
    around = tuple(chunk if i is cut else i for i in reader.loops if i.name not in how.whole)
    return (replace(cut, range=how.piece), *own), around, {cut.name: form}, limits


def _renamed(maker: KernelView, cells: Mapping[str, str], reader: KernelView) -> KernelView:
    """The maker with the reader's loops, and names of its own that the reader does not have."""
    taken = {*(i.name for i in reader.loops), *(r.into for r in (*reader.refs, *reader.allocs, *maker.refs))}
    names = fresh_all((a.into for a in maker.allocs), taken)

    def moved(stage: Stage) -> Stage:
        own = {i.name: claim(i.name, taken) for i in stage.loops}
        known = {n: Affine.var(m) for n, m in (*cells.items(), *own.items())}
        stage = replace(stage.substitute(known), loops=tuple(replace(i, name=own[i.name]) for i in stage.loops))
        return stage.with_buffers(names)

    allocs = tuple(replace(a, into=names[a.into]) for a in maker.allocs)
    return replace(maker, stages=tuple(map(moved, maker.stages)), allocs=allocs, loops=())


def _as_long(stage: Stage, walked: Index) -> Stage:
    """The stage with as many iterations of its longest loop, of which those beyond its end do nothing."""
    longest = max(stage.loops, key=lambda i: i.range, default=walked)
    if longest.range == walked.range:
        return stage
    limit = Affine.var(longest.name, -1) + (longest.range - 1)
    loops = tuple(replace(walked, name=i.name) if i is longest else i for i in stage.loops)
    return replace(stage, loops=loops, constraints=(*stage.constraints, limit))


def _single(view: KernelView, passed: frozenset[str]) -> KernelView:
    """What passes between the kernels is one cell for each iteration of the loops around."""

    def at(use: Use) -> Use:
        return replace(use, forms=tuple(Affine() for _ in use.forms)) if use.buffer in passed else use

    allocs = tuple(
        replace(a, type=packed(a.type, (1,) * len(a.type.sizes))) if a.into in passed else a for a in view.allocs
    )
    return replace(view.map_uses(at), allocs=allocs)
