"""Tiling a block: an outer block over tiles around an inner block over one tile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import cast

from tile_ir.frozen import frozen
from tile_ir.names import claim
from tile_ir.stripe.affine import Affine, Quasi, names_in
from tile_ir.stripe.nodes import Block, Direction, Index, Init, Order, Refinement, TensorType
from tile_ir.stripe.walk import index_names, with_indexes


@frozen
class TiledView:
    """A refinement tiled: origin of a tile over the outer indexes, cell in it over the inner ones, extents of the tile."""

    outer: tuple[Affine, ...]
    inner: tuple[Affine, ...]
    sizes: tuple[int, ...]


def tile_counts(block: Block, sizes: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """(tile size, number of tiles) of every index that is not passed down; absent sizes mean the full range."""
    found: dict[str, tuple[int, int]] = {}
    for index in block.indexes:
        if index.value is None:
            tile = max(1, min(sizes.get(index.name, index.range), index.range))
            found[index.name] = (tile, -(-index.range // tile))
    return found


def tiled_view(ref: Refinement, counts: Mapping[str, tuple[int, int]]) -> TiledView:
    """The views of one tile; every access of `ref` is affine."""
    outer: list[Affine] = []
    inner: list[Affine] = []
    for form in ref.access:
        assert isinstance(form, Affine)
        back = sum(c * (counts[n][0] - 1) for n, c in form.terms if n in counts and c < 0)
        far = {n: c * counts[n][0] if n in counts else c for n, c in form.terms if n not in counts or counts[n][1] > 1}
        outer.append(Affine.of(far, form.const + back))
        near = {n: c for n, c in form.terms if n in counts and counts[n][0] > 1}
        inner.append(Affine.of(near, -back))
    return TiledView(tuple(outer), tuple(inner), tile_extents(ref, counts))


def tile_extents(ref: Refinement, counts: Mapping[str, tuple[int, int]]) -> tuple[int, ...]:
    """The sizes of the view of one tile, which searches ask for thousands of tiles."""
    return tuple(
        [
            size + sum([abs(c) * (counts[n][0] - 1) for n, c in form.terms if n in counts])
            for form, size in zip(cast("tuple[Affine, ...]", ref.access), ref.type.sizes, strict=True)
        ]
    )


def can_split(block: Block) -> bool:
    """Accesses are affine, no versions are selected, and the block is not one instruction."""
    if block.instr or any(i.bind.value != "none" for i in block.indexes):
        return False
    plain = all(isinstance(f, Affine) for r in block.refs for f in r.access)
    return plain and all(len(r.access) == len(r.type.sizes) and r.versions == 1 for r in block.refs)


def split(
    block: Block, sizes: Mapping[str, int], outer_tags: Iterable[str] = (), inner_tags: Iterable[str] = ()
) -> Block:
    """`block` as tiles of the given sizes; the result is the outer block, or one around it that initialises.

    Outer and inner indexes keep their names; the inner block gets ``x_o = x`` where a constraint or the body
    needs the whole value. Stores aggregate in the inner block only, so outer indexes that several tiles of one
    result share become ORDERED.
    """
    counts = tile_counts(block, sizes)
    views = {r.into: tiled_view(r, counts) for r in block.refs if r.dir is not Direction.ALLOC}
    wide = [n for n, (_, count) in counts.items() if count > 1]
    shared = {n for r in block.refs if r.agg is not None for n in wide if not _names(r, n)}
    pushed = not shared
    inner = _inner(block, counts, views, pushed, inner_tags)
    outer = Block(
        block.name,
        tuple(_outer_index(i, counts, shared) for i in block.indexes),
        guard=block.guard,
        refs=tuple(_outer_ref(r, views[r.into]) for r in block.refs if r.dir is not Direction.ALLOC),
        body=(inner,),
        loc=block.loc,
        tags=block.tags | frozenset(outer_tags),
        comment=block.comment,
        deps=block.deps,
        origin=block.origin,
    )
    return outer if pushed or not initialises(block) else _initialising(block, outer)


def _names(ref: Refinement, name: str) -> bool:
    return any(name in form.names for form in ref.access)


def _outer_index(index: Index, counts: Mapping[str, tuple[int, int]], shared: set[str]) -> Index:
    if index.value is not None:
        return index
    order = Order.ORDERED if index.name in shared else index.order
    return replace(index, range=counts[index.name][1], order=order)


def _outer_ref(ref: Refinement, view: TiledView) -> Refinement:
    type_ = replace(ref.type, sizes=view.sizes)
    keeps = ref.agg is not None and ref.init is not Init.IDENTITY
    direction = Direction.OUT if ref.agg is not None and not keeps else ref.dir
    return replace(ref, dir=direction, access=view.outer, type=type_, agg=None, init=Init.KEEP, acc=None)


def _inner(
    block: Block,
    counts: Mapping[str, tuple[int, int]],
    views: Mapping[str, TiledView],
    pushed: bool,
    tags: Iterable[str],
) -> Block:
    used = names_in(block.constraints) | {n for s in block.body for n in index_names(s)}
    uneven = {i.name for i in block.indexes if i.value is None and counts[i.name][0] * counts[i.name][1] != i.range}
    passed = [i.name for i in block.indexes if i.value is not None and i.name in used]
    taken = {i.name for i in block.indexes}
    names = {n: claim(f"{n}_o", taken) for n, (_, k) in counts.items() if k > 1 and (n in used or n in uneven)}
    values = {n: _within(n, counts) + Affine.var(o, counts[n][0]) for n, o in names.items()}
    values |= {n: Affine() for n, (tile, k) in counts.items() if tile == 1 and k == 1}
    ranges = {i.name: i.range for i in block.indexes}
    edges = tuple(values[n] * -1 + (ranges[n] - 1) for n in names if n in uneven)
    indexes = [Index(n, 1, Affine.var(n)) for n in passed]
    indexes += [Index(o, 1, Affine.var(n)) for n, o in names.items()]
    indexes += [replace(i, range=counts[i.name][0]) for i in block.indexes if i.value is None]
    refs = tuple(_inner_ref(r, views.get(r.into), pushed) for r in block.refs)
    return Block(
        block.name,
        tuple(indexes),
        (*(c.substitute(values) for c in block.constraints), *edges),
        refs=refs,
        body=tuple(with_indexes(s, values) for s in block.body),
        loc=block.loc,
        tags=frozenset(tags),
        origin=block.origin,
    )


def _within(name: str, counts: Mapping[str, tuple[int, int]]) -> Affine:
    return Affine.var(name) if counts[name][0] > 1 else Affine()


def _inner_ref(ref: Refinement, view: TiledView | None, pushed: bool) -> Refinement:
    if view is None:
        return ref
    direction = Direction.INOUT if ref.agg is not None else ref.dir
    init = ref.init if pushed else Init.KEEP
    return replace(ref, dir=direction, source=ref.into, access=view.inner, init=init, offset=0)


def _initialising(block: Block, outer: Block) -> Block:
    """A block without loops that sets whole results to their identity, then runs the tiles that share them."""
    ranges = {i.name: (i.range, 1) for i in block.indexes if i.value is None}
    refs: list[Refinement] = []
    for ref in block.refs:
        if ref.dir is Direction.ALLOC:
            continue
        view = tiled_view(ref, ranges)
        type_: TensorType = replace(ref.type, sizes=view.sizes)
        refs.append(replace(ref, access=view.outer, type=type_))
    whole = {r.into: r for r in refs}
    body = replace(
        outer,
        guard=(),
        deps=(),
        refs=tuple(
            replace(
                r,
                source=r.into,
                dir=Direction.INOUT if whole[r.into].init is Init.IDENTITY else r.dir,
                access=tuple(a - b for a, b in zip(r.access, whole[r.into].access, strict=True)),  # type: ignore[operator]
            )
            for r in outer.refs
        ),
    )
    passed = tuple(i for i in block.indexes if i.value is not None)
    kept = replace(
        body, indexes=tuple(replace(i, value=Affine.var(i.name)) if i.value is not None else i for i in body.indexes)
    )
    tags = frozenset(block.tags & {"kernel"}) | {"initialise"}
    return Block(block.name, passed, guard=block.guard, refs=tuple(refs), body=(kept,), tags=tags, deps=block.deps)


def initialises(block: Block) -> bool:
    """Whether the block sets what it aggregates into to the identity first."""
    return any(r.init is Init.IDENTITY for r in block.refs)


def iterations(block: Block) -> int:
    """Points of the block's index box."""
    return prod(i.range for i in block.indexes)


def collapse(block: Block) -> Block:
    """A block without loops or effects of its own around one block becomes that block; others stay."""
    if len(block.body) != 1 or not isinstance(block.body[0], Block) or block.constraints or block.guard or block.instr:
        return block
    (child,) = block.body
    plain = all(
        r.dir is not Direction.ALLOC and r.agg is None and all(isinstance(f, Affine) for f in r.access)
        for r in block.refs
    )
    if not plain or any(i.value is None and i.range != 1 for i in block.indexes):
        return block
    env = {i.name: i.value if i.value is not None else Affine() for i in block.indexes}
    moved = with_indexes(child, env)
    assert isinstance(moved, Block)
    outer = {r.into: r for r in block.refs}
    refs: list[Refinement] = []
    for ref in moved.refs:
        base = outer.get(ref.source)
        if base is None:
            refs.append(ref)
            continue
        if any(f.terms for f in base.access if isinstance(f, Affine)) or len(base.access) != len(ref.access):
            return block
        refs.append(through(ref, base.source, base.access))
    return replace(moved, refs=tuple(refs), tags=moved.tags | block.tags, deps=block.deps, loc=moved.loc or block.loc)


def shifted(form: Quasi, by: Quasi) -> Quasi:
    """The sum of a form and an Affine."""
    assert isinstance(by, Affine)
    return form + by if isinstance(form, Affine) else replace(form, plus=form.plus + by)


def through(ref: Refinement, source: str, origin: Sequence[Quasi]) -> Refinement:
    """A view of a view as one of what that shows, which it shows from `origin` on."""
    access = tuple(shifted(form, start) for form, start in zip(ref.access, origin, strict=True))
    return replace(ref, source=source, access=access)


def initialise_around(block: Block, results: Mapping[str, Refinement]) -> Block:
    """`block` in a block that first sets whole results to their identity: local name -> how it aggregates."""
    marked = tuple(
        replace(r, agg=results[r.into].agg, acc=results[r.into].acc, init=Init.IDENTITY) if r.into in results else r
        for r in block.refs
    )
    return _initialising(replace(block, refs=marked), block)
