"""LLVM spellings of semtree types and constants.

Registers hold bool as ``i1`` and bfloat16 as its 16 bits (``i16``); memory holds bool as ``i8``. Vectors in registers
are filled up to a power of two of lanes, which LLVM is quick with; what the added ones hold is never used.
"""

from __future__ import annotations

import struct
from functools import cache

import numpy as np
from tile_ir.dtype import DType
from tile_ir.powers import power_of_two
from tile_ir.semtree.nodes import Type

_REGISTER: dict[DType, str] = {
    DType.BOOL: "i1",
    DType.FLOAT16: "half",
    DType.BFLOAT16: "i16",
    DType.FLOAT32: "float",
    DType.FLOAT64: "double",
} | {d: f"i{d.bits}" for d in DType if d.is_integer}

_SUFFIX = {"half": "f16", "float": "f32", "double": "f64"}


def held(lanes: int) -> int:
    """Lanes of the register for so many."""
    return power_of_two(lanes)


def exactly(element: str, lanes: int) -> str:
    """The LLVM type of `lanes` times `element` (the element itself for 1)."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


def spread(element: str, lanes: int) -> str:
    """The LLVM type of a register for `lanes` times `element`."""
    return exactly(element, held(lanes))


@cache
def register(dtype: DType, lanes: int = 1) -> str:
    """The LLVM type of a value in a register."""
    return spread(_REGISTER[dtype], lanes)


@cache
def memory(dtype: DType, lanes: int = 1) -> str:
    """The LLVM type of a value in memory."""
    return exactly("i8" if dtype is DType.BOOL else _REGISTER[dtype], lanes)


@cache
def suffix(llvm_type: str) -> str:
    """The overload suffix of an intrinsic for a type: ``<16 x float>`` gives ``v16f32``."""
    if llvm_type.startswith("<"):
        lanes, element = llvm_type[1:-1].split(" x ")
        return f"v{lanes}{suffix(element)}"
    return _SUFFIX.get(llvm_type, llvm_type)


def of(type_: Type) -> str:
    """The register type of a semtree value type; ``ptr`` for pointers and arrays."""
    return "ptr" if type_.ptr or type_.count else register(type_.dtype, type_.lanes)


def float32_bits(value: float) -> int:
    """The IEEE bits of `value` rounded to float32."""
    with np.errstate(over="ignore"):
        return int(np.float32(value).view(np.uint32))


def bfloat16_bits(value: float) -> int:
    """The bits of `value` rounded to bfloat16, to nearest even."""
    bits = float32_bits(value)
    if value != value:
        return (bits >> 16) | 0x40
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) & 0xFFFF


def float_literal(value: float, element: str) -> str:
    """A float constant of LLVM type half, float or double, exact in every bit."""
    with np.errstate(over="ignore"):
        if element == "half":
            return f"0xH{int(np.float16(value).view(np.uint16)):04X}"
        exact = float(np.float32(value)) if element == "float" else float(value)
    return f"0x{struct.unpack('<Q', struct.pack('<d', exact))[0]:016X}"


def _scalar_literal(value: float, dtype: DType) -> str:
    if dtype is DType.BOOL:
        return "true" if value else "false"
    if dtype is DType.BFLOAT16:
        return str(bfloat16_bits(float(value)))
    if dtype.is_float:
        return float_literal(float(value), _REGISTER[dtype])
    return str(int(value) & ((1 << dtype.bits) - 1))


def splat(element: str, literal: str, lanes: int) -> str:
    """A literal in every lane."""
    return literal if lanes == 1 else f"splat ({element} {literal})"


def literal(value: float, dtype: DType, lanes: int = 1) -> str:
    """A constant operand of `dtype`, the same in each of `lanes` lanes; integers wrap."""
    return splat(_REGISTER[dtype], _scalar_literal(value, dtype), lanes)
