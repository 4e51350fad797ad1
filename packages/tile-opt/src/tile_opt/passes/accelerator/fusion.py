"""fusion: two neighbouring blocks, one writing what the other reads, become one block over their common loops.

For every dimension of the buffer between them both accesses are one loop each. The second block is
tiled by the quotient of the coefficients, loops are identified pairwise, the rest stays inside: elementwise joins a
contraction over its output, a contraction joins a contraction over what it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tile_ir.names import claim
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Block, Direction, Index, Order, Program, Refinement, Statement
from tile_ir.stripe.walk import buffers_named, buffers_read, buffers_written, with_indexes
from tile_ir.target import Target

from tile_opt.blocks.buffers import in_the_way
from tile_opt.blocks.inline_blocks import flattened
from tile_opt.blocks.split import can_split, collapse, initialise_around, initialises, split, through
from tile_opt.blocks.tree import matches, rewrite_matching
from tile_opt.passes.base import Pass


@dataclass(frozen=True)
class Fusion(Pass):
    """Fuse pairs with tags `a_reqs` and `b_reqs` (any, when empty) in blocks with tags `parent_reqs` (main, when empty).

    A fused block has the tags `fused_set`; blocks with a tag of `exclude` stay alone; at most `max_refs` refinements.
    """

    parent_reqs: tuple[str, ...] = ()
    a_reqs: tuple[str, ...] = ()
    b_reqs: tuple[str, ...] = ()
    fused_set: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    a_inner_set: tuple[str, ...] = ()
    b_inner_set: tuple[str, ...] = ()
    max_refs: int = 1024

    def apply(self, program: Program, target: Target) -> Program:
        return rewrite_matching(
            program, self.parent_reqs or ("main",), lambda block, _: self._fused(block), inner_first=True
        )

    def _fused(self, block: Block) -> Block:
        body: list[Statement] = list(block.body)
        place = 0
        while place < len(body):
            first = body[place]
            found = self._partner(body, place) if isinstance(first, Block) and self._fits(first, self.a_reqs) else None
            if found is None:
                place += 1
                continue
            number, fused = found
            body[place] = fused
            del body[number]
        if len(body) == len(block.body):
            return block
        return replace(block, body=tuple(replace(s, deps=()) for s in body))

    def _fits(self, block: Block, reqs: tuple[str, ...]) -> bool:
        return (not reqs or matches(block, reqs)) and not block.tags.intersection(self.exclude)

    def _partner(self, body: Sequence[Statement], place: int) -> tuple[int, Block] | None:
        first = body[place]
        assert isinstance(first, Block)
        for number in range(place + 1, len(body)):
            second = body[number]
            if not isinstance(second, Block):
                return None
            if self._fits(second, self.b_reqs) and not any(
                _conflict(body[k], second) for k in range(place + 1, number)
            ):
                fused = fuse_blocks(first, second, self)
                if fused is not None and len(fused.refs) <= self.max_refs:
                    return number, fused
        return None


def _conflict(a: Statement, b: Block) -> bool:
    return in_the_way([a], {*buffers_read(b)}, {*buffers_written(b)}, {})


def fuse_blocks(a: Block, b: Block, options: Fusion) -> Block | None:
    """The fused block, or None where the rule does not hold."""
    writes_a, writes_b = {*buffers_written(a)}, {*buffers_written(b)}
    shared = writes_a.intersection(buffers_read(b))
    touched_a = buffers_named(a)
    if (
        not shared
        or shared & writes_b
        or writes_b & touched_a
        or a.guard
        or b.guard
        or not (can_split(a) and can_split(b))
    ):
        return None
    pairs = _pairs(a, b, shared)
    if not pairs:
        return None
    outer_a = split(
        a, {i.name: 1 for i in a.indexes if i.name in {x for x, _ in pairs.values()}}, (), options.a_inner_set
    )
    outer_b = split(b, {name: q for name, (_, q) in pairs.items()}, (), options.b_inner_set)
    if initialises(outer_a):
        return None
    initial = {r.into: r for r in b.refs if r.agg is not None} if initialises(outer_b) else {}
    if initial:
        (nest,) = outer_b.body
        assert isinstance(nest, Block)
        outer_b = _unwrapped(outer_b, nest)
        if outer_b is None:
            return None
    return _joined(a, b, outer_a, outer_b, {n: x for n, (x, _) in pairs.items()}, initial, options)


def _unwrapped(wrapper: Block, nest: Block) -> Block | None:
    """The nest inside an initialising block, as a child of the block around both."""
    origin = {r.into: r for r in wrapper.refs}
    if wrapper.indexes:
        return None
    return replace(nest, refs=tuple(through(r, origin[r.source].source, origin[r.source].access) for r in nest.refs))


def _pairs(a: Block, b: Block, shared: set[str]) -> dict[str, tuple[str, int]] | None:
    """Index of b -> (index of a, tile of b), from every buffer between the two; None where the rule fails."""
    pairs: dict[str, tuple[str, int]] = {}
    ranges_a = {i.name: i.range for i in a.indexes if i.value is None}
    ranges_b = {i.name: i.range for i in b.indexes if i.value is None}
    for name in shared:
        writers = [r for r in a.refs if r.source == name]
        if len(writers) != 1:
            return None
        for reader in (r for r in b.refs if r.source == name):
            if len(reader.access) != len(writers[0].access):
                return None
            for dim in range(len(reader.access)):
                if not _pair(writers[0], reader, dim, ranges_a, ranges_b, pairs):
                    return None
    return pairs if len({x for x, _ in pairs.values()}) == len(pairs) else None


def _pair(
    write: Refinement,
    read: Refinement,
    dim: int,
    ranges_a: dict[str, int],
    ranges_b: dict[str, int],
    pairs: dict[str, tuple[str, int]],
) -> bool:
    fa, fb = write.access[dim], read.access[dim]
    size_a, size_b = write.type.sizes[dim], read.type.sizes[dim]
    assert isinstance(fa, Affine) and isinstance(fb, Affine)
    shift = fb.const - fa.const
    if not fa.terms:
        spread = {n: (0, ranges_b[n] - 1) for n in fb.names} if set(fb.names) <= ranges_b.keys() else None
        if spread is None:
            return False
        low, high = (fb - fa.const).bounds(spread)
        return low >= 0 and high + size_b <= size_a
    if len(fa.terms) != 1 or len(fb.terms) != 1:
        return False
    (ia, ca), (ib, cb) = fa.terms[0], fb.terms[0]
    if ia not in ranges_a or ib not in ranges_b or cb <= 0 or ca <= 0 or ca % cb:
        return False
    quotient = ca // cb
    fits = shift >= 0 and shift + (quotient - 1) * cb + size_b <= size_a <= ca
    if not fits or ranges_a[ia] != -(-ranges_b[ib] // quotient):
        return False
    return pairs.setdefault(ib, (ia, quotient)) == (ia, quotient)


def _joined(
    a: Block,
    b: Block,
    outer_a: Block,
    outer_b: Block,
    names: dict[str, str],
    initial: dict[str, Refinement],
    options: Fusion,
) -> Block | None:
    order = {names[i.name]: i.order for i in outer_b.indexes if i.name in names}
    common = [i for i in outer_a.indexes if i.value is None and i.name in order]
    rest = [i for i in (*outer_a.indexes, *outer_b.indexes) if i.value is not None]
    if rest or any(i.range != 1 for i in outer_a.indexes if i.value is None and i.name not in order):
        return None
    indexes = tuple(Index(i.name, i.range, order=_stricter(i.order, order[i.name])) for i in common)
    renaming = {old: Affine.var(new) for old, new in names.items()}
    refs: dict[str, Refinement] = {r.into: r for r in outer_a.refs}
    taken = set(refs)
    moved: dict[str, tuple[str, tuple[Affine, ...]]] = {}
    for ref in outer_b.refs:
        access = tuple(f.substitute(renaming) for f in ref.access if isinstance(f, Affine))
        moved[ref.into] = _place(replace(ref, access=access), refs, taken)
    (inner_a,), (inner_b,) = outer_a.body, outer_b.body
    assert isinstance(inner_a, Block) and isinstance(inner_b, Block)
    inner_b = _redirected(with_indexes(inner_b, renaming), moved)
    tags = frozenset(options.fused_set) | ((a.tags | b.tags) & {"kernel"})
    body = (_tagged(collapse(inner_a), a, options.a_inner_set), _tagged(collapse(inner_b), b, options.b_inner_set))
    comment = "\n".join(c for c in (a.comment, b.comment) if c)
    fused = Block(
        f"{a.name}+{b.name}", indexes, refs=tuple(refs.values()), body=body,
        loc=a.loc if a.loc == b.loc else None, tags=tags, comment=comment, origin=a.origin,
    )  # fmt: skip
    fused = flattened(fused)
    return initialise_around(fused, {moved[n][0]: r for n, r in initial.items()}) if initial else fused


def _stricter(a: Order, b: Order) -> Order:
    return Order.ORDERED if Order.ORDERED in (a, b) else Order.FREE


def _tagged(inner: Block, whole: Block, tags: Sequence[str]) -> Block:
    """Inner blocks keep what selects passes, but are no kernels of main any more."""
    return replace(inner, tags=inner.tags | frozenset(tags), name=inner.name or whole.name)


def _place(ref: Refinement, refs: dict[str, Refinement], taken: set[str]) -> tuple[str, tuple[Affine, ...]]:
    """The name of a view in the fused block and where in that view it begins: one that is there, or its own."""
    for name, other in refs.items():
        if other.source != ref.source or len(other.access) != len(ref.access):
            continue
        offset = tuple(
            f - g
            for f, g in zip(ref.access, other.access, strict=True)
            if isinstance(f, Affine) and isinstance(g, Affine)
        )
        inside = all(
            o.is_const and o.const >= 0 and o.const + s <= t
            for o, s, t in zip(offset, ref.type.sizes, other.type.sizes, strict=True)
        )
        if inside and len(offset) == len(ref.access):
            if ref.dir is not other.dir and other.dir is Direction.IN:
                continue
            return name, offset
    name = claim(ref.into, taken)
    refs[name] = replace(ref, into=name)
    return name, (Affine(),) * len(ref.access)


def _redirected(block: Statement, moved: dict[str, tuple[str, tuple[Affine, ...]]]) -> Block:
    assert isinstance(block, Block)
    return replace(block, refs=tuple(through(r, *moved[r.source]) if r.source else r for r in block.refs))
