"""Where values need nothing of a border: boxes of cells that read what is framed, not the frame around it.

``A[clamp(x + t - 2)]`` reads a copy of A with two more cells on either side, of which all but the outermost are A's own.
What is computed from these alone is computed as if there were no borders.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from math import prod

from tile_ir.ops import Aggregation
from tile_ir.program.liveness import defined_by, used_by
from tile_ir.program.nodes import Contraction, Elementwise, Op, TensorType
from tile_ir.stripe.affine import Affine, intervals

from tile_opt.analysis import FlatDomain, Sets, analyze
from tile_opt.regions import Box, ContractionRule

TAPS, MIXED = 64, 4
"""Elements that a cell may be aggregated of, and of these how many beside windows along borders: beside more, a copy of what is
read costs little."""
SHARE = 0.75
"""Of a value that an interior has to be."""
DEEPEST = 2
"""Frames around what was computed of frames, such as those of two passes: each makes strips wider, and all steps on the way are compiled
and computed once more for each strip, which costs more than a copy from the third on."""


@dataclass(slots=True)
class Interiors:
    """The interiors of a program's values, as far as they are known; `least` is how many bytes a framed copy has."""

    types: Mapping[str, TensorType]
    least: int
    closed: Set[str]
    """Values that are there as a whole, so that borders of what they are made of are no matter of those who read them."""
    sets: Sets = field(default_factory=Sets)
    boxes: dict[str, Box] = field(default_factory=dict[str, Box])
    """Of values that have one."""
    depths: dict[str, int] = field(default_factory=dict[str, int])
    """Of the same, and of framed copies: how many frames lie around each other."""
    links: dict[str, str] = field(default_factory=dict[str, str])
    """Framed copies, and what they are laid on, with the tensor whose copies they are: concatenations have several."""

    def add(self, op: Op) -> bool:
        """Take up an operation; False where it reads the interior of a value that is not closed in some other way."""
        framed = {n: box for n in used_by(op) if (box := self._open(n)) is not None}
        if isinstance(op, Contraction) and self._is_framed(op):
            return self.depths[op.name] <= DEEPEST or not self.boxes.pop(op.name, None)
        if not framed:
            return True
        found = self._of(op, framed)
        if found is None:
            return False
        (name,) = defined_by(op)
        if found.size < SHARE * self.types[name].size:
            return False
        self.boxes[name], self.depths[name] = found, max(self.depths[n] for n in framed)
        return True

    def _open(self, name: str) -> Box | None:
        """The interior of a value that is not closed."""
        return None if name in self.closed else self.boxes.get(name)

    # --- framed copies -------------------------------------------------------------------------------

    def _is_framed(self, op: Contraction) -> bool:
        """Whether a contraction lays a tensor on others, or on zeros; what it leaves visible is found then."""
        if op.agg is not Aggregation.ASSIGN or op.type.nbytes < self.least:
            return False
        rule = ContractionRule(op, analyze(op, self.sets), self.sets)
        if rule.written is None or op.body or not isinstance(source := op.loads[0].tensor, str):
            return False
        if op.default is not None and self.links.get(op.default) != source:
            return False
        self.links[op.name] = source
        inside = self.depths[source] if self._open(source) is not None else 0
        self.depths[op.name] = max(inside + 1, self.depths[op.default] if op.default is not None else 0)
        box = self._kept(op, rule.written) if rule.steps is None else self._laid(op, rule.written, rule.steps)
        if box is not None and SHARE * op.type.size <= box.size < op.type.size:
            self.boxes[op.name] = box
        return True

    def _kept(self, op: Contraction, written: Box) -> Box | None:
        """The interior of what something small is laid on: its own, unless that is met."""
        inner = self.boxes.get(op.default) if op.default is not None else None
        return None if inner is None or inner.meets(written) else inner

    def _laid(self, op: Contraction, written: Box, steps: Sequence[int]) -> Box | None:
        """The same, or that of the copied tensor where it is larger."""
        source, kept = op.loads[0].tensor, self._kept(op, written)
        inner = self._open(source) if isinstance(source, str) else None
        box = written if inner is None else inner.moved([-n for n in steps]).shared(written)
        return box if kept is None or box.size > kept.size else kept

    # --- what reads them -----------------------------------------------------------------------------

    def _of(self, op: Op, framed: Mapping[str, Box]) -> Box | None:
        match op:
            case Elementwise():
                return self._pointwise(op.type.shape, framed)
            case Contraction() if op.default is None:
                return self._contracted(op, analyze(op, self.sets), framed)
            case _:
                return None

    def _pointwise(self, shape: tuple[int, ...], framed: Mapping[str, Box]) -> Box | None:
        box = Box.whole(shape)
        for name, inner in framed.items():
            if self.types[name].shape != shape:
                return None
            box = box.shared(inner)
        return box

    def _contracted(self, op: Contraction, domain: FlatDomain, framed: Mapping[str, Box]) -> Box | None:
        """The cells whose points read interiors alone, where each subscript is moved by one of the result's indexes at most."""
        terms = [term for form in domain.output for term in form.terms]
        reach = {name: Reach(domain.extents[name]) for name, c in terms if c > 0}
        single = all(len(form.terms) <= 1 for form in domain.output) and len(reach) == len(terms)
        if domain.empty or not single or not _is_stencil(domain, reach.keys(), op.type.size):
            return None
        for load, access in zip(op.loads, domain.accesses, strict=True):
            inner = framed.get(load.tensor) if isinstance(load.tensor, str) else None
            pairs = zip(access, inner.low, inner.high, strict=True) if inner else ()
            if not all(_limit(form, low, high, domain, reach) for form, low, high in pairs):
                return None
        cells = [_cells(f, n, reach, domain) for f, n in zip(domain.output, op.type.shape, strict=True)]
        return Box.around(cells)


@dataclass(slots=True)
class Reach:
    """The values of an index from which only interiors are read, from `low` (inclusive) to `high` (exclusive)."""

    high: int
    low: int = 0


def _is_stencil(domain: FlatDomain, result: Set[str], size: int) -> bool:
    """Each cell of the result, of `size` cells, is aggregated of few elements, most of them beside each other in windows."""
    forms = [set(form.names) for access in domain.accesses for form in access]
    windows = {name for names in forms if names & result for name in names}
    beside = prod(count for name, count in domain.extents.items() if name not in windows | result)
    return beside <= MIXED and prod(domain.ranges) <= TAPS * size


def _limit(form: Affine, low: int, high: int, domain: FlatDomain, reach: dict[str, Reach]) -> bool:
    """Bound the index of the result that moves a subscript, so that this stays from `low` to `high`; False where none can."""
    moving = [(n, c) for n, c in form.terms if n in reach]
    ranges = intervals(domain.extents)
    first, last = form.bounds(ranges)
    if low <= first and last < high:
        return True
    if len(moving) != 1 or moving[0][1] < 0:
        return False
    (name, c) = moving[0]
    first, last = (form - Affine.var(name, c)).bounds(ranges)
    index = reach[name]
    index.low = max(index.low, -((first - low) // c))
    index.high = min(index.high, (high - 1 - last) // c + 1)
    return index.low < index.high


def _cells(form: Affine, size: int, reach: Mapping[str, Reach], domain: FlatDomain) -> tuple[int, int]:
    """Cells of the result along a dimension: all, but those that indexes write which are out of reach."""
    if not form.terms:
        return 0, size
    ((name, c),) = form.terms
    index = reach[name]
    low = form.const + c * index.low if index.low else 0
    return low, form.const + c * (index.high - 1) + 1 if index.high < domain.extents[name] else size
