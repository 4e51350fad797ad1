"""Networks as a user of JAX writes them by hand: parameters, a batch, and a loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True)
class Network:
    """`loss(params, *batch)` is a number."""

    params: Any
    batch: tuple[Any, ...]
    loss: Callable[..., jax.Array]


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1)
    return -jnp.mean(chosen)


def _normal(rng: np.random.Generator, *shape: int, scale: float = 0.1) -> np.ndarray[Any, Any]:
    return rng.normal(0, scale, shape).astype(np.float32)


def mlp(inputs: int = 8, hidden: int = 32, rows: int = 64) -> Network:
    rng = np.random.default_rng(0)
    params = [(_normal(rng, a, b, scale=0.3), np.zeros(b, np.float32)) for a, b in ((inputs, hidden), (hidden, 4))]

    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        (w, b), (v, c) = params
        return cross_entropy(jax.nn.relu(x @ w + b) @ v + c, y)

    return Network(params, (_normal(rng, rows, inputs, scale=1), rng.integers(0, 4, rows)), loss)


def _convolved(x: jax.Array, w: jax.Array) -> jax.Array:
    return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def _pooled(x: jax.Array) -> jax.Array:
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def cnn(rows: int = 8, size: int = 12, channels: int = 8) -> Network:
    rng = np.random.default_rng(1)
    shapes = ((3, 3, 1, channels), (3, 3, channels, 2 * channels))
    dense = _normal(rng, 2 * channels * (size // 4) ** 2, 10)
    params = ([_normal(rng, *s, scale=0.2) for s in shapes], dense)

    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        for w in params[0]:
            x = _pooled(jax.nn.relu(_convolved(x, w)))
        return cross_entropy(x.reshape(x.shape[0], -1) @ params[1], y)

    return Network(params, (_normal(rng, rows, size, size, 1, scale=1), rng.integers(0, 10, rows)), loss)


def _normalised(x: jax.Array, g: jax.Array) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * g


def attention(x: jax.Array, qkv: jax.Array, out: jax.Array, heads: int) -> jax.Array:
    batch, length, width = x.shape
    parts = (a.reshape(batch, length, heads, -1).transpose(0, 2, 1, 3) for a in jnp.split(x @ qkv, 3, -1))
    q, k, v = parts
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(width // heads)
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
    return (jax.nn.softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(x.shape) @ out


def block(layer: Any, x: jax.Array, heads: int) -> jax.Array:
    x = x + attention(_normalised(x, layer["g1"]), layer["qkv"], layer["out"], heads)
    return x + jax.nn.gelu(_normalised(x, layer["g2"]) @ layer["up"]) @ layer["down"]


def layer(rng: np.random.Generator, width: int) -> Any:
    shapes = {"qkv": (width, 3 * width), "out": (width, width), "up": (width, 4 * width), "down": (4 * width, width)}
    return {n: _normal(rng, *s) for n, s in shapes.items()} | {g: np.ones(width, np.float32) for g in ("g1", "g2")}


def transformer(width: int = 16, heads: int = 2, layers: int = 1, words: int = 20, length: int = 8) -> Network:
    rng = np.random.default_rng(2)
    params = {
        "words": _normal(rng, words, width),
        "places": _normal(rng, length, width),
        "layers": [layer(rng, width) for _ in range(layers)],
    }

    def loss(params: Any, text: jax.Array) -> jax.Array:
        x = params["words"][text[:, :-1]] + params["places"]
        for own in params["layers"]:
            x = block(own, x, heads)
        return cross_entropy(x @ params["words"].T, text[:, 1:])

    return Network(params, (rng.integers(0, words, (4, length + 1)).astype(np.int32),), loss)


NETWORKS: dict[str, Callable[[], Network]] = {
    "mlp": mlp,
    "cnn": cnn,
    "transformer": transformer,
    "tiny": partial(mlp, 3, 4, 5),
}
