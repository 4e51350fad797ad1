"""What takes the place of a pair of statistics: both of each chunk of the rows, and those of the rows from them.

Where chunks are many, runs of them are put together first, each by a group of its own, by the same formulas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isqrt, prod

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.names import claim
from tile_ir.program.nodes import Contraction, Elementwise, IndexOf, Literal, Op, TensorType
from tile_ir.stripe.affine import Affine, names_in

from tile_opt.analysis import FlatDomain, Sets, analyze
from tile_opt.program.split_reduction import chunk_indexes, combine, part_names, partial
from tile_opt.program.trees import Body, Leaf, Tree, as_dtype, call, replaced, substituted

LOWEST = {
    DType.FLOAT16: -65504.0,
    DType.BFLOAT16: -3.3895313892515355e38,
    DType.FLOAT32: -3.4028234663852886e38,
    DType.FLOAT64: -1.7976931348623157e308,
}
"""Below the largest element of a chunk whose elements are all -inf there is no difference to take the exponential of."""


@frozen
class Pair:
    """A sum over rows that depends on another aggregate of the same rows, all by the indexes of the sum."""

    op: Contraction
    domain: FlatDomain
    first: Contraction
    first_domain: FlatDomain
    names: dict[str, Affine]
    """What the indexes of the other aggregate are."""
    row: Leaf
    """The other aggregate of the row."""
    inner: Tree
    """The element that it aggregates."""
    centre: Tree | None
    """What is subtracted before squaring; None for exponentials."""
    whole: Tree
    """What is summed."""


@frozen
class Chunked:
    """What takes the place of a pair."""

    row: str
    front: tuple[Op, ...]
    """Both aggregates of each chunk, and the first of the row."""
    total: Contraction


@frozen
class _Level:
    """Both aggregates of each chunk: tensors by the numbers of chunks, then the cells."""

    sizes: dict[str, int]
    """Iterations per chunk of the indexes of the sum that are cut."""
    counts: tuple[int, ...]
    """Chunks of each of them."""
    part: Contraction
    """The first aggregate of each chunk."""
    pivot: str
    """About what each chunk is summed."""
    sums: Contraction


class Chunks:
    """Builds what takes the place of a pair."""

    def __init__(self, pair: Pair, sizes: dict[str, int], taken: set[str], most: int) -> None:
        """Rows of more than `most` chunks are put together in two steps."""
        self.pair, self.sizes, self.taken, self.most = pair, sizes, taken, most
        self.front: list[Op] = []

    def made(self) -> Chunked:
        pair, level = self.pair, self._first()
        if prod(level.counts) > self.most:
            level = self._gathered(level)
        whole = combine(pair.first, level.part.name, level.counts)
        chunks = tuple(map(Affine.var, chunk_indexes(len(level.counts))))
        total = self._merging(level, substituted(pair.centre or pair.row, self._cells), chunks)
        return Chunked(pair.first.name, (*self.front, whole), total)

    # --- levels -----------------------------------------------------------------------------------------

    def _first(self) -> _Level:
        """Of the elements."""
        pair = self.pair
        back = {form.names[0]: n for n, form in pair.names.items() if n in reduced(pair.first_domain)}
        theirs = {back[n]: size for n, size in self.sizes.items()}
        part, _ = partial(pair.first, pair.first_domain, theirs, self._claimed(f"{pair.first.name}_partial"))
        self.front.append(part)
        pivot = self._pivot(part, self.sizes)
        chunks = tuple(Affine.var(part_names(n, pair.domain)[0]) for n in self.sizes)
        here = Leaf(pivot, (*chunks, *pair.row.forms), part.type.dtype)
        sums = self._cut(pair.op, pair.domain, self.sizes, self._about(here), here)
        return _Level(self.sizes, tuple(-(-self._extent(n) // s) for n, s in self.sizes.items()), part, pivot, sums)

    def _gathered(self, level: _Level) -> _Level:
        """Of runs of chunks: about as many runs as each of them has chunks."""
        pair, axis = self.pair, max(range(len(level.counts)), key=level.counts.__getitem__)
        name, index = chunk_indexes(len(level.counts))[axis], list(level.sizes)[axis]
        length = -(-level.counts[axis] // min(isqrt(prod(level.counts)), -(-level.counts[axis] // 2)))
        sizes, cut = {index: level.sizes[index] * length}, {name: length}
        whole = combine(pair.first, level.part.name, level.counts)
        part, _ = partial(whole, analyze(whole, Sets()), cut, self._claimed(f"{pair.first.name}_partial"))
        self.front.append(part)
        pivot = self._pivot(part, sizes)
        bare = combine(pair.op, level.sums.name, level.counts)
        domain = analyze(bare, Sets())
        cells = (f.substitute(self._cells) for f in pair.row.forms)
        here = Leaf(pivot, (Affine.var(part_names(name, domain)[0]), *cells), part.type.dtype)
        chunks = tuple(map(Affine.var, chunk_indexes(len(level.counts))))
        sums = self._cut(bare, domain, cut, self._merged(level, here, chunks), here)
        return _Level(sizes, part.type.shape[:1], part, pivot, sums)

    def _cut(
        self, op: Contraction, domain: FlatDomain, sizes: dict[str, int], summand: Tree, pivot: Leaf
    ) -> Contraction:
        """Sums of `summand` per chunk of the indexes in `sizes`, by whose numbers `pivot` is read."""
        made = sums_of_chunks(op, domain, sizes, summand, pivot, self._claimed(f"{self.pair.op.name}_partial"))
        self.front.append(made)
        return made

    # --- what is summed ---------------------------------------------------------------------------------

    def _about(self, pivot: Leaf) -> Tree:
        """An element's part of its chunk's sum."""
        pair, acc = self.pair, self.pair.op.acc
        if pair.centre is None:
            return replaced(pair.whole, pair.row, as_dtype(pivot, pair.row.dtype))
        far = call("sub", (as_dtype(pair.inner, acc), as_dtype(pivot, acc)), acc)
        return call("mul", (far, far), acc)

    def _merged(self, level: _Level, centre: Tree, chunks: tuple[Affine, ...]) -> Tree:
        """A chunk's part of the sum about `centre`; by the numbers of the chunks and the sum's own indexes."""
        pair, acc = self.pair, self.pair.op.acc
        at = (*chunks, *(f.substitute(self._cells) for f in pair.row.forms))
        here = Leaf(level.pivot, at, level.part.type.dtype)
        found = Leaf(level.sums.name, (*chunks, *(f.substitute(self._cells) for f in pair.domain.output)), acc)
        apart = call("sub", (as_dtype(here, acc), as_dtype(centre, acc)), acc)
        if pair.centre is None:
            return call("mul", (call("exp", (apart,), acc), found), acc)
        count = self._elements(level.part.type, level.sizes)
        weight = as_dtype(Leaf(count, at, here.dtype), acc) if isinstance(count, str) else Literal(count.value, acc)
        return call("add", (call("mul", (weight, call("mul", (apart, apart), acc)), acc), found), acc)

    def _merging(self, level: _Level, centre: Tree, chunks: tuple[Affine, ...]) -> Contraction:
        """The sum of the row, from those of its chunks."""
        return Body().of(combine(self.pair.op, level.sums.name, level.counts), self._merged(level, centre, chunks))

    @property
    def _cells(self) -> dict[str, Affine]:
        """What the sum's own indexes are where chunks are put together."""
        return {f.names[0]: Affine.var(f"d{d}") for d, f in enumerate(self.pair.domain.output) if f.terms}

    # --- pivots -----------------------------------------------------------------------------------------

    def _pivot(self, part: Contraction, sizes: dict[str, int]) -> str:
        """The largest element of each chunk, or its mean."""
        dtype = part.type.dtype
        if self.pair.centre is None:
            return self._elementwise("max", (part.name, Literal(LOWEST[dtype], dtype)), part.type)
        return self._elementwise("div", (part.name, self._elements(part.type, sizes)), part.type)

    def _elements(self, like: TensorType, sizes: dict[str, int]) -> str | Literal:
        """How many elements each chunk has: one number, or a tensor where the last chunks have fewer.

        Whoever reads it gets one of its own, which is computed where it is read.
        """
        ranges = reduced(self.pair.domain)
        ragged = {n: k for k, n in enumerate(sizes) if ranges[n] % sizes[n]}
        even = prod(sizes.get(n, r) for n, r in ranges.items() if n not in ragged)
        count: str | Literal = Literal(float(even), like.dtype)
        for name, axis in ragged.items():
            left = self._ragged(axis, sizes[name], ranges[name], TensorType(DType.INT32, like.shape))
            count = self._elementwise("mul", (self._elementwise("cast", (left,), like), count), like)
        return count

    def _ragged(self, axis: int, size: int, extent: int, type: TensorType) -> str:
        """``min(size, extent - size * chunk)``."""
        chunk = self._claimed(f"{self.pair.first.name}_chunk")
        self.front.append(IndexOf(chunk, type, axis, self.pair.op.origin))
        start = self._elementwise("mul", (chunk, Literal(size, DType.INT32)), type)
        left = self._elementwise("sub", (Literal(extent, DType.INT32), start), type)
        return self._elementwise("min", (left, Literal(size, DType.INT32)), type)

    # --- names ------------------------------------------------------------------------------------------

    def _extent(self, name: str) -> int:
        return reduced(self.pair.domain)[name]

    def _claimed(self, name: str) -> str:
        return claim(name, self.taken)

    def _elementwise(self, fn: str, args: Sequence[str | Literal], type: TensorType) -> str:
        name = self._claimed(f"{self.pair.first.name}_chunk")
        self.front.append(Elementwise(name, type, fn, tuple(args), origin=self.pair.op.origin))
        return name


def sums_of_chunks(
    op: Contraction, domain: FlatDomain, sizes: dict[str, int], summand: Tree, by_chunk: Leaf, name: str
) -> Contraction:
    """Sums of `summand` per chunk of the indexes in `sizes`, by whose numbers the leaf `by_chunk` is read."""
    body = Body()
    result = body.add(as_dtype(summand, op.acc))
    # The leaf has a form for each chunk, which the cut domain does not know: it joins the loads afterwards.
    known = [n for n, load in enumerate(body.loads) if load.tensor != by_chunk.tensor]
    op = replace(op, loads=tuple(body.loads[n] for n in known), body=tuple(body.statements), result=result)
    made, _ = partial(op, replace(domain, accesses=tuple(body.forms[n] for n in known)), sizes, name)
    (extra,) = (load for load in body.loads if load.tensor == by_chunk.tensor)
    return replace(made, loads=(*made.loads, extra))


def reduced(domain: FlatDomain) -> dict[str, int]:
    """The indexes that are aggregated over, and their ranges."""
    rows = names_in(domain.output)
    return {n: r for n, r in domain.extents.items() if n not in rows}
