"""The rows of a scatter: which one falls last on each cell, and where in the updates it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import Gather, IndexOf, Lookup, Poly, Scatter, Subscript, TensorType, coordinates

from tile_opt.program.steps import Steps


@frozen
class ScatterRows:
    """Coordinates of the updates: those that a coordinate of the result shows as they are, and all others, the rows."""

    cells: tuple[int, ...]
    shown: dict[int, int]
    """Coordinate of the updates -> that of the result."""
    beside: frozenset[int]
    """Of the shown ones those that nothing else depends on: one row is written along all of them."""

    @staticmethod
    def of(op: Scatter, cells: tuple[int, ...]) -> ScatterRows:
        data = [n for s in op.subscripts for f in (s.formulas if isinstance(s, Lookup) else (s,)) for n in f.names]
        plain = {f: k for k, f in enumerate(coordinates(len(cells)))}
        shown = {
            plain[s]: k
            for k, (s, n) in enumerate(zip(op.subscripts, op.type.shape, strict=True))
            if isinstance(s, Poly) and s in plain and cells[plain[s]] == n
        }
        return ScatterRows(cells, shown, frozenset(d for d in shown if data.count(f"i{d}") == 1))

    @property
    def numbered(self) -> list[int]:
        """Coordinates that number the rows."""
        return [d for d in range(len(self.cells)) if d not in self.shown]

    @property
    def kept(self) -> list[int]:
        """Coordinates that rows are found by."""
        return [d for d in range(len(self.cells)) if d not in self.beside]

    def last(self, op: Scatter, steps: Steps) -> str:
        """For each cell the number of the last row, of those that agree in all shown coordinates; 1 along the others."""
        return self._largest(op, steps, self._numbers(steps))

    def there(self, op: Scatter, steps: Steps) -> str:
        """The same with 1 for each cell that some row falls on, else 0."""
        cells = steps.cells(tuple(self.cells[d] for d in self.kept))
        return self._largest(op, steps, cells.store(cells.number(1, DType.UINT32)))

    def _largest(self, op: Scatter, steps: Steps, numbers: str) -> str:
        along = {self.shown[d] for d in self.beside}
        subscripts = self._kept_alone(op)
        cells = tuple(1 if k in along else n for k, n in enumerate(op.type.shape))
        type = TensorType(DType.UINT32, cells)
        return steps.add(Scatter(steps.name(), type, numbers, subscripts, Aggregation.MAX, None, op.origin))

    def _numbers(self, steps: Steps) -> str:
        """The number of each row among those that agree in all shown coordinates, from 1 on."""
        type = TensorType(DType.INT32, tuple(self.cells[d] for d in self.kept))
        indexes = [steps.add(IndexOf(steps.name(), type, self.kept.index(d), steps.origin)) for d in self.numbered]
        cells = steps.cells(type.shape)
        total = cells.number(1, DType.INT32)
        for d, index in zip(self.numbered, indexes, strict=True):
            total = cells.load(index) * self._step(d) + total
        return cells.store(total.cast(DType.UINT32))

    def found(self, steps: Steps, last: str) -> tuple[Subscript, ...]:
        """Where in the updates the rows of these numbers are."""
        sizes = steps.type(last).shape
        cell = tuple(f if n > 1 else Poly() for f, n in zip(coordinates(len(sizes)), sizes, strict=True))
        rows = {d: Lookup(self._coordinate(steps, last, d), cell) for d in self.numbered}
        return tuple(rows[d] if d in rows else coordinates(len(sizes))[self.shown[d]] for d in range(len(self.cells)))

    def meeting(self, op: Scatter, steps: Steps, last: str) -> tuple[Subscript, ...]:
        """For each cell of the updates where in them the last row is that falls on the same cell of the result."""
        type = TensorType(DType.UINT32, tuple(self.cells[d] for d in self.kept))
        mine = steps.add(Gather(steps.name(), type, last, self._kept_alone(op), op.origin))
        cell = tuple(coordinates(len(self.cells))[d] for d in self.kept)
        rows = {d: Lookup(self._coordinate(steps, mine, d), cell) for d in self.numbered}
        return tuple(rows.get(d, f) for d, f in enumerate(coordinates(len(self.cells))))

    def _kept_alone(self, op: Scatter) -> tuple[Subscript, ...]:
        """The result's subscripts in the coordinates that are kept, 0 along the others."""
        along = {self.shown[d] for d in self.beside}
        return tuple(Poly() if k in along else self._renamed(s) for k, s in enumerate(op.subscripts))

    def _coordinate(self, steps: Steps, last: str, row: int) -> str:
        """The coordinate of the rows of these numbers."""
        cells, step, size = steps.cells(steps.type(last).shape), self._step(row), self.cells[row]
        # Where no row is, 0 becomes the largest number, and the gather takes what it likes.
        number = cells.load(last) - 1
        above = number // step if step > 1 else number
        return cells.store(above - above // size * size if row != self.numbered[0] else above)

    def _step(self, row: int) -> int:
        return prod(self.cells[d] for d in self.numbered if d > row)

    def _renamed(self, subscript: Subscript) -> Subscript:
        """In the coordinates of the kept ones alone."""
        names = {f"i{d}": f"i{k}" for k, d in enumerate(self.kept)}
        if isinstance(subscript, Lookup):
            return replace(subscript, formulas=tuple(_with_names(f, names) for f in subscript.formulas))
        return _with_names(subscript, names)


def _with_names(formula: Poly, names: Mapping[str, str]) -> Poly:
    return Poly.of({names[n]: c for n, c in formula.terms}, formula.const)
