"""``python -m tile_sim``: run a Tile function on a design point, or sweep design points and plot them."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from tile_ir.diagnostics import TileError

EXAMPLE = """examples:
  python -m tile_sim run --conv 4 --sram 256 --size 64x64x16x32
  python -m tile_sim sweep --conv 1,2,4,8,16 --sram 16,64,256 --size 128x128x32x64 --plot sweep.png
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 0 when all went well, 1 for a mistake in the input, 2 for a usage error."""
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except TileError as error:
        print(error, file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tile_sim", description="A simulated accelerator.", epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("run", help="simulate one design point and print the report", epilog=EXAMPLE)
    run.add_argument("--conv", type=int, default=4, help="CONV units")
    run.add_argument("--sram", type=float, default=256, help="KiB of each SRAM")
    run.set_defaults(run=_run)
    sweep = commands.add_parser("sweep", help="simulate many design points and plot them", epilog=EXAMPLE)
    sweep.add_argument("--conv", type=_integers, default=[1, 2, 4, 8, 16], help="numbers of CONV units, 1,2,4")
    sweep.add_argument("--sram", type=_numbers, default=[16.0, 64.0, 256.0], help="KiB of each SRAM, 16,64")
    sweep.add_argument("--plot", type=Path, help="write a plot (PNG, SVG or PDF)")
    sweep.set_defaults(run=_sweep)
    for command in (run, sweep):
        command.add_argument("--size", type=_size, default=(64, 64, 16, 32), help="X x Y x CI x CO of the convolution")
        command.add_argument(
            "--file", type=Path, help="a Tile file instead of the built-in convolution; give --input too"
        )
        command.add_argument(
            "--input", action="append", default=[], metavar="NAME=DTYPE[2x3]", help="type of an input of --file"
        )
        command.add_argument(
            "--set", action="append", default=[], metavar="NAME=JSON", help="another value of the template"
        )
        command.add_argument("--target", type=Path, help="a target template instead of the shipped one")
        command.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _integers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _numbers(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def _size(text: str) -> tuple[int, ...]:
    parts = tuple(int(part) for part in text.split("x"))
    if len(parts) != 4:
        raise ValueError(text)
    return parts


def _point(options: argparse.Namespace, conv: int, sram: float):
    from tile_sim.sweep import Design

    values = {name: json.loads(value) for name, _, value in (item.partition("=") for item in options.set)}
    template = options.target.read_text(encoding="utf-8") if options.target else None
    return Design(conv, sram, values, template)


def _program(options: argparse.Namespace):
    from tile_sim.sweep import convolution, program_of

    if options.file is None:
        return convolution(*options.size)
    return program_of(options.file.read_text(encoding="utf-8"), dict(item.split("=", 1) for item in options.input))


def _run(options: argparse.Namespace) -> int:
    from tile_sim.sweep import measure

    report = measure(_program(options), _point(options, options.conv, options.sram))
    print(report.to_json() if options.json else report)
    return 0


def _sweep(options: argparse.Namespace) -> int:
    from tile_sim.sweep import plot, sweep, table

    points = [_point(options, conv, sram) for sram in options.sram for conv in options.conv]
    results = sweep(_program(options), points)
    print(json.dumps([r.summary() for r in results], indent=2) if options.json else table(results))
    if options.plot:
        plot(results, options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
