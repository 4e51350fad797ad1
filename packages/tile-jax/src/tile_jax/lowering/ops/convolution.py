"""Convolutions of any rank: strides, padding that may crop, dilations of both sides, reversal, groups, any order of axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tile_runtime.ops.text import at
from tile_runtime.ops.values import Value

from tile_jax.lowering.dimensions import ConvNumbers, conv_numbers
from tile_jax.lowering.op import Op, Shape
from tile_jax.lowering.ops.dot import multiplied
from tile_jax.lowering.registry import operation


@dataclass(frozen=True, slots=True)
class Sliding:
    """How the window moves along one spatial axis: the cell of the image at a place of the window and a cell in it."""

    size: int
    """Cells of the kernel."""
    stride: int
    dilation: int
    """Cells of the image, spread, between those of the kernel."""
    spread: int
    """Cells of the spread image from one cell of the image to the next."""
    before: int
    reverse: bool

    def cell(self, place: str, cell: str) -> str:
        """The subscript of the image: only where it is whole there is a cell."""
        moved = f"{self.stride}*{place} + {self.dilation}*{cell} - {self.before}".replace("- -", "+ ")
        return moved if self.spread == 1 else f"({moved}) / {self.spread}"

    def own(self, cell: str) -> str:
        """The subscript of the kernel."""
        return f"{self.size - 1} - {cell}" if self.reverse else cell


@operation("stablehlo.convolution")
def convolution(op: Op) -> Value:
    numbers = conv_numbers(op.attribute("dimension_numbers"))
    rank = len(numbers.input_spatial_dimensions)
    before, _ = op.pairs("padding", rank)
    return convolved(op, numbers, before)


@operation("stablehlo.dynamic_conv")
def dynamic_convolution(op: Op) -> Value:
    numbers = conv_numbers(op.attribute("dimension_numbers"))
    return convolved(op, numbers, op.ints(2)[::2])


def convolved(op: Op, numbers: ConvNumbers, before: Shape) -> Value:
    """One contraction; the axes stand in its subscripts as they stand in the operands."""
    axes = _axes(op, numbers.kernel_spatial_dimensions, before)
    channels = op.shape(1)[numbers.kernel_input_feature_dimension]
    features = op.shape(1)[numbers.kernel_output_feature_dimension]
    batch, channel, feature, out, more = _groups(
        op, channels, features, op.result().shape[numbers.output_batch_dimension]
    )
    places, cells = [f"y{k}" for k in range(len(axes))], [f"k{k}" for k in range(len(axes))]
    image = [axis.cell(y, k) for axis, y, k in zip(axes, places, cells, strict=True)]
    own = [axis.own(k) for axis, k in zip(axes, cells, strict=True)]
    image_at = _ordered(numbers.input_batch_dimension, batch, numbers.input_feature_dimension, channel,
                        numbers.input_spatial_dimensions, image)  # fmt: skip
    kernel_at = _ordered(numbers.kernel_output_feature_dimension, feature, numbers.kernel_input_feature_dimension, "c",
                         numbers.kernel_spatial_dimensions, own)  # fmt: skip
    target = _ordered(numbers.output_batch_dimension, "n", numbers.output_feature_dimension, out,
                      numbers.output_spatial_dimensions, places)  # fmt: skip
    made = op.result()
    return multiplied(op.values[:2], (at("A", image_at), at("B", kernel_at)), made.shape, target, made.dtype, *more)


def _axes(op: Op, kernel: Shape, before: Shape) -> list[Sliding]:
    rank = len(kernel)
    ones, sizes = (1,) * rank, [op.shape(1)[k] for k in kernel]
    strides, spread = op.list("window_strides", ones), op.list("lhs_dilation", ones)
    dilations, reverse = op.list("rhs_dilation", ones), op.list("window_reversal", (0,) * rank)
    every = zip(sizes, strides, dilations, spread, before, reverse, strict=True)
    return [Sliding(size, s, d, b, lead, bool(back)) for size, s, d, b, lead, back in every]


def _ordered(
    first: int, at_first: str, second: int, at_second: str, rest: Sequence[int], at_rest: Sequence[str]
) -> list[str]:
    """Subscripts in the order of a tensor's axes."""
    found = {first: at_first, second: at_second, **dict(zip(rest, at_rest, strict=True))}
    return [found[k] for k in sorted(found)]


def _groups(op: Op, channels: int, features: int, batch: int) -> tuple[str, str, str, str, tuple[str, ...]]:
    """Subscripts: the image's batch and channel, the kernel's feature, the result's feature; and what bounds them.

    With groups of features each has channels and features of its own; with groups of batches, batches and features.
    """
    of_features, of_batches = op.number("feature_group_count", 1), op.number("batch_group_count", 1)
    groups = of_features * of_batches
    if groups == 1:
        return "n", "c", "o", "o", ()
    own = features // groups
    feature = f"{own}*g + o" if own > 1 else "g"
    bounds = (f"g < {groups}", *((f"o < {own}",) if own > 1 else ()))
    if of_batches > 1:
        return f"{batch}*g + n", "c", feature, feature, (*bounds, f"n < {batch}")
    return "n", f"{channels}*g + c", feature, feature, (*bounds, f"c < {channels}")
