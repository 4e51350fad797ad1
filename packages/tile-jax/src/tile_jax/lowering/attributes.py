"""MLIR's attributes, types and locations as Python values."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

import numpy as np
from tile_ir.dtype import DType
from tile_ir.program.nodes import TensorType

from tile_jax.lowering.mlir import ir, stablehlo
from tile_jax.pjrt.elements import refuse

_DTYPES = {
    "i1": DType.BOOL, "i8": DType.INT8, "i16": DType.INT16, "i32": DType.INT32, "i64": DType.INT64,
    "ui8": DType.UINT8, "ui16": DType.UINT16, "ui32": DType.UINT32, "ui64": DType.UINT64,
    "f16": DType.FLOAT16, "bf16": DType.BFLOAT16, "f32": DType.FLOAT32, "f64": DType.FLOAT64,
}  # fmt: skip
_NAMES = {"complex<f32>": "complex64", "complex<f64>": "complex128"}
_NAME = re.compile(r'loc\("([^"]*)"')
_PLACE = re.compile(r'"([^"]+)":(\d+):')


def tensor_type(type: Any) -> TensorType:
    """A ranked tensor's dtype and shape; TileTypeError for element types that Tile lacks."""
    ranked = ir.RankedTensorType(type)
    element = str(ranked.element_type)
    return TensorType(_DTYPES.get(element) or refuse(_NAMES.get(element, element)), tuple(ranked.shape))


def label(location: Any) -> str:
    """What a user calls an operation: JAX's name for it, and the line of the program that asked for it."""
    text = str(location)
    name, place = _NAME.search(text), _PLACE.search(text)
    parts = [name[1]] if name else []
    if place:
        parts.append(f"{PurePath(place[1]).name}:{place[2]}")
    return " at ".join(parts)


def python(attribute: Any) -> Any:
    """An attribute's value: numbers, texts, lists, arrays, and dicts for dimension numbers."""
    for kind, convert in _BUILTIN:
        if isinstance(attribute, kind):
            return convert(attribute)
    for kind, convert in _STABLEHLO:
        if kind.isinstance(attribute):
            return convert(kind(attribute))
    raise NotImplementedError(f"tile-jax does not read the attribute {attribute}")


def _dense(found: Any) -> np.ndarray[Any, Any]:
    type = tensor_type(found.type)
    if type.dtype is DType.BFLOAT16:
        raw = [float(x) for x in ([found.get_splat_value().value] if found.is_splat else found)]
        return np.broadcast_to(
            np.array(raw, type.dtype.numpy).reshape(() if found.is_splat else type.shape), type.shape
        )
    if found.is_splat:
        value = np.asarray(found.get_splat_value().value, type.dtype.numpy)
        return np.broadcast_to(value, type.shape)
    return np.array(found).astype(type.dtype.numpy, copy=False).reshape(type.shape)


def _dot(found: Any) -> dict[str, list[int]]:
    names = ("lhs_batching_dimensions", "rhs_batching_dimensions", "lhs_contracting_dimensions", "rhs_contracting_dimensions")  # fmt: skip
    return {name: list(getattr(found, name)) for name in names}


_BUILTIN: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (ir.BoolAttr, lambda a: bool(a.value)),
    (ir.IntegerAttr, lambda a: int(a.value)),
    (ir.FloatAttr, lambda a: float(a.value)),
    (ir.StringAttr, lambda a: str(a.value)),
    (ir.FlatSymbolRefAttr, lambda a: str(a.value)),
    (ir.DenseI64ArrayAttr, list),
    (ir.DenseBoolArrayAttr, list),
    (ir.DenseElementsAttr, _dense),
    (ir.ArrayAttr, lambda a: [python(item) for item in a]),
)
_STABLEHLO: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (stablehlo.DotDimensionNumbers, _dot),
    (stablehlo.ComparisonDirectionAttr, lambda a: str(a.value)),
    (stablehlo.ComparisonTypeAttr, lambda a: str(a.value)),
    (stablehlo.PrecisionAttr, lambda a: str(a.value)),
)
"""The first kind that fits says how an attribute is read."""
