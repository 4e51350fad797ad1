"""Binding: a parsed function and its inputs' types become a typed Program.

Header dimensions become constants, every operation gets its shape and dtype, casts are made explicit, constants
are folded, names that alias are resolved, and operations that no output needs are dropped. Mistakes are
collected: a statement that fails makes its name unknown, later statements that use it stay silent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tile_ir.collector import uncollected
from tile_ir.deadline import check, within_time
from tile_ir.diagnostics import Diagnostic, Note, Span, TileError, TileLimitError, TileTypeError
from tile_ir.program.liveness import live_ops
from tile_ir.program.nodes import (
    Param,
    Program,
    TensorType,
)

from tile_lang import ast
from tile_lang.contraction import bind_contraction
from tile_lang.expressions import bind_expression
from tile_lang.limits import DEFAULT_LIMITS, LIMIT_CODE, Limits
from tile_lang.scope import Scope, origin, plural, show, suggest
from tile_lang.values import BindFailure, Const, Failed, Tensor, TupleValue, Value, fail


def bind(
    function: ast.Function, types: Mapping[str, TensorType], limits: Limits = DEFAULT_LIMITS, name: str = "main"
) -> Program:
    """The typed program of `function` for inputs of these types.

    Raises TileTypeError with all diagnostics found (TileLimitError when all of them concern limits).
    """
    with uncollected(), within_time():
        return _bound(function, types, limits, name)


def _bound(function: ast.Function, types: Mapping[str, TensorType], limits: Limits, name: str) -> Program:
    scope = Scope(limits)
    _attempt(scope, lambda: _bind_header(scope, function, types))
    for statement in function.statements:
        check("binding", _target(statement).id, _target(statement).span)
        _bind_statement(scope, statement)
    first = {o.id: o for o in reversed(function.outputs)}
    outputs = [_output(scope, o, first[o.id]) for o in function.outputs]
    if scope.diagnostics:
        raise _error(limits.shortened(scope.diagnostics))
    inputs = tuple(Param(i.name.id, types[i.name.id]) for i in function.inputs)
    pairs = tuple((o.id, t.name) for o, t in zip(function.outputs, outputs, strict=True) if t is not None)
    return Program(name, inputs, live_ops(scope.ops, [value for _, value in pairs]), pairs)


def _error(diagnostics: Sequence[Diagnostic]) -> TileError:
    return (TileLimitError if all(d.code == LIMIT_CODE for d in diagnostics) else TileTypeError)(diagnostics)


def _attempt(scope: Scope, action: object) -> bool:
    """Run a step; note its diagnostics when it fails."""
    assert callable(action)
    try:
        action()
    except BindFailure as failure:
        scope.diagnostics += failure.diagnostics
        return False
    except TileLimitError as failure:
        scope.diagnostics += failure.diagnostics
        return False
    return True


# --- header --------------------------------------------------------------------------------------


def _bind_header(scope: Scope, function: ast.Function, types: Mapping[str, TensorType]) -> None:
    names = [i.name.id for i in function.inputs]
    scope.taken |= {*names, *(_target(s).id for s in function.statements)}
    for given in types:
        if given not in names:
            near = suggest(given, names)
            hint = f"did you mean {near}?" if near else f"the inputs are {', '.join(names) or 'none'}"
            span = function.inputs[0].span.to(function.inputs[-1].span) if function.inputs else function.outputs[0].span
            scope.diagnostics.append(Diagnostic("TILE-E105", f"{given} is not an input", span, hint))
    for node in function.inputs:
        _attempt(scope, lambda node=node: _bind_input(scope, node, types))
    for node in function.inputs:
        for dim, size in _dims(scope, node, types, names):
            _attempt(scope, lambda dim=dim, size=size: _bind_dim(scope, dim, size, dim.id in names))


def _bind_input(scope: Scope, node: ast.Input, types: Mapping[str, TensorType]) -> None:
    name, span = node.name.id, node.name.span
    if name in scope.values:
        fail("TILE-E103", f"{name} is an input twice", span, None, Note("first here", scope.spans[name]))
    scope.define(name, Failed(), span)
    if name not in types:
        fail("TILE-E105", f"no shape and dtype are given for input {name}", span)
    type_ = types[name]
    scope.check_type(type_, origin(span))
    rank = len(type_.shape)
    if node.dims is not None and len(node.dims) != rank:
        message = f"{name} has {plural(len(node.dims), 'dimension')} in the header, but is given {show(type_.shape)}"
        fail("TILE-E106", message, node.span)
    scope.values[name] = Tensor(name, type_)


def _dims(
    scope: Scope, node: ast.Input, types: Mapping[str, TensorType], inputs: Sequence[str]
) -> list[tuple[ast.Name, int]]:
    """Header dimensions with their sizes; with no fitting type the names fail silently."""
    dims, type_ = node.dims or (), types.get(node.name.id)
    if type_ is not None and len(type_.shape) == len(dims):
        return list(zip(dims, type_.shape, strict=True))
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


def _target(node: ast.Statement) -> ast.Name:
    return node.target.name if isinstance(node, ast.Contraction) else node.target


def _bind_statement(scope: Scope, node: ast.Statement) -> None:
    target = _target(node)
    count = len(scope.ops)

    def step() -> None:
        value = _value(scope, node)
        scope.define(target.id, value, target.span)

    if not _attempt(scope, step):
        del scope.ops[count:]
        scope.forget_casts()
        scope.values.setdefault(target.id, Failed())
        scope.spans.setdefault(target.id, target.span)


def _value(scope: Scope, node: ast.Statement) -> Value:
    if isinstance(node, ast.Contraction):
        return bind_contraction(scope, node)
    count = len(scope.ops)
    value = bind_expression(scope, node.value)
    name = node.target.id
    if isinstance(value, Tensor) and name not in scope.values and scope.rename_last(value.name, name, count):
        return Tensor(name, value.type)
    return value


def _output(scope: Scope, node: ast.Name, first: ast.Name) -> Tensor | None:
    """The tensor of an output whose name comes `first` there; None with a diagnostic when there is none."""
    name, span = node.id, node.span
    found: list[Tensor] = []

    def step() -> None:
        if first is not node:
            fail("TILE-E104", f"{name} is an output twice", span, None, Note("first here", first.span))
        if name not in scope.values:
            near = scope.near(name)
            hint = f"did you mean {near}?" if near else f"add a statement that assigns {name}"
            fail("TILE-E104", f"the output {name} is never assigned", span, hint)
        found.append(_as_output(scope, scope.lookup(name, span), name, span))

    _attempt(scope, step)
    return found[0] if found else None


def _as_output(scope: Scope, value: Value, name: str, span: Span) -> Tensor:
    if isinstance(value, TupleValue):
        fail("TILE-E122", f"the output {name} is a tuple", span, "assign its members to outputs of their own")
    return scope.tensor(value, scope.spans[name], f"the output {name}")
