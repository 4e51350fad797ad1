"""Keys as unsigned integers in the same order, so that sorting compares and takes apart integers only."""

from __future__ import annotations

from tile_ir.dtype import DType

from tile_opt.translate.build import Stage


def code_type(dtype: DType) -> DType:
    """The unsigned integer of a key's width."""
    return DType(f"uint{dtype.bits}")


def code(stage: Stage, key: str, dtype: DType, descending: bool = False) -> str:
    """A number that is smaller where the key comes earlier: NaN behind all numbers, 0.0 and -0.0 alike.

    No float has the smallest or the largest number.
    """
    found = _float(stage, key, dtype) if dtype.is_float else _integer(stage, key, dtype)
    return stage.op("bit_not", (found,), code_type(dtype)) if descending else found


def _integer(stage: Stage, key: str, dtype: DType) -> str:
    wide = code_type(dtype)
    if dtype is wide:
        return key
    bits = stage.op("bitcast", (key,), wide)
    return stage.op("bit_xor", (bits, stage.const(1 << (dtype.bits - 1), wide)), wide)


def _float(stage: Stage, key: str, dtype: DType) -> str:
    """Of a negative number all bits are turned round, of another the sign."""
    wide, zero = code_type(dtype), stage.const(0.0, dtype)
    signed = DType(f"int{dtype.bits}")
    is_zero, is_number = (stage.op("cmp_eq", (key, other), DType.BOOL) for other in (zero, key))
    bits = stage.op("bitcast", (stage.op("cond", (is_zero, zero, key), dtype),), signed)
    sign = stage.op("bit_right", (bits, stage.const(dtype.bits - 1, signed)), signed)
    turned = stage.op("bit_or", (stage.op("bitcast", (sign,), wide), stage.const(1 << (dtype.bits - 1), wide)), wide)
    number = stage.op("bit_xor", (stage.op("bitcast", (bits,), wide), turned), wide)
    return stage.op("cond", (is_number, number, stage.const((1 << dtype.bits) - 2, wide)), wide)
