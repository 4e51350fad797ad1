"""``python -m tile_hal.conformance --backend NAME``: exit code 0 conforms, 1 does not, 2 the suite did not run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points
from importlib.util import find_spec

from tile_hal.conformance import TIMEOUT
from tile_hal.conformance.runner import run

PERFORMANCE = "--performance"


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    own = arguments[: list(arguments).index("--")] if "--" in arguments else arguments
    if PERFORMANCE in own:
        return _performance([argument for argument in own if argument != PERFORMANCE])
    given = _parser().parse_args(arguments)
    if missing := [name for name in ("pytest", "hypothesis") if find_spec(name) is None]:
        print(f"{' and '.join(missing)} is not installed; pip install pytest hypothesis", file=sys.stderr)
        return 2
    try:
        report = run(
            given.backend, plugins=given.plugin, level=given.level, examples=given.examples, timeout=given.timeout,
            json=given.json, markdown=given.markdown, badge=given.badge, pytest_args=given.pytest_args,
        )  # fmt: skip
    except ValueError as problem:
        print(problem, file=sys.stderr)
        return 2
    for device in report.devices:
        print(f"{device.id}: {report.standing(device.id)}")
    return 0 if report.passed else 1


def _performance(arguments: Sequence[str]) -> int:
    """What compiles and times programs is no part of this package: the one that is says so by an entry point."""
    for point in entry_points(group="tile_hal.performance"):
        return int(point.load()(arguments))
    print(
        f"{PERFORMANCE} needs the compiler; python3 dev.py install tile-runtime, in Tile's repository", file=sys.stderr
    )
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tile_hal.conformance",
        description="Run the Tile HAL conformance suite on a backend.",
        epilog="example: python -m tile_hal.conformance --backend interp --markdown support.md -- -k level3",
    )
    parser.add_argument("--backend", required=True, help="driver name, or the id of one device")
    parser.add_argument("--plugin", action="append", default=[], help="module of a plugin that is not installed")
    parser.add_argument("--level", type=int, default=5, help="last level to run (0 to 5)")
    parser.add_argument("--examples", type=int, help="random programs per strategy")
    parser.add_argument(
        "--timeout", type=float, default=TIMEOUT, help="seconds until a test that hangs fails (%(default)g)"
    )
    parser.add_argument("--json", help="write the report as JSON")
    parser.add_argument("--markdown", help="write the support table as Markdown")
    parser.add_argument("--badge", help="write a badge of the level, for shields.io")
    parser.add_argument(
        PERFORMANCE,
        action="store_true",
        help="time about a dozen kernels instead, as shares of the device's peaks (see --performance --help)",
    )
    parser.add_argument("pytest_args", nargs="*", help="further arguments for pytest, after --")
    return parser


if __name__ == "__main__":
    sys.exit(main())
