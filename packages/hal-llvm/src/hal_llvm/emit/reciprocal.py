"""Vectors of 64-bit integers over a constant: the upper half of a product with its reciprocal.

Processors multiply halves of 64-bit lanes; LLVM takes such vectors apart, and multiplies lane by lane.
"""

from __future__ import annotations

from tile_ir.dtype import DType

from hal_llvm.emit.code import Code
from hal_llvm.emit.types import literal, register

BITS = 64
_HALF = BITS // 2


def takes(by: int, dtype: DType, lanes: int) -> bool:
    """Vectors over positive numbers; shifts divide by powers of two."""
    return lanes > 1 and dtype.bits == BITS and 0 < by <= dtype.max_value and by & (by - 1) != 0


def over(code: Code, value: str, by: int, dtype: DType, lanes: int) -> str:
    """`value` / `by`, truncated. The reciprocal is rounded up so little that no quotient reaches the next whole number."""
    return (_signed if dtype.is_signed else _unsigned)(code, value, by, lanes)


def _signed(code: Code, value: str, by: int, lanes: int) -> str:
    digits = by.bit_length() - 1
    factor = (1 << BITS + digits) // by + 1
    high = _upper_half(code, value, factor, lanes)
    sign = _op(code, "ashr", value, BITS - 1, lanes)  # -1 below zero, where the product is of 2^64 more
    high = _sub(code, high, _op(code, "and", sign, factor, lanes), lanes)
    return _sub(code, _op(code, "ashr", high, digits, lanes), sign, lanes)


def _unsigned(code: Code, value: str, by: int, lanes: int) -> str:
    """The reciprocal has a digit more than a lane: its product with that one is added by half."""
    digits = by.bit_length()
    high = _upper_half(code, value, (1 << BITS + digits) // by + 1 - (1 << BITS), lanes)
    half = _op(code, "lshr", _sub(code, value, high, lanes), 1, lanes)
    return _op(code, "lshr", _add(code, half, high, lanes), digits - 1, lanes)


def _upper_half(code: Code, value: str, factor: int, lanes: int) -> str:
    """Of the product of 128 bits without signs: four products of halves."""
    mask = (1 << _HALF) - 1
    low, high = _op(code, "and", value, mask, lanes), _op(code, "lshr", value, _HALF, lanes)
    lows = _op(code, "mul", low, factor & mask, lanes)
    carried = _op(code, "lshr", lows, _HALF, lanes)
    middle = _add(code, _op(code, "mul", low, factor >> _HALF, lanes), carried, lanes)
    other = _add(code, _op(code, "mul", high, factor & mask, lanes), _op(code, "and", middle, mask, lanes), lanes)
    carried = _add(code, _op(code, "lshr", middle, _HALF, lanes), _op(code, "lshr", other, _HALF, lanes), lanes)
    return _add(code, _op(code, "mul", high, factor >> _HALF, lanes), carried, lanes)


def _op(code: Code, name: str, value: str, number: int, lanes: int) -> str:
    return code.let(f"{name} {register(DType.UINT64, lanes)} {value}, {literal(number, DType.UINT64, lanes)}")


def _add(code: Code, left: str, right: str, lanes: int) -> str:
    return code.let(f"add {register(DType.UINT64, lanes)} {left}, {right}")


def _sub(code: Code, left: str, right: str, lanes: int) -> str:
    return code.let(f"sub {register(DType.UINT64, lanes)} {left}, {right}")
