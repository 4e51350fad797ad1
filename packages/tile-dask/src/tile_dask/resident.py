"""Chunks in a device's memory: they stay there from task to task, and are NumPy arrays wherever else they come to.

A worker whose device has memory of its own keeps what its tasks make there, and does not wait for it. NumPy sees an array, and a
pickle, which is how a chunk gets to other workers, to disk and to users, is one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from math import prod
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import numpy as np
from tile_hal.errors import Code
from tile_hal.host import HostBuffer
from tile_hal.interfaces import Device
from tile_ir.diagnostics import TileDeviceError, TileError
from tile_runtime.function import Function
from tile_runtime.tensor import Tensor, asarray

from tile_dask.boxes import Array, Read, Slices

T = TypeVar("T")
Ranges = tuple[tuple[int, int], ...]
"""First cell along each axis, and the one behind the last."""
Start = tuple[int, ...]
"""The cell of a tensor where a part of it begins."""
FORMS = 256
"""Ways to put boxes together that a process keeps."""


class Resident:
    """A chunk, or a part of one, that is made, or about to be, in a device's memory."""

    __slots__ = ("__weakref__", "_host", "_tensor", "about", "dtype", "shape")

    def __init__(self, tensor: Tensor, about: str) -> None:
        """`about` says in errors what it is."""
        self.shape, self.dtype, self.about = tensor.shape, tensor.dtype.numpy, about
        self._tensor: Tensor | None = tensor
        self._host: Array | None = None
        _all[next(_numbers)] = self

    @property
    def nbytes(self) -> int:
        return self.dtype.itemsize * prod(self.shape)

    def __sizeof__(self) -> int:
        """What dask reckons with when it places tasks, and when it writes chunks to disk."""
        return self.nbytes + object.__sizeof__(self)

    def on(self, device: Device) -> Tensor | None:
        """Its Tensor, where it is on that device."""
        tensor = self._tensor
        return tensor if tensor is not None and tensor.device is device else None

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        tensor = self._tensor
        host = self._host
        if host is None:
            assert tensor is not None
            host = self._blamed(tensor.numpy)
        return np.asarray(host, dtype)

    def __reduce__(self) -> tuple[Callable[[Array], Array], tuple[Array]]:
        return (_array, (np.asarray(self),))

    def part(self, part: Slices) -> Resident | Array:
        """A part, which may be about to be made."""
        tensor = self._tensor
        if tensor is None:
            return np.asarray(self)[part].copy()
        shape = tuple(s.stop - s.start for s in part)
        cut = _putting(shape, ((_whole(shape), _start(part)),))
        return Resident(with_room(tensor.device, lambda: cut(tensor)), self.about)

    @property
    def ready(self) -> bool:
        """Nobody need wait for it."""
        tensor = self._tensor
        return tensor is None or tensor.done

    def copied(self) -> Resident:
        """It, once it is there, with a copy in the host's memory: ready to be sent."""
        self._host = np.asarray(self)
        return self

    def leave(self) -> None:
        """Move to the host's memory."""
        self.copied()
        self._tensor = None

    def _blamed(self, look: Callable[[], T]) -> T:
        try:
            return look()
        except TileError as problem:
            problem.add_note(self.about)
            raise


def _array(array: Array) -> Array:
    """What a pickle of a Resident gives."""
    return array


_numbers = itertools.count()
_all: WeakValueDictionary[int, Resident] = WeakValueDictionary()
"""Those that there are, the oldest first."""


@cache
def has_own_memory(device: Device) -> bool:
    """Arrays of the host's must be copied to the device."""
    return not isinstance(device.memory.allocate(1), HostBuffer)


def with_room(device: Device, work: Callable[[], T]) -> T:
    """`work`, again and again while the device's memory is out and chunks can leave it."""
    while True:
        try:
            return work()
        except TileDeviceError as problem:
            if problem.diagnostics[0].code != Code.MEMORY.value or not _some_leave(device):
                raise


def _some_leave(device: Device) -> bool:
    """Have the older half of a device's chunks leave it; False where there are none."""
    there = [chunk for chunk in list(_all.values()) if chunk.on(device) is not None]
    for chunk in there[: -(-len(there) // 2)]:
        chunk.leave()
    return bool(there)


# --- boxes ------------------------------------------------------------------------------------------------


def boxes(reads: Sequence[Read], given: Sequence[Any], device: Device) -> list[Tensor]:
    """The boxes that a task reads, on a device, from chunks and parts of them in the order of their pieces."""
    waiting = iter(given)
    return [_box(read, [next(waiting) for _ in read.pieces], device) for read in reads]


def _box(read: Read, chunks: Sequence[Any], device: Device) -> Tensor:
    # Edges first: they would wait behind the chunks that other tasks bring.
    order = sorted(range(len(chunks)), key=lambda n: _cells(read.pieces[n].into))
    there = {n: _there(chunks[n], read.pieces[n].part, device) for n in order}
    found = [there[n] for n in range(len(chunks))]
    if len(found) == 1 and found[0][0].shape == read.shape:
        return found[0][0]
    into = (tuple((s.start, s.stop) for s in piece.into) for piece in read.pieces)
    form = tuple(zip(into, (start for _, start in found), strict=True))
    return _putting(read.shape, form)(*(tensor for tensor, _ in found))


def _there(chunk: Any, part: Slices | None, device: Device) -> tuple[Tensor, Start]:
    """A tensor on the device, and the cell of it where the part begins: nothing but the part where it must be brought there."""
    tensor = chunk.on(device) if isinstance(chunk, Resident) else None
    if tensor is not None:
        return tensor, (0,) * tensor.ndim if part is None else _start(part)
    host = np.asarray(chunk)
    return asarray(host if part is None else host[part], device), (0,) * host.ndim


def _cells(part: Slices) -> int:
    return prod(s.stop - s.start for s in part)


def _start(part: Slices) -> Start:
    return tuple(s.start for s in part)


def _whole(shape: tuple[int, ...]) -> Ranges:
    return tuple((0, n) for n in shape)


@lru_cache(FORMS)
def _putting(shape: tuple[int, ...], parts: tuple[tuple[Ranges, Start], ...]) -> Function:
    """Puts parts of tensors, each from a cell on, where they belong: one kernel."""
    axes = range(len(shape))
    names = [f"P{n}[{', '.join(f'A{n}_{k}' for k in axes)}]" for n in range(len(parts))]
    lines: list[str] = []
    for n, (into, start) in enumerate(parts):
        target = ", ".join(f"i{k} + {low}" for k, (low, _) in enumerate(into))
        source = ", ".join(f"i{k} + {low}" for k, low in enumerate(start))
        inside = "".join(f", i{k} < {high - low}" for k, (low, high) in enumerate(into))
        default = f" default T{n - 1}" if n else ""
        lines.append(f"T{n}[{target} : {', '.join(map(str, shape))}] = =(P{n}[{source}]){inside}{default};")
    return Function(f"function ({', '.join(names)}) -> (T{len(parts) - 1}) {{ {' '.join(lines)} }}", "box.tile")
