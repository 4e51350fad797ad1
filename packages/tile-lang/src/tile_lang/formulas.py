"""Index formulas: linear, with exact fractions."""

from __future__ import annotations

from fractions import Fraction

from tile_ir.diagnostics import Span
from tile_ir.program.nodes import Poly

from tile_lang import ast
from tile_lang.dims import as_integer
from tile_lang.scope import Scope
from tile_lang.values import Const, Tensor, describe, fail


def bind_formula(scope: Scope, root: ast.Poly) -> Poly:
    """The affine form that an index formula denotes; coefficients are exact fractions."""
    values: list[Poly] = []
    for node in ast.postorder(root):
        match node:
            case ast.IntLiteral():
                values.append(Poly(const=Fraction(node.value)))
            case ast.IndexName(name):
                values.append(Poly.of({name: 1}))
            case ast.Name(name, span):
                values.append(Poly(const=Fraction(_dimension(scope, name, span))))
            case ast.Unary():
                values.append(values.pop().scaled(-1))
            case ast.Binary(op, _, _, span):
                right, left = values.pop(), values.pop()
                values.append(_combine(op, left, right, node.right.span, span))
            case _:
                fail("TILE-E110", "an index formula is made of integers, dimensions and indexes", node.span)
    return values[0]


def _dimension(scope: Scope, name: str, span: Span) -> int:
    value = scope.lookup_size(name, span)
    number = as_integer(value.value) if isinstance(value, Const) else None
    if number is None:
        message = f"{name} in an index formula must be an integer constant, not {describe(value)}"
        hint = f"index variables are written in lower case: {name.lower()}" if len(name) == 1 else None
        if isinstance(value, Tensor) and value.type.dtype.is_integer:
            hint = f"a tensor of subscripts stands alone, with its own subscripts: {name}[{'i' if value.type.shape else ''}]"
        fail("TILE-E124", message, span, hint)
    return number


def _combine(op: str, left: Poly, right: Poly, right_span: Span, span: Span) -> Poly:
    if op in "+-":
        return left + right.scaled(1 if op == "+" else -1)
    if op == "*":
        if left.terms and right.terms:
            hint = "every index may only be multiplied by constants"
            fail("TILE-E110", f"the product of {left} and {right} is not linear", span, hint)
        return left.scaled(right.const) if not right.terms else right.scaled(left.const)
    if right.terms:
        fail("TILE-E111", f"division by {right}, which contains an index", right_span, "divide by constants only")
    if not right.const:
        fail("TILE-E133", "division by zero in an index formula", right_span)
    return left.scaled(1 / right.const)
