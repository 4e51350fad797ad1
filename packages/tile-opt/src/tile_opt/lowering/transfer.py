"""Copies that run ahead: neighbouring elements from global into local memory."""

from __future__ import annotations

from math import gcd

from tile_ir.semtree.nodes import AsyncCopy, Expr, Space

from tile_opt.lowering.body import View
from tile_opt.lowering.builder import Builder
from tile_opt.lowering.forms import alignment


def copies_ahead(target: View, source: View) -> bool:
    """Whether both views are one row of neighbours, from what a parameter points to into a group's array."""
    spaces = [v.root.ptr.type.space if v.root.ptr is not None else Space.PRIVATE for v in (target, source)]
    return spaces == [Space.LOCAL, Space.GLOBAL] and all(_is_row(v) for v in (target, source)) and target.agg is None


def _is_row(view: View) -> bool:
    return all(size == 1 or stride == 1 for size, stride in zip(view.sizes, view.strides, strict=True)) and (
        sum(size > 1 for size in view.sizes) <= 1
    )


def start_copy(builder: Builder, target: View, source: View, group: int, guard: Expr | None) -> None:
    """An asynchronous copy of the source's elements; those of the target are unknown until it is waited for.

    Where `guard` is false they become 0.
    """
    assert target.root.ptr is not None and source.root.ptr is not None
    target.root.written = source.root.read = True
    count = max((size for size in source.sizes), default=1)
    align = gcd(_alignment(target), _alignment(source))
    to, start = _index(builder, target), _index(builder, source)
    fill = guard is not None
    builder.emit(AsyncCopy(target.root.ptr, to, source.root.ptr, start, count, guard, group, align, fill))
    builder.forget_loads()


def _index(builder: Builder, view: View) -> Expr:
    if view.root.arrangement is not None:
        return view.root.arrangement.index(builder, view.offset, view.quasi)
    return builder.index(view.offset, view.quasi)


def _alignment(view: View) -> int:
    width = view.root.dtype.bytes
    known = alignment(view.offset, width, view.root.align)
    for scale, _ in view.quasi:
        known = gcd(known, scale * width)
    return known
