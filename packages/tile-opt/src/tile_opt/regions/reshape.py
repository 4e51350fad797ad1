"""Boxes of reshapes: axes that were split or merged are read in whole rows around the box."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import lcm, prod

from tile_ir.frozen import frozen
from tile_ir.program.nodes import Reshape, TensorType

from tile_opt.regions.boxes import Box
from tile_opt.regions.rules import Cut, Emission, Source


@frozen
class _Group:
    """Axes of the operand and of the result that hold the same cells in the same order."""

    before: tuple[int, ...]
    after: tuple[int, ...]


class ReshapeRule:
    """Each group of axes is read from its first row that the box meets to its last, in rows that both shapes have."""

    def __init__(self, op: Reshape, before: tuple[int, ...]) -> None:
        self._op, self._before, self._after = op, before, op.type.shape
        self.operands = (op.arg,)
        self._groups = tuple(groups(before, self._after)) if op.type.size else ()

    def cut(self, box: Box) -> Cut:
        read, around = self._rows(box)
        inside = box.relative(around.low)
        return Cut((around.shape, inside.low), (read,))

    def _rows(self, box: Box) -> tuple[Box, Box]:
        """The box read, and the box around the one asked for that holds just these cells."""
        read, around = Box.whole(self._before), box
        for group in self._groups:
            first, last = _rows(group, self._before, self._after, box)
            read = _along(read, group.before, self._before, first, last)
            around = _along(around, group.after, self._after, first, last)
        return read, around

    def emit(self, out: Emission) -> None:
        shape, at = out.form
        arg = out.exactly(out.source(0))
        around = TensorType(out.type.dtype, shape)
        name = out.name if shape == out.type.shape else out.new(f"{out.name}_rows")
        out.ops.append(replace(self._op, name=name, type=around, arg=arg))
        if name != out.name:
            out.exactly(Source(name, around, at, out.type.shape), out.name)


def groups(before: Sequence[int], after: Sequence[int]) -> Iterator[_Group]:
    """The smallest groups of neighbouring axes with as many cells on both sides."""
    i = j = 0
    while i < len(before) or j < len(after):
        mine, others = [i] if i < len(before) else [], [j] if j < len(after) else []
        i, j = i + len(mine), j + len(others)
        while (left := prod(before[k] for k in mine)) != (right := prod(after[k] for k in others)):
            if left < right:
                mine.append(i)
                i += 1
            else:
                others.append(j)
                j += 1
        yield _Group(tuple(mine), tuple(others))


def _rows(group: _Group, before: Sequence[int], after: Sequence[int], box: Box) -> tuple[int, int]:
    """The cells of a group, numbered in order, from the first whole row that the box meets to its last."""
    sizes = [after[k] for k in group.after]
    steps = [prod(sizes[n + 1 :]) for n in range(len(sizes))]
    first = sum(box.low[k] * step for k, step in zip(group.after, steps, strict=True))
    last = sum((box.high[k] - 1) * step for k, step in zip(group.after, steps, strict=True)) + 1
    row = lcm(_row(group.before, before), _row(group.after, after))
    return first // row * row, min(-(-last // row) * row, prod(sizes))


def _row(axes: Sequence[int], shape: Sequence[int]) -> int:
    """Cells in a row: all that one step along the first axis of several cells passes."""
    return prod(shape[k] for k in axes[_leading(axes, shape) + 1 :])


def _leading(axes: Sequence[int], shape: Sequence[int]) -> int:
    return next((n for n, k in enumerate(axes) if shape[k] > 1), max(len(axes) - 1, 0))


def _along(box: Box, axes: Sequence[int], shape: Sequence[int], first: int, last: int) -> Box:
    """`box` with the rows that hold the numbered cells along some axes, whole along those behind the first."""
    if not axes:
        return box
    low, high = list(box.low), list(box.high)
    for k in axes:
        low[k], high[k] = 0, shape[k]
    lead, row = axes[_leading(axes, shape)], _row(axes, shape)
    low[lead], high[lead] = first // row, -(-last // row)
    return Box(tuple(low), tuple(high))
