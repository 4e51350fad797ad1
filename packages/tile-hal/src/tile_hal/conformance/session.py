"""One run of the suite inside pytest: which tests there are, what they found, and an end to those that hang."""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import pytest
from tile_ir.diagnostics import TileDeviceError

import tile_hal
from tile_hal import submission
from tile_hal.conformance import rows
from tile_hal.conformance.record import HUNG, Record
from tile_hal.conformance.report import LEVELS, Case, DeviceFacts, RunFacts, case_of, matches
from tile_hal.discovery import flawed, register_module
from tile_hal.interfaces import HAL_API, Device

_HERE = Path(__file__).parent
MOST_GRACE = 10.0
"""Seconds after the time limit until a test that cannot be interrupted is ended, with its process; less when the limit is."""
NOT_RUN = "tile_not_run"
"""The property of a test that was left out while the suite ran."""
PLANNED = "tile_planned"
"""What a worker of pytest-xdist tells the process that writes the report."""


class Session:
    """The hooks of a run, registered for conformance runs alone; works under pytest-xdist too."""

    def __init__(self, config: pytest.Config, record: Record, devices: tuple[Device, ...]) -> None:
        self.devices = devices
        self.record = record
        self._config = config
        self._limit = cast(float, config.getoption("tile_timeout"))
        self._stderr = os.dup(2)  # as it was before pytest captures it

    @staticmethod
    def of(config: pytest.Config) -> Session:
        """What the options ask for; UsageError for a missing backend when strict."""
        for module in cast(list[str], config.getoption("tile_plugins")):
            _register(module)
        backend = cast(str, config.getoption("tile_backend"))
        flawed = _flawed(backend)
        devices = _devices(backend, cast(bool, config.getoption("tile_strict")) and not flawed)
        file = cast(str | None, config.getoption("tile_record"))
        record = Record(Path(file) if file else None)
        rows.alone = record.deaths > 0
        if hasattr(config, "workerinput"):
            record.detach()
        if record.facts is None:
            record.begin(
                _facts(config), [*map(DeviceFacts.of, devices), *(DeviceFacts.bare(case.device) for case in flawed)]
            )
            for case in flawed:
                record.add(case)
        return Session(config, record, devices)

    def pytest_report_header(self) -> list[str]:
        names = ", ".join(f"{d.id} ({d.name})" for d in self.devices) or "no device"
        return [f"tile backend {self._config.getoption('tile_backend')}: {names}; HAL API {HAL_API[0]}.{HAL_API[1]}"]

    # --- which tests ---

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Counts all tests before anything filters them, then drops those above the last level and those done before."""
        planned = _planned(items, self._config.args, [d.id for d in self.devices])
        if hasattr(self._config, "workeroutput"):
            cast(Any, self._config).workeroutput[PLANNED] = {d: list(n.items()) for d, n in planned.items()}
        elif not self.record.planned:
            self.record.plan(planned)
        last = cast(int, self._config.getoption("tile_level"))
        dropped = [i for i in items if (key := key_of(i)) is not None and (key[1] > last or key in self.record.cases)]
        if dropped:
            self._config.hook.pytest_deselected(items=dropped)
            items[:] = [item for item in items if item not in set(dropped)]
        for item in items:
            if (key := key_of(item)) is not None:
                item.user_properties += zip(("tile_device", "tile_level", "tile_case"), key, strict=True)
                if (device := _device(item)) is not None:
                    _apply_capabilities(item, key[1], device)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        planned = getattr(node, "workeroutput", {}).get(PLANNED)
        if planned is not None and not self.record.planned:
            self.record.plan({device: dict(levels) for device, levels in planned.items()})

    # --- running them ---

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        if (key := key_of(item)) is not None and not hasattr(self._config, "workeroutput"):
            self.record.start(key)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        key = key_of(item)
        if key is not None and self.record.hopeless(key[0], key[1]):
            item.user_properties.append((NOT_RUN, True))
            pytest.skip("three tests of this level hung")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        """A device that never finishes fails its test instead of hanging the run; at worst its process ends."""
        if key_of(item) is None:
            return (yield)
        faulthandler.dump_traceback_later(self._limit + min(self._limit, MOST_GRACE), exit=True, file=self._stderr)
        try:
            with _alarm(self._limit):
                return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()

    # --- what they found ---

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        case = case_of(report)
        if case is not None and (NOT_RUN, True) not in report.user_properties:
            self.record.add(case)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport) -> None:
        """A worker of pytest-xdist died."""
        del report
        device, level, name = _key_of_id(crashitem, [d.id for d in self.devices])
        self.record.add(Case(device, level, name, "failed", "the process died in this test"))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(self._config, "workeroutput"):
            return
        self.record.finish()
        report = self.record.report()
        writers = {"json": report.to_json, "markdown": report.to_markdown, "badge": report.to_badge}
        for option, text in writers.items():
            if path := session.config.getoption(f"tile_{option}"):
                Path(path).write_text(text(), encoding="utf-8")

    def pytest_unconfigure(self) -> None:
        if any(HUNG in case.reason for case in self.record.cases.values()):
            submission.abandon()  # or the interpreter would wait at its exit for what never ends


def key_of(item: pytest.Item) -> tuple[str, int, str] | None:
    """Device id, level and case name of a conformance test; None for any other test."""
    if item.path.parent != _HERE or not item.path.name.startswith("test_level"):
        return None
    device = _device(item)
    return device.id if device else "none", _level(item.path), case_name(item.name, device.id if device else "")


def case_name(name: str, device: str) -> str:
    """The name that a quirk matches: the test and its parameters, without the device: ``test_math[sin-float16]``."""
    return name.replace(f"[{device}-", "[").replace(f"-{device}]", "]").replace(f"[{device}]", "")


def _level(path: Path) -> int:
    return int(path.name.removeprefix("test_level")[0])


def _key_of_id(node: str, devices: Iterable[str]) -> tuple[str, int, str]:
    file, _, name = node.partition("::")
    device = next((d for d in devices if d in name), "none")
    return device, _level(Path(file)), case_name(name, device)


def _device(item: pytest.Item) -> Device | None:
    callspec = getattr(item, "callspec", None)
    return callspec.params.get("tile_device") if callspec is not None else None


def _planned(
    items: Sequence[pytest.Item], arguments: Sequence[str], devices: Sequence[str]
) -> dict[str, dict[int, int]]:
    """Tests by device and level; a file of which not all was collected counts as one test more."""
    keys = {key for item in items if (key := key_of(item)) is not None}
    collected = {item.path.name for item in items} - {Path(a.partition("::")[0]).name for a in arguments if "::" in a}
    missing = [_level(path) for path in _HERE.glob("test_level*.py") if path.name not in collected]
    return {
        device: {n: sum(key[:2] == (device, n) for key in keys) + missing.count(n) for n in LEVELS}
        for device in devices
    }


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
    for quirk, reason in device.capabilities.quirks.items():
        if matches(quirk, case_name(item.name, device.id)):
            # Strict: a quirk that passes is an error.
            item.add_marker(pytest.mark.xfail(reason=f"quirk {quirk}: {reason}", strict=True))


@contextmanager
def _alarm(limit: float) -> Generator[None]:
    """TimeoutError after `limit` seconds, where the system has alarms and Python can act on them."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def expire(number: int, frame: object) -> None:
        raise TimeoutError(f"{HUNG} {limit:g} s: an event is never done, or submitting work blocks")

    previous = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def _register(module: str) -> None:
    try:
        register_module(module)
    except TileDeviceError as problem:
        raise pytest.UsageError(str(problem)) from None


def _devices(backend: str, strict: bool) -> tuple[Device, ...]:
    try:
        found = (tile_hal.device(backend),) if ":" in backend else tile_hal.devices(backend)
    except TileDeviceError as problem:
        if strict:
            raise pytest.UsageError(str(problem)) from None
        return ()
    if not found and strict:
        raise pytest.UsageError(f"backend {backend!r} has no device here; `tile doctor` says what is missing")
    return tuple(found)


def _flawed(backend: str) -> list[Case]:
    """A failure at level 0 for each device that is not whole: no test can run on it."""
    driver = backend.partition(":")[0]
    with suppress(TileDeviceError):
        found = enumerate(flawed(driver).items())
        return [
            Case(getattr(d, "id", f"{driver}:{n}"), 0, "test_device_is_whole", "failed", why) for n, (d, why) in found
        ]
    return []


def _facts(config: pytest.Config) -> RunFacts:
    filters = {
        "-k": config.getoption("keyword"),
        "-m": config.getoption("markexpr"),
        "--deselect": config.getoption("deselect"),
    }
    asked = {name: config.getoption(f"tile_{name}") for name in ("backend", "level", "examples", "seed", "timeout")}
    return RunFacts(filters=tuple(f"{o} {v}" for o, v in filters.items() if v), **cast(Any, asked))
