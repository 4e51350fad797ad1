"""The main job, on the default device: a 3×3 convolution at full size, the tutorial and an image pipeline.

    python integration/examples/demo.py [--device llvm] [--small] [--output demo-output]

Exit code 0 when every answer agrees with NumPy, otherwise 1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import convolution
import photograph
import tile_runtime as tile
import tutorial
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from timing import Stages

TOLERANCE = 2e-5
"""Largest relative error of a float32 answer: a convolution adds 576 rounded products."""
SMALL = (2, 28, 28, 16)

console = Console(width=None if sys.stdout.isatty() else 100, highlight=False)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    start = perf_counter()
    device = tile.device(options.device)
    _introduce(device)
    verdicts = [
        _convolution(device, SMALL if options.small else convolution.FULL),
        _tutorial(device),
        _photograph(device, options.output),
    ]
    good = all(verdicts)
    colour, text = (
        ("green", "every answer agrees with NumPy") if good else ("red", "some answers do not agree with NumPy")
    )
    console.print(f"\n[bold {colour}]{text}[/], after {perf_counter() - start:.1f} s")
    return 0 if good else 1


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", help="a device id such as llvm or opencl:0 (default: the best there is)")
    parser.add_argument("--small", action="store_true", help="a small convolution, for slow devices")
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="folder of the pictures")
    return parser.parse_args(arguments)


def _introduce(device: Any) -> None:
    settings = device.target.settings
    console.print(f"\n[bold]device[/]   {device.id}  {device.name}")
    console.print(
        f"         {settings.cores} cores, {settings.registers} vector registers of {settings.vector_bytes} bytes, "
        f"caches {settings.l1_bytes >> 10} KB / {settings.l2_bytes >> 10} KB / {settings.l3_bytes >> 20} MB"
    )


def _convolution(device: Any, shape: tuple[int, int, int, int]) -> bool:
    channels = min(convolution.CHANNELS, shape[3])
    size = "×".join(map(str, shape))
    _head(f'3×3 "same" convolution + ReLU, {size} → {channels}, float32')
    console.print(
        Path(convolution.__file__).with_name("conv_relu.tile").read_text().strip(), style="cyan", markup=False
    )
    with console.status("compiling and running …"):
        outcome = convolution.run(device, shape, channels)
    _stages(outcome.stages)
    console.print(f"[bold]{outcome.gflops:.1f} GFLOP/s[/]")
    return _verdict(outcome.error, TOLERANCE)


def _tutorial(device: Any) -> bool:
    _head("the tutorial's functions, verbatim")
    outcomes: list[tutorial.Outcome] = []
    with Progress(console=console, transient=True) as progress:
        for outcome in progress.track(tutorial.run(device), total=tutorial.count(), description="tutorial"):
            outcomes.append(outcome)
    table = Table("function", "compile + run", "largest error", box=None, header_style="dim")
    for o in outcomes:
        table.add_row(o.name.replace("_", " "), _time(o.seconds), _error(o.error, TOLERANCE))
    console.print(table)
    return _verdict(max(o.error for o in outcomes), TOLERANCE)


def _photograph(device: Any, folder: Path) -> bool:
    image = photograph.photograph()
    _head(f"image pipeline on a photograph, {image.shape[0]}×{image.shape[1]}: brightness, blur, Sobel edges, max-pool")
    outcome = photograph.run(device, image)
    _stages(outcome.stages)
    paths = photograph.save(outcome.pictures, folder)
    console.print(f"{outcome.kernels} kernel launches; saved " + ", ".join(str(p) for p in paths))
    return _verdict(outcome.error, TOLERANCE)


def _head(text: str) -> None:
    console.print()
    console.rule(f"[bold]{text}", align="left")


def _stages(stages: Stages) -> None:
    table = Table("stage", "time", "", box=None, header_style="dim")
    for name, seconds, remark in stages.rows:
        table.add_row(name, _time(seconds), f"[dim]{remark}[/]")
    console.print(table)


def _verdict(error: float, limit: float) -> bool:
    good = error <= limit
    console.print(
        f"largest error {_error(error, limit)} {'[green]agrees' if good else '[red]does not agree'} with NumPy[/]"
    )
    return good


def _error(error: float, limit: float) -> str:
    return f"[{'green' if error <= limit else 'bold red'}]{error:.1e}[/]"


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1e3 * seconds:.1f} ms"


if __name__ == "__main__":
    sys.exit(main())
