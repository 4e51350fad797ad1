"""Tensors on devices with memory of their own go there and back through pinned memory; the device here is told that it has some."""

from __future__ import annotations

import numpy as np
import pytest
import tile_runtime as tile
from hal_opencl import context, memory
from tile_hal.interfaces import Device


def opencl() -> list[Device]:
    return [d for d in tile.devices() if d.id.startswith("opencl") and d.capabilities.executes]


@pytest.mark.parametrize("opencl_device", opencl()[:1], ids=lambda d: d.id)
def test_large_tensors_are_staged_where_the_device_has_its_own_memory(
    opencl_device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context.DeviceContext, "shares_host_memory", False)
    monkeypatch.setattr(memory, "STAGED", 1 << 12)
    data = np.random.default_rng(0).normal(size=(67, 81)).astype(np.float32)
    tensor = tile.asarray(data, opencl_device)
    np.testing.assert_array_equal(tensor.numpy(), data)
    double = tile.Function("function (X) -> (Y) { Y = X + X; }")
    np.testing.assert_array_equal(double(data, device=opencl_device), data * 2)
    np.testing.assert_array_equal(double(tensor).numpy(), data * 2)
