"""Combining scalars across the threads of a work group, in a fixed order: by shuffles where these reach, else through local memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from math import prod

from tile_ir.dtype import DType
from tile_ir.frozen import frozen, replace
from tile_ir.ops import Aggregation
from tile_ir.powers import power_of_two
from tile_ir.semtree.nodes import (
    Alloc,
    Assign,
    Barrier,
    Binary,
    Block,
    Compare,
    Const,
    Expr,
    For,
    If,
    Load,
    Space,
    Store,
    SubgroupOp,
    Type,
    Var,
)
from tile_ir.stripe.affine import Affine

from tile_opt.lowering.builder import Builder

RADIX = 8
"""Values that a thread merges between two barriers: their loads start together, and a barrier takes longer than they do."""
TOGETHER = 32
"""Threads that a device runs as one: barriers among no more cost little, and halves keep most of them busy."""


@frozen
class Digit:
    """A reduced index of threads: `size` values of it are to be merged, from threads that lie `step` apart."""

    value: Affine
    size: int
    step: int
    held: int = 1
    """Neighbouring values of the index whose threads hold their merge already."""

    @property
    def start(self) -> Affine:
        """From a thread to that where the index is 0."""
        return self.value * -(self.step // self.held)

    def masks(self, lanes: int) -> Iterator[int]:
        """Distances, doubled each time, at which threads exchange to merge what `lanes` neighbouring threads have of it."""
        distance = self.step
        while distance < min(lanes, self.step * self.size):
            yield distance
            distance *= 2

    def beyond(self, lanes: int) -> Digit:
        """What is left to merge then."""
        merged = 1 << len(list(self.masks(lanes)))
        return replace(self, size=self.size // merged, step=self.step * merged, held=merged)


def combine_threads(
    builder: Builder, agg: Aggregation, values: Sequence[Expr], thread: Affine, threads: int, digits: Sequence[Digit]
) -> Sequence[Expr]:
    """For each of `values`: every thread gets its merge over the digits, first to last; all threads must come here.

    `thread` is the linear number of the thread, below `threads`. The values (of one type) share their barriers.
    """
    whole = prod(d.size for d in digits) == threads
    lanes = builder.shuffles
    if lanes and threads % lanes == 0 and all(_is_power(n) for d in digits for n in (d.size, d.step)):
        masks = [m for d in digits for m in d.masks(lanes)]
        values = _shuffled(builder, agg, values, masks) if masks else values
        digits = [d for d in (d.beyond(lanes) for d in digits) if d.size > 1]
    return _exchanged(builder, agg, values, thread, threads, digits, whole) if digits else values


def _is_power(number: int) -> bool:
    return power_of_two(number) == number


def _shuffled(builder: Builder, agg: Aggregation, values: Sequence[Expr], masks: Sequence[int]) -> Sequence[Expr]:
    """Each thread's values merged with those of the threads whose numbers differ in these bits."""
    totals = [builder.mutable("total", value) for value in values]
    for mask in masks:
        for total in totals:
            other = SubgroupOp("shuffle_xor", (total, Const(mask, Type(DType.INT32))), total.type)
            builder.emit(Assign(total.name, Binary(agg.op, total, other, total.type)))
    return [builder.let("r", total) for total in totals]


def _exchanged(
    builder: Builder, agg: Aggregation, values: Sequence[Expr], thread: Affine, threads: int, digits: Sequence[Digit],
    whole: bool,
) -> Sequence[Expr]:  # fmt: skip
    """The same through local memory."""
    type = Type(values[0].type.dtype, 1, threads * len(values), Space.LOCAL)
    array = Var(builder.fresh("exchange"), type)
    builder.allocations.append(Alloc(array.name, type))
    exchange = _Exchange(builder, agg, array, thread, threads, values[0].type, tuple(digits), whole)
    for number, value in enumerate(values):
        builder.emit(Store(array, exchange.cell(number), value))
    builder.emit(Barrier("group", "local"))
    if all(_is_power(d.size) for d in digits):
        return exchange.trees(len(values))
    return exchange.loops(len(values))


@frozen
class _Exchange:
    """The array of all threads' values: those of value n start at ``n * threads``."""

    builder: Builder
    agg: Aggregation
    array: Var
    thread: Affine
    threads: int
    type: Type
    digits: tuple[Digit, ...]
    whole: bool
    """The values of all threads make one."""

    def cell(self, number: int, thread: Affine | None = None) -> Expr:
        return self.builder.index((self.thread if thread is None else thread) + number * self.threads)

    def first(self) -> Affine:
        """The thread that is first of all that this one's value is merged with."""
        return sum((d.start for d in self.digits), self.thread)

    # powers of two

    def trees(self, count: int) -> Sequence[Expr]:
        """The first threads of a digit join the values of the others, until every thread merges the few that are left."""
        left, distance = 1, 0
        radix, last = (2, 1) if self.threads <= TOGETHER else (RADIX, RADIX)
        for number, digit in enumerate(self.digits, 1):
            left, distance = digit.size, digit.step
            few = last if number == len(self.digits) else 1
            while left > few:
                parts = min(radix, left)
                left //= parts
                self._join(digit, left, parts, count)
        first = Affine() if self.whole else self.first()
        merged = [self._merged(self.cell(n, first), left, distance) for n in range(count)]
        return self._released([self.builder.mutable("total", value) for value in merged])

    def _join(self, digit: Digit, left: int, parts: int, count: int) -> None:
        """Threads below `left` merge the values of `parts` of them."""
        builder = self.builder
        cells = map(self.cell, range(count))
        joined = [Store(self.array, me, self._merged(me, parts, left * digit.step)) for me in cells]
        lower = Compare("cmp_lt", builder.atom(digit.value), builder.literal(left * digit.held), Type(DType.BOOL))
        builder.emit(If(lower, Block(tuple(joined))))
        builder.emit(Barrier("group", "local"))

    def _merged(self, first: Expr, count: int, distance: int) -> Expr:
        """The merge of `count` values, of which `first` is the place of the first."""
        literal, type = self.builder.literal, self.builder.index_type
        places = [first, *(Binary("add", first, literal(k * distance), type) for k in range(1, count))]
        values: list[Expr] = [Load(self.array, place, self.type) for place in places]
        return reduce(lambda a, b: Binary(self.agg.op, a, b, self.type), values)

    # any sizes

    def loops(self, count: int) -> Sequence[Expr]:
        """Every thread merges all values, one after the other."""
        first = self.first()
        totals: list[Expr] = []
        for number in range(count):
            total = self.builder.mutable("total", Load(self.array, self.cell(number, first), self.type))
            self.builder.emit(self._merge_all(first + number * self.threads, total))
            totals.append(total)
        return self._released(totals)

    def _merge_all(self, first: Affine, total: Var) -> For:
        """One loop over all combinations but the first, which `total` holds."""
        builder = self.builder
        step = Var(builder.fresh("other"), builder.index_type)
        index = builder.atom(first)
        rest: Expr = step
        for each in reversed(self.digits):
            digit: Expr = Binary("mod", rest, builder.literal(each.size), step.type)
            offset = Binary("mul", digit, builder.literal(each.step), step.type)
            index = Binary("add", index, offset, step.type)
            rest = Binary("div", rest, builder.literal(each.size), step.type)
        merged = Binary(self.agg.op, total, Load(self.array, index, total.type), total.type)
        count = prod(d.size for d in self.digits)
        body = Block((Assign(total.name, merged),))
        return For(step.name, builder.literal(1), builder.literal(count), 1, body)

    def _released(self, totals: Sequence[Expr]) -> Sequence[Expr]:
        # Nobody may write the array again before everyone has read it.
        self.builder.emit(Barrier("group", "local"))
        return [self.builder.let("r", total) for total in totals]
