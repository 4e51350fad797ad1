"""Arrays of other libraries without copies, by DLPack: https://dmlc.github.io/dlpack.

NumPy speaks it for every dtype but bfloat16. That goes as 16-bit integers through NumPy, and changes its name on the way.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from tile_ir.dtype import DType, from_numpy

CPU = (1, 0)
"""DLPack's device of host memory."""
_UNSIGNED, _BFLOAT = 1, 4
"""DLPack's codes of kinds."""


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
    )


_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)

_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
_OFFSETS = {b"dltensor": 0, b"dltensor_versioned": 32}
"""Where the tensor is described, behind its version, manager, deleter and flags."""


def exported(array: npt.NDArray[Any], **options: Any) -> Any:
    """A capsule of the array's own memory."""
    if from_numpy(array.dtype) is not DType.BFLOAT16:
        return array.__dlpack__(**options)
    capsule = array.view(np.uint16).__dlpack__(**options)
    _described(capsule).code = _BFLOAT
    return capsule


def imported(value: Any) -> npt.NDArray[Any]:
    """An array over the memory of anything with ``__dlpack__`` on the CPU; BufferError or TypeError where that cannot be."""
    if tuple(value.__dlpack_device__()) != CPU:
        raise BufferError("its memory is not the host's")
    try:
        capsule = value.__dlpack__(max_version=(1, 0))
    except TypeError:  # of a library that is older than that
        capsule = value.__dlpack__()
    tensor = _described(capsule)
    narrow = (tensor.code, tensor.bits, tensor.lanes) == (_BFLOAT, 16, 1)
    if narrow:
        tensor.code = _UNSIGNED
    array = np.from_dlpack(_Lender(capsule))
    return array.view(DType.BFLOAT16.numpy) if narrow else array


def _described(capsule: Any) -> _Tensor:
    """What a capsule says of its tensor, which belongs to whoever has the capsule."""
    name = _name(capsule)
    if name not in _OFFSETS:
        raise BufferError(f"a capsule {name.decode()!r} has been taken already")
    return _Tensor.from_address(cast("int", _pointer(capsule, name)) + _OFFSETS[name])


class _Lender:
    """A capsule as something that can be asked for it, once."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU


# --- results in the caller's library ------------------------------------------------------------------

_LIBRARIES = {"torch": "torch", "jaxlib": "jax.numpy"}
"""Where ``from_dlpack`` is, by the package that a value's type comes from."""


def library(values: Iterable[Any]) -> Any:
    """The module that makes the caller's kind of arrays, where one of the values is PyTorch's or JAX's; None else."""
    for value in values:
        root = type(value).__module__.partition(".")[0]
        if root in _LIBRARIES and root in sys.modules:
            return import_module(_LIBRARIES[root])
    return None


def handed_over(results: Any, to: Any) -> Any:
    """Arrays, which nobody else has, as arrays of that library, without copies."""
    if isinstance(results, tuple):
        return tuple(handed_over(r, to) for r in cast("tuple[Any, ...]", results))
    return (
        to.from_dlpack(_Lender(exported(cast("npt.NDArray[Any]", results))))
        if isinstance(results, np.ndarray)
        else results
    )
