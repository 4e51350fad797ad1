"""Products of matrices, vectors and stacks of matrices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tile_onnx.node import Node, Value, apply
from tile_onnx.ops.text import Names, Shape, aligned, at, cast, contraction, function, literal, names
from tile_onnx.registry import operator


@dataclass(frozen=True, slots=True)
class Product:
    """How matrices, vectors and stacks of matrices multiply: the subscripts of both, of the result, and its sizes."""

    left: Names
    right: Names
    target: Names
    sizes: Shape

    def statement(self, out: str, left: str, right: str) -> str:
        """The contraction of two tensors, as text."""
        return contraction(out, self.sizes, self.target, "+", f"{at(left, self.left)} * {at(right, self.right)}")


def product(left: Shape, right: Shape, transposed: tuple[bool, bool] = (False, False)) -> Product:
    """As NumPy's ``matmul``: leading dimensions broadcast, a vector has no row or column of its own.

    ValueError where the shapes do not multiply.
    """
    batch = np.broadcast_shapes(left[:-2], right[:-2])
    indexes = names(len(batch), "b")
    rows, columns = (("m",) if len(left) > 1 else ()), (("n",) if len(right) > 1 else ())
    inner = (*rows, "k")[:: -1 if transposed[0] else 1], ("k", *columns)[:: -1 if transposed[1] else 1]
    ours, theirs = (dict(zip(n, shape[-2:], strict=True)) for n, shape in zip(inner, (left, right), strict=True))
    if ours["k"] != theirs["k"]:
        raise ValueError(f"rows of {ours['k']} numbers cannot meet columns of {theirs['k']}")
    sizes = ours | theirs
    return Product(
        (*aligned(left[:-2], indexes), *inner[0]),
        (*aligned(right[:-2], indexes), *inner[1]),
        (*indexes, *rows, *columns),
        (*batch, *(sizes[name] for name in (*rows, *columns))),
    )


@operator("MatMul")
def matmul(node: Node) -> Value:
    """NumPy's ``matmul``; float16 and bfloat16 add in float32."""
    shape = product(node.shape(0), node.shape(1))
    return apply(function(("A", "B"), ("C",), shape.statement("C", "A", "B")), node.value(0), node.value(1))


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
