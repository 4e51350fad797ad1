"""Gradients of weights of grouped convolutions whose groups have few channels, several groups at once.

The channels of a group are fewer than the rows or columns of a matrix instruction, those of several groups are not. What
groups would give each other is made, too, and left out:

    dW[i, j, c, 16*g + o]  = +(dY[n, x, y, 16*g + o] * X[n, x + i - 1, y + j - 1, 16*g + c]), g < 32, c < 16, o < 16

    P[g, i, j, c, o]       = +(dY[n, x, y, 64*g + o] * X[n, x + i - 1, y + j - 1, 64*g + c]), g < 8, c < 64, o < 64
    dW[i, j, c, 64*g + 16*h + o] = =(P[g, i, j, 16*h + c, 16*h + o]), g < 8, h < 4, c < 16, o < 16
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from math import prod

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.names import claim
from tile_ir.program.copies import copied
from tile_ir.program.nodes import Constraint, Contraction, Op, Poly, TensorLoad, TensorType
from tile_ir.stripe.affine import names_in

from tile_opt.program.base import OpRewrite
from tile_opt.program.factorise import index_sizes
from tile_opt.program.unfold import bounds, is_product


@frozen
class JoinGroups(OpRewrite):
    """Groups of fewer than `few` channels on a side, so many of them together that they have `channels` or all there are.

    Products are at least `least`, and partial results at most `spread` times as many as results.
    """

    dtypes: frozenset[DType] = frozenset()
    """Of the factors of matrix instructions."""
    few: int = 24
    channels: int = 48
    least: int = 1 << 24
    spread: int = 16

    def instead(self, types: Mapping[str, TensorType], taken: set[str], op: Op) -> Iterable[Op]:
        found = _groups(op, types)
        if found is None or not {type.dtype for type in found.factors} <= self.dtypes:
            return (op,)
        several = self._several(found)
        return found.joined(several, taken) if several > 1 and found.products >= self.least else (op,)

    def _several(self, found: _Groups) -> int:
        """Groups to be taken together: a divisor of all; 1 where each has enough for itself."""
        groups, sides = found.sizes[found.group], [found.sizes[n] for n in found.sides]
        if min(sides) >= self.few:
            return 1
        fitting = [n for n in range(1, min(groups, self.spread) + 1) if groups % n == 0]
        return next((n for n in fitting if n * min(sides) >= self.channels), fitting[-1])


@frozen
class _Groups:
    """Products of each group's rows and columns: what its subscripts are."""

    op: Contraction
    factors: tuple[TensorType, ...]
    group: str
    sides: tuple[str, str]
    """The index of channels within a group, of each factor; both are the result's."""
    sizes: Mapping[str, int]

    @property
    def products(self) -> int:
        return prod(self.sizes.values())

    def _larger(self, form: Poly, times: int) -> Poly:
        """A subscript that counts so many groups as one."""
        return form + Poly.of({self.group: form.coefficient(self.group) * (times - 1)})

    def joined(self, times: int, taken: set[str]) -> Iterator[Contraction]:
        """The products of so many groups at once, and those that are results."""
        name, inner = claim(f"{self.op.name}_groups", taken), claim(f"{self.group}_inner", {*self.op.indexes})
        kept = [n for n in dict.fromkeys(n for f in self.op.output for n in f.names) if n != self.group]
        sizes = {self.group: self.sizes[self.group] // times}
        sizes |= {n: self.sizes[n] * (times if n in self.sides else 1) for n in kept}
        cells = tuple(Poly.of({n: 1}) for n in sizes)
        type = TensorType(self.op.acc, tuple(sizes.values()))
        yield self._products(times, name, cells, type)
        member = {n: Poly.of({n: 1, inner: self.sizes[n]}) for n in self.sides}
        reads = tuple(member.get(n, Poly.of({n: 1})) for n in sizes)
        output = tuple(self._larger(f, times) + Poly.of({inner: f.coefficient(self.group)}) for f in self.op.output)
        limits = {**self.sizes, self.group: sizes[self.group], inner: times}
        ranges = ((Poly.of({n: 1}), limits[n]) for n in (*sizes, inner))
        yield copied(self.op.name, self.op.type, output, name, reads, ranges, text=self.op.text, origin=self.op.origin)

    def _products(self, times: int, name: str, cells: tuple[Poly, ...], type: TensorType) -> Contraction:
        own = {self.group, *self.sides}
        limits = [c for c in self.op.constraints if own.isdisjoint(c.formula.names)]
        loads = tuple(
            replace(load, formulas=tuple(self._larger(f, times) for f in load.formulas)) for load in self.op.loads
        )
        limits += bounds(zip(cells, type.shape, strict=True), self.op)
        text = f"{name}: products of {times} groups at once, for {self.op.name}"
        return replace(
            self.op, name=name, type=type, output=cells, loads=loads, text=text, constraints=(*dict.fromkeys(limits),)
        )


def _groups(op: Op, types: Mapping[str, TensorType]) -> _Groups | None:
    """What the products of groups are; None for other operations."""
    if not isinstance(op, Contraction) or not is_product(op):
        return None
    loads, sizes = [load for load in op.loads if isinstance(load.tensor, str)], index_sizes(op)
    if len(loads) != 2 or sizes is None:
        return None
    factors, results = tuple(types[str(load.tensor)] for load in loads), names_in(op.output)
    for group in sorted(results):
        one, other = (_channels(load, group, sizes) for load in loads)
        if one is not None and other is not None and _is_apart(op, group, one, other, sizes):
            return _Groups(op, factors, group, (one, other), sizes)
    return None


def _channels(load: TensorLoad, group: str, sizes: Mapping[str, int]) -> str | None:
    """What a load's only subscript with the group counts beside it, group after group."""
    moved = [form for form in load.formulas if group in form.names]
    member = next((n for form in moved for n in form.names if n != group), None)
    if member is None or moved != [Poly.of({group: sizes[member], member: 1})]:
        return None
    return member


def _is_apart(op: Contraction, group: str, one: str, other: str, sizes: Mapping[str, int]) -> bool:
    """A group's channels of each factor are the result's, in one factor alone, and all there are."""
    read = [n for load in op.loads for form in load.formulas for n in form.names]
    alone = one != other and read.count(one) == read.count(other) == 1 and {one, other} <= names_in(op.output)
    tied = (c for c in op.constraints if not {group, one, other}.isdisjoint(c.formula.names))
    return alone and all(_holds(c, sizes) for c in tied)


def _holds(limit: Constraint, sizes: Mapping[str, int]) -> bool:
    """A constraint says nothing that the indexes' ranges do not."""
    rising = limit.formula.const >= 0 and all(c > 0 for _, c in limit.formula.terms)
    return rising and limit.formula.evaluate({n: sizes[n] - 1 for n in limit.formula.names}) < limit.size
