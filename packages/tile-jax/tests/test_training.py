"""Networks that train as on JAX's own CPU: every loss of 20 steps is within 1e-4 of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from networks import NETWORKS, Network

STEPS = 20


def sgd(params: Any, state: Any, grads: Any, t: Any) -> tuple[Any, Any]:
    return jax.tree.map(lambda p, g: p - 0.05 * g, params, grads), state


def adam(params: Any, state: Any, grads: Any, t: Any) -> tuple[Any, Any]:
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state[0], grads)
    v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, state[1], grads)

    def moved(p: jax.Array, m: jax.Array, v: jax.Array) -> jax.Array:
        return p - 1e-2 * (m / (1 - 0.9**t)) / (jnp.sqrt(v / (1 - 0.999**t)) + 1e-8)

    return jax.tree.map(moved, params, m, v), (m, v)


def losses(network: Network, update: Callable[..., Any], device: jax.Device) -> list[float]:
    """The loss of every step; parameters and the optimizer's state are donated."""

    def step(params: Any, state: Any, t: Any, batch: Any) -> tuple[Any, Any, jax.Array]:
        loss, grads = jax.value_and_grad(network.loss)(params, *batch)
        return *update(params, state, grads, t), loss

    run = jax.jit(step, donate_argnums=(0, 1))
    zeros = jax.tree.map(np.zeros_like, network.params)
    params, state, batch = jax.device_put((network.params, (zeros, zeros), network.batch), device)
    found: list[float] = []
    for k in range(STEPS):
        params, state, loss = run(params, state, jax.device_put(np.float32(k + 1), device), batch)
        found.append(float(loss))
    return found


@pytest.mark.parametrize(("name", "update"), [("mlp", sgd), ("cnn", sgd), ("transformer", adam)])
def test_training_follows_jax(name: str, update: Callable[..., Any]) -> None:
    network = NETWORKS[name]()
    ours, theirs = (losses(network, update, jax.devices(p)[0]) for p in ("tile", "cpu"))
    assert theirs[-1] < 0.9 * theirs[0]
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)


@pytest.mark.parametrize("number", [2, 3], ids=["interp", "sample"])
def test_training_on_other_devices(number: int) -> None:
    network = NETWORKS["tiny"]()
    ours = losses(network, sgd, jax.devices("tile")[number])
    np.testing.assert_allclose(ours, losses(network, sgd, jax.devices("cpu")[0]), rtol=1e-4)
