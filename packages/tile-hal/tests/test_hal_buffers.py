"""Buffers of host memory."""

from __future__ import annotations

import numpy as np
import pytest
from python_device import PyExecutor
from tile_hal import submission
from tile_hal.events import COMPLETED
from tile_hal.host import ALIGNMENT, HostMemory
from tile_hal.recycling import LARGE
from tile_ir.diagnostics import TileDeviceError


def test_large_constants_are_read_where_they_are() -> None:
    memory, size = HostMemory(), LARGE // 4
    data = np.arange(size, dtype=np.float32)
    data.flags.writeable = False
    large, small = (submission._placed(memory, memoryview(part).cast("B"), 4) for part in (data, data[:4]))
    assert np.shares_memory(np.frombuffer(large.map_current(), np.float32), data)
    assert not np.shares_memory(np.frombuffer(small.map_current(), np.float32), data)
    np.testing.assert_array_equal(np.frombuffer(small.map_current(), np.float32), data[:4])


@pytest.mark.parametrize("nbytes", [0, 1, 63, 64, 4096])
def test_allocations_are_aligned_and_writable(nbytes):
    buffer = HostMemory().allocate(nbytes)
    assert buffer.address % ALIGNMENT == 0
    assert buffer.nbytes == nbytes == len(buffer.map_discard())
    buffer.map_discard()[:] = bytes(nbytes)
    assert bytes(buffer.map_current([COMPLETED])) == bytes(nbytes)
    assert buffer.unmap().done


def test_wrap_is_zero_copy_and_keeps_its_owner():
    array = np.arange(6, dtype=np.float64)
    buffer = HostMemory().wrap(memoryview(array).cast("B"))
    array[0] = 9
    assert buffer.as_array(np.float64)[0] == 9
    assert not buffer.readonly
    assert HostMemory().wrap(memoryview(np.zeros((3, 0)))).nbytes == 0
    assert HostMemory().wrap(memoryview(array[::2])) is None


def test_wrap_of_read_only_memory_cannot_be_written():
    buffer = HostMemory().wrap(memoryview(b"12345678"))
    assert bytes(buffer.map_current()) == b"12345678"
    with pytest.raises(TileDeviceError, match="read-only"):
        buffer.map_discard()
    executor = PyExecutor()
    with pytest.raises(TileDeviceError, match="read-only"):
        executor.fill(buffer)


def test_unaligned_memory_is_not_wrapped():
    raw = np.zeros(33, np.uint8)
    start = 1 + (-raw.ctypes.data) % 16
    assert HostMemory().wrap(memoryview(raw[start : start + 16].view(np.float32))) is None


def test_views_share_bytes_and_check_their_range():
    memory = HostMemory()
    base = memory.allocate(256)
    base.map_discard()[:] = bytes(256)
    memory.view(base, 64, 4).map_discard()[:] = b"abcd"
    assert bytes(base.map_current()[64:68]) == b"abcd"
    with pytest.raises(TileDeviceError, match="outside"):
        memory.view(base, 192, 65)


@pytest.mark.parametrize("nbytes", [-1, 1 << 62])
def test_impossible_allocations_are_device_errors(nbytes):
    with pytest.raises(TileDeviceError, match=r"allocate|memory is out"):
        HostMemory().allocate(nbytes)
