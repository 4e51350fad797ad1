"""Operators of ONNX Runtime's domain that ai.onnx has, too, beside ONNX Runtime."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from peer import check as check_any
from peer import numbers

check = functools.partial(check_any, domain="com.microsoft")
LIMITS = {"rtol": 1e-4, "atol": 1e-5}
Array = np.ndarray[Any, Any]


def floats(*shape: int, seed: int = 0) -> Array:
    return numbers("float32", shape, seed, scale=1)


def test_channels_last_max_pool() -> None:
    check("NhwcMaxPool", [numbers("uint8", (1, 7, 6, 3), 0)], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]})


def test_distances() -> None:
    for metric in ("sqeuclidean", "euclidean"):
        check("CDist", [floats(4, 3), floats(5, 3, seed=1)], {"metric": metric}, **LIMITS)


def test_other_names() -> None:
    check("Trilu", [floats(4, 4)], {"upper": 0}, **LIMITS)
    check("ExpandDims", [floats(3, 2), np.array(1, np.int32)], constant=(1,))
