"""Copies between memories: those that run ahead, of neighbours into local memory, and blocks for all others."""

from __future__ import annotations

from math import gcd

from tile_ir.frozen import replace
from tile_ir.semtree.nodes import AsyncCopy, Expr, Space
from tile_ir.stripe import nodes as stripe
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Bind, Direction

from tile_opt.lowering.body import View
from tile_opt.lowering.builder import Builder
from tile_opt.lowering.forms import alignment
from tile_opt.lowering.places import Home


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


def copied(statement: stripe.Transfer, target: View, source: View) -> stripe.Block:
    """Every element, one after the other; what is side by side goes into registers at once."""
    indexes = _elements(target)
    here = tuple(Affine.var(i.name) for i in indexes)
    there = stripe.same_element(here, target.sizes, source.sizes)
    refs = (_element("dst", statement.dst, target, Direction.OUT, here),
            _element("src", statement.src, source, Direction.IN, there))  # fmt: skip
    body = (stripe.Load("$copy", "src"), stripe.Store("dst", "$copy"))
    return stripe.Block(f"{statement.dst}_copy", indexes, (), (), refs, body)


def cleared(statement: stripe.Transfer, target: View) -> stripe.Block:
    """Zeros in all of the target."""
    indexes = _elements(target)
    ref = _element("dst", statement.dst, target, Direction.OUT, tuple(Affine.var(i.name) for i in indexes))
    body = (stripe.Const("$zero", 0, target.root.dtype), stripe.Store("dst", "$zero"))
    return stripe.Block(f"{statement.dst}_clear", indexes, (), (), (ref,), body)


def _element(name: str, source: str, view: View, dir: Direction, at: tuple[Affine, ...]) -> stripe.Refinement:
    type = stripe.TensorType(view.root.dtype, tuple(1 for _ in view.sizes), stripe.Layout(view.strides))
    return stripe.Refinement(dir, name, source, at, type)


def _elements(target: View) -> tuple[stripe.Index, ...]:
    """Indexes over a view; in registers positions are known, and the last ones side by side."""
    if target.root.home not in (Home.REG, Home.FRAGMENT):
        return tuple(stripe.Index(f"d{d}", size) for d, size in enumerate(target.sizes))
    *outer, last = (stripe.Index(f"d{d}", size, bind=Bind.UNROLL) for d, size in enumerate(target.sizes))
    return (*outer, replace(last, bind=Bind.VECTOR, lanes=last.range) if last.range > 1 else last)
