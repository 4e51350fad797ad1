"""Convolutions of quantised images: in int32, of what is left after the zero points, so that padding adds nothing."""

from __future__ import annotations

from tile_ir.dtype import DType
from tile_runtime.ops.convolution import convolution
from tile_runtime.ops.text import cast, less, reshaped, saturated
from tile_runtime.ops.values import Value

from tile_onnx.node import Node
from tile_onnx.ops.convolution import groups_of
from tile_onnx.ops.quantise import Inputs, inputs
from tile_onnx.ops.windows import sliding
from tile_onnx.registry import operator


@operator("ConvInteger", since=10)
def integer_conv(node: Node) -> Value:
    """An int32 image; the weights' zero point may be one for each channel."""
    given = inputs(node, 4, (2, 3))
    return given.function(*_product(node, given, "Y", (0, 2), (1, 3)))


@operator("QLinearConv", since=10)
def quantized_conv(node: Node) -> Value:
    """Scaled and quantised again; scale and zero point of the weights may be one for each channel; the bias is int32."""
    given = inputs(node, 9, (2, 5, 7))
    texts = given.texts
    total = f"P + {_of_channels(texts[8], node, 8)}" if 8 in texts else "P"
    return given.function(
        *_product(node, given, "P", (0, 2), (3, 5)),
        f"S = {texts[1]} * {_of_channels(texts[4], node, 4)} / {texts[6]};",
        f"Q = {cast(f'({total})', DType.FLOAT32)} * S;",
        f"Y = {saturated('Q', texts[7], node.dtype(7))};",
    )


def _product(node: Node, given: Inputs, target: str, image: tuple[int, int], weights: tuple[int, int]) -> list[str]:
    """Statements: image and weights (the numbers of the inputs, and of their zero points) convolved in int32."""
    (x, x_zero), (w, w_zero), texts = image, weights, given.texts
    shape, kernel = node.shape(x), node.shape(w)
    points = _of_channels(texts[w_zero], node, w_zero) if w_zero in texts else None
    window = sliding(node, shape[2:], kernel[2:])
    return [
        f"A = {less(texts[x], texts.get(x_zero), DType.INT32)};",
        f"B = {less(texts[w], points, DType.INT32)};",
        convolution(target, "A", "B", window, (shape[0], *kernel[:2]), groups_of(node, shape, kernel)),
    ]


def _of_channels(text: str, node: Node, k: int) -> str:
    """Input `k` as text: one number for each channel stands along the channels (of images, and first of weights)."""
    if node.rank(k) == 0 or node.shape(k) == (1,):
        return text
    return reshaped(text, (*node.shape(k), *(1,) * (node.rank(0) - (1 if k == 5 or node.op == "ConvInteger" else 2))))
