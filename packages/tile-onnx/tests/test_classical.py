"""Operators of ai.onnx.ml beside ONNX Runtime."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import tile_onnx
from onnx import TensorProto, helper
from peer import check as check_any
from peer import numbers
from tile_ir.diagnostics import TileTypeError

check = functools.partial(check_any, domain="ai.onnx.ml", rtol=1e-4, atol=1e-5)
Array = np.ndarray[Any, Any]


def floats(*shape: int, seed: int = 0) -> Array:
    return numbers("float32", shape, seed, scale=1)


@pytest.mark.parametrize("dtype", ["float32", "int64", "float64", "int32"])
def test_scaler(dtype: str) -> None:
    x = numbers(dtype, (4, 3), 0)
    check("Scaler", [x], {"offset": [0.5, 1.0, -2.0], "scale": [2.0, 0.1, 3.0]})
    check("Scaler", [x], {"offset": [0.5], "scale": [2.0]})


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer(norm: str) -> None:
    x = np.abs(floats(4, 3)) if norm == "MAX" else floats(4, 3)
    x[2] = 0
    check("Normalizer", [x], {"norm": norm})
    check("Normalizer", [numbers("int64", (4, 3), 1) + 21], {"norm": norm})


def test_binarizer() -> None:
    check("Binarizer", [floats(4, 3)], {"threshold": 0.25})


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_linear_regressor(transform: str) -> None:
    attributes = {"coefficients": list(map(float, floats(6))), "intercepts": [0.5, -1.0], "targets": 2}
    check("LinearRegressor", [floats(4, 3)], attributes | {"post_transform": transform})


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_linear_classifier(transform: str) -> None:
    attributes = {
        "coefficients": list(map(float, floats(9))),
        "intercepts": [0.5, -1.0, 0.1],
        "classlabels_ints": [3, 5, 9],
    }
    check("LinearClassifier", [floats(4, 3)], attributes | {"post_transform": transform}, outputs=2)


def test_one_hot_encoder() -> None:
    check("OneHotEncoder", [np.array([[1, 3], [2, 7]])], {"cats_int64s": [1, 2, 3], "zeros": 1})


def test_imputer() -> None:
    x = floats(4, 3)
    x[1, 1] = np.nan
    check("Imputer", [x], {"imputed_value_floats": [1.0, 2.0, 3.0], "replaced_value_float": float("nan")})


def test_array_feature_extractor() -> None:
    check("ArrayFeatureExtractor", [floats(4, 5), np.array([0, 3])])


def test_feature_vectorizer() -> None:
    check("FeatureVectorizer", [floats(4, 2), floats(4, 3)], {"inputdimensions": [2, 3]})


def test_label_encoder() -> None:
    check(
        "LabelEncoder",
        [np.array([1, 4, 2])],
        {"keys_int64s": [1, 2], "values_floats": [0.5, 0.25], "default_float": -1.0},
    )


def stump(trees: int, depth: int, features: int, targets: int, kind: str, prefix: str) -> dict[str, Any]:
    """Complete trees with random splits and leaves."""
    rng = np.random.default_rng(depth)
    found: dict[str, list[Any]] = {
        k: [] for k in ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")
    }
    leaves: dict[str, list[Any]] = {k: [] for k in ("treeids", "nodeids", "ids", "weights")}
    for tree in range(trees):
        for number in range(2 ** (depth + 1) - 1):
            leaf = number >= 2**depth - 1
            row = (tree, number, int(rng.integers(features)), "LEAF" if leaf else kind, float(rng.standard_normal()),
                   0 if leaf else 2 * number + 1, 0 if leaf else 2 * number + 2)  # fmt: skip
            for key, value in zip(found, row, strict=True):
                found[key].append(value)
            for target in range(targets) if leaf else ():
                for key, value in zip(leaves, (tree, number, target, float(rng.standard_normal())), strict=True):
                    leaves[key].append(value)
    return {f"nodes_{k}": v for k, v in found.items()} | {f"{prefix}_{k}": v for k, v in leaves.items()}


@pytest.mark.parametrize("kind", ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT"])
@pytest.mark.parametrize("targets", [1, 2])
def test_regression_trees(kind: str, targets: int) -> None:
    attributes = stump(3, 2, 4, targets, kind, "target") | {"n_targets": targets}
    check("TreeEnsembleRegressor", [floats(6, 4)], attributes)


@pytest.mark.parametrize("classes", [3, 4])
@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC"])
def test_classification_trees(classes: int, transform: str) -> None:
    attributes = stump(3, 2, 4, classes, "BRANCH_LEQ", "class")
    attributes |= {"classlabels_int64s": list(range(10, 10 + classes)), "post_transform": transform}
    check("TreeEnsembleClassifier", [floats(6, 4)], attributes, outputs=2)


@pytest.mark.parametrize("kernel", ["LINEAR", "RBF", "POLY", "SIGMOID"])
def test_support_vector_regression(kernel: str) -> None:
    attributes = {
        "coefficients": list(map(float, floats(3))), "support_vectors": list(map(float, floats(12, seed=1))), "rho": [0.25],
        "kernel_params": [0.5, 0.1, 2.0], "kernel_type": kernel, "n_supports": 3,
    }  # fmt: skip
    check("SVMRegressor", [floats(5, 4)], attributes)


def test_dictionaries_are_refused_with_the_option_that_avoids_them() -> None:
    """What skl2onnx puts behind every classifier unless it is told not to."""
    zipped = helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", classlabels_int64s=[0, 1])
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 2]) for n in "xy")
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 3)]
    proto = helper.make_model(helper.make_graph([zipped], "zipped", [x], [y]), opset_imports=opsets)
    with pytest.raises(TileTypeError, match=r"(?s)ZipMap \(ai\.onnx\.ml, opset 3\).*no dictionaries.*'zipmap': False"):
        tile_onnx.load(proto)
