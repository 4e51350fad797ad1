"""How partial results of a chunk are combined: by an aggregate, or as sums below largest elements.

A row's largest element m and sums S of ``exp(x - m) * v`` stand side by side in one array. Those of two parts of the row give
those of both, whatever the parts are: ``m = max(p, q)``, ``S = exp(p - m) * P + exp(q - m) * Q``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from tile_ir.dtype import DType
from tile_ir.names import claim
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import Elementwise, Gather, IndexOf, Literal, Op, Operand, Param, TensorType, coordinates

from tile_dask.partitions.chunks import Grid

FAN = 4
"""Partial results that one task combines."""


@dataclass(frozen=True, slots=True)
class Below:
    """The first cell along the last axis is a largest element; the others are sums weighted below it."""

    largest: str
    """What it is of the whole row."""
    sums: tuple[str, ...]
    lowest: float
    """Taken for the largest of elements that are all -inf."""

    def __str__(self) -> str:
        return f"{self.largest} and the sums below it ({', '.join(self.sums)}), of each part of a row once; a tree merges them."


Merge = Aggregation | Below


@dataclass(frozen=True, slots=True)
class Cascade:
    """An array of rows' largest elements and sums below them, and how it is cut."""

    merge: Below
    grid: Grid
    cuts: Mapping[str, tuple[int, ...]]
    """Sizes of the parts of rows; empty for whole rows."""
    reduced: Mapping[str, tuple[str, ...]]
    """The index along the row of each reduction that takes a part of it."""
    inner: frozenset[str]
    """Values that a task has of its part of a row."""


def merged(merge: Merge, parts: Sequence[Param]) -> tuple[list[Op], str]:
    """The operations that combine partial results, in order, and the name of the result."""
    if isinstance(merge, Below):
        return _Merging(merge, parts).made()
    names = [parts[0].name, *(f"S{n}" for n in range(1, len(parts)))]
    made = zip(names, parts[1:], names[1:], strict=False)
    return [Elementwise(new, part.type, merge.op, (last, part.name)) for last, part, new in made], names[-1]


@dataclass(slots=True)
class _Merging:
    merge: Below
    parts: Sequence[Param]
    ops: list[Op] = field(default_factory=list[Op])
    taken: set[str] = field(default_factory=set[str])

    def made(self) -> tuple[list[Op], str]:
        self.taken |= {p.name for p in self.parts}
        type = self.parts[0].type
        column = TensorType(type.dtype, (*type.shape[:-1], 1))
        firsts = [self._first(p.name, column) for p in self.parts]
        largest = firsts[0]
        for first in firsts[1:]:
            largest = self._op("max", column, largest, first)
        pivot = self._pivot(largest, column)
        total = ""
        for first, part in zip(firsts, self.parts, strict=True):
            apart = self._op("sub", column, self._pivot(first, column), pivot)
            term = self._op("mul", type, self._op("exp", column, apart), part.name)
            total = self._op("add", type, total, term) if total else term
        return self.ops, self._with_first(total, largest, type)

    def _first(self, part: str, column: TensorType) -> str:
        name = claim("M", self.taken)
        self.ops.append(Gather(name, column, part, coordinates(len(column.shape))))
        return name

    def _pivot(self, largest: str, column: TensorType) -> str:
        """What exponentials are taken below."""
        none = self._op("cmp_eq", TensorType(DType.BOOL, column.shape), largest, Literal(-inf, column.dtype))
        return self._op("cond", column, none, Literal(self.merge.lowest, column.dtype), largest)

    def _with_first(self, sums: str, largest: str, type: TensorType) -> str:
        axis, numbers = claim("I", self.taken), TensorType(DType.INT32, type.shape)
        self.ops.append(IndexOf(axis, numbers, len(type.shape) - 1))
        first = self._op("cmp_eq", TensorType(DType.BOOL, type.shape), axis, Literal(0, DType.INT32))
        return self._op("cond", type, first, largest, sums)

    def _op(self, fn: str, type: TensorType, *args: Operand) -> str:
        name = claim("S", self.taken)
        self.ops.append(Elementwise(name, type, fn, args))
        return name
