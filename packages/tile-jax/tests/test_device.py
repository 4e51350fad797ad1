"""The device as JAX sees it."""

from __future__ import annotations

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from conftest import DEVICES

TILE = jax.devices("tile")


def layer(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.tanh(a @ b) * 2 + 1


def test_every_device_that_was_named_is_there() -> None:
    assert [d.platform for d in TILE] == ["tile"] * len(DEVICES)
    assert [d.device_kind for d in TILE] == [f"{name}:0" for name in DEVICES]
    assert [d.id for d in TILE] == list(range(len(DEVICES)))
    assert jax.default_backend() == "cpu"


@pytest.mark.parametrize("number", range(1, len(DEVICES)), ids=DEVICES[1:])
def test_a_program_runs_on_every_device(number: int) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random((3, 4), np.float32), rng.random((4, 5), np.float32)
    placed = [jax.device_put(x, TILE[number]) for x in (a, b)]
    made = jax.jit(layer)(*placed)
    assert made.devices() == {TILE[number]}
    np.testing.assert_allclose(np.asarray(made), np.tanh(a @ b) * 2 + 1, rtol=1e-5)


def test_the_process_ends_by_itself() -> None:
    program = """
import tile_jax; tile_jax.register(default=True)
import jax, jax.numpy as jnp, numpy as np
x = jax.jit(lambda x: jnp.tanh(x) + 1)(np.ones(3, np.float32))
print(jax.default_backend(), x.devices())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("tile {TILE_0(")
