"""Products of teams of sub-groups for targets that lack them: each work item adds up its own elements."""

from __future__ import annotations

from collections.abc import Sequence

from tile_ir.dtype import DType
from tile_ir.matrix import CHUNK_BYTES, LANES, MATRIX_INSTRUCTIONS, PANEL_BYTES, TF32_BITS, Digit
from tile_ir.semtree.nodes import (
    Assign,
    Binary,
    Block,
    Cast,
    Const,
    Expr,
    Extract,
    Fma,
    For,
    IdKind,
    Insert,
    Load,
    Round,
    Statement,
    TeamMma,
    Type,
    Var,
    WorkId,
)  # fmt: skip

from tile_opt.semtree.matrix import of_register

INT, _F32 = Type(DType.INT32), Type(DType.FLOAT32)


def own_sums(node: TeamMma, group_size: tuple[int, int, int], name: str) -> Statement:
    """A loop over k, the variable `name`: products in ascending k, with one rounding each."""
    step = Var(name, INT)
    instruction = MATRIX_INSTRUCTIONS[node.instruction]
    piece, (_, wide) = instruction.c, instruction.c.sizes
    item = linear(group_size)
    lane = binary("mod", item, LANES)
    above = binary("mul", binary("mod", binary("div", item, LANES), instruction.team), instruction.sides["m"])
    row, column = plus(above, _of_lane(piece.rows, lane)), _of_lane(piece.columns, lane)
    body: list[Statement] = []
    for number, total in enumerate(node.c):
        assert isinstance(total, Var)
        value: Expr = total
        for register in range(piece.registers):
            at_row = plus(row, const(of_register(piece.rows, register)))
            at_column = plus(column, const(number * wide + of_register(piece.columns, register)))
            a = _element(node.a, node.a_index, at_row, step, node.a_panels, node.a_chunk)
            a = Round(a, TF32_BITS, _F32) if node.rounded else a
            b = _element(node.b, node.b_index, at_column, step, node.b_panels)
            value = Insert(value, register, Fma(a, b, Extract(total, register, _F32), _F32), total.type)
        body.append(Assign(total.name, value))
    return For(step.name, const(0), const(instruction.sides["k"]), 1, Block(tuple(body)))


def _element(array: Expr, start: Expr, line: Expr, k: Expr, panels: int, chunk_bytes: int = CHUNK_BYTES) -> Expr:
    """Element (line, k) of a factor, as float32, from where it lies in its swizzled rows."""
    width = array.type.dtype.bytes
    row, chunk = PANEL_BYTES // width, chunk_bytes // width
    if panels:
        panel = binary("mul", binary("div", line, row), panels)
        at = plus(plus(panel, binary("mul", k, row)), binary("mod", line, row))
    else:
        at = plus(binary("mul", line, row), k)
    at = plus(Cast(start, INT) if start.type != INT else start, at)
    turn = binary("mul", binary("mod", binary("div", at, row), row // chunk), chunk)
    value = Load(array, Binary("bit_xor", at, turn, INT), Type(array.type.dtype))
    return value if value.type == _F32 else Cast(value, _F32)


def linear(group_size: tuple[int, int, int]) -> Expr:
    """The number of the work item in its group."""
    number: Expr = WorkId(IdKind.LOCAL, 2)
    for axis in (1, 0):
        number = plus(binary("mul", number, group_size[axis]), WorkId(IdKind.LOCAL, axis))
    return number


def _of_lane(digits: Sequence[Digit], lane: Expr) -> Expr:
    """What the lane contributes to a coordinate."""
    total: Expr = const(0)
    for digit in (d for d in digits if d.lane):
        part = binary("mod", binary("div", lane, digit.weight), digit.size)
        total = plus(total, binary("mul", part, digit.step))
    return total


def const(value: int) -> Const:
    return Const(value, INT)


def plus(left: Expr, right: Expr) -> Expr:
    return Binary("add", left, right, INT)


def binary(op: str, left: Expr, right: int) -> Expr:
    return Binary(op, left, const(right), INT)
