"""The Mandelbrot set: a loop of elementwise steps as one program, in which eight rounds at a time stay in registers.

python integration/examples/fractal.py [--side 512] [--rounds 200] [--device llvm] [--output fractal.png]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import tile_runtime as tile

Array = np.ndarray[Any, Any]

STEP = tile.Function(
    """
// z <- z*z + c, as real and imaginary parts; Count says in how many rounds a point stayed within 2.
function (X, Y, CX, CY, Count) -> (NX, NY, Next) {
    Inside = X * X + Y * Y < 4;
    NX = Inside ? X * X - Y * Y + CX : X;
    NY = Inside ? 2 * X * Y + CY : Y;
    Next = Inside ? Count + 1 : Count;
}""",
    "fractal.tile",
)


def escape(rounds: int, side: int) -> Any:
    """Rounds after which points leave, float32 [side, side], from their coordinates."""
    cx, cy = (tile.placeholder("float32", (side, side), name) for name in ("cx", "cy"))
    zero = tile.constant(np.zeros((side, side), np.float32))
    _, _, count = tile.repeat(lambda s: tuple(STEP(s[0], s[1], cx, cy, s[2])), (zero, zero, zero), rounds)
    return tile.compose([cx, cy], {"count": count})


def plane(side: int, centre: complex = -0.6, width: float = 3.0) -> tuple[Array, Array]:
    """Coordinates of a square of the complex plane."""
    line = (np.arange(side, dtype=np.float32) / side - 0.5) * width
    x, y = np.meshgrid(line + np.float32(centre.real), line + np.float32(centre.imag))
    return np.ascontiguousarray(x, np.float32), np.ascontiguousarray(y, np.float32)


def picture(count: Array, rounds: int) -> Array:
    """Colours by the logarithm of the rounds, uint8 [side, side, 3]."""
    share = np.log1p(count) / np.log1p(rounds)
    bands = np.stack([share**p for p in (0.6, 1.4, 3.0)], -1)
    return (255 * np.where(count[..., None] >= rounds, 0, bands)).astype(np.uint8)


def main() -> None:
    asked = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    asked.add_argument("--side", type=int, default=512)
    asked.add_argument("--rounds", type=int, default=200)
    asked.add_argument("--device", default=None)
    asked.add_argument("--output", type=Path, default=Path("fractal.png"))
    options = asked.parse_args()
    count = escape(options.rounds, options.side)(*plane(options.side), device=options.device)
    from PIL import Image

    Image.fromarray(picture(count, options.rounds)).save(options.output)
    print(f"{int(count.sum())} steps of {options.side}² points; {options.output}")


if __name__ == "__main__":
    main()
