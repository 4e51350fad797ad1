"""Boxes of scatters: updates that fall beside the box fall on one more row, which is cut off again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from tile_ir.dtype import DType
from tile_ir.program.copies import copied
from tile_ir.program.nodes import (
    Elementwise,
    Literal,
    Lookup,
    Operand,
    Poly,
    Scatter,
    Subscript,
    TensorType,
    coordinates,
)

from tile_opt.regions.boxes import Box
from tile_opt.regions.pointwise import moved, reach
from tile_opt.regions.rules import Cut, Emission, Source, refused

INDEX = DType.INT32


def coordinate(subscript: Subscript) -> tuple[int, int] | None:
    """(axis of the updates, what is added) where a subscript is a coordinate of them."""
    if isinstance(subscript, Lookup) or len(subscript.terms) != 1 or subscript.terms[0][1] != 1:
        return None
    return int(subscript.terms[0][0][1:]), int(subscript.const)


class _Form(NamedTuple):
    """All that the operation for a box depends on, beside its shape."""

    open_axes: tuple[int, ...]
    """Subscribed by data, and cut."""
    begins: tuple[int, ...]
    """The constant of each subscript that is a formula."""
    consts: tuple[Fraction, ...]
    """The constants of the formulas with which data is read."""


class ScatterRule:
    """A scatter, the updates of which are cut along the axes in `reduced`: boxes begin with an axis for each."""

    def __init__(self, op: Scatter, types: Mapping[str, TensorType], reduced: tuple[str, ...] = ()) -> None:
        self._op, self._shape = op, types[op.updates].shape
        self._reduced = tuple(int(name[1:]) for name in reduced)
        self._looked = tuple(s for s in op.subscripts if isinstance(s, Lookup))
        self._default = op.default if not reduced else None
        last = () if self._default is None else (self._default,)
        self.operands = (op.updates, *(s.tensor for s in self._looked), *last)

    def cut(self, box: Box) -> Cut:
        parts = len(self._reduced)
        inner = Box(box.low[parts:], box.high[parts:])
        updates = self._updates(box, inner)
        last = () if self._default is None else (inner,)
        if not (updates.size and self._meets(inner)):
            return Cut(None, (None,) * (1 + len(self._looked)) + last)
        open_axes = self._open(inner)
        formulas = [f for s in self._looked for f in s.formulas]
        consts = tuple(moved(f, updates.low, reach(f, updates)[0]).const for f in formulas)
        places = tuple(Box.around([reach(f, updates) for f in s.formulas]) for s in self._looked)
        form = _Form(open_axes, self._begins(inner, updates), consts)
        return Cut(form, (updates, *places, *last), tuple(inner.low[axis] for axis in open_axes))

    def _begins(self, inner: Box, updates: Box) -> tuple[int, ...]:
        """What is added to each subscript that is a formula, counted from the boxes."""
        found: list[int] = []
        for axis, (subscript, place) in enumerate(zip(self._op.subscripts, self._coordinates(), strict=True)):
            if place:
                found.append(place[1] + updates.low[place[0]] - inner.low[axis])
            elif isinstance(subscript, Poly):
                found.append(int(moved(subscript, updates.low, inner.low[axis]).const))
            else:
                found.append(0)
        return tuple(found)

    def _coordinates(self) -> tuple[tuple[int, int] | None, ...]:
        return tuple(map(coordinate, self._op.subscripts))

    def _updates(self, box: Box, inner: Box) -> Box:
        """The updates that may fall into a box."""
        low, high = [0] * len(self._shape), list(self._shape)
        for n, axis in enumerate(self._reduced):
            low[axis], high[axis] = box.low[n], box.high[n]
        for k, found in enumerate(self._coordinates()):
            if found:
                axis, plus = found
                low[axis] = max(low[axis], inner.low[k] - plus)
                high[axis] = max(low[axis], min(high[axis], inner.high[k] - plus))
        return Box(tuple(low), tuple(high))

    def _meets(self, inner: Box) -> bool:
        """The box has the cells on which formulas fall that are no coordinates; TileTypeError where it has a part of them."""
        for axis, (subscript, place) in enumerate(zip(self._op.subscripts, self._coordinates(), strict=True)):
            if isinstance(subscript, Poly) and not place:
                if not subscript.terms and not inner.low[axis] <= subscript.const < inner.high[axis]:
                    return False
                if subscript.terms and (inner.low[axis], inner.high[axis]) != (0, self._op.type.shape[axis]):
                    message = f"a scatter into {subscript} cannot be cut along that axis"
                    raise refused(message, self._op.origin, "leave the axis whole with out_chunks=")
        return True

    def _open(self, inner: Box) -> tuple[int, ...]:
        """The axes that data subscribes, where the box is a part of them."""
        return tuple(
            k
            for k, s in enumerate(self._op.subscripts)
            if isinstance(s, Lookup) and (inner.low[k], inner.high[k]) != (0, self._op.type.shape[k])
        )

    # --- the scatter of a box --------------------------------------------------------------------------

    def emit(self, out: Emission) -> None:
        start = out.start(self._op.agg, default=self._default is not None, partial=bool(self._reduced))
        if out.form is None:
            out.fill(out.name, Literal(0, out.type.dtype) if start is None else start)
            return
        form: _Form = out.form
        wide = _wider(out.type, form.open_axes)
        updates = self._updates_of(out)
        subscripts = self._subscripts(out, form)
        if start is not None and wide != out.type:
            start = _padded(start, out, wide)
        name = out.name if wide == out.type else out.new(f"{out.name}_wide")
        out.ops.append(replace(self._op, name=name, type=wide, updates=updates, subscripts=subscripts, default=start))
        if name != out.name:
            out.exactly(Source(name, wide, (0,) * len(out.type.shape), out.type.shape), out.name)

    def _updates_of(self, out: Emission) -> str:
        """The updates, in the accumulator's dtype where the result is a partial sum."""
        source = out.source(0)
        updates = out.exactly(source)
        if source.type.dtype is out.type.dtype:
            return updates
        wide = out.new(f"{updates}_wide")
        out.ops.append(Elementwise(wide, TensorType(out.type.dtype, source.shape), "cast", (updates,)))
        return wide

    def _subscripts(self, out: Emission, form: _Form) -> tuple[Subscript, ...]:
        places, consts, low = iter(range(1, len(self.operands))), iter(form.consts), iter(out.numbers)
        found: list[Subscript] = []
        for axis, (subscript, begin) in enumerate(zip(self._op.subscripts, form.begins, strict=True)):
            if isinstance(subscript, Poly):
                found.append(Poly(subscript.terms, Fraction(begin)))
                continue
            source = out.source(next(places))
            tensor = out.exactly(source)
            if axis in form.open_axes:
                sizes = (self._op.type.shape[axis], out.type.shape[axis])
                tensor = _inside(tensor, TensorType(source.type.dtype, source.shape), sizes, next(low), out)
            found.append(Lookup(tensor, tuple(Poly(f.terms, next(consts)) for f in subscript.formulas)))
        return tuple(found)


def _wider(type: TensorType, axes: Sequence[int]) -> TensorType:
    """One more row along some axes."""
    return TensorType(type.dtype, tuple(n + (k in axes) for k, n in enumerate(type.shape)))


def _padded(name: str, out: Emission, wide: TensorType) -> str:
    """A box with rows behind it that nobody reads."""
    made, type = out.new(f"{name}_wide"), out.type
    cells = coordinates(len(type.shape))
    out.ops.append(copied(made, wide, cells, name, cells, zip(cells, type.shape, strict=True)))
    return made


def _inside(name: str, type: TensorType, sizes: tuple[int, int], low: Operand, out: Emission) -> str:
    """Subscripts counted from `low`, clamped into the whole axis before; those beside the box are its size."""
    whole, size = sizes
    dtype, shape = type.dtype, type.shape

    def add(fn: str, args: tuple[Operand, ...], kind: DType) -> str:
        made = out.new("place")
        out.ops.append(Elementwise(made, TensorType(kind, shape), fn, args))
        return made

    value = add("max", (name, Literal(0, dtype)), dtype) if dtype.is_signed else name
    if whole - 1 <= dtype.max_value:
        value = add("min", (value, Literal(whole - 1, dtype)), dtype)
    value = value if dtype is INDEX else add("cast", (value,), INDEX)
    here = add("sub", (value, low), INDEX)
    above = add("cmp_ge", (here, Literal(0, INDEX)), DType.BOOL)
    below = add("cmp_lt", (here, Literal(size, INDEX)), DType.BOOL)
    return add("cond", (add("bit_and", (above, below), DType.BOOL), here, Literal(size, INDEX)), INDEX)
