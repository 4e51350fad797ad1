"""Matrix instructions: shapes, and where the lanes of a sub-group hold the elements of each operand.

A sub-group of 32 lanes multiplies ``c[m, n] += a[m, k] * b[k, n]`` at once; every lane holds a few elements of each
operand in registers. The layouts are those of PTX's ``mma.sync`` (PTX ISA, "Warp-level matrix instructions"): a
coordinate is written in mixed radix, and each of its digits counts lanes or registers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import prod

from tile_ir.dtype import DType

LANES = 32
"""Lanes of the sub-group that executes a matrix instruction."""


@dataclass(frozen=True, slots=True)
class Digit:
    """Part of a coordinate: ``coordinate // step % size`` counts ``weight`` lanes, or registers."""

    size: int
    step: int
    weight: int
    lane: bool


@dataclass(frozen=True, slots=True)
class Operand:
    """How a matrix of `sizes` lies in the lanes: the digits of its row and of its column."""

    rows: tuple[Digit, ...]
    columns: tuple[Digit, ...]

    @property
    def sizes(self) -> tuple[int, int]:
        return prod(d.size for d in self.rows), prod(d.size for d in self.columns)

    @property
    def registers(self) -> int:
        """Elements that one lane holds."""
        return prod(d.size for d in (*self.rows, *self.columns) if not d.lane)

    def place(self, row: int, column: int) -> tuple[int, int]:
        """(lane, register) of an element."""
        parts = [
            (d, at // d.step % d.size) for at, digits in ((row, self.rows), (column, self.columns)) for d in digits
        ]
        lane = sum(d.weight * value for d, value in parts if d.lane)
        return lane, sum(d.weight * value for d, value in parts if not d.lane)


@cache
def elements(operand: Operand) -> Mapping[tuple[int, int], tuple[int, int]]:
    """(row, column) by (lane, register): the inverse of `Operand.place`."""
    rows, columns = operand.sizes
    return {operand.place(row, column): (row, column) for row, column in product(range(rows), range(columns))}


def side_by_side(operand: Operand, count: int) -> Operand:
    """`count` matrices of the operand beside each other as one; the registers of one follow those of the other."""
    digit = Digit(count, operand.sizes[1], operand.registers, lane=False)
    return Operand(operand.rows, (*operand.columns, digit))


def _lanes(size: int, step: int, weight: int) -> Digit:
    return Digit(size, step, weight, lane=True)


def _registers(size: int, step: int, weight: int) -> Digit:
    return Digit(size, step, weight, lane=False)


@dataclass(frozen=True, slots=True)
class MatrixInstruction:
    """``c += a @ b`` of one sub-group: `dtype` is that of a and b, c is float32."""

    name: str
    dtype: DType
    a: Operand
    b: Operand
    c: Operand

    @property
    def shape(self) -> tuple[int, int, int]:
        """(m, n, k)."""
        (m, k), (_, n) = self.a.sizes, self.b.sizes
        return m, n, k


_C = Operand((_lanes(8, 1, 4), _registers(2, 8, 2)), (_registers(2, 1, 1), _lanes(4, 2, 1)))
_TF32 = MatrixInstruction(
    "mma_m16n8k8_tf32",
    DType.FLOAT32,
    Operand((_lanes(8, 1, 4), _registers(2, 8, 1)), (_lanes(4, 1, 1), _registers(2, 4, 2))),
    Operand((_lanes(4, 1, 1), _registers(2, 4, 1)), (_lanes(8, 1, 4),)),
    _C,
)


def _half(name: str, dtype: DType) -> MatrixInstruction:
    """The instruction for 16-bit elements, two in a register of 32 bits."""
    return MatrixInstruction(
        name,
        dtype,
        Operand((_lanes(8, 1, 4), _registers(2, 8, 2)), (_registers(2, 1, 1), _lanes(4, 2, 1), _registers(2, 8, 4))),
        Operand((_registers(2, 1, 1), _lanes(4, 2, 1), _registers(2, 8, 2)), (_lanes(8, 1, 4),)),
        _C,
    )


_BF16, _F16 = _half("mma_m16n8k16_bf16", DType.BFLOAT16), _half("mma_m16n8k16_f16", DType.FLOAT16)
MATRIX_INSTRUCTIONS: Mapping[str, MatrixInstruction] = {i.name: i for i in (_TF32, _BF16, _F16)}
"""By name; a target lists in its model's ``matrix`` those that its devices have."""


def instruction_of(shape: tuple[int, int, int], dtype: DType) -> MatrixInstruction | None:
    """The instruction of this shape and operand dtype."""
    return next((i for i in MATRIX_INSTRUCTIONS.values() if i.shape == shape and i.dtype is dtype), None)


TF32_BITS = 10
"""Explicit mantissa bits of a float32 operand that a matrix instruction reads; the other 13 are ignored."""
MANTISSA_BITS = 23
"""Explicit mantissa bits of float32."""
LINES = 8
"""Lines of a matrix that a collective load fetches, and elements of 16 bits in each."""
LINE_BYTES = 16
MATRIX_LOADS = ("matrix_load", "matrix_load_transposed")
"""Instructions by which a sub-group loads fragments together: lines follow rows of the operand, or its columns."""
ROUND = "round"
"""Instruction of a load that rounds: to as many mantissa bits as its parameter says."""
