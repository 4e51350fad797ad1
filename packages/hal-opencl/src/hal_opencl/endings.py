"""OpenCL objects at the end of a process, and in a forked child: they are held for ever instead of released.

The last reference to an object of pyopencl calls ``clRelease*``. In a forked child that reaches a driver whose threads and
locks are the parent's; while the interpreter ends, modules and objects go in any order, beside other users of the same driver.
The system takes everything back anyway.
"""

from __future__ import annotations

import ctypes
from typing import TypeVar

from tile_ir import forking

Owner = TypeVar("Owner", bound=type)

_owners: list[type] = []
_held: list[object] = []
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_held))  # the interpreter's end must not empty it


def owner(cls: Owner) -> Owner:
    """A class whose instances have objects of pyopencl as attributes; while the process goes on, this costs nothing."""
    _owners.append(cls)
    return cls


def _hold(self: object, held: list[object] = _held) -> None:
    """The finalizer of owners from now on; a default argument outlives this module's globals."""
    held.append(self)


def hold_all() -> None:
    """No owner lets go of its OpenCL objects any more."""
    for cls in _owners:
        cls.__del__ = _hold  # type: ignore[attr-defined]


forking.at_fork(in_child=hold_all)
