"""Batch normalisation, with and without statistics of its own, and its gradient."""

from __future__ import annotations

from math import prod

from tile_runtime.ops.text import literal
from tile_runtime.ops.values import Value

from tile_jax.lowering.elements import converted, elementwise
from tile_jax.lowering.op import Op
from tile_jax.lowering.ops.moving import placed
from tile_jax.lowering.ops.reduce import aggregated
from tile_jax.lowering.registry import operation


class _Features:
    """Tensors with an axis of features, and vectors with a number for each."""

    def __init__(self, op: Op) -> None:
        self.axis, self.shape, self.dtype = op.number("feature_index"), op.shape(), op.dtype()
        self.epsilon = literal(op.number_of("epsilon"))
        self.others = tuple(k for k in range(len(self.shape)) if k != self.axis)
        self.count = prod(self.shape[k] for k in self.others)

    def wide(self, value: Value) -> Value:
        return converted(value, self.dtype.accumulator)

    def spread(self, vector: Value) -> Value:
        return placed(vector, (self.axis,), self.shape)

    def mean(self, value: Value) -> Value:
        return elementwise(f"({{0}} / {max(self.count, 1)})", self.total(value))

    def total(self, value: Value) -> Value:
        return aggregated(value, self.others, "+")


@operation("stablehlo.batch_norm_inference")
def inference(op: Op) -> Value:
    """By a mean and a variance that are given."""
    features = _Features(op)
    return converted(_normalised(features, *(features.wide(v) for v in op.values)), op.dtype())


def _normalised(features: _Features, value: Value, scale: Value, offset: Value, mean: Value, variance: Value) -> Value:
    text = f"(({{0}} - {{3}}) / sqrt({{4}} + {features.epsilon}) * {{1}} + {{2}})"
    vectors = (features.spread(v) for v in (scale, offset, mean, variance))
    return elementwise(text, value, *vectors, shape=features.shape)


@operation("stablehlo.batch_norm_training")
def training(op: Op) -> tuple[Value, ...]:
    """By the mean and variance over all other axes, which it gives, too."""
    features = _Features(op)
    value, scale, offset = (features.wide(v) for v in op.values)
    mean = features.mean(value)
    variance = features.mean(elementwise("(({0} - {1}) * ({0} - {1}))", value, features.spread(mean)))
    made = _normalised(features, value, scale, offset, mean, variance)
    return tuple(converted(v, op.dtype()) for v in (made, mean, variance))


@operation("stablehlo.batch_norm_grad")
def gradient(op: Op) -> tuple[Value, ...]:
    """Gradients for the operand, the scale and the offset."""
    features = _Features(op)
    value, scale, mean, variance, pulled = (features.wide(v) for v in op.values)
    root = elementwise(f"sqrt({{0}} + {features.epsilon})", variance)
    centred = elementwise("({0} - {1})", value, features.spread(mean))
    slope = features.total(elementwise("({0} * {1})", pulled, centred))
    offset = features.total(pulled)
    count = features.count
    text = f"({{0}} / {{1}} / {count} * ({count} * {{2}} - {{3}} - {{4}} * {{5}} / ({{1}} * {{1}})))"
    vectors = [features.spread(v) for v in (scale, root, offset, slope)]
    own = elementwise(text, vectors[0], vectors[1], pulled, vectors[2], centred, vectors[3], shape=features.shape)
    return tuple(converted(v, op.dtype()) for v in (own, elementwise("({0} / {1})", slope, root), offset))
