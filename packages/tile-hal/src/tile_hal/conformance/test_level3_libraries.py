"""Level 3, libraries: what `build` gives can be read, and kept where the device says so."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from tile_ir.outline import Outline

from tile_hal.conformance.kernels import kernel_list
from tile_hal.conformance.samples import N, increment
from tile_hal.interfaces import Device, Library

PIECES = 24
"""Bytes of a library that are tried."""


@pytest.mark.compile_only
def test_library_has_source(tile_device: Device) -> None:
    library = tile_device.compiler.build(kernel_list(tile_device, increment()))
    assert isinstance(library.source(), str) and isinstance(library.assembly(), str)


@pytest.mark.compile_only
def test_libraries_survive_serialization(tile_device: Device) -> None:
    kernels = kernel_list(tile_device, increment())
    data = tile_device.compiler.build(kernels).serialize()
    assert (data is not None) == tile_device.capabilities.serializes
    if data is None:
        pytest.skip("device does not serialize")
    _increments(tile_device, tile_device.compiler.deserialize(kernels, data))


def _increments(device: Device, library: Library) -> None:
    """The one kernel of the library adds one to each element."""
    kernel = device.executor.prepare(library, 0)
    if not device.capabilities.executes:
        return
    buffers = [device.memory.allocate(4 * N) for _ in range(2)]
    device.executor.fill(buffers[1]).wait()
    kernel.run(buffers).wait()
    assert np.frombuffer(bytes(buffers[0].map_current()), np.float32).tolist() == [1.0] * N
    buffers[0].unmap().wait()


@pytest.mark.compile_only
def test_libraries_load_without_the_kernels_bodies(tile_device: Device) -> None:
    kernels = kernel_list(tile_device, increment())
    data = tile_device.compiler.build(kernels).serialize() or b""
    if not tile_device.capabilities.loads_outlines:
        with pytest.raises(ValueError):
            tile_device.compiler.load(kernels, data)
        return
    outline = Outline.of(kernels).kernel_list(kernels.target, ())
    assert all(k.function is not None and not k.function.body.body for k in outline.kernels)
    library = tile_device.compiler.load(outline, data)
    assert isinstance(library.source(), str) and isinstance(library.assembly(), str)
    _increments(tile_device, library)


@pytest.mark.compile_only
def test_a_library_with_a_byte_of_another_is_refused_or_right(tile_device: Device) -> None:
    """Wherever the two differ, so that code is among it; who keeps files may meet damaged ones."""
    kernels, others = (kernel_list(tile_device, f) for f in (increment(), increment(3.5)))
    data, other = (tile_device.compiler.build(k).serialize() for k in (kernels, others))
    if data is None or other is None:
        pytest.skip("device does not serialize")
    differing = [at for at, (a, b) in enumerate(zip(data, other, strict=False)) if a != b]
    for at in differing[:: max(1, len(differing) // PIECES)]:
        with suppress(ValueError):
            spliced = data[:at] + other[at : at + 1] + data[at + 1 :]
            _increments(tile_device, tile_device.compiler.deserialize(kernels, spliced))


@pytest.mark.compile_only
@pytest.mark.parametrize("data", [b"", b"\x00" * 100, b"not a library"], ids=["empty", "zeros", "text"])
def test_foreign_bytes_are_refused(tile_device: Device, data: bytes) -> None:
    kernels = kernel_list(tile_device, increment())
    with pytest.raises(ValueError):
        tile_device.compiler.deserialize(kernels, data)
    if tile_device.capabilities.loads_outlines:
        with pytest.raises(ValueError):
            tile_device.compiler.load(Outline.of(kernels).kernel_list(kernels.target, ()), data)
