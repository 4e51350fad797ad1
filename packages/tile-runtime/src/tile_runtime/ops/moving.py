"""Moving elements: other shapes, other orders, windows, slices, pads and joins.

Arrays move at once, symbols by one Tile function each.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from tile_runtime.ops.gather import chosen
from tile_runtime.ops.text import affine, aligned, at, contraction, expression, function, names
from tile_runtime.ops.text import reshaped as reshaped_text
from tile_runtime.ops.values import Array, Value, apply, is_known


def reshaped(value: Value, shape: Sequence[int]) -> Value:
    """The same elements, in row-major order, as `shape`."""
    if is_known(value):
        return value.reshape(shape)
    return value if value.shape == tuple(shape) else apply(expression("X", reshaped_text("X", shape)), value)


def permuted(value: Value, order: Sequence[int]) -> Value:
    """As `np.transpose(value, order)`."""
    if is_known(value):
        return value.transpose(order)
    if tuple(order) == tuple(range(len(order))):
        return value
    return apply(function("X", "Y", permutation("Y", "X", value.shape, order)), value)


def permutation(target: str, source: str, shape: Sequence[int], order: Sequence[int]) -> str:
    """The statement ``target = source`` of `shape`, with its axes in `order`."""
    index = names(len(shape))
    return contraction(target, [shape[k] for k in order], [index[k] for k in order], "=", at(source, index))


def rearranged(value: Value, split: Sequence[int], order: Sequence[int], merged: Sequence[int]) -> Value:
    """Reshaped to `split`, permuted to `order`, reshaped to `merged`."""
    return reshaped(permuted(reshaped(value, split), order), merged)


def expanded(value: Value, shape: Sequence[int]) -> Value:
    """Broadcast to `shape`, to which its own shape must broadcast."""
    if value.shape == tuple(shape):
        return value
    if is_known(value):
        return np.broadcast_to(value, shape)
    index = names(len(shape))
    return apply(function("X", "Y", contraction("Y", shape, index, "=", at("X", aligned(value.shape, index)))), value)


def repeated(value: Value, repeats: Sequence[int]) -> Value:
    """As `np.tile(value, repeats)`, one count for each axis."""
    if is_known(value):
        return np.tile(value, repeats)
    paired = [size for pair in zip(repeats, value.shape, strict=True) for size in pair]
    apart = [size for own in value.shape for size in (1, own)]
    merged = [r * size for r, size in zip(repeats, value.shape, strict=True)]
    return reshaped(expanded(reshaped(value, apart), paired), merged)


def window(
    value: Value, starts: Sequence[int], sizes: Sequence[int], steps: Sequence[int] | None = None, fill: Value = None
) -> Value:
    """``Y[i…] = value[step * i + start …]``; what lies outside is `fill`, a scalar, or 0."""
    steps = steps or [1] * len(starts)
    if tuple(sizes) == value.shape and not any(starts) and set(steps) <= {1}:
        return value
    index = names(len(sizes))
    subscripts = [affine(i, step, start) for i, step, start in zip(index, steps, starts, strict=True)]
    if fill is None:
        return apply(function("X", "Y", contraction("Y", sizes, index, "=", at("X", subscripts))), value)
    text = contraction("Y", sizes, index, "=", at("X", subscripts), "default F")
    return apply(function("XF", "Y", text), value, reshaped(fill, ()))


_AT_ONCE = 16
"""How many tensors one kernel joins: each of its cells asks of every one whether it is there."""


def joined(values: Sequence[Value], axis: int) -> Value:
    """As `np.concatenate(values, axis)`; ValueError where other axes than that differ."""
    if all(map(is_known, values)):
        return np.concatenate(values, axis)
    _same_beside(values, axis)
    values = [v for v in values if v.shape[axis]] or values[:1]
    while len(values) > 1:
        groups = [values[k : k + _AT_ONCE] for k in range(0, len(values), _AT_ONCE)]
        values = [_joined(group, axis) if len(group) > 1 else group[0] for group in groups]
    return values[0]


def _same_beside(values: Sequence[Value], axis: int) -> None:
    """ValueError where tensors that are joined along an axis have other shapes beside it."""
    first, *others = (tuple(v.shape) for v in values)
    for shape in others:
        if (*first[:axis], *first[axis + 1 :]) != (*shape[:axis], *shape[axis + 1 :]):
            raise ValueError(f"shapes {first} and {shape} cannot be joined along axis {axis}: they differ beside it")


def _joined(values: Sequence[Value], axis: int) -> Value:
    shape, ends = values[0].shape, np.cumsum([0, *(v.shape[axis] for v in values)]).tolist()
    sizes, index = (*shape[:axis], ends[-1], *shape[axis + 1 :]), names(len(shape))
    inputs, targets = names(len(values), "X"), (*names(len(values) - 1, "Y"), "Y")
    statements: list[str] = []
    for k, (given, target) in enumerate(zip(inputs, targets, strict=True)):
        place = [affine(i, 1, ends[k] if a == axis else 0) for a, i in enumerate(index)]
        default = [f"default {targets[k - 1]}"] if k else []
        statements.append(contraction(target, sizes, place, "=", at(given, index), *default))
    return apply(function(inputs, ["Y"], *statements), *values)


def sliced(value: Value, slices: Sequence[slice]) -> Value:
    """As `value[slices]`, one slice for each axis."""
    if is_known(value):
        return value[tuple(slices)]
    ranges = [range(*s.indices(size)) for s, size in zip(slices, value.shape, strict=True)]
    return window(value, [r.start if len(r) else 0 for r in ranges], [len(r) for r in ranges], [r.step for r in ranges])


def flipped(value: Value, axes: Sequence[int]) -> Value:
    """As `np.flip(value, axes)`; axes count from the front."""
    backwards = slice(None, None, -1)
    return sliced(value, [backwards if k in axes else slice(None) for k in range(len(value.shape))])


_ROLLED = 3
"""Axes: each doubles the number of pieces."""


def rolled(value: Value, shifts: Sequence[int]) -> Value:
    """As `np.roll(value, shifts, range(rank))`: one piece for each choice of what leaves at an end and what stays.

    The largest comes last, where it joins what reads the result. At most `_ROLLED` axes go at once.
    """
    shape = tuple(value.shape)
    shifts = [by % n if n else 0 for by, n in zip(shifts, shape, strict=True)]
    moved = [k for k, by in enumerate(shifts) if by]
    if len(moved) > _ROLLED:
        last = moved[_ROLLED]
        value = rolled(value, [0 if k < last else by for k, by in enumerate(shifts)])
        shifts = [by if k < last else 0 for k, by in enumerate(shifts)]
    ways = [(by, by - n) if by else (0,) for n, by in zip(shape, shifts, strict=True)]
    pieces = sorted(product(*ways), key=lambda piece: prod(n - abs(by) for n, by in zip(shape, piece, strict=True)))
    if is_known(value):
        return np.roll(value, shifts, tuple(range(len(shape))))
    if len(pieces) == 1:
        return value
    index, targets = names(len(shape)), (*names(len(pieces) - 1, "Y"), "Y")
    statements: list[str] = []
    for k, (target, piece) in enumerate(zip(targets, pieces, strict=True)):
        place = [affine(i, 1, by) for i, by in zip(index, piece, strict=True)]
        default = [f"default {targets[k - 1]}"] if k else []
        statements.append(contraction(target, shape, place, "=", at("X", index), *default))
    return apply(function("X", ["Y"], *statements), value)


def equal_sizes(size: int, count: int) -> list[int]:
    """Sizes of `count` parts, as equal as they can be; the last may be smaller."""
    each = -(-size // count)
    return [max(0, min(each, size - k * each)) for k in range(count)]


def parts(value: Value, axis: int, sizes: Sequence[int]) -> list[Value]:
    """`value` in pieces of these sizes along `axis`."""
    ends = np.cumsum(sizes).tolist()
    whole = [slice(None)] * len(value.shape)
    return [
        sliced(value, [*whole[:axis], slice(end - size, end), *whole[axis + 1 :]])
        for size, end in zip(sizes, ends, strict=True)
    ]


def padded(
    value: Value, before: Sequence[int], after: Sequence[int], mode: str = "constant", fill: Value = None
) -> Value:
    """As `np.pad`, of constants (`fill`, a scalar, or 0) or by one of its other modes; negative counts crop first."""
    shape: tuple[int, ...] = value.shape
    if mode == "constant":
        sizes = [b + n + a for b, n, a in zip(before, shape, after, strict=True)]
        return window(value, [-b for b in before], sizes, fill=fill)
    for axis, (b, a) in enumerate(zip(before, after, strict=True)):
        if b or a:
            value = of_cells(value, axis, padded_indices(shape[axis], b, a, mode))
    return value


_RUNS = 4
"""How many windows of neighbouring elements are copied sooner than each element is looked up."""


def of_cells(value: Value, axis: int, cells: Array) -> Value:
    """`value` with an axis made of old cells, known beforehand: looked up, or in windows where few are neighbours in memory."""
    runs = _runs(cells)
    inner = prod(value.shape[axis + 1 :]) == 1
    if len(runs) > (_RUNS if inner else 1):
        return chosen(value, cells.astype(np.int32), axis)
    rank = len(value.shape)
    parts: list[Value] = []
    for start, step, count in runs:
        sizes = [count if k == axis else size for k, size in enumerate(value.shape)]
        starts, steps = (
            [start if k == axis else 0 for k in range(rank)],
            [step if k == axis else 1 for k in range(rank)],
        )
        parts.append(window(value, starts, sizes, steps))
    return joined(parts, axis)


def _runs(cells: Array) -> list[tuple[int, int, int]]:
    """Numbers as (first, step, count), each run as long as can be."""
    found: list[tuple[int, int, int]] = []
    for cell in cells.tolist():
        start, step, count = found[-1] if found else (0, 0, 0)
        if count == 1 or (count > 1 and cell == start + step * count):
            found[-1] = (start, cell - start if count == 1 else step, count + 1)
        else:
            found.append((cell, 0, 1))
    return found


def padded_indices(size: int, before: int, after: int, mode: str) -> Array:
    """Which of `size` cells each cell of the padded axis holds; negative pads crop first, as ONNX Runtime does."""
    cells = np.arange(max(0, -before), size - max(0, -after))
    pad: Any = np.pad
    return pad(cells, (max(0, before), max(0, after)), mode=mode)
