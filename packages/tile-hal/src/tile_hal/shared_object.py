"""Machine code from a compiler of the system's own: shared libraries as bytes, and their functions as launches."""

from __future__ import annotations

import ctypes
import hashlib
import os
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path

from tile_hal.host_device import Launch
from tile_hal.host_memory import HostBuffer


class SharedObject:
    """A shared library that is loaded from its bytes, and unloaded when neither it nor a launch of it is left.

    ValueError when `code` is none that this system loads.
    """

    def __init__(self, code: bytes) -> None:
        self._code = code
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            path = Path(folder, "code.so")
            path.write_bytes(code)
            try:
                self._library = ctypes.CDLL(str(path))
            except OSError as problem:
                raise ValueError(f"this is no shared library: {problem}") from problem
        weakref.finalize(self, _unload, self._library._handle)  # pyright: ignore[reportPrivateUsage]

    def launch(self, name: str) -> Launch:
        """The function ``void name(void *const *buffers)``, called with the buffers' addresses; no Python runs meanwhile."""
        function = self._library[name]
        function.restype = None

        def run(buffers: Sequence[HostBuffer], keep: SharedObject = self) -> None:
            function((ctypes.c_void_p * len(buffers))(*(buffer.address for buffer in buffers)))

        return run

    def serialize(self) -> bytes:
        """Bytes for `deserialize`: a digest and the code."""
        return hashlib.sha256(self._code).digest() + self._code

    @staticmethod
    def deserialize(data: bytes) -> SharedObject:
        """ValueError for bytes that are damaged or of something else: loading them could end the process."""
        digest, code = data[:32], data[32:]
        if hashlib.sha256(code).digest() != digest:
            raise ValueError("these bytes are no shared library that was kept, or they are damaged")
        return SharedObject(code)


def _unload(handle: int) -> None:
    if os.name == "posix":
        import _ctypes

        _ctypes.dlclose(handle)
