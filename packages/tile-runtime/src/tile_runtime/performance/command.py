"""``tile conformance --performance``: exit code 0 when every kernel was measured, 1 when one was not, 2 when none could be."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tile_hal.discovery import register_module
from tile_ir.diagnostics import TileError

from tile_runtime.performance.kernels import TASKS
from tile_runtime.performance.measuring import SECONDS, run


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of group ``tile_hal.performance``, by which `python -m tile_hal.conformance` finds it."""
    given = _parser().parse_args(arguments)
    names = [name.strip() for name in given.kernels.split(",") if name.strip()]
    try:
        for module in given.plugin:
            register_module(module)
        report = run(
            given.backend, seed=given.seed, seconds=given.seconds, kernels=names, json=given.json, markdown=given.markdown,
            watch=_watch if sys.stderr.isatty() else lambda name: None,
        )  # fmt: skip
    except (TileError, OSError) as problem:
        print(problem, file=sys.stderr)
        return 2
    print(report.to_markdown())
    return 0 if report.passed else 1


def _watch(name: str) -> None:
    print(f"\r\033[Kmeasuring {name}", end="\r", file=sys.stderr, flush=True)


def _seconds(text: str) -> float:
    if not 0 < float(text) <= 3600:
        raise ValueError(text)
    return float(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tile conformance --performance",
        description="Run about a dozen kernels, and show each one's share of the device's peaks.",
        epilog="example: tile conformance --performance --backend llvm --markdown speed.md",
    )
    parser.add_argument("--backend", required=True, help="driver name, or the id of one device")
    parser.add_argument("--plugin", action="append", default=[], help="module of a plugin that is not installed")
    parser.add_argument("--seed", type=int, default=0, help="draws the shapes (%(default)s)")
    parser.add_argument("--seconds", type=_seconds, default=SECONDS, help="for each kernel (%(default)g)")
    parser.add_argument(
        "--kernels",
        default="",
        metavar="NAMES",
        help=f"only these, with commas between: {', '.join(t.name for t in TASKS)}",
    )
    parser.add_argument("--json", help="write the report as JSON")
    parser.add_argument("--markdown", help="write the report as Markdown")
    return parser
