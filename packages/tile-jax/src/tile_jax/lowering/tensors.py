"""MLIR's tensor types and constants as Tile's dtypes and NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from tile_ir.dtype import DType
from tile_ir.program.nodes import TensorType
from tile_runtime.ops.values import Array, NotInTile

from tile_jax.lowering.mlir import ir

_DTYPES = {
    "i1": DType.BOOL,
    **{f"i{b}": DType[f"INT{b}"] for b in (8, 16, 32, 64)},
    **{f"ui{b}": DType[f"UINT{b}"] for b in (8, 16, 32, 64)},
    **{f"f{b}": DType[f"FLOAT{b}"] for b in (16, 32, 64)},
    "bf16": DType.BFLOAT16,
}
"""Element types that Tile has, as MLIR spells them."""


def element(type: Any) -> DType:
    """The dtype of an element type; NotInTile for complex numbers, 4-bit integers, 8-bit floats, quantised ones."""
    found = _DTYPES.get(str(type))
    if found is None:
        raise NotInTile(f"Tile has no tensors of {type}")
    return found


def is_tensor(type: Any) -> bool:
    """Whether a value of this type is a tensor, not a token or a tuple."""
    return isinstance(type, ir.RankedTensorType)


def tensor_type(type: Any) -> TensorType:
    """Dtype and shape; NotInTile where Tile has no such tensors."""
    if not isinstance(type, ir.RankedTensorType):
        raise NotInTile(f"Tile has no values of type {type}")
    if not type.has_static_shape:
        raise NotInTile(
            f"{type} has a size that is not known; JAX states all sizes unless a function is exported for any"
        )
    return TensorType(element(type.element_type), tuple(type.shape))


def constant(attribute: Any) -> Array:
    """The numbers of a constant; where all are the same, one number broadcast."""
    elements: Any = attribute
    type = tensor_type(elements.type)
    if not isinstance(attribute, ir.DenseElementsAttr):
        raise NotInTile(f"a constant of the form {str(attribute)[:40]} is not read")
    if elements.is_splat:
        return np.broadcast_to(np.asarray(elements.get_splat_value().value, type.dtype.numpy), type.shape)
    numbers = list(elements) if type.dtype is DType.BFLOAT16 else elements
    return np.array(numbers, type.dtype.numpy).reshape(type.shape)
