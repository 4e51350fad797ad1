"""Values a user passes, as native C-contiguous NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt
from tile_ir.contents import Contents
from tile_ir.diagnostics import Diagnostic, TileDeviceError, TileTypeError
from tile_ir.dtype import DType, from_numpy

from tile_runtime.checks import described
from tile_runtime.exchange import imported

Array = np.ndarray[Any, Any]
Lying = tuple[int, tuple[int, ...]]
"""The place of a view's first element in its memory, and the steps of its axes, in elements."""

LARGE_VIEW = 1 << 18
"""Bytes of a view from which on a copy in each call costs more than a program of its own."""
SPARSE = 4
"""Times the elements of a view that its memory may have."""

_LITERALS: dict[type, type[np.generic]] = {bool: np.bool_, int: np.int32, float: np.float32}
"""dtypes of Python numbers, those of Tile's literals."""
_INT32 = np.iinfo(np.int32)


def readable(name: str, value: npt.ArrayLike) -> Array:
    """`value` as an aligned array in native byte order and C order; the same object when it is one already.

    Python numbers and lists of them become bool, int32 or float32, as literals do in Tile. TileTypeError
    names the argument when it is no array, or when Tile has no such dtype.
    """
    if type(value) is not np.ndarray:
        return _converted(name, value)
    check_dtype(name, value.dtype)
    return value if is_plain(value) else _plain_copy(name, value)


def kept(name: str, value: npt.ArrayLike) -> Array:
    """`value` as a read-only array as `readable` gives it, which nobody changes from now on: a copy where somebody could.

    One that nobody can change need not be aligned (a view of a file): what a device needs so is copied there.
    """
    if type(value) is np.ndarray and value.flags.c_contiguous and value.dtype.isnative and _unchanging(value):
        check_dtype(name, value.dtype)
        return value
    array = readable(name, value)
    fresh = array is not value and array.flags.owndata
    if not (fresh or _unchanging(array)):
        array = array.copy()
    if array.flags.writeable:
        array.flags.writeable = False
    return array


_known: WeakValueDictionary[tuple[int, int], Contents] = WeakValueDictionary()
"""By address and number of bytes: the memory stays where and what it is as long as there are contents of it."""


def contents(array: Array) -> Contents:
    """The bytes of an array that is `kept`; the same object, which is hashed once, as long as somebody holds it."""
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    place = (little.__array_interface__["data"][0], little.nbytes)
    found = _known.get(place)
    if found is None:
        found = _known[place] = Contents(raw_view(little).toreadonly())
    return found


def _unchanging(array: Array) -> bool:
    """Neither the array nor what its memory belongs to can be written to, as far as that can be seen."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        if owner.flags.writeable:
            return False
        owner = cast("np.ndarray[Any, Any]", owner).base
    try:
        return owner is None or memoryview(owner).readonly
    except TypeError:  # no buffer: an array library's own object, whose word NumPy has taken
        return True


def is_plain(array: Array) -> bool:
    """True when kernels can read it in place."""
    return array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative


def lying(values: Sequence[Array]) -> tuple[Lying | None, ...] | None:
    """Where large views have their elements, None for other arrays; None where there are no large views."""
    found = tuple(map(_lying, values))
    return found if any(found) else None


def flat(values: Sequence[Array], places: Sequence[Lying | None]) -> list[Array]:
    """The arrays, of views the memory from their lowest element to their highest."""
    return [v if place is None else _memory(v) for v, place in zip(values, places, strict=True)]


def _lying(array: Array) -> Lying | None:
    """None, too, for views that have few elements in much memory, and where elements begin inside others."""
    if array.nbytes < LARGE_VIEW or is_plain(array) or not (array.flags.aligned and array.dtype.isnative):
        return None
    if any(step % array.itemsize for step in array.strides) or _reach(array) > SPARSE * array.size:
        return None
    steps = tuple(step // array.itemsize for step in array.strides)
    return -sum(step * (n - 1) for step, n in zip(steps, array.shape, strict=True) if step < 0), steps


def _reach(array: Array) -> int:
    """Elements from the lowest to the highest in memory."""
    return 1 + sum(abs(step) * (n - 1) for step, n in zip(array.strides, array.shape, strict=True)) // array.itemsize


def _memory(view: Array) -> Array:
    rising = view[tuple(slice(None, None, -1 if step < 0 else 1) for step in view.strides)]
    return np.lib.stride_tricks.as_strided(rising, (_reach(view),), (view.itemsize,), writeable=False)


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


def check_dtype(name: str, dtype: np.dtype[Any]) -> None:
    """TileTypeError that names the argument, for a dtype that Tile does not have."""
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
        array: Array = _others(value) if _speaks_dlpack(value) else np.asarray(value, _LITERALS.get(type(value)))  # pyright: ignore[reportUnknownArgumentType]
        if isinstance(value, (list, tuple)):
            array = _narrowed(value, array)
    except OverflowError:
        message = f"argument {name!r} holds an integer beyond int32: {described(cast(object, value))}"
        hint = "pass it as numpy.int64(…) or numpy.array(…, numpy.int64), if it fits that"
        raise TileTypeError(Diagnostic("TILE-E502", message, hint=hint)) from None
    except RuntimeError as problem:  # PyTorch's, of a tensor that requires gradients
        hint = "tile.torch_function(f) passes gradients on; x.detach() leaves them out"
        raise TileTypeError(
            Diagnostic("TILE-E502", f"argument {name!r} cannot be made an array: {problem}", hint=hint)
        ) from None
    except (TypeError, ValueError, BufferError) as problem:
        raise TileTypeError(Diagnostic("TILE-E502", f"argument {name!r} cannot be made an array: {problem}")) from None
    if array.dtype.kind in "OUS" and not isinstance(value, np.ndarray):
        message = f"argument {name!r} is neither an array nor made of numbers: {described(cast(object, value))}"
        raise TileTypeError(Diagnostic("TILE-E502", message, hint=known_dtypes()))
    check_dtype(name, array.dtype)
    return array if is_plain(array) else _plain_copy(name, array)


def _speaks_dlpack(value: Any) -> bool:
    return hasattr(value, "__dlpack__") and not isinstance(value, (np.ndarray, np.generic))


def _others(value: Any) -> Array:
    """Another library's array: as NumPy sees it, or by DLPack, where it hands over no other way (as PyTorch its bfloat16)."""
    if not hasattr(value, "__array__"):
        return imported(value)
    try:
        return np.asarray(value)
    except TypeError as problem:
        try:
            return imported(value)
        except (BufferError, RuntimeError, TypeError, ValueError):
            raise problem from None


def _plain_copy(name: str, array: Array) -> Array:
    native = array.dtype.newbyteorder("=")
    try:
        return np.array(array, native, order="C")
    except MemoryError:
        message = (
            f"argument {name!r} must be copied into C order, and host memory is out: {array.nbytes} bytes are needed"
        )
        raise TileDeviceError(Diagnostic("TILE-E705", message)) from None


def _narrowed(value: Any, array: Array) -> Array:
    """Lists of Python numbers take the dtypes of literals; NumPy's own scalars keep theirs."""
    leaf: Any = value
    while isinstance(leaf, (list, tuple)) and leaf:
        leaf = leaf[0]  # pyright: ignore[reportUnknownVariableType]
    if type(leaf) not in (bool, int, float, list, tuple):  # pyright: ignore[reportUnknownArgumentType]
        return array
    if array.dtype == np.float64:
        return array.astype(np.float32)
    if array.dtype == np.uint64 or (array.dtype == np.object_ and all(type(n) is int for n in array.flat)):
        raise OverflowError
    if array.dtype != np.int64:
        return array
    if array.size and (array.max() > _INT32.max or array.min() < _INT32.min):
        raise OverflowError
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
    if cast(object, dtype) is None:  # float64 to NumPy, and float32 to whoever knows Tile
        raise TileTypeError(Diagnostic("TILE-E503", "None is no dtype", hint=known_dtypes()))
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
        raise TileTypeError(Diagnostic("TILE-E503", message, hint="pip install ml_dtypes")) from None
