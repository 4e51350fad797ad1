"""Values a user passes, as native C-contiguous NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from tile_ir.diagnostics import Diagnostic, TileTypeError
from tile_ir.dtype import DType, from_numpy

Array = np.ndarray[Any, Any]

_LITERALS: dict[type, type[np.generic]] = {bool: np.bool_, int: np.int32, float: np.float32}
"""dtypes of Python numbers, those of Tile's literals."""
_INT32 = np.iinfo(np.int32)


def readable(name: str, value: npt.ArrayLike) -> Array:
    """`value` as an aligned array in native byte order and C order; the same object when it is one already.

    Python numbers and lists of them become bool, int32 or float32, as literals do in Tile. TileTypeError
    names the argument when it is no array, or when Tile has no such dtype.
    """
    if type(value) is np.ndarray and is_plain(value):
        array: Array = value
    else:
        array = _converted(name, value)
    _check_dtype(name, array.dtype)
    return array


def is_plain(array: Array) -> bool:
    """True when kernels can read it in place."""
    return array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative


def overlaps_itself(array: Array) -> bool:
    """True when two elements may have memory in common; False for every slice, transpose or diagonal of an array.

    Each axis must step over all that the axes of smaller steps cover; some exotic strides do without.
    """
    if array.flags.c_contiguous or not array.size:
        return False
    covered = array.itemsize
    for step, extent in sorted((abs(s), n) for s, n in zip(array.strides, array.shape, strict=True) if n > 1):
        if step < covered:
            return True
        covered += step * (extent - 1)
    return False


def _check_dtype(name: str, dtype: np.dtype[Any]) -> None:
    try:
        from_numpy(dtype)
    except TypeError as problem:
        raise TileTypeError(Diagnostic("TILE-E502", f"argument {name!r}: {problem}", hint=known_dtypes())) from None


def _converted(name: str, value: Any) -> Array:
    if isinstance(value, np.ma.MaskedArray):
        message = f"argument {name!r} is a masked array, and Tile has no masks"
        hint = "pass a.filled(0), or another value that its masked elements shall have"
        raise TileTypeError(Diagnostic("TILE-E502", message, hint=hint))
    try:
        array: Array = np.asarray(value, dtype=_LITERALS.get(type(value)))  # pyright: ignore[reportUnknownArgumentType]
        if isinstance(value, (list, tuple)):
            array = _narrowed(value, array)
    except (TypeError, ValueError, OverflowError) as problem:
        hint = "an integer beyond int32 is passed as numpy.int64(…)" if isinstance(problem, OverflowError) else None
        raise TileTypeError(
            Diagnostic("TILE-E502", f"argument {name!r} cannot be made an array: {problem}", hint=hint)
        ) from None
    _check_dtype(name, array.dtype)
    native = array.dtype.newbyteorder("=")
    return np.require(array, native, ["C", "A", "E"]).reshape(array.shape)


def _narrowed(value: Any, array: Array) -> Array:
    """Lists of Python numbers take the dtypes of literals; NumPy's own scalars keep theirs."""
    leaf: Any = value
    while isinstance(leaf, (list, tuple)) and leaf:
        leaf = leaf[0]  # pyright: ignore[reportUnknownVariableType]
    if type(leaf) not in (bool, int, float, list, tuple):  # pyright: ignore[reportUnknownArgumentType]
        return array
    if array.dtype == np.float64:
        return array.astype(np.float32)
    if array.dtype != np.int64:
        return array
    if array.size and (array.max() > _INT32.max or array.min() < _INT32.min):
        raise OverflowError("it holds an integer that int32 does not")
    return array.astype(np.int32)


def raw_view(array: Array) -> memoryview:
    """The array's bytes; also for dtypes that the buffer protocol does not know (bfloat16)."""
    try:
        return array.data
    except (ValueError, TypeError, BufferError):
        # As bytes the element's alignment is lost, so it is seen to here.
        return np.require(array, None, ["C", "A"]).reshape(-1).view(np.uint8).data


def dtype_of(dtype: npt.DTypeLike | DType) -> DType:
    """The DType a user names by DType, Tile name or NumPy dtype; TileTypeError when there is none."""
    if isinstance(dtype, DType):
        return dtype
    if isinstance(dtype, str) and dtype in _NAMES:
        return _NAMES[dtype]
    try:
        return from_numpy(dtype)
    except TypeError as problem:
        raise TileTypeError(Diagnostic("TILE-E503", str(problem), hint=known_dtypes())) from None


_NAMES = {d.value: d for d in DType}


def known_dtypes() -> str:
    """A hint that lists the element types."""
    return "Tile has " + ", ".join(_NAMES)


def numpy_dtype(name: str, dtype: DType) -> np.dtype[Any]:
    """The NumPy dtype of a value a user sees; TileTypeError when it needs an extra that is not installed."""
    try:
        return dtype.numpy
    except ImportError:
        message = f"{name} is {dtype}, which NumPy has by the ml_dtypes package only"
        raise TileTypeError(Diagnostic("TILE-E503", message, hint="pip install 'tile-runtime[bfloat16]'")) from None
