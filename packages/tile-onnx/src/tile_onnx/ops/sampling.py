"""Reading tensors between their cells, at places that data gives: GridSample, AffineGrid, DeformConv, RoiAlign."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from tile_runtime.ops.convolution import grouped, with_bias
from tile_runtime.ops.sampling import Sampled, grid_sampled, sampled, samples
from tile_runtime.ops.text import at, contraction, function, listed, names, reshaped
from tile_runtime.ops.values import Array, Value, apply
from tile_runtime.ops.windows import Window

from tile_onnx.node import Node
from tile_onnx.ops.convolution import groups_of
from tile_onnx.ops.moving import demand
from tile_onnx.ops.windows import sliding
from tile_onnx.registry import operator

_MODES = {"bilinear": "linear", "bicubic": "cubic"}
"""Names of older opsets."""


@operator("GridSample", since=16)
def grid_sample(node: Node) -> Value:
    image, grid = node.shape(0), node.shape(1)
    fits = len(image) == len(grid) and image[0] == grid[0] and grid[-1] == len(image) - 2
    demand(node, fits, f"a grid of shape {list(grid)} for images of shape {list(image)}")
    mode: str = node.attribute("mode", "linear")
    padding, corners = node.attribute("padding_mode", "zeros"), bool(node.attribute("align_corners", 0))
    return grid_sampled(node.value(0), node.value(1), _MODES.get(mode, mode), padding, corners)


@operator("AffineGrid", since=20)
def affine_grid(node: Node) -> Value:
    """Places in an image of each cell of a grid, [N, *spatial, axes], that an affine map leads to."""
    spatial, corners = node.ints(1)[2:], bool(node.attribute("align_corners", 0))
    rank, batch = len(spatial), node.shape(0)[0]
    base = _normal_grid(spatial, corners).astype(node.dtype(0).numpy)
    index = names(rank)
    sizes = (batch, *spatial, rank)
    body = f"{at('B', (*index, 'k'))} * T[n, r, k]"
    return apply(function("TB", "Y", contraction("Y", sizes, ("n", *index, "r"), "+", body)), node.value(0), base)


def _normal_grid(spatial: Sequence[int], aligned_corners: bool) -> Array:
    """Coordinates from -1 to 1, the last axis first, and a 1: [*spatial, axes + 1]."""
    lines = [np.linspace(-1, 1, size) if aligned_corners else (2 * np.arange(size) + 1) / size - 1 for size in spatial]
    grid = np.meshgrid(*lines, indexing="ij")
    return np.stack([*reversed(grid), np.ones(tuple(spatial))], -1)


@operator("DeformConv", since=19)
def deform_conv(node: Node) -> Value:
    """A convolution whose cells are moved by offsets, and weighed by a mask."""
    image, weights, moved = node.shape(0), node.shape(1), node.attribute("offset_group", 1)
    groups = groups_of(node, image, weights)
    window = sliding(node, image[2:], weights[2:])
    rank, channels, count = len(window.kernel), image[1] // moved, prod(window.sizes)
    sizes, points = (image[0], moved, channels, *window.kernel, count), (image[0], moved, 1, *window.kernel, count)
    index = names(len(sizes))
    axes = sampled(names(rank, "P"), points, image[2:])
    statements = [
        f"Z = {reshaped('X', (image[0], moved, channels, prod(image[2:])))};",
        f"O = {reshaped('Off', (image[0], moved, *window.kernel, rank, count))};",
    ]
    for k, axis in enumerate(axes):
        own = (*index[:2], *index[3 : 3 + rank], k, index[-1])
        statements += [
            contraction(f"D{k}", points, (*index[:2], "0", *index[3:]), "=", at("O", own)),
            f"P{k} = D{k} + S{k};",
            *axis.taps("linear", "zeros", True),
        ]
    gathered, terms = samples("V", f"Z[{listed(index[:3])}, {{}}]", sizes, axes, "linear", "zeros")
    mask = f" * {reshaped('M', points)}" if node.has(4) else ""
    value = f"V = reshape(({' + '.join(terms)}){mask}, {listed((*image[:2], *window.kernel, count))});"
    o, c, more = grouped(weights[0] // groups, weights[1], groups)
    body = f"{at('V', ('n', c, *window.cells, 'p'))} * {at('W', (o, 'c', *window.cells))}"
    shape = (image[0], weights[0], *window.sizes)
    given = {"X": node.value(0), "W": node.value(1), "Off": node.value(2)}
    given |= {f"S{k}": base for k, base in enumerate(_bases(node, window))} | ({"M": node.value(4)} if mask else {})
    total = contraction("T", (image[0], weights[0], count), ("n", o, "p"), "+", body, *more)
    return with_bias(node.value(3), given, shape, *statements, *gathered, value, total, f"P = {reshaped('T', shape)};")


def _bases(node: Node, window: Window) -> list[Array]:
    """Where the cells of a window that is not deformed lie on each axis, to be broadcast to [N, G, C, *kernel, places]."""
    rank = len(window.kernel)
    found: list[Array] = []
    for k, size in enumerate(window.sizes):
        cell, place = np.arange(window.kernel[k]) * window.dilations[k], np.arange(size) * window.strides[k]
        lines = np.broadcast_to(place.reshape(-1, *(1,) * (rank - 1 - k)), window.sizes).reshape(-1)
        shape = [window.kernel[k] if j == k else 1 for j in range(rank)]
        found.append(
            (np.add.outer(cell, lines) - window.before[k]).reshape(1, 1, 1, *shape, -1).astype(node.dtype(0).numpy)
        )
    return found


@operator("RoiAlign", since=10)
def roi_align(node: Node) -> Value:
    """Regions of images in equal bins, each the mean or the largest of some samples."""
    count = node.attribute("sampling_ratio", 0)
    if count <= 0:
        # How many samples a bin has depends on the regions.
        raise node.on_host()
    image, regions = node.shape(0), node.shape(1)[0]
    bins = (node.attribute("output_height", 1), node.attribute("output_width", 1))
    sizes = (regions, image[1], *bins, count, count)
    axes: list[Sampled] = []
    statements = [f"Z = {reshaped('X', (*image[:2], prod(image[2:])))};"]
    for k, (size, parts) in enumerate(zip(image[2:], bins, strict=True)):
        shape = (
            regions,
            1,
            *(b if k == j else 1 for j, b in enumerate(bins)),
            *(count if k == j else 1 for j in (0, 1)),
        )
        axes.append(Sampled(f"P{k}", shape, size, prod(image[3 + k :])))
        statements += [*_bin_places(node, k, parts, shape), *axes[k].taps("linear", "border", True)]
    index = names(len(sizes))
    gathered, terms = samples("V", f"Z[B[{index[0]}], {index[1]}, {{}}]", sizes, axes, "linear")
    ends = _averaged(terms, sizes) if node.attribute("mode", "avg") == "avg" else _largest(terms, sizes)
    return apply(function("XRB", "Y", *statements, *gathered, *ends), *(node.value(k) for k in range(3)))


def _bin_places(node: Node, k: int, parts: int, shape: Sequence[int]) -> list[str]:
    """Statements for the samples' coordinates on axis k, of `shape`: Pk, kept inside, and whether they count, Lk."""
    half = 0.5 if _half_pixel(node) else 0.0
    scale, count, size = node.attribute("spatial_scale", 1.0), shape[4 + k], node.shape(0)[2 + k]
    edges = [
        contraction(f"{name}{k}", (shape[0], *(1,) * 5), ("i0", *("0",) * 5), "=", f"R[i0, {place}]")
        for name, place in (("Low", 1 - k), ("High", 3 - k))
    ]
    length = f"(High{k} - Low{k}) * {scale}"
    length = length if _half_pixel(node) else f"max({length}, 1)"
    return [
        *edges,
        contraction(f"Like{k}", shape, names(6), "=", "R[i0, 0]"),
        f"Bin{k} = {length} / {parts};",
        f"At{k} = Low{k} * {scale} - {half} + Bin{k} * (index(Like{k}, {2 + k}) + (index(Like{k}, {4 + k}) + 0.5) / {count});",
        f"L{k} = (At{k} >= -1) & (At{k} <= {size});",
        f"P{k} = min(max(At{k}, 0), {size - 1});",
    ]


def _half_pixel(node: Node) -> bool:
    default = "half_pixel" if node.opset >= 16 else "output_half_pixel"
    return node.attribute("coordinate_transformation_mode", default) == "half_pixel"


def _averaged(terms: Sequence[str], sizes: Sequence[int]) -> list[str]:
    total = contraction("S", sizes[:4], names(4), "+", at("V", names(6)))
    return [f"V = L0 & L1 ? {' + '.join(terms)} : 0;", total, f"Y = S / {float(prod(sizes[4:]))};"]


def _largest(terms: Sequence[str], sizes: Sequence[int]) -> list[str]:
    """The largest weighted corner of any sample, as ONNX defines it."""
    largest = terms[0]
    for term in terms[1:]:
        largest = f"max({largest}, {term})"
    return [f"V = L0 & L1 ? {largest} : 0;", contraction("Y", sizes[:4], names(4), ">", at("V", names(6)))]
