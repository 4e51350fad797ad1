"""Sorting many short rows: along columns of a copy, so that lanes of vectors have a row each.

Rows shorter than vectors leave most lanes idle, and what a network puts in order within a row is in different lanes;
columns side by side take every step at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from tile_ir.frozen import frozen
from tile_ir.names import claim
from tile_ir.program.nodes import Argsort, Gather, Lookup, Op, Program, TensorType, coordinates

from tile_opt.program.base import Rewrite
from tile_opt.program.in_order import is_in_order
from tile_opt.program.permutations import permuted


@frozen
class ShortSorts(Rewrite):
    """Sort rows of fewer than `bytes` bytes, of which there are at least `rows`, along the first dimension of a copy; and those
    of up to `length` elements of which all or more than `few` are wanted; of `single` where elements are bytes, which one pass
    puts in order that counts their values."""

    bytes: int = 64
    rows: int = 8
    length: int = 0
    few: int = 32
    single: int = 256

    def apply(self, program: Program) -> Program:
        types, taken = program.types(), set(program.types())
        sorts: dict[str, _Columns] = {}
        ops: list[Op] = []
        for op in program.ops:
            if isinstance(op, Argsort) and self._suits(op, types):
                sorts[op.name] = _Columns(op, types[op.arg], claim(f"{op.arg}_columns", taken), claim(op.name, taken))
                ops += sorts[op.name].places()
            elif isinstance(op, Gather) and (found := _taken(op, sorts)) is not None:
                ops += found.elements(op, claim(op.name, taken))
            else:
                ops.append(op)
        return replace(program, ops=tuple(ops)) if sorts else program

    def _suits(self, op: Argsort, types: Mapping[str, TensorType]) -> bool:
        type = types[op.arg]
        length = type.shape[-1] if type.shape else 0
        many = op.type.shape == type.shape or op.type.shape[-1:] > (self.few,)
        most = self.length if type.dtype.bytes > 1 else min(self.length, self.single)
        short = length * type.dtype.bytes < self.bytes or (many and length <= most)
        return op.axis == len(type.shape) - 1 and short and length > 1 and prod(type.shape[:-1]) >= self.rows


@dataclass(frozen=True, slots=True)
class _Columns:
    """A sort, the copy of what it sorts that has rows as columns, and the places there."""

    op: Argsort
    type: TensorType
    copy: str
    found: str

    def places(self) -> tuple[Op, ...]:
        """The copy, the places in its columns, and these as rows."""
        rank = len(self.type.shape)
        copy = permuted(self.copy, self.op.arg, self.type, (rank - 1, *range(rank - 1)), self.op)
        columns = TensorType(self.op.type.dtype, self._column_shape)
        found = replace(self.op, name=self.found, type=columns, arg=self.copy, axis=0)
        return copy, found, self._rows(self.op.name, found)

    def elements(self, op: Gather, name: str) -> tuple[Op, ...]:
        """The sorted elements, as columns and as rows."""
        cell = coordinates(len(self.type.shape))
        columns = TensorType(op.type.dtype, self._column_shape)
        sorted_ = Gather(name, columns, self.copy, (Lookup(self.found, cell), *cell[1:]), op.origin)
        return sorted_, self._rows(op.name, sorted_)

    def _rows(self, name: str, columns: Argsort | Gather) -> Op:
        rank = len(self.type.shape)
        return permuted(name, columns.name, columns.type, (*range(1, rank), 0), columns)

    @property
    def _column_shape(self) -> tuple[int, ...]:
        shape = self.op.type.shape
        return (shape[-1], *shape[:-1])


def _taken(op: Gather, sorts: Mapping[str, _Columns]) -> _Columns | None:
    """The sort whose own elements are fetched in its order."""
    return next((sort for sort in sorts.values() if is_in_order(op, sort.op)), None)
