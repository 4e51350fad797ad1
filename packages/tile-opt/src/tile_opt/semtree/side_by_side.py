"""Equal operations on narrow vectors side by side, as one operation on a whole vector (superword-level parallelism).

Rows of five channels, scaled and shifted: each is a vector of five lanes, and sixteen of them are five vectors of sixteen
that are loaded, computed and stored as such. What differs between rows is loaded as one vector, what does not is a
shuffle of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from tile_ir.dots import DOTS
from tile_ir.emit.walker import children, with_children
from tile_ir.frozen import replace
from tile_ir.semtree.nodes import (
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Extract,
    Fma,
    Load,
    Round,
    Select,
    Shuffle,
    Splat,
    Type,
    Unary,
    Var,
)  # fmt: skip

from tile_opt.semtree.places import Place

Lane = tuple[Expr, int]
"""A lane of a value."""
_LANEWISE = (Unary, Binary, Compare, Fma, Select, Cast, Round)


def source(value: Expr, lane: int, known: Mapping[str, Expr]) -> Lane:
    """Where a lane comes from, behind all that only moves it: a lane of a variable, or of what computes it."""
    while True:
        match value:
            case Var(name) if isinstance(known.get(name), Var | Extract | Splat | Shuffle):
                value = known[name]
            case Extract(vector, number):
                value, lane = vector, number
            case Splat(scalar):
                value, lane = scalar, 0
            case Shuffle(left, right, picks):
                width = left.type.lanes
                value, lane = (left, picks[lane]) if picks[lane] < width else (right, picks[lane] - width)
            case Const(number, type):
                return Const(number, type.scalar), int(str(number).startswith("-"))  # 0.0 and -0.0 are equal
            case _:
                return value, lane


@dataclass(slots=True)
class SideBySide:
    """Whole vectors of lanes that equal operations compute."""

    known: Mapping[str, Expr]
    """What variables are."""
    steady: Set[str]
    """Pointers to what nothing writes."""
    let: Callable[[Expr], Expr]
    register: int
    """Bytes that a vector may have."""
    made: dict[tuple[Lane, ...], Expr | None] = field(default_factory=dict["tuple[Lane, ...]", "Expr | None"])

    def vector(self, lanes: Sequence[Lane]) -> Expr | None:
        """A vector of these lanes; None where operations differ, or take more than a register."""
        lanes = tuple(source(value, lane, self.known) for value, lane in lanes)
        if lanes not in self.made:
            fits = len(lanes) * lanes[0][0].type.dtype.bytes <= self.register
            self.made[lanes] = self._vector(lanes) if fits else None
        return self.made[lanes]

    def _vector(self, lanes: Sequence[Lane]) -> Expr | None:
        values = list(dict.fromkeys(value for value, _ in lanes))
        if len(values) == 1:
            return self._same(values[0], [lane for _, lane in lanes])
        if len({v.type.dtype for v in values}) > 1:
            return None
        meanings = {v: self.known.get(v.name, v) if isinstance(v, Var) else v for v in values}
        pairs = [(meanings[value], lane) for value, lane in lanes]
        return self._loaded(pairs) or self._computed(pairs)

    def _same(self, value: Expr, picks: Sequence[int]) -> Expr | None:
        """Lanes of one value."""
        type = value.type.vector(len(picks))
        if isinstance(value, Const):
            return Const(value.value, type) if len(set(picks)) == 1 else None
        if value.type.lanes == 1:
            return Splat(value, type)
        whole = list(picks) == list(range(value.type.lanes))
        return value if whole else self.let(Shuffle(value, value, tuple(picks), type))

    def _loaded(self, lanes: Sequence[tuple[Expr, int]]) -> Expr | None:
        """Lanes of memory that lie near one another, by one load or two."""
        loads = [(v, lane) for v, lane in lanes if isinstance(v, Load) and v.mask is None]
        places = [Place.of(v.ptr, v.index) for v, _ in loads]
        if len(loads) < len(lanes) or any(p is None or p.pointer not in self.steady for p in places):
            return None
        first, *others = (p for p in places if p is not None)
        if not all(first.beside(p) for p in others):
            return None
        cells = [p.offset + lane for p, (_, lane) in zip(places, loads, strict=True) if p is not None]
        return self._picked([load for load, _ in loads], cells)

    def _picked(self, loads: Sequence[Load], cells: Sequence[int]) -> Expr | None:
        """Cells of memory, all of which lie between some that are loaded anyway."""
        low, span = min(cells), max(cells) + 1 - min(cells)
        width = min(len(cells), 1 << (span.bit_length() - 1))
        type = loads[0].type.vector(width)
        if width < 2 or span > 2 * width:
            return None
        first = self._load(loads, low, type)
        if [c - low for c in cells] == list(range(width)):
            return first
        back = span - width
        second = self._load(loads, low + back, type) if back else first
        picks = (c - low if c - low < width else width + c - low - back for c in cells)
        return self.let(Shuffle(first, second, tuple(picks), loads[0].type.vector(len(cells))))

    def _load(self, loads: Sequence[Load], cell: int, type: Type) -> Expr:
        """A vector from a cell on, which is as aligned as a load that begins there."""
        places = ((load, Place.of(load.ptr, load.index)) for load in loads)
        known = {p.offset: load for load, p in places if p is not None}
        near = known.get(cell, loads[0])
        place = Place.of(near.ptr, near.index)
        assert place is not None
        align = near.align if cell in known else near.type.dtype.bytes
        return self.let(Load(near.ptr, place.index(cell, near.index.type), type, None, align))

    def _computed(self, lanes: Sequence[tuple[Expr, int]]) -> Expr | None:
        """What equal operations make of whole vectors."""
        node = lanes[0][0]
        by_lane = isinstance(node, _LANEWISE) or (isinstance(node, Call) and node.name not in DOTS)
        if not by_lane or any(_kind(v) != _kind(node) for v, _ in lanes):
            return None
        below = [children(v) for v, _ in lanes]
        operands = [
            self.vector([(b[k], lane if b[k].type.lanes > 1 else 0) for b, (_, lane) in zip(below, lanes, strict=True)])
            for k in range(len(below[0]))
        ]
        if any(o is None for o in operands):
            return None
        made = with_children(node, [o for o in operands if o is not None])
        return self.let(replace(made, type=node.type.vector(len(lanes))))


def _kind(node: Expr) -> tuple[object, ...]:
    """What operations that may be one have in common."""
    return type(node), getattr(node, "op", ""), getattr(node, "name", ""), getattr(node, "bits", 0), node.type.dtype
