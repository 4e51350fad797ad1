"""What a program's results are, and how a call makes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from tile_hal.host import HostMemory
from tile_hal.interfaces import Device, Memory
from tile_hal.recycling import LARGE
from tile_ir.frozen import frozen
from tile_ir.kernels import BufferInfo

from tile_runtime.arrays import Array
from tile_runtime.tensor import host_view, result


@frozen
class Result:
    """One output: its place among the bindings, and what NumPy makes of it."""

    place: int
    info: BufferInfo
    dtype: np.dtype[Any]
    size: int


def maker(results: Sequence[Result], memory: Memory) -> Callable[[], Any]:
    """Makes the array for one result, or a tuple of several, where the device works on the host's memory; it recycles large ones."""

    def one(wanted: Result) -> Callable[[], Array]:
        info = wanted.info
        if info.bytes < LARGE:
            return partial(np.empty, info.shape, wanted.dtype)
        if type(memory) is HostMemory:  # nobody's allocator that counts or refuses
            return partial(memory.array, info.shape, wanted.dtype, info.bytes)
        return lambda: host_view(memory.allocate(info.bytes).map_discard(), info.dtype, info.shape)

    makers = [one(r) for r in results]
    return makers[0] if len(makers) == 1 else lambda: tuple([make() for make in makers])


def wrapper(results: Sequence[Result], device: Device) -> Callable[[Any], Any]:
    """Makes a Tensor over what a `maker` made, or a tuple of them."""
    wraps = [partial(result, device, r.info.dtype, r.info.shape) for r in results]
    if len(wraps) == 1:
        return wraps[0]
    return lambda arrays: tuple([wrap(array) for wrap, array in zip(wraps, arrays, strict=True)])
