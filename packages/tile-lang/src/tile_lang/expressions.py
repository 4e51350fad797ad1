"""Binding of elementwise expressions: operators, comparisons, conditionals, calls."""

from __future__ import annotations

from math import isfinite, isinf

from tile_lang import ast
from tile_lang.builtins import call, sizes_from
from tile_lang.dims import as_integer
from tile_lang.lexer import CONSTANTS
from tile_lang.operators import operate, select
from tile_lang.scope import Scope
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
ARITHMETIC = frozenset("+-*/")
UNARY = {"-": "neg", "~": "bit_not"}


class _Choose:
    """A step of the evaluation stack: pick or select once the condition is known."""

    __slots__ = ("node",)

    def __init__(self, node: ast.Conditional) -> None:
        self.node = node


class _Finish:
    """A step of the evaluation stack: apply a node to the values of its operands."""

    __slots__ = ("node", "operands")

    def __init__(self, node: ast.Expr, operands: tuple[ast.Expr, ...]) -> None:
        self.node = node
        self.operands = operands


class _Sizes:
    """A step of the evaluation stack: from here on one more, or one less, argument around is a size."""

    __slots__ = ("change",)

    def __init__(self, change: int) -> None:
        self.change = change


def bind_expression(scope: Scope, root: ast.Expr, sizes: int = 0) -> Value:
    """The value of an expression; operations are emitted on the way. Uses a stack: no depth is too deep.

    The branch that a constant condition does not take is not looked at. With `sizes`, names mean dimensions first.
    """
    todo: list[ast.Expr | _Choose | _Finish | _Sizes] = [root]
    values: list[Value] = []
    while todo:
        step = todo.pop()
        match step:
            case ast.Name():  # the cases stand in the order of how often they come
                values.append((scope.lookup_size if sizes else scope.lookup)(step.id, step.span))
            case ast.Binary(left=left, right=right):
                todo += (_Finish(step, (left, right)), right, left)
            case ast.Unary() | ast.Call():
                operands = ast.children(step)
                todo.append(_Finish(step, operands))
                todo.extend(_sized(scope, step, operands) if scope.sizes else reversed(operands))
            case _Sizes(change=change):
                sizes += change
            case _Finish():
                count = len(step.operands)
                args = values[-count:]
                del values[-count:]
                values.append(_alike(scope, step.node, args) or _apply(scope, step.node, args))
            case ast.Conditional():
                todo += [_Choose(step), step.test]
            case _Choose(node=node):
                if isinstance(values[-1], Const):
                    taken = values.pop()
                    todo.append(node.then if isinstance(taken, Const) and taken.value else node.otherwise)
                else:
                    todo += [_Finish(node, ast.children(node)), node.otherwise, node.then]
            case _:
                values.append(_constant(step))
    return values[0]


def _sized(scope: Scope, node: ast.Expr, operands: tuple[ast.Expr, ...]) -> list[ast.Expr | _Sizes]:
    """The operands, last first, with steps around those arguments of a call that are sizes."""
    first = sizes_from(node.function) if isinstance(node, ast.Call) and node.function not in scope.local else None
    if first is None:
        return list(reversed(operands))
    return [_Sizes(-1), *reversed(operands[first:]), _Sizes(1), *reversed(operands[:first])]


def _constant(node: ast.Expr) -> Const:
    if isinstance(node, ast.IndexName):
        hint = "indexes exist only inside the brackets of a contraction; index(X, axis) gives coordinates"
        fail("TILE-E123", f"the index variable {node.id} is used as a tensor", node.span, hint)
    if isinstance(node, ast.FloatLiteral) and isinf(node.value) and node.text not in CONSTANTS:
        fail("TILE-E125", f"the number {node.text[:24]} is beyond float64", node.span)
    assert isinstance(node, ast.IntLiteral | ast.FloatLiteral)
    return Const(node.value)


def _alike(scope: Scope, node: ast.Expr, args: list[Value]) -> Tensor | None:
    """Arithmetic on two tensors of one type: there is nothing to promote, to stretch or to fold."""
    if isinstance(node, ast.Binary) and node.op in ARITHMETIC:
        left, right = args
        if type(left) is Tensor and type(right) is Tensor and left.type is right.type:
            return scope.elementwise(BINARY[node.op], (left.name, right.name), left.type, node.span)
    return None


def _apply(scope: Scope, node: ast.Expr, args: list[Value]) -> Value:
    spans = [child.span for child in ast.children(node)]
    if isinstance(node, ast.Call):
        return call(scope, node, args, spans)
    operands = [scope.scalar(a, s) for a, s in zip(args, spans, strict=True)]
    match node:
        case ast.Unary(op, _, span):
            return operate(scope, UNARY[op], operands, span, spans)
        case ast.Binary(op, _, _, span):
            return operate(scope, BINARY[op], operands, span, spans)
        case _:
            return select(scope, operands, node.span, spans)


def bind_integer(scope: Scope, node: ast.Expr, what: str, code: str = "TILE-E112") -> int:
    """The value of an expression that must be an integer constant, such as a size."""
    count = len(scope.ops)
    value = bind_expression(scope, node, sizes=1)
    number = as_integer(value.value) if isinstance(value, Const) else None
    if number is None:
        del scope.ops[count:]
        rounded = isinstance(value, Const) and isinstance(value.value, float) and isfinite(value.value)
        hint = (
            "floor(x), ceil(x) and round(x) give integers"
            if rounded
            else "use literals, dimension names and arithmetic on them"
        )
        fail(code, f"{what} must be an integer constant, not {describe(value)}", node.span, hint)
    return number
