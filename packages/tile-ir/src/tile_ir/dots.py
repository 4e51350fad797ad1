"""Dot products of short factors as data: what a processor's instruction adds up in every lane.

A *word* of 32 bits (int32) holds `depth` factors side by side, the first in its lowest bits. A dot product multiplies
two words factor by factor and adds the products to a third operand: ``c + sum(a[q] * b[q] for q in range(depth))``.
Integers neither round nor saturate; their sum wraps. Products of 16-bit floats are added to a float32 one after the other, the
last factor's first, each with one rounding (to nearest, ties to even), and every subnormal float32 or bfloat16 counts as zero, be it a
factor, an addend or a sum, as ``VDPBF16PS`` does it (Intel SDM; the same on AMD); a subnormal float16 counts as it is. Each is a scalar operation
(`tile_ir.ops`), so that lanes, tiles and panels are made of words as of any other elements; a target lists among its nodes
those that it has an instruction for, and all others are rewritten.
"""

from __future__ import annotations

from collections.abc import Mapping

from tile_ir.dtype import DType
from tile_ir.frozen import frozen

WORD = DType.INT32
"""The dtype of several factors side by side."""


@frozen
class DotProduct:
    """``c + a . b`` with factors of the dtypes `a` and `b` in words, and the sum in the dtype `c`."""

    a: DType
    b: DType
    c: DType = DType.INT32

    @property
    def depth(self) -> int:
        """Factors in a word."""
        return WORD.bits // self.a.bits

    @property
    def name(self) -> str:
        """As an operation: ``dot4_u8s8``."""
        return f"dot{self.depth}_{_short(self.a)}{_short(self.b)}"


def _short(dtype: DType) -> str:
    if dtype.is_float:
        return f"{'bf' if dtype is DType.BFLOAT16 else 'f'}{dtype.bits}"
    return f"{'s' if dtype.is_signed else 'u'}{dtype.bits}"


_PAIRS = (
    (DType.UINT8, DType.INT8),
    (DType.INT8, DType.INT8),
    (DType.UINT8, DType.UINT8),
    (DType.INT16, DType.INT16),
)
_FLOATS = tuple(DotProduct(half, half, DType.FLOAT32) for half in (DType.BFLOAT16, DType.FLOAT16))
DOTS: Mapping[str, DotProduct] = {dot.name: dot for dot in (*(DotProduct(a, b) for a, b in _PAIRS), *_FLOATS)}
"""By the name of the operation."""
