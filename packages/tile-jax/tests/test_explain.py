"""What a function becomes is told with the lines of the program that asked for it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tile_jax
import tile_runtime as tile
from tile_ir.diagnostics import TileError

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def halved(a: jax.Array) -> jax.Array:
    return jax.lax.while_loop(lambda c: c.sum() > 1, lambda c: c * 0.5, jnp.tanh(a))


def test_programs_and_what_the_host_decides() -> None:
    text = tile_jax.explain(halved, X, device="llvm")
    assert text.splitlines()[0].endswith("from 1 array to 2 arrays")
    assert "2. The host goes round as long as a condition that the device computes holds" in text
    assert "The program before it has computed up to" in text
    assert tile_jax.explain(lambda a: a, X) == "Nothing is left to compute: the results are arguments"


def test_kernels_name_the_line_of_the_user() -> None:
    line = halved.__code__.co_firstlineno + 1
    assert f"jit(halved)/tanh at test_explain.py:{line}" in tile_jax.explain(halved, X, device="llvm", kernels=True)


def test_arguments_may_be_where_their_user_put_them() -> None:
    """JAX notes in the module where they are."""
    placed = jax.device_put(X, jax.devices("tile")[0])
    assert tile_jax.explain(halved, placed, device="llvm") == tile_jax.explain(halved, X, device="llvm")


def test_programs_are_for_shapes_alone() -> None:
    found = tile_jax.lower(halved, jax.ShapeDtypeStruct((5, 2), jnp.float32))
    assert [t.shape for t in found.outputs] == [(5, 2)]
    with pytest.raises(TileError, match="TILE-E956"):
        tile_jax.lower(lambda a: a.astype(jnp.int4), X)


def test_profiles_name_the_operations() -> None:
    f = jax.jit(lambda a: jnp.tanh(a @ a.T))
    placed = jax.device_put(X, jax.devices("tile")[0])
    f(placed)
    with tile.profile() as found:
        f(placed).block_until_ready()
    assert "tanh at test_explain.py" in str(found).replace("\n", " ")
