"""Copies of boxes of tensors for targets that lack them: each work item copies its share at once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from math import prod

from tile_ir.dtype import DType
from tile_ir.matrix import CHUNK_BYTES, PANEL_BYTES, TF32_BITS
from tile_ir.semtree.nodes import (
    Block,
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

from tile_opt.semtree.matrix import linear, rounded
from tile_opt.semtree.teams import INT, integer
from tile_opt.semtree.terms import Term

_F32, _SWIZZLED = Type(DType.FLOAT32), 8


def own_share(node: TensorCopy, group_size: tuple[int, int, int], name: str) -> Statement:
    """A loop, with the variable `name`, over every so-many-th element of the box; ties go to even."""
    items, count = prod(group_size), prod(node.box)
    element = Term(Var(f"{name}_e", INT))
    places = tuple(_places(node, element))
    source = sum((place * stride for place, stride in zip(places, node.strides, strict=True)), element.number(0))
    value = rounded(Round(Load(node.src, source.expr, _F32), TF32_BITS, _F32), even=True)
    there, empty = (Block((Store(node.dst, _target(node, element), v),)) for v in (value, Const(0.0, _F32)))
    share: Statement = If(_inside(node, places), there, empty)
    if count % items:
        share = If((element < count).expr, Block((share,)))
    let = Let(f"{name}_e", (Term(Var(name, INT)) * items + linear(group_size)).expr)
    return For(name, Const(0, INT), Const(-(-count // items), INT), 1, Block((let, share)))


def _places(node: TensorCopy, element: Term) -> Iterator[Term]:
    """Where an element of the box is in the tensor, along each dimension."""
    for dim, (at, size, step) in enumerate(zip(node.at, node.box, node.steps, strict=True)):
        yield integer(at) + element // prod(node.box[dim + 1 :]) % size * step


def _inside(node: TensorCopy, places: tuple[Term, ...]) -> Expr:
    """Whether the tensor has such an element."""
    limits = (limit for place, size in zip(places, node.sizes, strict=True) for limit in (place >= 0, place < size))
    return reduce(Term.__and__, limits).expr


def _target(node: TensorCopy, element: Term) -> Expr:
    """Where it lies in its swizzled rows."""
    width = _F32.dtype.bytes
    row, chunk = PANEL_BYTES // width, CHUNK_BYTES // width
    turn = element // row % _SWIZZLED * chunk
    return (integer(node.dst_index) + element.with_("bit_xor", turn)).expr
