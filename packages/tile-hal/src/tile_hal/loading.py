"""Loading one plugin: its import, its hook, the contract that it was written for, and whether its devices are whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from operator import attrgetter
from typing import Any

from tile_ir.target import Capabilities, Target

from tile_hal.features import FEATURES
from tile_hal.interfaces import HAL_API, Compiler, Device, Driver, Executor, Memory
from tile_hal.reports import PluginReport, PluginStatus

PARTS: dict[str, type] = {
    "id": str,
    "name": str,
    "target": Target,
    "capabilities": Capabilities,
    "compiler": Compiler,
    "executor": Executor,
    "memory": Memory,
}
"""What a device has, whatever it is."""
ANSWERS: dict[str, type] = {
    "compiler.fingerprint": str,
    "memory.size_goal": int,
    "memory.usage": object,
    "versions": Mapping,
}
"""What its parts answer before anything is computed; what comes with Tile is trusted to."""


class Origin(Enum):
    """Where a plugin comes from, and so what is asked of it before it is used."""

    TILE = "it comes with Tile: nothing"
    ELSEWHERE = "it was installed: everything, in a process of its own first"
    PROCESS = "the user's program brought it: everything, in this process"


@dataclass(slots=True)
class Plugin:
    """What is known of a plugin, and its devices once they are probed."""

    report: PluginReport
    origin: Origin = Origin.PROCESS
    driver: Driver | None = None
    devices: tuple[Device, ...] | None = None
    """None until probed."""
    flawed: dict[Device, str] = field(default_factory=dict[Device, str])
    """Devices that were left out, and why."""
    problem: str = ""
    """Why probing failed."""

    def fails(self, status: PluginStatus, message: str) -> Plugin:
        """This plugin, with a report of what is wrong."""
        self.report = replace(self.report, status=status, message=message)
        return self

    @property
    def usable(self) -> bool:
        return self.driver is not None and self.report.status is PluginStatus.OK


def load_plugin(plugin: Plugin, load: Callable[[], Any]) -> Plugin:
    """Import a plugin and ask for its driver; whatever goes wrong becomes its report."""
    report = plugin.report
    try:
        driver = call_hook(load())
    except (Exception, SystemExit) as problem:
        text = f"{report.title} is broken and was left out: {type(problem).__name__}: {problem}"
        return plugin.fails(PluginStatus.BROKEN, text)
    plugin.report = replace(report, driver=driver.name, api=driver.api)
    if advice := _advice(report, driver):
        return plugin.fails(PluginStatus.INCOMPATIBLE, advice)
    plugin.driver = driver
    return plugin


def call_hook(plugin: object) -> Driver:
    """The driver that a plugin's hook gives; TypeError or ValueError for one that is none."""
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
    _check(driver)
    return driver


def _check(driver: Driver) -> None:
    """TypeError or ValueError for what a driver says of itself and cannot mean."""
    name, api, priority = (getattr(driver, fact, None) for fact in ("name", "api", "priority"))
    if not (isinstance(name, str) and name.isidentifier() and name.islower()):
        raise ValueError(f"driver name {name!r} must be a lower-case identifier")
    if api is None:
        major, minor = HAL_API
        raise TypeError(f"the driver states no api, the HAL API that it was written for: api = ({major}, {minor})")
    if not isinstance(api, tuple) or [type(part) for part in api] != [int, int]:  # pyright: ignore
        raise TypeError(f"driver.api must be a pair of integers, not {api!r}")
    if not (priority is None or type(priority) is int):
        raise TypeError(f"driver.priority must be an integer or None, not {priority!r}")
    if isinstance(driver.requires, str) or not all(isinstance(r, str) for r in driver.requires or ()):  # pyright: ignore
        raise TypeError(f"driver.requires must be a set of names, not {driver.requires!r}")


def _advice(report: PluginReport, driver: Driver) -> str:
    """What to upgrade where this tile-hal and a driver do not fit; "" where they do."""
    (major, minor), needs = driver.api, ""
    if major == HAL_API[0]:
        if driver.requires is None:
            needs = f"HAL API {major}.{minor}" if minor > HAL_API[1] else ""
        elif lacking := sorted(set(driver.requires) - FEATURES.keys()):
            needs = f"the feature{'s' * (len(lacking) > 1)} {', '.join(lacking)} of HAL API {major}.{minor}"
        if not needs:
            return ""
    upgrade = report.distribution if driver.api < HAL_API else "tile-hal"
    return (
        f"{report.title} needs {needs or f'HAL API {major}.{minor}'}, tile-hal provides {HAL_API[0]}.{HAL_API[1]}: "
        f"upgrade {upgrade}"
    )


def flaw(device: object, driver: str, parts: Mapping[str, type]) -> str:
    """What keeps an object from being a device of `driver` with these `parts`; "" when nothing does."""
    if not isinstance(device, Device):
        return f"it is a {type(device).__name__}, not a tile_hal.Device"
    for part, kind in parts.items():
        try:
            value = attrgetter(part)(device)
        except AttributeError:
            return f"it has no attribute {part!r}"
        except Exception as problem:
            return f"its attribute {part!r} raises {type(problem).__name__}: {problem}"
        if not isinstance(value, kind):
            return f"its attribute {part!r} is a {type(value).__name__}, not a {kind.__name__}"
    name, _, number = device.id.partition(":")
    return "" if name == driver and number.isdecimal() else f"its id {device.id!r} is not {driver}:<number>"


def doctor_lines(driver: Driver) -> tuple[str, ...]:
    """What a driver says of its hardware; raises whatever its check raises."""
    lines = driver.doctor()
    return (lines,) if isinstance(lines, str) else tuple(map(str, lines))
