"""Sums weighted by exponentials below a row's largest element, of rows that are cut: attention over chunks of keys, and softmax.

Such sums need the largest element first: three stages, each of which would compute the scores again, or have them handed on. A part
of a row gives its own largest element and the sums below that, at once; `merges.Below` puts those of parts together. The
program is rewritten: one array holds both for each row, and what was the largest element, and the sums, is read from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, prod

import numpy as np
from tile_ir.dtype import DType
from tile_ir.names import claim
from tile_ir.ops import Aggregation
from tile_ir.program.liveness import defined_by, used_by
from tile_ir.program.nodes import Contraction, Elementwise, Gather, Literal, Op, Operand, Poly, Program, TensorType
from tile_ir.stripe.affine import Affine, names_in
from tile_opt.analysis import FlatDomain, poly
from tile_opt.program.cascade import Groups, Weighted, product_of, quotient, rows_of, with_replaced
from tile_opt.program.chunks import LOWEST, reduced
from tile_opt.program.trees import Call, Leaf, Tree, as_dtype, call, computed, leaves

from tile_dask.partitions.chunks import Grid
from tile_dask.partitions.merges import Below, Cascade
from tile_dask.partitions.stages import Stages


def with_cascades(stages: Stages, program: Program) -> Stages:
    """The stages of `program` with such sums of cut rows taken together; the same ones where there are none."""
    split = (stages.makers.get(name) for name in stages.splits)
    if not any(isinstance(op, Contraction) and op.agg is Aggregation.MAX for op in split):
        return stages
    groups = Groups(program, 0, rounded=True)
    found = [_Rows(members, stages, groups.pairs.taken) for members in _grouped(groups, stages)]
    if not found:
        return stages
    made = {name: ops for rows in found for name, ops in rows.replaced().items()}
    return stages.again(with_replaced(program, made), {rows.array: rows.cascade() for rows in found})


def _grouped(groups: Groups, stages: Stages) -> Iterator[tuple[Weighted, ...]]:
    """The sums below each largest element whose rows are cut."""
    for row, members in groups.by_row().items():
        behind = _behind(row, groups.program)
        mine = tuple(m for m in members if row in stages.splits and _fits(m, members[0], stages, behind))
        if mine:
            yield mine


def _fits(member: Weighted, other: Weighted, stages: Stages, behind: set[str]) -> bool:
    """A part of a row gives a part of the sum, with all cells that are a row's."""
    op, first = member.pair.op, member.pair.first
    own = (n for n, f in enumerate(member.pair.domain.output) if f.terms and f.names[0] not in rows_of(member))
    whole = all(len(stages.grids[op.name].sizes[axis]) == 1 for axis in own)
    known = all(leaf.tensor not in behind for factor in member.inside for leaf in leaves(factor))
    alike = op.acc is other.pair.op.acc and first.type.dtype.bytes <= op.acc.bytes
    return whole and known and alike


def _behind(name: str, program: Program) -> set[str]:
    """The values that depend on one."""
    found = {name}
    for op in program.ops:
        if not found.isdisjoint(used_by(op)):
            found.update(defined_by(op))
    return found


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the cells of a reduction lie in the array, by the indexes of its domain."""

    domain: FlatDomain
    rows: tuple[Affine, ...]
    begin: int
    """The first of its cells along the last axis."""
    steps: Mapping[str, int]
    """How far along it the next value of an index of its own is."""

    @staticmethod
    def behind(begin: int, domain: FlatDomain, rows: tuple[Affine, ...]) -> _Place:
        taken = names_in(rows)
        own = [f.names[0] for f in domain.output if f.terms and f.names[0] not in taken]
        sizes = [domain.extents[n] for n in own]
        return _Place(domain, rows, begin, {n: prod(sizes[k + 1 :]) for k, n in enumerate(own)})

    @property
    def end(self) -> int:
        return self.begin + prod(self.domain.extents[n] for n in self.steps)

    @property
    def subscripts(self) -> tuple[Affine, ...]:
        """Of the array."""
        return (*self.rows, Affine.of(list(self.steps.items()), self.begin))

    @property
    def cells(self) -> tuple[Poly, ...]:
        """Of the array, for the cells of the reduction by their coordinates."""
        at = {f.names[0]: Affine.var(f"i{k}") for k, f in enumerate(self.domain.output) if f.terms}
        return tuple(poly(f.substitute(at)) for f in self.subscripts)


class _Rows:
    """Builds what takes the place of a largest element, and of the sums below it."""

    def __init__(self, members: tuple[Weighted, ...], stages: Stages, taken: set[str]) -> None:
        self._members, self._stages, self._taken = members, stages, taken
        self._pair = members[0].pair
        self._first, self._acc = self._pair.first, self._pair.op.acc
        self._lowest = LOWEST[self._first.type.dtype]
        self.array = claim(f"{self._first.name}_below", taken)
        self._part = replace(self._first, name=self._claimed(f"{self._first.name}_part"))
        weights = self._weights()
        self._sums = [self._sum(m, weights[-1]) for m in members]
        self._places = list(self._placed())
        self._inner = [self._part, *weights, *self._sums, *self._packed()]

    def replaced(self) -> dict[str, tuple[Op, ...]]:
        """By the name of each operation, those that take its place: all in the place of the last sum."""
        names = [self._first.name, *(m.pair.op.name for m in self._members)]
        made: dict[str, tuple[Op, ...]] = dict.fromkeys(names, ())
        return made | {names[-1]: (*self._inner, *self._unpacked())}

    def cascade(self) -> Cascade:
        """How the array is cut: rows as the largest elements are, into parts as the widest sum is."""
        grid = self._stages.grids[self._first.name]
        rows = [grid.sizes[k] for k, form in enumerate(self._pair.row.forms) if form.terms]
        widest = max(self._members, key=lambda m: m.pair.op.type.size)
        cuts = self._stages.splits.get(widest.pair.op.name, {})
        merge = Below(self._first.name, tuple(m.pair.op.name for m in self._members), self._lowest)
        reductions = [self._part.name, *(s.name for s in self._sums)]
        along = [tuple(reduced(place.domain)) for place in self._places]
        inner = frozenset(name for op in self._inner for name in defined_by(op)) - {self.array}
        width = self._places[-1].end
        return Cascade(merge, Grid((*rows, (width,))), cuts, dict(zip(reductions, along, strict=True)), inner)

    # --- a part of a row -----------------------------------------------------------------------------

    def _weights(self) -> list[Op]:
        """``exp(inner - pivot)``, elementwise, so that what looks for attention finds it; the last operation has it."""
        largest = Leaf(self._part.name, self._pair.row.forms, self._first.type.dtype)
        inner, pivot = (as_dtype(tree, self._acc) for tree in (self._pair.inner, self._pivot(largest)))
        below = call("exp", (call("sub", (inner, pivot), self._acc),), self._acc)
        names = (*rows_of(self._members[0]), self._members[0].index)
        types = {**self._stages.types, self._part.name: self._part.type}
        return aligned(below, names, self._pair.domain, types, self._claimed)

    def _pivot(self, largest: Leaf) -> Tree:
        """What exponentials are taken below."""
        none = call("cmp_eq", (largest, Literal(-inf, largest.dtype)), DType.BOOL)
        return call("cond", (none, Literal(self._lowest, largest.dtype), largest), largest.dtype)

    def _sum(self, member: Weighted, weights: Op) -> Contraction:
        assert isinstance(weights, Elementwise)
        op, domain = member.pair.op, member.pair.domain
        names = (*rows_of(member), member.index)
        at = (Affine.var(n) if size > 1 else Affine() for n, size in zip(names, weights.type.shape, strict=True))
        summand = product_of([
            Leaf(weights.name, tuple(at), self._acc), *(as_dtype(f, self._acc) for f in member.inside)
        ])  # fmt: skip
        type = replace(op.type, dtype=self._acc)
        return computed(domain.extents, self._claimed(f"{op.name}_part"), type, domain.output, summand, op)

    # --- the array -----------------------------------------------------------------------------------

    def _placed(self) -> Iterator[_Place]:
        """Where each reduction lies, the largest elements first."""
        pair = self._pair
        mine = zip(pair.row.forms, pair.first_domain.output, strict=True)
        place = _Place.behind(0, pair.first_domain, tuple(own for form, own in mine if form.terms))
        yield place
        for member in self._members:
            rows = tuple(map(Affine.var, rows_of(member)))
            place = _Place.behind(place.end, member.pair.domain, rows)
            yield place

    def _packed(self) -> Iterator[Op]:
        """Write all into the array, one after the other."""
        sizes = (self._pair.domain.extents[n] for n in rows_of(self._members[0]))
        type, last = TensorType(self._acc, (*sizes, self._places[-1].end)), None
        values = [self._part, *self._sums]
        names = [*(self._claimed(f"{self.array}_with") for _ in self._sums), self.array]
        for name, value, place in zip(names, values, self._places, strict=True):
            cell = as_dtype(Leaf(value.name, place.domain.output, value.type.dtype), self._acc)
            made = computed(place.domain.extents, name, type, place.subscripts, cell, origin=self._pair.op.origin)
            yield replace(made, default=last)
            last = name

    def _unpacked(self) -> Iterator[Op]:
        """The largest elements and the sums of whole rows, under their names."""
        first = self._first
        yield from self._read(first.name, first.type, self._places[0])
        for member, place in zip(self._members, self._places[1:], strict=True):
            name = self._claimed(f"{member.pair.op.name}_sum")
            yield from self._read(name, replace(member.pair.op.type, dtype=self._acc), place)
            yield self._finished(member, Leaf(name, member.pair.domain.output, self._acc))

    def _read(self, name: str, type: TensorType, place: _Place) -> Iterator[Op]:
        same = type.dtype is self._acc
        read = name if same else self._claimed(f"{name}_wide")
        yield Gather(read, replace(type, dtype=self._acc), self.array, place.cells, self._first.origin)
        if not same:
            yield Elementwise(name, type, "cast", (read,), origin=self._first.origin)

    def _finished(self, member: Weighted, sums: Leaf) -> Op:
        """The sum below the row's own pivot, times what does not move with it."""
        op, domain, row = member.pair.op, member.pair.domain, member.pair.row
        here, there = (as_dtype(tree, self._acc) for tree in (self._pivot(row), member.pivot))
        weight = call("exp", (call("sub", (here, there), self._acc),), self._acc)
        term = quotient((weight, sums, *member.outside), member.divisors, self._acc)
        return computed(domain.extents, op.name, op.type, domain.output, term, origin=op.origin)

    def _claimed(self, name: str) -> str:
        return claim(name, self._taken)


def aligned(
    tree: Call, names: Sequence[str], domain: FlatDomain, types: Mapping[str, TensorType], fresh: Callable[[str], str]
) -> list[Op]:
    """What computes `tree`, the last operation, for all values of the indexes `names` of a domain, an axis for each.

    An axis has one cell where the tree does not depend on its index.
    """
    made = _Aligned(names, domain, types, fresh)
    made.value(tree)
    return made.ops


@dataclass(slots=True)
class _Aligned:
    names: Sequence[str]
    domain: FlatDomain
    types: Mapping[str, TensorType]
    fresh: Callable[[str], str]
    ops: list[Op] = field(default_factory=list[Op])
    known: dict[Tree, Operand] = field(default_factory=dict[Tree, Operand])
    shapes: dict[Operand, tuple[int, ...]] = field(default_factory=dict[Operand, tuple[int, ...]])

    def value(self, tree: Tree) -> Operand:
        if isinstance(tree, Literal):
            return tree
        if tree not in self.known:
            self.known[tree] = self._leaf(tree) if isinstance(tree, Leaf) else self._call(tree)
        return self.known[tree]

    def _call(self, tree: Call) -> str:
        args = tuple(map(self.value, tree.args))
        shape = np.broadcast_shapes(*(self.shapes.get(a, ()) for a in args))
        name = self.fresh("aligned")
        self.ops.append(Elementwise(name, TensorType(tree.dtype, shape), tree.fn, args))
        self.shapes[name] = shape
        return name

    def _leaf(self, leaf: Leaf) -> str:
        """The tensor itself where its axes are the last ones of ours; else a copy."""
        shape = self.types[leaf.tensor].shape
        if self._lies(leaf, shape):
            self.shapes[leaf.tensor] = shape
            return leaf.tensor
        read = names_in(leaf.forms)
        output = tuple(Affine.var(n) if n in read else Affine() for n in self.names)
        sizes = tuple(self.domain.extents[n] if n in read else 1 for n in self.names)
        name = self.fresh(f"{leaf.tensor}_aligned")
        self.ops.append(computed(self.domain.extents, name, TensorType(leaf.dtype, sizes), output, leaf))
        self.shapes[name] = sizes
        return name

    def _lies(self, leaf: Leaf, shape: tuple[int, ...]) -> bool:
        behind = self.names[len(self.names) - len(shape) :] if len(shape) <= len(self.names) else ()
        sizes = zip(leaf.forms, shape, behind, strict=False)
        return len(behind) == len(shape) and all(
            (f == Affine.var(n) and size == self.domain.extents[n]) or (f == Affine() and size == 1)
            for f, size, n in sizes
        )
