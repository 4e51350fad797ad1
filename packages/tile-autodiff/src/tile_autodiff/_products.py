"""Jacobian-vector and Hessian-vector products, made of two reverse passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tile_ir.diagnostics import Diagnostic, TileTypeError
from tile_ir.names import claim
from tile_ir.program.liveness import live_ops, used_by
from tile_ir.program.nodes import CustomGradient, Param, Program
from tile_ir.program.rename import renamed, renamed_gradient

from tile_autodiff._emit import Graph
from tile_autodiff._reverse import gradient


def jvp(program: Program, wrt: Sequence[str], *, rules: Sequence[CustomGradient] = ()) -> Program:
    """The Jacobian-vector product of `program`: forward-mode derivatives.

    Inputs: those of the program, then the tangents ``t_<name>`` per name in `wrt`. Outputs: ``t_<output>`` per public
    output, of the output's type; zeros for outputs that are not floats or do not depend on `wrt`. Errors as `gradient`.

    The vector-Jacobian product is linear in the cotangents, so its own gradient with respect to them is the
    Jacobian-vector product, and the cotangents' values are needed nowhere.
    """
    pulled = gradient(program, wrt, rules=rules)
    types = program.types()
    floats = [public for public, value in program.outputs if types[value].dtype.is_float]
    cotangents = [f"d_{public}" for public, _ in program.outputs]
    pushed = (
        gradient(pulled, [f"d_{n}" for n in floats]) if floats else replace(pulled, ops=(), outputs=(), gradients=())
    )
    graph = Graph(pushed)
    results = {public.removeprefix("d_d_"): value for public, value in pushed.outputs}
    outputs = {p: results.get(p) or graph.zeros(types[value]) for p, value in program.outputs}
    body = replace(pushed, ops=tuple(graph.ops))
    body = _without_inputs(body, cotangents, list(outputs.values()))
    tangents = [Param(f"d_d_{n}", types[n]) for n in wrt]
    names = {p.name: f"t_{n}" for p, n in zip(tangents, wrt, strict=True)}
    full = replace(body, name=f"jvp_{program.name}", inputs=(*program.inputs, *tangents))
    return _with_names(full, names, tuple((f"t_{public}", value) for public, value in outputs.items()))


def hessian_vector_product(program: Program, wrt: Sequence[str], *, rules: Sequence[CustomGradient] = ()) -> Program:
    """The Hessian of the cotangents' product with the outputs, times tangents.

    Inputs: those of the program, ``d_<output>`` per public output (1 for a scalar loss), ``t_<name>`` per name in `wrt`.
    Outputs: ``h_<name>`` per name in `wrt`. Errors as `gradient`. Uses that the Hessian is symmetric.
    """
    twice = gradient(gradient(program, wrt, rules=rules), wrt)
    names = {f"d_d_{n}": f"t_{n}" for n in wrt}
    outputs = tuple((f"h_{public.removeprefix('d_')}", value) for public, value in twice.outputs)
    return _with_names(replace(twice, name=f"hvp_{program.name}"), names, outputs)


def _without_inputs(program: Program, dropped: Sequence[str], results: Sequence[str]) -> Program:
    """`program` without inputs whose values do not matter; zeros stand in where an operation still reads one."""
    ops = live_ops(program.ops, [*results, *(n for g in program.gradients for n in g.outputs)])
    read = {name for op in ops for name in used_by(op)} | set(results)
    bare = replace(program, inputs=tuple(p for p in program.inputs if p.name not in dropped), ops=(), outputs=())
    graph = Graph(replace(program, ops=()))
    types = {p.name: p.type for p in program.inputs}
    zeros = {n: graph.zeros(types[n]) for n in dropped if n in read}
    return replace(bare, ops=(*graph.ops, *(renamed(op, zeros) for op in ops)))


def _with_names(program: Program, inputs: Mapping[str, str], outputs: tuple[tuple[str, str], ...]) -> Program:
    """Rename inputs; a value that has one of the new names already gives way."""
    clashes = [p.name for p in program.inputs if p.name in inputs.values()]
    if clashes:
        message = f"input {clashes[0]} has the name of a tangent"
        raise TileTypeError(Diagnostic("TILE-E803", message, hint="rename the input"))
    taken = set(program.types()) | set(inputs.values())
    names = dict(inputs)
    for value in program.types():
        if value in inputs.values() and value not in inputs:
            names[value] = claim(value, taken)
    params = tuple(replace(p, name=names.get(p.name, p.name)) for p in program.inputs)
    renamed_ops = tuple(renamed(op, names) for op in program.ops)
    public = tuple((o, names.get(v, v)) for o, v in outputs)
    rules = tuple(renamed_gradient(g, names) for g in program.gradients)
    return replace(program, inputs=params, ops=renamed_ops, outputs=public, gradients=rules)
