"""Mutable variables as values: where control flow meets again, a phi chooses among what they hold.

LLVM would find the same from stack slots; the text is twice as long then, and promoting them a pass of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tile_ir.emit.walker import blocks
from tile_ir.semtree.nodes import Assign, Block, Statement

from hal_llvm.emit.code import Code
from hal_llvm.emit.expressions import Scope, Variable

Assigned = Mapping[int, tuple[str, ...]]
"""For each block, by identity, the names that statements below it assign."""


def assigned_below(body: Block) -> Assigned:
    """`Assigned` of a function's body and the blocks in it; those without assignments are left out."""
    order: list[tuple[Block, int]] = []
    """Each block with the identity of the one around it, outer ones first."""
    found: dict[int, dict[str, None]] = {}
    todo: list[tuple[Statement, int]] = [(body, 0)]
    while todo:
        statement, around = todo.pop()
        if isinstance(statement, Assign):
            found.setdefault(around, {})[statement.name] = None
        for block in (statement,) if isinstance(statement, Block) else blocks(statement):
            order.append((block, around))
            todo += [(s, id(block)) for s in block.body]
    for block, around in reversed(order):
        if id(block) in found:
            found.setdefault(around, {}).update(found[id(block)])
    return {block: tuple(names) for block, names in found.items()}


@dataclass(slots=True)
class Edge:
    """What some variables hold where control leaves a basic block."""

    label: str
    values: tuple[str, ...]


class Carried:
    """The variables in sight that some blocks assign."""

    def __init__(self, code: Code, scope: Scope, assigned: Assigned, inside: Iterable[Block]) -> None:
        names = dict.fromkeys(name for block in inside for name in assigned.get(id(block), ()))
        found = [scope.values.get(name) for name in names]
        self._code = code
        self._variables = [v for v in found if isinstance(v, Variable)]
        self._places: list[tuple[int, str]] = []

    def edge(self) -> Edge:
        """Here control leaves the current basic block."""
        return Edge(self._code.label, tuple(v.value for v in self._variables))

    def back_to(self, edge: Edge) -> None:
        """The variables hold what they held at `edge`."""
        for variable, value in zip(self._variables, edge.values, strict=True):
            variable.value = value

    def join(self, *edges: Edge) -> None:
        """At the start of a basic block, which control enters along `edges`."""
        for n, variable in enumerate(self._variables):
            first, *others = (edge.values[n] for edge in edges)
            same = all(value == first for value in others)
            variable.value = first if same else self._code.let(_phi(variable, n, edges))

    def loop(self) -> None:
        """At the start of a basic block that control enters again, along edges that `close` gives."""
        for variable in self._variables:
            variable.value = self._code.fresh("%p")
            self._places.append((self._code.reserve(), variable.value))

    def close(self, *edges: Edge) -> None:
        """All edges into the block that `loop` began."""
        for n, (variable, (place, name)) in enumerate(zip(self._variables, self._places, strict=True)):
            self._code.fill(place, f"{name} = {_phi(variable, n, edges)}")


def _phi(variable: Variable, number: int, edges: Iterable[Edge]) -> str:
    choices = ", ".join(f"[ {edge.values[number]}, %{edge.label} ]" for edge in edges)
    return f"phi {variable.llvm_type} {choices}"
