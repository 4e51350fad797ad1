"""Pools: one number for each place of a window, or for each channel."""

from __future__ import annotations

from itertools import product
from math import ceil, floor, prod

import numpy as np
from tile_runtime.ops import pooling
from tile_runtime.ops.moving import reshaped, window
from tile_runtime.ops.pooling import cell, pooled
from tile_runtime.ops.text import at, cast, contraction, function, literal, names, wide
from tile_runtime.ops.values import Array, Value, apply
from tile_runtime.ops.windows import Window

from tile_onnx.node import Node
from tile_onnx.ops.moving import demand
from tile_onnx.ops.windows import sliding
from tile_onnx.registry import host_operator, operator


def _window(node: Node) -> Window:
    """The window of a pool over the image, its first input."""
    return sliding(node, node.shape(0)[2:], node.attribute("kernel_shape"))


@operator("MaxPool")
def max_pool(node: Node) -> Value:
    """The second output numbers cells along the last axis first, or along the first spatial one (`storage_order`)."""
    over, rank = _window(node), node.rank(0)
    if not node.wants(1):
        return pooling.max_pool(node.value(0), over)
    spatial = range(2, rank) if node.attribute("storage_order", 0) == 0 else range(rank - 1, 1, -1)
    return pooling.max_pool_with_places(node.value(0), over, (0, 1, *spatial))


@operator("AveragePool")
def average_pool(node: Node) -> Value:
    return pooling.average_pool(node.value(0), _window(node), bool(node.attribute("count_include_pad", 0)))


_POWERS = {1: ("abs(X)", "S"), 2: ("X * X", "sqrt(S)")}
"""What is summed, and what is made of the sum, for norms of these orders."""


def _norm(order: int) -> tuple[str, str]:
    return _POWERS.get(order, (f"pow(abs(X), {order})", f"pow(S, {literal(1 / order)})"))


@operator("LpPool", since=2)
def lp_pool(node: Node) -> Value:
    over = _window(node)
    power, root = _norm(node.attribute("p", 2))
    return _rounded_once(node, power, pooled("S", "+", cell(over, "A"), node.shape(0), over), root)


def _rounded_once(node: Node, term: str, total: str, result: str) -> Value:
    """The function of input 0: A, a term of X; `total`, the statement that sums A to S; a result of S."""
    dtype = node.dtype(0)
    statements = (f"X = {wide('In', dtype)};", f"A = {term};", total, f"Y = {cast(f'({result})', dtype)};")
    return apply(function(("In",), ("Y",), *statements), node.value(0))


def _over_all(target: str, aggregation: str, source: str, shape: tuple[int, ...]) -> str:
    """The statement that aggregates all spatial axes."""
    rank = len(shape)
    kept = (*shape[:2], *(1,) * (rank - 2))
    index = names(rank)
    return contraction(target, kept, (*index[:2], *("0",) * (rank - 2)), aggregation, at(source, index))


@operator("GlobalMaxPool")
def global_max_pool(node: Node) -> Value:
    return apply(function("X", "Y", _over_all("Y", ">", "X", node.shape(0))), node.value(0))


@operator("GlobalAveragePool")
def global_average_pool(node: Node) -> Value:
    shape = node.shape(0)
    count = literal(float(prod(shape[2:])))
    return _rounded_once(node, "X", _over_all("S", "+", "A", shape), f"S / {count}")


@operator("GlobalLpPool", since=2)
def global_lp_pool(node: Node) -> Value:
    power, root = _norm(node.attribute("p", 2))
    return _rounded_once(node, power, _over_all("S", "+", "A", node.shape(0)), root)


@operator("MaxUnpool", since=9)
def max_unpool(node: Node) -> Value:
    """The reverse of MaxPool: indices count cells of the image that the kernel, strides and pads imply."""
    shape, kernel = node.shape(0), node.attribute("kernel_shape")
    demand(node, node.shape(1) == shape, f"indices of shape {list(node.shape(1))} for values of shape {list(shape)}")
    rank = len(kernel)
    strides, pads = node.attribute("strides", (1,) * rank), node.attribute("pads", (0,) * (2 * rank))
    every = zip(shape[2:], kernel, strides, pads[:rank], pads[rank:], strict=True)
    sizes = (*shape[:2], *((n - 1) * s + k - b - a for n, k, s, b, a in every))
    place, size = names(len(shape)), prod(sizes)
    statement = contraction("Y", (size,), (at("I", place),), "=", at("X", place))
    flat = apply(function("XI", "Y", statement), node.value(0), node.value(1))
    return window(reshaped(flat, sizes), (0,) * len(sizes), node.ints(2, sizes))


@host_operator("MaxRoiPool")
def max_roi_pool(node: Node, image: Array, regions: Array) -> Array:
    """The largest values of regions in equal bins; how large a bin is depends on the regions."""
    rows, columns = node.attribute("pooled_shape")
    scale = node.attribute("spatial_scale", 1.0)
    found = np.zeros((len(regions), image.shape[1], rows, columns), image.dtype)
    # Halves go away from zero.
    corners = np.floor(regions[:, 1:] * scale + 0.5).astype(np.int64)
    for r, (left, top, right, bottom) in enumerate(corners.tolist()):
        own = image[int(regions[r, 0])]
        down = _bins(top, bottom, rows, own.shape[1])
        across = _bins(left, right, columns, own.shape[2])
        for y, x in product(range(rows), range(columns)):
            cells = own[:, down[y], across[x]]
            found[r, :, y, x] = cells.max((1, 2)) if cells.size else 0
    return found


def _bins(first: int, last: int, count: int, size: int) -> list[slice]:
    """`count` equal parts of the cells from `first` to `last`, as far as they are among `size`."""
    length = max(last - first + 1, 1) / count
    ends = [(floor(k * length) + first, ceil((k + 1) * length) + first) for k in range(count)]
    return [slice(min(max(low, 0), size), min(max(high, 0), size)) for low, high in ends]
