"""Closures of the nodes behind matrix instructions (see `tile_ir.semtree.closures` and `tile_ir.matrix`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import isfinite
from struct import pack, unpack
from typing import Any

import numpy as np
import numpy.typing as npt

from tile_ir.dtype import DType
from tile_ir.matrix import (
    CHUNK_BYTES,
    LANES,
    LINES,
    MANTISSA_BITS,
    MATRIX_INSTRUCTIONS,
    PANEL_BYTES,
    TF32_BITS,
    MatrixInstruction,
    Operand,
    elements,
    instruction_of,
)
from tile_ir.semtree import scalars
from tile_ir.semtree.closures_memory import Evaluate, Frame
from tile_ir.semtree.errors import SemtreeRuntimeError
from tile_ir.semtree.memory import Memory, Thread
from tile_ir.semtree.nodes import Expr, MatrixLoad, Mma, Round, SubgroupOp, TeamMma, Type

Array = npt.NDArray[Any]
Collective = SubgroupOp | MatrixLoad | Mma
"""An expression for whose value the lanes of a sub-group meet."""
_LOWER = np.uint32((1 << (MANTISSA_BITS + 1) // 2) - 1)
"""Bits of a float32 that are zero where its significand has half as many: those of two such factors fit into one."""
_TINY = np.finfo(np.float32).tiny


def collective(node: Expr, subgroup: int) -> Collective | None:
    """`node` when lanes meet for it; a product does so only in a function with sub-groups."""
    if isinstance(node, (SubgroupOp, MatrixLoad)) or (isinstance(node, Mma) and subgroup > 1):
        return node
    return None


def round_bits(node: Round) -> Callable[[Any], Any]:
    if node.type.lanes == 1:
        return lambda value: _rounded_one(value, node.bits) if isfinite(value) else value
    return lambda value: scalars.value_of(_rounded(np.asarray(value, np.float32), node.bits), node.type)


def _rounded(floats: Array, bits: int) -> Array:
    """Half of the last kept bit is added to the bits of each float, the others are cleared: ties go away from zero."""
    dropped = MANTISSA_BITS - bits
    half, kept = np.uint32(1 << (dropped - 1)), np.uint32(0xFFFFFFFF << dropped & 0xFFFFFFFF)
    return np.where(np.isfinite(floats), ((floats.view(np.uint32) + half) & kept).view(np.float32), floats)


def _rounded_one(value: Any, bits: int) -> Any:
    """`_rounded` of one float that is finite, without NumPy's arrays."""
    dropped = MANTISSA_BITS - bits
    (word,) = unpack("<I", pack("<f", value))
    return np.float32(unpack("<f", pack("<I", (word + (1 << (dropped - 1))) >> dropped << dropped))[0])


# --- loads -----------------------------------------------------------------------------------------


def load_matrices(node: MatrixLoad, threads: Sequence[Thread], args: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Each lane's part of the matrices whose rows' addresses the lanes give."""
    _whole_subgroup(node, threads, LANES)
    rows = LINES * node.type.lanes // 2
    for thread, (memory, start) in zip(threads[:rows], args, strict=False):
        if start % LINES:
            memory.fail("a matrix row that is not aligned to 16 bytes is read", start, thread)
    parts: list[Any] = []
    for lane, (thread, (memory, _)) in enumerate(zip(threads, args, strict=True)):
        cells = _cells(node.transpose, lane)
        places = [args[first + row][1] + column for first in range(0, rows, LINES) for row, column in cells]
        for end in (min(places), max(places)):
            memory.locate(end, 1, None, thread, "read")
        memory.on_read(places, thread)
        parts.append(memory.data[places])
    return parts


@cache
def _cells(transpose: bool, lane: int) -> list[tuple[int, int]]:
    """Row and column of the two elements of every matrix that a lane receives."""
    outer, inner = lane // 4, 2 * (lane % 4)
    cells = [(outer, inner), (outer, inner + 1)]
    return [(column, row) for row, column in cells] if transpose else cells


def _whole_subgroup(node: Expr, lanes: Sequence[Any], wanted: int) -> None:
    if len(lanes) != wanted:
        raise SemtreeRuntimeError(f"{type(node).__name__} meets {len(lanes)} lanes, it takes {wanted}")


# --- products --------------------------------------------------------------------------------------


def whole_product(node: Mma, args: tuple[Evaluate, ...]) -> Evaluate:
    """One work item holds whole matrices, row after row."""
    m, n, k = node.shape
    result = node.type
    dtype, cuts = result.dtype.numpy, (len(node.a), len(node.a) + len(node.b))

    def run(f: Frame) -> Any:
        parts = [arg(f) for arg in args]
        a, b = (_joined(p).astype(dtype) for p in (parts[: cuts[0]], parts[cuts[0] : cuts[1]]))
        total = _joined(parts[cuts[1] :]).astype(dtype).reshape(m, n)
        return scalars.value_of(_product(a.reshape(m, k), b.reshape(k, n), total, result), result)

    return run


def lanes_product(node: Mma, args: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Each lane's fragment of the product of the matrices that the lanes hold together."""
    instruction = instruction_of(node.shape, node.a[0].type.dtype)
    assert instruction is not None, "the verifier knows the instruction"
    _whole_subgroup(node, args, instruction.lanes)
    cuts = (len(node.a), len(node.a) + len(node.b))
    a = _gathered(instruction.a, [lane[: cuts[0]] for lane in args])
    b = _gathered(instruction.b, [lane[cuts[0] : cuts[1]] for lane in args])
    c = _gathered(instruction.c, [lane[cuts[1] :] for lane in args])
    total = _product(_operand(a, instruction), _operand(b, instruction), c, node.type)
    return _dealt(instruction.c, total)


def team_product(node: TeamMma, args: Sequence[Evaluate], slots: Sequence[int]) -> Callable[[Frame], None]:
    """A work item's own elements: its factors are in memory, so that it need not meet others."""
    instruction = MATRIX_INSTRUCTIONS[node.instruction]
    left, left_at, right, right_at, *sums = args
    (_, columns, depth), rows = instruction.shape, instruction.a.sizes[0]
    first = [
        _Panel(range(rows * i, rows * i + rows), depth, node.a_panels, node.a_chunk) for i in range(instruction.team)
    ]
    second = _Panel(range(columns), depth, node.b_panels)

    def run(f: Frame) -> None:
        thread: Thread = f[0]
        part, lane = divmod(thread.item, LANES)
        a = first[part % instruction.team].factor(left(f), left_at(f), thread, instruction, node.rounded)
        b = second.factor(right(f), right_at(f), thread, instruction)
        which, across = _team_places(instruction, lane)
        total = np.concatenate([value(f) for value in sums])
        total = _summed(a.values[:, which], b.values[:, across], total, Type(instruction.c.dtype), a.exact_with(b))
        for slot, piece in zip(slots, total.reshape(len(slots), -1), strict=True):
            f[slot] = piece

    return run


@cache
def _team_places(instruction: MatrixInstruction, lane: int) -> tuple[Array, Array]:
    """Rows and columns of what a lane of a team's sub-group holds, piece after piece."""
    wide, held = instruction.c.sizes[1], elements(instruction.c)
    cells = np.array([held[lane, register] for register in range(instruction.c.registers)])
    pieces = np.arange(instruction.shape[1] // wide)
    return np.tile(cells[:, 0], len(pieces)), (wide * pieces[:, None] + cells[:, 1]).ravel()


@dataclass(frozen=True, slots=True)
class _Factor:
    """[k, line] of float32 or of integers, and what decides whether products of floats are exact."""

    values: Array
    short: bool
    """Whether significands have half as many bits as float32's, or fewer."""
    least: Any
    """The smallest size that is not zero."""
    most: Any

    def exact_with(self, other: _Factor) -> bool:
        """Whether float32 holds each product, so that adding it rounds as multiplying and adding at once does.

        Short significands make such products, unless one is too large or too small.
        """
        fits = self.least * other.least > _TINY and np.isfinite(self.most * other.most)
        return bool(self.short and other.short and fits)


def _factor(values: Array) -> _Factor:
    if values.dtype != np.float32:  # integers wrap, however they are added
        return _Factor(values, short=False, least=0, most=0)
    sizes = np.abs(values)
    short = not np.any(values.view(np.uint32) & _LOWER)
    return _Factor(values, short, sizes.min(where=sizes > 0, initial=np.inf), sizes.max(initial=0))


@dataclass(frozen=True, slots=True, eq=False)
class _Panel:
    """Rows of a, or columns of b, that several items read out of swizzled rows of local memory."""

    lines: range
    depth: int
    panels: int
    chunk_bytes: int = CHUNK_BYTES

    def factor(
        self, memory: Memory, start: int, thread: Thread, instruction: MatrixInstruction, rounded: bool = False
    ) -> _Factor:
        """Read by the first of the items until the next barrier: nobody writes there meanwhile."""
        key = (id(self), id(memory), start)
        if key not in thread.common:
            values = self.read(memory, start, thread).T
            values = _rounded(values, TF32_BITS) if rounded else values
            thread.common[key] = _factor(_operand(values, instruction))
        return thread.common[key]

    def read(self, memory: Memory, start: int, reader: Thread) -> Array:
        """[line, k]"""
        flat = start + _panel_cells(self.lines, self.depth, self.panels, memory.data.itemsize)
        row, chunk = PANEL_BYTES // memory.data.itemsize, self.chunk_bytes // memory.data.itemsize
        flat = flat ^ ((flat // row % (row // chunk)) * chunk)
        low, high = int(flat.min()), int(flat.max())
        memory.locate(low, high - low + 1, None, reader, "read")
        memory.on_read(flat.ravel().tolist(), reader, several=True)
        return memory.data[flat]


@cache
def _panel_cells(lines: range, depth: int, panels: int, width: int) -> Array:
    """[line, k]: where elements of `width` bytes lie from a panel's start on, before they are swizzled."""
    row = PANEL_BYTES // width
    line, k = np.meshgrid(np.array(lines), np.arange(depth), indexing="ij")
    return line // row * panels + k * row + line % row if panels else line * row + k


def _product(a: Array, b: Array, total: Array, result: Type) -> Array:
    """Products are added to `total` in ascending k."""
    m, n = total.shape
    left, right = np.repeat(a.T, n, axis=1), np.tile(b, (1, m))
    exact = a.dtype == b.dtype == total.dtype == np.float32 and _factor(a).exact_with(_factor(b))
    return _summed(left, right, total.ravel(), result, exact).reshape(m, n)


def _summed(left: Array, right: Array, total: Array, result: Type, exact: bool) -> Array:
    """[k, element] of both factors: to each element, its products are added in ascending k."""
    if exact:
        return np.add.accumulate(np.concatenate([total[None], left * right]))[-1]
    multiply_add = scalars.fma(result.vector(len(total))) if result.dtype.is_float else None
    for x, y in zip(left, right, strict=True):
        total = multiply_add(x, y, total) if multiply_add else x * y + total
    return total


def _operand(matrix: Array, instruction: MatrixInstruction) -> Array:
    """What the hardware sees of an operand, in the dtype of its sums."""
    if instruction.a.dtype is not DType.FLOAT32:
        return matrix.astype(instruction.c.dtype.numpy)
    kept = np.uint32(0xFFFFFFFF << (MANTISSA_BITS - TF32_BITS) & 0xFFFFFFFF)
    # A NaN may have its payload in the bits that are ignored.
    return np.where(np.isnan(matrix), matrix, (matrix.view(np.uint32) & kept).view(np.float32))


def _gathered(operand: Operand, lanes: Sequence[Sequence[Any]]) -> Array:
    """The matrix whose elements the lanes hold in their registers."""
    registers = _joined([part for parts in lanes for part in parts]).reshape(len(lanes), -1)
    matrix = np.empty(operand.sizes, registers.dtype)
    matrix[_places(operand)] = registers
    return matrix


def _dealt(operand: Operand, matrix: Array) -> list[Any]:
    """The registers of every lane: the inverse of `_gathered`."""
    return list(matrix[_places(operand)])


@cache
def _places(operand: Operand) -> tuple[Array, Array]:
    """Rows and columns of what the lanes hold, one row of registers per lane."""
    places = elements(operand)
    lanes = len(places) // operand.registers
    grid = np.array([[places[lane, register] for register in range(operand.registers)] for lane in range(lanes)])
    return grid[..., 0], grid[..., 1]


def _joined(parts: Sequence[Any]) -> Array:
    """Scalars and vectors one after the other."""
    vectors = all(isinstance(part, np.ndarray) for part in parts)
    return np.concatenate(parts if vectors else [np.atleast_1d(part) for part in parts])
