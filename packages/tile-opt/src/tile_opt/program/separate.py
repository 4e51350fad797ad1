"""Windows of several dimensions, aggregated one dimension at a time.

``O[y, x] = >(I[y + i, x + j]), i < 5, j < 5`` meets 25 elements for each result. ``T[y, x] = >(I[y + i, x]), i < 5`` and
``O[y, x] = >(T[y, x + j]), j < 5`` meet ten. What is valid for i does not depend on j, so that cells of T without a valid i
hold 0, as those cells of O do. Integers wrap, so that any order gives the same; floats round as a sum of as many terms may,
narrow ones once, at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod

from tile_ir.frozen import frozen
from tile_ir.names import claim
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import Constraint, Contraction, Op, Poly, TensorType

from tile_opt.program.base import OpRewrite
from tile_opt.program.factorise import index_sizes

WORD, VECTOR = 4, 16
"""Bytes of elements that machines load and store one by one, and of the widest accesses of a graphics processor."""
MERGING = (Aggregation.SUM, Aggregation.PROD, Aggregation.MAX, Aggregation.MIN)


@frozen
class SeparateWindows(OpRewrite):
    """Take a dimension of a window by itself where that meets a `gain`-th of the elements or less, of `worth` or more.

    A `ragged`-th where results are narrower than words, in rows that are no whole vectors. Windows along memory go last, or
    with `near` first.
    """

    gain: float = 1.55
    ragged: float = 1.55
    worth: int = 1 << 14
    near: bool = False

    def instead(self, types: Mapping[str, TensorType], taken: set[str], op: Op) -> Iterator[Op]:
        """The contraction, and before it those of dimensions that were taken by themselves."""
        window = _window(op, types) if isinstance(op, Contraction) else None
        while window is not None:
            first = min(window.alone(self.near), key=window.points, default=None)
            if first is None or window.whole < max(self.worth, self._gain(window) * window.points(first)):
                break
            part, rest = window.parted(first, claim(f"{window.op.name}_window", taken))
            yield part
            op, window = rest, _window(rest, {**types, part.name: part.type})
        yield op

    def _gain(self, window: _Window) -> float:
        """Times fewer elements from which it is worth it."""
        return self.ragged if window.is_ragged else self.gain


@frozen
class _Window:
    """An aggregation of what it loads, and the sizes of its indexes."""

    op: Contraction
    source: TensorType
    sizes: Mapping[str, int]
    own: tuple[frozenset[str], ...]
    """For each dimension of the operand the indexes that only the aggregation has."""

    @property
    def whole(self) -> int:
        """Elements that it meets."""
        return prod(self.sizes.values())

    @property
    def is_ragged(self) -> bool:
        """Its results are narrow, and their rows no whole vectors."""
        dtype = self.op.type.dtype
        return dtype.bytes < WORD and self.op.type.shape[-1] * dtype.bytes % VECTOR > 0

    def alone(self, near: bool) -> Iterator[int]:
        """Dimensions that may go first: one result along each, and no constraint ties it to others; never the last window's.

        With `near` from the last on, and never the first window's.
        """
        forms, windows = self.op.loads[0].formulas, [d for d, own in enumerate(self.own) if own]
        for d in windows[:0:-1] if near else windows[:-1]:
            names = frozenset(forms[d].names)
            others = frozenset(n for k, f in enumerate(forms) if k != d for n in f.names)
            tied = (frozenset(c.formula.names) for c in self.op.constraints)
            if len(names - self.own[d]) == 1 and not names & others and all(t <= names or not t & names for t in tied):
                yield d

    def points(self, d: int) -> float:
        """Elements that dimension `d` by itself meets, and then the others."""
        steps = prod(self.sizes[n] for n in self.own[d])
        return self.whole / steps + steps * prod(self._shape(d))

    def parted(self, d: int, name: str) -> tuple[Contraction, Contraction]:
        """The aggregation along dimension `d` into a tensor called `name`, and that along the others, of this tensor."""
        op, (load,), at = self.op, self.op.loads, Poly.of({self._result(d): 1})
        mine = [c for c in op.constraints if self.own[d].intersection(c.formula.names)]
        rest = replace(
            op,
            indexes=tuple(n for n in op.indexes if n not in self.own[d]),
            constraints=tuple(c for c in op.constraints if c not in mine),
            loads=(replace(load, tensor=name, formulas=(*load.formulas[:d], at, *load.formulas[d + 1 :])),),
            body=(),
            result=load.dst,
        )
        return self._first(d, name), rest

    def _first(self, d: int, name: str) -> Contraction:
        op, (load,), shape = self.op, self.op.loads, self._shape(d)
        inner = load.formulas[d]
        taken = set(inner.names)
        cells = tuple(Poly.of({self._result(d) if k == d else claim(f"d{k}", taken): 1}) for k in range(len(shape)))
        limits = (c for c in op.constraints if self.own[d].intersection(c.formula.names))
        ranges = (Constraint(f, size, op.origin) for f, size in zip(cells, shape, strict=True))
        return replace(
            op,
            name=name,
            type=TensorType(op.acc, shape),
            indexes=(*(n for f in cells for n in f.names), *(n for n in op.indexes if n in self.own[d])),
            output=cells,
            constraints=(*ranges, *limits),
            loads=(replace(load, formulas=(*cells[:d], inner, *cells[d + 1 :])),),
            text=f"{name}: the windows of {op.name} along dimension {d}",
        )

    def _result(self, d: int) -> str:
        """The index of the result that moves the window along a dimension."""
        return next(n for n in self.op.loads[0].formulas[d].names if n not in self.own[d])

    def _shape(self, d: int) -> tuple[int, ...]:
        """Of what dimension `d` by itself gives."""
        return tuple(self.sizes[self._result(d)] if k == d else size for k, size in enumerate(self.source.shape))


def _window(op: Contraction, types: Mapping[str, TensorType]) -> _Window | None:
    """The aggregation of a tensor's elements as they are, each once, over windows of it; None for other contractions."""
    if op.agg not in MERGING or len(op.loads) != 1 or not _is_plain(op) or op.default is not None:
        return None
    (load,), sizes = op.loads, index_sizes(op)
    source = types[load.tensor] if isinstance(load.tensor, str) else None
    if source is None or sizes is None or source.dtype not in (op.type.dtype, op.acc):
        return None
    cells = [f.index for f in op.output]
    free = frozenset(op.indexes) - {n for n in cells if n is not None}
    met = [n for f in load.formulas for n in f.names if n in free]
    if None in cells or sorted(met) != sorted(free):
        return None
    return _Window(op, source, sizes, tuple(free.intersection(f.names) for f in load.formulas))


def _is_plain(op: Contraction) -> bool:
    """It aggregates what it loads, at most converted to what it aggregates in."""
    loaded = op.loads[0].dst
    if not op.body:
        return op.result == loaded
    cast = op.body[0]
    return (
        len(op.body) == 1 and (cast.fn, cast.args, cast.dst) == ("cast", (loaded,), op.result) and cast.dtype is op.acc
    )
