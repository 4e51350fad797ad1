"""Level 0: the plugin loads and says plausible things of its devices. Nothing runs."""

from __future__ import annotations

import dataclasses

import pytest
from tile_ir.dtype import DType
from tile_ir.kernels import KernelList
from tile_ir.semtree.verify import OPTIONAL_NODES
from tile_ir.target import Target

import tile_hal
from tile_hal.interfaces import Device


@pytest.mark.compile_only
def test_plugin_is_reported_as_working(tile_device: Device) -> None:
    driver, _, number = tile_device.id.partition(":")
    assert number.isdigit(), "a device id is <driver>:<number>"
    report = next(p for p in tile_hal.plugins() if p.driver == driver)
    assert report.status is tile_hal.PluginStatus.OK
    assert report.api is not None and report.api[0] == tile_hal.HAL_API[0]


def test_device_is_found_by_id_and_keeps_its_identity(tile_device: Device) -> None:
    assert tile_hal.device(tile_device.id) is tile_device
    siblings = tile_hal.devices(tile_device.id.partition(":")[0])
    assert [d.id.partition(":")[2] for d in siblings] == [str(n) for n in range(len(siblings))]
    assert tile_device.name.strip()


def test_target_is_a_document(tile_device: Device) -> None:
    target = tile_device.target
    assert Target.from_json(target.to_json()) == target
    assert target.codegen in ("semtree", "stripe")
    settings = target.settings
    positive = (settings.threads, settings.vec_size, settings.mem_width, settings.registers, settings.vector_bytes)
    assert min(positive) >= 1
    assert settings.index_bits in (32, 64)


def test_capabilities_are_frozen_and_plausible(tile_device: Device) -> None:
    able = tile_device.capabilities
    with pytest.raises(dataclasses.FrozenInstanceError):
        able.subgroup = 7  # type: ignore[misc]
    assert {DType.BOOL, DType.INT32, DType.FLOAT32} <= able.dtypes, "bool, int32 and float32 are not optional"
    assert able.nodes <= OPTIONAL_NODES, f"unknown optional nodes: {sorted(able.nodes - OPTIONAL_NODES)}"
    assert tile_device.target.nodes <= able.nodes, "the target promises nodes that the device lacks"
    assert able.max_group_size >= 1 and able.subgroup >= 1 and able.local_bytes >= 0
    assert tile_device.target.settings.threads <= able.max_group_size
    assert all(reason.strip() for reason in able.quirks.values()), "every quirk needs a reason"


def test_fingerprint_is_stable(tile_device: Device) -> None:
    fingerprint = tile_device.compiler.fingerprint
    assert fingerprint and fingerprint == tile_device.compiler.fingerprint


def test_an_empty_kernel_list_builds(tile_device: Device) -> None:
    library = tile_device.compiler.build(KernelList((), (), (), tile_device.target))
    assert isinstance(library.source(), str)
    assert isinstance(library.assembly(), str)


def test_driver_has_a_doctor(tile_device: Device) -> None:
    driver = tile_hal.drivers()[tile_device.id.partition(":")[0]]
    assert all(isinstance(line, str) for line in driver.doctor())
