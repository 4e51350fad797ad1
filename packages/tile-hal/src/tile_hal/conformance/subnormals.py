"""Subnormal numbers, on devices that may count them as zeros (`Capabilities.flushes_subnormals`).

Such a device is not asked what becomes of them: its operands have none, and of its results those near zero count as zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from tile_ir.dtype import DType, from_numpy

from tile_hal.interfaces import Device

Array = npt.NDArray[Any]

ADVICE = "subnormal numbers are not zeros; a device whose {} flushes them says so: Capabilities(flushes_subnormals=…)"


def least(dtype: DType) -> float:
    """The least positive normal number of a floating dtype."""
    return {DType.FLOAT16: 2.0**-14, DType.FLOAT64: 2.0**-1022}.get(dtype, 2.0**-126)


def operands(device: Device, args: Sequence[Array]) -> list[Array]:
    """`args`, with zeros for the subnormal numbers of dtypes that the device flushes."""
    return [_cleared(a, 1.0) if _dtype(a) in device.capabilities.flushes_subnormals else a for a in args]


def results(device: Device, actual: Array, expected: Array) -> tuple[Array, Array]:
    """Both arrays; where the device flushes their dtype, with zeros for what may have been rounded from a subnormal number."""
    if _dtype(expected) not in device.capabilities.flushes_subnormals:
        return actual, expected
    return _cleared(actual, 2.0), _cleared(expected, 2.0)


def advice(actual: Array, expected: Array, bad: npt.NDArray[np.bool_], args: Sequence[Array]) -> str:
    """What to do where all that is `bad` comes from flushing: a subnormal operand, or a zero for a subnormal result."""
    given = [a for a in args if a.shape == bad.shape and _small(a).any()]
    from_flushing = np.zeros(bad.shape, bool)
    for array in given:
        from_flushing |= _small(array)
    from_flushing |= _small(expected) & (actual == 0)
    if not bad.any() or not from_flushing[bad].all():
        return ""
    return "; " + ADVICE.format(_dtype(given[0] if given else expected))


def _small(array: Array) -> npt.NDArray[np.bool_]:
    """Where subnormal numbers are."""
    dtype = _dtype(array)
    if not dtype.is_float:
        return np.zeros(array.shape, bool)
    size = np.abs(array.astype(np.float64))
    return (size > 0) & (size < least(dtype))


def _cleared(array: Array, times: float) -> Array:
    near = np.abs(array.astype(np.float64)) < times * least(_dtype(array))
    return np.where(near, np.copysign(np.zeros_like(array), array), array)


def _dtype(array: Array) -> DType:
    return from_numpy(array.dtype)
