"""Discovery: order, laziness, and the failure rules of a plugin that misbehaves."""

from __future__ import annotations

import subprocess
import sys
import threading
import warnings
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import tile_hal
from tile_hal.discovery import PluginStatus, Registry, TilePluginWarning
from tile_hal.host import HostDevice
from tile_ir.diagnostics import TileDeviceError
from tile_ir.settings import Settings


class FakeSet(tile_hal.DeviceSet):
    def __init__(self, devices):
        self._devices = devices

    @property
    def devices(self):
        return self._devices


def fake_device(id):
    like = tile_hal.device("interp")
    return HostDevice(id, "a fake", like.target, like.capabilities, like.compiler, like.executor)


class FakeDriver(tile_hal.Driver):
    def __init__(self, name, count=1, api=tile_hal.HAL_API, error=None, priority=0):
        self.name, self.api, self.priority = name, api, priority
        self.count, self.error, self.probes = count, error, 0

    def device_sets(self):
        self.probes += 1
        if self.error:
            raise self.error
        return [FakeSet([fake_device(f"{self.name}:{i}") for i in range(self.count)])]

    def doctor(self):
        return [f"{self.name} is well"]


def plugin(driver):
    @tile_hal.hookimpl
    def tile_hal_driver():
        if isinstance(driver, Exception):
            raise driver
        return driver

    return SimpleNamespace(tile_hal_driver=tile_hal_driver)


@dataclass
class FakePoint:
    name: str
    target: object
    distribution: str
    value: str = "fake.module"

    @property
    def dist(self):
        return SimpleNamespace(metadata={"Name": self.distribution, "Version": "9.9"})

    def load(self):
        if isinstance(self.target, BaseException):
            raise self.target
        return self.target


def point(name, driver, distribution=None):
    return FakePoint(name, plugin(driver), distribution or f"dist-{name}")


def quiet(registry, call):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TilePluginWarning)
        return call(registry)


def test_devices_are_sorted_by_entry_point_and_probed_once():
    a, b = FakeDriver("aa", 2), FakeDriver("bb")
    registry = Registry(lambda: [point("z", b), point("a", a)])
    assert [d.id for d in registry.devices()] == ["aa:0", "aa:1", "bb:0"]
    registry.devices()
    assert (a.probes, b.probes) == (1, 1)
    assert registry.device("aa") is registry.devices()[0]
    assert registry.device("aa:1").id == "aa:1"


def test_asking_for_one_driver_probes_no_other():
    a, b = FakeDriver("aa"), FakeDriver("bb")
    registry = Registry(lambda: [point("a", a), point("b", b)])
    registry.device("aa")
    assert (a.probes, b.probes) == (1, 0)


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (FakePoint("bad", ImportError("no libfoo"), "bad-dist"), "no libfoo"),
        (FakePoint("bad", SystemExit("leaving"), "bad-dist"), "leaving"),
        (point("bad", RuntimeError("hook broke"), "bad-dist"), "hook broke"),
        (FakePoint("bad", SimpleNamespace(), "bad-dist"), "implements no hook"),
        (point("bad", 42, "bad-dist"), "must return a tile_hal.Driver"),
        (point("bad", FakeDriver("Not A Name"), "bad-dist"), "lower-case identifier"),
        (point("bad", FakeDriver("odd", api="1.0"), "bad-dist"), "pair of integers"),
        (point("bad", FakeDriver("odd", api=None), "bad-dist"), "TypeError"),
    ],
)
def test_a_broken_plugin_is_one_warning_naming_its_distribution(bad, text):
    registry = Registry(lambda: [bad, point("good", FakeDriver("good"))])
    with pytest.warns(TilePluginWarning) as caught:
        assert [d.id for d in registry.devices()] == ["good:0"]
        registry.devices()
    assert len(caught) == 1
    assert "bad-dist" in str(caught[0].message)
    assert text in str(caught[0].message)
    report = registry.plugins()[0]
    assert report.status is PluginStatus.BROKEN
    assert registry.doctor()[0].lines == (report.message,)


def test_a_hook_with_a_wrong_signature_is_a_broken_plugin():
    @tile_hal.hookimpl
    def tile_hal_driver(surprise):
        return FakeDriver("x")

    bad = FakePoint("bad", SimpleNamespace(tile_hal_driver=tile_hal_driver), "bad-dist")
    registry = Registry(lambda: [bad, point("good", FakeDriver("good"))])
    assert [d.id for d in quiet(registry, lambda r: r.devices())] == ["good:0"]
    assert registry.plugins()[0].status is PluginStatus.BROKEN


@pytest.mark.parametrize(
    ("api", "upgrade"), [((0, 9), "upgrade old-dist"), ((2, 0), "upgrade tile-hal"), ((1, 99), "upgrade tile-hal")]
)
def test_an_incompatible_plugin_says_what_to_upgrade(api, upgrade):
    registry = Registry(lambda: [point("odd", FakeDriver("odd", api=api), "old-dist"), point("ok", FakeDriver("ok"))])
    with pytest.warns(TilePluginWarning, match=upgrade):
        assert [d.id for d in registry.devices()] == ["ok:0"]
    assert registry.plugins()[0].status is PluginStatus.INCOMPATIBLE
    with pytest.raises(TileDeviceError, match=upgrade):
        registry.device("odd")


def test_two_plugins_with_one_name_are_an_error_naming_both():
    points = [point("a", FakeDriver("dup"), "dist-one"), point("b", FakeDriver("dup"), "dist-two")]
    registry = Registry(lambda: [*points, point("c", FakeDriver("fine"))])
    with pytest.warns(TilePluginWarning, match=r"dist-one.*dist-two") as caught:
        assert [d.id for d in registry.devices()] == ["fine:0"]
    assert len(caught) == 1
    for call in (registry.device, registry.devices):
        with pytest.raises(TileDeviceError, match=r"dist-one.*dist-two"):
            call("dup")
    assert registry.device("fine").id == "fine:0"
    assert [p.status for p in registry.plugins()] == [PluginStatus.DUPLICATE] * 2 + [PluginStatus.OK]


def test_failing_probe_is_one_warning_and_the_reason_of_the_later_error():
    registry = Registry(
        lambda: [point("a", FakeDriver("hw", error=OSError("no ICD")), "d"), point("b", FakeDriver("ok"))]
    )
    with pytest.warns(TilePluginWarning, match="no ICD") as caught:
        assert [d.id for d in registry.devices()] == ["ok:0"]
    assert len(caught) == 1
    with pytest.raises(TileDeviceError, match=r"there is no device 'hw'.*ok:0.*no ICD"):
        registry.device("hw")


@pytest.mark.filterwarnings("ignore::tile_hal.TilePluginWarning")
@pytest.mark.parametrize("given", ["x" * 100_000, "x:" * 50_000, "ok:" + "1" * 100_000])
def test_long_names_are_not_repeated_in_full(given: str) -> None:
    registry = Registry(lambda: [point("ok", FakeDriver("ok"))])
    with pytest.raises(
        TileDeviceError, match=f"there is no device '{given[:70]}.*…'; the devices here are ok:0"
    ) as error:
        registry.device(given)
    assert len(str(error.value)) < 500


@pytest.mark.parametrize(
    ("given", "hint"),
    [("INTERP", "did you mean 'interp'"), ("nope", "`tile devices`"), (" null ", "did you mean 'null'")],
)
def test_device_hints_are_about_close_names_only(given, hint):
    with pytest.raises(TileDeviceError, match=hint):
        tile_hal.device(given)


def test_unknown_device_lists_what_exists_and_hints():
    registry = Registry(lambda: [point("a", FakeDriver("llvm", 2))])
    with pytest.raises(TileDeviceError, match=r"(?s)'llvn:1'.*llvm:0, llvm:1.*did you mean 'llvm:1'"):
        registry.device("llvn:1")
    with pytest.raises(TileDeviceError, match="'opencl' devices come from a backend package"):
        registry.device("opencl:0")
    with pytest.raises(TileDeviceError, match="has no such device"):
        registry.device("llvm:7")


def test_default_device_follows_priorities_and_the_settings():
    priorities = {"null": None, "interp": -10, "other": 0, "beside": 0, "cpu": 10}
    points = [point(n, FakeDriver(n, priority=p)) for n, p in priorities.items()]
    none = Settings()
    assert Registry(lambda: points).default_device(none).id == "cpu:0"
    assert Registry(lambda: points[:4]).default_device(none).id == "beside:0", "names decide between equals"
    assert Registry(lambda: points[:2]).default_device(none).id == "interp:0"
    assert Registry(lambda: points).default_device(Settings(device="null")).id == "null:0"
    empty = [point("cpu", FakeDriver("cpu", 0, priority=10)), *points[:2]]
    assert Registry(lambda: empty).default_device(none).id == "interp:0"
    with pytest.raises(TileDeviceError, match="no device is installed"):
        Registry(lambda: points[:1]).default_device(none)


def test_register_adds_a_plugin_and_refuses_a_broken_one():
    registry = Registry(list)
    registry.register(plugin(FakeDriver("mine")), "mine", "here")
    assert registry.device("mine").id == "mine:0"
    with pytest.raises(TileDeviceError, match="implements no hook"):
        registry.register(SimpleNamespace(), "bad", "here")


def test_concurrent_first_use_probes_once():
    driver = FakeDriver("aa")
    registry = Registry(lambda: [point("a", driver)])
    threads = [threading.Thread(target=registry.devices) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert driver.probes == 1


def test_builtin_devices_are_installed():
    ids = [d.id for d in tile_hal.devices("interp")] + [d.id for d in tile_hal.devices("null")]
    assert ids == ["interp:0", "null:0"]
    assert {"interp", "null"} <= {p.driver for p in tile_hal.plugins()}
    assert tile_hal.device(tile_hal.device("interp")).id == "interp:0"
    assert all(report.lines for report in tile_hal.doctor() if report.plugin.driver in ("interp", "null"))


def test_import_is_cheap():
    code = "import sys, tile_hal; print([m for m in ('numpy', 'pluggy', 'tile_ir', 'lark') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
