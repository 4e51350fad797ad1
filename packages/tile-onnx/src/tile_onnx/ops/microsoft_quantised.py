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
from tile_onnx.registry import operator

DOMAIN = "com.microsoft"

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
