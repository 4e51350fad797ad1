"""The interpreter's fast path: a leaf block over its whole index box at once, with the same results.

A flat block (Loads, Const, LoadIndex, Op, Stores) without ORDERED indexes whose stores and loads touch
different buffers means the same when each statement runs for all points before the next one does.
Aggregating stores go through `ufunc.at`, which merges in iteration order as the slow path does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tile_ir import numerics
from tile_ir.frozen import frozen
from tile_ir.stripe.affine import Quasi
from tile_ir.stripe.nodes import Block, Const, Direction, Load, LoadIndex, Op, Order, Refinement, Store
from tile_ir.stripe.view import View

Array = npt.NDArray[Any]
Number = int | Array
"""An int64 that is the same at all points, or one for each."""
CHUNK = 1 << 17
"""Points per vectorised step."""
SMALL = 1 << 10
"""Boxes of so many points are kept: leaves are run again and again, at other places."""


@frozen
class Domain:
    """The index points of a block for one point of its parent, in iteration order."""

    names: tuple[str, ...]
    ranges: tuple[int, ...]
    first: tuple[int, ...]
    constraints: tuple[Quasi, ...]

    @staticmethod
    def of(block: Block, outer: Mapping[str, int]) -> Domain:
        """Ranges and constraints, with the values passed down from the parent's indexes `outer`."""
        return Domain(
            tuple(index.name for index in block.indexes),
            tuple(index.range for index in block.indexes),
            tuple(0 if index.value is None else index.value.evaluate(outer) for index in block.indexes),
            block.constraints,
        )

    def chunks(self) -> Iterator[tuple[int, dict[str, Number]]]:
        """(number of points, their index values by name) of CHUNK points of the box each; none without points.

        The value of an index of one iteration is a number, of others an array of that length.
        """
        total = prod(self.ranges)
        for start in range(0, total, CHUNK):
            count = min(total, start + CHUNK) - start
            parts = zip(self.names, _box(self.ranges, start, count), self.first, self.ranges, strict=True)
            values: dict[str, Number] = {n: f if size == 1 else p + f if f else p for n, p, f, size in parts}
            for form in self.constraints:
                keep = _at(form, values) >= 0
                if isinstance(keep, np.ndarray):
                    count = int(keep.sum())
                    values = {n: v[keep] if isinstance(v, np.ndarray) else v for n, v in values.items()}
                elif not keep:
                    count = 0
                if not count:
                    break
            else:
                yield count, values

    def points(self) -> Iterator[dict[str, int]]:
        """Index values of each point."""
        for count, values in self.chunks():
            columns = [_column(values[name], count) for name in self.names]
            for row in zip(*columns, strict=True) if columns else [()] * count:
                yield dict(zip(self.names, row, strict=True))

    def distinct(self, forms: tuple[Quasi, ...]) -> Iterator[list[int]]:
        """The values that `forms` take together over the points; a tuple may recur, but not within a chunk."""
        for count, values in self.chunks():
            columns = [_column(_at(form, values), count) for form in forms]
            yield from np.unique(np.array(columns).T, axis=0).tolist() if columns else [[]]


def _box(ranges: tuple[int, ...], start: int, count: int) -> tuple[Array, ...]:
    """The coordinates in a box of `count` points, in order, from point `start` on; nobody writes to them."""
    return _small_box(ranges, start, count) if count <= SMALL else _new_box(ranges, start, count)


def _new_box(ranges: tuple[int, ...], start: int, count: int) -> tuple[Array, ...]:
    return np.unravel_index(np.arange(start, start + count), ranges) if ranges else ()


_small_box = lru_cache(1024)(_new_box)


def _column(value: Number, count: int) -> list[int]:
    return value.tolist() if isinstance(value, np.ndarray) else [value] * count


def _at(form: Quasi, values: Mapping[str, Number]) -> Any:
    """A form over arrays of index values: its arithmetic is the same for arrays as for integers."""
    return form.evaluate(cast("Mapping[str, int]", values))


_FLAT = (Load, Store, Const, LoadIndex, Op)


def run_leaf(block: Block, parents: Mapping[str, View], domain: Domain) -> str | None:
    """Run the block if it is a leaf of the supported kind: "" when done, else what went wrong; None if it is not."""
    if not block.indexes or not _supported(block, parents):
        return None
    refs = {ref.into: ref for ref in block.refs}
    for count, values in domain.chunks():
        if fault := _Chunk(refs, parents, count, values, {}).run(block):
            return fault
    return ""


def _supported(block: Block, parents: Mapping[str, View]) -> bool:
    if not all(isinstance(statement, _FLAT) for statement in block.body):
        return False
    if any(index.order is Order.ORDERED for index in block.indexes):
        return False
    if any(ref.dir is Direction.ALLOC or parents[ref.source].versioned for ref in block.refs):
        return False
    refs = {ref.into: ref for ref in block.refs}
    loaded = [parents[refs[s.src].source].data for s in block.body if isinstance(s, Load)]
    stores = [(refs[s.dst], parents[refs[s.dst].source]) for s in block.body if isinstance(s, Store)]
    if any(ref.agg in numerics.AGGREGATION_UFUNCS and view.dtype is not view.dtype.accumulator for ref, view in stores):
        return False
    stored = [view.data for _, view in stores]
    others = [(data, other) for i, data in enumerate(stored) for other in (*loaded, *stored[i + 1 :])]
    return not any(np.may_share_memory(data, other) for data, other in others)


@dataclass(slots=True)
class _Chunk:
    """A run of the body for `count` points at once; every scalar is an array of that length."""

    refs: Mapping[str, Refinement]
    parents: Mapping[str, View]
    count: int
    indexes: Mapping[str, Number]
    scalars: dict[str, Array]

    def run(self, block: Block) -> str:
        for statement in block.body:
            match statement:
                case Load(dst, src, at, clamp):
                    where = self._where(self.refs[src], at, clamp)
                    if isinstance(where, str):
                        return where
                    self.scalars[dst] = self._broadcast(self.parents[self.refs[src].source].data[where])
                case Store(dst, src, at, clamp):
                    where = self._where(self.refs[dst], at, clamp)
                    if isinstance(where, str):
                        return where
                    self._store(self.refs[dst], where, self.scalars[src])
                case Const(dst, value, dtype):
                    self.scalars[dst] = self._broadcast(numerics.cast_array(value, dtype))
                case LoadIndex(dst, value, dtype):
                    self.scalars[dst] = numerics.cast_array(
                        self._broadcast(np.asarray(_at(value, self.indexes), np.int64)), dtype
                    )
                case Op(dst, name, args, dtype):
                    self.scalars[dst] = numerics.apply(name, [self.scalars[arg] for arg in args], dtype)
                case _:
                    raise TypeError(statement)
        return ""

    def _broadcast(self, value: Array) -> Array:
        if value.shape == (self.count,):
            return value
        everywhere = np.empty(self.count, value.dtype)
        everywhere[...] = value
        return everywhere

    def _where(self, ref: Refinement, at: tuple[Quasi | str, ...], clamp: bool) -> tuple[Number, ...] | str:
        """Positions in the buffer per dimension, or what is wrong with the first point outside."""
        parent = self.parents[ref.source]
        positions: list[Number] = []
        outside: list[Array] = []
        for d, size in enumerate(ref.type.sizes):
            subscript = self._subscript(at[d]) if at else 0
            if clamp:
                subscript = np.clip(subscript, 0, size - 1)
            position = _at(ref.access[d], self.indexes) + (parent.origin[d] + subscript)
            positions.append(position)
            for value, low, high in ((subscript, 0, size), (position, parent.low[d], parent.high[d])):
                if not _within(value, low, high):
                    outside.append(self._broadcast(np.asarray((value < low) | (value >= high))))
        return self._fault(ref, parent, positions, outside) if outside else tuple(positions)

    def _subscript(self, at: Quasi | str) -> Number:
        return self.scalars[at].astype(np.int64) if isinstance(at, str) else _at(at, self.indexes)

    def _fault(self, ref: Refinement, parent: View, positions: list[Number], outside: list[Array]) -> str:
        row = int(np.logical_or.reduce(outside).argmax())
        element = [_column(p, self.count)[row] for p in positions]
        limits = ", ".join(f"{low}:{high}" for low, high in zip(parent.low, parent.high, strict=True))
        point = ", ".join(f"{name}={_column(values, self.count)[row]}" for name, values in self.indexes.items())
        return (
            f"{ref.into} is accessed at element {element} of its buffer, outside its view "
            f"{ref.type.sizes} or outside [{limits}] at {point}"
        )

    def _store(self, ref: Refinement, where: tuple[Number, ...], value: Array) -> None:
        data = self.parents[ref.source].data
        value = numerics.cast_array(value, self.parents[ref.source].dtype)
        ufunc = numerics.AGGREGATION_UFUNCS.get(ref.agg) if ref.agg is not None else None
        with np.errstate(all="ignore"):
            if not any(isinstance(position, np.ndarray) for position in where):
                _store_cell(data[(*(slice(p, p + 1) for p in where), ...)], ufunc, value)
            elif ufunc is None:
                data[where] = value
            else:
                ufunc.at(data, cast("tuple[Array, ...]", where), value)


def _within(value: Number, low: int, high: int) -> bool:
    if isinstance(value, np.ndarray):
        return bool(low <= np.minimum.reduce(value) and np.maximum.reduce(value) < high)
    return low <= value < high


def _store_cell(cell: Array, ufunc: np.ufunc | None, value: Array) -> None:
    """Into the one cell of an array, whatever its rank."""
    if ufunc is None:
        cell[...] = value[-1]
    else:
        ufunc.at(cell.reshape(1), np.zeros(len(value), np.intp), value)
