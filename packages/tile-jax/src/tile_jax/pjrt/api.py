"""The table of functions that JAX takes, and the callbacks behind it. No exception of Python leaves them."""

from __future__ import annotations

import _thread
import atexit
import ctypes
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

from tile_jax.pjrt import buffers, client, devices, errors, events, executables
from tile_jax.pjrt.handles import Handler
from tile_jax.pjrt.native import ANSWERED, guarded
from tile_jax.pjrt.structs import MAJOR, MINOR, SLOTS, STRUCTS

HANDLERS: dict[str, Handler] = {
    **errors.HANDLERS,
    **events.HANDLERS,
    **client.HANDLERS,
    **devices.HANDLERS,
    **buffers.HANDLERS,
    **executables.HANDLERS,
}
"""What we answer, by the function's name. Every other function says that it is unimplemented."""

DESTROYING = tuple(n for n in HANDLERS if n.endswith(("_Destroy", "_Delete")))
"""What JAX calls while objects of Python die, with an exception pending perhaps."""
WORKING = frozenset({"Client_Create", "Client_Compile", "LoadedExecutable_Execute", "Buffer_ToHostBuffer"})
"""What takes time, so that an interrupt is meant for it; JAX ends the process when others fail."""
LATER = 0.05
"""Seconds after which an interrupt comes again that came while JAX was told something."""
_kept: list[dict[str, Any]] = []
"""The callbacks behind guarded functions."""
_Callback = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64)


class _Version(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_uint64),
        ("extension_start", ctypes.c_uint64),
        ("major", ctypes.c_int32),
        ("minor", ctypes.c_int32),
    )


class _Api(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_uint64),
        ("extension_start", ctypes.c_uint64),
        ("version", _Version),
        *((name, _Callback) for name in SLOTS),
    )


def _answering(name: str, handler: Handler) -> Callable[[int], int]:
    """A C function's body: the handler's error, else that of the exception it raised, else nothing."""
    read: Callable[[int], Any] = STRUCTS[name].from_address

    def answer(address: int) -> int:
        try:
            return handler(read(address)) or 0
        except KeyboardInterrupt as problem:
            if name in WORKING:
                return errors.failure(problem)
            threading.Timer(LATER, _thread.interrupt_main).start()
            return handler(read(address)) or 0
        except BaseException as problem:
            return errors.failure(problem)

    return answer


def _refusing(name: str) -> Callable[[int], int]:
    def refuse(_: int) -> int:
        return errors.failure(NotImplementedError(f"tile-jax has no PJRT_{name}"))

    return refuse


@cache
def table() -> Any:
    """The one PJRT_Api structure of this process.

    JAX's libraries call it until the very end of the process, when Python is gone: it is never freed, and before Python
    goes its functions become one of C that does nothing.
    """
    callbacks = {n: _Callback(_answering(n, HANDLERS[n]) if n in HANDLERS else _refusing(n)) for n in SLOTS}
    _kept.append(callbacks)
    before = guarded({n: callbacks[n] for n in DESTROYING}, {n: callbacks[n] for n in ANSWERED})
    functions = callbacks | {n: _Callback(address) for n, address in before.items()}
    version = _Version(ctypes.sizeof(_Version), 0, MAJOR, MINOR)
    made = _Api(ctypes.sizeof(_Api), 0, version, *functions.values())
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))
    atexit.register(_silence, made)
    return made


def _silence(made: Any) -> None:
    """Lets nobody call Python any more."""
    events.finish_all()
    nothing = ctypes.cast(ctypes.CDLL(None).sched_yield, _Callback)  # takes anything, and returns 0
    for name in SLOTS:
        setattr(made, name, nothing)


def capsule() -> Any:
    """The table as JAX's `register_plugin` takes it; it is valid as long as the process lives."""
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return make(ctypes.addressof(table()), b"pjrt_c_api", None)
