"""Dot products of words in core nodes: for targets that have no instruction for them."""

from __future__ import annotations

from tile_ir.dots import DOTS, WORD, DotProduct
from tile_ir.dtype import DType
from tile_ir.semtree.nodes import Binary, Bitcast, Call, Cast, Compare, Const, Expr, Fma, Select, Type, Unary

_TINY = 2.0**-126
"""The smallest normal float32."""


def summed(call: Call) -> Expr:
    """The third operand and the products of factors of equal place in the other two."""
    dot = DOTS[call.name]
    left, right, total = call.args
    if dot.c.is_float:
        return _of_floats(call, dot)
    for place in range(dot.depth):
        product = Binary("mul", _factor(left, dot.a, place), _factor(right, dot.b, place), call.type)
        total = Binary("add", total, product, call.type)
    return total


def _of_floats(call: Call, dot: DotProduct) -> Expr:
    """Each product added with one rounding, the last one first; subnormal numbers are zeros throughout."""
    left, right, total = call.args
    total = _flushed(total)
    widened = _half if dot.a is DType.FLOAT16 else _wide
    for place in reversed(range(dot.depth)):
        a, b = (widened(word, place) for word in (left, right))
        total = _flushed(Fma(a, b, total, call.type))
    return total


def _wide(word: Expr, place: int) -> Expr:
    """The bfloat16 at a place of a word as float32, whose high half it is."""
    high = Binary("bit_and", word, Const(-(1 << 16), word.type), word.type) if place else _shifted("bit_left", word, 16)
    return _flushed(Bitcast(high, Type(DType.FLOAT32, word.type.lanes)))


def _half(word: Expr, place: int) -> Expr:
    """The float16 at a place of a word as float32, where all of them are normal numbers."""
    low = _shifted("bit_right", word, 16 * place)
    lanes = word.type.lanes
    half = Bitcast(Cast(low, Type(DType.UINT16, lanes)), Type(DType.FLOAT16, lanes))
    return Cast(half, Type(DType.FLOAT32, lanes))


def _flushed(value: Expr) -> Expr:
    """A zero of the same sign in place of a subnormal number."""
    type = value.type
    tiny = Compare("cmp_lt", Unary("abs", value, type), Const(_TINY, type), Type(DType.BOOL, type.lanes))
    return Select(tiny, Binary("mul", value, Const(0.0, type), type), value, type)


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
