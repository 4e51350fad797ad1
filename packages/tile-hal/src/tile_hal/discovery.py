"""Discovery of plugins and devices, and what happens when one fails.

A broken plugin is one warning that names its distribution and never hides the others; a plugin for another
HAL API is a message that says what to upgrade; of two plugins with one driver name the one that was known first keeps it.
Nothing is imported before drivers are first asked for, no hardware is probed before its driver's devices are, and each is
done once. Plugins from elsewhere are tried in a process of their own first (`tile_hal.trials`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, redirect_stdout
from difflib import get_close_matches
from importlib import import_module
from types import ModuleType
from typing import Any, Protocol, cast

from tile_ir import forking
from tile_ir.diagnostics import TileDeviceError, quoted, warn_user
from tile_ir.settings import Settings

from tile_hal.errors import Code, device_error
from tile_hal.interfaces import Device, Driver
from tile_hal.loading import ANSWERS, PARTS, Origin, Plugin, doctor_lines, flaw, load_plugin
from tile_hal.reports import DoctorReport, PluginReport, PluginStatus, TilePluginWarning, plain
from tile_hal.trials import GROUP, Stage, Trials, Verdict


class Distribution(Protocol):
    """What discovery reads of `importlib.metadata.Distribution`: each look at it parses a file."""

    @property
    def metadata(self) -> Any: ...


class EntryPoint(Protocol):
    """The part of `importlib.metadata.EntryPoint` that discovery uses; tests bring their own."""

    @property
    def name(self) -> str: ...
    @property
    def value(self) -> str: ...
    @property
    def dist(self) -> Distribution | None: ...
    def load(self) -> Any: ...


class Registry:
    """Drivers and devices of a set of entry points; thread-safe, everything is done once and on demand."""

    def __init__(self, entry_points: Callable[[], Iterable[EntryPoint]], trials: Trials | None = None) -> None:
        self._entry_points = entry_points
        self._trials = trials
        self._lock = forking.rlock()
        self._plugins: list[Plugin] | None = None
        self._registered = set[str]()
        """Modules of plugins that no entry point names."""
        self._isolated: dict[str, tuple[Device, ...]] = {}
        """Devices by driver, in workers although the settings do not ask for it."""
        self._strangers = set[str]()
        """Names in TILE_ISOLATE that were warned of."""

    # --- plugins ---

    def plugins(self) -> tuple[PluginReport, ...]:
        return tuple(plugin.report for plugin in self._loaded())

    def register(self, plugin: object, name: str, distribution: str) -> PluginReport:
        """Add a plugin object that no entry point names; TileDeviceError when it does not work."""
        with self._lock:
            self._loaded()
            unnamed = PluginReport(name, distribution, "", getattr(plugin, "__name__", repr(plugin)), PluginStatus.OK)
            added = load_plugin(Plugin(unnamed), lambda: plugin)
            if added.report.status is not PluginStatus.OK:
                raise device_error(Code.NO_DEVICE, added.report.message)
            before = self._plugins or []
            self._plugins = self._settle_names([*before, added])
            if not added.usable:
                self._plugins = before
                raise device_error(Code.DUPLICATE_DRIVER, added.report.message)
            if isinstance(plugin, ModuleType):
                self._registered.add(plugin.__name__)
            return added.report

    def _loaded(self) -> list[Plugin]:
        with self._lock:
            if self._plugins is None:
                settings = Settings.from_environment()
                found = sorted(
                    ((_report(point), point) for point in self._entry_points()),
                    key=lambda pair: (pair[0].entry_point, pair[0].distribution, pair[0].module),
                )
                plugins = [self._load(report, point, settings.plugins) for report, point in found]
                self._plugins = self._settle_names(plugins)
                messages = [p.report.message for p in self._plugins if p.report.status is not PluginStatus.LEFT_OUT]
                for message in dict.fromkeys([*messages, *_unknown_names(settings.plugins, self._plugins)]):
                    if message:
                        _warn(message)
            return self._plugins

    def _load(self, report: PluginReport, point: EntryPoint, chosen: Sequence[str]) -> Plugin:
        trusted = self._trials is None or self._trials.trusts(report)
        plugin = Plugin(report, Origin.TILE if trusted else Origin.ELSEWHERE)
        if not _is_chosen(report, chosen):
            return plugin.fails(PluginStatus.LEFT_OUT, f"{report.title} is left out by TILE_PLUGINS")
        verdict = self._tried(plugin, Stage.IMPORT)
        if verdict.problem:
            advice = f"`tile doctor` tries it again, TILE_PLUGINS=-{report.entry_point} leaves it out unseen"
            text = f"{report.title} is broken and was left out: {verdict.problem}; {advice}"
            return plugin.fails(PluginStatus.BROKEN, text)
        with _quiet(verdict):
            return load_plugin(plugin, point.load)

    def _tried(self, plugin: Plugin, stage: Stage) -> Verdict:
        """What became of a plugin in a process of its own; one that prints there is a warning."""
        if self._trials is None or plugin.origin is not Origin.ELSEWHERE:
            return Verdict()
        verdict = self._trials.verdict(plugin.report, stage)
        if verdict.printed:
            _warn(f"{plugin.report.title} writes to standard output {stage.value}: {verdict.printed!r}")
        return verdict

    def _settle_names(self, plugins: list[Plugin]) -> list[Plugin]:
        """One owner for each driver name: the one that was known first; where nobody knows, none can be used."""
        by_name: dict[str, list[Plugin]] = {}
        for plugin in plugins:
            if plugin.driver is not None:
                by_name.setdefault(plugin.driver.name, []).append(plugin)
        for name, group in by_name.items():
            owner = self._trials.owner(name, [p.report for p in group]) if self._trials is not None else None
            if len(group) > 1:
                _mark_duplicates(name, group, owner)
        return plugins

    # --- drivers ---

    def drivers(self) -> dict[str, Driver]:
        """Usable drivers by name."""
        return {p.driver.name: p.driver for p in self._loaded() if p.driver and p.usable}

    def _plugin(self, name: str) -> Plugin | None:
        """The plugin of a driver; the error that names both distributions when two have that name and neither owns it.

        Where no plugin has that driver, the one that would be called so: it tells why there is none.
        """
        found = [p for p in self._loaded() if p.report.driver == name]
        usable = [p for p in found if p.usable]
        if not usable and found and found[0].report.status is PluginStatus.DUPLICATE:
            other = found[0].report
            hint = f"TILE_PLUGINS=-{other.distribution} leaves one out; so does pip uninstall {other.distribution}"
            raise device_error(Code.DUPLICATE_DRIVER, other.message, hint)
        named = [p for p in self._loaded() if p.report.entry_point == name and p.report.message]
        return next(iter([*usable, *found, *named]), None)

    # --- devices ---

    def devices(self, driver: str | None = None) -> tuple[Device, ...]:
        """All devices, or those of one driver (errors of that driver are then raised)."""
        if driver is not None:
            plugin = self._plugin(driver)
            if plugin is None or plugin.driver is None:
                raise self._unknown(driver, plugin)
            return self._probe(plugin)
        found = tuple(d for p in self._loaded() if p.usable for d in self._probe(p))
        self._look_for_strangers()
        return found

    def _look_for_strangers(self) -> None:
        """Warn, once, of names in TILE_ISOLATE that no driver has: what was meant runs in this process."""
        known = self.drivers()
        for name in Settings.from_environment().isolate:
            if name not in known and name != "all" and name not in self._strangers:
                self._strangers.add(name)
                _warn(f"TILE_ISOLATE names {name!r}, but no driver is called so; there are {', '.join(sorted(known))}")

    def flawed(self, driver: str) -> dict[Device, str]:
        """Devices of a driver that were left out, and what is wrong with each; for the conformance suite."""
        self.devices(driver)
        plugin = self._plugin(driver)
        return dict(plugin.flawed) if plugin is not None else {}

    def _probe(self, plugin: Plugin) -> tuple[Device, ...]:
        with self._lock:
            if plugin.devices is None:
                # A malformed setting is the user's to know, not the driver's to fail on.
                isolate = Settings.from_environment().isolate
                assert plugin.driver is not None
                if plugin.driver.name in isolate or "all" in isolate:
                    plugin.driver, verdict = self._in_workers(plugin), Verdict()
                else:
                    verdict = self._tried(plugin, Stage.PROBE)
                found, problem = ((), verdict.problem) if verdict.problem else _device_list(plugin.driver, verdict)
                parts = PARTS if plugin.origin is Origin.TILE else PARTS | ANSWERS
                plugin.flawed = {d: wrong for d in found if (wrong := flaw(d, plugin.driver.name, parts))}
                plugin.devices = tuple(d for d in found if d not in plugin.flawed)
                plugin.problem = _summary(plugin, problem)
                if plugin.problem:
                    _warn(plugin.problem)
            return plugin.devices

    def _in_workers(self, plugin: Plugin) -> Driver:
        """A plugin's driver, run in worker processes."""
        from tile_hal.isolation.device import IsolatedDriver
        from tile_hal.isolation.link import Source

        assert plugin.driver is not None
        report = plugin.report
        if report.module in self._registered:
            return IsolatedDriver(plugin.driver, Source(plugin.driver.name, module=report.module))
        return IsolatedDriver(plugin.driver, Source(plugin.driver.name, report.entry_point))

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
        if plugin is not None and plugin.usable:
            for device in self._probe(plugin):
                if device.id == wanted:
                    return device
        raise self._unknown(id, plugin)

    def default_device(self, settings: Settings) -> Device:
        """TILE_DEVICE, else the first device of the driver with the highest priority that has one."""
        if settings.device:
            return self.device(settings.device)
        self._look_for_strangers()
        ranked = [(-driver.priority, name) for name, driver in self.drivers().items() if driver.priority is not None]
        for _, name in sorted(ranked):
            if found := self.devices(name):
                return found[0]
        raise device_error(
            Code.NO_DEVICE, "no device is installed", "install a backend package, such as this machine's CPU"
        )

    def _unknown(self, id: str, plugin: Plugin | None) -> TileDeviceError:
        name = id.partition(":")[0]
        reason = ""
        if plugin is not None:
            reason = plugin.report.message or plugin.problem or f"driver {name!r} has no such device"
        known = [d.id for d in self.devices()]
        message = f"there is no device {quoted(id)}; the devices here are {', '.join(known) or 'none'}"
        return device_error(Code.UNKNOWN_DEVICE, f"{message} ({reason})" if reason else message, _hint(id, name, known))

    def doctor(self) -> tuple[DoctorReport, ...]:
        """What each plugin says of its hardware; those that failed when they were tried are tried again."""
        with self._lock:
            if self._trials is not None and self._plugins is None:
                self._trials.try_again = True
            return tuple(self._examine(plugin) for plugin in self._loaded())

    def _examine(self, plugin: Plugin) -> DoctorReport:
        if plugin.driver is None or not plugin.usable:
            return DoctorReport(plugin.report, (plugin.report.message,), ())
        found = self._probe(plugin)
        apart = "its devices run in worker processes" if any(d.isolated for d in found) else ""
        lines = (*filter(None, [plugin.problem, apart]), *self._advice(plugin, plugin.driver))
        return DoctorReport(plugin.report, lines, tuple(d.id for d in found))

    def _advice(self, plugin: Plugin, driver: Driver) -> tuple[str, ...]:
        """The driver's own lines; a driver from elsewhere is asked in a process of its own, each time."""
        if plugin.origin is Origin.ELSEWHERE:
            verdict = self._tried(plugin, Stage.DOCTOR)
            return (f"the driver's own check failed: {verdict.problem}",) if verdict.problem else verdict.lines
        try:
            return doctor_lines(driver)
        except (Exception, SystemExit) as problem:
            return (f"the driver's own check failed: {type(problem).__name__}: {problem}",)


def _warn(message: str) -> None:
    warn_user(message, TilePluginWarning)


# --- plugins ---


def _report(point: EntryPoint) -> PluginReport:
    facts = point.dist.metadata if point.dist is not None else {"Name": "an unknown distribution", "Version": ""}
    return PluginReport(point.name, facts["Name"], facts["Version"], point.value, PluginStatus.OK)


def _names(report: PluginReport) -> set[str]:
    """What TILE_PLUGINS may call a plugin."""
    return {plain(report.entry_point), plain(report.distribution)}


def _is_chosen(report: PluginReport, chosen: Sequence[str]) -> bool:
    names = _names(report)
    wanted = [name for name in chosen if not name.startswith("-")]
    if any(name[1:] and plain(name[1:]) in names for name in chosen if name.startswith("-")):
        return False
    return not wanted or any(plain(name) in names for name in wanted)


def _unknown_names(chosen: Sequence[str], plugins: Sequence[Plugin]) -> list[str]:
    """A sentence for each name in TILE_PLUGINS that nothing has: most likely it is misspelt."""
    known = {name for plugin in plugins for name in _names(plugin.report)}
    listed = ", ".join(sorted(known)) or "none"
    return [
        f"TILE_PLUGINS names {quoted(name.removeprefix('-'))}, but no plugin or distribution with plugins is called so; there are {listed}"
        for name in chosen
        if plain(name.removeprefix("-")) not in known
    ]


def _mark_duplicates(name: str, group: Sequence[Plugin], owner: PluginReport | None) -> None:
    owners = " and ".join(f"{p.report.distribution} ({p.report.module})" for p in group)
    kept = f"{owner.distribution} keeps it" if owner is not None else "its devices cannot be used"
    message = f"driver name {name!r} is claimed by {owners}: {kept}; TILE_PLUGINS=-<distribution> leaves one out"
    for plugin in group:
        if plugin.report is not owner:
            plugin.fails(PluginStatus.DUPLICATE, message)


# --- devices ---


def _device_list(driver: Driver, verdict: Verdict) -> tuple[tuple[Device, ...], str]:
    """What a driver gives, and what is wrong where it gives nothing."""
    try:
        with _quiet(verdict):
            return tuple(d for group in driver.device_sets() for d in group.devices), ""
    except (Exception, SystemExit) as problem:
        return (), f"{type(problem).__name__}: {problem}"


def _summary(plugin: Plugin, problem: str) -> str:
    """One sentence on all that is wrong with a driver's devices; "" when nothing is."""
    driver = plugin.report.driver
    if problem:
        return f"{plugin.report.distribution}: driver {driver!r} failed to probe its devices: {problem}"
    named = [f"{getattr(d, 'id', driver)!r} was left out: {wrong}" for d, wrong in plugin.flawed.items()]
    return f"{plugin.report.distribution}: device {'; device '.join(named)}" if named else ""


@contextmanager
def _quiet(verdict: Verdict) -> Generator[None]:
    """Standard error as standard output for a plugin that is known to print: a program may read what `tile` prints."""
    if not verdict.printed:
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _hint(id: str, name: str, known: Sequence[str]) -> str:
    drivers = {k.partition(":")[0] for k in known}
    close = get_close_matches(id.strip().lower(), [*known, *sorted(drivers)], n=1, cutoff=0.7)
    if close:
        return f"did you mean {close[0]!r}?"
    listed = "`tile devices` lists them, `tile doctor` says what is missing"
    return listed if name in drivers else f"{listed}; {quoted(name)} devices come from a backend package of their own"


# --- the process's own registry ------------------------------------------------------------------


def installed() -> Iterable[EntryPoint]:
    """The entry points of all plugins in this environment."""
    from importlib.metadata import entry_points

    return cast(Iterable[EntryPoint], entry_points(group=GROUP))


_registry = Registry(installed, Trials())


def only_trusted(trials: Trials) -> None:
    """In this process, only use plugins that come with Tile; for one in which another plugin is tried."""
    global _registry
    _registry = Registry(lambda: [point for point in installed() if trials.trusts(_report(point))])


def drivers() -> dict[str, Driver]:
    """Usable drivers by name. Broken, incompatible and duplicate plugins are one `TilePluginWarning` each."""
    return _registry.drivers()


def devices(driver: str | None = None) -> tuple[Device, ...]:
    """All devices, by plugin and number; with `driver` only that driver's.

    Probes on the first call. TileDeviceError for a `driver` that is unknown or claimed by two distributions.
    """
    return _registry.devices(driver)


def flawed(driver: str) -> dict[Device, str]:
    """Devices of `driver` that are not whole, and what is wrong with each; `devices` leaves them out."""
    return _registry.flawed(driver)


def device(id: str | Device | None = None) -> Device:
    """The device with an id such as ``interp:0`` (``interp`` means the same); None means the default device.

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


def register_module(module: str) -> None:
    """Add a plugin that is not installed, by its module's name; one that is there already, unless left out, is no error.

    TileDeviceError when it does not import or does not work.
    """
    if any((plugin.module, plugin.status) == (module, PluginStatus.OK) for plugin in plugins()):
        return
    try:
        found = import_module(module)
    except (Exception, SystemExit) as problem:
        text = f"the plugin {module!r} does not import: {type(problem).__name__}: {problem}"
        raise device_error(Code.NO_DEVICE, f"{text}; is the folder that holds it on PYTHONPATH?") from None
    register(found, name=module)


def doctor() -> tuple[DoctorReport, ...]:
    """What each plugin says of its hardware; also probes."""
    return _registry.doctor()
