"""Copies of boxes of tensors for targets that lack them: each work item copies its share at once."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tile_ir.dtype import DType
from tile_ir.matrix import CHUNK_BYTES, PANEL_BYTES, TF32_BITS
from tile_ir.semtree.nodes import (
    Binary,
    Block,
    Cast,
    Compare,
    Const,
    Expr,
    For,
    If,
    Let,
    Load,
    Round,
    Statement,
    Store,
    TensorCopy,
    Type,
    Var,
)  # fmt: skip

from tile_opt.semtree.matrix import rounded
from tile_opt.semtree.teams import INT, binary, const, linear, plus

_F32, _BOOL, _SWIZZLED = Type(DType.FLOAT32), Type(DType.BOOL), 8


def own_share(node: TensorCopy, group_size: tuple[int, int, int], name: str) -> Statement:
    """A loop, with the variable `name`, over every so-many-th element of the box; ties go to even."""
    items, count = prod(group_size), prod(node.box)
    element = Var(f"{name}_e", INT)
    places = tuple(_places(node, element))
    source: Expr = const(0)
    for place, stride in zip(places, node.strides, strict=True):
        source = plus(source, binary("mul", place, stride))
    value = rounded(Round(Load(node.src, source, _F32), TF32_BITS, _F32), even=True)
    there, empty = (Block((Store(node.dst, _target(node, element), v),)) for v in (value, Const(0.0, _F32)))
    share: Statement = If(_inside(node, places), there, empty)
    if count % items:
        share = If(Compare("cmp_lt", element, const(count), _BOOL), Block((share,)))
    turn = Var(name, INT)
    let = Let(element.name, plus(binary("mul", turn, items), linear(group_size)))
    return For(name, const(0), const(-(-count // items)), 1, Block((let, share)))


def _places(node: TensorCopy, element: Expr) -> Iterator[Expr]:
    """Where an element of the box is in the tensor, along each dimension."""
    for dim, (at, size, step) in enumerate(zip(node.at, node.box, node.steps, strict=True)):
        inner = prod(node.box[dim + 1 :])
        yield plus(_int(at), binary("mul", binary("mod", binary("div", element, inner), size), step))


def _inside(node: TensorCopy, places: tuple[Expr, ...]) -> Expr:
    """Whether the tensor has such an element."""
    found: Expr | None = None
    for place, size in zip(places, node.sizes, strict=True):
        for limit in (Compare("cmp_ge", place, const(0), _BOOL), Compare("cmp_lt", place, const(size), _BOOL)):
            found = limit if found is None else Binary("bit_and", found, limit, _BOOL)
    assert found is not None
    return found


def _target(node: TensorCopy, element: Expr) -> Expr:
    """Where it lies in its swizzled rows."""
    width = _F32.dtype.bytes
    row, chunk = PANEL_BYTES // width, CHUNK_BYTES // width
    turn = binary("mul", binary("mod", binary("div", element, row), _SWIZZLED), chunk)
    return plus(_int(node.dst_index), Binary("bit_xor", element, turn, INT))


def _int(value: Expr) -> Expr:
    return value if value.type == INT else Cast(value, INT)
