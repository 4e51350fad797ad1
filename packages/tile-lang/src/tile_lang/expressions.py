"""Binding of elementwise expressions: operators, comparisons, conditionals, calls."""

from __future__ import annotations

from collections.abc import Sequence
from math import isinf

from tile_ir.diagnostics import Span
from tile_ir.dtype import DType

from tile_lang import ast
from tile_lang.dims import as_integer, fold
from tile_lang.program import TensorType
from tile_lang.scope import Scope, origin, unified
from tile_lang.types import exact_comparison, literal, swapped, unify
from tile_lang.values import Const, Tensor, Value, describe, fail

BINARY = {
    "+": "add",
    "-": "sub",
    "*": "mul",
    "/": "div",
    "==": "cmp_eq",
    "!=": "cmp_ne",
    "<": "cmp_lt",
    ">": "cmp_gt",
    "<=": "cmp_le",
    ">=": "cmp_ge",
    "&": "bit_and",
    "|": "bit_or",
    "^": "bit_xor",
    "<<": "bit_left",
    ">>": "bit_right",
}
UNARY = {"-": "neg", "~": "bit_not"}


class _Choose:
    """A step of the evaluation stack: pick or select once the condition is known."""

    __slots__ = ("node",)

    def __init__(self, node: ast.Conditional) -> None:
        self.node = node


class _Finish:
    """A step of the evaluation stack: apply a node to the values of its operands."""

    __slots__ = ("node",)

    def __init__(self, node: ast.Expr) -> None:
        self.node = node


def bind_expression(scope: Scope, root: ast.Expr) -> Value:
    """The value of an expression; operations are emitted on the way. Uses a stack: no depth is too deep.

    The branch that a constant condition does not take is not looked at.
    """
    todo: list[ast.Expr | _Choose | _Finish] = [root]
    values: list[Value] = []
    while todo:
        step = todo.pop()
        match step:
            case _Choose(node=node):
                if isinstance(values[-1], Const):
                    taken = values.pop()
                    todo.append(node.then if isinstance(taken, Const) and taken.value else node.otherwise)
                else:
                    todo += [_Finish(node), node.otherwise, node.then]
            case _Finish(node=node):
                count = len(ast.children(node))
                args = values[-count:]
                del values[-count:]
                values.append(_apply(scope, node, args))
            case ast.Conditional():
                todo += [_Choose(step), step.test]
            case ast.Unary() | ast.Binary() | ast.Call():
                todo.append(_Finish(step))
                todo.extend(reversed(ast.children(step)))
            case _:
                values.append(_leaf(scope, step))
    return values[0]


def _leaf(scope: Scope, node: ast.Expr) -> Value:
    if isinstance(node, ast.IndexName):
        hint = "indexes exist only inside the brackets of a contraction; index(X, axis) gives coordinates"
        fail("TILE-E123", f"the index variable {node.id} is used as a tensor", node.span, hint)
    if isinstance(node, ast.FloatLiteral) and isinf(node.value):
        fail("TILE-E125", f"the number {node.text[:24]} is beyond float64", node.span)
    if isinstance(node, ast.IntLiteral | ast.FloatLiteral):
        return Const(node.value)
    assert isinstance(node, ast.Name)
    return scope.lookup(node.id, node.span)


def _apply(scope: Scope, node: ast.Expr, args: list[Value]) -> Value:
    spans = [child.span for child in ast.children(node)]
    if isinstance(node, ast.Call):
        from tile_lang.builtins import call

        return call(scope, node, args, spans)
    operands = [scope.scalar(a, s) for a, s in zip(args, spans, strict=True)]
    match node:
        case ast.Unary(op, _, span):
            return operate(scope, UNARY[op], operands, span, spans)
        case ast.Binary(op, _, _, span):
            return operate(scope, BINARY[op], operands, span, spans)
        case _:
            return select(scope, operands, node.span, spans)


def operate(
    scope: Scope, fn: str, args: Sequence[Tensor | Const], span: Span, spans: Sequence[Span] = ()
) -> Tensor | Const:
    """An operator applied to its operands: folded, or emitted with the casts that its rule asks for."""
    consts = [a.value for a in args if isinstance(a, Const)]
    if len(consts) == len(args):
        return Const(fold(fn, consts, scope.limits, span))
    if fn.startswith("cmp_"):
        return compare(scope, fn, args[0], args[1], span)
    if fn.startswith("bit_"):
        for arg, where in zip(args, spans or [span] * len(args), strict=True):
            _need_bits(fn, arg, where)
    if fn in ("bit_left", "bit_right"):
        return _shift(scope, fn, args[0], args[1], span)
    return unified(scope, fn, args, span, spans)


def _need_bits(fn: str, arg: Tensor | Const, span: Span) -> None:
    found = arg.type.dtype if isinstance(arg, Tensor) else arg.value
    if isinstance(found, float) or (isinstance(found, DType) and found.is_float):
        name = found if isinstance(found, DType) else f"the float {found}"
        hint = "convert it first, for example with as_int(x, 32)"
        fail("TILE-E128", f"{fn} works on integers and bool, not on {name}", span, hint)


def _shift(scope: Scope, fn: str, left: Tensor | Const, right: Tensor | Const, span: Span) -> Tensor:
    """Shifts keep the left dtype; a constant left of a tensor takes the count's dtype."""
    dtype = left.type.dtype if isinstance(left, Tensor) else unify((left, right))
    shape = scope.broadcast((left, right), span)
    value = scope.operand(left, dtype, span)
    if isinstance(right, Const):
        # Every count outside [0, bits) means the same.
        count = int(right.value) if 0 <= right.value < dtype.bits else dtype.bits
        shifted = literal(count, DType.INT32 if dtype is DType.BOOL else dtype, span)
    elif right.type.dtype is DType.BOOL:
        shifted = scope.operand(right, DType.INT32, span)
    else:
        shifted = right.name
    return scope.elementwise(fn, (value, shifted), TensorType(dtype, shape), origin(span))


def compare(scope: Scope, fn: str, left: Tensor | Const, right: Tensor | Const, span: Span) -> Tensor:
    """A comparison; with a constant it is exact whatever the tensor's dtype."""
    if isinstance(left, Const):
        assert isinstance(right, Tensor)
        return compare(scope, swapped(fn), right, left, span)
    if isinstance(right, Tensor) or isinstance(right.value, bool):
        return scope.apply(fn, (left, right), (unify((left, right)), DType.BOOL), span)
    if left.type.dtype is DType.BOOL:
        left = scope.cast(left, DType.INT32, span)
    exact, bound, negate = exact_comparison(fn, right.value, left.type.dtype)
    result = scope.elementwise(exact, (left.name, bound), TensorType(DType.BOOL, left.type.shape), span)
    return scope.apply("bit_not", (result,), (DType.BOOL, DType.BOOL), span) if negate else result


def select(
    scope: Scope, args: Sequence[Tensor | Const], span: Span, spans: Sequence[Span] = ()
) -> Tensor | Const:
    """``test ? then : otherwise``; a constant test picks one side."""
    test, then, otherwise = args
    if isinstance(test, Const):
        return then if test.value else otherwise
    truth = truth_of(scope, test, span)
    dtype = unify((then, otherwise))
    shape = scope.broadcast((truth, then, otherwise), span)
    places = spans or (span, span, span)
    operands = (truth.name, scope.operand(then, dtype, places[1]), scope.operand(otherwise, dtype, places[2]))
    return scope.elementwise("cond", operands, TensorType(dtype, shape), span)


def truth_of(scope: Scope, test: Tensor, span: Span) -> Tensor:
    """A condition as bool: other dtypes are compared with 0."""
    if test.type.dtype is DType.BOOL:
        return test
    return compare(scope, "cmp_ne", test, Const(0), span)


def bind_integer(scope: Scope, node: ast.Expr, what: str, code: str = "TILE-E112") -> int:
    """The value of an expression that must be an integer constant, such as a size."""
    count = len(scope.ops)
    value = bind_expression(scope, node)
    number = as_integer(value.value) if isinstance(value, Const) else None
    if number is None:
        del scope.ops[count:]
        hint = "use literals, dimension names and arithmetic on them"
        fail(code, f"{what} must be an integer constant, not {describe(value)}", node.span, hint)
    return number
