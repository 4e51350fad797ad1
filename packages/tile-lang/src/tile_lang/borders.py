"""What a tensor holds beyond its edges: ``A[clamp(i + k - 1)]`` and the like.

The tensor is copied once, with as many cells more on either side as the formula reaches; the formula then reads the copy, as
any linear one does. The copy is made of linear pieces: the tensor itself in the middle, and at each side what the mode repeats.
What is computed away from the borders need not read it (`tile_opt.program.border_pieces`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from math import ceil, floor, prod
from typing import Any

import numpy as np
import numpy.typing as npt
from tile_ir.diagnostics import Span
from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.program.copies import copied
from tile_ir.program.nodes import (
    Constraint,
    Gather,
    Lookup,
    Poly,
    TensorType,
    coordinates,
)

from tile_lang import ast
from tile_lang.domain import independent, inverted
from tile_lang.formulas import bind_formula
from tile_lang.scope import Scope, origin
from tile_lang.values import BindFailure, Tensor, fail

Places = npt.NDArray[Any]
Interval = tuple[Fraction, Fraction]
"""Smallest and largest value, both included."""
Ranges = Mapping[str, Interval]
"""What the indexes of a contraction may be, as far as it is known without its borders."""

MOST_PIECES = 16
"""Pieces of a copy on both sides; one of more is gathered by a table of places."""


# --- modes ---------------------------------------------------------------------------------------


def _clamp(p: Places, n: int) -> Places:
    return np.clip(p, 0, n - 1)


def _wrap(p: Places, n: int) -> Places:
    return p % n


def _symmetric(p: Places, n: int) -> Places:
    p = p % (2 * n)
    return np.minimum(p, 2 * n - 1 - p)


def _reflect(p: Places, n: int) -> Places:
    period = max(1, 2 * n - 2)
    p = p % period
    return np.minimum(p, period - p)


MODES: Mapping[str, Callable[[Places, int], Places] | None] = {
    "clamp": _clamp,
    "reflect": _reflect,
    "symmetric": _symmetric,
    "wrap": _wrap,
    "zero": None,
}
"""Of n cells, the one that is read at each place, by the names that NumPy's `pad` gives the modes (``clamp`` is its
``edge``); None: 0 is read outside."""


# --- how far formulas reach ----------------------------------------------------------------------


def known_ranges(scope: Scope, node: ast.Contraction, given: Sequence[Constraint]) -> Ranges:
    """The ranges of indexes by `given` and by the subscripts of what is read; none where no subscript has a border."""
    refs = list(_refs(node))
    if not any(isinstance(s, ast.Border) for ref in refs for s in ref.indexes):
        return {}
    return bounds([*given, *(c for ref in refs for c in _plain(scope, ref))])


def _refs(node: ast.Contraction) -> Iterator[ast.Ref]:
    stack = list(node.body.accesses)
    while stack:
        ref = stack.pop()
        yield ref
        stack += [s for s in ref.indexes if isinstance(s, ast.Ref)]


def _plain(scope: Scope, ref: ast.Ref) -> Iterator[Constraint]:
    """The constraints of formulas without borders; what is wrong with them is said where they are bound."""
    value = scope.values.get(ref.name.id)
    if not isinstance(value, Tensor) or len(value.type.shape) != len(ref.indexes):
        return
    for subscript, size in zip(ref.indexes, value.type.shape, strict=True):
        if not isinstance(subscript, ast.Ref | ast.Border):
            yield Constraint(bind_formula(scope, subscript), size)


def bounds(constraints: Sequence[Constraint]) -> Ranges:
    """The ranges of the indexes that constraints bound: not always the smallest, never too small."""
    names = sorted({n for c in constraints for n in c.formula.names})
    basis = [constraints[k] for k in independent([c.formula for c in constraints], names)]
    if len(basis) < len(names) or any(c.size <= 0 for c in constraints):
        return {c.formula.index: _values(c) for c in constraints if c.formula.index is not None and c.size > 0}
    inverse = inverted([[c.formula.coefficient(n) for n in names] for c in basis])
    sides = {str(k): _values(c) for k, c in enumerate(basis)}
    found = {
        n: interval(Poly.of({str(k): f for k, f in enumerate(row)}), sides)
        for n, row in zip(names, inverse, strict=True)
    }
    for _ in names:
        found = {n: _narrowed(n, found, constraints) for n in names}
    return found


def _values(c: Constraint) -> Interval:
    """What the formula without its constant may be."""
    return -c.formula.const, c.size - 1 - c.formula.const


def _narrowed(name: str, found: Ranges, constraints: Sequence[Constraint]) -> Interval:
    """The range of an index, given those of the others."""
    low, high = found[name]
    for c in constraints:
        factor = c.formula.coefficient(name)
        if factor:
            rest = interval(Poly.of({n: f for n, f in c.formula.terms if n != name}), found)
            least, most = _values(c)
            ends = sorted(((least - rest[1]) / factor, (most - rest[0]) / factor))
            low, high = max(low, ends[0]), min(high, ends[1])
    return low, max(low, high)


def interval(formula: Poly, ranges: Ranges) -> Interval:
    """What a formula may be."""
    low = high = formula.const
    for name, factor in formula.terms:
        ends = sorted(factor * side for side in ranges[name])
        low, high = low + ends[0], high + ends[1]
    return low, high


# --- copies --------------------------------------------------------------------------------------


@frozen
class Piece:
    """`count` cells of a copy from `start` on, which are those at ``first + step * k`` of the tensor."""

    start: int
    first: int
    step: int
    count: int


def bordered(scope: Scope, x: Tensor, axis: int, node: ast.Border, ranges: Ranges) -> tuple[Tensor, Poly]:
    """`x` with its border along an axis, and the formula that reads it there."""
    formula = bind_formula(scope, node.formula)
    unknown = next((n for n in formula.names if n not in ranges), None)
    if unknown is not None:
        hint = f"{node.mode}(…) lets it run on; add a constraint such as {unknown} < 3"
        fail("TILE-E131", f"index {unknown} has no finite bounds", node.span, hint)
    size, reach = x.type.shape[axis], interval(formula, ranges)
    before, behind = max(0, ceil(-reach[0])), max(0, floor(reach[1]) - size + 1)
    if size == 0 and before + behind and node.mode != "zero":
        fail("TILE-E140", f"{node.mode} repeats elements of a dimension that has none", node.span)
    if before + behind:
        x = _copy(scope, x, axis, node, before, behind)
    return x, formula + Poly(const=Fraction(before))


def sliced(scope: Scope, x: Tensor, at: Mapping[int, Poly], span: Span | None) -> Tensor:
    """`x` at one place of some dimensions, which have one place then."""
    shape = tuple(1 if k in at else size for k, size in enumerate(x.type.shape))
    cell = coordinates(len(shape))
    read, text = tuple(at.get(k, c) for k, c in enumerate(cell)), span.text if span else ""
    type_ = TensorType(x.type.dtype, shape)
    return scope.emit(
        copied(scope.fresh(), type_, cell, x.name, read, zip(cell, shape, strict=True), text=text, origin=span)
    )


def _copy(scope: Scope, x: Tensor, axis: int, node: ast.Border, before: int, behind: int) -> Tensor:
    size, span = x.type.shape[axis], origin(node.span)
    shape = (*x.type.shape[:axis], before + size + behind, *x.type.shape[axis + 1 :])
    type_ = TensorType(x.type.dtype, shape)
    if prod(shape) > scope.limits.max_elements:
        raise BindFailure(scope.limits.diagnostic("max_elements", prod(shape), span))
    found = _outside(node.mode, size, before, behind)
    if len(found) > MOST_PIECES:
        places = MODES[node.mode]
        assert places is not None
        return _gathered(scope, x, axis, type_, places(np.arange(-before, size + behind), size), span)
    copy: Tensor | None = None
    for piece in [*found, Piece(before, 0, 1, size)]:
        copy = _placed(scope, x, axis, type_, piece, copy, span)
    assert copy is not None
    return copy


def _outside(mode: str, size: int, before: int, behind: int) -> list[Piece]:
    """The pieces on both sides, in front first."""
    places = MODES[mode]
    if places is None:
        return []
    front = pieces(places(np.arange(-before, 0), size), 0)
    return [*front, *pieces(places(np.arange(size, size + behind), size), before + size)]


def pieces(places: Places, start: int) -> list[Piece]:
    """The fewest pieces from the left, with steps of -1, 0 and 1, of a row of places that begins at `start`."""
    steps = np.diff(places)
    ends = [0]
    while ends[-1] < len(places):
        here = ends[-1]
        same = steps[here:] == steps[here : here + 1]
        run = len(same) if same.all() else int(np.argmin(same))
        far = len(steps) > here and abs(int(steps[here])) > 1
        ends.append(min(len(places), here + 1 + (0 if far else run)))
    return [Piece(start + a, int(places[a]), int(steps[a]) if b - a > 1 else 0, b - a) for a, b in pairwise(ends)]


def _placed(
    scope: Scope, x: Tensor, axis: int, type_: TensorType, piece: Piece, rest: Tensor | None, span: Span | None
) -> Tensor:
    """A piece of the copy, with all that was there already: the same memory, where nobody else reads it."""
    cell = coordinates(len(type_.shape))
    place = cell[axis]
    at, read = place + Poly(const=Fraction(piece.start)), place.scaled(piece.step) + Poly(const=Fraction(piece.first))
    output, source = (*cell[:axis], at, *cell[axis + 1 :]), (*cell[:axis], read, *cell[axis + 1 :])
    ranges = [*zip(output, type_.shape, strict=True), *zip(source, x.type.shape, strict=True), (place, piece.count)]
    under, text = None if rest is None else rest.name, span.text if span else ""
    return scope.emit(
        copied(scope.fresh(), type_, output, x.name, source, ranges, default=under, text=text, origin=span)
    )


def _gathered(scope: Scope, x: Tensor, axis: int, type_: TensorType, places: Places, span: Span | None) -> Tensor:
    """The copy by a table of places."""
    cell = coordinates(len(type_.shape))
    table = scope.constant_array(places.astype(np.int64), DType.INT64, span)
    subscripts = (*cell[:axis], Lookup(table.name, (cell[axis],)), *cell[axis + 1 :])
    return scope.emit(Gather(scope.fresh(), type_, x.name, subscripts, span))
