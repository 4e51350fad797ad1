"""Permutations behind permutations: one is enough, and none where they undo each other.

Front ends transpose what their users transposed already: the gradient of ``x @ w.T`` reads the transposed transpose of w.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tile_ir.frozen import frozen
from tile_ir.names import claim
from tile_ir.ops import Aggregation
from tile_ir.program.copies import copied
from tile_ir.program.nodes import (
    Argsort,
    Contraction,
    Elementwise,
    Gather,
    Op,
    Program,
    TensorLoad,
    TensorType,
    coordinates,
)
from tile_ir.program.rename import renamed

from tile_opt.program.base import Rewrite

Order = tuple[int, ...]


@frozen
class ComposePermutations(Rewrite):
    """A copy with its dimensions in another order reads what the copies before it read, and is not made where that is itself."""

    def apply(self, program: Program) -> Program:
        types, origins, same = program.types(), dict[str, tuple[str, Order]](), dict[str, str]()
        ops: list[Op] = []
        for op in program.ops:
            made = renamed(op, same) if same else op
            order = order_of(made, types)
            if order is None or not isinstance(made, Contraction):
                ops.append(made)
                continue
            source = str(made.loads[0].tensor)
            origin, before = origins.get(source, (source, tuple(range(len(order)))))
            combined = tuple(before[d] for d in order)
            if combined == tuple(range(len(order))):
                same[made.name] = origin
                continue
            origins[made.name] = origin, combined
            read = reading(made.loads[0], origin, before)
            ops.append(made if origin == source else replace(made, loads=(read,)))
        if not same and all(made is op for made, op in zip(ops, program.ops, strict=False)):
            return program
        outputs = tuple((public, same.get(value, value)) for public, value in program.outputs)
        return replace(program, ops=tuple(ops), outputs=outputs)


def order_of(op: Op, types: Mapping[str, TensorType]) -> Order | None:
    """Which dimension of its operand each dimension of a result is, where it is a whole copy of that; else None."""
    if not isinstance(op, Contraction) or op.agg is not Aggregation.ASSIGN or len(op.loads) != 1 or op.body:
        return None
    (load,) = op.loads
    source = types[load.tensor] if isinstance(load.tensor, str) else None
    if source is None or source.dtype is not op.type.dtype or op.default is not None or op.result != load.dst:
        return None
    place = {form.index: d for d, form in enumerate(load.formulas)}
    names = [form.index for form in op.output]
    if None in place or len(place) != len(source.shape) or len(names) != len(place) or {*names} != place.keys():
        return None
    order = tuple(place[name] for name in names)
    whole = op.type.shape == tuple(source.shape[d] for d in order)
    limits = [(place.get(c.formula.index), c.size) for c in op.constraints]
    free = all(d is not None and size >= source.shape[d] for d, size in limits)
    return order if whole and free else None


def walks_whole(op: Contraction, sizes: Mapping[str, int], types: Mapping[str, TensorType]) -> bool:
    """Every subscript is an index of its own, of which there are so many iterations, over the whole dimension."""
    if any(c.formula.index is None for c in op.constraints):
        return False
    places = [(load.formulas, types[load.tensor].shape) for load in op.loads if isinstance(load.tensor, str)]
    return len(places) == len(op.loads) and all(
        len(set(forms)) == len(forms) and all(sizes.get(f.index or "") == n for f, n in zip(forms, shape, strict=True))
        for forms, shape in (*places, (op.output, op.type.shape))
    )


def reading(load: TensorLoad, origin: str, order: Order) -> TensorLoad:
    """The same element where it was copied from, with the dimensions in this order."""
    formulas = dict(zip(order, load.formulas, strict=True))
    return replace(load, tensor=origin, formulas=tuple(formulas[d] for d in range(len(order))))


def permuted(
    name: str, source: str, type: TensorType, order: Order, reader: Contraction | Elementwise | Argsort | Gather
) -> Contraction:
    """``name[…] = =(source[…])`` with the dimensions of `source` in another order."""
    forms = coordinates(len(type.shape))
    return copied(
        name,
        TensorType(type.dtype, tuple(type.shape[d] for d in order)),
        tuple(forms[d] for d in order),
        source,
        forms,
        zip(forms, type.shape, strict=True),
        text=f"{name}: {source} with its dimensions in the order {', '.join(map(str, order))}",
        origin=reader.origin,
    )


@dataclass(slots=True)
class PermutedCopies:
    """Copies of values of a program with their dimensions in other orders, each made once, in front of its first reader."""

    types: Mapping[str, TensorType]
    suffix: str
    """What the name of a copy has behind that of what is copied."""
    taken: set[str]
    """Names of the program."""
    made: dict[tuple[str, Order], str] = field(default_factory=dict[tuple[str, Order], str])

    def read(self, load: TensorLoad, order: Order | None, reader: Contraction, copies: list[Op]) -> TensorLoad:
        """`load` from the copy in that order, which joins `copies` where there was none; without an order as it is."""
        if order is None:
            return load
        source = str(load.tensor)
        if (source, order) not in self.made:
            name = self.made[source, order] = claim(f"{source}{self.suffix}", self.taken)
            copies.append(permuted(name, source, self.types[source], order, reader))
        return replace(load, tensor=self.made[source, order], formulas=tuple(load.formulas[d] for d in order))
