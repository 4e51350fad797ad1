"""Instructions of Intel's graphics processors: ``cl_intel_subgroup_matrix_multiply_accumulate`` and its extension for TF32.

A sub-group of 16 lanes adds the product of 8 rows and 16 columns. A lane holds a column of the second factor and of the
sum, and of the rows of the first factor what lies so many elements apart as there are lanes (Khronos' registry of OpenCL).
"""

from __future__ import annotations

from tile_ir.dtype import DType
from tile_ir.matrix.definition import MatrixInstruction, Operand, Places, lanes, registers

LANES = 16
"""Lanes of the sub-group that executes them."""
ROWS = 8
_DOWN = registers(ROWS, 1, 1)
_ALONG = lanes(LANES, 1, 1)


def _instruction(name: str, dtype: DType, depth: int, a: Places) -> MatrixInstruction:
    b, c = Operand(dtype, (registers(depth, 1, 1),), (_ALONG,)), Operand(DType.FLOAT32, (_DOWN,), (_ALONG,))
    return MatrixInstruction(f"dpas_m{ROWS}n{LANES}k{depth}_{name}", Operand(dtype, *a), b, c)


DPAS = (
    _instruction("bf16", DType.BFLOAT16, 16, ((_DOWN,), (_ALONG,))),
    _instruction("f16", DType.FLOAT16, 16, ((_DOWN,), (_ALONG,))),
    _instruction("tf32", DType.FLOAT32, 8, ((lanes(2, 1, 8), registers(4, 2, 1)), (lanes(8, 1, 1),))),
)
"""Every instruction that is described here."""
