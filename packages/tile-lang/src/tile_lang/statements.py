"""Binding of statements, and of what a header says about sizes: the same for a text's function and for those it calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tile_ir.deadline import check
from tile_ir.diagnostics import Note, TileLimitError

from tile_lang import ast
from tile_lang.contraction import bind_contraction
from tile_lang.expressions import bind_expression
from tile_lang.scope import Scope, plural
from tile_lang.values import BindFailure, Const, Failed, Tensor, TupleValue, Value, describe, fail


def attempt(scope: Scope, action: Callable[[], object]) -> bool:
    """Run a step; note its diagnostics when it fails."""
    try:
        action()
    except (BindFailure, TileLimitError) as failure:
        scope.diagnostics += failure.diagnostics
        return False
    return True


# --- headers -------------------------------------------------------------------------------------


def bind_dims(scope: Scope, inputs: Sequence[ast.Input], shapes: Mapping[str, Sequence[int]]) -> None:
    """Give the names in the inputs' brackets their sizes; those of inputs without a fitting shape fail silently."""
    names = [i.name.id for i in inputs]
    for node in inputs:
        for dim, size in _dims(scope, node, shapes.get(node.name.id), names):
            attempt(scope, lambda dim=dim, size=size: _bind_dim(scope, dim, size, dim.id in names))


def _dims(
    scope: Scope, node: ast.Input, shape: Sequence[int] | None, inputs: Sequence[str]
) -> list[tuple[ast.Name, int]]:
    dims = node.dims or ()
    if shape is not None and len(shape) == len(dims):
        return list(zip(dims, shape, strict=True))
    for dim in dims:
        if dim.id in inputs:
            scope.sizes.setdefault(dim.id, None)
        elif dim.id not in scope.values:
            scope.define(dim.id, Failed(), dim.span)
    return []


def _bind_dim(scope: Scope, dim: ast.Name, size: int, shadowed: bool) -> None:
    if shadowed:
        _bind_shadowed(scope, dim, size)
        return
    known = scope.values.get(dim.id)
    match known:
        case None:
            scope.define(dim.id, Const(size), dim.span)
        case Failed():
            scope.values[dim.id] = Const(size)
        case Const(value) if value != size:
            note = Note(f"{dim.id} is {value} here", scope.spans[dim.id])
            fail("TILE-E107", f"dimension {dim.id} is {value} and {size}", dim.span, None, note)
        case _:
            pass


def _bind_shadowed(scope: Scope, dim: ast.Name, size: int) -> None:
    """A dimension that is called like an input: subscripts, sizes and bounds mean the dimension, all else the input."""
    known = scope.sizes.setdefault(dim.id, (size, dim.span))
    if known is not None and known[0] != size:
        note = Note(f"{dim.id} is {known[0]} here", known[1])
        fail("TILE-E107", f"dimension {dim.id} is {known[0]} and {size}", dim.span, None, note)


# --- statements ----------------------------------------------------------------------------------


def bind_statement(scope: Scope, node: ast.Statement) -> None:
    """Bind what a statement assigns; where it fails, its names are Failed and its operations gone."""
    targets = ast.targets(node)
    check("binding", targets[0].id, targets[0].span)
    count = len(scope.ops)

    def step() -> None:
        for target, value in zip(targets, _values(scope, node), strict=True):
            scope.define(target.id, value, target.span)

    if attempt(scope, step):
        return
    del scope.ops[count:]
    scope.forget_casts()
    for target in targets:
        scope.values.setdefault(target.id, Failed())
        scope.spans.setdefault(target.id, target.span)


def _values(scope: Scope, node: ast.Statement) -> Sequence[Value]:
    """One value for each name."""
    match node:
        case ast.Contraction():
            return (bind_contraction(scope, node),)
        case ast.Assign():
            return (_assigned(scope, node),)
        case ast.Unpack(targets, expression):
            return _members(bind_expression(scope, expression), targets, expression)


def _assigned(scope: Scope, node: ast.Assign) -> Value:
    count = len(scope.ops)
    value = bind_expression(scope, node.value)
    if isinstance(value, Tensor) and node.target.id not in scope.values:
        name = scope.title(node.target.id)
        if scope.rename_last(value.name, name, count):
            return Tensor(name, value.type)
    return value


def _members(value: Value, targets: Sequence[ast.Name], expression: ast.Expr) -> Sequence[Value]:
    if not isinstance(value, TupleValue):
        hint = "a contraction and an expression give one tensor; top_k, tuple(A, B) and functions of several outputs give more"
        fail("TILE-E122", f"{plural(len(targets), 'name')} for {describe(value)}", expression.span, hint)
    if len(value.items) != len(targets):
        message = f"{plural(len(targets), 'name')} for a tuple of {plural(len(value.items), 'member')}"
        fail("TILE-E122", message, targets[0].span.to(targets[-1].span))
    return value.items


def output(scope: Scope, node: ast.Name) -> Value:
    """What the statements made an output; TILE-E104 where none assigns it."""
    if node.id not in scope.values:
        near = scope.near(node.id)
        hint = f"did you mean {near}?" if near else f"add a statement that assigns {node.id}"
        fail("TILE-E104", f"the output {node.id} is never assigned", node.span, hint)
    return scope.lookup(node.id, node.span)
