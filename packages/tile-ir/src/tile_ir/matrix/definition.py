"""Matrix instructions as data: what they compute, and where the lanes of a sub-group hold the elements of each operand.

A sub-group combines ``c[m, n] += a[m, k] * b[k, n]`` at once, with the aggregation and the operation that the instruction
names; every lane holds a few elements of each operand in registers. A coordinate is written in mixed radix, and each of
its digits counts lanes or registers. The tables beside this file list the instructions of each family of machines. How
many of them a core starts per cycle is a number of each machine (`Machine.instructions`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import product
from math import prod

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.ops import Aggregation

ROLES = ("m", "n", "k")
"""The loops of a matrix instruction: rows and columns of c, and the depth of the products."""


@frozen
class Digit:
    """Part of a coordinate: ``coordinate // step % size`` counts ``weight`` lanes, or registers."""

    size: int
    step: int
    weight: int
    lane: bool


Places = tuple[tuple[Digit, ...], tuple[Digit, ...]]
"""The digits of a row and of a column."""


@frozen
class Operand:
    """How a matrix of `sizes` lies in the lanes: the digits of its row and of its column, and its elements' type."""

    dtype: DType
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
    return replace(operand, columns=(*operand.columns, digit))


def lanes(size: int, step: int, weight: int) -> Digit:
    """A digit that counts lanes."""
    return Digit(size, step, weight, lane=True)


def registers(size: int, step: int, weight: int) -> Digit:
    """A digit that counts registers."""
    return Digit(size, step, weight, lane=False)


@dataclass(frozen=True)
class MatrixInstruction:
    """``c += a @ b`` of one sub-group; the factors are converted to the dtype of c, which holds all of their values."""

    name: str
    a: Operand
    b: Operand
    c: Operand
    product: str = "mul"
    """The operation in place of the product."""
    agg: Aggregation = Aggregation.SUM
    """The aggregation in place of the sum."""
    team: int = 1
    """Neighbouring sub-groups that execute it together, each on rows of its own that follow those of the one before.

    Several read their factors from local memory, row by row of `PANEL_BYTES` (`Operand` then says nothing but sizes and
    elements), and `c` is one of the pieces, side by side, of which each holds its rows of the result.
    """

    @property
    def is_exact(self) -> bool:
        """It rounds nothing that multiply-adds of the program's own would not: integers, which wrap, and float64."""
        return self.c.dtype in (DType.INT32, DType.FLOAT64)

    @property
    def along_depth(self) -> bool:
        """A team reads rows of its factors along the depth alone; those of 16 bits may run along their other sides, too."""
        return self.team > 1 and self.a.dtype.bytes != HALF_BYTES

    @cached_property
    def shape(self) -> tuple[int, int, int]:
        """(m, n, k)."""
        (m, k), (_, n) = self.a.sizes, self.b.sizes
        return m, n, k

    @cached_property
    def sides(self) -> Mapping[str, int]:
        """Length of each role: m, n and k."""
        return dict(zip(ROLES, self.shape, strict=True))

    @property
    def lanes(self) -> int:
        """Lanes of the sub-group that executes it."""
        return prod(d.size for d in (*self.c.rows, *self.c.columns) if d.lane)


HALF_BYTES = 2
"""Of a float that teams of sub-groups take in rows along either of its loops."""
PANEL_BYTES = 128
"""Bytes of a row of a factor that a team of sub-groups reads from local memory: wider factors are cut into panels."""
CHUNK_BYTES = 16
"""Bytes that stay together when rows are swizzled: chunk c of row r lies where chunk ``c ^ (r & 7)`` would."""
OWN_BYTES = 32
"""The same for panels of which items read their own elements: chunk c of row r lies where ``c ^ (r & 3)`` would.

Lanes read eight neighbours of four rows at once, which are in different banks so.
"""
MANTISSA_BITS = 23
"""Explicit mantissa bits of float32."""
TENSOR_COPY = "tensor_copy"
"""Instruction of a transfer that brings a box of a tensor, which rounds it, and is given the tensor's sizes."""
ROUND = "round"
"""Instruction of a load that rounds: to as many mantissa bits as its parameter says."""
