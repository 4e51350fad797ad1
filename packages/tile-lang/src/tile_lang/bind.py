"""Binding: a parsed function and its inputs' types become a typed Program.

Header dimensions become constants, every operation gets its shape and dtype, casts are made explicit, constants
are folded, names that alias are resolved, and operations that no output needs are dropped. Mistakes are
collected: a statement that fails makes its name unknown, later statements that use it stay silent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tile_ir.collector import uncollected
from tile_ir.deadline import within_time
from tile_ir.diagnostics import Diagnostic, Note, Span, TileError, TileLimitError, TileTypeError
from tile_ir.program.liveness import live_ops
from tile_ir.program.nodes import (
    Param,
    Program,
    TensorType,
)

from tile_lang import ast
from tile_lang.limits import DEFAULT_LIMITS, LIMIT_CODE, Limits
from tile_lang.local import binders
from tile_lang.scope import Scope, origin, plural, show, suggest
from tile_lang.statements import attempt, bind_dims, bind_statement, output
from tile_lang.values import Failed, Tensor, TupleValue, Value, fail


def bind(
    function: ast.Function, types: Mapping[str, TensorType], limits: Limits = DEFAULT_LIMITS, name: str = "main"
) -> Program:
    """The typed program of `function` for inputs of these types.

    Raises TileTypeError with all diagnostics found (TileLimitError when all of them concern limits).
    """
    with uncollected(), within_time():
        return _bound(function, types, limits, name)


def _bound(function: ast.Function, types: Mapping[str, TensorType], limits: Limits, name: str) -> Program:
    scope = Scope(limits, local=binders(function.functions))
    attempt(scope, lambda: _bind_header(scope, function, types))
    for statement in function.statements:
        bind_statement(scope, statement)
    first = {o.id: o for o in reversed(function.outputs)}
    outputs = [bind_output(scope, o, first[o.id]) for o in function.outputs]
    if scope.diagnostics:
        raise _error(limits.shortened(scope.diagnostics))
    inputs = tuple(Param(i.name.id, types[i.name.id]) for i in function.inputs)
    pairs = tuple((o.id, t.name) for o, t in zip(function.outputs, outputs, strict=True) if t is not None)
    return Program(name, inputs, live_ops(scope.ops, [value for _, value in pairs]), pairs)


def _error(diagnostics: Sequence[Diagnostic]) -> TileError:
    return (TileLimitError if all(d.code == LIMIT_CODE for d in diagnostics) else TileTypeError)(diagnostics)


# --- header --------------------------------------------------------------------------------------


def _bind_header(scope: Scope, function: ast.Function, types: Mapping[str, TensorType]) -> None:
    names = [i.name.id for i in function.inputs]
    scope.taken |= {*names, *(t.id for s in function.statements for t in ast.targets(s))}
    for given in types:
        if given not in names:
            near = suggest(given, names)
            hint = f"did you mean {near}?" if near else f"the inputs are {', '.join(names) or 'none'}"
            span = function.inputs[0].span.to(function.inputs[-1].span) if function.inputs else function.outputs[0].span
            scope.diagnostics.append(Diagnostic("TILE-E105", f"{given} is not an input", span, hint))
    for node in function.inputs:
        attempt(scope, lambda node=node: bind_input(scope, node, types))
    bind_dims(scope, function.inputs, {name: type_.shape for name, type_ in types.items()})


def declared(scope: Scope, node: ast.Input) -> None:
    """Make an input's name known, without a value."""
    name, span = node.name.id, node.name.span
    if name in scope.values:
        fail("TILE-E103", f"{name} is an input twice", span, None, Note("first here", scope.spans[name]))
    scope.define(name, Failed(), span)


def bind_input(scope: Scope, node: ast.Input, types: Mapping[str, TensorType]) -> None:
    """Give an input its type, and its header's number of dimensions."""
    declared(scope, node)
    name, span = node.name.id, node.name.span
    if name not in types:
        fail("TILE-E105", f"no shape and dtype are given for input {name}", span)
    type_ = types[name]
    scope.check_type(type_, origin(span))
    rank = len(type_.shape)
    if node.dims is not None and len(node.dims) != rank:
        message = f"{name} has {plural(len(node.dims), 'dimension')} in the header, but is given {show(type_.shape)}"
        fail("TILE-E106", message, node.span)
    scope.values[name] = Tensor(name, type_)


def bind_output(scope: Scope, node: ast.Name, first: ast.Name) -> Tensor | None:
    """The tensor of an output whose name comes `first` there; None with a diagnostic when there is none."""
    name, span = node.id, node.span
    found: list[Tensor] = []

    def step() -> None:
        if first is not node:
            fail("TILE-E104", f"{name} is an output twice", span, None, Note("first here", first.span))
        found.append(_as_output(scope, output(scope, node), name, span))

    attempt(scope, step)
    return found[0] if found else None


def _as_output(scope: Scope, value: Value, name: str, span: Span) -> Tensor:
    if isinstance(value, TupleValue):
        fail("TILE-E122", f"the output {name} is a tuple", span, "assign its members to outputs of their own")
    return scope.tensor(value, scope.spans[name], f"the output {name}")
