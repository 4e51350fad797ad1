"""Large copies through pinned memory: the device here has none of its own, so they are asked for by themselves."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hal_opencl import binding
from hal_opencl.driver import OpenCLDevice
from hal_opencl.staging import Staging
from tile_hal.interfaces import Device
from tile_ir.diagnostics import TileDeviceError


@pytest.fixture
def staging(device: Device) -> Staging:
    assert isinstance(device, OpenCLDevice)
    return Staging(device._context, small=1000, large=3000, threads=2)  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("size", [1, 999, 1000, 1001, 5_999, 12_345])
def test_what_goes_there_comes_back(device: Device, staging: Staging, size: int) -> None:
    """Pieces that are full, and a last one that is not, small ones and large ones; nothing beyond them is touched."""
    buffer: Any = device.memory.allocate(size + 8)
    buffer.map_discard()[:] = bytes(size + 8)
    buffer.unmap().wait()
    data = np.random.default_rng(size).integers(1, 256, size, dtype=np.uint8)
    staging.write(buffer.raw, data)
    assert bytes(buffer.map_current()) == data.tobytes() + bytes(8)
    buffer.unmap().wait()
    found = np.zeros(size + 8, np.uint8)
    staging.read(buffer.raw, found[:size])
    assert (found[:size] == data).all() and not found[size:].any()


def test_what_is_made_ready_has_pages_and_none_beyond(staging: Staging) -> None:
    """A byte of each page is written, whatever the size; the bytes behind are others'."""
    whole = np.ones(2_000_003 + 5000, np.uint8)
    staging.prepare(whole[:2_000_003])
    assert not whole[:2_000_003:3000].any() and whole[2_000_003:].all()


def test_threads_share_the_pieces(device: Device, staging: Staging) -> None:
    buffers: list[Any] = [device.memory.allocate(20_000) for _ in range(4)]
    found = [np.zeros(20_000, np.uint8) for _ in buffers]

    def there_and_back(n: int) -> None:
        staging.write(buffers[n].raw, np.full(20_000, n + 1, np.uint8))
        staging.read(buffers[n].raw, found[n])

    threads = [threading.Thread(target=there_and_back, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((array == n + 1).all() for n, array in enumerate(found))


def test_what_fails_is_a_devices_error_once_nothing_is_on_its_way(
    device: Device, staging: Staging, monkeypatch: pytest.MonkeyPatch
) -> None:
    over: list[int] = []

    def write(queue: Any, raw: Any, start: int, data: Any) -> None:
        over.append(start)
        if start == 1000:
            raise binding.cl_error("write", -36)  # CL_INVALID_COMMAND_QUEUE

    buffer: Any = device.memory.allocate(4000)
    monkeypatch.setattr(binding, "write", write)
    with pytest.raises(TileDeviceError):
        staging.write(buffer.raw, np.zeros(4000, np.uint8))
    assert sorted(over) == [0, 1000, 2000, 3000]
