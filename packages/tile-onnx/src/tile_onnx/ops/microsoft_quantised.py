"""Quantised operators of ONNX Runtime's own domain, which its quantiser makes of a network.

Each operand has a scale and a zero point behind it; what is computed is quantised again.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from onnx import TensorProto
from tile_ir.dtype import DType
from tile_runtime.ops.matmul import product
from tile_runtime.ops.moving import joined, permuted
from tile_runtime.ops.text import at, cast, contraction, function, less, listed, literal, names, saturated
from tile_runtime.ops.values import Value, apply

from tile_onnx.node import Node
from tile_onnx.ops.activation import ACTIVATIONS
from tile_onnx.ops.matmul import scaled
from tile_onnx.ops.microsoft import DOMAIN
from tile_onnx.ops.quantise import dynamic_quantize, inputs, of_rows
from tile_onnx.ops.standard import standard
from tile_onnx.registry import operator

_ARITHMETIC = {"QLinearAdd": "+", "QLinearMul": "*"}


@operator(*_ARITHMETIC, domain=DOMAIN)
def quantized_arithmetic(node: Node) -> Value:
    """Two quantised operands, each with its scale and zero point; as ONNX Runtime does, the result's is added first."""
    given = inputs(node, 8, (2, 5, 7))
    texts = given.texts
    a, b = (f"({less(texts[k], texts.get(k + 2), DType.FLOAT32)} * {texts[k + 1]})" for k in (0, 3))
    value = f"({a} {_ARITHMETIC[node.op]} {b}) / {texts[6]} + {cast(texts.get(7, '0'), DType.FLOAT32)}"
    return given.function(f"Q = {value};", f"Y = {saturated('Q', None, node.dtype(0))};")


@operator("QLinearSigmoid", "QLinearLeakyRelu", domain=DOMAIN)
def quantized_activation(node: Node) -> Value:
    """An activation of what is dequantised, quantised again."""
    given = inputs(node, 5, (2, 4))
    texts = given.texts
    value = ACTIVATIONS[node.op.removeprefix("QLinear")].text(node)
    return given.function(
        f"X = {less(texts[0], texts.get(2), DType.FLOAT32)} * {texts[1]};",
        f"Q = ({value}) / {texts[3]};",
        f"Y = {saturated('Q', texts.get(4), node.dtype(0))};",
    )


@operator("MatMulIntegerToFloat", domain=DOMAIN)
def integer_matmul_to_float(node: Node) -> Value:
    """An integer product (A, B, their scales, zero points) in float32, with a bias."""
    given = inputs(node, 7, (4, 5))
    texts = given.texts
    bias = f" + {texts[6]}" if 6 in texts else ""
    return given.function(
        f"A = {less(texts[0], texts.get(4), DType.INT32)};",
        f"B = {less(texts[1], texts.get(5), DType.INT32)};",
        product(node.shape(0), node.shape(1)).statement("P", "A", "B"),
        f"Y = {cast('P', DType.FLOAT32)} * ({texts[2]} * {texts[3]}){bias};",
    )


@operator("QGemm", domain=DOMAIN)
def quantized_gemm(node: Node) -> Value:
    """Gemm of quantised matrices, B perhaps by columns, and an int32 bias, which is as large as a product; float32 where no scale is given for it."""
    given = inputs(node, 9, (2, 5, 8))
    texts = given.texts
    flips = bool(node.attribute("transA", 0)), bool(node.attribute("transB", 0))
    statements = [
        f"A = {less(texts[0], texts.get(2), DType.INT32)};",
        f"B = {less(texts[3], of_rows(texts.get(5), node, 5) if flips[1] else texts.get(5), DType.INT32)};",
        product(node.shape(0), node.shape(3), flips).statement("P", "A", "B"),
        f"S = {scaled(f'({texts[1]} * {texts[4]})', node.attribute('alpha', 1.0))};",
        f"T = P + {texts[6]};" if 6 in texts else "T = P;",
    ]
    total = cast("T", DType.FLOAT32)
    if 7 not in texts:
        return given.function(*statements, f"Y = {total} * S;")
    dtype = node.dtype(8) if node.has(8) else node.dtype(0)
    return given.function(
        *statements, f"Q = {total} * (S / {texts[7]});", f"Y = {saturated('Q', texts.get(8), dtype)};"
    )


@operator("QLinearGlobalAveragePool", domain=DOMAIN)
def quantized_average(node: Node) -> Value:
    """The mean of each channel, which stands last on request; numbers are added up as integers."""
    shape, given = node.shape(0), inputs(node, 5, (2, 4))
    last, texts = bool(node.attribute("channels_last", 0)), given.texts
    indexes = names(len(shape))
    kept = (0, len(shape) - 1) if last else (0, 1)
    cells = tuple(n if k in kept else "0" for k, n in enumerate(indexes))
    sizes = tuple(n if k in kept else 1 for k, n in enumerate(shape))
    count = prod(n for k, n in enumerate(shape) if k not in kept)
    return given.function(
        f"X = {less(texts[0], texts.get(2), DType.INT32)};",
        contraction("S", sizes, cells, "+", at("X", indexes)),
        f"Q = {cast('S', DType.FLOAT32)} * ({texts[1]} / ({texts[3]} * {literal(float(count))}));",
        f"Y = {saturated('Q', texts.get(4), node.dtype(0))};",
    )


@operator("QLinearConcat", domain=DOMAIN)
def quantized_concat(node: Node) -> Value:
    """Operands one behind the other, each quantised anew by the scale and zero point that stand first."""
    parts: list[Value] = []
    for k in range(2, node.arity, 3):
        value = f"({less('X', 'Z', DType.FLOAT32)} * S) / U"
        text = function(
            ("U", "V", "X", "S", "Z"), ("Y",), f"Q = {value};", f"Y = {saturated('Q', 'V', node.dtype(1))};"
        )
        parts.append(apply(text, *(node.value(n) for n in (0, 1, k, k + 1, k + 2))))
    axis = node.attribute("axis")
    return joined(parts, axis + node.rank(2) if axis < 0 else axis)


@operator("DynamicQuantizeMatMul", domain=DOMAIN)
def dynamic_matmul(node: Node) -> Value:
    """Of floats, quantised by their range, and 8-bit weights with a scale and zero point for all or each column; with a bias."""
    quantised, scale, zero = dynamic_quantize(node)
    taken = [k for k in (1, 2, 3, 4) if node.has(k)]
    bias = " + X4" if 4 in taken else ""
    statements = [
        f"A = {less('X', 'Z', DType.INT32)};",
        f"B = {less('X1', 'X3' if 3 in taken else None, DType.INT32)};",
        product(node.shape(0), node.shape(1)).statement("P", "A", "B"),
        f"Y = {cast('P', DType.FLOAT32)} * (S * X2){bias};",
    ]
    text = function(("X", "S", "Z", *(f"X{k}" for k in taken)), ("Y",), *statements)
    return apply(text, quantised, scale, zero, *(node.value(k) for k in taken))


# --- by ONNX's operators on floats ------------------------------------------------------------------


def _real(node: Node, k: int) -> Value:
    """Input `k` with its scale and zero point, which follow it, as float32."""
    return standard(node, "DequantizeLinear", node.value(k), node.value(k + 1), node.value(k + 2))


def _quantised(node: Node, value: Value, k: int) -> Value:
    """A value by the scale and zero point that are inputs `k` and `k + 1`; uint8 where there is no zero point."""
    dtype = None if node.has(k + 1) else TensorProto.UINT8
    return standard(node, "QuantizeLinear", value, node.value(k), node.value(k + 1), output_dtype=dtype)


def _channels_first(value: Value) -> Value:
    rank = len(value.shape)
    return permuted(value, (0, rank - 1, *range(1, rank - 1)))


def _channels_last(value: Value) -> Value:
    rank = len(value.shape)
    return permuted(value, (0, *range(2, rank), 1))


@operator("QLinearAveragePool", domain=DOMAIN)
def quantised_pool(node: Node) -> Value:
    """An average of windows; channels may stand last."""
    last = bool(node.attribute("channels_last", 0))
    image = _channels_first(_real(node, 0)) if last else _real(node, 0)
    settings: dict[str, Any] = {n: v for n, v in node.attributes.items() if n not in ("channels_last", "channels")}
    pooled = standard(node, node.op.removeprefix("QLinear"), image, **settings)
    return _quantised(node, _channels_last(pooled) if last else pooled, 3)


@operator("NhwcMaxPool", domain=DOMAIN)
def channels_last_max_pool(node: Node) -> Value:
    """MaxPool of an image whose channels stand last."""
    return _channels_last(standard(node, "MaxPool", _channels_first(node.value(0)), **node.attributes))


@operator("QLinearSoftmax", domain=DOMAIN)
def quantised_softmax(node: Node) -> Value:
    """Along an axis, or before opset 13, which `opset` states, over all dimensions from it on."""
    axis = node.axis(node.attribute("axis", -1))
    value = _real(node, 0)
    if node.attribute("opset", 13) >= 13:
        return _quantised(node, standard(node, "Softmax", value, axis=axis), 3)
    flat = standard(node, "Softmax", standard(node, "Flatten", value, axis=axis), axis=1)
    return _quantised(node, standard(node, "Reshape", flat, _shape(value.shape)), 3)


@operator("QLinearWhere", domain=DOMAIN)
def quantised_where(node: Node) -> Value:
    """One of two tensors with scales of their own, by a condition."""
    return _quantised(node, standard(node, "Where", node.value(0), _real(node, 1), _real(node, 4)), 7)


def _shape(sizes: Sequence[int]) -> Value:
    return np.asarray(sizes, np.int64)


@operator("DynamicQuantizeLSTM", domain=DOMAIN)
def quantized_lstm(node: Node) -> tuple[Value, ...]:
    """An LSTM whose weights [D, I, 4 H] are 8-bit integers; inputs and states are rounded to 8 bits over their range."""
    handed = {"activations": "strings", "activation_alpha": "floats", "activation_beta": "floats", "clip": "float",
              "direction": "string", "hidden_size": "int", "input_forget": "int"}  # fmt: skip
    settings = listed(f"{name}: {kind} = @{name}" for name, kind in handed.items())
    return node.defined(
        "(X, W, R, B, L, H, C, P, SW, ZW, SR, ZR) => (Y, YH, YC) { x, s, z = DynamicQuantizeLinear(X) "
        f"xf = DequantizeLinear(x, s, z) {_weights('w', 'W', node.shape(8))} {_weights('r', 'R', node.shape(10))} "
        f"Y, YH, YC = LSTM<narrow_states = 1, {settings}>(xf, w, r, B, L, H, C, P) }}"
    )


def _weights(target: str, name: str, scale: tuple[int, ...]) -> str:
    """Text: weights [D, I, 4 H] as floats [D, 4 H, I]; a scale and a zero point for each direction, or for each row."""
    shape = [scale[0], 1, scale[1] if len(scale) > 1 else 1]
    made = [f"{target}shape = Constant<value_ints = {shape}>()", f"{target}i = Cast<to = 1>({name})"]
    made += [f"{target}{k.lower()} = Reshape({k}{name}, {target}shape)" for k in "SZ"]
    made += [
        f"{target}p = Cast<to = 1>({target}z)",
        f"{target}d = Sub({target}i, {target}p)",
        f"{target}f = Mul({target}d, {target}s)",
        f"{target} = Transpose<perm = [0, 2, 1]>({target}f)",
    ]
    return " ".join(made)
