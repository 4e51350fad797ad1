"""The program of a graph, by its digest: the disk cache is asked for its code without making it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from copy import copy
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING

from tile_ir.diagnostics import NOWHERE, Span, labelled
from tile_ir.program.provenance import origins
from tile_runtime.compose import Composition
from tile_runtime.function import BaseFunction
from tile_runtime.tensor import Tensor
from tile_runtime.typed import program_digest, with_bound

if TYPE_CHECKING:
    from tile_ir.program.nodes import Program, TensorType

Labels = tuple[tuple[str, int], ...]
"""What operations of a program are called, in their order, and how many in a row."""


Make = Callable[[], Composition]


@dataclass(frozen=True, slots=True)
class Summary:
    """What is kept of a program."""

    digest: str
    labels: Labels

    @staticmethod
    def of(program: Program, bound: Set[str]) -> Summary:
        """Of a composition's program, some of whose inputs are bound."""
        names = {number: span.label for number, span in origins(program).items()}
        every = (names.get(k, "") for k in range(max(names, default=-1) + 1))
        labels = tuple((name, sum(1 for _ in group)) for name, group in groupby(every))
        return Summary(program_digest(with_bound(program, bound)), labels)


class Deferred(BaseFunction):
    """A composition that is made only when its code is nowhere, or somebody wants to see it."""

    def __init__(self, inputs: tuple[str, ...], outputs: tuple[str, ...], summary: Summary, make: Make) -> None:
        self.name = "composition"
        self.key = object()
        self.inputs, self.outputs = inputs, outputs
        self._summary = summary
        self._made = cache(make)

    @property
    def program(self) -> Program:
        """The program, made now if it was not."""
        return self._made().program

    @property
    def digest(self) -> str:
        return self._summary.digest

    @property
    def origins(self) -> Mapping[int, Span]:
        names = [label for label, count in self._summary.labels for _ in range(count)]
        return {number: labelled(_NOWHERE, label) for number, label in enumerate(names) if label}

    def bind(self, types: Mapping[str, TensorType]) -> Program:
        return self._made().bind(types)

    def binding(self, tensors: Mapping[str, Tensor]) -> Deferred:
        """The same function with some inputs filled in, as a Composition's `binding`."""
        filled = copy(self)
        filled.bound, filled.key = {**self.bound, **tensors}, object()
        return filled


_NOWHERE = Span(NOWHERE, 0, 0)
Bindable = Composition | Deferred
