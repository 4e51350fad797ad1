"""Products of matrices, vectors and stacks of matrices."""

from __future__ import annotations

import numpy as np
from tile_ir.frozen import frozen

from tile_runtime.ops.text import Names, Shape, aligned, at, contraction, function, names
from tile_runtime.ops.values import Value, apply


@frozen
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
    if not left or not right:
        raise ValueError(f"shapes {tuple(left)} and {tuple(right)} do not multiply: write * for a single number")
    batch = np.broadcast_shapes(left[:-2], right[:-2])
    indexes = names(len(batch), "b")
    rows, columns = (("m",) if len(left) > 1 else ()), (("n",) if len(right) > 1 else ())
    inner = (*rows, "k")[:: -1 if transposed[0] else 1], ("k", *columns)[:: -1 if transposed[1] else 1]
    ours, theirs = (dict(zip(n, shape[-2:], strict=True)) for n, shape in zip(inner, (left, right), strict=True))
    if ours["k"] != theirs["k"]:
        why = f"rows of {ours['k']} numbers cannot meet columns of {theirs['k']}"
        raise ValueError(f"shapes {tuple(left)} and {tuple(right)} do not multiply: {why}")
    sizes = ours | theirs
    return Product(
        (*aligned(left[:-2], indexes), *inner[0]),
        (*aligned(right[:-2], indexes), *inner[1]),
        (*indexes, *rows, *columns),
        (*batch, *(sizes[name] for name in (*rows, *columns))),
    )


def _shape(value: Value) -> Shape:
    """Of a number none."""
    return getattr(value, "shape", ())


def multiplied(left: Value, right: Value) -> Value:
    """NumPy's ``matmul``; float16 and bfloat16 add in float32."""
    shape = product(_shape(left), _shape(right))
    return apply(function(("A", "B"), ("C",), shape.statement("C", "A", "B")), left, right)
