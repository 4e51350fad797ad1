"""Boxes of operations whose cells follow those of their operands one by one, or along whole axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tile_ir.program.nodes import Argsort, Elementwise, Gather, IndexOf, Lookup, Poly, Subscript, TensorType

from tile_opt.regions.boxes import Box
from tile_opt.regions.rules import Cut, Emission, Source

Types = Mapping[str, TensorType]


class ElementwiseRule:
    """Every operand is read where the box is, or wholly along the axes on which it is broadcast."""

    def __init__(self, op: Elementwise, types: Types) -> None:
        self._op = op
        self.operands = tuple(a for a in op.args if isinstance(a, str))
        self._shapes = tuple(types[a].shape for a in self.operands)

    def cut(self, box: Box) -> Cut:
        return Cut(None, tuple([self._read(box, shape) for shape in self._shapes]))

    def _read(self, box: Box, shape: tuple[int, ...]) -> Box:
        skipped = len(box.low) - len(shape)
        low = tuple([0 if n == 1 else box.low[skipped + k] for k, n in enumerate(shape)])
        return Box(low, tuple([1 if n == 1 else box.high[skipped + k] for k, n in enumerate(shape)]))

    def emit(self, out: Emission) -> None:
        numbers = iter(range(len(self.operands)))
        args = tuple(out.exactly(out.source(next(numbers))) if isinstance(a, str) else a for a in self._op.args)
        out.ops.append(replace(self._op, name=out.name, type=out.type, args=args))


class IndexRule:
    """Coordinates count from where the box begins, which is a number given to the task."""

    operands: tuple[str, ...] = ()

    def __init__(self, op: IndexOf) -> None:
        self._op = op

    def cut(self, box: Box) -> Cut:
        return Cut(None, (), (box.low[self._op.axis],))

    def emit(self, out: Emission) -> None:
        here = out.new(f"{out.name}_here")
        out.ops.append(replace(self._op, name=here, type=out.type))
        out.ops.append(Elementwise(out.name, out.type, "add", (here, out.numbers[0]), origin=self._op.origin))


class GatherRule:
    """Subscripts that are formulas read a box; along an axis that data subscribes, all of it is read."""

    def __init__(self, op: Gather, types: Types) -> None:
        self._op = op
        self._shape = types[op.data].shape
        self._looked = tuple(s for s in op.subscripts if isinstance(s, Lookup))
        self.operands = (op.data, *(s.tensor for s in self._looked))

    def cut(self, box: Box) -> Cut:
        data = [
            reach(s, box) if isinstance(s, Poly) else (0, n)
            for s, n in zip(self._op.subscripts, self._shape, strict=True)
        ]
        places = [Box.around([reach(f, box) for f in s.formulas]) for s in self._looked]
        return Cut(self._fractions(box), (Box.around(data), *places))

    def _fractions(self, box: Box) -> tuple[object, ...]:
        """What the place of the box adds to each formula, beyond whole cells."""
        formulas = [f for s in self._op.subscripts for f in ((s,) if isinstance(s, Poly) else s.formulas)]
        return tuple(moved(f, box.low, reach(f, box)[0]).const for f in formulas)

    def emit(self, out: Emission) -> None:
        data, *places = [out.source(n) for n in range(len(self.operands))]
        consts = iter(out.form)
        lookups = iter(places)
        subscripts: list[Subscript] = []
        for axis, subscript in enumerate(self._op.subscripts):
            if isinstance(subscript, Poly):
                subscripts.append(Poly(subscript.terms, next(consts) + data.at[axis]))
            else:
                source = next(lookups)
                formulas = [
                    Poly(f.terms, next(consts) + at) for f, at in zip(subscript.formulas, source.at, strict=True)
                ]
                subscripts.append(Lookup(source.name, tuple(formulas)))
        made = replace(self._op, name=out.name, type=out.type, data=data.name, subscripts=tuple(subscripts))
        out.ops.append(made)


class ArgsortRule:
    """Rows are sorted whole; the box chooses which rows."""

    def __init__(self, op: Argsort, types: Types) -> None:
        self._op, self._shape = op, types[op.arg].shape
        self.operands = (op.arg,)

    def cut(self, box: Box) -> Cut:
        axis = self._op.axis
        read = Box(_set(box.low, axis, 0), _set(box.high, axis, self._shape[axis]))
        return Cut((box.low[axis], box.high[axis]), (read,))

    def emit(self, out: Emission) -> None:
        low, high = out.form
        axis, arg = self._op.axis, out.exactly(out.source(0))
        whole = TensorType(out.type.dtype, _set(out.type.shape, axis, high))
        name = out.new(f"{out.name}_all") if low else out.name
        out.ops.append(replace(self._op, name=name, type=whole, arg=arg))
        if low:
            at = tuple(low if k == axis else 0 for k in range(len(out.type.shape)))
            out.exactly(Source(name, whole, at, out.type.shape), out.name)


def _set(values: tuple[int, ...], axis: int, value: int) -> tuple[int, ...]:
    return (*values[:axis], value, *values[axis + 1 :])


def moved(formula: Poly, low: Sequence[int], start: int) -> Poly:
    """The formula for a cell counted from `low`, giving cells counted from `start`."""
    return formula + Poly.of({}, formula.evaluate({f"i{k}": v for k, v in enumerate(low)}) - formula.const - start)


def reach(formula: Poly, box: Box) -> tuple[int, int]:
    """Cells (from, to) that a formula reaches over a box."""
    low = high = formula.const
    for name, c in formula.terms:
        axis = int(name[1:])
        ends = sorted((c * box.low[axis], c * (box.high[axis] - 1)))
        low, high = low + ends[0], high + ends[1]
    return int(low), int(high) + 1
