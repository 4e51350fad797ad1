"""Resize and Upsample: axis by axis, each new cell a weighted sum of old ones that are known beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor

import numpy as np
import numpy.typing as npt
from tile_ir.frozen import frozen
from tile_runtime.ops.resize import Axis, Interpolation, resized_axes
from tile_runtime.ops.values import Value

from tile_onnx.node import Node
from tile_onnx.registry import operator

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@operator("Upsample", since=7)
def upsample_by_attribute(node: Node) -> Value:
    return _scaled(node, node.attribute("scales"))


@operator("Upsample", since=9)
@operator("Resize", since=10)
def resize_by_scales(node: Node) -> Value:
    return _scaled(node, _floats(node, 1))


def _scaled(node: Node, scales: Sequence[float]) -> Value:
    found = [(old, _by_scale(old, scale)) for old, scale in zip(node.shape(0), scales, strict=True)]
    axes = [Axis(old, s.new, s.numerator, s.denominator, (0.0, 1.0)) for old, s in found]
    how = Interpolation(node.attribute("mode", "nearest"), "asymmetric", "floor", -0.75, False, False)
    return resized_axes(node.value(0), how, axes)


@operator("Resize", since=11)
def resize(node: Node) -> Value:
    how = Interpolation(
        mode=node.attribute("mode", "nearest"),
        coordinates=node.attribute("coordinate_transformation_mode", "half_pixel"),
        nearest=node.attribute("nearest_mode", "round_prefer_floor"),
        cubic=node.attribute("cubic_coeff_a", -0.75),
        exclude_outside=bool(node.attribute("exclude_outside", 0)),
        antialias=bool(node.attribute("antialias", 0)),
    )
    return resized_axes(node.value(0), how, _axes(node), node.attribute("extrapolation_value", 0.0))


@frozen
class Scale:
    """How much larger an axis gets: `denominator` new cells for `numerator` old ones."""

    new: int
    numerator: float
    denominator: float


def _axes(node: Node) -> list[Axis]:
    """What becomes of every axis of the input."""
    shape, rank = node.shape(0), node.rank(0)
    axes = node.axes(node.attribute("axes", tuple(range(rank))))
    roi = _floats(node, 1) or [0.0] * len(axes) + [1.0] * len(axes)
    scales = dict(zip(axes, _scales(node, axes), strict=True))
    rois = {axis: (roi[k], roi[k + len(axes)]) for k, axis in enumerate(axes)}
    every = [(old, scales.get(k, Scale(old, 1, 1)), rois.get(k, (0.0, 1.0))) for k, old in enumerate(shape)]
    return [Axis(old, s.new, s.numerator, s.denominator, part) for old, s, part in every]


def _floats(node: Node, k: int) -> list[float]:
    return [float(v) for v in node.host(k)] if node.has(k) else []


def _by_scale(old: int, scale: float) -> Scale:
    return Scale(floor(old * scale), 1.0, scale)


def _scales(node: Node, axes: Sequence[int]) -> list[Scale]:
    """The scale of each of `axes`, which is given or follows from the sizes that are wanted."""
    olds = [node.shape(0)[axis] for axis in axes]
    if given := _floats(node, 2):
        return [_by_scale(old, scale) for old, scale in zip(olds, given, strict=True)]
    policy = {"not_larger": min, "not_smaller": max}.get(node.attribute("keep_aspect_ratio_policy", "stretch"))
    pairs = list(zip(node.ints(3), olds, strict=True))
    if policy is None:
        return [Scale(new, old, new) for new, old in pairs]
    new, old = policy(pairs, key=lambda pair: pair[0] / pair[1])
    return [Scale((2 * n * new + old) // (2 * old), old, new) for n in olds]
