"""The 2-d wave equation: a thousand steps as one program, a picture of the last, and the gradient of a measurement.

python membrane.py [--side 128] [--steps 400] [--device llvm] [--output membrane.png]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import tile_runtime as tile

Array = np.ndarray[Any, Any]

STEP = tile.Function.from_file(Path(__file__).parent / "wave.tile")
MISFIT = tile.Function("function (U[N, M], D[N, M]) -> (L) { Q = (U - D) * (U - D); L[] = +(Q[i, j]); }", "misfit.tile")


def waves(side: int, steps: int) -> Any:
    """The membrane after `steps` steps, from its displacement now and one step ago; float32 [side, side] all."""
    u, p = (tile.placeholder("float32", (side, side), name) for name in ("u", "p"))
    new, _ = tile.repeat(lambda state: (STEP(*state), state[0]), (u, p), steps, checkpoint=32)
    return tile.compose([u, p], {"u": new})


def drop(side: int) -> Array:
    """A round displacement in the upper left quarter."""
    x, y = np.mgrid[:side, :side] / side - 0.3
    return np.exp(-(x * x + y * y) * 800).astype(np.float32)


def misfit(side: int, steps: int) -> Any:
    """How far the membrane is from a measurement d after so many steps, for `tile.vjp`."""
    u, d = (tile.placeholder("float32", (side, side), name) for name in ("u", "d"))
    return tile.compose([u, d], {"loss": MISFIT(waves(side, steps)(u, u), d)})


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--side", type=int, default=128)
    asked.add_argument("--steps", type=int, default=400)
    asked.add_argument("--device", default=None)
    asked.add_argument("--output", type=Path)
    options = asked.parse_args()
    run, start = waves(options.side, options.steps), drop(options.side)
    run(start, start, device=options.device)
    begin = time.perf_counter()
    after = run(start, start, device=options.device)
    print(
        f"{options.steps} steps of {options.side}²: {1e6 * (time.perf_counter() - begin) / options.steps:.2f} µs a step"
    )
    pull = tile.vjp(misfit(options.side, options.steps), wrt="u")
    slope = pull(np.zeros_like(start), after, np.float32(1), device=options.device)
    place = np.unravel_index(np.argmax(-slope), slope.shape)
    print(
        f"from the last picture alone, the drop is sought at {tuple(map(int, place))}; it fell at {(int(0.3 * options.side),) * 2}"
    )
    if options.output is not None:
        from PIL import Image

        grey = 255 * (after - after.min()) / np.ptp(after)
        Image.fromarray(grey.astype(np.uint8)).save(options.output)


if __name__ == "__main__":
    main()
