"""Buffers of the suite: filled, read back, and with guard bytes around them.

Guards hold 0xFF, which is NaN in every floating type and no ordinary integer: a value that a kernel reads beside its
buffer spoils the result, and whatever it writes there is seen afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tile_ir.dtype import DType
from tile_ir.frozen import frozen

from tile_hal.interfaces import Buffer, Device, Event

Array = npt.NDArray[Any]

GUARD = 64
"""Bytes of a guard."""


def upload(device: Device, array: Array) -> Buffer:
    """A buffer with a copy of `array`."""
    data = np.ascontiguousarray(array)
    buffer = device.memory.allocate(data.nbytes)
    buffer.map_discard()[:] = data.reshape(-1).view(np.uint8).data if data.nbytes else b""
    buffer.unmap().wait()
    return buffer


def download(buffer: Buffer, dtype: DType, dependencies: Sequence[Event] = ()) -> Array:
    """The buffer's contents as a 1-D array."""
    data = bytes(buffer.map_current(dependencies))
    buffer.unmap().wait()
    return np.frombuffer(data, np.uint8).view(dtype.numpy)


@frozen
class Guarded:
    """A buffer that lies inside a larger one."""

    name: str
    buffer: Buffer
    """What the kernel gets, of its exact size."""
    whole: Buffer
    start: int
    nbytes: int

    def harm(self) -> str:
        """What became of the guards, or ""."""
        data = download(self.whole, DType.UINT8)
        sides = {"before": data[: self.start], "behind": data[self.start + self.nbytes :]}
        harmed = {where: np.count_nonzero(side != 0xFF) for where, side in sides.items()}
        return " and ".join(f"{count} bytes {where} {self.name}" for where, count in harmed.items() if count)


def guarded(device: Device, name: str, array: Array) -> Guarded:
    """A buffer with a copy of `array` between guards; without them where the device has no views, or nothing to hold.

    Never one that is merely larger than it has to be: fills and copies are of whole buffers.
    """
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    image = np.full(-(-data.nbytes // GUARD) * GUARD + 2 * GUARD, 0xFF, np.uint8)
    image[GUARD : GUARD + data.nbytes] = data
    whole = upload(device, image) if data.nbytes else None
    view = device.memory.view(whole, GUARD, data.nbytes) if whole is not None else None
    if whole is None or view is None:
        plain = upload(device, data)
        return Guarded(name, plain, plain, 0, data.nbytes)
    return Guarded(name, view, whole, GUARD, data.nbytes)


def check_guards(buffers: Iterable[Guarded]) -> None:
    """Fails when anything was written beside a buffer."""
    harm = [found for buffer in buffers if (found := buffer.harm())]
    if harm:
        pytest.fail(f"the kernel wrote beside its buffers: {', '.join(harm)}", pytrace=False)
