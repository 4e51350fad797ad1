"""The conformance suite as a Python call, in a process that may crash or hang without taking the report with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tile_hal.conformance import TIMEOUT
from tile_hal.conformance.record import HUNG, Record
from tile_hal.conformance.report import Report

_HERE = Path(__file__).parent
OK, FAILED, NO_TESTS = 0, 1, 5
"""Exit codes of pytest, which is imported in the process of the tests alone."""
MOST_DEATHS = 50
"""Processes that may die before the suite gives up."""
FAREWELL = 10.0
"""Seconds that a process has to end once the suite is through."""


def run(
    backend: str,
    *,
    plugins: Sequence[str] = (),
    strict: bool = True,
    level: int = 5,
    examples: int | None = None,
    timeout: float = TIMEOUT,
    json: str | Path | None = None,
    markdown: str | Path | None = None,
    badge: str | Path | None = None,
    pytest_args: Sequence[str] = (),
) -> Report:
    """Run the suite on every device of `backend` (a driver name or a device id) and return its report.

    `plugins` are modules with the hook of plugins that are not installed; `level` is the last one to run; a test that
    takes longer than `timeout` seconds fails. The tests run in a process of their own: one that it dies in has failed,
    and the rest runs in another. ValueError when the backend is missing (and `strict`) or pytest could not run.
    """
    arguments = [
        str(_HERE), "-q", "--no-header", "-p", "no:cacheprovider",
        "-W", "ignore::pytest.PytestAssertRewriteWarning",  # this package is imported before pytest is
        f"--tile-backend={backend}", f"--tile-level={level}", f"--tile-timeout={timeout:g}",
        *(["--strict-backend"] if strict else []),
        *(f"--tile-plugin={name}" for name in plugins),
        *([] if examples is None else [f"--tile-examples={examples}"]),
        *pytest_args,
    ]  # fmt: skip
    report = _supervised(backend, arguments, timeout)
    for path, text in ((json, report.to_json), (markdown, report.to_markdown), (badge, report.to_badge)):
        if path is not None:
            Path(path).write_text(text(), encoding="utf-8")
    return report


def _supervised(backend: str, arguments: Sequence[str], timeout: float) -> Report:
    """One process after the other, until every test has an outcome."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "record.jsonl"
        code, record = OK, Record()
        while not record.finished and record.deaths < MOST_DEATHS:
            code = _process([*arguments, f"--tile-record={file}"], file)
            record = Record(file)
            if not record.finished:
                if record.started is None:
                    raise ValueError(f"the conformance suite did not run on {backend!r} ({_ending(code)})")
                record.died(
                    f"{HUNG} {timeout:g} s, and the process had to be ended" if code == FAILED else _ending(code)
                )
        through = code == NO_TESTS and record.cases  # the last test was the one that died
        if code in (OK, FAILED) or through or not record.finished:
            return record.report()
        raise ValueError(f"the conformance suite did not run on {backend!r} ({_ending(code)})")


def _process(arguments: Sequence[str], file: Path) -> int:
    """The exit code of pytest; one that is through and does not end is ended."""
    path = os.pathsep.join(dict.fromkeys(os.path.abspath(p) for p in sys.path))
    process = subprocess.Popen([sys.executable, "-m", "pytest", *arguments], env=os.environ | {"PYTHONPATH": path})
    try:
        while True:
            with suppress(subprocess.TimeoutExpired):
                return process.wait(FAREWELL)
            record = Record(file)
            if record.finished:
                with suppress(subprocess.TimeoutExpired):
                    return process.wait(FAREWELL)
                process.kill()
                process.wait()
                return int(any(case.outcome == "failed" for case in record.cases.values()))
    finally:
        process.kill()


def _ending(code: int) -> str:
    if code < 0:
        return f"the process died: {signal.strsignal(-code) or 'signal'} ({signal.Signals(-code).name})"
    from pytest import ExitCode

    known = {int(c): c.name for c in ExitCode}
    return f"pytest: {known[code]}" if code in known else f"the process ended with exit code {code}"
