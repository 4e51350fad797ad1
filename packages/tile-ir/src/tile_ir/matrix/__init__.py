"""Matrix instructions as data: their definition, and a table for each family of machines that has them."""

from __future__ import annotations

from collections.abc import Mapping

from tile_ir.dtype import DType
from tile_ir.matrix.definition import (
    CHUNK_BYTES,
    HALF_BYTES,
    MANTISSA_BITS,
    OWN_BYTES,
    PANEL_BYTES,
    ROLES,
    ROUND,
    TENSOR_COPY,
    Digit,
    MatrixInstruction,
    Operand,
    elements,
    side_by_side,
)
from tile_ir.matrix.intel import DPAS
from tile_ir.matrix.nvidia import LANES, LINE_BYTES, LINES, MATRIX_LOADS, MMA, TF32_BITS, WGMMA

__all__ = [
    "CHUNK_BYTES",
    "DPAS",
    "HALF_BYTES",
    "LANES",
    "LINES",
    "LINE_BYTES",
    "MANTISSA_BITS",
    "MATRIX_INSTRUCTIONS",
    "MATRIX_LOADS",
    "MMA",
    "OWN_BYTES",
    "PANEL_BYTES",
    "ROLES",
    "ROUND",
    "TENSOR_COPY",
    "TF32_BITS",
    "WGMMA",
    "Digit",
    "MatrixInstruction",
    "Operand",
    "elements",
    "instruction_of",
    "side_by_side",
]

MATRIX_INSTRUCTIONS: Mapping[str, MatrixInstruction] = {i.name: i for i in (*WGMMA, *MMA, *DPAS)}
"""By name; a target lists in its ``matrix`` those that its emitter can write."""


def instruction_of(shape: tuple[int, int, int], dtype: DType) -> MatrixInstruction | None:
    """The instruction of this shape and operand dtype."""
    return next((i for i in MATRIX_INSTRUCTIONS.values() if i.shape == shape and i.a.dtype is dtype), None)
