"""Level 1: allocation and mapping."""

from __future__ import annotations

import numpy as np
import pytest
from tile_ir.diagnostics import TileDeviceError

from tile_hal.interfaces import Device

SIZES = (0, 1, 3, 63, 64, 65, 4096, 1_000_003)


@pytest.mark.parametrize("size", SIZES)
def test_what_is_written_is_read(tile_device: Device, size: int) -> None:
    buffer = tile_device.memory.allocate(size)
    assert buffer.nbytes == size
    pattern = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8).tobytes()
    view = buffer.map_discard()
    assert view.nbytes == size and not view.readonly
    view[:] = pattern
    buffer.unmap().wait()
    assert bytes(buffer.map_current()) == pattern
    buffer.unmap().wait()


@pytest.mark.parametrize("size", SIZES)
def test_what_is_transferred_is_what_a_mapping_shows(tile_device: Device, size: int) -> None:
    memory = tile_device.memory
    buffer, data = memory.allocate(size), np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    memory.write(buffer, data.data).wait()
    assert bytes(buffer.map_current()) == data.tobytes()
    buffer.unmap().wait()
    found = np.zeros_like(data)
    memory.read(buffer, found.data)
    assert (found == data).all()


def test_map_current_is_writable_and_keeps_the_rest(tile_device: Device) -> None:
    buffer = tile_device.memory.allocate(100)
    buffer.map_discard()[:] = bytes(range(100))
    buffer.unmap().wait()
    buffer.map_current()[10:12] = b"\xff\xff"
    buffer.unmap().wait()
    expected = bytearray(range(100))
    expected[10:12] = b"\xff\xff"
    assert bytes(buffer.map_current()) == bytes(expected)
    buffer.unmap().wait()


def test_buffers_do_not_share_bytes(tile_device: Device) -> None:
    buffers = [tile_device.memory.allocate(256) for _ in range(20)]
    for n, buffer in enumerate(buffers):
        buffer.map_discard()[:] = bytes([n]) * 256
        buffer.unmap().wait()
    for n, buffer in enumerate(buffers):
        assert bytes(buffer.map_current()) == bytes([n]) * 256
        buffer.unmap().wait()


def test_two_buffers_may_be_mapped_at_once(tile_device: Device) -> None:
    first, second = tile_device.memory.allocate(8), tile_device.memory.allocate(8)
    first.map_discard()[:] = b"12345678"
    second.map_discard()[:] = b"abcdefgh"
    second.unmap().wait()
    first.unmap().wait()
    one, two = first.map_current(), second.map_current()
    assert bytes(one) + bytes(two) == b"12345678abcdefgh"
    first.unmap().wait()
    second.unmap().wait()


def test_wrapped_memory_is_used_in_place(tile_device: Device) -> None:
    data = np.arange(1024, dtype=np.float32)
    buffer = tile_device.memory.wrap(data.data.cast("B"))
    if buffer is None:
        pytest.skip("device does not use host memory in place")
    assert buffer.nbytes == data.nbytes
    buffer.map_current()[:4] = np.float32(7).tobytes()
    buffer.unmap().wait()
    assert data[0] == 7


def test_wrap_refuses_or_takes_any_view(tile_device: Device) -> None:
    data = np.arange(64, dtype=np.float32)
    for view in (data[::2], data[:0], data.reshape(8, 8).T):
        buffer = tile_device.memory.wrap(view.data)
        if buffer is not None:
            assert bytes(buffer.map_current()) == view.tobytes()
            buffer.unmap().wait()


def test_views_share_the_bytes_of_their_buffer(tile_device: Device) -> None:
    memory = tile_device.memory
    base = memory.allocate(4096)
    base.map_discard()[:] = bytes(4096)
    base.unmap().wait()
    view = memory.view(base, 1024, 100)
    if view is None:
        pytest.skip("device has no views of buffers")
    assert view.nbytes == 100
    view.map_discard()[:] = b"x" * 100
    view.unmap().wait()
    assert bytes(base.map_current()[1020:1128]) == bytes(4) + b"x" * 100 + bytes(4)
    base.unmap().wait()


def test_size_goal_is_plausible(tile_device: Device) -> None:
    assert tile_device.memory.size_goal >= 1 << 20


@pytest.mark.parametrize("size", [-1, 1 << 60])
def test_impossible_sizes_are_device_errors(tile_device: Device, size: int) -> None:
    with pytest.raises(TileDeviceError):
        tile_device.memory.allocate(size)
    assert tile_device.memory.allocate(16).nbytes == 16


def test_many_buffers_come_and_go(tile_device: Device) -> None:
    for _ in range(200):
        tile_device.memory.allocate(1 << 20)
