"""Matrix instructions and their rounding for targets that lack them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from math import prod
from operator import add

from tile_ir.dtype import DType
from tile_ir.emit.names import NameAllocator
from tile_ir.emit.walker import (
    assigned,
    children,
    map_block,
    map_expr,
    walk_all,
    walk_expr,
    walk_functions,
    walk_statements,
    with_children,
)
from tile_ir.frozen import frozen
from tile_ir.matrix import LANES, MANTISSA_BITS, Digit, MatrixInstruction, Operand, instruction_of
from tile_ir.semtree.nodes import (
    Alloc,
    Assign,
    Barrier,
    Block,
    Cast,
    Const,
    Expr,
    Extract,
    Fma,
    For,
    Function,
    IdKind,
    Insert,
    Let,
    Load,
    MatrixLoad,
    Mma,
    Round,
    Space,
    Splat,
    Statement,
    Store,
    SubgroupOp,
    Type,
    Var,
    While,
    WorkId,
)  # fmt: skip

from tile_opt.semtree.terms import Term

_INT = Type(DType.INT32)

# --- rounding --------------------------------------------------------------------------------------

_SMALLEST_NORMAL = 2.0**-126
_HUGE = 2.0**64


def rounded(node: Round, *, even: bool = False) -> Expr:
    """`node` by float32 arithmetic that keeps subnormals: the same bits for every operand; with `even` ties go there.

    The largest power of two in the operand tells what its last kept bit is worth. Adding and subtracting a number
    whose own last bit is worth that much rounds, but to even in a tie; what is then left over tells a tie.
    """
    given = Term(node.value)
    size = abs(given)
    huge = size >= _HUGE
    # Large numbers are rounded scaled down, so that nothing here overflows before the result does.
    value = size * huge.choose(size.number(1 / _HUGE), size.number(1.0))
    large = value * (2.0**MANTISSA_BITS + 1)
    power = abs(large - large * (1 - 2.0**-24))
    power = power.with_("max", _SMALLEST_NORMAL)  # subnormals share the last bit of the smallest normal
    coarse = power * 2.0 ** (MANTISSA_BITS - node.bits)
    nearest = (value + coarse) - coarse
    half = coarse * 2.0**-24
    away = nearest if even else (value - nearest).is_(half).choose(value + half, nearest)
    result = away * huge.choose(size.number(_HUGE), size.number(1.0))
    signed = (given < 0.0).choose(-result, result)
    return ((size > 0.0) & (size < size.largest())).choose(signed, given).expr


# --- products --------------------------------------------------------------------------------------


def through_local_memory(function: Function) -> Function:
    """Products across lanes as loops of every work item; the lanes exchange their operands through local memory.

    The loops have barriers of the group, so all work items must reach every product together, as they do in what
    our schedules make. float32 operands count in full: the result has the bits of the interpreter's `Mma` only when
    they are rounded to `TF32_BITS` already (`Round`), as all that our schedules multiply are. Products in the
    condition of a While, and in groups that are no whole sub-groups, stay.
    """
    if function.subgroup != LANES or prod(function.group_size) % LANES:
        return function
    exchange = _Exchange(function)
    body = map_block(function.body, None, exchange.statement)
    result = replace(function, body=Block((*exchange.head(), *body.body)))
    return result if _has_collectives(result) else replace(result, subgroup=0)


def _has_collectives(function: Function) -> bool:
    for each in walk_functions(function):
        if any(isinstance(e, (SubgroupOp, MatrixLoad, Mma)) for e in walk_all(each)):
            return True
        if any(isinstance(s, Barrier) and s.scope == "subgroup" for s in walk_statements(each.body)):
            return True
    return False


@frozen
class _Area:
    """Local memory for the operands of one instruction, and a work item's places in it."""

    left: Var
    right: Var
    left_at: Var
    """Place of the work item's register 0 of a, and of b."""
    right_at: Var
    row: Var
    """Start of the row of a, and the column of b, that make its register 0 of c."""
    column: Var


class _Exchange:
    def __init__(self, function: Function) -> None:
        self.function = function
        self.names = NameAllocator([*(p.name for p in function.params), *assigned(function.body)])
        self.areas: dict[str, _Area] = {}
        self.places: list[Statement] = []
        self.lane = Var(self.names.fresh("lane"), _INT)
        self.part = Var(self.names.fresh("subgroup"), _INT)

    def head(self) -> list[Statement]:
        """What the whole function needs: where the work item stands, the scratch memory and its places there."""
        if not self.areas:
            return []
        number = linear(self.function.group_size)
        lane, part = number % LANES, number // LANES
        return [Let(self.lane.name, lane.expr), Let(self.part.name, part.expr), *self.places]

    def area(self, instruction: MatrixInstruction) -> _Area:
        area = self.areas.get(instruction.name)
        if area is None:
            area = self.areas[instruction.name] = self._new_area(instruction)
        return area

    def _new_area(self, instruction: MatrixInstruction) -> _Area:
        (m, n, k), a, b, c = instruction.shape, instruction.a, instruction.b, instruction.c
        left_at = self._lanes(a.rows, k) + self._lanes(a.columns, 1)
        right_at = self._lanes(b.rows, n) + self._lanes(b.columns, 1)
        return _Area(
            self._scratch("left", instruction.a.dtype, m * k),
            self._scratch("right", instruction.a.dtype, k * n),
            self._place("left_at", m * k, left_at),
            self._place("right_at", k * n, right_at),
            self._place("row", m * k, self._lanes(c.rows, k)),
            self._place("column", k * n, self._lanes(c.columns, 1)),
        )

    def _scratch(self, hint: str, dtype: DType, elements: int) -> Var:
        """Memory for one matrix of every sub-group."""
        parts = prod(self.function.group_size) // LANES
        array = Var(self.names.fresh(hint), Type(dtype, count=parts * elements, space=Space.LOCAL))
        self.places.append(Alloc(array.name, array.type))
        return array

    def _place(self, hint: str, elements: int, within: Term) -> Var:
        return self._bound(hint, (Term(self.part) * elements + within).expr, self.places)

    def _lanes(self, digits: Sequence[Digit], stride: int) -> Term:
        """What the lane contributes to a coordinate, times `stride`."""
        lane = Term(self.lane)
        parts = [lane // d.weight % d.size * (d.step * stride) for d in digits if d.lane]
        return reduce(add, parts) if parts else lane.number(0)

    def _bound(self, hint: str, value: Expr, into: list[Statement], mutable: bool = False) -> Var:
        name = self.names.fresh(hint)
        into.append(Let(name, value, mutable))
        return Var(name, value.type)

    # --- one statement

    def statement(self, statement: Statement) -> Sequence[Statement]:
        """The statement behind the products in it; a condition of While is computed too often for that."""
        roots = children(statement)
        if isinstance(statement, While) or not any(isinstance(e, Mma) for e in walk_expr(*roots)):
            return (statement,)
        ahead: list[Statement] = []
        new = [map_expr(root, lambda e: self.product(e, ahead) if isinstance(e, Mma) else e) for root in roots]
        return [*ahead, with_children(statement, new)]

    def product(self, node: Mma, into: list[Statement]) -> Expr:
        instruction = instruction_of(node.shape, node.a[0].type.dtype)
        assert instruction is not None, "the verifier knows the instruction"
        area = self.area(instruction)
        a, b, c = (self._elements(parts, into) for parts in (node.a, node.b, node.c))
        _, n, k = node.shape
        into.extend(_stores(area.left, area.left_at, instruction.a, k, a))
        into.extend(_stores(area.right, area.right_at, instruction.b, n, b))
        into.append(Barrier())
        sums = [self._bound("sum", value, into, mutable=True) for value in c]
        into += [self._sum(instruction, area, sums), Barrier()]
        result: Expr = Splat(sums[0], node.type)
        for lane, value in enumerate(sums[1:], 1):
            result = Insert(result, lane, value, node.type)
        return self._bound("product", result, into)

    def _elements(self, parts: Sequence[Expr], into: list[Statement]) -> list[Expr]:
        """The registers of a fragment, one by one, computed before anything is written."""
        found: list[Expr] = []
        for part in parts:
            value = part if isinstance(part, (Var, Const)) else self._bound("fragment", part, into)
            scalar = value.type.scalar
            found += [value] if value.type.lanes == 1 else [Extract(value, n, scalar) for n in range(value.type.lanes)]
        return found

    def _sum(self, instruction: MatrixInstruction, area: _Area, sums: Sequence[Var]) -> Statement:
        """The work item's elements of the result, products in ascending k."""
        _, n, k = instruction.shape
        step = Var(self.names.fresh("k"), _INT)
        body: list[Statement] = []
        loaded: dict[tuple[str, int], Var] = {}
        for register, total in enumerate(sums):
            at_row = of_register(instruction.c.rows, register) * k
            at_column = of_register(instruction.c.columns, register)
            row = Term(area.row) + at_row + Term(step)
            column = Term(area.column) + at_column + Term(step) * n
            factors: list[Var] = []
            for array, offset, index in ((area.left, at_row, row), (area.right, at_column, column)):
                key = (array.name, offset)
                if key not in loaded:
                    loaded[key] = self._bound("factor", wide_load(total.type, array, index.expr), body)
                factors.append(loaded[key])
            body.append(Assign(total.name, Fma(factors[0], factors[1], total, total.type)))
        return For(step.name, Const(0, _INT), Const(k, _INT), 1, Block(tuple(body)))


def linear(group_size: tuple[int, int, int]) -> Term:
    """The number of the work item in its group."""
    number = Term(WorkId(IdKind.LOCAL, 2))
    for axis in (1, 0):
        number = number * group_size[axis] + Term(WorkId(IdKind.LOCAL, axis))
    return number


def wide_load(wide: Type, array: Expr, index: Expr) -> Expr:
    """An element of an array, as `wide`."""
    value = Load(array, index, Type(array.type.dtype))
    return value if value.type == wide else Cast(value, wide)


def _stores(array: Var, at: Expr, operand: Operand, stride: int, values: Sequence[Expr]) -> list[Statement]:
    """Each register to the place of its element, rows being `stride` apart."""
    stores: list[Statement] = []
    for register, value in enumerate(values):
        offset = of_register(operand.rows, register) * stride + of_register(operand.columns, register)
        stores.append(Store(array, (Term(at) + offset).expr, value))
    return stores


def of_register(digits: Sequence[Digit], register: int) -> int:
    """What the register contributes to a coordinate."""
    return sum(register // d.weight % d.size * d.step for d in digits if not d.lane)
