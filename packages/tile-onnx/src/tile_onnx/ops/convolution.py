"""Convolutions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from tile_onnx.node import Node, Value, apply
from tile_onnx.ops.moving import demand, reshaped
from tile_onnx.ops.text import at, contraction, function, listed
from tile_onnx.ops.windows import Window, sliding
from tile_onnx.registry import operator


def convolution(target: str, inputs: str, weights: str, window: Window, shape: Sequence[int], groups: int) -> str:
    """The statement ``target = inputs * weights`` over a window.

    [N, C, *spatial] and [O, C/groups, *kernel], of `shape`, give [N, O, *window.sizes]; `shape` begins with N, O, C/groups.
    """
    batch, out, own = shape[:3]
    sizes = (batch, out, *window.sizes)
    o, c, more = grouped(out // groups, own, groups)
    image = at(inputs, ("n", c, *window.subscripts()))
    return contraction(
        target, sizes, ("n", o, *window.places), "+", f"{image} * {at(weights, (o, 'c', *window.cells))}", *more
    )


def grouped(out: int, own: int, groups: int) -> tuple[str, str, tuple[str, ...]]:
    """Subscripts of output and input channels, `out` and `own` in each group, and what bounds them."""
    if groups == 1:
        return "o", "c", ()
    o = f"{out}*g + o" if out > 1 else "g"
    c = f"{own}*g + c" if own > 1 else "g + c"
    return o, c, (*((f"o < {out}",) if out > 1 else ()), f"c < {own}")


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
    shape = (image[0], *weights[:2])
    product = convolution("P", "X", "W", window, shape, groups)
    given = {"X": node.value(0), "W": node.value(1)}
    return with_bias(node.value(2), given, (*shape[:2], *window.sizes), product)


def with_bias(bias: Value, given: Mapping[str, Value], shape: Sequence[int], *statements: str) -> Value:
    """`statements`, which give P of `shape`, [N, O, …], from `given`; and the bias of each channel where there is one."""
    if bias is None:
        return apply(function(given, "P", *statements), *given.values())
    added = f"Y = P + reshape(Bias, {listed((shape[1], *(1,) * (len(shape) - 2)))});"
    return apply(function((*given, "Bias"), "Y", *statements, added), *given.values(), bias)


@operator("ConvTranspose")
def conv_transpose(node: Node) -> Value:
    image, weights, groups = node.shape(0), node.shape(1), node.attribute("group", 1)
    check_channels(node, image, weights, weights[0], weights[0])
    window = spreading(node, image[2:], weights[2:])
    o, c, more = grouped(weights[1], weights[0] // groups, groups)
    sizes = (image[0], weights[1] * groups, *window.sizes)
    # Input cell y of the image adds to the cells that a forward convolution would read for output cell y.
    own = "o" if weights[1] > 1 or groups == 1 else "0"
    body = f"{at('X', ('n', c, *window.places))} * {at('W', (c, own, *window.cells))}"
    product = contraction("P", sizes, ("n", o, *window.subscripts()), "+", body, *more)
    return with_bias(node.value(2), {"X": node.value(0), "W": node.value(1)}, sizes, product)


def spreading(node: Node, shape: Sequence[int], kernel: Sequence[int]) -> Window:
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
    sizes = tuple(f - b - a for f, b, a in zip(full, before, after, strict=True))
    return Window(tuple(kernel), strides, dilations, before, after, sizes)


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
