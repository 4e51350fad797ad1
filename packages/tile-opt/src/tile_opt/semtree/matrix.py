"""Matrix instructions and their rounding for targets that lack them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from math import prod

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
    Binary,
    Block,
    Cast,
    Compare,
    Const,
    Expr,
    Extract,
    Fma,
    For,
    Function,
    IdKind,
    Insert,
    Let,
    Limit,
    Load,
    MatrixLoad,
    Mma,
    Round,
    Select,
    Space,
    Splat,
    Statement,
    Store,
    SubgroupOp,
    Type,
    Unary,
    Var,
    While,
    WorkId,
)  # fmt: skip

_INT, _F32 = Type(DType.INT32), Type(DType.FLOAT32)

# --- rounding --------------------------------------------------------------------------------------

_SMALLEST_NORMAL = 2.0**-126
_HUGE = 2.0**64


def rounded(node: Round, *, even: bool = False) -> Expr:
    """`node` by float32 arithmetic that keeps subnormals: the same bits for every operand; with `even` ties go there.

    The largest power of two in the operand tells what its last kept bit is worth. Adding and subtracting a number
    whose own last bit is worth that much rounds, but to even in a tie; what is then left over tells a tie.
    """
    t = node.type
    size = Unary("abs", node.value, t)
    huge = _compare("cmp_ge", size, Const(_HUGE, t))
    # Large numbers are rounded scaled down, so that nothing here overflows before the result does.
    value = _mul(size, Select(huge, Const(1 / _HUGE, t), Const(1.0, t), t))
    large = _mul(value, Const(2.0**MANTISSA_BITS + 1, t))
    power = Unary("abs", _sub(large, _mul(large, Const(1 - 2.0**-24, t))), t)
    power = Binary("max", power, Const(_SMALLEST_NORMAL, t), t)  # subnormals share the last bit of the smallest normal
    coarse = _mul(power, Const(2.0 ** (MANTISSA_BITS - node.bits), t))
    nearest = _sub(_add(value, coarse), coarse)
    half = _mul(coarse, Const(2.0**-24, t))
    tie = _compare("cmp_eq", _sub(value, nearest), half)
    away = nearest if even else Select(tie, _add(value, half), nearest, t)
    result = _mul(away, Select(huge, Const(_HUGE, t), Const(1.0, t), t))
    signed = Select(_compare("cmp_lt", node.value, Const(0.0, t)), Unary("neg", result, t), result, t)
    ordinary = _compare("cmp_gt", size, Const(0.0, t)), _compare("cmp_lt", size, Limit("max", t))
    return Select(Binary("bit_and", *ordinary, ordinary[0].type), signed, node.value, t)


def _compare(op: str, left: Expr, right: Expr) -> Expr:
    return Compare(op, left, right, Type(DType.BOOL, left.type.lanes))


def _add(left: Expr, right: Expr) -> Expr:
    return Binary("add", left, right, left.type)


def _sub(left: Expr, right: Expr) -> Expr:
    return Binary("sub", left, right, left.type)


def _mul(left: Expr, right: Expr) -> Expr:
    return Binary("mul", left, right, left.type)


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
        number: Expr = WorkId(IdKind.LOCAL, 2)
        for axis in (1, 0):
            number = _add(_mul(number, _int(self.function.group_size[axis])), WorkId(IdKind.LOCAL, axis))
        lane, part = (Binary(op, number, _int(LANES), _INT) for op in ("mod", "div"))
        return [Let(self.lane.name, lane), Let(self.part.name, part), *self.places]

    def area(self, instruction: MatrixInstruction) -> _Area:
        area = self.areas.get(instruction.name)
        if area is None:
            area = self.areas[instruction.name] = self._new_area(instruction)
        return area

    def _new_area(self, instruction: MatrixInstruction) -> _Area:
        (m, n, k), a, b, c = instruction.shape, instruction.a, instruction.b, instruction.c
        left_at = _add(self._lanes(a.rows, k), self._lanes(a.columns, 1))
        right_at = _add(self._lanes(b.rows, n), self._lanes(b.columns, 1))
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

    def _place(self, hint: str, elements: int, within: Expr) -> Var:
        return self._bound(hint, _add(_mul(self.part, _int(elements)), within), self.places)

    def _lanes(self, digits: Sequence[Digit], stride: int) -> Expr:
        """What the lane contributes to a coordinate, times `stride`."""
        parts: list[Expr] = []
        for digit in digits:
            if digit.lane:
                value = Binary("div", self.lane, _int(digit.weight), _INT)
                value = Binary("mod", value, _int(digit.size), _INT)
                parts.append(_mul(value, _int(digit.step * stride)))
        return reduce(_add, parts) if parts else _int(0)

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
            row = _add(_add(area.row, _int(at_row)), step)
            column = _add(_add(area.column, _int(at_column)), _mul(step, _int(n)))
            factors: list[Var] = []
            for array, offset, index in ((area.left, at_row, row), (area.right, at_column, column)):
                key = (array.name, offset)
                if key not in loaded:
                    loaded[key] = self._bound("factor", _float_load(array, index), body)
                factors.append(loaded[key])
            body.append(Assign(total.name, Fma(factors[0], factors[1], total, _F32)))
        return For(step.name, _int(0), _int(k), 1, Block(tuple(body)))


def _int(value: int) -> Const:
    return Const(value, _INT)


def _float_load(array: Var, index: Expr) -> Expr:
    value = Load(array, index, Type(array.type.dtype))
    return value if value.type == _F32 else Cast(value, _F32)


def _stores(array: Var, at: Expr, operand: Operand, stride: int, values: Sequence[Expr]) -> list[Statement]:
    """Each register to the place of its element, rows being `stride` apart."""
    stores: list[Statement] = []
    for register, value in enumerate(values):
        offset = of_register(operand.rows, register) * stride + of_register(operand.columns, register)
        stores.append(Store(array, _add(at, _int(offset)), value))
    return stores


def of_register(digits: Sequence[Digit], register: int) -> int:
    """What the register contributes to a coordinate."""
    return sum(register // d.weight % d.size * d.step for d in digits if not d.lane)
