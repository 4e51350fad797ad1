"""Which operations the outputs of a program need: names that operations define and read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from tile_ir.program.nodes import (
    Argsort,
    ConstantTensor,
    Contraction,
    Elementwise,
    Gather,
    IndexOf,
    Loop,
    Op,
    Prng,
    Program,
    Reshape,
    Scatter,
    lookups,
    results_of,
)


def live_ops(ops: Sequence[Op], outputs: Iterable[str]) -> tuple[Op, ...]:
    """The operations that the outputs need, in order."""
    needed = set(outputs)
    kept: list[Op] = []
    for op in reversed(ops):
        if isinstance(op, Elementwise):  # most are
            if op.name in needed:
                kept.append(op)
                needed.update([a for a in op.args if isinstance(a, str)])
        elif not needed.isdisjoint(defined_by(op)):
            kept.append(op)
            needed.update(used_by(op))
    return tuple(reversed(kept))


def defined_by(op: Op) -> tuple[str, ...]:
    """Names that an operation defines."""
    return tuple([name for name, _ in results_of(op)])


def reads(program: Program) -> Counter[str]:
    """How many operands and outputs each value is."""
    return Counter([*(name for op in program.ops for name in used_by(op)), *(value for _, value in program.outputs)])


def used_by(op: Op) -> tuple[str, ...]:
    """Names that an operation reads."""
    match op:
        case Elementwise():
            return tuple([a for a in op.args if isinstance(a, str)])
        case Contraction():
            names = [load.tensor for load in op.loads if isinstance(load.tensor, str)]
            return (*names, op.default) if op.default is not None else tuple(names)
        case Reshape() | Argsort():
            return (op.arg,)
        case Gather():
            return (op.data, *lookups(op.subscripts))
        case Scatter():
            names = (op.updates, *lookups(op.subscripts))
            return (*names, op.default) if op.default is not None else names
        case Prng():
            return (op.seed,)
        case Loop():
            return (*op.carries, *op.slices, *op.captured)
        case IndexOf() | ConstantTensor():
            return ()
