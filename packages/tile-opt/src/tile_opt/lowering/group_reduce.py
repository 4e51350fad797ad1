"""Combining scalars across the threads of a work group, through local memory and in a fixed order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tile_ir.dtype import DType
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
    Statement,
    Store,
    Type,
    Var,
)
from tile_ir.stripe.affine import Affine

from tile_opt.lowering.builder import Builder

Digit = tuple[Affine, int, int]
"""A reduced GROUP index: its value, range, and the distance in linear thread number between neighbours."""


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


@dataclass(frozen=True, slots=True)
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
        """The upper half of a digit joins the lower one, until one value is left."""
        for digit, size, step in self.digits:
            half = size // 2
            while half:
                self._join(digit, half, step, count)
                half //= 2
        whole = prod(size for _, size, _ in self.digits) == self.threads
        first = Affine() if whole else self.first()
        totals = [self.builder.mutable("total", Load(self.array, self.cell(n, first), self.type)) for n in range(count)]
        return self._released(totals)

    def _join(self, digit: Affine, half: int, step: int, count: int) -> None:
        builder = self.builder
        joined: list[Statement] = []
        for number in range(count):
            me = self.cell(number)
            far = Binary("add", me, builder.literal(half * step), builder.index_type)
            both = Binary(self.agg.op, Load(self.array, me, self.type), Load(self.array, far, self.type), self.type)
            joined.append(Store(self.array, me, both))
        lower = Compare("cmp_lt", builder.atom(digit), builder.literal(half), Type(DType.BOOL))
        builder.emit(If(lower, Block(tuple(joined))))
        builder.emit(Barrier("group", "local"))

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
