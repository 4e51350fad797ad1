"""Instructions of NVIDIA's processors: the layouts of PTX's ``mma.sync`` (PTX ISA, "Warp-level matrix instructions")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tile_ir.dtype import DType
from tile_ir.matrix.definition import Digit, MatrixInstruction, Operand, Places, lanes, registers

LANES = 32
"""Lanes of the sub-group that executes a matrix instruction."""
TF32_BITS = 10
"""Explicit mantissa bits of a float32 operand that a matrix instruction reads; the other 13 are ignored."""
LINES = 8
"""Lines of a matrix that a collective load fetches, and elements of 16 bits in each."""
LINE_BYTES = 16
MATRIX_LOADS = ("matrix_load", "matrix_load_transposed")
"""Instructions by which a sub-group loads fragments together: lines follow rows of the operand, or its columns."""


def _mma(name: str, dtype: DType, a: Places, b: Places, sums: DType = DType.FLOAT32) -> MatrixInstruction:
    """An ``mma.sync``, from the digits of its factors: as many rows as the first one has."""
    rows = tuple(replace(d, weight=2) if not d.lane else d for d in a[0])
    c = Operand(sums, rows, (registers(2, 1, 1), lanes(4, 2, 1)))
    return MatrixInstruction(name, Operand(dtype, *a), Operand(dtype, *b), c)


def _words(name: str, dtype: DType, rows: int, deep: int, sums: DType) -> MatrixInstruction:
    """The instruction for elements that have registers of their own: eight rows in one, and four of the depth."""
    down = (lanes(8, 1, 4), *_more(rows // 8, 8, 1))
    along = (lanes(4, 1, 1), *_more(deep // 4, 4, rows // 8))
    return _mma(name, dtype, (down, along), ((along[0], *_more(deep // 4, 4, 1)), (lanes(8, 1, 4),)), sums)


def _more(size: int, step: int, weight: int) -> tuple[Digit, ...]:
    """A digit that counts registers, where there are several."""
    return (registers(size, step, weight),) if size > 1 else ()


def _half(name: str, dtype: DType) -> MatrixInstruction:
    """The instruction for 16-bit elements, two in a register of 32 bits."""
    return _mma(
        name,
        dtype,
        ((lanes(8, 1, 4), registers(2, 8, 2)), (registers(2, 1, 1), lanes(4, 2, 1), registers(2, 8, 4))),
        ((registers(2, 1, 1), lanes(4, 2, 1), registers(2, 8, 2)), (lanes(8, 1, 4),)),
    )


_TF32 = _words("mma_m16n8k8_tf32", DType.FLOAT32, 16, 8, DType.FLOAT32)
_BF16, _F16 = _half("mma_m16n8k16_bf16", DType.BFLOAT16), _half("mma_m16n8k16_f16", DType.FLOAT16)
_F64 = tuple(_words(f"mma_m{m}n8k{k}_f64", DType.FLOAT64, m, k, DType.FLOAT64) for m, k in ((16, 8), (8, 4)))
MMA = (_TF32, _BF16, _F16, *_F64)
"""Every ``mma.sync`` that is described here."""


def _wgmma(columns: int, name: str, factors: tuple[DType, DType]) -> MatrixInstruction:
    """A ``wgmma`` of four sub-groups: 64 rows, 16 of each (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions")."""
    deep = DEPTH_BYTES // factors[0].bytes
    sizes = (16, deep), (deep, columns)
    a, b = (Operand(dtype, *map(_whole, each)) for dtype, each in zip(factors, sizes, strict=True))
    c = replace(_BF16.c, dtype=DType.FLOAT32 if factors[0].is_float else DType.INT32)
    return MatrixInstruction(f"wgmma_m64n{columns}k{deep}_{name}", a, b, c, team=4)


def _whole(size: int) -> tuple[Digit]:
    return (registers(size, 1, 1),)


FACTORS: Mapping[str, tuple[DType, DType]] = {
    "bf16": (DType.BFLOAT16, DType.BFLOAT16), "f16": (DType.FLOAT16, DType.FLOAT16), "tf32": (DType.FLOAT32, DType.FLOAT32),
    "s8": (DType.INT8, DType.INT8), "u8": (DType.UINT8, DType.UINT8),
    "s8u8": (DType.INT8, DType.UINT8), "u8s8": (DType.UINT8, DType.INT8),
}  # fmt: skip
"""The dtypes of both factors by what instructions call them."""
DEPTH_BYTES = 32
"""Bytes of a row of factors that one instruction of a team reads."""
COLUMNS = (256, 224, 192, 160, 128, 112, 96, 80, 64, 48, 32)
WGMMA = tuple(_wgmma(n, *kind) for kind in FACTORS.items() for n in COLUMNS)
"""Every ``wgmma`` that is described here, the widest first."""
