"""Products of matrices and of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from tile_runtime.checks import described
from tile_runtime.numpy.elementwise import multiply, subtract
from tile_runtime.numpy.manipulation import concat, expand_dims, indexed, permute_dims, reshape
from tile_runtime.numpy.operands import Operand, Result, axes_of, axis_of, called, count_of, integers_of, shape_of
from tile_runtime.numpy.shaping import diagonal, ravel
from tile_runtime.numpy.statistical import sum
from tile_runtime.ops import einsum as summing
from tile_runtime.ops import matmul as products


def matmul(x1: Operand, x2: Operand, /) -> Result:
    """Of matrices, vectors and stacks of them; narrow floats add in float32. ValueError where the shapes do not multiply."""
    return called(products.multiplied, x1, x2)


def matrix_transpose(x: Operand, /) -> Result:
    """The last two axes exchanged."""
    rank = len(shape_of(x))
    if rank < 2:
        raise ValueError(f"a tensor with {rank} dimensions is no matrix")
    return permute_dims(x, (*range(rank - 2), rank - 1, rank - 2))


def einsum(equation: str, /, *operands: Operand) -> Result:
    """As NumPy's, pair by pair; ValueError where the equation does not fit."""
    if not hasattr(equation, "partition"):
        raise TypeError(f'an equation is a text, not {described(equation)}: such as "ij,jk->ik"')
    for operand in operands:
        shape_of(operand)
    return called(partial(summing.einsum, equation), *operands)


def tensordot(x1: Operand, x2: Operand, /, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Result:
    """Summed over the last `axes` of one and the first of the other, or over the axes that are named."""
    left, right = _paired(shape_of(x1), shape_of(x2), axes)
    ours = _letters(len(shape_of(x1)), 0)
    theirs = _letters(len(shape_of(x2)), len(ours))
    for mine, other in zip(left, right, strict=True):
        theirs[other] = ours[mine]
    kept = [c for k, c in enumerate(ours) if k not in left] + [c for k, c in enumerate(theirs) if k not in right]
    return einsum(f"{''.join(ours)},{''.join(theirs)}->{''.join(kept)}", x1, x2)


def _paired(x1: Sequence[int], x2: Sequence[int], axes: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Which axes of both shapes are summed over."""
    if hasattr(axes, "__index__"):
        count = count_of("axes", axes)
        axes = (range(len(x1) - count, len(x1)), range(count))
    if not hasattr(axes, "__len__") or len(axes) != 2:
        raise TypeError(f"axes is an integer or two lists of axes, not {described(axes)}: such as axes=([1], [0])")
    left, right = (axes_of(len(x), integers_of("axes", own)) for x, own in zip((x1, x2), axes, strict=True))
    sizes = [x1[a] for a in left], [x2[a] for a in right]
    if sizes[0] != sizes[1]:
        raise ValueError(f"axes {left} of shape {tuple(x1)} and {right} of shape {tuple(x2)} have other sizes")
    return left, right


def _letters(count: int, first: int) -> list[str]:
    return [chr(ord("a") + first + k) for k in range(count)]


def vecdot(x1: Operand, x2: Operand, /, *, axis: int = -1) -> Result:
    """Products summed along an axis; shapes broadcast."""
    return sum(multiply(x1, x2), axis=axis)


def outer(x1: Operand, x2: Operand, /) -> Result:
    """Each element of one tensor times each of another, both in C order."""
    return multiply(expand_dims(ravel(x1), axis=1), expand_dims(ravel(x2), axis=0))


def trace(x: Operand, /, offset: int = 0) -> Result:
    """The sum of a diagonal of the last two axes."""
    return sum(diagonal(x, offset, -2, -1), axis=-1)


def dot(x1: Operand, x2: Operand, /) -> Result:
    """As NumPy's: a product of numbers, vectors or matrices; of more axes, over the last of one and the last but one of the other."""
    ranks = len(shape_of(x1)), len(shape_of(x2))
    if 0 in ranks:
        return multiply(x1, x2)
    return tensordot(x1, x2, ([-1], [max(ranks[1] - 2, 0)])) if ranks[1] > 2 else matmul(x1, x2)


def inner(x1: Operand, x2: Operand, /) -> Result:
    """Products summed over the last axis of both."""
    return tensordot(x1, x2, ([-1], [-1])) if len(shape_of(x1)) and len(shape_of(x2)) else multiply(x1, x2)


def vdot(x1: Operand, x2: Operand, /) -> Result:
    """Products of all elements, summed."""
    return sum(multiply(reshape(x1, -1), reshape(x2, -1)))


def kron(x1: Operand, x2: Operand, /) -> Result:
    """Each element of one matrix (or vector) times the whole other, side by side."""
    rank = max(len(shape_of(x1)), len(shape_of(x2)))
    left, right = ((1,) * (rank - len(shape_of(x))) + shape_of(x) for x in (x1, x2))
    apart = multiply(
        reshape(x1, [n for size in left for n in (size, 1)]), reshape(x2, [n for size in right for n in (1, size)])
    )
    return reshape(apart, [a * b for a, b in zip(left, right, strict=True)])


def cross(x1: Operand, x2: Operand, /, axis: int = -1) -> Result:
    """Of vectors with three elements along an axis, the one that stands on both."""
    place = axis_of(len(shape_of(x1)), axis)
    if shape_of(x1)[place] != 3:
        raise ValueError(f"{shape_of(x1)[place]} elements along axis {axis}: a cross product is of three")
    a, b = (
        [indexed(x, (..., slice(k, k + 1), *(slice(None),) * (len(shape_of(x1)) - 1 - place))) for k in range(3)]
        for x in (x1, x2)
    )
    parts = [subtract(multiply(a[j], b[k]), multiply(a[k], b[j])) for j, k in ((1, 2), (2, 0), (0, 1))]
    return concat(parts, place)
