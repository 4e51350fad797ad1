"""``python -m tile_hal.scaffold NAME``: exit code 0 when the repository is written, 1 when it cannot be."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tile_ir.diagnostics import TileDeviceError

from tile_hal.scaffold import KINDS, new_backend


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    try:
        path = new_backend(given.name, given.kind, given.into, given.license)
    except TileDeviceError as problem:
        print(problem, file=sys.stderr)
        return 1
    print(f"{path} is written. Next:\n  cd {path} && pip install '.[test]' && pytest")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tile_hal.scaffold",
        description="Write a repository for a new Tile backend that conforms from the start.",
        epilog="example: python -m tile_hal.scaffold my_chip --kind c",
    )
    parser.add_argument("name", help="the driver's name: lower-case letters, digits and underscores")
    parser.add_argument(
        "--kind", choices=tuple(KINDS), default="c", help="c: kernels as C text; stripe: scheduled Stripe"
    )
    parser.add_argument("--into", default=".", metavar="FOLDER", help="where the folder tile-NAME goes")
    parser.add_argument("--license", default="", metavar="SPDX", help="licence for pyproject.toml; yours to choose")
    return parser


if __name__ == "__main__":
    sys.exit(main())
