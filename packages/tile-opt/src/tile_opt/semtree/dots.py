"""Dot products of words in core nodes: for targets that have no instruction for them."""

from __future__ import annotations

from tile_ir.dots import DOTS, WORD
from tile_ir.dtype import DType
from tile_ir.semtree.nodes import Binary, Call, Const, Expr, Type


def summed(call: Call) -> Expr:
    """The third operand and the products of factors of equal place in the other two."""
    dot = DOTS[call.name]
    left, right, total = call.args
    for place in range(dot.depth):
        product = Binary("mul", _factor(left, dot.a, place), _factor(right, dot.b, place), call.type)
        total = Binary("add", total, product, call.type)
    return total


def _factor(word: Expr, dtype: DType, place: int) -> Expr:
    """The factor at a place of a word, counted from its lowest bits, extended to a word."""
    type = word.type
    above = WORD.bits - dtype.bits * (place + 1)
    if dtype.is_signed:
        return _shifted("bit_right", _shifted("bit_left", word, above), WORD.bits - dtype.bits)
    low = _shifted("bit_right", word, dtype.bits * place)
    return Binary("bit_and", low, Const((1 << dtype.bits) - 1, type), type)


def _shifted(way: str, word: Expr, count: int) -> Expr:
    return Binary(way, word, Const(count, Type(WORD, word.type.lanes)), word.type) if count else word
