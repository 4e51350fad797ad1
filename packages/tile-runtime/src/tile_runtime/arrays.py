"""Values a user passes, as native C-contiguous NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from tile_ir.diagnostics import Diagnostic, TileTypeError
from tile_ir.dtype import DType, from_numpy

_PYTHON_SCALARS = {bool: np.bool_, int: np.int32, float: np.float32}


def readable(name: str, value: npt.ArrayLike) -> np.ndarray[Any, Any]:
    """`value` as an array in native byte order and C order; the same object when it is one already.

    Python numbers become bool, int32 or float32. TileTypeError names the argument when Tile has no such dtype.
    """
    if type(value) is np.ndarray and value.flags.c_contiguous and value.dtype.isnative:
        array: np.ndarray[Any, Any] = value
    else:
        kind = _PYTHON_SCALARS.get(type(value))  # pyright: ignore[reportArgumentType, reportCallIssue, reportUnknownArgumentType]
        array = np.ascontiguousarray(np.asarray(value, dtype=kind)).reshape(np.shape(value))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
    try:
        from_numpy(array.dtype)
    except TypeError as problem:
        raise TileTypeError(Diagnostic("TILE-E502", f"argument {name!r}: {problem}")) from None
    return array


def raw_view(array: np.ndarray[Any, Any]) -> memoryview:
    """The array's bytes; also for dtypes that the buffer protocol does not know (bfloat16)."""
    try:
        return array.data
    except (ValueError, TypeError, BufferError):
        return array.reshape(-1).view(np.uint8).data


def dtype_of(dtype: npt.DTypeLike | DType) -> DType:
    """The DType a user names by DType, Tile name or NumPy dtype; TileTypeError when there is none."""
    if isinstance(dtype, DType):
        return dtype
    if isinstance(dtype, str):
        try:
            return DType(dtype)
        except ValueError:
            pass
    try:
        return from_numpy(dtype)
    except TypeError as problem:
        raise TileTypeError(
            Diagnostic("TILE-E503", str(problem), hint="Tile has " + ", ".join(d.value for d in DType))
        ) from None
