"""Moving elements: other shapes, other orders, windows. Arrays move at once, symbols by one Tile function each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tile_onnx.node import Node, Value, apply
from tile_onnx.ops.text import aligned, at, contraction, expression, function, listed, names
from tile_onnx.values import is_known

Shape = tuple[int, ...]


def reshaped(value: Value, shape: Sequence[int]) -> Value:
    """The same elements, in row-major order, as `shape`."""
    if is_known(value):
        return value.reshape(shape)
    return value if value.shape == tuple(shape) else apply(expression("X", _reshape("X", shape)), value)


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


def affine(index: str, step: int, start: int) -> str:
    """``step * index + start`` as a subscript."""
    scaled = index if step == 1 else f"{step}*{index}"
    return scaled if not start else f"{scaled} {'+' if start > 0 else '-'} {abs(start)}"


_AT_ONCE = 16
"""How many tensors one kernel joins: each of its cells asks of every one whether it is there."""


def joined(values: Sequence[Value], axis: int) -> Value:
    """As `np.concatenate(values, axis)`."""
    if all(map(is_known, values)):
        return np.concatenate(values, axis)
    values = [v for v in values if v.shape[axis]] or values[:1]
    while len(values) > 1:
        groups = [values[k : k + _AT_ONCE] for k in range(0, len(values), _AT_ONCE)]
        values = [_joined(group, axis) if len(group) > 1 else group[0] for group in groups]
    return values[0]


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


def attribute_or_input(node: Node, name: str, k: int) -> tuple[int, ...] | None:
    """Integers that older opsets have as attribute `name` and newer ones as input `k`; None where there are none."""
    found = node.attribute(name)
    return node.ints(k) if found is None and node.has(k) else found


def _reshape(value: str, shape: Sequence[int]) -> str:
    return f"reshape({listed((value, *shape))})"


def demand(node: Node, holds: bool, otherwise: str) -> None:
    """Refuses a node whose shapes contradict one another: an index that two tensors bound counts what both have."""
    if not holds:
        raise node.unsupported(otherwise, "the operator's definition relates these sizes; the model or a feed is wrong")
