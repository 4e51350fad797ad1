"""The bytes of a constant: held once in a process, whatever programs, stages and devices name it."""

from __future__ import annotations

import hashlib

from tile_ir.mapped import give_back

SHORT = 64
"""Bytes up to which contents are compared themselves, and not their digests."""


class Contents:
    """Little-endian elements in C order, in memory that nobody writes to. Equal by their bytes; hashed once."""

    __slots__ = ("__weakref__", "_digest", "view")

    def __init__(self, data: bytes | memoryview) -> None:
        """Keeps `data` without a copy; a writable or strided view is a ValueError."""
        view = memoryview(data)
        if not (view.readonly and view.c_contiguous):
            raise ValueError("the bytes of a constant are read-only and have no gaps")
        # NumPy's views of no elements cannot be cast.
        self.view: memoryview = view.cast("B") if view.nbytes else memoryview(b"")
        self._digest: bytes | None = None

    @property
    def digest(self) -> bytes:
        """SHA-256 of the bytes."""
        if self._digest is None:
            self._digest = hashlib.sha256(self.view).digest()
            give_back(self.view)
        return self._digest

    def __len__(self) -> int:
        return self.view.nbytes

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Contents) or self is other:
            return self is other
        if len(self) != len(other):
            return False
        return self.view == other.view if len(self) <= SHORT else self.digest == other.digest

    def __hash__(self) -> int:
        return hash(bytes(self.view) if len(self) <= SHORT else self.digest)

    def __repr__(self) -> str:
        return f"Contents({len(self)} bytes)"

    def __reduce__(self) -> tuple[type[Contents], tuple[bytes]]:
        return Contents, (bytes(self.view),)
