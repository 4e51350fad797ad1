"""Normalisations: batch, instance, group, layer, root mean square, by norms, local response."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tile_runtime.ops.reducing import moments, reduced
from tile_runtime.ops.text import Shape, at, cast, contraction, function, literal, names, reshaped, wide
from tile_runtime.ops.values import Value, apply, dtype_of

from tile_onnx.node import Node
from tile_onnx.registry import operator


def channelwise(name: str, shape: Shape, rank: int) -> str:
    """A parameter of the dimensions from 1 on, as text that broadcasts to tensors of `rank` dimensions."""
    return reshaped(name, (*shape, *(1,) * (rank - 1 - len(shape))))


@operator("BatchNormalization")
def batch_normalization(node: Node) -> Value:
    """By statistics that are inputs; in training by those of the batch, with the running ones beside."""
    if node.attribute("training_mode", 0):
        return _training(node)
    statements = [*_parameters(node, "SBMV"), f"K = S / sqrt(V + {_epsilon(node)});", "L = B - M * K;"]
    return _normalised(node, ("S", "B", "M", "V"), statements, "X * K + L")


def _epsilon(node: Node, name: str = "epsilon") -> str:
    return literal(float(node.attribute(name, 1e-5)))


def _parameters(node: Node, letters: str) -> list[str]:
    """Statements: the inputs from 1 on, widened, in shapes that broadcast."""
    return [
        f"{letter} = {channelwise(wide('In' + letter, node.dtype(k)), node.shape(k), node.rank(0))};"
        for k, letter in enumerate(letters, 1)
    ]


def _normalised(node: Node, parameters: Sequence[str], statements: Sequence[str], value: str) -> Value:
    """The function of input 0 and the parameters: `value`, rounded to the dtype of input 0."""
    dtype = node.dtype(0)
    text = function(
        ["InX", *("In" + name for name in parameters)],
        ("Y",),
        f"X = {wide('InX', dtype)};",
        *statements,
        f"Y = {cast(f'({value})', dtype)};",
    )
    return apply(text, *(node.value(k) for k in range(1 + len(parameters))))


def _training(node: Node) -> Value:
    shape, momentum = node.shape(0), float(node.attribute("momentum", 0.9))
    axes = tuple(k for k in range(len(shape)) if k != 1)
    running = f"{literal(momentum)} * {{}} + {literal(1 - momentum)} * {{}}"
    dtypes = [node.dtype(0), node.dtype(3), node.dtype(4)]
    values = [
        f"D / sqrt(V + {_epsilon(node)}) * {channelwise('S', node.shape(1), len(shape))} "
        f"+ {channelwise('B', node.shape(2), len(shape))}",
        running.format("OldMean", reshaped("M", node.shape(3))),
        running.format("OldVariance", reshaped("V", node.shape(4))),
    ]
    statements = [
        f"X = {wide('In', dtypes[0])};",
        *moments(shape, axes),
        *(f"Y{k} = {cast(f'({v})', d)};" for k, (v, d) in enumerate(zip(values, dtypes, strict=True))),
    ]
    text = function(("In", "S", "B", "OldMean", "OldVariance"), ("Y0", "Y1", "Y2"), *statements)
    return apply(text, *(node.value(k) for k in range(5)))[: node.count]


@operator("InstanceNormalization")
def instance_normalization(node: Node) -> Value:
    """Each channel of each sample on its own."""
    shape = node.shape(0)
    statements = [*_parameters(node, "SB"), *moments(shape, tuple(range(2, len(shape))))]
    return _normalised(node, ("S", "B"), statements, f"D / sqrt(V + {_epsilon(node)}) * S + B")


@operator("GroupNormalization", since=18)
def group_normalization(node: Node) -> Value:
    """Groups of channels; a scale and bias for each group before opset 21, for each channel since."""
    shape, groups = node.shape(0), node.attribute("num_groups")
    each = shape[1] // groups
    split = (shape[0], groups, each, prod(shape[2:]))
    part = "groups" if node.opset < 21 else "channels"
    sizes = {"groups": (groups, 1, 1), "channels": (groups, each, 1)}[part]
    dtype = node.dtype(0)
    statements = [
        f"X = {reshaped(wide('In', dtype), split)};",
        *moments(split, (2, 3)),
        f"N = D / sqrt(V + {_epsilon(node)}) * {reshaped('S', sizes)} + {reshaped('B', sizes)};",
        f"Y = {reshaped(cast('N', dtype), shape)};",
    ]
    return apply(function(("In", "S", "B"), ("Y",), *statements), *(node.value(k) for k in range(3)))


@operator("LayerNormalization")
def layer_normalization(node: Node) -> Value:
    """Over the dimensions from `axis` on; the mean and 1 over the deviation are outputs, too."""
    return layer(node, node.value(0), node.value(1), node.value(2), node.axis(node.attribute("axis", -1)))


def layer(node: Node, x: Value, scale: Value, bias: Value, axis: int) -> tuple[Value, ...]:
    """Layer normalisation of any tensor, with as many outputs as the node has: the result, mean, 1 / deviation."""
    shape, dtype = tuple(x.shape), node.dtype(0)
    value = f"D * R * {wide('S', dtype)}" + ("" if bias is None else f" + {wide('B', dtype)}")
    statements = [
        f"X = {wide('In', dtype)};",
        *moments(shape, tuple(range(axis, len(shape)))),
        f"R = 1 / sqrt(V + {_epsilon(node)});",
        f"Y = {cast(f'({value})', dtype)};",
    ]
    inputs = ("In", "S") if bias is None else ("In", "S", "B")
    outputs = ("Y", "M", "R")[: max(node.count, 1)]
    found = apply(function(inputs, outputs, *statements), x, scale, *(() if bias is None else (bias,)))
    return found if len(outputs) > 1 else (found,)


@operator("RMSNormalization", since=23)
def rms_normalization(node: Node) -> Value:
    """Over the dimensions from `axis` on, by the root of the mean square."""
    return root_mean_square(node, node.value(0), node.value(1), node.axis(node.attribute("axis", -1)))


def root_mean_square(node: Node, x: Value, scale: Value, axis: int) -> Value:
    """``x / sqrt(mean(x²) + epsilon) * scale`` in the dtype of the scale, rounded once."""
    shape, dtype, result = tuple(x.shape), node.dtype(0), dtype_of(scale)
    axes = tuple(range(axis, len(shape)))
    statements = [
        f"X = {wide('In', dtype)};",
        "Q = X * X;",
        reduced("T", "Q", shape, axes),
        f"N = X / sqrt(T / {prod(shape[axis:])} + {_epsilon(node)});",
        f"Y = {cast('(N * ' + wide('S', result) + ')', result)};",
    ]
    return apply(function(("In", "S"), ("Y",), *statements), x, scale)


@operator("MeanVarianceNormalization", since=9)
def mean_variance_normalization(node: Node) -> Value:
    """No mean, and a deviation of 1, over `axes`."""
    shape = node.shape(0)
    axes = node.axes(node.attribute("axes", (0, 2, 3)))
    return _normalised(node, (), moments(shape, axes), "D / (sqrt(V) + 0.000000001)")


@operator("LpNormalization")
def lp_normalization(node: Node) -> Value:
    """A length of 1 along an axis, by the norm `p`; what has none stays 0."""
    shape, axis = node.shape(0), node.axis(node.attribute("axis", -1))
    before, after = {1: ("abs(X)", "T"), 2: ("X * X", "sqrt(T)")}[node.attribute("p", 2)]
    statements = [f"Q = {before};", reduced("T", "Q", shape, (axis,)), f"N = {after};"]
    return _normalised(node, (), statements, "N == 0 ? 0 : X / N")


@operator("LRN")
def local_response(node: Node) -> Value:
    """By the squares of the channels around."""
    shape, size = node.shape(0), node.attribute("size")
    alpha, beta, bias = (float(node.attribute(n, v)) for n, v in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0)))
    indexes = names(len(shape))
    window = at("Q", (indexes[0], f"{indexes[1]} + j - {(size - 1) // 2}", *indexes[2:]))
    statements = ["Q = X * X;", contraction("T", shape, indexes, "+", window, f"j < {size}")]
    scale = f"pow({literal(bias)} + {literal(alpha / size)} * T, {literal(beta)})"
    return _normalised(node, (), statements, f"X / {scale}")
