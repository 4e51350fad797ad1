"""Buffers with guard bytes around them: a kernel that writes or reads beside its buffer is found out.

The guards hold 0xFF, which is NaN in every floating type and no ordinary integer: a value read there spoils the result,
and whatever is written there is seen afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tile_hal.interfaces import Buffer, Device

GUARD = 64
"""Bytes of a guard."""


@dataclass(frozen=True, slots=True)
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
        data = np.frombuffer(bytes(self.whole.map_current()), np.uint8)
        self.whole.unmap().wait()
        sides = {"before": data[: self.start], "behind": data[self.start + self.nbytes :]}
        found = [
            f"{np.count_nonzero(side != 0xFF)} bytes {where} {self.name}"
            for where, side in sides.items()
            if (side != 0xFF).any()
        ]
        return " and ".join(found)


def guarded(device: Device, name: str, array: npt.NDArray[Any]) -> Guarded:
    """A buffer with a copy of `array` between guards; without them where the device has no views, or nothing to hold.

    Never one that is merely larger than it has to be: fills and copies are of whole buffers.
    """
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    room = -(-data.nbytes // GUARD) * GUARD + 2 * GUARD
    whole = device.memory.allocate(room) if data.nbytes else None
    view = device.memory.view(whole, GUARD, data.nbytes) if whole is not None else None
    if whole is None or view is None:
        plain = device.memory.allocate(data.nbytes)
        _write(plain, data)
        return Guarded(name, plain, plain, 0, data.nbytes)
    image = np.full(room, 0xFF, np.uint8)
    image[GUARD : GUARD + data.nbytes] = data
    _write(whole, image)
    return Guarded(name, view, whole, GUARD, data.nbytes)


def _write(buffer: Buffer, data: npt.NDArray[np.uint8]) -> None:
    buffer.map_discard()[:] = data.data if data.nbytes else b""
    buffer.unmap().wait()


def check_guards(buffers: Iterable[Guarded]) -> None:
    """Fails when anything was written beside a buffer."""
    harm = [found for buffer in buffers if (found := buffer.harm())]
    if harm:
        pytest.fail(f"the kernel wrote beside its buffers: {', '.join(harm)}", pytrace=False)
