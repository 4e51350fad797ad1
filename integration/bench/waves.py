"""Rows about loops on the device: the 2-d wave equation beside Numba's loop, and what a round costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tile_runtime as tile
from rounds import Contestant

STEP = Path(__file__).parents[1] / "examples" / "wave.tile"
STEPS = 1000
Array = np.ndarray[Any, Any]


def wave(side: int) -> Callable[[bool], Mapping[str, Contestant]]:
    """1000 steps of side², float32, against the same in Numba, on one thread and on all, and in JAX."""

    def prepare(small: bool) -> Mapping[str, Contestant]:
        from peers.loops import waves as on_all
        from peers.loops import waves_alone as alone

        steps = 20 if small else STEPS
        start, run = np.zeros((side, side), np.float32), _membrane(side, steps)
        start[side // 3, side // 3] = 1
        for peer in (alone, on_all):
            np.testing.assert_allclose(run(start, start), peer(start, start, steps), atol=1e-3)
        return {
            "tile": lambda: run(start, start),
            "Numba": lambda: alone(start, start, steps),
            "Numba parallel": lambda: on_all(start, start, steps),
            **_in_jax(start, steps),
        }

    return prepare


def _in_jax(start: Array, steps: int) -> Mapping[str, Contestant]:
    """`jax.lax.fori_loop`, where JAX is installed."""
    try:
        import jax
        import jax.numpy as jnp
    except ModuleNotFoundError:
        return {}

    def step(_: Any, state: Any) -> Any:
        now, last = state
        wide = jnp.pad(now, 1)
        around = wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:]
        return 2 * now - last + np.float32(0.1) * (around - 4 * now), now

    run = jax.jit(lambda u, p: jax.lax.fori_loop(0, steps, step, (u, p))[0], backend="cpu")
    np.testing.assert_allclose(
        np.asarray(run(start, start)), _membrane(*start.shape[:1], steps)(start, start), atol=1e-3
    )
    return {"JAX": lambda: run(start, start).block_until_ready()}


def _membrane(side: int, steps: int) -> Callable[..., Array]:
    step = tile.Function.from_file(STEP)
    u, p = (tile.placeholder("float32", (side, side), name) for name in ("u", "p"))
    return tile.compose([u, p], [tile.repeat(lambda state: (step(*state), state[0]), (u, p), steps)[0]])


def trivial(small: bool) -> Mapping[str, Contestant]:
    """10⁴ rounds of one operation on eight elements: all of it is the loop."""
    x = tile.placeholder("float32", (8,), "x")
    half = tile.Function("function (A) -> (B) { B = A * 0.5 + 1; }")
    run = tile.compose([x], [tile.repeat(half, x, 100 if small else 10_000)])
    ones = np.ones(8, np.float32)
    return {"tile": lambda: run(ones)}
