"""Dtypes of tensors, and their limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from tile_ir.dtype import DType

from tile_runtime.arrays import dtype_of
from tile_runtime.numpy.operands import Operand, Result, called
from tile_runtime.ops import elementwise

_KINDS: dict[str, Callable[[DType], bool]] = {
    "bool": lambda d: d is DType.BOOL,
    "signed integer": lambda d: d.is_integer and d.is_signed,
    "unsigned integer": lambda d: d.is_integer and not d.is_signed,
    "integral": lambda d: d.is_integer,
    "real floating": lambda d: d.is_float,
    "complex floating": lambda d: False,
    "numeric": lambda d: d.is_integer or d.is_float,
}


def astype(x: Operand, dtype: npt.DTypeLike | DType, /, *, copy: bool = True) -> Result:
    """Converted as Tile's casts do it: floats to integers towards zero, saturated. `copy` changes nothing."""
    return called(elementwise.converted, x, dtype=dtype_of(dtype))


def isdtype(dtype: DType, kind: Any) -> bool:
    """Whether a dtype is another, of one of the array API's kinds, or one of several of both."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)  # pyright: ignore[reportUnknownVariableType]
    return _KINDS[kind](dtype) if isinstance(kind, str) and kind in _KINDS else dtype_of(kind) is dtype


def result_type(*values: Any) -> DType:
    """The dtype in which tensors, dtypes and Python numbers meet."""
    return elementwise.meeting([_Typed(v) if isinstance(v, DType) else v for v in values])


def can_cast(source: Any, to: DType, /) -> bool:
    """Whether every value is kept, as far as kinds and widths say."""
    dtype = source if isinstance(source, DType) else source.dtype
    return result_type(dtype, to) is to


def finfo(dtype: Any, /) -> Any:
    """NumPy's limits of a float dtype, or of a tensor's."""
    found = _named(dtype)
    if not found.is_float:
        raise ValueError(f"finfo has the limits of floats, not of {found}: iinfo has those of integers")
    return np.finfo(found.numpy)


def iinfo(dtype: Any, /) -> Any:
    """NumPy's limits of an integer dtype, or of a tensor's."""
    found = _named(dtype)
    if not found.is_integer:
        raise ValueError(f"iinfo has the limits of integers, not of {found}: finfo has those of floats")
    return np.iinfo(found.numpy)


def _named(given: Any) -> DType:
    """A dtype, or that of a tensor; the classes that name NumPy's dtypes have an attribute of this name, too."""
    return dtype_of(given if isinstance(given, type) else getattr(given, "dtype", given))


class _Typed:
    """A dtype where a tensor is expected."""

    def __init__(self, dtype: DType) -> None:
        self.dtype = dtype.numpy
