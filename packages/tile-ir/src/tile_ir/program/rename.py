"""Renaming the values of an operation, for linking programs together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from tile_ir.names import claim
from tile_ir.program.liveness import defined_by
from tile_ir.program.nodes import (
    Argsort,
    ConstantTensor,
    Contraction,
    CustomGradient,
    Elementwise,
    Gather,
    IndexOf,
    Lookup,
    Loop,
    Op,
    Operand,
    Prng,
    Reshape,
    Scatter,
    Subscript,
)


def renamed(op: Op, names: Mapping[str, str]) -> Op:
    """`op` with every value it defines or reads renamed; names that `names` lacks stay."""

    def new(name: str) -> str:
        return names.get(name, name)

    def operand(value: Operand) -> Operand:
        return new(value) if isinstance(value, str) else value

    def subscripts(given: tuple[Subscript, ...]) -> tuple[Subscript, ...]:
        return tuple(replace(s, tensor=new(s.tensor)) if isinstance(s, Lookup) else s for s in given)

    match op:
        case Contraction():
            loads = tuple(replace(load, tensor=operand(load.tensor)) for load in op.loads)
            default = None if op.default is None else new(op.default)
            return replace(op, name=new(op.name), loads=loads, default=default)
        case Elementwise():
            return replace(op, name=new(op.name), args=tuple(operand(a) for a in op.args))
        case Reshape() | Argsort():
            return replace(op, name=new(op.name), arg=new(op.arg))
        case Gather():
            return replace(op, name=new(op.name), data=new(op.data), subscripts=subscripts(op.subscripts))
        case Scatter():
            default = None if op.default is None else new(op.default)
            known = subscripts(op.subscripts)
            return replace(op, name=new(op.name), updates=new(op.updates), subscripts=known, default=default)
        case Prng():
            return replace(op, value=new(op.value), state=new(op.state), seed=new(op.seed))
        case Loop():
            groups = ("results", "carries", "slices", "captured")
            return replace(op, **{group: tuple(map(new, getattr(op, group))) for group in groups})
        case IndexOf() | ConstantTensor():
            return replace(op, name=new(op.name))


def spliced(ops: Iterable[Op], names: dict[str, str], taken: set[str]) -> Iterator[Op]:
    """Operations for another place in a program: what they define gets names that are not `taken`, added to `names`."""
    for op in ops:
        names |= {name: claim(name, taken) for name in defined_by(op)}
        yield renamed(op, names)


def renamed_gradient(rule: CustomGradient, names: Mapping[str, str]) -> CustomGradient:
    """`rule` about renamed values; its backward program has names of its own."""
    inputs, outputs = (tuple(names.get(n, n) for n in group) for group in (rule.inputs, rule.outputs))
    return replace(rule, inputs=inputs, outputs=outputs)
