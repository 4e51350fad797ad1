"""The conformance suite as a Python call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tile_hal.conformance import plugin
from tile_hal.conformance.report import Recorder, Report

_HERE = Path(__file__).parent


class _Capture:
    """A second recorder of the same run, whose report `run` returns."""

    def __init__(self) -> None:
        self.recorder: Recorder | None = None

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        self.recorder = config.stash.get(plugin._RECORDER, None)  # pyright: ignore[reportPrivateUsage]


def run(
    backend: str,
    *,
    plugins: Sequence[str] = (),
    strict: bool = True,
    level: int = 5,
    examples: int | None = None,
    json: str | Path | None = None,
    markdown: str | Path | None = None,
    pytest_args: Sequence[str] = (),
) -> Report:
    """Run the suite on every device of `backend` (a driver name or a device id) and return its report.

    `plugins` are modules with the hook of plugins that are not installed; `level` is the last rung to
    climb. ValueError when the backend is missing (and `strict`) or pytest could not run.
    """
    capture = _Capture()
    named = {"--tile-json": json, "--tile-markdown": markdown, "--tile-examples": examples}
    arguments = [
        str(_HERE), "-q", "--no-header", "-p", "no:cacheprovider",
        "-W", "ignore::pytest.PytestAssertRewriteWarning",  # this package is imported before pytest is
        "--tile-backend", backend, "--tile-level", str(level),
        *(["--strict-backend"] if strict else []),
        *(f"--tile-plugin={name}" for name in plugins),
        *(f"{option}={value}" for option, value in named.items() if value is not None),
        *pytest_args,
    ]  # fmt: skip
    code = pytest.main(arguments, plugins=[capture])
    if capture.recorder is None or code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise ValueError(f"the conformance suite did not run on {backend!r} (pytest: {pytest.ExitCode(code).name})")
    return capture.recorder.report()
