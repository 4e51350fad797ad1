"""OpenCL C's names of types, in registers and in memory, and its reserved words.

Registers: bool is ``bool``, a bool vector a ``char`` vector of 0 and -1 (what comparisons give), float16 and
bfloat16 are ``float`` values that their type can represent. Memory: bool is ``uchar``, float16 ``half``
(reached by ``vload_half``), bfloat16 ``ushort``.
"""

from __future__ import annotations

import re
import struct

import numpy as np
from tile_ir.dtype import DType
from tile_ir.emit.names import sanitize
from tile_ir.semtree.nodes import Type

WIDTHS = (16, 8, 4, 2, 1)
"""Lanes OpenCL C has, widest first (3 is left out: it occupies four)."""
HALVES = (DType.FLOAT16, DType.BFLOAT16)
WORD, MOVED = 4, 4
"""Bytes of a word; elements that NVIDIA's compiler moves at once."""

_SCALARS = {
    DType.INT8: "char", DType.INT16: "short", DType.INT32: "int", DType.INT64: "long",
    DType.UINT8: "uchar", DType.UINT16: "ushort", DType.UINT32: "uint", DType.UINT64: "ulong",
    DType.FLOAT32: "float", DType.FLOAT64: "double",
}  # fmt: skip
REGISTERS: dict[DType, str] = {**_SCALARS, DType.BOOL: "bool", DType.FLOAT16: "float", DType.BFLOAT16: "float"}
MEMORY: dict[DType, str] = {**_SCALARS, DType.BOOL: "uchar", DType.FLOAT16: "half", DType.BFLOAT16: "ushort"}


def register(dtype: DType, lanes: int = 1) -> str:
    """The type of a value: ``int``, ``float4``…"""
    if lanes == 1:
        return REGISTERS[dtype]
    return f"{'char' if dtype is DType.BOOL else REGISTERS[dtype]}{lanes}"


def lane(vector: str, number: int, lanes: int) -> str:
    """One element of a value of so many."""
    return vector if lanes == 1 else f"{vector}.s{number:x}"


def memory(dtype: DType, lanes: int = 1) -> str:
    """The type of an element in memory."""
    return MEMORY[dtype] + (str(lanes) if lanes > 1 else "")


def bits(lanes: int = 1) -> str:
    """The type of 16-bit elements as bits."""
    return memory(DType.UINT16, lanes)


def words(dtype: DType, lanes: int) -> str:
    """The type of words that narrower elements of a vector are moved as; empty where four elements are all of it.

    NVIDIA's compiler moves four elements at once, at most, and its assembler joins such stores no more.
    """
    count = lanes * dtype.bytes // WORD
    return memory(DType.UINT32, count) if lanes > MOVED and dtype.bytes < WORD and count > 1 else ""


def unsigned(dtype: DType, lanes: int = 1) -> str:
    """The unsigned integer type as wide as the register of `dtype`."""
    return _BY_BITS[register_bits(dtype)][1] + (str(lanes) if lanes > 1 else "")


def mask(bits: int, lanes: int) -> str:
    """The signed integer vector that comparisons of elements of `bits` bits give."""
    return f"{_BY_BITS[bits][0]}{lanes}"


def register_bits(dtype: DType) -> int:
    """Width of one lane of a value."""
    return 32 if dtype in HALVES else dtype.bits


_BY_BITS = {8: ("char", "uchar"), 16: ("short", "ushort"), 32: ("int", "uint"), 64: ("long", "ulong")}


def tag(t: Type) -> str:
    """A word for a type in the name of a helper function."""
    return t.dtype.value + (f"x{t.lanes}" if t.lanes > 1 else "")


def rounded(value: float, dtype: DType) -> float:
    """`value` rounded to the dtype (nearest even)."""
    with np.errstate(all="ignore"):
        if dtype is DType.BFLOAT16:
            bits = int(np.float32(value).view(np.uint32))
            if value == value:
                bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
            return float(struct.unpack("f", struct.pack("I", bits))[0])
        return float(dtype.numpy.type(value))


_RESERVED = re.compile(
    r"""(?ix) tile_.* | (convert|as|vload|vstore|native|half|get|atomic|atom|async|sub_group|work_group|image|cl|clk|
    read|write|amd|intel|nv|arm|pocl|is|m|flt|dbl|char|schar|uchar|shrt|ushrt|int|uint|long|ulong|opencl)_.*
    | (bool|u?char|u?short|u?int|u?long|float|double|half|quad|real|imag)\d* | is(nan|inf|finite|normal|equal|less.*|greater.*|ordered|
    unordered|notequal|lessgreater) | u?add_sat | .*_t | linux | unix | i386 | vax | nan.* | inf.* | huge.*
    """
)
WORDS: tuple[str, ...] = tuple(
    word
    for line in (
        "acos acosh acospi asin asinh asinpi atan atan2 atanh atanpi atan2pi cbrt ceil copysign cos cosh",
        "cospi erfc erf exp exp2 exp10 expm1 fabs fdim floor fma fmax fmin fmod fract frexp hypot ilogb ldexp",
        "lgamma lgamma_r log log2 log10 log1p logb mad maxmag minmag modf nan nextafter pow pown powr",
        "remainder remquo rint rootn round rsqrt sin sincos sinh sinpi sqrt tan tanh tanpi tgamma trunc abs",
        "abs_diff add_sat hadd rhadd clamp clz ctz mad_hi mad_sat max min mul_hi rotate sub_sat upsample",
        "popcount mad24 mul24 degrees mix radians step smoothstep sign cross dot distance length normalize",
        "fast_distance fast_length fast_normalize any all bitselect select signbit barrier mem_fence",
        "read_mem_fence write_mem_fence prefetch wait_group_events vec_step shuffle shuffle2 printf infinity",
        "maxfloat alignas complex imaginary event_t sampler_t generic address_space assert offsetof va_list",
        "wchar_t cles_enable",
    )
    for word in line.split()
)
"""Functions and words of OpenCL C that no variable may hide."""


def safe_hint(name: str) -> str:
    """`name`, changed where it could meet a word, a function or a macro of OpenCL C."""
    plain = sanitize(name)
    return f"v_{plain}" if _RESERVED.fullmatch(plain) else plain


def comment_text(text: str) -> list[str]:
    """`text` as lines that cannot end a comment: printable ASCII, no ``*/``, no line continuation, no trigraph."""
    lines = ["".join(c if " " <= c <= "~" else "?" for c in line) for line in text.splitlines()]
    lines = [re.sub(r"\?\?+", "?", line.replace("*/", "* /").replace("/*", "/ *")) for line in lines]
    return [line.rstrip("\\ ") for line in lines]
