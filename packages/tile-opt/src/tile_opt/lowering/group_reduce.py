"""Combining a scalar across the threads of a work group, through local memory and in a fixed order."""

from __future__ import annotations

from collections.abc import Sequence

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
    Store,
    Type,
    Var,
)
from tile_ir.stripe.affine import Affine

from tile_opt.lowering.builder import Builder

Digit = tuple[Affine, int, int]
"""A reduced GROUP index: its value, range, and the distance in linear thread number between neighbours."""


def combine_threads(
    builder: Builder, agg: Aggregation, value: Expr, thread: Affine, threads: int, digits: Sequence[Digit]
) -> Expr:
    """Every thread gets the merge of `value` over the digits, first to last; all threads must come here.

    `thread` is the linear number of the thread, below `threads`.
    """
    type = Type(value.type.dtype, 1, threads, Space.LOCAL)
    array = Var(builder.fresh("exchange"), type)
    builder.allocations.append(Alloc(array.name, type))
    builder.emit(Store(array, builder.index(thread), value))
    builder.emit(Barrier("group", "local"))
    if len(digits) == 1 and digits[0][1:] == (threads, 1) and threads & (threads - 1) == 0:
        return _tree(builder, agg, array, thread, threads, value.type)
    first = thread
    for digit, _, step in digits:
        first = first + digit * -step
    total = builder.mutable("total", Load(array, builder.index(first), value.type))
    builder.emit(_merge_all(builder, agg, array, first, total, digits))
    # Nobody may write the array again before everyone has read it.
    builder.emit(Barrier("group", "local"))
    return builder.let("r", total)


def _tree(builder: Builder, agg: Aggregation, array: Var, thread: Affine, threads: int, type: Type) -> Expr:
    """All threads of the group, a power of two: the upper half joins the lower one, until one value is left."""
    me = builder.atom(thread)
    half = threads // 2
    while half:
        other = Load(array, Binary("add", me, builder.literal(half), builder.index_type), type)
        joined = Binary(agg.op, Load(array, me, type), other, type)
        lower = Compare("cmp_lt", me, builder.literal(half), Type(DType.BOOL))
        builder.emit(If(lower, Block((Store(array, me, joined),))))
        builder.emit(Barrier("group", "local"))
        half //= 2
    total = builder.mutable("total", Load(array, builder.literal(0), type))
    # Nobody may write the array again before everyone has read it.
    builder.emit(Barrier("group", "local"))
    return builder.let("r", total)


def _merge_all(
    builder: Builder, agg: Aggregation, array: Var, first: Affine, total: Var, digits: Sequence[Digit]
) -> For:
    """One loop over all combinations but the first, which `total` holds."""
    count = 1
    for _, size, _ in digits:
        count *= size
    step = Var(builder.fresh("other"), builder.index_type)
    index = builder.atom(first)
    rest: Expr = step
    for _, size, distance in reversed(digits):
        digit: Expr = Binary("mod", rest, builder.literal(size), step.type)
        offset = Binary("mul", digit, builder.literal(distance), step.type)
        index = Binary("add", index, offset, step.type)
        rest = Binary("div", rest, builder.literal(size), step.type)
    value = Load(array, index, total.type)
    merge = Assign(total.name, Binary(agg.op, total, value, total.type))
    return For(step.name, builder.literal(1), builder.literal(count), 1, Block((merge,)))
