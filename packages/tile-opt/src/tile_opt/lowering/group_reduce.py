"""Combining scalars across the threads of a work group, through local memory and in a fixed order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.ops import Aggregation
from tile_ir.semtree.nodes import (
    Alloc,
    Assign,
    Barrier,
    Binary,
    Block,
    Compare,
    Expr,
    For,
    If,
    Load,
    Space,
    Store,
    Type,
    Var,
)
from tile_ir.stripe.affine import Affine

from tile_opt.lowering.builder import Builder

Digit = tuple[Affine, int, int]
"""A reduced GROUP index: its value, range, and the distance in linear thread number between neighbours."""
RADIX = 8
"""Values that a thread merges between two barriers: their loads start together, and a barrier takes longer than they do."""
TOGETHER = 32
"""Threads that a device runs as one: barriers among no more cost little, and halves keep most of them busy."""


def combine_threads(
    builder: Builder, agg: Aggregation, values: Sequence[Expr], thread: Affine, threads: int, digits: Sequence[Digit]
) -> Sequence[Expr]:
    """For each of `values`: every thread gets its merge over the digits, first to last; all threads must come here.

    `thread` is the linear number of the thread, below `threads`. The values (of one type) share their barriers.
    """
    type = Type(values[0].type.dtype, 1, threads * len(values), Space.LOCAL)
    array = Var(builder.fresh("exchange"), type)
    builder.allocations.append(Alloc(array.name, type))
    exchange = _Exchange(builder, agg, array, thread, threads, values[0].type, tuple(digits))
    for number, value in enumerate(values):
        builder.emit(Store(array, exchange.cell(number), value))
    builder.emit(Barrier("group", "local"))
    if all(size & (size - 1) == 0 for _, size, _ in digits):
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

    def cell(self, number: int, thread: Affine | None = None) -> Expr:
        return self.builder.index((self.thread if thread is None else thread) + number * self.threads)

    def first(self) -> Affine:
        """The thread that is first of all that this one's value is merged with."""
        return sum((digit * -step for digit, _, step in self.digits), self.thread)

    # powers of two

    def trees(self, count: int) -> Sequence[Expr]:
        """The first threads of a digit join the values of the others, until every thread merges the few that are left."""
        left, distance = 1, 0
        radix, last = (2, 1) if self.threads <= TOGETHER else (RADIX, RADIX)
        for number, (digit, left, distance) in enumerate(self.digits, 1):
            few = last if number == len(self.digits) else 1
            while left > few:
                parts = min(radix, left)
                left //= parts
                self._join(digit, left, parts, distance, count)
        whole = prod(size for _, size, _ in self.digits) == self.threads
        first = Affine() if whole else self.first()
        merged = [self._merged(self.cell(n, first), left, distance) for n in range(count)]
        return self._released([self.builder.mutable("total", value) for value in merged])

    def _join(self, digit: Affine, left: int, parts: int, step: int, count: int) -> None:
        """Threads below `left` merge the values of `parts` of them."""
        builder = self.builder
        cells = map(self.cell, range(count))
        joined = [Store(self.array, me, self._merged(me, parts, left * step)) for me in cells]
        lower = Compare("cmp_lt", builder.atom(digit), builder.literal(left), Type(DType.BOOL))
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
        for _, size, distance in reversed(self.digits):
            digit: Expr = Binary("mod", rest, builder.literal(size), step.type)
            offset = Binary("mul", digit, builder.literal(distance), step.type)
            index = Binary("add", index, offset, step.type)
            rest = Binary("div", rest, builder.literal(size), step.type)
        merged = Binary(self.agg.op, total, Load(self.array, index, total.type), total.type)
        count = prod(size for _, size, _ in self.digits)
        body = Block((Assign(total.name, merged),))
        return For(step.name, builder.literal(1), builder.literal(count), 1, body)

    def _released(self, totals: Sequence[Expr]) -> Sequence[Expr]:
        # Nobody may write the array again before everyone has read it.
        self.builder.emit(Barrier("group", "local"))
        return [self.builder.let("r", total) for total in totals]
