"""Discovery of plugins and devices, and what happens when one fails.

A broken plugin is one warning that names its distribution and never hides the others; a plugin for another
HAL API is a message that says what to upgrade; two plugins with one driver name are an error when that name
is asked for. Nothing is imported before drivers are first asked for, no hardware is probed before its
driver's devices are, and each is done once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import Enum
from types import ModuleType
from typing import Any, Protocol, cast

from tile_ir import forking
from tile_ir.diagnostics import TileDeviceError
from tile_ir.settings import Settings

from tile_hal.errors import Code, device_error
from tile_hal.interfaces import HAL_API, Device, Driver

GROUP = "tile_hal"
"""Entry point group of plugins."""


class TilePluginWarning(UserWarning):
    """A plugin or its hardware was left out; the others work."""


class PluginStatus(Enum):
    OK = "ok"
    BROKEN = "broken"
    """It did not import, its hook raised, or the hook gave no driver."""
    INCOMPATIBLE = "incompatible"
    """It was built for another HAL API."""
    DUPLICATE = "duplicate"
    """Another plugin has the same driver name."""


@dataclass(frozen=True, slots=True)
class PluginReport:
    """One line of `tile plugins`."""

    entry_point: str
    distribution: str
    version: str
    module: str
    status: PluginStatus
    driver: str | None = None
    """Prefix of its device ids, once known."""
    api: tuple[int, int] | None = None
    message: str = ""
    """What is wrong and which package to upgrade; "" for a plugin that works."""


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """What one plugin says of its hardware: what is there, what is missing, which command installs it."""

    plugin: PluginReport
    lines: tuple[str, ...]
    devices: tuple[str, ...]
    """Ids of the devices it has now."""


class Distribution(Protocol):
    """The two facts of `importlib.metadata.Distribution` that messages name."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...


class EntryPoint(Protocol):
    """The part of `importlib.metadata.EntryPoint` that discovery uses; tests bring their own."""

    @property
    def name(self) -> str: ...
    @property
    def value(self) -> str: ...
    @property
    def dist(self) -> Distribution | None: ...
    def load(self) -> Any: ...


@dataclass(slots=True)
class _Plugin:
    report: PluginReport
    driver: Driver | None = None
    devices: tuple[Device, ...] | None = None
    """None until probed."""
    problem: str = ""
    """Why probing failed."""


class Registry:
    """Drivers and devices of a set of entry points; thread-safe, everything is done once and on demand."""

    def __init__(self, entry_points: Callable[[], Iterable[EntryPoint]]) -> None:
        self._entry_points = entry_points
        self._lock = forking.rlock()
        self._plugins: list[_Plugin] | None = None
        self._modules: list[str] = []
        """Those of plugins that no entry point names."""
        self._isolated: dict[str, tuple[Device, ...]] = {}
        """Devices by driver, in workers although the settings do not ask for it."""

    # --- plugins ---

    def plugins(self) -> tuple[PluginReport, ...]:
        return tuple(plugin.report for plugin in self._loaded())

    def register(self, plugin: object, name: str, distribution: str) -> PluginReport:
        """Add a plugin object that no entry point names; TileDeviceError when it does not work."""
        with self._lock:
            self._loaded()
            unnamed = PluginReport(name, distribution, "", getattr(plugin, "__name__", repr(plugin)), PluginStatus.OK)
            added = _examine(unnamed, lambda: plugin)
            if added.report.status is not PluginStatus.OK:
                raise device_error(Code.NO_DEVICE, added.report.message)
            self._plugins = _mark_duplicates([*(self._plugins or ()), added])
            if isinstance(plugin, ModuleType):
                self._modules.append(plugin.__name__)
            return self._plugins[-1].report

    def _loaded(self) -> list[_Plugin]:
        with self._lock:
            if self._plugins is None:
                points = sorted(self._entry_points(), key=lambda p: (p.name, _distribution(p)[0], p.value))
                self._plugins = _mark_duplicates([_load(point) for point in points])
                for message in dict.fromkeys(p.report.message for p in self._plugins if p.report.message):
                    warnings.warn(message, TilePluginWarning, stacklevel=4)
            return self._plugins

    # --- drivers ---

    def drivers(self) -> dict[str, Driver]:
        """Usable drivers by name."""
        return {p.driver.name: p.driver for p in self._loaded() if p.driver and p.report.status is PluginStatus.OK}

    def _plugin(self, name: str) -> _Plugin | None:
        """The plugin of a driver; the error that names both distributions when two have that name."""
        found = [p for p in self._loaded() if p.report.driver == name]
        if len(found) > 1 and found[0].report.status is PluginStatus.DUPLICATE:
            raise device_error(
                Code.DUPLICATE_DRIVER,
                found[0].report.message,
                f"uninstall one of them: pip uninstall {found[0].report.distribution}",
            )
        return found[0] if found else None

    # --- devices ---

    def devices(self, driver: str | None = None) -> tuple[Device, ...]:
        """All devices, or those of one driver (errors of that driver are then raised)."""
        if driver is not None:
            plugin = self._plugin(driver)
            if plugin is None or plugin.driver is None:
                raise self._unknown(driver, plugin)
            return self._probe(plugin)
        return tuple(d for p in self._loaded() if p.report.status is PluginStatus.OK for d in self._probe(p))

    def _probe(self, plugin: _Plugin) -> tuple[Device, ...]:
        with self._lock:
            if plugin.devices is None:
                # A malformed setting is the user's to know, not the driver's to fail on.
                isolate = Settings.from_environment().isolate
                assert plugin.driver is not None
                if plugin.driver.name in isolate or "all" in isolate:
                    plugin.driver = self._in_workers(plugin)
                try:
                    plugin.devices = tuple(d for group in plugin.driver.device_sets() for d in group.devices)
                except Exception as problem:
                    plugin.devices = ()
                    plugin.problem = (
                        f"{plugin.report.distribution}: driver {plugin.driver.name!r} failed to probe its devices: "
                        f"{type(problem).__name__}: {problem}"
                    )
                    warnings.warn(plugin.problem, TilePluginWarning, stacklevel=4)
            return plugin.devices

    def _in_workers(self, plugin: _Plugin) -> Driver:
        """A plugin's driver, run in worker processes."""
        from tile_hal.isolation.device import IsolatedDriver

        assert plugin.driver is not None
        return IsolatedDriver(plugin.driver, self._modules)

    def isolated(self, device: Device) -> Device:
        """The same device in a worker process, always the same one; TileDeviceError when it cannot be had there."""
        if device.isolated:
            return device
        name = device.id.partition(":")[0]
        plugin = self._plugin(name)
        with self._lock:
            if name not in self._isolated and plugin is not None and plugin.driver is not None:
                groups = self._in_workers(plugin).device_sets()
                self._isolated[name] = tuple(d for group in groups for d in group.devices)
        for found in self._isolated.get(name, ()):
            if found.id == device.id:
                return found
        raise device_error(Code.UNKNOWN_DEVICE, f"device {device.id!r} is not found by a worker process")

    def device(self, id: str) -> Device:
        """The device called `id`; a driver's name alone means its number 0."""
        name, _, number = id.partition(":")
        plugin = self._plugin(name)
        wanted = f"{name}:{number or 0}"
        if plugin is not None and plugin.report.status is PluginStatus.OK:
            for device in self._probe(plugin):
                if device.id == wanted:
                    return device
        raise self._unknown(id, plugin)

    def default_device(self, settings: Settings) -> Device:
        """TILE_DEVICE, else the first device of the driver with the highest priority that has one."""
        if settings.device:
            return self.device(settings.device)
        ranked = [(-driver.priority, name) for name, driver in self.drivers().items() if driver.priority is not None]
        for _, name in sorted(ranked):
            if found := self.devices(name):
                return found[0]
        raise device_error(
            Code.NO_DEVICE, "no device is installed", "install a backend package, such as this machine's CPU"
        )

    def _unknown(self, id: str, plugin: _Plugin | None) -> TileDeviceError:
        name = id.partition(":")[0]
        reason = ""
        if plugin is not None:
            reason = plugin.report.message or plugin.problem or f"driver {name!r} has no such device"
        known = [d.id for d in self.devices()]
        message = f"there is no device {id!r}; the devices here are {', '.join(known) or 'none'}"
        return device_error(Code.UNKNOWN_DEVICE, f"{message} ({reason})" if reason else message, _hint(id, name, known))

    def doctor(self) -> tuple[DoctorReport, ...]:
        return tuple(self._examine(plugin) for plugin in self._loaded())

    def _examine(self, plugin: _Plugin) -> DoctorReport:
        if plugin.driver is None or plugin.report.status is not PluginStatus.OK:
            return DoctorReport(plugin.report, (plugin.report.message,), ())
        found = tuple(d.id for d in self._probe(plugin))
        try:
            lines = tuple(plugin.driver.doctor())
        except Exception as problem:
            lines = (f"the driver's own check failed: {type(problem).__name__}: {problem}",)
        return DoctorReport(plugin.report, (*([plugin.problem] if plugin.problem else ()), *lines), found)


def _hint(id: str, name: str, known: Sequence[str]) -> str:
    drivers = {k.partition(":")[0] for k in known}
    close = get_close_matches(id.strip().lower(), [*known, *sorted(drivers)], n=1, cutoff=0.7)
    if close:
        return f"did you mean {close[0]!r}?"
    listed = "`tile devices` lists them, `tile doctor` says what is missing"
    return listed if name in drivers else f"{listed}; {name!r} devices come from a backend package of their own"


# --- loading one plugin --------------------------------------------------------------------------


def _distribution(point: EntryPoint) -> tuple[str, str]:
    dist = point.dist
    return (dist.name, dist.version) if dist is not None else ("an unknown distribution", "")


def _load(point: EntryPoint) -> _Plugin:
    name, version = _distribution(point)
    return _examine(PluginReport(point.name, name, version, point.value, PluginStatus.OK), point.load)


def _examine(report: PluginReport, load: Callable[[], Any]) -> _Plugin:
    """Import a plugin and ask for its driver; whatever goes wrong becomes its report."""
    try:
        driver = _call_hook(load())
    except (Exception, SystemExit) as problem:
        text = f"{_title(report)} is broken and was left out: {type(problem).__name__}: {problem}"
        return _Plugin(replace(report, status=PluginStatus.BROKEN, message=text))
    report = replace(report, driver=driver.name, api=driver.api)
    if advice := _api_advice(report, driver.api):
        return _Plugin(replace(report, status=PluginStatus.INCOMPATIBLE, message=advice))
    return _Plugin(report, driver)


def _call_hook(plugin: object) -> Driver:
    import pluggy

    from tile_hal import hooks

    manager = pluggy.PluginManager(hooks.PROJECT)
    manager.add_hookspecs(hooks)
    manager.register(plugin)
    manager.check_pending()
    found: list[object] = manager.hook.tile_hal_driver()
    if len(found) != 1:
        raise TypeError(f"it implements no hook {hooks.HOOK!r} that gives a driver (marked with @tile_hal.hookimpl)")
    driver = found[0]
    if not isinstance(driver, Driver):
        raise TypeError(f"{hooks.HOOK} must return a tile_hal.Driver, not {type(driver).__name__}")
    if not (driver.name.isidentifier() and driver.name.islower()):
        raise ValueError(f"driver name {driver.name!r} must be a lower-case identifier")
    if [type(part) for part in driver.api] != [int, int]:
        raise TypeError(f"driver.api must be a pair of integers, not {driver.api!r}")
    return driver


def _api_advice(report: PluginReport, api: tuple[int, int]) -> str:
    if api[0] == HAL_API[0] and api[1] <= HAL_API[1]:
        return ""
    upgrade = report.distribution if api < HAL_API else "tile-hal"
    return (
        f"{_title(report)} needs HAL API {api[0]}.{api[1]}, tile-hal provides {HAL_API[0]}.{HAL_API[1]}: "
        f"upgrade {upgrade} (pip install -U {upgrade})"
    )


def _mark_duplicates(plugins: list[_Plugin]) -> list[_Plugin]:
    by_name: dict[str, list[_Plugin]] = {}
    for plugin in plugins:
        if plugin.driver is not None:
            by_name.setdefault(plugin.driver.name, []).append(plugin)
    for name, group in by_name.items():
        if len(group) > 1:
            owners = " and ".join(f"{p.report.distribution} ({p.report.module})" for p in group)
            message = f"driver name {name!r} is claimed by {owners}: its devices cannot be used"
            for plugin in group:
                plugin.report = replace(plugin.report, status=PluginStatus.DUPLICATE, message=message)
    return plugins


def _title(report: PluginReport) -> str:
    version = f" {report.version}" if report.version else ""
    return f"plugin {report.entry_point!r} of {report.distribution}{version}"


# --- the process's own registry ------------------------------------------------------------------


def _installed() -> Iterable[EntryPoint]:
    from importlib.metadata import entry_points

    return cast(Iterable[EntryPoint], entry_points(group=GROUP))


_registry = Registry(_installed)


def drivers() -> dict[str, Driver]:
    """Usable drivers by name. Broken, incompatible and duplicate plugins are one `TilePluginWarning` each."""
    return _registry.drivers()


def devices(driver: str | None = None) -> tuple[Device, ...]:
    """All devices, by plugin and number; with `driver` only that driver's.

    Probes on the first call. TileDeviceError for a `driver` that is unknown or claimed by two distributions.
    """
    return _registry.devices(driver)


def device(id: str | Device | None = None) -> Device:
    """The device with an id such as ``llvm:0`` (``llvm`` means the same); None means the default device.

    TileDeviceError names the devices that exist and, where there is one, the package that adds `id`.
    """
    if id is None:
        return default_device()
    return _registry.device(id) if isinstance(id, str) else id


def isolated(device: Device) -> Device:
    """`device` in a worker process, which all who ask share: a crash of its driver is an error, and the next call works.

    TileDeviceError when no worker can be started or finds the device.
    """
    return _registry.isolated(device)


def default_device(settings: Settings | None = None) -> Device:
    """``settings.device`` (TILE_DEVICE), else the first device of the driver with the highest `priority`."""
    return _registry.default_device(settings or Settings.from_environment())


def plugins() -> tuple[PluginReport, ...]:
    """Every installed plugin and what became of it, sorted by entry point name."""
    return _registry.plugins()


def register(plugin: object, *, name: str = "", distribution: str = "(not installed)") -> PluginReport:
    """Add a plugin (module or object with the hook) that no entry point names, for this process."""
    return _registry.register(plugin, name or getattr(plugin, "__name__", type(plugin).__name__), distribution)


def doctor() -> tuple[DoctorReport, ...]:
    """What each plugin says of its hardware; also probes."""
    return _registry.doctor()
