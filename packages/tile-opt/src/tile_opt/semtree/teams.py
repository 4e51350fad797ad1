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
    Insert,
    Round,
    Statement,
    TeamMma,
    Type,
    Var,
)  # fmt: skip

from tile_opt.semtree.matrix import linear, of_register, wide_load
from tile_opt.semtree.terms import Term

INT = Type(DType.INT32)


def own_sums(node: TeamMma, group_size: tuple[int, int, int], name: str) -> Statement:
    """A loop over k, the variable `name`: products in ascending k, with one rounding each."""
    step = Var(name, INT)
    instruction = MATRIX_INSTRUCTIONS[node.instruction]
    piece, (_, wide) = instruction.c, instruction.c.sizes
    piece_type = Type(piece.dtype)
    item = linear(group_size)
    lane = item % LANES
    above = item // LANES % instruction.team * instruction.sides["m"]
    row, column = above + _of_lane(piece.rows, lane), _of_lane(piece.columns, lane)
    body: list[Statement] = []
    for number, total in enumerate(node.c):
        assert isinstance(total, Var)
        value: Expr = total
        for register in range(piece.registers):
            at_row = row + of_register(piece.rows, register)
            at_column = column + (number * wide + of_register(piece.columns, register))
            a = _element(piece_type, node.a, node.a_index, at_row, Term(step), node.a_panels, node.a_chunk)
            a = Round(a, TF32_BITS, Type(DType.FLOAT32)) if node.rounded else a
            b = _element(piece_type, node.b, node.b_index, at_column, Term(step), node.b_panels)
            value = Insert(value, register, _sum(a, b, Extract(total, register, piece_type)), total.type)
        body.append(Assign(total.name, value))
    return For(step.name, Const(0, INT), Const(instruction.sides["k"], INT), 1, Block(tuple(body)))


def _sum(a: Expr, b: Expr, total: Expr) -> Expr:
    """With one rounding, or of integers, which wrap."""
    if total.type.dtype.is_float:
        return Fma(a, b, total, total.type)
    return Binary("add", Binary("mul", a, b, total.type), total, total.type)


def _element(
    wide: Type, array: Expr, start: Expr, line: Term, k: Term, panels: int, chunk_bytes: int = CHUNK_BYTES
) -> Expr:
    """Element (line, k) of a factor, as `wide`, from where it lies in its swizzled rows."""
    width = array.type.dtype.bytes
    row, chunk = PANEL_BYTES // width, chunk_bytes // width
    at = line // row * panels + k * row + line % row if panels else line * row + k
    at = integer(start) + at
    turn = at // row % (row // chunk) * chunk
    return wide_load(wide, array, at.with_("bit_xor", turn).expr)


def _of_lane(digits: Sequence[Digit], lane: Term) -> Term:
    """What the lane contributes to a coordinate."""
    return sum((lane // d.weight % d.size * d.step for d in digits if d.lane), lane.number(0))


def integer(value: Expr) -> Term:
    """A place as an index."""
    return Term(value if value.type == INT else Cast(value, INT))
