"""Operators of ONNX Runtime's own domain that its optimiser and its exporters leave in models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tile_runtime.ops.matmul import product
from tile_runtime.ops.moving import permuted
from tile_runtime.ops.text import cast, contraction, expression, function, literal, wide
from tile_runtime.ops.values import Value, apply

from tile_onnx.node import Node
from tile_onnx.ops.activation import ACTIVATIONS, GELU
from tile_onnx.ops.convolution import conv
from tile_onnx.ops.matmul import gemm, scaled
from tile_onnx.ops.normalise import layer, root_mean_square
from tile_onnx.ops.quantise import dequantize, quantize
from tile_onnx.ops.standard import standard
from tile_onnx.registry import operator

DOMAIN = "com.microsoft"

operator("QuantizeLinear", domain=DOMAIN)(quantize)
operator("DequantizeLinear", domain=DOMAIN)(dequantize)


# --- activations -----------------------------------------------------------------------------------


@operator("Gelu", "BiasGelu", "FastGelu", "QuickGelu", domain=DOMAIN)
def gelu(node: Node) -> Value:
    """Of the input, with a bias added before where there is one."""
    alpha = literal(float(node.attribute("alpha", 1.702)))
    value = {"FastGelu": GELU["tanh"], "QuickGelu": f"X * sigmoid({alpha} * X)"}.get(node.op, GELU["none"])
    dtype, taken = node.dtype(0), ("A", "B")[: 1 + node.has(1)]
    total = " + ".join(wide(name, dtype) for name in taken)
    text = function(taken, ("Y",), f"X = {total};", f"Y = {cast(f'({value})', dtype)};")
    return apply(text, *(node.value(k) for k in range(len(taken))))


def activated(node: Node, value: Value) -> Value:
    """`value` after the activation that a fused node names.

    Its parameters are ``activation_alpha`` and so on, or stand in ``activation_params`` in the order of its attributes.
    """
    name = node.attribute("activation", "")
    if not name:
        return value
    given = [literal(float(p)) for p in node.attribute("activation_params", ())]
    if name == "Clip":
        text = f"max({given[0]}, min({given[1]}, X))"
    elif name == "Relu":
        text = "relu(X)"
    elif name in ACTIVATIONS:
        kind = ACTIVATIONS[name]
        named = {n: literal(float(node.attribute(f"activation_{n}", v))) for n, v in kind.defaults.items()}
        text = kind.value.format(**(named | dict(zip(kind.defaults, given, strict=False))))
    else:
        raise node.unsupported(f"the activation {name!r} is not known")
    return apply(expression("X", text), value)


# --- products --------------------------------------------------------------------------------------


@operator("FusedMatMul", domain=DOMAIN)
def fused_matmul(node: Node) -> Value:
    """A scaled product of stacks of matrices, each transposed where an attribute says so."""
    orders = _stacked(node, 0, "transBatchA"), _stacked(node, 1, "transBatchB")
    a, b = (tuple(node.shape(k)[d] for d in order) for k, order in enumerate(orders))
    flips = bool(node.attribute("transA", 0)), bool(node.attribute("transB", 0))
    multiply = product(a, b, flips).statement("P", "A", "B")
    value = scaled("P", node.attribute("alpha", 1.0))
    text = function(("A", "B"), ("Y",), multiply, f"Y = {cast(f'({value})', node.dtype(0))};")
    return apply(text, *(permuted(node.value(k), order) for k, order in enumerate(orders)))


def _stacked(node: Node, k: int, attribute: str) -> tuple[int, ...]:
    """The order of an operand's dimensions in which its matrices stand last: by `attribute` their rows stand first of all."""
    every = tuple(range(node.rank(k)))
    return (*every[1:-1], 0, every[-1]) if node.attribute(attribute, 0) and len(every) > 1 else every


@operator("FusedGemm", domain=DOMAIN)
def fused_gemm(node: Node) -> Value:
    """Gemm and an activation."""
    return activated(node, gemm(node))


@operator("FusedConv", domain=DOMAIN)
def fused_conv(node: Node) -> Value:
    """A convolution with a bias, the image of input 3 added, and an activation."""
    total = conv(node)
    if node.has(3):
        total = apply(expression("A, B", "A + B"), total, node.value(3))
    return activated(node, total)


# --- normalisations --------------------------------------------------------------------------------


@operator("SkipLayerNormalization", domain=DOMAIN)
def skip_layer(node: Node) -> Value:
    """Of the sum of input, skip and bias; the sum is output 3."""
    total = _sum(node, (0, 1, 4))
    return _with_sum(node, layer(node, total, node.value(2), node.value(3), node.rank(0) - 1), total)


@operator("SkipSimplifiedLayerNormalization", domain=DOMAIN)
def skip_root_mean_square(node: Node) -> Value:
    """By the root mean square of the sum of input, skip and bias; the sum is output 3."""
    total = _sum(node, (0, 1, 3))
    return _with_sum(node, (root_mean_square(node, total, node.value(2), node.rank(0) - 1),), total)


@operator("SimplifiedLayerNormalization")
@operator("SimplifiedLayerNormalization", domain=DOMAIN)
def simplified_layer(node: Node) -> Value:
    """By the root mean square over the dimensions from `axis` on."""
    return root_mean_square(node, node.value(0), node.value(1), node.axis(node.attribute("axis", -1)))


def _sum(node: Node, which: Sequence[int]) -> Value:
    present = [k for k in which if node.has(k)]
    names = [f"X{k}" for k in present]
    return apply(function(names, ("Y",), f"Y = {' + '.join(names)};"), *(node.value(k) for k in present))


def _with_sum(node: Node, found: tuple[Value, ...], total: Value) -> tuple[Value, ...]:
    """The outputs of a normalisation that skips: the result, mean, deviation, and the sum."""
    return (*found, *(None,) * (3 - len(found)), total)[: node.count]


# --- names of their own for what ai.onnx has ------------------------------------------------------


@operator("TransposeMatMul", domain=DOMAIN)
def transpose_matmul(node: Node) -> Value:
    """The name that FusedMatMul had before."""
    return fused_matmul(node)


@operator("ExpandDims", domain=DOMAIN)
def expand_dims(node: Node) -> Value:
    """Another dimension of one element."""
    return standard(node, "Unsqueeze", node.value(0), node.host(1).reshape(1))


@operator("Trilu", "Pad", "Range", "GatherND", "GridSample", domain=DOMAIN)
def by_its_name(node: Node) -> Value:
    """As the operator of ai.onnx that has the name."""
    modes = {"bilinear": "linear", "bicubic": "cubic"} if node.op == "GridSample" else {}
    settings: dict[str, Any] = {n: modes.get(v, v) if isinstance(v, str) else v for n, v in node.attributes.items()}
    return standard(node, node.op, *node.values, **settings)


@operator("CDist", domain=DOMAIN)
def distances(node: Node) -> Value:
    """Between each row of one matrix and each row of another, squared or not."""
    if node.attribute("metric", "sqeuclidean") not in ("sqeuclidean", "euclidean"):
        raise node.unsupported(f"the metric {node.attribute('metric')!r} is not known")
    root = "sqrt(S)" if node.attribute("metric", "sqeuclidean") == "euclidean" else "S"
    rows, columns = node.shape(0)[0], node.shape(1)[0]
    width = node.shape(0)[1]
    apart = contraction("D", (rows, columns, width), ("i", "j", "k"), "=", "A[i, k]")
    other = contraction("E", (rows, columns, width), ("i", "j", "k"), "=", "B[j, k]")
    total = contraction("S", (rows, columns), ("i", "j"), "+", "Q[i, j, k]")
    text = function(("A", "B"), ("Y",), apart, other, "F = D - E;", "Q = F * F;", total, f"Y = {root};")
    return apply(text, node.value(0), node.value(1))
