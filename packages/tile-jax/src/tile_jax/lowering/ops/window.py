"""Reductions over windows: pools, running totals, and the scattering back of what pools chose."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np
from tile_ir.dtype import DType
from tile_runtime.ops.moving import reshaped, sliced
from tile_runtime.ops.text import Names, affine, at, contraction, function, names
from tile_runtime.ops.values import Array, Value, apply, dtype_of

from tile_jax.lowering.complexes import is_whole, part_by_part
from tile_jax.lowering.elements import elementwise, full, where
from tile_jax.lowering.op import Op, Shape
from tile_jax.lowering.ops.reduce import everywhere
from tile_jax.lowering.regions import aggregations, by_halves, is_neutral, neutral
from tile_jax.lowering.registry import operation


@dataclass(frozen=True, slots=True)
class Windows:
    """A window over every axis of a tensor: cells, steps, distances of cells, padding, and how far the tensor is spread."""

    shape: Shape
    cells: Shape
    strides: Shape
    dilations: Shape
    spread: Shape
    before: Shape
    places: Shape

    @property
    def at_places(self) -> Names:
        return names(len(self.shape), "y")

    @property
    def at_cells(self) -> Names:
        """Indexes of cells; 0 along axes where a window has one."""
        return tuple(f"k{axis}" if n > 1 else "0" for axis, n in enumerate(self.cells))

    def subscripts(self) -> Names:
        """The element at a place of the window and a cell in it."""
        return tuple(self._subscript(axis) for axis in range(len(self.shape)))

    def _subscript(self, axis: int) -> str:
        place = affine(f"y{axis}", self.strides[axis], -self.before[axis])
        cell = "" if self.cells[axis] == 1 else f" + {self.dilations[axis]}*k{axis}"
        return f"({place}{cell}) / {self.spread[axis]}" if self.spread[axis] > 1 else place + cell

    def backwards(self) -> Names:
        """The same, with cells counted from the place where windows end at it: so they are seen to be running totals."""
        return tuple(
            f"y{axis} - k{axis}" if self.cells[axis] > 1 and self.running(axis) else self._subscript(axis)
            for axis in range(len(self.shape))
        )

    def running(self, axis: int) -> bool:
        """Whether windows end at their place: counting cells backwards shows that they are running totals."""
        n = self.cells[axis]
        return self.before[axis] == n - 1 and (self.strides[axis], self.dilations[axis], self.spread[axis]) == (1, 1, 1)

    def constraints(self) -> Names:
        return tuple(f"k{axis} < {n}" for axis, n in enumerate(self.cells) if n > 1)

    def covered(self) -> bool:
        """Whether every window has an element of the tensor itself, not of its padding alone."""
        return all(self._axis_covered(axis) for axis in range(len(self.shape)))

    def _axis_covered(self, axis: int) -> bool:
        first = np.arange(self.places[axis]) * self.strides[axis] - self.before[axis]
        if self.cells[axis] * self.places[axis] > 1 << 20:
            last = first + (self.cells[axis] - 1) * self.dilations[axis]
            whole = self.dilations[axis] == self.spread[axis] == 1
            return whole and bool(((last >= 0) & (first < self.shape[axis])).all())
        cell = np.add.outer(first, np.arange(self.cells[axis]) * self.dilations[axis])
        inside = (cell >= 0) & (cell % self.spread[axis] == 0) & (cell // self.spread[axis] < self.shape[axis])
        return bool(inside.any(1).all())


def windows(op: Op, shape: Shape, places: Shape) -> Windows:
    """The windows that an operation's attributes describe."""
    ones = (1,) * len(shape)
    cells = op.list("window_dimensions", ones)
    before, _ = op.pairs("padding", len(shape))
    return Windows(shape, cells, op.list("window_strides", ones), op.list("window_dilations", ones),
                   op.list("base_dilations", ones), before, places)  # fmt: skip


@operation("stablehlo.reduce_window")
def reduce_window(op: Op) -> tuple[Value, ...]:
    """One contraction for each result, of what lies inside, as XLA computes it.

    A region that Tile has no aggregation for combines all cells by halves, with the initial values as padding.
    """
    count, block = len(op.values) // 2, op.region()
    values, starts = op.values[:count], op.values[count:]
    shape, places = (tuple(v.type.shape) for v in (op.operation.operands[0], op.operation.results[0]))
    begun = [everywhere(s, (*places, *s.shape)) for s in starts]
    if not prod(shape) or not prod(places):
        return tuple(begun)
    over, found = windows(op, shape, places), None if is_whole(op) else aggregations(block)
    if found is not None and "=" not in found:
        made = [pooled(v, over, a) for v, a in zip(values, found, strict=True)]
        if all(is_neutral(s, a, dtype_of(s)) for s, a in zip(starts, found, strict=True)):
            return tuple(made)
        return tuple(op.lift(block, [*begun, *made]))
    cells = [part_by_part(op, (k, count + k), partial(_patches, over=over)) for k in range(count)]
    made = by_halves(op, block, cells, len(places))
    return tuple(op.lift(block, [*begun, *(reshaped(m, b.shape) for m, b in zip(made, begun, strict=True))]))


def pooled(value: Value, over: Windows, aggregation: str) -> Value:
    """The aggregation of each window; of one that has padding alone, what changes nothing."""
    body = at("X", over.backwards())
    statement = (over.places, over.at_places, aggregation, body, *over.constraints())
    if aggregation == "+" or over.covered():
        return apply(function("X", "Y", contraction("Y", *statement)), value)
    dtype = dtype_of(value)
    text = contraction("Y", *statement, "default F")
    return apply(function("XF", "Y", text), value, np.asarray(neutral(aggregation, dtype), dtype.numpy))


def _patches(value: Value, fill: Value, over: Windows) -> Value:
    """[*places, cells]: the elements of each window, and `fill` where it has padding."""
    sizes = (*over.places, *over.cells)
    target = (*over.at_places, *over.at_cells)
    bare = contraction("Y", sizes, target, "=", at("X", over.subscripts()), *over.constraints(), "default F")
    return reshaped(apply(function("XF", "Y", bare), value, fill), (*over.places, prod(over.cells)))


# --- select_and_scatter -----------------------------------------------------------------------------------


@operation("stablehlo.select_and_scatter")
def select_and_scatter(op: Op) -> Value:
    """Each window hands its source to the element that it selects; what falls on one element is combined."""
    value, source, start = op.values
    if aggregations(op.region(1)) != ["+"]:
        raise op.unsupported("its scatter region is no sum", "JAX's own pools scatter sums")
    if not prod(source.shape) or not prod(op.shape()):
        return everywhere(start, op.shape())
    over = windows(op, op.shape(), tuple(source.shape))
    chosen, marks = _extreme(op, value, over) or _selected(op, value, over)
    body = f"{at('P', over.at_places)} == {at('N', over.at_cells)} ? {at('S', over.at_places)}"
    masked = contraction("Y", op.shape(), over.subscripts(), "+", body, *over.constraints())
    made = apply(function("PNS", "Y", masked), chosen, marks, source)
    return (
        made if is_neutral(start, "+", dtype_of(source)) else elementwise("({0} + {1})", made, start, shape=op.shape())
    )


_EXTREMES = {"GE": (">", True), "GT": (">", False), "LE": ("<", True), "LT": ("<", False)}
"""What a comparison of the cell kept and the next one selects, and whether the first of equal ones."""


def _extreme(op: Op, value: Value, over: Windows) -> tuple[Value, Array] | None:
    """Marks of selected cells, and of all cells of a window, where the largest or smallest is selected."""
    block = op.region(0)
    last = list(block.operations)[-2:]
    if len(list(block.operations)) != 2 or last[0].operation.name != "stablehlo.compare":
        return None
    if list(last[0].operation.operands) != list(block.arguments):
        return None
    compared = Op(last[0].operation, [value, value], op.walk, op.scope)
    aggregation, first = _EXTREMES.get(compared.text("comparison_direction"), ("", False))
    if not aggregation or compared.text("compare_type") == "TOTALORDER":
        return None
    numbers = np.arange(prod(over.cells), dtype=np.int32)
    marks = ((numbers[::-1] if first else numbers) + 1).reshape(over.cells)
    best = pooled(value, over, aggregation)
    body = f"{at('X', over.subscripts())} == {at('M', over.at_places)} ? {at('N', over.at_cells)}"
    text = contraction("P", over.places, over.at_places, ">", body, *over.constraints())
    return apply(function("XMN", "P", text), value, best, marks), marks


def _selected(op: Op, value: Value, over: Windows) -> tuple[Value, Array]:
    """The same by any region: cell after cell, the one before is kept while the region says so."""
    flat = (*over.places, prod(over.cells))
    cells, inside = (
        _patches(value, full(0, dtype_of(value)), over),
        _patches(full(1, DType.INT32, over.shape), full(0, DType.INT32), over),
    )
    best, there = _cell(cells, 0, flat), _cell(inside, 0, flat)
    place = full(0, DType.INT32, over.places)
    for number in range(1, flat[-1]):
        new, own = _cell(cells, number, flat), _cell(inside, number, flat)
        (kept,) = op.lift(op.region(0), [best, new])
        take = elementwise("(({0} == 1) & (({1} == 0) | (~{2})))", own, there, kept)
        best, place = where(take, new, best, over.places), where(take, full(number, DType.INT32), place, over.places)
        there = elementwise("({0} | {1})", there, own)
    return place, np.arange(flat[-1], dtype=np.int32).reshape(over.cells)


def _cell(patches: Value, number: int, flat: Shape) -> Value:
    last = [*[slice(None)] * (len(flat) - 1), slice(number, number + 1)]
    return reshaped(sliced(patches, last), flat[:-1])
