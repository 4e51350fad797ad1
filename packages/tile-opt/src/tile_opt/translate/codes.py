"""Keys as unsigned integers in the same order, so that sorting compares and takes apart integers only.

Where a target cannot take the bits of a float for an integer, a code has several parts.
"""

from __future__ import annotations

from tile_ir.dtype import DType

from tile_opt.translate.build import Scalar


def code_type(dtype: DType) -> DType:
    """The unsigned integer of a key's width."""
    return DType(f"uint{dtype.bits}")


def code(key: Scalar, descending: bool = False) -> Scalar:
    """A number that is smaller where the key comes earlier: NaN behind all numbers, 0.0 and -0.0 alike.

    No float has the smallest or the largest number.
    """
    found = _float(key) if key.dtype.is_float else _integer(key)
    return ~found if descending else found


def parts(key: Scalar, descending: bool) -> tuple[Scalar, ...]:
    """The same order without codes: the first of these that differ decide; those of floats say first what is no number."""
    if not key.dtype.is_float:
        return (~key if descending else key,)
    is_number = key.is_(key)
    last = is_number if descending else ~is_number
    return last.choose(key.stage.const(1, DType.INT32), 0), is_number.choose(-key if descending else key, 0.0)


def part_types(dtype: DType) -> tuple[DType, ...]:
    """Those of `parts`."""
    return (DType.INT32, dtype) if dtype.is_float else (dtype,)


def _integer(key: Scalar) -> Scalar:
    wide = code_type(key.dtype)
    return key if key.dtype is wide else key.bits(wide) ^ 1 << (wide.bits - 1)


def _float(key: Scalar) -> Scalar:
    """Of a negative number all bits are turned round, of another the sign."""
    wide, zero = code_type(key.dtype), key.stage.const(0.0, key.dtype)
    is_zero, is_number = key.is_(zero), key.is_(key)
    bits = is_zero.choose(zero, key).bits(DType(f"int{wide.bits}"))
    turned = (bits >> (wide.bits - 1)).bits(wide) | 1 << (wide.bits - 1)
    return is_number.choose(bits.bits(wide) ^ turned, (1 << wide.bits) - 2)
