"""Products of tensors over any axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tile_ir.dtype import DType
from tile_runtime.ops.einsum import einsum as einsum_of
from tile_runtime.ops.text import Names, at, contraction, function, names
from tile_runtime.ops.values import Value, apply

from tile_jax.lowering.dimensions import dot_numbers
from tile_jax.lowering.elements import converted, full
from tile_jax.lowering.op import Op, Shape
from tile_jax.lowering.registry import operation


@dataclass(frozen=True, slots=True)
class Axes:
    """Axes of both operands that go together: those of stacks, and those that are summed over."""

    stacked: tuple[Shape, Shape]
    summed: tuple[Shape, Shape]

    def subscripts(self, ranks: tuple[int, int]) -> tuple[Names, Names, Names]:
        """Subscripts of both operands and of the result: stacks, then the left's own axes, then the right's."""
        stacks, sums = names(len(self.stacked[0]), "b"), names(len(self.summed[0]), "k")
        sides = [self._side(side, letter, ranks[side], stacks, sums) for side, letter in enumerate("mn")]
        own = [i for side in sides for i in side if i[0] in "mn"]
        return sides[0], sides[1], (*stacks, *own)

    def _side(self, side: int, letter: str, rank: int, stacks: Names, sums: Names) -> Names:
        found = list(names(rank, letter))
        for axes, shared in ((self.stacked[side], stacks), (self.summed[side], sums)):
            for axis, name in zip(axes, shared, strict=True):
                found[axis] = name
        return tuple(found)


@operation("stablehlo.dot_general")
def dot_general(op: Op) -> Value:
    found = dot_numbers(op.attribute("dot_dimension_numbers"))
    axes = Axes(
        (found.lhs_batching_dimensions, found.rhs_batching_dimensions),
        (found.lhs_contracting_dimensions, found.rhs_contracting_dimensions),
    )
    return product(op, axes)


@operation("stablehlo.dot")
def dot(op: Op) -> Value:
    """The last axis of the left operand meets the first one of the right."""
    return product(op, Axes(((), ()), ((len(op.shape(0)) - 1,), (0,))))


def product(op: Op, axes: Axes) -> Value:
    """Summed in the result's dtype, in float32 where that is narrower."""
    left, right, target = axes.subscripts((len(op.shape(0)), len(op.shape(1))))
    made = op.result()
    return multiplied(op.values, (at("A", left), at("B", right)), made.shape, target, made.dtype)


def multiplied(
    values: Sequence[Value], factors: tuple[str, str], sizes: Shape, target: Sequence[str], dtype: DType, *more: str
) -> Value:
    """The contraction ``target : sizes = +(A[…] * B[…])``, in `dtype`; truth values meet by "and" and add by "or"."""
    if not np.prod([*values[0].shape, *values[1].shape]):
        return full(0, dtype, sizes)
    both = [_factor(v, dtype) for v in values]
    aggregation = ">" if dtype is DType.BOOL else "+"
    text = contraction("C", sizes, target, aggregation, f"{factors[0]} * {factors[1]}", *more)
    return apply(function("AB", "C", text), *both)


def _factor(value: Value, dtype: DType) -> Value:
    """An operand in the dtype of the sum."""
    return converted(value, dtype)


@operation("stablehlo.einsum", "stablehlo.unary_einsum")
def einsum(op: Op) -> Value:
    """An equation of one or two operands."""
    made = op.result()
    return einsum_of(op.text("einsum_config"), *(converted(v, made.dtype) for v in op.values))
