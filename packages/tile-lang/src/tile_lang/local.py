"""Calls of the functions that a text defines in front of its own: each call is bound anew, where it stands.

A function knows its inputs and nothing else of its caller. What it makes joins the caller's operations, so that nothing
of the call is left in the Program; its mistakes say where it was called.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from tile_ir.diagnostics import Diagnostic, Note, Span
from tile_ir.frozen import frozen

from tile_lang import ast
from tile_lang.scope import LocalFunction, Scope, plural, show
from tile_lang.statements import attempt, bind_dims, bind_statement, output
from tile_lang.values import BindFailure, Const, Failed, Tensor, TupleValue, Value, describe, fail


@frozen
class _Call:
    """A call of such a function."""

    scope: Scope
    name: str
    args: Sequence[Value]
    span: Span


def binders(functions: Sequence[ast.Function]) -> dict[str, LocalFunction]:
    """What binds a call of each of the functions, by name."""
    return {f.name: partial(_called, f, f.name) for f in functions if f.name is not None}


def _called(function: ast.Function, name: str, caller: Scope, args: Sequence[Value], span: Span) -> Value:
    """The output, or the tuple of outputs."""
    call = _Call(caller, name, args, span)
    _check_call(function, call)
    scope = caller.inner(name)
    attempt(scope, lambda: _bind_inputs(scope, function, call))
    for statement in function.statements:
        bind_statement(scope, statement)
    outputs: list[Value] = []
    for result in function.outputs:
        attempt(scope, lambda result=result: outputs.append(output(scope, result)))
    if scope.diagnostics:
        raise BindFailure(*caller.unreported(_located(d, call) for d in scope.diagnostics))
    return outputs[0] if len(outputs) == 1 else TupleValue(tuple(outputs))


def _check_call(function: ast.Function, call: _Call) -> None:
    given, wanted = len(call.args), len(function.inputs)
    if given != wanted:
        message = f"{call.name} takes {plural(wanted, 'argument')}, not {given}"
        fail("TILE-E115", message, call.span, None, Note("defined here", function.name_span))
    chain = call.scope.calls
    if call.name in chain:
        ring = " calls ".join([*chain[chain.index(call.name) :], call.name])
        hint = "tile.repeat and tile.scan repeat a step in Python; a contraction runs over all values of its indexes"
        fail("TILE-E141", f"functions cannot call themselves: {ring}", call.span, hint)
    limits = call.scope.limits
    limits.check("max_depth", len(chain) + 1, call.span)
    call.scope.count_calls()
    limits.check("max_calls", call.scope.tally.calls, call.span)  # beyond, all fail at once: nothing doubles for long


def _located(found: Diagnostic, call: _Call) -> Diagnostic:
    return replace(found, notes=(*found.notes, Note(f"in {call.name}, which is called here", call.span)))


def _bind_inputs(scope: Scope, function: ast.Function, call: _Call) -> None:
    names = [i.name.id for i in function.inputs]
    values = dict(zip(names, call.args, strict=True))
    for k, node in enumerate(function.inputs):
        if node.name.id in scope.values:
            first = Note("first here", scope.spans[node.name.id])
            fail("TILE-E103", f"{node.name.id} is an input twice", node.name.span, None, first)
        fits = attempt(scope, partial(_check_rank, node, call.args[k]))
        scope.define(node.name.id, call.args[k] if fits else Failed(), node.name.span)
    bind_dims(scope, function.inputs, {n: v.type.shape for n, v in values.items() if isinstance(v, Tensor)})


def _check_rank(node: ast.Input, value: Value) -> None:
    """An input with brackets takes a tensor of so many dimensions, one with empty ones a constant as well."""
    if node.dims is None or isinstance(value, Failed) or (isinstance(value, Const) and not node.dims):
        return
    name, count = node.name.id, plural(len(node.dims), "dimension")
    if not isinstance(value, Tensor):
        fail("TILE-E136", f"{name} is a tensor with {count}, but is given {describe(value)}", node.span)
    if len(value.type.shape) != len(node.dims):
        message = f"{name} has {count} in the header, but is given {show(value.type.shape)}"
        fail("TILE-E106", message, node.span)
