"""PyTorch's element types beside Tile's and NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import cast

import numpy as np
import torch
from tile_ir.dtype import DType
from tile_runtime.ops.values import Array

DTYPES: dict[torch.dtype, DType] = {
    torch.bool: DType.BOOL,
    torch.int8: DType.INT8,
    torch.int16: DType.INT16,
    torch.int32: DType.INT32,
    torch.int64: DType.INT64,
    torch.uint8: DType.UINT8,
    torch.uint16: DType.UINT16,
    torch.uint32: DType.UINT32,
    torch.uint64: DType.UINT64,
    torch.float16: DType.FLOAT16,
    torch.bfloat16: DType.BFLOAT16,
    torch.float32: DType.FLOAT32,
    torch.float64: DType.FLOAT64,
}
TORCH_DTYPES = {tile: own for own, tile in DTYPES.items()}


_from_numpy = cast("Callable[[Array], torch.Tensor]", torch.from_numpy)  # pyright: ignore[reportUnknownMemberType]


@cache
def torch_dtype(dtype: DType) -> torch.dtype:
    """PyTorch's name of a Tile dtype."""
    return TORCH_DTYPES[dtype]


def to_array(tensor: torch.Tensor) -> Array:
    """The elements of a CPU tensor in place, in its own layout, as NumPy sees them."""
    plain = tensor.detach() if tensor.requires_grad else tensor
    if plain.is_complex():  # their parts along one more axis
        plain = torch.view_as_real(plain.resolve_conj())
    if plain.dtype is torch.bfloat16:  # NumPy has none of its own
        return plain.view(torch.int16).numpy().view(DType.BFLOAT16.numpy)
    return plain.numpy()


def ordered_array(tensor: torch.Tensor, order: tuple[int, ...] | None) -> Array:
    """The elements with axes in `order`, in which they are contiguous; None: a contiguous copy where it takes one."""
    if order is None:
        return to_array(tensor.contiguous())
    return to_array(tensor.permute(order) if _moves(order) else tensor)


@cache
def _moves(order: tuple[int, ...]) -> bool:
    """Whether an order is another than that of the axes: a view that moves none takes longer than all else of a small tensor."""
    return order != tuple(range(len(order)))


def to_tensor(array: Array) -> torch.Tensor:
    """A tensor in the memory of an array."""
    if array.dtype == DType.BFLOAT16.numpy:
        return _from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return _from_numpy(array)


def to_complex(parts: torch.Tensor) -> torch.Tensor:
    """The numbers whose parts lie along the last axis; of none, NumPy's arrays may have any strides."""
    return torch.view_as_complex(parts if parts.numel() else parts.new_empty(parts.shape))
