"""Statistics of long rows in one reading: what depends on a row's largest element, or on its mean, is taken chunk by chunk.

A group of items keeps a chunk of a row, finds its largest element and, from registers, the sum of exponentials below it.
What chunks found is put together afterwards, whatever the row's own largest element turns out to be:

    sum of exp(x - m)   =  sum over chunks of  exp(p - m) * (the chunk's sum of exp(x - p))
    sum of (x - c)²     =  sum over chunks of  n * (p - c)² + (the chunk's sum of (x - p)²)

The first holds for any p, the second for the mean p of the n elements of a chunk, and any m and c. Without this a row
that no group can keep is read once for each of the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import ClassVar

from tile_ir.dtype import DType
from tile_ir.names import claim
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import (
    Contraction,
    Elementwise,
    IndexOf,
    Literal,
    Op,
    Program,
    TensorType,
)
from tile_ir.stripe.affine import Affine

from tile_opt.analysis import FlatDomain, Sets
from tile_opt.program.base import Rewrite
from tile_opt.program.split_reduction import (
    GROUPS_EACH,
    STRETCH,
    chunk_indexes,
    chunk_sizes,
    combine,
    covering,
    part_names,
    partial,
    reduces_along_memory,
    reductions,
)
from tile_opt.program.trees import (
    Body,
    Call,
    Leaf,
    Tree,
    Trees,
    as_dtype,
    call,
    leaves,
    matched,
    replaced,
    substituted,
    unwidened,
)

LOWEST = {
    DType.FLOAT16: -65504.0,
    DType.BFLOAT16: -3.3895313892515355e38,
    DType.FLOAT32: -3.4028234663852886e38,
    DType.FLOAT64: -1.7976931348623157e308,
}
"""Below the largest element of a chunk whose elements are all -inf there is no difference to take the exponential of."""
LEAST = 4
"""Part of a chunk that is worth a group of its own, where groups are few."""


@dataclass(frozen=True)
class Online(Rewrite):
    """Take such pairs of statistics chunk by chunk, of rows with more elements (of four bytes) than `kept`.

    For columns, of which a group takes several side by side, the same with twice as many. Chunks have about `chunk`
    elements for each group, fewer where the device's `units` would get too few of them; without units nothing changes.
    """

    name: ClassVar[str] = "online"
    units: int = 0
    kept: int = 1 << 16
    chunk: int = 1 << 13

    def apply(self, program: Program) -> Program:
        if not self.units or not any(isinstance(op, Contraction) for op in program.ops):
            return program
        work = _Work(self, program)
        made = {op.name: work.chunked(op) for op in program.ops if isinstance(op, Contraction)}
        found = {name: new for name, new in made.items() if new is not None}
        if not found:
            return program
        early = {new.row: new for new in found.values()}
        ops: list[Op] = []
        for op in program.ops:
            name = getattr(op, "name", "")
            ops += early[name].front if name in early else (found[name].total,) if name in found else (op,)
        return replace(program, ops=tuple(ops))


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Chunked:
    """What takes the place of a pair."""

    row: str
    front: tuple[Op, ...]
    """Both aggregates of each chunk, and the first of the row."""
    total: Contraction


class _Work:
    def __init__(self, options: Online, program: Program) -> None:
        self.options = options
        self.sets = Sets()
        self.types = program.types()
        self.taken = set(self.types)
        self.trees = Trees(program.ops, self.types)
        self.contractions = {op.name: op for op in program.ops if isinstance(op, Contraction)}
        self.used: set[str] = set()
        """Aggregates that pairs were made of."""

    def chunked(self, op: Contraction) -> Chunked | None:
        """The pair that ends with `op`, taken chunk by chunk; None where it ends none, or a group keeps its rows."""
        if op.agg is not Aggregation.SUM or not op.acc.is_float or not op.type.size:
            return None
        pair = self._pair(op)
        sizes = {} if pair is None or pair.first.name in self.used else self._sizes(pair)
        if pair is None or not sizes:
            return None
        self.used |= {pair.first.name, op.name}
        return _Chunks(pair, sizes, self.taken).made()

    # --- pairs ------------------------------------------------------------------------------------------

    def _pair(self, op: Contraction) -> Pair | None:
        domain = covering(op, self.sets)
        if domain is None or domain.constraints or not _is_plain(domain):
            return None
        whole = self.trees.summand(op, domain)
        match unwidened(whole):
            case Call("exp", (shifted,)):
                centred, agg = unwidened(shifted), Aggregation.MAX
            case Call("mul", (a, b)) if a == b:
                centred, agg = unwidened(a), Aggregation.SUM
            case Call("pow", (a, Literal(2 | 2.0))):
                centred, agg = unwidened(a), Aggregation.SUM
            case _:
                return None
        if not (isinstance(centred, Call) and centred.fn == "sub"):
            return None
        inner, centre = centred.args
        if any(_reduced(domain).keys() & set(f.names) for leaf in leaves(centre) for f in leaf.forms):
            return None
        if agg is Aggregation.MAX and not isinstance(unwidened(centre), Leaf):
            return None
        pairs = (self._with(op, domain, leaf, inner, agg) for leaf in leaves(centre))
        found = next((p for p in pairs if p is not None), None)
        return found and replace(found, whole=whole, centre=None if agg is Aggregation.MAX else centre)

    def _with(self, op: Contraction, domain: FlatDomain, row: Leaf, inner: Tree, agg: Aggregation) -> Pair | None:
        """The pair whose other aggregate is `row`, where that aggregates the same elements."""
        first = self.contractions.get(row.tensor)
        other = covering(first, self.sets) if first is not None and first.agg is agg and first.acc.is_float else None
        if first is None or other is None or other.constraints or not _is_plain(other):
            return None
        names = {f.names[0]: at for f, at in zip(other.output, row.forms, strict=True) if f.terms}
        if not matched(unwidened(self.trees.summand(first, other)), unwidened(inner), names):
            return None
        mine, theirs = _reduced(domain), {names[n].names: r for n, r in _reduced(other).items() if n in names}
        if theirs != {(n,): r for n, r in mine.items()} or len(mine) != len(_reduced(other)):
            return None
        return Pair(op, domain, first, other, names, row, inner, None, inner)

    # --- chunks -----------------------------------------------------------------------------------------

    def _sizes(self, pair: Pair) -> dict[str, int]:
        """Iterations per chunk of each index of the sum that is cut; nothing where a group can keep a row."""
        op, domain = _read(pair.op, pair.domain, pair.inner)
        length, cells = prod(_reduced(domain).values()), pair.op.type.size
        words = max((self.types[leaf.tensor].dtype.bytes // 4 for leaf in leaves(pair.inner)), default=1) or 1
        along = reduces_along_memory(op, domain, self.types)
        beside = 1 if along else min(STRETCH, cells)
        if length * words * beside <= self.options.kept * (1 if along else 2):
            return {}
        chunk, groups = max(1, self.options.chunk // (beside * words)), -(-cells // beside)
        wanted = max(length // chunk, min(GROUPS_EACH * self.options.units // groups, length * LEAST // chunk))
        order = reductions(op, domain, self.types, wanted) if wanted > 1 else []
        sizes = chunk_sizes(domain, order, wanted)
        return {n: size for n, size in sizes.items() if size < _reduced(domain)[n]}


class _Chunks:
    """Builds what takes the place of a pair."""

    def __init__(self, pair: Pair, sizes: dict[str, int], taken: set[str]) -> None:
        self.pair, self.sizes, self.taken = pair, sizes, taken
        self.counts = tuple(-(-self._extent(n) // size) for n, size in sizes.items())
        self.front: list[Op] = []

    def _extent(self, name: str) -> int:
        return _reduced(self.pair.domain)[name]

    def made(self) -> Chunked:
        pair = self.pair
        back = {form.names[0]: n for n, form in pair.names.items() if n in _reduced(pair.first_domain)}
        theirs = {back[n]: size for n, size in self.sizes.items()}
        part, whole = partial(pair.first, pair.first_domain, theirs, self._claimed(f"{pair.first.name}_partial"))
        self.front.append(part)
        pivot = self._pivot(part)
        sums = self._sums(pivot)
        self.front.append(sums)
        total = self._total(part, pivot, sums)
        return Chunked(pair.first.name, (*self.front, whole), total)

    def _claimed(self, name: str) -> str:
        return claim(name, self.taken)

    def _elementwise(self, fn: str, args: Sequence[str | Literal], type: TensorType) -> str:
        name = self._claimed(f"{self.pair.first.name}_chunk")
        self.front.append(Elementwise(name, type, fn, tuple(args), origin=self.pair.op.origin))
        return name

    def _pivot(self, part: Contraction) -> Leaf:
        """The largest element of a chunk, or its mean, by the indexes of the chunked sum."""
        dtype = part.type.dtype
        if self.pair.centre is None:
            name = self._elementwise("max", (part.name, Literal(LOWEST[dtype], dtype)), part.type)
        else:
            name = self._elementwise("div", (part.name, self._elements(part.type)), part.type)
        return Leaf(name, (*map(Affine.var, self._chunk_names), *self.pair.row.forms), dtype)

    @cached_property
    def _chunk_names(self) -> list[str]:
        return [part_names(n, self.pair.domain)[0] for n in self.sizes]

    def _elements(self, like: TensorType) -> str | Literal:
        """How many elements each chunk has: one number, or a tensor where the last chunks have fewer.

        Whoever reads it gets one of its own, which is computed where it is read.
        """
        ranges = _reduced(self.pair.domain)
        ragged = {n: k for k, n in enumerate(self.sizes) if ranges[n] % self.sizes[n]}
        even = prod(self.sizes.get(n, r) for n, r in ranges.items() if n not in ragged)
        count: str | Literal = Literal(float(even), like.dtype)
        for name, axis in ragged.items():
            left = self._ragged(axis, self.sizes[name], ranges[name], TensorType(DType.INT32, like.shape))
            count = self._elementwise("mul", (self._elementwise("cast", (left,), like), count), like)
        return count

    def _ragged(self, axis: int, size: int, extent: int, type: TensorType) -> str:
        """``min(size, extent - size * chunk)``."""
        chunk = self._claimed(f"{self.pair.first.name}_chunk")
        self.front.append(IndexOf(chunk, type, axis, self.pair.op.origin))
        start = self._elementwise("mul", (chunk, Literal(size, DType.INT32)), type)
        left = self._elementwise("sub", (Literal(extent, DType.INT32), start), type)
        return self._elementwise("min", (left, Literal(size, DType.INT32)), type)

    def _sums(self, pivot: Leaf) -> Contraction:
        """The sum of each chunk, about its pivot."""
        pair, acc = self.pair, self.pair.op.acc
        whole = replaced(pair.whole, pair.row, as_dtype(pivot, pair.row.dtype))
        if pair.centre is not None:
            far = call("sub", (as_dtype(pair.inner, acc), as_dtype(pivot, acc)), acc)
            whole = call("mul", (far, far), acc)
        body = Body()
        result = body.add(as_dtype(whole, acc))
        # The pivot has a form for each chunk, which the cut domain does not know: it joins the loads afterwards.
        known = [n for n, load in enumerate(body.loads) if load.tensor != pivot.tensor]
        op = replace(pair.op, loads=tuple(body.loads[n] for n in known), body=tuple(body.statements), result=result)
        domain = replace(pair.domain, accesses=tuple(body.forms[n] for n in known))
        made, _ = partial(op, domain, self.sizes, self._claimed(f"{pair.op.name}_partial"))
        (extra,) = (load for load in body.loads if load.tensor == pivot.tensor)
        return replace(made, loads=(*made.loads, extra))

    def _total(self, part: Contraction, pivot: Leaf, sums: Contraction) -> Contraction:
        """The sum of the row, from those of its chunks."""
        pair, acc = self.pair, self.pair.op.acc
        cells = {f.names[0]: Affine.var(f"d{d}") for d, f in enumerate(pair.domain.output) if f.terms}
        chunks = tuple(map(Affine.var, chunk_indexes(len(self.counts))))
        here = Leaf(pivot.tensor, (*chunks, *(f.substitute(cells) for f in pair.row.forms)), pivot.dtype)
        found = Leaf(sums.name, (*chunks, *(f.substitute(cells) for f in pair.domain.output)), acc)
        apart = call("sub", (as_dtype(here, acc), as_dtype(substituted(pair.centre or pair.row, cells), acc)), acc)
        if pair.centre is None:
            term = call("mul", (call("exp", (apart,), acc), found), acc)
        else:
            squares = call("mul", (self._weight(part.type, chunks, cells), call("mul", (apart, apart), acc)), acc)
            term = call("add", (squares, found), acc)
        body = Body()
        result = body.add(term)
        made = combine(pair.op, sums.name, self.counts)
        return replace(made, loads=tuple(body.loads), body=tuple(body.statements), result=result)

    def _weight(self, part: TensorType, chunks: tuple[Affine, ...], cells: dict[str, Affine]) -> Tree:
        """How many elements a chunk has."""
        count = self._elements(part)
        if isinstance(count, str):
            forms = (*chunks, *(f.substitute(cells) for f in self.pair.row.forms))
            return as_dtype(Leaf(count, forms, part.dtype), self.pair.op.acc)
        return Literal(count.value, self.pair.op.acc)


def _is_plain(domain: FlatDomain) -> bool:
    """Each index of the result is a subscript of its own."""
    named = [f for f in domain.output if f.terms]
    return all(f == Affine.var(f.names[0]) for f in named) and len({f.names for f in named}) == len(named)


def _rows(domain: FlatDomain) -> set[str]:
    return {n for f in domain.output for n in f.names}


def _reduced(domain: FlatDomain) -> dict[str, int]:
    """The indexes that are aggregated over, and their ranges."""
    rows = _rows(domain)
    return {n: r for n, r in zip(domain.names, domain.ranges, strict=True) if n not in rows}


def _read(op: Contraction, domain: FlatDomain, tree: Tree) -> tuple[Contraction, FlatDomain]:
    """The contraction as if it aggregated `tree`."""
    body = Body()
    result = body.add(tree)
    made = replace(op, loads=tuple(body.loads), body=tuple(body.statements), result=result)
    return made, replace(domain, accesses=tuple(body.forms))
