"""Quantisation: to integers and back, by tensor, by axis, by block; and products of quantised matrices."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from math import prod

import numpy as np
from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_runtime.ops.matmul import product
from tile_runtime.ops.reducing import reduced
from tile_runtime.ops.text import (
    Shape,
    at,
    at_axes,
    cast,
    contraction,
    function,
    less,
    literal,
    names,
    reshaped,
    saturated,
)
from tile_runtime.ops.values import Value, apply, tile_dtype

from tile_onnx.dtypes import numpy_dtype
from tile_onnx.node import Node
from tile_onnx.ops.elementwise import known, number
from tile_onnx.registry import operator

Texts = dict[int, str]


@frozen
class Inputs:
    """Inputs of a node: how a text calls them, by number, and those that it names, with their values."""

    texts: Texts
    named: tuple[str, ...]
    values: tuple[Value, ...]

    def function(self, *statements: str, outputs: Iterable[str] = ("Y",)) -> Value:
        """What statements over the names make."""
        return apply(function(self.named, outputs, *statements), *self.values)


def inputs(node: Node, count: int, points: Collection[int]) -> Inputs:
    """The first inputs that are there: a zero point (their numbers are `points`) that is known and one is a literal."""
    texts: Texts = {}
    values: dict[str, Value] = {}
    for k in filter(node.has, range(count)):
        value = plain(node.value(k))
        constant = number(value) if k in points else None
        if isinstance(constant, int):
            texts[k] = literal(constant)
        else:
            texts[k] = f"X{k}"
            values[texts[k]] = value
    return Inputs(texts, tuple(values), tuple(values.values()))


def plain(value: Value) -> Value:
    """Constants of dtypes that Tile has not (4-bit integers, 8-bit floats), as int8 or float32."""
    array = known(value)
    if array is None or tile_dtype(array.dtype) is not None:
        return value
    return array.astype(np.int8 if "int" in array.dtype.name else np.float32)


def spread(out: str, name: str, given: Shape, node: Node) -> str:
    """A statement: a scale or zero point of shape `given`, so that it broadcasts to input 0, in `_blocks` where it has these."""
    shape, blocks = node.shape(0), _blocks(node)
    block = node.attribute("block_size", 0)
    if prod(given) == 1:
        return f"{out} = {reshaped(name, ())};"
    axis = node.axis(node.attribute("axis", 1))
    if not block:
        return f"{out} = {reshaped(name, (prod(given), *(1,) * (len(shape) - 1 - axis)))};"
    if given != tuple(-(-size // block) if k == axis else size for k, size in enumerate(shape)):
        raise node.unsupported(f"its scale or zero point has shape {list(given)}, which is not one for each block")
    if blocks:
        return f"{out} = {reshaped(name, (*blocks[: axis + 1], 1, *blocks[axis + 2 :]))};"
    indexes = names(len(shape))
    cells = at_axes(indexes, (axis,), f"{block} * q + r")
    return contraction(out, shape, cells, "=", at(name, at_axes(indexes, (axis,), "q")), f"r < {block}")


def _blocks(node: Node) -> Shape:
    """The shape of input 0 with the axis of its blocks cut into whole ones; () where there are none."""
    shape, block = node.shape(0), node.attribute("block_size", 0)
    axis = node.axis(node.attribute("axis", 1)) if block else 0
    if not block or shape[axis] % block:
        return ()
    return (*shape[:axis], shape[axis] // block, block, *shape[axis + 1 :])


def _spread(node: Node, texts: Texts) -> tuple[list[str], str | None]:
    """Statements that make the scale ``S``, the zero point ``Z`` and input 0 ``X`` fit, and the text of the zero point."""
    blocks = _blocks(node)
    statements = [f"X = {reshaped(texts[0], blocks) if blocks else texts[0]};"]
    statements.append(spread("S", texts[1], node.shape(1), node))
    zero = texts.get(2)
    if zero == "X2":
        statements.append(spread("Z", zero, node.shape(2), node))
        zero = "Z"
    return statements, zero


def _whole(node: Node, value: str) -> tuple[str, ...]:
    """Statements that make ``Y``, in the shape of input 0, of a value in its `_blocks`."""
    return (f"W = {value};", f"Y = {reshaped('W', node.shape(0))};") if _blocks(node) else (f"Y = {value};",)


@operator("QuantizeLinear", since=10)
def quantize(node: Node) -> Value:
    """``saturate(round(x / scale) + zero)``, rounded half to even; dtypes below 8 bits and 8-bit floats on the host."""
    target = _stated(node, "output_dtype") or (node.dtype(2) if node.has(2) else DType.UINT8)
    precision = _stated(node, "precision") or node.dtype(1)
    precision = precision if precision.is_float else DType.FLOAT32
    given = inputs(node, 3, (2,))
    statements, zero = _spread(node, given.texts)
    quotient = f"Q = {cast('X', precision)} / {cast('S', precision)};"
    return given.function(*statements, quotient, *_whole(node, saturated(cast("Q", DType.FLOAT32), zero, target)))


def _stated(node: Node, name: str) -> DType | None:
    """The dtype of an attribute; None where it is absent or 0, the host's where Tile has none."""
    element = node.attribute(name, 0)
    found = tile_dtype(numpy_dtype(element)) if element else None
    if element and found is None:
        raise node.on_host()
    return found


@operator("DequantizeLinear", since=10)
def dequantize(node: Node) -> Value:
    """``(x - zero) * scale``, in float32, rounded to the dtype of the scale or to `output_dtype`."""
    target = _stated(node, "output_dtype") or node.dtype(1)
    given = inputs(node, 3, (2,))
    statements, zero = _spread(node, given.texts)
    value = f"{less('X', zero, DType.FLOAT32)} * {cast('S', DType.FLOAT32)}"
    return given.function(*statements, *_whole(node, cast(f"({value})", target)))


@operator("DynamicQuantizeLinear", since=11)
def dynamic_quantize(node: Node) -> Value:
    """To uint8 over the range of the values and 0; the scale and zero point are outputs, too."""
    shape = node.shape(0)
    axes = tuple(range(len(shape)))
    statements = [
        reduced("High", "X", shape, axes, ">", keep=False),
        reduced("Low", "X", shape, axes, "<", keep=False),
        "L = min(Low, 0);",
        "R = max(High, 0) - L;",
        "S = R == 0 ? 1 : R / 255;",
        f"Z = {cast('round_even(max(0, min(255, -L / S)))', DType.UINT8)};",
        f"Y = {saturated('X / S', 'Z', DType.UINT8)};",
    ]
    return apply(function(("X",), ("Y", "S", "Z"), *statements), node.value(0))


@operator("MatMulInteger", since=10)
def integer_matmul(node: Node) -> Value:
    """Of 8-bit integers less their zero points, in int32; the left zero point may be one for each row."""
    given = inputs(node, 4, (2, 3))
    left = less(given.texts[0], of_rows(given.texts.get(2), node, 2), DType.INT32)
    right = less(given.texts[1], given.texts.get(3), DType.INT32)
    multiply = product(node.shape(0), node.shape(1)).statement("Y", "A", "B")
    return given.function(f"A = {left};", f"B = {right};", multiply)


def of_rows(text: str | None, node: Node, k: int) -> str | None:
    """Input `k` as text, a row of numbers as a column: one for each row of a matrix."""
    if text is None or text != f"X{k}" or node.rank(k) != 1 or node.shape(k) == (1,):
        return text
    return reshaped(text, (*node.shape(k), 1))


@operator("QLinearMatMul", since=10)
def quantized_matmul(node: Node) -> Value:
    """A product in int32, scaled and quantised again; A's scale and zero point may be one for each row."""
    given = inputs(node, 8, (2, 5, 7))
    texts = given.texts
    multiply = product(node.shape(0), node.shape(3)).statement("P", "A", "B")
    scale, into = cast(f"({of_rows(texts[1], node, 1)} * {texts[4]})", DType.FLOAT32), cast(texts[6], DType.FLOAT32)
    return given.function(
        f"A = {less(texts[0], of_rows(texts[2], node, 2), DType.INT32)};",
        f"B = {less(texts[3], texts[5], DType.INT32)};",
        multiply,
        f"S = {scale} / {into};",
        f"Q = {cast('P', DType.FLOAT32)} * S;",
        f"Y = {saturated('Q', texts[7], node.dtype(7))};",
    )
