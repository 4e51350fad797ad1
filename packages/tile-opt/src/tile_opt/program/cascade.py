"""Sums weighted by exponentials below a row's largest element, a chunk of the row at a time: attention over any number of keys.

``O[s, d] = sum over t of exp(x[s, t] - m[s]) / z[s] * v[t, d]`` with ``m[s] = max over t of x[s, t]`` asks for a whole row of x
before its first product. But ``exp(x - m) = exp(x - p) * exp(p - m)`` for any p: with the largest element p of each chunk

    m   =  max over chunks of p
    O   =  sum over chunks of  exp(p - m) * (the chunk's sum of exp(x - p) * v) / z

and so for z. What no longer depends on the row outside a chunk need never be stored beside the chunks of other rows.
`Online` takes pairs of statistics so, where it saves a second reading; here it saves memory and its bandwidth.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from math import inf, isfinite, prod
from typing import ClassVar

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.names import claim
from tile_ir.ops import Aggregation
from tile_ir.program.liveness import defined_by, used_by
from tile_ir.program.nodes import Constraint, Contraction, Elementwise, Literal, Op, Poly, Program, TensorType
from tile_ir.stripe.affine import Affine, names_in

from tile_opt.analysis import FlatDomain
from tile_opt.program.base import Rewrite
from tile_opt.program.chunks import LOWEST, Pair, reduced, sums_of_chunks
from tile_opt.program.pairs import Pairs
from tile_opt.program.split_reduction import chunk_indexes, chunk_size, combine, part_names, partial
from tile_opt.program.trees import Body, Call, Leaf, Tree, as_dtype, call, computed, leaves, substituted, unwidened

MEMBERS = 3
"""Contractions of the least program there is something to gain for: a product, its maximum and a weighted sum."""
Made = Mapping[str, tuple[Op, ...]]
"""By the name of an operation, what takes its place."""


@frozen
class OverRows(Rewrite):
    """A rewrite of sums over rows of more than `kept` elements, weighted below the largest of them; 0 leaves all as it is."""

    rounded: ClassVar[bool] = True
    """Weights may be rounded to a shorter float before they are used."""
    many: ClassVar[int] = 1
    """Rows that share what they are multiplied with, from which on there is something to gain."""
    kept: int = 0

    def apply(self, program: Program) -> Program:
        if not self.kept or sum(isinstance(op, Contraction) for op in program.ops) < MEMBERS:
            return program
        return with_replaced(program, self.made(Groups(program, self.kept, self.many, rounded=self.rounded)))

    @abstractmethod
    def made(self, groups: Groups) -> Made: ...


@frozen
class Cascade(OverRows):
    """Cut rows of more than `kept` elements that a product computes and an exponential weighs; 0 cuts none."""

    rounded: ClassVar[bool] = False
    many: ClassVar[int] = 16

    def made(self, groups: Groups) -> Made:
        return {name: ops for group in groups.chunks() for name, ops in group.replaced().items()}


@frozen
class Weighted:
    """A sum of ``exp(inner - row) * inside * outside``: `inside` moves with the sum, `outside` does not."""

    pair: Pair
    pivot: Tree
    """What the exponential is taken below: the row's largest element, or a number where that is -inf."""
    weight: Tree
    """The exponential."""
    inside: tuple[Tree, ...]
    outside: tuple[Tree, ...]
    divisors: tuple[Tree, ...]
    """What all of it is divided by, which does not move with the sum either."""
    masked: bool = False
    """It is 0 where a comparison makes the exponential so, even if that is of no number."""

    @property
    def index(self) -> str:
        """The index of the sum."""
        return next(iter(reduced(self.pair.domain)))

    def moves(self, tree: Tree) -> bool:
        """It depends on the index of the sum."""
        return any(self.index in form.names for leaf in leaves(tree) for form in leaf.forms)

    @property
    def scores(self) -> tuple[Tree, ...]:
        """Of what is inside, that which belongs to single elements of rows."""
        mine = {self.index, *rows_of(self)}
        return tuple(f for f in self.inside if all(mine == names_in(leaf.forms) for leaf in leaves(f)))

    @property
    def values(self) -> tuple[Tree, ...]:
        """The rest of it."""
        return tuple(f for f in self.inside if f not in self.scores)

    @property
    def instead(self) -> Literal | None:
        """What the pivot is where the largest element is -inf; None for that itself."""
        return instead(self.pivot)


class Groups:
    """The sums of a program that belong to one maximum each."""

    def __init__(self, program: Program, kept: int, many: int = 1, *, rounded: bool = False) -> None:
        """With `rounded` a quotient that is rounded to a shorter float may be that of a rounded dividend."""
        self.program, self.kept, self.many, self.rounded = program, kept, many, rounded
        self.pairs = Pairs(program, copies=True)
        self.products = {op.name for op in program.ops if isinstance(op, Contraction) and len(op.loads) > 1}

    def chunks(self) -> list[_Chunks]:
        """What takes the place of each group, chunk by chunk."""
        taken = self.pairs.taken
        return [_Chunks(members, self._size(members[0]), taken) for members in self.found()]

    def members(self, *, masks: bool = False) -> Iterator[Weighted]:
        """All of them; with `masks` those as well that are 0 where a comparison makes the exponential so."""
        for op in self.program.ops:
            weighted = self._weighted(op, masks) if isinstance(op, Contraction) else None
            if weighted is not None:
                yield weighted

    def found(self) -> list[tuple[Weighted, ...]]:
        """The groups for which chunks pay."""
        return [tuple(members) for members in self.by_row().values() if self._pays(members)]

    def by_row(self) -> dict[str, list[Weighted]]:
        """The sums below each largest element."""
        rows: dict[str, list[Weighted]] = {}
        for weighted in self.members():
            rows.setdefault(weighted.pair.first.name, []).append(weighted)
        return rows

    def _weighted(self, op: Contraction, masks: bool) -> Weighted | None:
        """The contraction as a weighted sum along one long index."""
        floats = op.agg is Aggregation.SUM and op.acc.is_float and op.type.size
        domain = self.pairs.plain(op) if floats else None
        if domain is None or len(reduced(domain)) != 1 or prod(reduced(domain).values()) <= self.kept:
            return None
        summand = self.pairs.trees.summand(op, domain)
        whole = unmasked(summand) if masks else summand
        over, under = factors_of(whole, rounded=self.rounded)
        moves = {id(f): _moves(f, domain) for f in (*over, *under)}
        if any(moves[id(f)] for f in under):
            return None
        for number, factor in enumerate(over):
            below = self._below(factor)
            pair = below and self._pair(op, domain, *below)
            if below and pair and _has_whole_rows(pair):
                rest = [f for k, f in enumerate(over) if k != number]
                if any(leaf == pair.row for f in (*rest, *under) for leaf in leaves(f)):
                    return None
                inside = tuple(f for f in rest if moves[id(f)])
                outside = tuple(f for f in rest if not moves[id(f)])
                return Weighted(pair, below[1], unwidened(factor), inside, outside, under, whole != summand)
        return None

    def _below(self, factor: Tree) -> tuple[Tree, Tree] | None:
        """Of ``exp(inner - pivot)`` both."""
        match unwidened((shortened(factor) if self.rounded else None) or factor):
            case Call("exp", (shifted,)):
                centred = unwidened(shifted)
            case _:
                return None
        if not (isinstance(centred, Call) and centred.fn == "sub"):
            return None
        inner, pivot = centred.args
        return inner, pivot

    def _pair(self, op: Contraction, domain: FlatDomain, inner: Tree, pivot: Tree) -> Pair | None:
        row = largest(pivot)
        if row is None or _moves(row, domain):
            return None
        return self.pairs.with_first(op, domain, row, inner, Aggregation.MAX)

    def _pays(self, members: Sequence[Weighted]) -> bool:
        """Rows are results of products that nobody else wants, and many of them are multiplied with the same."""
        inner = {leaf.tensor for leaf in leaves(members[0].pair.inner)}
        wanted = {source for _, source in self.program.outputs}
        alike = len({w.pair.op.acc for w in members}) == len({w.instead for w in members}) == 1
        many = any(w.inside and _sharing(w) >= self.many for w in members)
        return alike and many and bool(inner & self.products - wanted)

    def _size(self, member: Weighted) -> int:
        extent = reduced(member.pair.domain)[member.index]
        return chunk_size(extent, 2 * -(-extent // self.kept), more=False)


class _Chunks:
    """Builds what takes the place of a maximum, and of the sums below it."""

    def __init__(self, members: tuple[Weighted, ...], size: int, taken: set[str]) -> None:
        self.members, self.size, self.taken = members, size, taken
        pair = members[0].pair
        self.first = pair.first
        back = next(n for n, form in pair.names.items() if form == Affine.var(members[0].index))
        self.extent = reduced(pair.domain)[members[0].index]
        self.count = -(-self.extent // size)
        name = claim(f"{self.first.name}_partial", taken)
        self.part, self.whole = partial(pair.first, pair.first_domain, {back: size}, name)
        self.pivot = Elementwise(
            claim(f"{self.first.name}_chunk", taken),
            self.part.type,
            "max",
            (self.part.name, Literal(LOWEST[self.part.type.dtype], self.part.type.dtype)),
            origin=self.first.origin,
        )
        self.weights = self._weights(members[0])

    def replaced(self) -> dict[str, tuple[Op, ...]]:
        """By the name of each operation, those that take its place.

        All chunks come first and then what is made of them, in the place of the last sum, so that one kernel may have all of a chunk.
        """
        sums = [self._sums(w) for w in self.members]
        names = [self.first.name, *(w.pair.op.name for w in self.members)]
        front = (self.part, self.pivot, self.weights, *(chunks for chunks, _ in sums))
        made: dict[str, tuple[Op, ...]] = dict.fromkeys(names, ())
        return made | {names[-1]: (*front, self.whole, *(total for _, total in sums))}

    def _weights(self, member: Weighted) -> Contraction:
        """``exp(inner - pivot)`` of every element, by its chunk, its row and its place in the chunk."""
        pair, names = member.pair, rows_of(member)
        chunk, place = part_names(member.index, pair.domain)
        split = {member.index: Affine.of({chunk: self.size, place: 1})}
        ranges = pair.domain.extents
        pivot = Leaf(self.pivot.name, (Affine.var(chunk), *pair.row.forms), self.pivot.type.dtype)
        below = call(
            "sub", (as_dtype(substituted(pair.inner, split), pair.op.acc), as_dtype(pivot, pair.op.acc)), pair.op.acc
        )
        extents = {chunk: self.count, **{n: ranges[n] for n in names}, place: self.size}
        name, type = claim(f"{self.first.name}_weights", self.taken), TensorType(pair.op.acc, tuple(extents.values()))
        value, output = call("exp", (below,), pair.op.acc), tuple(map(Affine.var, extents))
        made = computed(extents, name, type, output, value, origin=pair.op.origin)
        end = Constraint(Poly.of({chunk: self.size, place: 1}), self.extent, pair.op.origin)
        return replace(made, constraints=(*made.constraints, end)) if self.extent % self.size else made

    def _sums(self, member: Weighted) -> tuple[Contraction, Contraction]:
        """The sums of the chunks, and the sum of what they weigh."""
        op, domain = member.pair.op, member.pair.domain
        chunk, place = part_names(member.index, domain)
        mine = rows_of(member)
        weight = Leaf(self.weights.name, tuple(map(Affine.var, (chunk, *mine, place))), op.acc)
        summand = product_of([weight, *(as_dtype(f, op.acc) for f in member.inside)])
        name = claim(f"{op.name}_partial", self.taken)
        sums = sums_of_chunks(op, domain, {member.index: self.size}, summand, weight, name)
        return sums, self._total(member, sums)

    def _total(self, member: Weighted, sums: Contraction) -> Contraction:
        op, acc = member.pair.op, member.pair.op.acc
        cells = {f.names[0]: Affine.var(f"d{d}") for d, f in enumerate(member.pair.domain.output) if f.terms}
        chunks = tuple(map(Affine.var, chunk_indexes(1)))
        here = Leaf(
            self.pivot.name, (*chunks, *(f.substitute(cells) for f in member.pair.row.forms)), self.pivot.type.dtype
        )
        found = Leaf(sums.name, (*chunks, *(f.substitute(cells) for f in member.pair.domain.output)), acc)
        apart = call("sub", (as_dtype(here, acc), as_dtype(substituted(member.pivot, cells), acc)), acc)
        outside, divisors = ((substituted(f, cells) for f in part) for part in (member.outside, member.divisors))
        term = quotient((call("exp", (apart,), acc), found, *outside), divisors, acc)
        return Body().of(combine(op, sums.name, (self.count,)), term)


def largest(pivot: Tree) -> Leaf | None:
    """The element that a pivot is, as it stands or with a number in the place of -inf: ``m == -inf ? 0 : m``.

    Below a number there is a difference to take the exponential of: what is -inf weighs nothing then.
    """
    match unwidened(pivot):
        case Leaf() as row:
            return row
        case Call("cond", (Call("cmp_eq", (tested, Literal(value=bound))), Literal(value=other), row)):
            found = unwidened(row)
            lowest = bound == -inf and isfinite(other) and unwidened(tested) == found
            return found if isinstance(found, Leaf) and lowest else None
        case _:
            return None


def instead(pivot: Tree) -> Literal | None:
    """The number in the place of -inf; None for a pivot that is the largest element itself."""
    match unwidened(pivot):
        case Call("cond", (_, Literal() as other, _)):
            return other
        case _:
            return None


def with_replaced(program: Program, made: Made) -> Program:
    """The program with other operations in place of those with these names, each after those that it reads."""
    if not made:
        return program
    ops = (new for op in program.ops for new in made.get(getattr(op, "name", ""), (op,)))
    return replace(program, ops=tuple(_in_order(ops, program)))


def _in_order(ops: Iterable[Op], program: Program) -> Iterator[Op]:
    """The operations as they are, but each after those that it reads."""
    known, waiting = {p.name for p in program.inputs}, list[Op]()
    for op in ops:
        waiting.append(op)
        while (ready := next((w for w in waiting if known.issuperset(used_by(w))), None)) is not None:
            waiting.remove(ready)
            known.update(defined_by(ready))
            yield ready


def product_of(factors: Iterable[Tree]) -> Tree:
    return reduce(lambda a, b: call("mul", (a, b), a.dtype), factors)


def quotient(factors: Iterable[Tree], divisors: Iterable[Tree], acc: DType) -> Tree:
    """The product of all factors over each of the divisors in turn, computed as `acc`."""
    product = product_of(as_dtype(f, acc) for f in factors)
    return reduce(lambda a, b: call("div", (a, as_dtype(b, acc)), acc), divisors, product)


def rows_of(member: Weighted) -> list[str]:
    """The indexes of the sum that say which row is meant."""
    return [f.names[0] for f in member.pair.row.forms if f.terms]


def _has_whole_rows(pair: Pair) -> bool:
    """The sum takes every row, each by an index of its own: sums that do so can share weights."""
    ranges = pair.domain.extents
    rows = [(f, size) for f, size in zip(pair.row.forms, pair.first.type.shape, strict=True) if size > 1 or f.terms]
    plain = all(f.terms and f == Affine.var(f.names[0]) and ranges[f.names[0]] == size for f, size in rows)
    return plain and len({f.names for f, _ in rows}) == len(rows)


def _sharing(member: Weighted) -> int:
    """Rows that are multiplied with the same."""
    ranges = member.pair.domain.extents
    moving = {n for f in member.values for leaf in leaves(f) for form in leaf.forms for n in form.names}
    return prod(ranges[n] for n in rows_of(member) if n not in moving)


def _moves(tree: Tree, domain: FlatDomain) -> bool:
    """The expression depends on the index of the sum."""
    return any(reduced(domain).keys() & set(form.names) for leaf in leaves(tree) for form in leaf.forms)


def shortened(tree: Tree) -> Tree | None:
    """What is rounded to a shorter float, if something is."""
    match unwidened(tree):
        case Call("cast", (given,), dtype) if dtype.is_float and given.dtype.is_float:
            return given
        case _:
            return None


def factors_of(tree: Tree, *, rounded: bool) -> tuple[tuple[Tree, ...], tuple[Tree, ...]]:
    """Factors of a product of quotients, those above the line and those below it."""
    over, under = (tuple(_factors(tree, upper, rounded)) for upper in (True, False))
    return over, under


def unmasked(tree: Tree) -> Tree:
    """The product without comparisons by which it is 0 where its exponential is one of -inf by the same."""
    match tree:
        case Call("cond", (test, kept, Literal(value=0))) if (test, True) in {*_hidden(kept)}:
            return unmasked(kept)
        case Call("cond", (test, Literal(value=0), kept)) if (test, False) in {*_hidden(kept)}:
            return unmasked(kept)
        case Call("mul" | "div" | "neg" | "cast" as fn, args, dtype):
            return call(fn, map(unmasked, args), dtype)
        case _:
            return tree


def _hidden(tree: Tree) -> Iterator[tuple[Tree, bool]]:
    """The comparisons that make an exponential in a product that of -inf, and what they are not then."""
    match tree:
        case Call("exp", (shifted,)):
            yield from _hidden(shifted)
        case Call("cond", (test, kept, Literal(value=other))) if other == -inf or other == 0:
            yield from ((test, True), *_hidden(kept))
        case Call("cond", (test, Literal(value=other), kept)) if other == -inf or other == 0:
            yield from ((test, False), *_hidden(kept))
        case Call("sub", (inner, _)):
            yield from _hidden(inner)
        case Call("mul" | "div" | "neg" | "cast", args):
            for a in args:
                yield from _hidden(a)
        case _:
            return


def _factors(tree: Tree, upper: bool, rounded: bool) -> Iterator[Tree]:
    """Factors of a product of quotients: those above the line, or those below it."""
    inner = shortened(tree) if rounded else None
    match unwidened(tree), inner and unwidened(inner):
        case Call("mul", (a, b)), _:
            yield from _factors(a, upper, rounded)
            yield from _factors(b, upper, rounded)
        case Call("div", (a, b)), _:
            yield from _factors(a, upper, rounded)
            yield from _factors(b, not upper, rounded)
        case Call("neg", (a,), dtype), _ if rounded:
            yield from _factors(a, upper, rounded)
            yield from [Literal(-1.0, dtype)] if upper else []
        case short, Call("div", (a, b)):
            yield from _factors(as_dtype(a, short.dtype), upper, rounded)
            yield from _factors(b, not upper, rounded)
        case short, Call("mul", (a, b)):
            yield from _factors(as_dtype(a, short.dtype), upper, rounded)
            yield from _factors(as_dtype(b, short.dtype), upper, rounded)
        case _ if upper:
            yield tree
        case _:
            return
