"""The pytest plugin: options, the backend's devices as a parameter, capabilities, quirks, and the report.

pytest imports this module in every run of the environment (entry point group ``pytest11``), so it imports
nothing of weight and does nothing until a conformance option or test appears.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

if TYPE_CHECKING:
    from tile_hal.conformance.report import Recorder
    from tile_hal.interfaces import Device

_HERE = Path(__file__).parent
_OPTIONS: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (
        ("--tile-backend", "--backend"),
        {"dest": "tile_backend", "metavar": "NAME", "help": "driver name (or device id) to run the conformance suite on"},
    ),
    (
        ("--tile-plugin",),
        {
            "dest": "tile_plugins", "metavar": "MODULE", "action": "append", "default": [],
            "help": "module with the hook of a plugin that is not installed",
        },
    ),
    (
        ("--strict-backend",),
        {"dest": "tile_strict", "action": "store_true", "help": "a backend without devices is an error, not a skip"},
    ),
    (
        ("--tile-level",),
        {"dest": "tile_level", "type": int, "default": 5, "metavar": "N", "help": "run levels 0 to N (default: all)"},
    ),
    (
        ("--tile-examples",),
        {"dest": "tile_examples", "type": int, "metavar": "N", "help": "random programs per strategy (default: 40)"},
    ),
    (
        ("--tile-seed",),
        {"dest": "tile_seed", "type": int, "metavar": "N", "help": "other random programs than the usual ones"},
    ),
    (
        ("--tile-timeout",),
        {"dest": "tile_timeout", "type": float, "default": 300.0, "metavar": "S", "help": "seconds until a test that hangs fails"},
    ),
    (("--tile-json",), {"dest": "tile_json", "metavar": "FILE", "help": "write the report as JSON"}),
    (("--tile-markdown",), {"dest": "tile_markdown", "metavar": "FILE", "help": "write the support table as Markdown"}),
)  # fmt: skip


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tile", "Tile HAL conformance")
    for names, options in _OPTIONS:
        # `--backend` is a common word: without it when another plugin of the environment has it.
        try:
            group.addoption(*names, **options)
        except ValueError:
            with suppress(ValueError):
                group.addoption(names[0], **options)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "compile_only: a conformance test that needs no execution")
    config.addinivalue_line("markers", "takes(form): a conformance test of devices that take semtree, or stripe")
    if not config.getoption("tile_backend"):
        if any("tile_hal.conformance" in str(arg) for arg in config.invocation_params.args):
            raise pytest.UsageError("the Tile conformance suite needs --backend NAME (`tile devices` lists them)")
        return
    from tile_hal.conformance.report import Recorder

    config.stash[_RECORDER] = recorder = Recorder(_select(config))
    config.pluginmanager.register(_Reporter(recorder), "tile-conformance-reporter")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Without a backend, a run that happens upon this folder collects nothing from it."""
    inside = collection_path.is_relative_to(_HERE) and collection_path.name.startswith("test_")
    return True if inside and not config.getoption("tile_backend") else None


def pytest_report_header(config: pytest.Config) -> list[str]:
    recorder = config.stash.get(_RECORDER, None)
    return [] if recorder is None else recorder.header()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One instance of every conformance test per device of the backend."""
    if "tile_device" not in metafunc.fixturenames:
        return
    recorder = metafunc.config.stash.get(_RECORDER, None)
    devices = recorder.devices if recorder is not None else ()
    if devices:
        metafunc.parametrize("tile_device", devices, ids=[d.id for d in devices], scope="session")
        return
    reason = f"backend {metafunc.config.getoption('tile_backend')!r} has no device here"
    metafunc.parametrize("tile_device", [pytest.param(None, marks=pytest.mark.skip(reason=reason))], ids=["none"])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    limit = cast(int, config.getoption("tile_level"))
    dropped = [item for item in items if (level := _level(item)) is not None and level > limit]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if item not in set(dropped)]
    for item in items:
        level, device = _level(item), _device(item)
        if level is not None:
            item.user_properties += [("tile_level", level), ("tile_case", case_name(item))]
            item.user_properties.append(("tile_device", device.id if device else "none"))
        if level is not None and device is not None:
            _apply_capabilities(item, level, device)


def _apply_capabilities(item: pytest.Item, level: int, device: Device) -> None:
    takes = item.get_closest_marker("takes")
    if takes is not None and device.target.codegen != takes.args[0]:
        # Not a shortcoming of the device: the report counts these apart from what is skipped.
        item.user_properties.append(("tile_applies", False))
        reason = f"not applicable: this tests {takes.args[0]}, the device takes {device.target.codegen}"
        item.add_marker(pytest.mark.skip(reason=reason))
        return
    if level >= 2 and not device.capabilities.executes and item.get_closest_marker("compile_only") is None:
        item.add_marker(pytest.mark.skip(reason="compile-only device"))
        return
    for pattern, reason in device.capabilities.quirks.items():
        if fnmatchcase(case_name(item), pattern):
            # Strict: a quirk that passes is an error.
            item.add_marker(pytest.mark.xfail(reason=f"quirk {pattern}: {reason}", strict=True))


def case_name(item: pytest.Item) -> str:
    """The name a quirk matches: the test and its parameters, without the device, such as ``test_math[sin-float16]``."""
    device = _device(item)
    name = item.name
    if device is not None:
        name = name.replace(f"[{device.id}-", "[").replace(f"-{device.id}]", "]").replace(f"[{device.id}]", "")
    return name


def _level(item: pytest.Item) -> int | None:
    path = item.path
    if path.parent != _HERE or not path.name.startswith("test_level"):
        return None
    return int(path.name.removeprefix("test_level")[0])


def _device(item: pytest.Item) -> Device | None:
    callspec = getattr(item, "callspec", None)
    return callspec.params.get("tile_device") if callspec is not None else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """A device that never finishes fails its test instead of hanging the run (where the system has alarms)."""
    if (
        _level(item) is None
        or not hasattr(signal, "setitimer")
        or threading.current_thread() is not threading.main_thread()
    ):
        return (yield)
    limit = cast(float, item.config.getoption("tile_timeout"))

    def expire(number: int, frame: object) -> None:
        raise TimeoutError(f"no end after {limit:g} s: an event is never done, or submitting work blocks")

    previous = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


@pytest.fixture(scope="session")
def tile_examples(request: pytest.FixtureRequest) -> tuple[int, int | None]:
    """Random programs per strategy, and their seed (None: always the same ones)."""
    return request.config.getoption("tile_examples") or 40, request.config.getoption("tile_seed")


def _select(config: pytest.Config) -> tuple[str, tuple[Device, ...]]:
    """The backend's name and devices; UsageError for a missing one when strict."""
    from importlib import import_module

    from tile_ir.diagnostics import TileDeviceError

    import tile_hal

    for module in cast(list[str], config.getoption("tile_plugins")):
        tile_hal.register(import_module(module), name=module)
    backend = cast(str, config.getoption("tile_backend"))
    try:
        found = (tile_hal.device(backend),) if ":" in backend else tile_hal.devices(backend)
    except TileDeviceError as problem:
        if config.getoption("tile_strict"):
            raise pytest.UsageError(str(problem)) from None
        return backend, ()
    if not found and config.getoption("tile_strict"):
        raise pytest.UsageError(f"backend {backend!r} has no device here; `tile doctor` says what is missing")
    return backend, tuple(found)


_RECORDER: pytest.StashKey[Recorder] = pytest.StashKey()


class _Reporter:
    """Feeds outcomes to the recorder and writes the reports; registered only in conformance runs."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._recorder.add(report)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        report = self._recorder.report()
        for option, text in (("tile_json", report.to_json), ("tile_markdown", report.to_markdown)):
            if path := session.config.getoption(option):
                Path(path).write_text(text(), encoding="utf-8")
