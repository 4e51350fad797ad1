"""Operators of ONNX Runtime's own domain on weights of few bits, packed in blocks that have a scale and a zero point each."""

from __future__ import annotations

import numpy as np
from tile_ir.dtype import DType
from tile_runtime.ops.gather import chosen, wrapped
from tile_runtime.ops.text import at, cast, contraction, function, names, reshaped
from tile_runtime.ops.values import Array, Value, apply

from tile_onnx.node import Node
from tile_onnx.ops.microsoft import DOMAIN
from tile_onnx.ops.quantise import plain
from tile_onnx.registry import operator


@operator("MatMulNBits", domain=DOMAIN)
def narrow_matmul(node: Node) -> Value:
    """A product with weights [N, K] of 2, 4 or 8 bits, packed in blocks with a scale and a zero point each."""
    n, k, block, bits = (node.attribute(name) for name in ("N", "K", "block_size", "bits"))
    if node.has(4):
        raise node.unsupported("the groups of its weights are permuted (g_idx)")
    blocks = -(-k // block)
    weights = unpacked(node.host(1).reshape(n, -1), bits)[:, : blocks * block]
    points = np.full((n, blocks), 1 << (bits - 1)) if not node.has(3) else node.host(3).reshape(n, -1)
    if points.dtype == np.uint8:
        points = unpacked(points, bits)[:, :blocks]
    dtype, outer = node.dtype(0), node.shape(0)[:-1]
    index = names(len(outer))
    cut = contraction("L", (*outer, blocks, block), (*index, "q", "r"), "=", at("A", (*index, f"{block} * q + r")))
    terms = f"{at('L', (*index, 'q', 'r'))} * B[n, q, r]"
    statements = [
        cut if k % block else f"L = {reshaped('A', (*outer, blocks, block))};",
        *(f"{part} = {reshaped(given, (n, blocks, 1))};" for part, given in ("US", "VZ")),
        f"D = ({cast('W', DType.FLOAT32)} - V) * U;",
        f"B = {cast('D', dtype)};",
        contraction("P", (*outer, n), (*index, "n"), "+", terms),
        "Y = P + C;" if node.has(5) else "Y = P;",
    ]
    bias = [node.value(5)] if node.has(5) else []
    text = function(("A", "W", "S", "Z", "C")[: 4 + len(bias)], ("Y",), *statements)
    stacked = weights.reshape(n, blocks, block)
    return apply(text, node.value(0), stacked, node.value(2), points.astype(np.float32), *bias)


@operator("GatherBlockQuantized", domain=DOMAIN)
def gathered_blocks(node: Node) -> Value:
    """Rows of a table by number, of which only these become floats."""
    axis, along = (node.axis(node.attribute(name, k)) for k, name in enumerate(("gather_axis", "quantize_axis")))
    if axis == along:
        raise node.unsupported("elements are chosen along the axis of its blocks")
    block, scales = node.attribute("block_size", 128), node.value(2)
    size, blocks = _table(node, 0).shape[along], scales.shape[along]
    if blocks != -(-size // block):
        raise node.unsupported(f"it has {blocks} scales along axis {along}, which is not one for each block")
    table = _filled(_table(node, 0), along, blocks * block)
    zeros = _filled(_table(node, 3), along, blocks) if node.has(3) else np.full(scales.shape, _middle(node), np.uint8)
    places = wrapped(node.value(1), table.shape[axis])
    taken = [chosen(value, places, axis) for value in (table, scales, zeros)]
    moved = along + (len(places.shape) - 1 if along > axis else 0)
    shape: tuple[int, ...] = taken[0].shape
    cut, one = ((*shape[:moved], blocks, n, *shape[moved + 1 :]) for n in (block, 1))
    index = names(len(shape))
    statements = [
        *(
            f"{part} = {reshaped(given, sizes)};"
            for part, given, sizes in (("W", "X", cut), ("U", "S", one), ("V", "Z", one))
        ),
        f"D = ({cast('W', DType.FLOAT32)} - {cast('V', DType.FLOAT32)}) * {cast('U', DType.FLOAT32)};",
        f"E = {cast('D', node.dtype(2))};",
        f"F = {reshaped('E', shape)};",
        contraction("Y", (*shape[:moved], size, *shape[moved + 1 :]), index, "=", at("F", index)),
    ]
    return apply(function("XSZ", "Y", *statements), *taken)


def _middle(node: Node) -> int:
    """The zero point where none is given: bytes hold numbers without a sign."""
    return 1 << (node.attribute("bits", 4) - 1) if node.host(0).dtype == np.uint8 else 0


def _table(node: Node, k: int) -> Array:
    """Input k, a number an element: bytes hold as many as they have room for, along the last axis."""
    values = node.host(k)
    if values.dtype != np.uint8:
        return np.asarray(plain(values))
    return unpacked(values.reshape(-1, values.shape[-1]), node.attribute("bits", 4)).reshape(*values.shape[:-1], -1)


def _filled(values: Array, axis: int, size: int) -> Array:
    """`values` with `size` elements along an axis: zeros behind, or without what fills its last byte."""
    more = [(0, max(0, size - n) if d == axis else 0) for d, n in enumerate(values.shape)]
    return np.pad(values, more).take(range(size), axis)


def unpacked(values: Array, bits: int) -> Array:
    """Numbers of `bits` out of rows of bytes, the low bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return (values[:, :, None] >> shifts & np.uint8((1 << bits) - 1)).reshape(len(values), -1)
