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
from tile_ir.stripe.affine import Affine, Quasi
from tile_ir.stripe.nodes import Block, Const, Direction, Load, LoadIndex, Op, Order, Refinement, Store
from tile_ir.stripe.view import View

Array = npt.NDArray[Any]
Number = int | Array
"""An int64 that is the same at all points, or one for each."""
Bounded = tuple[Number, int, int]
"""Values, and numbers that none of them is below, or above."""
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

    def chunks(self) -> Iterator[Points]:
        """CHUNK points of the box each, as far as they meet the constraints; none without points."""
        total = prod(self.ranges)
        for start in range(0, total, CHUNK):
            points = Points(self, start, min(total, start + CHUNK) - start)
            if points.count:
                yield points

    def points(self) -> Iterator[dict[str, int]]:
        """Index values of each point."""
        for points in self.chunks():
            columns = [_column(value, points.count) for value in points.values.values()]
            for row in zip(*columns, strict=True) if columns else [()] * points.count:
                yield dict(zip(self.names, row, strict=True))

    def distinct(self, forms: tuple[Quasi, ...]) -> Iterator[list[int]]:
        """The values that `forms` take together over the points; a tuple may recur, but not within a chunk."""
        for points in self.chunks():
            columns = [_column(points.at(form)[0], points.count) for form in forms]
            yield from np.unique(np.array(columns).T, axis=0).tolist() if columns else [[]]


class Points:
    """`count` points of a domain, in iteration order: those of a part of its box that meet the constraints."""

    __slots__ = ("_domain", "_kept", "_part", "_places", "count")

    def __init__(self, domain: Domain, start: int, count: int) -> None:
        self._domain, self._part, self.count = domain, (start, count), count
        self._places = {name: n for n, name in enumerate(domain.names)}
        self._kept: Array | None = None
        """Numbers of those of the box that meet the constraints; None for all."""
        for form in domain.constraints:
            if self.count:
                self._restrict(form)

    def _restrict(self, form: Quasi) -> None:
        """To those where the form is not negative."""
        value, low, high = self.at(form)
        if low >= 0:
            return
        kept = (value >= 0).nonzero()[0] if high >= 0 and isinstance(value, np.ndarray) else _NONE
        self._kept = kept if self._kept is None else self._kept[kept]
        self.count = len(kept)

    def at(self, form: Quasi) -> Bounded:
        """The values of a form. Its arithmetic is the same for arrays as for integers."""
        if not isinstance(form, Affine):
            return _bounded(form.evaluate(cast("Mapping[str, int]", self.values)))
        domain, fixed, factors = self._domain, form.const, [0] * len(self._places)
        for name, factor in form.terms:
            n = self._places[name]
            fixed += factor * domain.first[n]
            factors[n] = factor
        value, low, high = _walk(domain.ranges, *self._part, tuple(factors))
        if self._kept is not None and isinstance(value, np.ndarray):
            value = value[self._kept]
        return value + fixed if fixed else value, low + fixed, high + fixed

    @property
    def values(self) -> dict[str, Number]:
        """Index values by name: of an index of one iteration a number, of others an array."""
        return {name: self.at(Affine.var(name))[0] for name in self._domain.names}


_NONE = np.empty(0, np.intp)


def _walk(ranges: tuple[int, ...], start: int, count: int, factors: tuple[int, ...]) -> Bounded:
    """The sum of coordinates in a box times factors, at `count` points from point `start` on; nobody writes to it."""
    return (_small_walk if count <= SMALL else _new_walk)(ranges, start, count, factors)


def _new_walk(ranges: tuple[int, ...], start: int, count: int, factors: tuple[int, ...]) -> Bounded:
    total: Number = 0
    for part, size, factor in zip(_box(ranges, start, count), ranges, factors, strict=True):
        if factor and size != 1:
            total = total + (part if factor == 1 else part * factor)
    ends = [factor * (size - 1) for factor, size in zip(factors, ranges, strict=True)]
    return total, sum(e for e in ends if e < 0), sum(e for e in ends if e > 0)


_small_walk = lru_cache(4096)(_new_walk)


def _bounded(value: Number) -> Bounded:
    if isinstance(value, np.ndarray):
        return value, int(np.minimum.reduce(value)), int(np.maximum.reduce(value))
    return value, value, value


def _box(ranges: tuple[int, ...], start: int, count: int) -> tuple[Array, ...]:
    """The coordinates in a box of `count` points, in order, from point `start` on; nobody writes to them."""
    return _small_box(ranges, start, count) if count <= SMALL else _new_box(ranges, start, count)


def _new_box(ranges: tuple[int, ...], start: int, count: int) -> tuple[Array, ...]:
    return np.unravel_index(np.arange(start, start + count), ranges) if ranges else ()


_small_box = lru_cache(1024)(_new_box)


def _column(value: Number, count: int) -> list[int]:
    return value.tolist() if isinstance(value, np.ndarray) else [value] * count


_FLAT = (Load, Store, Const, LoadIndex, Op)


def run_leaf(block: Block, parents: Mapping[str, View], domain: Domain) -> str | None:
    """Run the block if it is a leaf of the supported kind: "" when done, else what went wrong; None if it is not."""
    if not block.indexes or not _supported(block, parents):
        return None
    refs = {ref.into: ref for ref in block.refs}
    for points in domain.chunks():
        if fault := _Chunk(refs, parents, points.count, points, {}).run(block):
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
    points: Points
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
                        self._broadcast(np.asarray(self.points.at(value)[0], np.int64)), dtype
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
            subscript, least, most = self._subscript(at[d], size if clamp else 0) if at else (0, 0, 0)
            access, low, high = self.points.at(ref.access[d])
            position = access + (parent.origin[d] + subscript)
            positions.append(position)
            low, high = low + parent.origin[d] + least, high + parent.origin[d] + most
            for value, first, last, start, end in (
                (subscript, least, most, 0, size),
                (position, low, high, parent.low[d], parent.high[d]),
            ):
                if not ((start <= first and last < end) or _within(value, start, end)):
                    outside.append(self._broadcast(np.asarray((value < start) | (value >= end))))
        return self._fault(ref, parent, positions, outside) if outside else tuple(positions)

    def _subscript(self, at: Quasi | str, size: int) -> Bounded:
        """Its values, clamped into a dimension of `size` elements where that is given."""
        value, low, high = (
            self.points.at(at) if not isinstance(at, str) else _bounded(self.scalars[at].astype(np.int64))
        )
        if not size or (low >= 0 and high < size):
            return value, low, high
        # `np.clip` looks up the limits of the dtype each time.
        inside: Any = np.minimum(np.maximum(value, 0), size - 1)
        return inside, min(max(low, 0), size - 1), min(max(high, 0), size - 1)

    def _fault(self, ref: Refinement, parent: View, positions: list[Number], outside: list[Array]) -> str:
        row = int(np.logical_or.reduce(outside).argmax())
        element = [_column(p, self.count)[row] for p in positions]
        limits = ", ".join(f"{low}:{high}" for low, high in zip(parent.low, parent.high, strict=True))
        point = ", ".join(f"{name}={_column(values, self.count)[row]}" for name, values in self.points.values.items())
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
