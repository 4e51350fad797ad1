"""Boxes of arrays that tasks read: the pieces that they come in, and how these are put together in the host's memory."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

import numpy as np
from tile_hal.host import HostMemory

Array = np.ndarray[Any, Any]
Slices = tuple[slice, ...]
_MEMORY = HostMemory()


class Piece(NamedTuple):
    """A part of what a task reads."""

    into: Slices
    """Where it goes."""
    part: Slices | None
    """Which part of the chunk that is given; None: all of it."""


class Read(NamedTuple):
    """A box of an array that a task reads, and the pieces that it comes in."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    pieces: tuple[Piece, ...]


def assembled(read: Read, given: Iterator[Any]) -> Array:
    """A box, from the chunks that are given next: a part of one, or a copy of parts of several."""
    if len(read.pieces) == 1:
        return _part(next(given), read.pieces[0].part)
    whole = _MEMORY.array(read.shape, read.dtype, prod(read.shape) * read.dtype.itemsize)
    for into, part in read.pieces:
        whole[into] = _part(next(given), part)
    return whole


def _part(chunk: Any, part: Slices | None) -> Array:
    array = np.asarray(chunk)
    return array if part is None else array[part]
