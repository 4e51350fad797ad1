"""Reverse mode over a Program: one backward walk, no recursion."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tile_ir.deadline import check
from tile_ir.diagnostics import NOWHERE, Diagnostic, Span, TileTypeError
from tile_ir.program.liveness import defined_by, live_ops, used_by
from tile_ir.program.nodes import (
    Contraction,
    CustomGradient,
    Elementwise,
    Gather,
    Loop,
    Op,
    Param,
    Program,
    Reshape,
    Scatter,
    TensorType,
)

from tile_autodiff._checkpoints import in_blocks
from tile_autodiff._contractions import Gradients, contraction_gradients
from tile_autodiff._custom import Inliner
from tile_autodiff._emit import Graph, merged
from tile_autodiff._loops import loop_gradients, varying
from tile_autodiff._pivots import pivots
from tile_autodiff._scatters import scatter_gradients
from tile_autodiff.rules import RULES, Site

Active = Callable[[str], bool]


def gradient(program: Program, wrt: Sequence[str], *, rules: Sequence[CustomGradient] = ()) -> Program:
    """The vector-Jacobian product of `program`.

    Inputs: those of the program, then ``d_<output>`` per public output, of the output's type. Outputs: ``d_<name>``
    per name in `wrt`, of that input's type; zeros where no output depends on it. `rules`, like those in
    ``program.gradients``, replace the derivatives of parts of the program.

    TileTypeError (TILE-E801…E803) when a name in `wrt` is not an input, is given twice, is not of a float dtype, or
    when an input is called like a cotangent.
    """
    _check(program, wrt)
    types = program.types()
    cotangents = {public: Param(f"d_{public}", types[value]) for public, value in program.outputs}
    return _pulled(program, wrt, rules, cotangents, keep=False)


def value_and_gradient(program: Program, wrt: Sequence[str], of: str) -> Program:
    """The outputs of `program`, then the derivatives ``d_<name>`` of its scalar output `of` by the inputs in `wrt`.

    The inputs are those of the program; nothing is computed twice. Errors as `gradient`, and TILE-E805 where `of` is no
    float scalar.
    """
    _check(program, wrt)
    type_ = program.types()[dict(program.outputs)[of]]
    if type_.shape or not type_.dtype.is_float:
        hint = "add it up or take its mean" if type_.shape else "convert it to a float dtype"
        raise TileTypeError(Diagnostic("TILE-E805", f"only a float scalar has a gradient, {of} is {type_}", hint=hint))
    return _pulled(program, wrt, (), {of: None}, keep=True)


def _pulled(
    program: Program,
    wrt: Sequence[str],
    rules: Sequence[CustomGradient],
    cotangents: Mapping[str, Param | None],
    keep: bool,
) -> Program:
    """Derivatives by `wrt`, from these cotangents (None: one) of outputs; behind the outputs themselves with `keep`."""
    program = in_blocks(program)
    rules = (*program.gradients, *rules)
    if not rules:
        program = merged(program)
    given = [p for p in cotangents.values() if p is not None]
    types = program.types()
    graph = Graph(program)
    graph.types |= {p.name: p.type for p in given}
    asked = [value for public, value in program.outputs if public in cotangents]
    tape = _Tape(graph, _varied(program, wrt, rules) - pivots(program, asked, rules))
    for public, value in program.outputs:
        if public in cotangents:
            cotangent = cotangents[public]
            tape.give(value, graph.filled(1, types[value]) if cotangent is None else cotangent.name)
    rules = (*rules, *_walk(program, tape, rules))
    results = [tape.take(name) or graph.zeros(types[name]) for name in wrt]
    kept = program.outputs if keep else ()
    ops, rules = _live(graph, [*results, *(value for _, value in kept)], rules)
    derivatives = tuple((f"d_{name}", value) for name, value in zip(wrt, results, strict=True))
    return Program(f"vjp_{program.name}", (*program.inputs, *given), ops, (*kept, *derivatives), rules)


def _live(
    graph: Graph, results: Sequence[str], rules: Sequence[CustomGradient]
) -> tuple[tuple[Op, ...], tuple[CustomGradient, ...]]:
    """The operations that the results need, and the rules about them, with all that these rules name."""
    wanted, kept = set(results), list[CustomGradient]()
    while True:
        ops = live_ops(graph.ops, wanted)
        present = {name for op in ops for name in defined_by(op)}
        more = [r for r in rules if r not in kept and not present.isdisjoint(r.outputs)]
        if not more:
            return ops, tuple(r for r in rules if r in kept)
        kept += more
        wanted.update(name for r in more for name in (*r.inputs, *r.outputs))


def _check(program: Program, wrt: Sequence[str]) -> None:
    inputs = {p.name: p.type for p in program.inputs}
    problems: list[Diagnostic] = []
    if not wrt:
        problems.append(Diagnostic("TILE-E801", "wrt is empty", hint=f"the inputs are {', '.join(inputs)}"))
    for k, name in enumerate(wrt):
        if name not in inputs:
            hint = f"the inputs are {', '.join(inputs)}"
            problems.append(Diagnostic("TILE-E801", f"{name!r} is not an input of {program.name}", hint=hint))
        elif name in wrt[:k]:
            problems.append(Diagnostic("TILE-E801", f"{name!r} is named twice in wrt"))
        elif not inputs[name].dtype.is_float:
            message = f"input {name} is {inputs[name]}: only float tensors have gradients"
            hint = "leave it out of wrt, or pass it as a float and convert it in the function with as_int"
            problems.append(Diagnostic("TILE-E802", message, hint=hint))
    for public, _ in program.outputs:
        if f"d_{public}" in inputs:
            message = f"input d_{public} has the name of the cotangent of output {public}"
            problems.append(Diagnostic("TILE-E803", message, hint="rename the input or the output"))
    if problems:
        raise TileTypeError(problems)


def _varied(program: Program, wrt: Sequence[str], rules: Sequence[CustomGradient]) -> set[str]:
    """Float values that depend on `wrt` by operations that pass derivatives on."""
    varied = set(wrt)
    ends = _rule_ends(program, rules)
    for position, op in enumerate(program.ops):
        if isinstance(op, Loop):
            varied.update(op.results[k] for k in varying(op, varied, _varied_in).outputs)
        elif isinstance(op, _DIFFERENTIABLE) and op.type.dtype.is_float and _passes(op, varied):
            varied.add(op.name)
        for rule in ends.get(position, ()):
            if not varied.isdisjoint(rule.inputs):
                varied.update(rule.outputs)
    return varied


_DIFFERENTIABLE = (Contraction, Elementwise, Reshape, Gather, Scatter)


def _passes(op: Op, varied: set[str]) -> bool:
    if isinstance(op, Elementwise) and op.fn == "stop_gradient":
        return False
    return not varied.isdisjoint(used_by(op))


def _rule_ends(program: Program, rules: Sequence[CustomGradient]) -> dict[int, list[CustomGradient]]:
    """Rules by the position of the last operation that defines one of their outputs."""
    place = {name: k for k, op in enumerate(program.ops) for name in defined_by(op)}
    ends: dict[int, list[CustomGradient]] = {}
    # The rule of a whole comes after those of its parts, and goes first.
    for rule in reversed(rules):
        absent = [name for name in rule.outputs if name not in place]
        if absent or not rule.outputs:
            message = f"a custom gradient is about {absent[0] if absent else 'no output'}, which no operation defines"
            raise TileTypeError(Diagnostic("TILE-E804", message, hint="pass an input through ident first"))
        ends.setdefault(max(place[name] for name in rule.outputs), []).append(rule)
    return ends


class _Tape:
    """Derivatives that have arrived at values, to be added up once."""

    def __init__(self, graph: Graph, varied: set[str]) -> None:
        self.graph = graph
        self.varied = varied
        self._parts: dict[str, list[str]] = {}

    def active(self, name: str) -> bool:
        return name in self.varied

    def give(self, name: str, derivative: str) -> None:
        if name in self.varied:
            self._parts.setdefault(name, []).append(derivative)

    def take(self, name: str) -> str | None:
        """The total derivative of a value, in its shape; None for a symbolic zero. Forgets it."""
        parts = self._parts.pop(name, None)
        if not parts:
            return None
        type_ = self.graph.types[name]
        byshape: dict[tuple[int, ...], list[str]] = {}
        for part in parts:
            byshape.setdefault(self.graph.types[part].shape, []).append(part)
        sums = [self._reduced(group, type_) for group in byshape.values()]
        return _name(self.graph.total(sums, type_.dtype))

    def _reduced(self, parts: list[str], type_: TensorType) -> str:
        total = _name(self.graph.total(parts, type_.dtype))
        return total if self.graph.types[total].shape == type_.shape else self.graph.summed_to(total, type_.shape)


def _name(operand: object) -> str:
    assert isinstance(operand, str), "the derivative of a tensor is a tensor"
    return operand


def _walk(program: Program, tape: _Tape, rules: Sequence[CustomGradient]) -> list[CustomGradient]:
    """Send derivatives from the last operation to the first; gives the rules that came with backward programs."""
    ends = _rule_ends(program, rules)
    inliner = Inliner(tape.graph)
    for position in range(len(program.ops) - 1, -1, -1):
        tape.graph.origin = _gradient_of(program.ops[position].origin)
        for rule in ends.get(position, ()):
            arrived = {name: tape.take(name) for name in rule.outputs}
            if any(arrived.values()):
                for name, derivative in inliner.apply(rule, arrived, tape.active):
                    tape.give(name, derivative)
        op = program.ops[position]
        check("the gradient of", defined_by(op)[0], op.origin)
        if isinstance(op, Loop):
            _through_loop(op, tape)
            continue
        backward = _BACKWARD.get(type(op))
        derivative = tape.take(defined_by(op)[0])
        if backward is None or derivative is None:
            continue
        for name, share in backward(tape.graph, op, derivative, tape.active):
            tape.give(name, share)
    tape.graph.origin = None
    return inliner.nested


def _through_loop(op: Loop, tape: _Tape) -> None:
    arrived = {name: tape.take(name) for name in op.results}
    if any(arrived.values()):
        found = varying(op, tape.varied, _varied_in)
        for name, derivative in loop_gradients(tape.graph, op, arrived, found, gradient):
            tape.give(name, derivative)


def _varied_in(body: Program, inputs: Sequence[str]) -> set[str]:
    return _varied(body, inputs, body.gradients)


def _gradient_of(origin: Span | None) -> Span | None:
    """Where the derivative of what comes from `origin` comes from, if that has a label; its text says something else."""
    return Span(NOWHERE, 0, 0, f"gradient of {origin.label}") if origin is not None and origin.label else None


# --- one function per kind of operation ------------------------------------------------------------------------------


def _elementwise(graph: Graph, op: Elementwise, dout: str, active: Active) -> Gradients:
    site = Site(graph, op.args, op.name, dout, op.params)
    found: Gradients = []
    for position, arg in enumerate(op.args):
        if isinstance(arg, str) and active(arg):
            share = RULES[op.fn].apply(site, position)
            if share is not None:
                found.append((arg, graph.stretched(_name(share), op.type.shape)))
    return found


def _reshape(graph: Graph, op: Reshape, dout: str, active: Active) -> Gradients:
    return [(op.arg, graph.reshaped(dout, graph.types[op.arg].shape))] if active(op.arg) else []


def _gather(graph: Graph, op: Gather, dout: str, active: Active) -> Gradients:
    if not active(op.data):
        return []
    return [(op.data, graph.add(Scatter(graph.fresh("G"), graph.types[op.data], dout, op.subscripts)))]


_BACKWARD: dict[type, Callable[[Graph, Any, str, Active], Gradients]] = {
    Contraction: contraction_gradients,
    Elementwise: _elementwise,
    Reshape: _reshape,
    Gather: _gather,
    Scatter: scatter_gradients,
}
"""IndexOf, ConstantTensor and Prng are constants."""
