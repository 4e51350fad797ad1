"""ONNX element types beside those of NumPy and Tile."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from onnx import TensorProto, helper
from tile_ir.dtype import DType
from tile_runtime.ops.values import tile_dtype


@cache
def numpy_dtype(element: int) -> np.dtype[Any]:
    """The NumPy dtype of an ONNX element type (`ml_dtypes` for what NumPy lacks, object for strings)."""
    return np.dtype(helper.tensor_dtype_to_np_dtype(element))


@cache
def element_type(dtype: np.dtype[Any]) -> int:
    """The ONNX element type of a NumPy dtype; ValueError where there is none."""
    return int(helper.np_dtype_to_tensor_dtype(dtype))


def dtype_name(element: int) -> str:
    """An element type as NumPy writes it: `float32`, `float8_e4m3fn`; `string`, and `undefined` where it is none."""
    if element == TensorProto.STRING:
        return "string"
    try:
        return str(numpy_dtype(element))
    except (KeyError, TypeError):
        return "undefined"


def element(element_type: int) -> DType | None:
    """The Tile dtype of an ONNX element type, such as a Cast's `to`; None where only the host has it."""
    return tile_dtype(numpy_dtype(element_type))
