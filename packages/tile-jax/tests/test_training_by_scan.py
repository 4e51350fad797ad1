"""A transformer whose layers are one scan, and whose batch is a constant of the step, trains as on JAX's own CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Params = Any
STEPS = 3


def block(p: Params, x: Any) -> Any:
    def normal(p: Params, x: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        return centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * p

    q, k, v = (part.reshape(*x.shape[:2], 2, -1) for part in jnp.split(normal(p["n1"], x) @ p["qkv"], 3, -1))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e9)
    x = x + jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v).reshape(x.shape) @ p["o"]
    return x + jax.nn.gelu(normal(p["n2"], x) @ p["up"]) @ p["down"]


def transformer(key: Any) -> tuple[Params, Callable[..., Any]]:
    width, vocabulary, depth = 8, 11, 2
    shapes = {"qkv": (width, 3 * width), "o": (width, width), "up": (width, 16), "down": (16, width)}
    keys = dict(zip((*shapes, "embed", "place"), jax.random.split(key, 6), strict=True))
    layers = {n: jax.random.normal(keys[n], (depth, *s)) * 0.3 for n, s in shapes.items()}
    layers |= {"n1": jnp.ones((depth, width)), "n2": jnp.ones((depth, width))}
    params = {"embed": jax.random.normal(keys["embed"], (vocabulary, width)) * 0.5,
              "place": jax.random.normal(keys["place"], (6, width)) * 0.1, "layers": layers}  # fmt: skip

    def loss(params: Params, x: Any, y: Any) -> Any:
        words = (jnp.abs(x[:, :7]) * 5).astype(jnp.int32) % vocabulary
        h = params["embed"][words[:, :-1]] + params["place"]
        h, _ = lax.scan(lambda h, p: (block(p, h), None), h, params["layers"])
        scores = jax.nn.log_softmax(h @ params["embed"].T)
        return -jnp.take_along_axis(scores, words[:, 1:, None], -1).mean() + 0.0 * y.sum()

    return params, loss


def adam(params: Params, slopes: Params, state: tuple[Params, Params, Any]) -> tuple[Params, Any]:
    """As optax has it."""
    first, second, count = state
    count = count + 1
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, slopes)
    second = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, second, slopes)

    def moved(p: Any, m: Any, v: Any) -> Any:
        return p - 0.02 * (m / (1 - 0.9**count)) / (jnp.sqrt(v / (1 - 0.99**count)) + 1e-6)

    return jax.tree.map(moved, params, first, second), (first, second, count)


def losses(network: Callable[..., Any], width: int, device: Any) -> list[float]:
    with jax.default_device(jax.devices("cpu")[0]):
        params, loss = network(jax.random.PRNGKey(0))
        zeros = jax.tree.map(jnp.zeros_like, params)
        state = (zeros, zeros, jnp.float32(0))
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((12, width)).astype(np.float32), rng.integers(0, 4, 12).astype(np.int32)
    params, state, x, y = jax.device_put((params, state, x, y), device)

    @jax.jit
    def step(params: Params, state: Any) -> Any:
        value, slopes = jax.value_and_grad(loss)(params, x, y)
        return value, *adam(params, slopes, state)

    found: list[float] = []
    for _ in range(STEPS):
        value, params, state = step(params, state)
        found.append(float(value))
    return found


def test_losses_follow_those_of_jax() -> None:
    wanted, got = (losses(transformer, 8, jax.devices(platform)[0]) for platform in ("cpu", "tile"))
    assert wanted[-1] < wanted[0]
    np.testing.assert_allclose(got, wanted, rtol=1e-4)
