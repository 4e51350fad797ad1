"""Gradients of contractions.

Every derivative aggregates over the *same domain* as the contraction: its indexes and all its constraints, those of
the operands that the derivative no longer reads included. The operand's formulas become the output's, its shape
the output's shape, so cells that were never read get 0.
"""

from __future__ import annotations

from collections.abc import Callable

from tile_ir.dtype import DType
from tile_ir.ops import Aggregation
from tile_ir.program.macros import literal
from tile_ir.program.nodes import Contraction, Operand, Poly, TensorLoad, TensorType

from tile_autodiff._emit import Body, Graph
from tile_autodiff._seeds import SEEDS
from tile_autodiff.rules import RULES, Site

Target = tuple[str, tuple[Poly, ...]]
Gradients = list[tuple[str, str]]
"""(value, its derivative) pairs."""


def contraction_gradients(graph: Graph, op: Contraction, dout: str, active: Callable[[str], bool]) -> Gradients:
    """The derivatives of the active tensors that `op` reads, given the derivative `dout` of its result."""
    found: Gradients = []
    if op.default is not None and active(op.default):
        found.append((op.default, _default_gradient(graph, op, dout)))
    body = Body(op, graph)
    targets = _targets(op, active)
    if not targets or not body.dtype(op.result).is_float:
        return found
    seed = SEEDS[op.agg](body, dout)
    for (tensor, formulas), loads in targets.items():
        fork = body.fork()
        result = _reverse(fork, op, seed, loads)
        if result is not None:
            name = _as_broadcast(fork, op, result, dout, (tensor, formulas))
            name = name or fork.contraction(op, result, formulas, graph.types[tensor], Aggregation.SUM)
            found.append((tensor, name))
    return found


def _as_broadcast(body: Body, op: Contraction, result: Operand, dout: str, target: Target) -> str | None:
    """`dout` reshaped and stretched, if that is all the derivative does (a plain sum over axes): it fuses better."""
    graph, shape = body.graph, body.graph.types[target[0]].shape
    if not isinstance(result, str) or not body.reads_only(result, dout, op.output):
        return None
    axes = _axes(target[1])
    places = _axes(op.output)
    if axes is None or places is None or sorted(axes) != sorted(op.indexes) or not set(places) <= set(axes):
        return None
    sizes = dict(zip(axes, shape, strict=True))
    if any(len(c.formula.terms) != 1 or (c.formula, c.size) not in _ranges(sizes) for c in op.constraints):
        return None
    if [a for a in axes if a in places] != places or [sizes[a] for a in places] != list(op.type.shape):
        return None
    kept = tuple(sizes[a] if a in places else 1 for a in axes)
    name = graph.stretched(graph.reshaped(dout, kept), shape)
    cast = graph.cast(name, graph.dtype(target[0]))
    return cast if isinstance(cast, str) else None


def _axes(formulas: tuple[Poly, ...]) -> list[str] | None:
    """The index of every formula, if they are distinct bare indexes."""
    names = [f.terms[0][0] for f in formulas if f.terms]
    bare = len(names) == len(formulas) and all(f == Poly.of({n: 1}) for f, n in zip(formulas, names, strict=True))
    return names if bare and len(set(names)) == len(names) else None


def _ranges(sizes: dict[str, int]) -> set[tuple[Poly, int]]:
    return {(Poly.of({n: 1}), size) for n, size in sizes.items()}


def _targets(op: Contraction, active: Callable[[str], bool]) -> dict[Target, list[TensorLoad]]:
    """Active loads by tensor and formulas: equal ones have one gradient."""
    found: dict[Target, list[TensorLoad]] = {}
    for load in op.loads:
        if isinstance(load.tensor, str) and active(load.tensor):
            found.setdefault((load.tensor, load.formulas), []).append(load)
    return found


def _reverse(body: Body, op: Contraction, seed: Operand, loads: list[TensorLoad]) -> Operand | None:
    """The derivative of the aggregated value with respect to some loads of one element, times the seed."""
    wanted = {load.dst for load in loads}
    varied = set(wanted)
    for s in op.body:
        if s.dtype.is_float and not varied.isdisjoint(a for a in s.args if isinstance(a, str)):
            varied.add(s.dst)
    parts: dict[Operand, list[Operand]] = {op.result: [seed]}
    for s in reversed(op.body):
        if s.dst not in varied or s.dst not in parts:
            continue
        site = Site(body, s.args, s.dst, body.total(parts.pop(s.dst), s.dtype))
        for position, arg in enumerate(s.args):
            if arg in varied:
                share = RULES[s.fn].apply(site, position)
                if share is not None:
                    parts.setdefault(arg, []).append(share)
    shares = [share for dst in dict.fromkeys(load.dst for load in loads) for share in parts.get(dst, [])]
    if not shares:
        return None
    dtype = body.dtype(loads[0].dst)
    return _unrounded(body, body.total(shares, dtype), dtype)


def _unrounded(body: Body, value: Operand, dtype: DType) -> Operand:
    """Without a last cast from the accumulator's dtype: the sum rounds once, at its end."""
    for s in body.statements:
        if s.dst == value and s.fn == "cast" and body.dtype(s.args[0]) is dtype.accumulator:
            return s.args[0]
    return value


# --- default -------------------------------------------------------------------------------------------------------


def _default_gradient(graph: Graph, op: Contraction, dout: str) -> str:
    """`dout` where no valid tuple writes."""
    body = Body(op, graph)
    covered = TensorType(DType.INT32, op.type.shape)
    count = body.contraction(op, literal(1, DType.INT32), op.output, covered, Aggregation.MAX)
    dtype = op.type.dtype
    empty = graph.emit("cmp_eq", (count, literal(0, DType.INT32)), DType.BOOL)
    result = graph.emit("cond", (empty, dout, literal(0, dtype)), dtype)
    assert isinstance(result, str)
    return result
