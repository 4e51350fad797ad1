"""Recognising prefix aggregations: a reduction whose cells take in each other's elements.

``O[i : N] = +(I[i - j]), j < N`` adds up elements 0 to i for cell i: what it loads depends on ``v = i - j`` alone, and
cell i takes in the elements ``v <= i``, one more than cell i - 1. The same holds of every contraction in which some
output index only bounds the elements: read in the order in which cells take them in, each is aggregated once.
"""

from __future__ import annotations

from collections.abc import Iterator

from tile_ir.frozen import frozen
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Index, Load, LoadIndex, Store

from tile_opt.kernel.view import Stage, is_parallel
from tile_opt.kernel.work import merged_use


@frozen
class Scan:
    """Cells 0, 1, … and elements 0, 1, … of an aggregating stage, in the order in which cells take elements in.

    Cell u holds elements 0 to ``ahead + (u + 1) * stride - 1``, as far as there are so many.
    """

    cell: Index
    """The loop of the stage that bounds the elements of its cells, and subscripts no operand."""
    element: Index
    """The loop of the stage over the elements of a cell."""
    cells: int
    elements: int
    ahead: int
    """Elements that all cells hold, less those that cell 0 takes in last."""
    stride: int
    """Elements that each cell adds to those of the cell before; 0 where all cells hold the same."""
    first: Affine
    """The value of `cell` for cell 0; it moves by `turn` from cell to cell."""
    turn: int
    start: Affine
    """The value of `element` for cell 0 and element 0; it moves by `step` from element to element, by `slope` per `cell`."""
    step: int
    slope: int
    constraints: tuple[Affine, ...] = ()
    """Which elements count: forms (>= 0) of the stage's other loops, and of ``element - slope * cell`` by the element's name."""

    def at(self, cell: Affine, element: Affine) -> dict[str, Affine]:
        """Values of the stage's two loops for one element of one cell."""
        position = cell * self.turn + self.first
        return {
            self.cell.name: position,
            self.element.name: element * self.step + self.start + (position - self.first) * self.slope,
        }

    def limits(self, element: Affine) -> tuple[Affine, ...]:
        """The constraints on one element."""
        value = element * self.step + self.start - self.first * self.slope
        return tuple(c.substitute({self.element.name: value}) for c in self.constraints)


def find_scan(stage: Stage) -> Scan | None:
    """The first pair of loops along which the stage is a prefix aggregation; None when there is none."""
    if merged_use(stage) is None or not _plain(stage):
        return None
    return next((s for cell, element in _pairs(stage) if (s := _scan(stage, cell, element)) is not None), None)


def _plain(stage: Stage) -> bool:
    free = all(is_parallel(i) for i in stage.loops)
    direct = all(not s.at for s in stage.body if isinstance(s, Load | Store))
    return free and direct and not stage.guard and not any(isinstance(s, LoadIndex) for s in stage.body)


def _pairs(stage: Stage) -> Iterator[tuple[Index, Index]]:
    """(cell, element) loops: the first alone forms one subscript of the output, the second none."""
    out = merged_use(stage)
    assert out is not None
    named = [f.names for f in out.forms]
    inner = [i for i in stage.loops if not any(i.name in names for names in named)]
    for cell in stage.loops:
        if sum(cell.name in names for names in named) == named.count((cell.name,)) == 1:
            yield from ((cell, element) for element in reversed(inner))


def _slope(stage: Stage, cell: str, element: str) -> int | None:
    """The k for which every operand depends on ``element - k * cell`` only; None when there is none."""
    slope: int | None = None
    pairs = [(f.coefficient(cell), f.coefficient(element)) for u in stage.uses if not u.writes for f in u.forms]
    for a, b in pairs:
        if b:
            slope = slope if slope is not None else -(a // b)
            if a != -slope * b:
                return None
        elif a:
            return None
    return slope or 0


def _scan(stage: Stage, cell: Index, element: Index) -> Scan | None:
    slope = _slope(stage, cell.name, element.name)
    tied = [c for c in stage.constraints if cell.name in c.names]
    if slope is None or (slope and not any(element.name in c.names for c in tied)):
        return None
    # `element` stands for v = element - slope * cell from here on.
    moved = {element.name: Affine.var(element.name) + Affine.var(cell.name, slope)}
    limits = [c.substitute(moved) for c in (*stage.constraints, *_box(element))]
    low, high = _bounds(limits, cell, element, slope)
    if low > high:
        return None
    ranges = {i.name: (0, i.range - 1) for i in stage.loops} | {element.name: (low, high)}
    open_limits = [c for c in limits if c.bounds(ranges)[0] < 0]
    links = _tightest([c for c in open_limits if cell.name in c.names])
    rest = tuple(c for c in open_limits if cell.name not in c.names)
    if len(links) > 1 or any(set(c.names) != {cell.name, element.name} for c in links):
        return None
    return _ordered(cell, element, slope, (low, high), links[0] if links else None, rest)


def _box(loop: Index) -> tuple[Affine, Affine]:
    return Affine.var(loop.name), Affine.var(loop.name, -1) + (loop.range - 1)


def _bounds(limits: list[Affine], cell: Index, element: Index, slope: int) -> tuple[int, int]:
    """Smallest and largest value of ``v``, from the loops' ranges and from the limits on it alone."""
    moved = Affine.var(element.name) - Affine.var(cell.name, slope)
    low, high = moved.bounds({i.name: (0, i.range - 1) for i in (cell, element)})
    for limit in limits:
        if limit.names == (element.name,):
            c = limit.terms[0][1]
            low = max(low, -(limit.const // c)) if c > 0 else low
            high = min(high, limit.const // -c) if c < 0 else high
    return low, high


def _tightest(links: list[Affine]) -> list[Affine]:
    """One limit for each direction."""
    least: dict[tuple[tuple[str, int], ...], int] = {}
    for link in links:
        least[link.terms] = min(link.const, least.get(link.terms, link.const))
    return [Affine(terms, const) for terms, const in least.items()]


def _ordered(
    cell: Index, element: Index, slope: int, bounds: tuple[int, int], link: Affine | None, rest: tuple[Affine, ...]
) -> Scan | None:
    """Cells and elements numbered so that the link is ``element <= stride * cell + offset``."""
    low, high = bounds
    elements = high - low + 1
    if link is None:
        start = Affine((), low)
        return Scan(cell, element, cell.range, elements, elements, 0, Affine(), 1, start, 1, slope, rest)
    a, b = link.coefficient(cell.name), link.coefficient(element.name)
    if abs(b) != 1:
        return None
    first = 0 if a > 0 else cell.range - 1
    start = low if b < 0 else high
    stride = abs(a)
    offset = link.const + a * first + b * start
    skipped = max(0, -(offset // stride))  # cells that hold no element
    if skipped >= cell.range:
        return None
    turn = 1 if a > 0 else -1
    first += turn * skipped
    ahead = offset + stride * skipped + 1 - stride
    return Scan(
        cell, element, cell.range - skipped, elements, ahead, stride,
        Affine((), first), turn, Affine((), start + slope * first), -b, slope, rest,
    )  # fmt: skip
