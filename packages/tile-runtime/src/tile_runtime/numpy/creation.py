"""Tensors from nothing, and from arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from tile_hal.interfaces import Device
from tile_ir.dtype import DType

from tile_runtime import tensor
from tile_runtime.arrays import dtype_of
from tile_runtime.numpy.elementwise import where
from tile_runtime.numpy.operands import (
    Operand,
    Result,
    called,
    count_of,
    integer_of,
    integers_of,
    made,
    numbers_of,
    shape_of,
)
from tile_runtime.ops import elementwise
from tile_runtime.ops.moving import expanded, reshaped
from tile_runtime.ops.values import Value
from tile_runtime.symbols import Symbol, constant, making
from tile_runtime.tensor import Tensor

Dtype = npt.DTypeLike | DType | None
Where = Device | str | None
Shape = int | Sequence[int]


def asarray(value: Any, /, dtype: Dtype = None, *, device: Where = None, copy: bool | None = None) -> Result:
    """A Tensor of what NumPy can make an array of; one that is a Tensor there already is itself, unless `copy`."""
    found = value if isinstance(value, Symbol) else made(value, device)
    if dtype is not None and found.dtype is not dtype_of(dtype):
        return found.astype(dtype)
    if isinstance(found, Symbol):
        return found
    return tensor.asarray(found.numpy(), found.device) if copy and found is value else found


def full(shape: Shape, fill_value: float, dtype: Dtype = None, *, device: Where = None) -> Result:
    """A Tensor of one number."""
    kind = elementwise.meeting((fill_value,)) if dtype is None else dtype_of(dtype)
    sizes = integers_of("shape", shape)
    if making.get() and device is None:
        return expanded(constant(np.asarray(fill_value, kind.numpy)), sizes)
    return tensor.asarray(np.full(sizes, fill_value, kind.numpy), device)


def zeros(shape: Shape, dtype: Dtype = None, *, device: Where = None) -> Result:
    """A Tensor of zeros (float32)."""
    return full(shape, 0.0, dtype=dtype, device=device)


def ones(shape: Shape, dtype: Dtype = None, *, device: Where = None) -> Result:
    """A Tensor of ones (float32)."""
    return full(shape, 1.0, dtype=dtype, device=device)


def empty(shape: Shape, dtype: Dtype = None, *, device: Where = None) -> Result:
    """A Tensor of whatever the memory holds (float32)."""
    if making.get() and device is None:
        return zeros(shape, dtype=dtype)
    return Tensor(device, integers_of("shape", shape), "float32" if dtype is None else dtype)


def _place(x: Operand) -> Device | None:
    """The device of a Tensor; NumPy's arrays name one of their own."""
    return x.device if isinstance(x, Tensor) else None


def full_like(x: Operand, /, fill_value: float, dtype: Dtype = None, *, device: Where = None) -> Result:
    """A Tensor of one number, in the shape and dtype of another, on its device."""
    return full(shape_of(x), fill_value, dtype=dtype or x.dtype, device=device or _place(x))


def zeros_like(x: Operand, /, dtype: Dtype = None, *, device: Where = None) -> Result:
    """Zeros in the shape and dtype of another tensor."""
    return full_like(x, 0, dtype=dtype, device=device)


def ones_like(x: Operand, /, dtype: Dtype = None, *, device: Where = None) -> Result:
    """Ones in the shape and dtype of another tensor."""
    return full_like(x, 1, dtype=dtype, device=device)


def empty_like(x: Operand, /, dtype: Dtype = None, *, device: Where = None) -> Result:
    """Whatever the memory holds, in the shape and dtype of another tensor."""
    return empty(shape_of(x), dtype=dtype or x.dtype, device=device or _place(x))


def arange(
    start: float, /, stop: float | None = None, step: float = 1, dtype: Dtype = None, *, device: Where = None
) -> Result:
    """Numbers from `start` (0) to before `stop`: int32, or float32 where one of them is a float."""
    low, high = (0, start) if stop is None else (start, stop)
    kind = elementwise.meeting((low, high, step)) if dtype is None else dtype_of(dtype)
    return made(np.arange(low, high, step).astype(kind.numpy), device)


def linspace(
    start: float, stop: float, /, num: int = 50, *, dtype: Dtype = None, device: Where = None, endpoint: bool = True
) -> Result:
    """`num` numbers at equal distances (float32)."""
    kind = DType.FLOAT32 if dtype is None else dtype_of(dtype)
    first, last, count = numbers_of("start", start), numbers_of("stop", stop), count_of("num", num)
    return made(np.linspace(first, last, count, endpoint=endpoint).astype(kind.numpy), device)


def eye(n_rows: int, n_cols: int | None = None, /, k: int = 0, dtype: Dtype = None, *, device: Where = None) -> Result:
    """Ones on diagonal `k`, zeros beside it (float32)."""
    kind = DType.FLOAT32 if dtype is None else dtype_of(dtype)
    return made(np.eye(integer_of("n_rows", n_rows), n_cols, integer_of("k", k), kind.numpy), device)


def tril(x: Operand, /, k: int = 0) -> Result:
    """What is on diagonal `k` or below; zeros above."""
    return where(_below(x, k), x, False)


def triu(x: Operand, /, k: int = 0) -> Result:
    """What is on diagonal `k` or above; zeros below."""
    return where(_below(x, integer_of("k", k) - 1), False, x)


def _below(x: Operand, k: int) -> npt.NDArray[np.bool_]:
    """Where the cells of a matrix are on diagonal `k` or below."""
    if len(shape_of(x)) < 2:
        raise ValueError(f"a triangle is that of matrices: this has shape {shape_of(x)}")
    rows, columns = shape_of(x)[-2:]
    return np.tri(rows, columns, integer_of("k", k), dtype=np.bool_)


def meshgrid(*arrays: Operand, indexing: str = "xy") -> list[Result]:
    """Coordinates in as many dimensions as there are arrays; ``xy`` exchanges the first two axes."""
    order = list(range(len(arrays)))
    if indexing == "xy" and len(arrays) > 1:
        order[:2] = [1, 0]
    if any(len(shape_of(a)) != 1 for a in arrays):
        raise ValueError(f"coordinates are vectors: these have shapes {[shape_of(a) for a in arrays]}")
    sizes = [arrays[k].shape[0] for k in order]
    columns = [[n if place == k else 1 for place, n in zip(order, sizes, strict=True)] for k in range(len(arrays))]
    return [called(_spread, a, column=column, sizes=sizes) for a, column in zip(arrays, columns, strict=True)]


def _spread(value: Value, column: Sequence[int], sizes: Sequence[int]) -> Value:
    return expanded(reshaped(value, column), sizes)
