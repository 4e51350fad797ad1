"""JAX on Tile's devices beside JAX's own CPU: the cost of a call, and networks, forward and a step of training.

    python integration/bench/jax_models.py [--device llvm] [--seconds 4] [--cases call,block]

Calls of the two are interleaved; a line gives the least time of each, and Tile's share of JAX's speed (above 1 is faster).
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np


def step(network: Any) -> Callable[..., Any]:
    """A step of gradient descent."""
    import jax

    def run(params: Any, *batch: Any) -> Any:
        grads = jax.grad(network.loss)(params, *batch)
        return jax.tree.map(lambda p, g: p - 0.01 * g, params, grads)

    return run


def newton(numbers: Any) -> Any:
    """Roots of numbers by Newton's steps, until all are short: data says how many."""
    import jax
    import jax.numpy as jnp

    def step(state: Any) -> Any:
        root, _ = state
        better = 0.5 * (root + numbers / root)
        return better, jnp.max(jnp.abs(better - root))

    return jax.lax.while_loop(lambda s: s[1] > 1e-6, step, (numbers, jnp.float32(jnp.inf)))[0]


def rotated(numbers: Any, count: Any) -> Any:
    """So many rounds as an argument says."""
    import jax
    import jax.numpy as jnp

    def step(_: Any, x: Any) -> Any:
        return jnp.tanh(x @ numbers) * 0.5

    return jax.lax.fori_loop(0, count, step, numbers)


def cases() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Functions and their arguments, by name."""
    import jax.numpy as jnp
    from jax_networks import block, cnn, layer, mlp, transformer

    rng = np.random.default_rng(0)
    small, large = np.ones((8, 8), np.float32), np.float32(1e9)
    x = rng.normal(size=(4, 128, 256)).astype(np.float32)
    image, words, rows = cnn(16, 28, 16), transformer(128, 4, 2, 1000, 64), mlp(64, 256, 256)
    return {
        "call of a small function": (lambda a: jnp.tanh(a) + 1, (small,)),
        "loop that data ends": (newton, (small * large,)),
        "loop of 500 rounds that data ends": (rotated, (small, np.int32(500))),
        "transformer block": (lambda x, p: block(p, x, 8), (x, layer(rng, 256))),
        "convolutional network": (image.loss, (image.params, *image.batch)),
        "convolutional network, training": (step(image), (image.params, *image.batch)),
        "transformer, training": (step(words), (words.params, *words.batch)),
        "perceptron, training": (step(rows), (rows.params, *rows.batch)),
    }


def least(function: Callable[..., Any], arguments: dict[str, Any], seconds: float) -> dict[str, float]:
    """The least time of a call on each platform, in turns."""
    import jax

    times = dict.fromkeys(arguments, float("inf"))
    for given in arguments.values():
        jax.block_until_ready(function(*given))
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for platform, given in arguments.items():
            start = time.perf_counter()
            jax.block_until_ready(function(*given))
            times[platform] = min(times[platform], time.perf_counter() - start)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="llvm")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--cases", default="", help="parts of names, with commas")
    options = parser.parse_args()
    os.environ["TILE_JAX_DEVICES"] = options.device

    import jax
    import tile_jax

    tile_jax.register()
    wanted = options.cases.split(",")
    print(f"{'':34}{'tile':>12}{'jax cpu':>12}{'ratio':>8}")
    for name, (function, arguments) in cases().items():
        if not any(part in name for part in wanted):
            continue
        placed = {p: jax.device_put(arguments, jax.devices(p)[0]) for p in ("tile", "cpu")}
        found = least(jax.jit(function), placed, options.seconds)
        ratio = found["cpu"] / found["tile"]
        print(f"{name:34}{1e6 * found['tile']:9.1f} µs{1e6 * found['cpu']:9.1f} µs{ratio:8.2f}", flush=True)


if __name__ == "__main__":
    main()
