"""Gradients of convolutions, transposed ones included.

Both kinds relate a small image S, [N, A, *places], and a large one B, [N, B, *cells], by weights [A, B/groups, *kernel]: place y
of a window holds its cells. A convolution makes the small one of the large one, a transposed one the reverse.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tile_runtime.ops.convolution import convolution, grouped, transposed_convolution
from tile_runtime.ops.reducing import reduced
from tile_runtime.ops.text import Shape, at, contraction, function
from tile_runtime.ops.values import Value, apply
from tile_runtime.ops.windows import Window

from tile_torch.call import Call
from tile_torch.ops.convolution import spread
from tile_torch.registry import operator

aten = torch.ops.aten


@operator(aten.convolution_backward.default)
def convolution_backward(
    call: Call,
    grad_output: Value,
    input: Value,
    weight: Value,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Value | None, Value | None, Value | None]:
    """Gradients of the image, the weights and the bias, as far as `output_mask` asks for them."""
    small, large = (input, grad_output) if transposed else (grad_output, input)
    before = spread(padding, len(weight.shape) - 2)
    window = Window(
        kernel=tuple(weight.shape[2:]),
        strides=spread(stride, len(before)),
        dilations=spread(dilation, len(before)),
        before=before,
        after=before,
        sizes=tuple((large if output_mask[0] and not transposed else small).shape[2:]),
    )
    image = (_small if transposed else _large)(grad_output, weight, window, groups) if output_mask[0] else None
    weights = _weights(small, large, weight.shape, window, groups) if output_mask[1] else None
    return image, weights, _bias(grad_output) if output_mask[2] else None


def _small(large: Value, weights: Value, window: Window, groups: int) -> Value:
    text = convolution("Y", "X", "W", window, (large.shape[0], *weights.shape[:2]), groups)
    return apply(function("XW", "Y", text), large, weights)


def _large(small: Value, weights: Value, window: Window, groups: int) -> Value:
    _, text = transposed_convolution("Y", "X", "W", window, (small.shape[0], *weights.shape[:2]), groups)
    return apply(function("XW", "Y", text), small, weights)


def _weights(small: Value, large: Value, shape: Shape, window: Window, groups: int) -> Value:
    """How much each weight counts: over all images and places, what both images hold where it joins them."""
    a, b, more = grouped(shape[0] // groups, shape[1], groups)
    own = "c" if shape[1] > 1 or groups == 1 else "0"
    body = f"{at('S', ('n', a, *window.places))} * {at('B', ('n', b, *window.subscripts()))}"
    text = contraction("Y", shape, (a, own, *window.cells), "+", body, *more)
    return apply(function("SB", "Y", text), small, large)


def _bias(grad: Value) -> Value:
    axes = tuple(k for k in range(len(grad.shape)) if k != 1)
    return apply(function("G", "Y", reduced("Y", "G", tuple(grad.shape), axes, keep=False)), grad)
