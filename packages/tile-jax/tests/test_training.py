"""Networks written by hand train on Tile's devices as on JAX's own CPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

TILE = jax.devices("tile")
Params = Any
STEPS = 20


def normal(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> np.ndarray[Any, Any]:
    return rng.normal(0, scale, shape).astype(np.float32)


def dense(rng: np.random.Generator, rows: int, columns: int) -> Params:
    return {"w": normal(rng, rows, columns, scale=rows**-0.5), "b": np.zeros(columns, np.float32)}


def layer(p: Params, x: Any) -> Any:
    return x @ p["w"] + p["b"]


# --- an MLP, with momentum ----------------------------------------------------------------------------------


def mlp(rng: np.random.Generator) -> tuple[Params, Callable[..., Any]]:
    params = [dense(rng, a, b) for a, b in ((8, 16), (16, 16), (16, 4))]

    def loss(params: Params, x: Any, y: Any) -> Any:
        for p in params[:-1]:
            x = jax.nn.relu(layer(p, x))
        return -jnp.mean(jnp.sum(jax.nn.log_softmax(layer(params[-1], x)) * jax.nn.one_hot(y, 4), -1))

    return params, loss


# --- a convolutional network: batch statistics, pools -------------------------------------------------------


def cnn(rng: np.random.Generator) -> tuple[Params, Callable[..., Any]]:
    params = {
        "c1": normal(rng, 3, 3, 2, 6, scale=0.25), "c2": normal(rng, 3, 3, 3, 6, scale=0.25),
        "scale": np.ones(6, np.float32), "shift": np.zeros(6, np.float32), "out": dense(rng, 6, 4),
    }  # fmt: skip
    numbers = ("NHWC", "HWIO", "NHWC")

    def loss(params: Params, x: Any, y: Any) -> Any:
        x = lax.conv_general_dilated(x.reshape(-1, 8, 8, 2), params["c1"], (1, 1), "SAME", dimension_numbers=numbers)
        mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))
        x = jax.nn.relu((x - mean) * lax.rsqrt(var + 1e-5) * params["scale"] + params["shift"])
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "SAME")
        x = lax.conv_general_dilated(x, params["c2"], (2, 2), "SAME", dimension_numbers=numbers, feature_group_count=2)
        x = layer(params["out"], jax.nn.gelu(x).mean((1, 2)))
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1))

    return params, loss


# --- a transformer: embeddings, causal attention, layers in a scan ------------------------------------------


def block(p: Params, x: Any) -> Any:
    def normalised(p: Params, x: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        return centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * p

    q, k, v = (part.reshape(*x.shape[:2], 2, -1) for part in jnp.split(normalised(p["n1"], x) @ p["qkv"], 3, -1))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e9)
    x = x + jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v).reshape(x.shape) @ p["o"]
    return x + jax.nn.gelu(normalised(p["n2"], x) @ p["up"]) @ p["down"]


def transformer(rng: np.random.Generator) -> tuple[Params, Callable[..., Any]]:
    width, vocabulary, depth = 8, 11, 2
    shapes = {"qkv": (width, 3 * width), "o": (width, width), "up": (width, 16), "down": (16, width)}
    layers = {n: normal(rng, depth, *s, scale=0.3) for n, s in shapes.items()}
    layers |= {n: np.ones((depth, width), np.float32) for n in ("n1", "n2")}
    params = {
        "embed": normal(rng, vocabulary, width, scale=0.5), "place": normal(rng, 6, width, scale=0.1), "layers": layers,
    }  # fmt: skip

    def loss(params: Params, x: Any, y: Any) -> Any:
        words = (jnp.abs(x[:, :7]) * 5).astype(jnp.int32) % vocabulary
        h = params["embed"][words[:, :-1]] + params["place"]
        h, _ = lax.scan(lambda h, p: (block(p, h), None), h, params["layers"])
        scores = jax.nn.log_softmax(h @ params["embed"].T)
        return -jnp.take_along_axis(scores, words[:, 1:, None], -1).mean() + 0.0 * y.sum()

    return params, loss


# --- updates ------------------------------------------------------------------------------------------------


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
    params, loss = network(np.random.default_rng(0))
    zeros = jax.tree.map(np.zeros_like, params)
    state = (zeros, zeros, np.float32(0))
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


NETWORKS = {"mlp": (mlp, 8), "cnn": (cnn, 128), "transformer": (transformer, 8)}


@pytest.mark.parametrize("name", NETWORKS)
def test_losses_follow_those_of_jax(name: str) -> None:
    follow = partial(losses, *NETWORKS[name])
    wanted, got = follow(jax.devices("cpu")[0]), follow(TILE[0])
    assert wanted[-1] < wanted[0]
    np.testing.assert_allclose(got, wanted, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(2, len(TILE)), ids=[TILE[k].device_kind for k in range(2, len(TILE))])
@pytest.mark.parametrize("name", NETWORKS)
def test_losses_on_every_device(name: str, number: int) -> None:
    follow = partial(losses, *NETWORKS[name])
    np.testing.assert_allclose(follow(TILE[number]), follow(jax.devices("cpu")[0]), rtol=1e-4)
