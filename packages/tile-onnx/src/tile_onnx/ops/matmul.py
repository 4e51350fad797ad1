"""Products of matrices, vectors and stacks of matrices."""

from __future__ import annotations

from tile_runtime.ops.matmul import multiplied, product
from tile_runtime.ops.text import cast, function, literal
from tile_runtime.ops.values import Value, apply

from tile_onnx.node import Node
from tile_onnx.registry import operator


@operator("MatMul")
def matmul(node: Node) -> Value:
    """NumPy's ``matmul``; float16 and bfloat16 add in float32."""
    return multiplied(node.value(0), node.value(1))


@operator("Gemm")
def gemm(node: Node) -> Value:
    """``alpha A B + beta C``, A and B transposed by attributes, C broadcast and optional."""
    if (node.rank(0), node.rank(1)) != (2, 2):
        raise node.unsupported("its operands are no matrices")
    flips = bool(node.attribute("transA", 0)), bool(node.attribute("transB", 0))
    shape = product(node.shape(0), node.shape(1), flips)
    value = scaled("P", node.attribute("alpha", 1.0))
    beta = node.attribute("beta", 1.0)
    with_c = node.has(2) and beta != 0
    if with_c:
        value += f" + {scaled('C', beta)}"
    inputs = ("A", "B", "C") if with_c else ("A", "B")
    text = function(inputs, ("Y",), shape.statement("P", "A", "B"), f"Y = {cast(f'({value})', node.dtype(0))};")
    return apply(text, *(node.value(k) for k in range(len(inputs))))


def scaled(value: str, factor: float) -> str:
    """``value * factor``; as it is, if the factor is 1."""
    return value if factor == 1 else f"{value} * {literal(float(factor))}"
