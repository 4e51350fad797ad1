"""Convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tile_runtime.ops.convolution import convolved, transposed
from tile_runtime.ops.moving import reshaped
from tile_runtime.ops.text import at, contraction, function
from tile_runtime.ops.values import Value, apply
from tile_runtime.ops.windows import Window, spreading

from tile_onnx.node import Node
from tile_onnx.ops.moving import demand
from tile_onnx.ops.windows import sliding
from tile_onnx.registry import operator


def groups_of(node: Node, image: Sequence[int], weights: Sequence[int]) -> int:
    """The groups of a convolution of such shapes, which must fit: a contraction takes the channels that both have."""
    groups = node.attribute("group", 1)
    check_channels(node, image, weights, weights[1] * groups, weights[0])
    return groups


def check_channels(node: Node, image: Sequence[int], weights: Sequence[int], wanted: int, grouped_size: int) -> None:
    """Refuses an image that has not as many channels and axes as the weights want, and groups that do not divide."""
    demand(node, len(image) == len(weights) > 2, f"an image of {len(image)} dimensions and weights of {len(weights)}")
    demand(node, image[1] == wanted, f"the image has {image[1]} channels, the weights are for {wanted}")
    groups = node.attribute("group", 1)
    divides = groups > 0 and grouped_size % groups == 0
    demand(node, divides, f"{grouped_size} channels do not divide into {groups} groups")


@operator("Conv")
def conv(node: Node) -> Value:
    image, weights = node.shape(0), node.shape(1)
    groups = groups_of(node, image, weights)
    window = sliding(node, image[2:], weights[2:])
    return convolved(node.value(0), node.value(1), node.value(2), window, groups)


@operator("ConvTranspose")
def conv_transpose(node: Node) -> Value:
    image, weights, groups = node.shape(0), node.shape(1), node.attribute("group", 1)
    check_channels(node, image, weights, weights[0], weights[0])
    window = _spreading(node, image[2:], weights[2:])
    return transposed(node.value(0), node.value(1), node.value(2), window, groups)


def _spreading(node: Node, shape: Sequence[int], kernel: Sequence[int]) -> Window:
    """The window of a transposed convolution: `sizes` are those of its output."""
    rank = len(shape)
    strides = tuple(node.attribute("strides") or (1,) * rank)
    dilations = tuple(node.attribute("dilations") or (1,) * rank)
    extra = node.attribute("output_padding") or (0,) * rank
    full = [
        s * (n - 1) + e + d * (k - 1) + 1
        for n, k, s, d, e in zip(shape, kernel, strides, dilations, extra, strict=True)
    ]
    before, after = _cropping(node, shape, strides, full)
    after = tuple(a - e for a, e in zip(after, extra, strict=True))
    return spreading(shape, kernel, strides, dilations, before, after)


def _cropping(
    node: Node, shape: Sequence[int], strides: Sequence[int], full: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """How many cells of the full output are cut off in front and behind."""
    rank, auto, wanted = len(shape), node.attribute("auto_pad", "NOTSET"), node.attribute("output_shape")
    if wanted is None and auto not in ("SAME_UPPER", "SAME_LOWER"):
        pads = (auto == "NOTSET" and node.attribute("pads")) or (0,) * (2 * rank)
        return tuple(pads[:rank]), tuple(pads[rank:])
    wanted = wanted[-rank:] if wanted else [n * s for n, s in zip(shape, strides, strict=True)]
    totals = [f - w for f, w in zip(full, wanted, strict=True)]
    smaller, larger = tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
    return (smaller, larger) if auto == "SAME_UPPER" else (larger, smaller)


@operator("Col2Im", since=18)
def col2im(node: Node) -> Value:
    """The image whose windows are the columns: where they overlap, they are added."""
    batch, rows, _ = node.shape(0)
    image, kernel = node.ints(1), node.ints(2)
    window = sliding(node, image, kernel)
    channels = rows // prod(kernel)
    split = reshaped(node.value(0), (batch, channels, *kernel, *window.sizes))
    body = at("X", ("n", "c", *window.cells, *window.places))
    total = contraction("Y", (batch, channels, *image), ("n", "c", *window.subscripts()), "+", body)
    return apply(function("X", "Y", total), split)
