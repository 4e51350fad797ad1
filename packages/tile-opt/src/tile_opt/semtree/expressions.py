"""Simplifying one expression: the rule table, literal folding, and rules on vector structure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from operator import is_
from typing import Any

import numpy as np
from tile_ir import numerics
from tile_ir.dtype import DType
from tile_ir.emit.walker import children, map_expr, same, with_children
from tile_ir.semtree.nodes import (
    Binary,
    Cast,
    Compare,
    Const,
    Expr,
    Extract,
    Insert,
    Select,
    Shuffle,
    Splat,
    Type,
    Unary,
    Var,
)  # fmt: skip

from tile_opt.semtree.rules import BY_OPERATION, LITERALS, Pattern, Rule

_MAX_STEPS = 16
"""Rule applications at one node; the table cannot loop, this is a belt."""
_SHALLOW = 40
"""Expressions deeper than this are rewritten by the iterative walker."""
_OPERATIONS = (Binary, Unary, Compare, Select)


def simplify_expr(expr: Expr, values: Mapping[str, Expr], depth: int = 0) -> Expr:
    """`expr` with variables replaced by `values` (literals or variables) and rules applied, operands first."""
    if isinstance(expr, Var):
        return values.get(expr.name, expr)
    if isinstance(expr, Const):
        return expr
    if depth >= _SHALLOW:
        return map_expr(expr, lambda e: values.get(e.name, e) if isinstance(e, Var) else local(e))
    old = children(expr)
    new = [simplify_expr(child, values, depth + 1) for child in old]
    if not all(map(is_, old, new)):
        expr = with_children(expr, new)
    return local(expr)


def local(expr: Expr) -> Expr:
    """Apply rules at the root of an expression whose operands are simple already."""
    for _ in range(_MAX_STEPS):
        rewrite = _BY_NODE.get(type(expr))
        new = None if rewrite is None else rewrite(expr)
        if new is None:
            return expr
        expr = new
    return expr


def operation_of(expr: Expr) -> tuple[str, tuple[Expr, ...]] | None:
    """Name and operands of a scalar operation; None for other nodes."""
    match expr:
        case Binary(op, left, right) | Compare(op, left, right):
            return op, (left, right)
        case Unary(op, value):
            return op, (value,)
        case Select(cond, then, other):
            return "cond", (cond, then, other)
        case _:
            return None


def _by_rules(expr: Expr) -> Expr | None:
    found = operation_of(expr)
    assert found is not None
    name, args = found
    kinds = tuple([((Const, a.value) if isinstance(a, Const) and a.value in LITERALS else type(a)) for a in args])
    if isinstance(args[0], Const) and all(isinstance(a, Const) for a in args):
        return fold(name, args, expr.type)
    for rule in _possible(name, args[-1].type.dtype, kinds):
        bound: dict[str, Expr] = {}
        if _match(rule.pattern, expr, bound):
            return _build(rule, rule.to, expr, bound)
    return None


Kind = type | tuple[type, int | float]
"""A class of nodes; of literals that rules name, their value, too."""


@cache
def _possible(name: str, dtype: DType, kinds: tuple[Kind, ...]) -> tuple[Rule, ...]:
    """The rules that an operation on operands of these kinds may match."""
    rules = (rule for rule in BY_OPERATION.get(name, ()) if dtype in rule.dtypes)
    return tuple(rule for rule in rules if all(map(_may_be, rule.pattern[1:], kinds)))


def _may_be(pattern: Pattern, kind: Kind) -> bool:
    """A node of that kind may match."""
    if isinstance(pattern, tuple):
        return kind in _OPERATIONS
    if isinstance(pattern, str):
        return not pattern.startswith("#") or kind is Const or isinstance(kind, tuple)
    return isinstance(kind, tuple) and kind[1] == pattern


def fold(name: str, args: tuple[Expr, ...], type: Type) -> Const | None:
    """An operation on literals, computed by the definition of the operation."""
    values = [np.asarray(a.value, a.type.dtype.numpy) for a in args if isinstance(a, Const)]
    if name == "mod":
        left, right = (int(v) for v in values)
        return Const(left % right, type) if right > 0 else None
    if not _has_numpy(type.dtype) or len(values) != len(args):
        return None
    return Const(_python(numerics.apply(name, values, type.dtype), type.dtype), type)


def _has_numpy(dtype: DType) -> bool:
    return dtype is not DType.BFLOAT16


def _python(value: Any, dtype: DType) -> int | float | bool:
    return bool(value) if dtype is DType.BOOL else float(value) if dtype.is_float else int(value)


def _match(pattern: Pattern, expr: Expr, bound: dict[str, Expr]) -> bool:
    if isinstance(pattern, tuple):
        found = operation_of(expr)
        if found is None or found[0] != pattern[0]:
            return False
        return all(_match(p, a, bound) for p, a in zip(pattern[1:], found[1], strict=True))
    if isinstance(pattern, str):
        if pattern.startswith("#") and not isinstance(expr, Const):
            return False
        if pattern in bound:
            return same(bound[pattern], expr)
        bound[pattern] = expr
        return True
    return isinstance(expr, Const) and _is_literal(expr, pattern)


def _is_literal(expr: Const, value: int | bool) -> bool:
    """Equal in value and, for zero, in sign."""
    return expr.value == value and not (value == 0 and math.copysign(1.0, expr.value) < 0)


def _build(rule: Rule, to: Pattern, matched: Expr, bound: Mapping[str, Expr]) -> Expr | None:
    if isinstance(to, str):
        return bound[to]
    if not isinstance(to, tuple):
        dtype = matched.type.dtype
        return Const(_python(to, dtype), matched.type)
    args = [_build(rule, a, matched, bound) for a in to[1:]]
    operands = tuple(a for a in args if a is not None)
    if len(operands) != len(args):
        return None
    name, type = str(to[0]), operands[-1].type
    if all(isinstance(a, Const) for a in operands):
        return fold(name, operands, type)
    return Unary(name, operands[0], type) if len(operands) == 1 else Binary(name, operands[0], operands[1], type)


def _cast(expr: Expr) -> Expr | None:
    assert isinstance(expr, Cast)
    value = expr.value
    if value.type == expr.type:
        return value
    if isinstance(value, Const) and _has_numpy(expr.type.dtype) and _has_numpy(value.type.dtype):
        array = np.asarray(value.value, value.type.dtype.numpy)
        return Const(_python(numerics.cast_array(array, expr.type.dtype), expr.type.dtype), expr.type)
    return None


def _splat(expr: Expr) -> Expr | None:
    assert isinstance(expr, Splat)
    return Const(expr.value.value, expr.type) if isinstance(expr.value, Const) else None


def _extract(expr: Expr) -> Expr | None:
    assert isinstance(expr, Extract)
    match expr.vector:
        case Const(value):
            return Const(value, expr.type)
        case Splat(value):
            return value
        case Insert(vector, lane, value):
            return value if lane == expr.lane else Extract(vector, expr.lane, expr.type)
        case _:
            return None


def _shuffle(expr: Expr) -> Expr | None:
    assert isinstance(expr, Shuffle)
    identity = expr.lanes == tuple(range(expr.left.type.lanes))
    if identity:
        return expr.left
    match expr.left, expr.right:
        case Splat(a), Splat(b) if same(a, b):
            return Splat(a, expr.type)
        case _:
            return None


# Math functions of literals are not folded: their bits are the device's own.
_BY_NODE: Mapping[type, Callable[[Expr], Expr | None]] = {
    **dict.fromkeys(_OPERATIONS, _by_rules),
    Cast: _cast,
    Splat: _splat,
    Extract: _extract,
    Shuffle: _shuffle,
}
