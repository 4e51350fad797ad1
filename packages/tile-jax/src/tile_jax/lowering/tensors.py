"""MLIR's tensor types and constants as Tile's dtypes and NumPy arrays.

A tensor of complex numbers is one of their parts, side by side along one more axis, the last one: as they lie in memory.
"""

from __future__ import annotations

import re
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
PARTS = {"complex<f32>": DType.FLOAT32, "complex<f64>": DType.FLOAT64}
"""The dtypes of the parts of complex numbers."""
_NUMBER = r"[^(),\s]+"


def element(type: Any) -> DType:
    """The dtype of an element type, of a complex number's parts; NotInTile for 4-bit integers, 8-bit floats, quantised ones."""
    found = _DTYPES.get(str(type)) or PARTS.get(str(type))
    if found is None:
        raise NotInTile(f"Tile has no tensors of {type}")
    return found


def is_tensor(type: Any) -> bool:
    """Whether a value of this type is a tensor, not a token or a tuple."""
    return isinstance(type, ir.RankedTensorType)


def is_complex(type: Any) -> bool:
    """Whether a value of this type is a tensor of complex numbers."""
    return is_tensor(type) and str(type.element_type) in PARTS


def tensor_type(type: Any) -> TensorType:
    """Dtype and shape; NotInTile where Tile has no such tensors."""
    if not isinstance(type, ir.RankedTensorType):
        raise NotInTile(f"Tile has no values of type {type}")
    if not type.has_static_shape:
        raise NotInTile(
            f"{type} has a size that is not known; JAX states all sizes unless a function is exported for any"
        )
    return TensorType(element(type.element_type), (*type.shape, 2) if is_complex(type) else tuple(type.shape))


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


def complex_constant(operation: Any) -> Array:
    """The numbers of an operation that is a complex constant, which jaxlib's bindings give as text alone."""
    type = tensor_type(operation.results[0].type)
    text = operation.get_asm(large_elements_limit=None)
    raw = re.search(r'dense<"0x([0-9A-Fa-f]*)">', text)
    if raw is not None:
        return np.frombuffer(bytes.fromhex(raw[1]), type.dtype.numpy).reshape(type.shape)
    pairs = re.findall(rf"\(({_NUMBER}),({_NUMBER})\)", text.partition("dense<")[2].partition("> : tensor<")[0])
    numbers = [[_spelled(part, type.dtype) for part in pair] for pair in pairs]
    return (
        np.broadcast_to(np.array(numbers, type.dtype.numpy).reshape(-1, 2)[0], type.shape)
        if len(pairs) == 1
        else (np.array(numbers, type.dtype.numpy).reshape(type.shape))
    )


def _spelled(text: str, dtype: DType) -> float:
    """A float as MLIR writes it: those that are not finite as their bits."""
    if not text.startswith("0x"):
        return float(text)
    bits = bytes.fromhex(text[2:])[::-1]
    return float(np.frombuffer(bits, dtype.numpy)[0])
