"""Memory of files that are mapped to be read: what was looked at need not stay."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import numpy.typing as npt


def give_back(view: memoryview) -> None:
    """Gives the memory of a mapped file back, as far as `view` has whole pages of it: it is read again when looked at.

    Nothing for memory of any other kind, and for files that are mapped to be written to.
    """
    array = np.frombuffer(view, np.uint8)
    file = _file(view)
    if file is None or not hasattr(mmap, "MADV_DONTNEED"):
        return
    start = _address(array) - _address(np.frombuffer(file, np.uint8))
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    end = (start + array.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if first < end:
        file.madvise(mmap.MADV_DONTNEED, first, end - first)


def _file(view: memoryview) -> mmap.mmap | None:
    """The mapped file that a view is of."""
    owner: Any = view
    while isinstance(owner, (memoryview, np.ndarray)):
        owner = owner.obj if isinstance(owner, memoryview) else owner.base
    return owner if isinstance(owner, mmap.mmap) and memoryview(owner).readonly else None


def _address(array: npt.NDArray[np.uint8]) -> int:
    return array.__array_interface__["data"][0]
