"""Models of classical machine learning (ai.onnx.ml): linear ones on the device, the others by ONNX's reference on the host."""

from __future__ import annotations

import numpy as np
from tile_ir.dtype import DType
from tile_runtime.ops.reducing import reduced
from tile_runtime.ops.text import cast, expression, function
from tile_runtime.ops.values import Value, apply

from tile_onnx.node import Node
from tile_onnx.ops.standard import standard
from tile_onnx.registry import operator

DOMAIN = "ai.onnx.ml"

_TRANSFORMS = {"NONE": "S", "LOGISTIC": "1 / (1 + exp(-S))"}


@operator(
    "ArrayFeatureExtractor", "FeatureVectorizer", "Imputer", "LabelEncoder", "LinearClassifier", "OneHotEncoder",
    "SVMClassifier", "SVMRegressor", "TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor",
    domain=DOMAIN,
)  # fmt: skip
def by_the_reference(node: Node) -> Value:
    """What looks numbers up one by one, or gives labels."""
    raise node.on_host()


def _real(node: Node, k: int = 0) -> Value:
    """Input `k` in float32, which these operators compute in."""
    return apply(expression("X", cast("X", DType.FLOAT32)), node.value(k))


@operator("Scaler", domain=DOMAIN)
def scaler(node: Node) -> Value:
    """``(x - offset) * scale``, one of each for all features or for each."""
    offset, scale = (np.asarray(node.attribute(n), np.float32) for n in ("offset", "scale"))
    return apply(expression("X, O, S", "(X - O) * S"), _real(node), offset, scale)


@operator("Binarizer", domain=DOMAIN)
def binarizer(node: Node) -> Value:
    """1 above the threshold, else 0."""
    threshold = np.asarray(node.attribute("threshold", 0.0), node.dtype(0).numpy)
    return apply(expression("X, T", cast("(X > T)", node.dtype(0))), node.value(0), threshold)


@operator("Normalizer", domain=DOMAIN)
def normalizer(node: Node) -> Value:
    """Rows less than their norm: the largest, the sum of absolute values, or the length."""
    kind = node.attribute("norm", "MAX")
    size = {"MAX": "X", "L1": "abs(X)", "L2": "X * X"}.get(kind)
    if size is None:
        raise node.unsupported(f"the norm {kind!r} is not known")
    shape = node.shape(0)
    total = reduced("N", "Q", shape, (len(shape) - 1,), ">" if kind == "MAX" else "+")
    value = "X / sqrt(N)" if kind == "L2" else "X / N"
    return apply(function("X", "Y", f"Q = {size};", total, f"Y = N == 0 ? X : {value};"), _real(node))


@operator("LinearRegressor", domain=DOMAIN)
def linear_regressor(node: Node) -> Value:
    """A product with coefficients [targets, features], and an intercept for each target."""
    transform = node.attribute("post_transform", "NONE")
    if transform not in (*_TRANSFORMS, "SOFTMAX"):
        raise node.unsupported(f"post_transform {transform!r} is not known")
    targets = node.attribute("targets", 1)
    weights = np.asarray(node.attribute("coefficients"), np.float32).reshape(targets, -1).T
    found = standard(node, "MatMul", _real(node), weights)
    if node.attribute("intercepts"):
        found = standard(node, "Add", found, np.asarray(node.attribute("intercepts"), np.float32))
    if transform == "SOFTMAX":
        return standard(node, "Softmax", found, axis=1)
    return apply(expression("S", _TRANSFORMS[transform]), found)
