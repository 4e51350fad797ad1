"""What has to hold of operations of two programs, so that the larger one has the smaller one's values inside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np
from tile_ir.program.nodes import (
    Argsort,
    ConstantTensor,
    Elementwise,
    Gather,
    IndexOf,
    Lookup,
    Op,
    Poly,
    Reshape,
    Scatter,
    Subscript,
)

from tile_onnx.padding.bounds import Interval, cells, span
from tile_onnx.padding.needs import Needs, OtherForm, Refused
from tile_onnx.padding.pair import Pair

_OTHER = "it has another form for the two sizes"


def constant(pair: Pair, number: int, ours: ConstantTensor, theirs: ConstantTensor) -> None:
    """The same numbers inside; else it becomes an input."""
    small, large = (
        np.frombuffer(op.data, op.type.dtype.numpy if op.type.dtype.bits > 1 else np.bool_).reshape(op.type.shape)
        for op in (ours, theirs)
    )
    if large[tuple(map(slice, small.shape))].tobytes() != small.tobytes():
        pair.needs |= Needs(constants=frozenset((number,)))


def elementwise(pair: Pair, number: int, ours: Elementwise, theirs: Elementwise) -> None:
    """Operands that are broadcast in one program are so in the other, as far as one can tell inside."""
    demand(theirs, (ours.fn, ours.args, ours.params) == (theirs.fn, theirs.args, theirs.params))
    result = pair.inner(theirs.name)
    for arg in (a for a in theirs.args if isinstance(a, str)):
        small, large = pair.inner(arg), pair.large[arg].shape
        for size, padded, whole in zip(small[::-1], large[::-1], result[::-1], strict=False):
            demand(theirs, not (size == 1 < padded and whole > 1))


def index_of(pair: Pair, number: int, ours: IndexOf, theirs: IndexOf) -> None:
    """Coordinates inside are the same."""
    demand(theirs, ours.axis == theirs.axis)


def reshape(pair: Pair, number: int, ours: Reshape, theirs: Reshape) -> None:
    """Cells inside stay where they are: only the first axis of those that merge or split may have cells outside."""
    demand(theirs, ours.arg == theirs.arg)
    before = list(zip(pair.inner(theirs.arg), pair.large[theirs.arg].shape, strict=True))
    after = list(zip(ours.type.shape, theirs.type.shape, strict=True))
    for group in _groups(before, after):
        if any(size != padded for sizes in group for size, padded in sizes[1:]):
            raise Refused(theirs, "it merges or splits the padded axis with axes in front of it")


def _groups(before: Sequence[tuple[int, int]], after: Sequence[tuple[int, int]]) -> list[list[list[tuple[int, int]]]]:
    """Neighbouring axes, as pairs of sizes, that hold the same elements before and after; axes of size 1 are left out."""
    rest = [[s for s in sizes if s != (1, 1)] for sizes in (before, after)]
    found: list[list[list[tuple[int, int]]]] = []
    while any(rest):
        group: list[list[tuple[int, int]]] = [[], []]
        while not any(group) or (_product(group[0]) != _product(group[1]) and any(rest)):
            behind = _product(group[0])[1] > _product(group[1])[1]
            side = int(behind) if rest[int(behind)] else 1 - int(behind)
            group[side].append(rest[side].pop(0))
        found.append(group)
    return found


def _product(sizes: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return prod(s for s, _ in sizes), prod(p for _, p in sizes)


def gather(pair: Pair, number: int, ours: Gather, theirs: Gather) -> None:
    """Subscripts are the same; where they are data, they are clamped alike, or not at all."""
    demand(theirs, ours.data == theirs.data)
    _subscripts(pair, theirs, ours.subscripts, theirs.subscripts, cells(pair.inner(theirs.name)))
    for axis, subscript in enumerate(theirs.subscripts):
        if not isinstance(subscript, Lookup) or not pair.padded(theirs.data, axis):
            continue
        if not pair.within(subscript.tensor, pair.inner(theirs.data)[axis]):
            raise Refused(theirs, "data say which cells of the padded axis it reads")


def scatter(pair: Pair, number: int, ours: Scatter, theirs: Scatter) -> None:
    """What lies outside of the updates falls outside of the result."""
    demand(theirs, (ours.updates, ours.agg, ours.default) == (theirs.updates, theirs.agg, theirs.default))
    inside, result = pair.inner(theirs.updates), pair.inner(theirs.name)
    _subscripts(pair, theirs, ours.subscripts, theirs.subscripts, cells(inside))
    for axis, size in enumerate(inside):
        own = [r for r, s in zip(result, theirs.subscripts, strict=True) if s == Poly.of({f"i{axis}": 1})]
        if pair.padded(theirs.updates, axis) and size not in own:
            raise Refused(theirs, "updates behind the end could fall on cells before it")
    for axis, subscript in enumerate(theirs.subscripts):
        if isinstance(subscript, Lookup) and pair.padded(theirs.name, axis):
            raise Refused(theirs, "data say which cells of the padded axis it writes")


def _subscripts(
    pair: Pair, op: Op, ours: Sequence[Subscript], theirs: Sequence[Subscript], bounds: Mapping[str, Interval]
) -> None:
    for a, b in zip(ours, theirs, strict=True):
        match a, b:
            case Poly(), Poly():
                same(op, [(a, b)], bounds)
            case Lookup(), Lookup():
                demand(op, a.tensor == b.tensor)
                same(op, list(zip(a.formulas, b.formulas, strict=True)), bounds)
            case _:
                demand(op, False)


def argsort(pair: Pair, number: int, ours: Argsort, theirs: Argsort) -> None:
    """Whole rows are sorted, each on its own."""
    demand(theirs, replace(ours, type=theirs.type) == theirs)
    if pair.padded(theirs.arg, theirs.axis):
        raise Refused(theirs, "it sorts along the padded axis")
    demand(theirs, not pair.padded(theirs.name, theirs.axis))


def same(op: Op, formulas: Sequence[tuple[Poly, Poly]], *regions: Mapping[str, Interval]) -> None:
    """Refuses formulas of the two programs that differ somewhere in these regions."""
    for a, b in formulas:
        if a != b and any(span(b + a.scaled(-1), region) != (0, 0) for region in regions):
            raise Refused(op, "it counts from the end of the padded axis, or its places depend on the size")


def demand(op: Op, holds: bool) -> None:
    """Refuses operations that are not the same for both sizes."""
    if not holds:
        raise OtherForm(op, _OTHER)
