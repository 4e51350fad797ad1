<<<<<<< HEAD
"""Quantised operators of ONNX Runtime's own domain: what its quantiser and its optimiser leave in models.

Most are defined by ONNX's operators on dequantised values, whose result is quantised again.
"""

from __future__ import annotations

from tile_ir.dtype import DType

from tile_onnx.node import Node, Value
from tile_onnx.ops.activation import ACTIVATIONS
from tile_onnx.ops.matmul import product
from tile_onnx.ops.quantise import dequantize, inputs, quantize
from tile_onnx.ops.text import cast, less, listed, saturated
=======
"""Quantised operators of ONNX Runtime's own domain: dequantised, computed, quantised again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

from tile_onnx.node import Node, Value
from tile_onnx.ops.moving import permuted
from tile_onnx.ops.standard import standard
>>>>>>> 8a9a954
from tile_onnx.registry import operator

DOMAIN = "com.microsoft"

<<<<<<< HEAD
operator("QuantizeLinear", domain=DOMAIN)(quantize)
operator("DequantizeLinear", domain=DOMAIN)(dequantize)

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


_WINDOW = listed(
    f"{name}: {kind} = @{name}"
    for name, kind in {
        "kernel_shape": "ints", "strides": "ints", "pads": "ints", "ceil_mode": "int", "count_include_pad": "int",
        "auto_pad": "string",
    }.items()
)  # fmt: skip
_ON_FLOATS = {
    "QLinearAveragePool": f"AveragePool<{_WINDOW}>(x)",
    "QLinearGlobalAveragePool": "GlobalAveragePool(x)",
    "QLinearSoftmax": "Softmax<axis: int = @axis>(x)",
}
"""Operators of one quantised tensor: what happens to it meanwhile."""


@operator(*_ON_FLOATS, domain=DOMAIN)
def quantized_by_floats(node: Node) -> tuple[Value, ...]:
    """Dequantised, an operator, quantised again."""
    if node.attribute("channels_last", 0):
        raise node.unsupported("channels stand last", "quantise for the CPU provider, which keeps them second")
    return node.defined(
        f"(X, S, Z, T, V) => (Y) {{ x = DequantizeLinear(X, S, Z) y = {_ON_FLOATS[node.op]} "
        f"Y = QuantizeLinear(y, T, V) }}"
    )


@operator("QLinearConcat", domain=DOMAIN)
def quantized_concat(node: Node) -> tuple[Value, ...]:
    """Tensors of different scales and zero points side by side."""
    parts = range((node.arity - 2) // 3)
    taken = listed(f"X{k}, S{k}, Z{k}" for k in parts)
    floats = " ".join(f"x{k} = DequantizeLinear(X{k}, S{k}, Z{k})" for k in parts)
    return node.defined(
        f"(T, V, {taken}) => (Y) {{ {floats} y = Concat<axis: int = @axis>({listed(f'x{k}' for k in parts)}) "
        "Y = QuantizeLinear(y, T, V) }"
    )


@operator("QLinearWhere", domain=DOMAIN)
def quantized_where(node: Node) -> tuple[Value, ...]:
    """One of two quantised tensors, cell by cell."""
    return node.defined(
        "(C, A, SA, ZA, B, SB, ZB, T, V) => (Y) { a = DequantizeLinear(A, SA, ZA) b = DequantizeLinear(B, SB, ZB) "
        "y = Where(C, a, b) Y = QuantizeLinear(y, T, V) }"
    )


# --- products --------------------------------------------------------------------------------------


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


@operator("DynamicQuantizeMatMul", domain=DOMAIN)
def dynamically_quantized_matmul(node: Node) -> tuple[Value, ...]:
    """The left matrix is quantised over its own range; the product is in float32, with a bias."""
    return node.defined(
        "(A, B, SB, ZB, C) => (Y) { a, SA, ZA = DynamicQuantizeLinear(A) "
        "Y = com.microsoft.MatMulIntegerToFloat(a, B, SA, SB, ZA, ZB, C) }"
    )


@operator("QGemm", domain=DOMAIN)
def quantized_gemm(node: Node) -> tuple[Value, ...]:
    """``alpha A B + C`` of integers; C in units of both scales; quantised again where there is a scale for it."""
    flips = [bool(node.attribute(name, 0)) for name in ("transA", "transB")]
    order = [f"{n.lower()} = {'Transpose<perm = [1, 0]>' if f else 'Identity'}({n})" for n, f in zip("AB", flips, strict=True)]  # fmt: skip
    alpha = float(node.attribute("alpha", 1.0))
    total = "t = Add(p, C)" if node.has(6) else "t = Identity(p)"
    result = "Y = QuantizeLinear(y, T, V)" if node.has(7) else "Y = Identity(y)"
    return node.defined(
        f"(A, SA, ZA, B, SB, ZB, C, T, V) => (Y) {{ {' '.join(order)} p = MatMulInteger(a, b, ZA, ZB) {total} "
        f"f = Cast<to = 1>(t) s = Mul(SA, SB) alpha = Constant<value_float = {alpha!r}>() u = Mul(s, alpha) y = Mul(f, u) "
        f"{result} }}"
    )


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
=======

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


@operator("QLinearGlobalAveragePool", "QLinearAveragePool", domain=DOMAIN)
def quantised_pool(node: Node) -> Value:
    """An average of windows, or of whole channels, which may stand last."""
    last = bool(node.attribute("channels_last", 0))
    image = _channels_first(_real(node, 0)) if last else _real(node, 0)
    settings: dict[str, Any] = {n: v for n, v in node.attributes.items() if n not in ("channels_last", "channels")}
    pooled = standard(node, node.op.removeprefix("QLinear"), image, **settings)
    return _quantised(node, _channels_last(pooled) if last else pooled, 3)


@operator("NhwcMaxPool", domain=DOMAIN)
def channels_last_max_pool(node: Node) -> Value:
    """MaxPool of an image whose channels stand last."""
    return _channels_last(standard(node, "MaxPool", _channels_first(node.value(0)), **node.attributes))


@operator("QLinearConcat", domain=DOMAIN)
def quantised_concat(node: Node) -> Value:
    """Tensors with scales of their own, one behind the other."""
    tensors = [_real(node, k) for k in range(2, node.arity, 3)]
    return _quantised(node, standard(node, "Concat", *tensors, axis=node.attribute("axis")), 0)


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


@operator("QGemm", domain=DOMAIN)
def quantised_gemm(node: Node) -> Value:
    """``alpha A B + C`` with C in int32 at the scale of both; quantised again where an output scale is given."""
    a, b = _real(node, 0), standard(node, "DequantizeLinear", *(node.value(k) for k in (3, 4, 5)), axis=_columns(node))
    flips = {n: node.attribute(n, 0) for n in ("transA", "transB")}
    found = standard(node, "Gemm", a, b, alpha=node.attribute("alpha", 1.0), **flips)
    if node.has(6):
        scale = standard(node, "Mul", node.value(1), node.value(4))
        bias = standard(node, "Cast", node.value(6), to=TensorProto.FLOAT)
        found = standard(node, "Add", found, standard(node, "Mul", bias, scale))
    return _quantised(node, found, 7) if node.has(7) else found


def _columns(node: Node) -> int:
    """The axis of B that its scales, if there are several, belong to."""
    return 0 if node.attribute("transB", 0) else 1


@operator("DynamicQuantizeMatMul", domain=DOMAIN)
def dynamic_quantised_matmul(node: Node) -> Value:
    """A product of what is quantised now, by its own range, with weights that are quantised already."""
    value, scale, point = standard(node, "DynamicQuantizeLinear", node.value(0), outputs=3)
    product = standard(node, "MatMulInteger", value, node.value(1), point, node.value(3))
    scales = standard(node, "Mul", scale, node.value(2))
    found = standard(node, "Mul", standard(node, "Cast", product, to=TensorProto.FLOAT), scales)
    return standard(node, "Add", found, node.value(4)) if node.has(4) else found


def _shape(sizes: Sequence[int]) -> Value:
    return np.asarray(sizes, np.int64)
>>>>>>> 8a9a954
