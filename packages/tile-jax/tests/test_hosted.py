"""What the host computes between device programs: decompositions against JAX's own CPU, and callbacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tile_jax
from jax.experimental import io_callback
from jax.scipy import linalg

HERE, THERE = jax.devices("tile")[0], jax.devices("cpu")[0]
RANDOM = np.random.default_rng(0)
SQUARE = RANDOM.standard_normal((2, 5, 5)).astype(np.float32)
HIGH = RANDOM.standard_normal((2, 6, 4)).astype(np.float32)
SYMMETRIC = SQUARE @ SQUARE.swapaxes(-1, -2) + np.eye(5, dtype=np.float32)
TYPE = jax.ShapeDtypeStruct((5,), np.float32)

FUNCTIONS: dict[str, Callable[[], Any]] = {
    "eigvalsh": lambda: jnp.linalg.eigvalsh(SYMMETRIC),
    "eigh": lambda: jnp.linalg.eigh(SYMMETRIC[0])[0],
    "svd": lambda: jnp.linalg.svd(HIGH, compute_uv=False),
    "singular values of one that is low": lambda: jnp.linalg.svd(HIGH.swapaxes(-1, -2))[1],
    "pinv": lambda: jnp.linalg.pinv(HIGH),
    "lstsq": lambda: jnp.linalg.lstsq(HIGH[0], HIGH[0][:, :2])[0],
    "rank": lambda: jnp.linalg.matrix_rank(SQUARE),
    "norm": lambda: jnp.linalg.norm(SQUARE[0], 2),
    "schur": lambda: linalg.schur(SQUARE[0]),
    "hessenberg": lambda: linalg.hessenberg(SQUARE[0], calc_q=True),
    "tridiagonal": lambda: jax.lax.linalg.tridiagonal(SYMMETRIC)[1],
    "of nothing": lambda: jnp.linalg.eigvalsh(SYMMETRIC[:0]),
    "of what is not finite": lambda: jnp.linalg.eigvalsh(np.stack([SYMMETRIC[0], np.full((5, 5), np.nan, np.float32)])),
    "gradient of svd": lambda: jax.grad(lambda x: jnp.linalg.svd(x, compute_uv=False).sum())(HIGH[0]),
    "gradient of eigh": lambda: jax.grad(lambda x: jnp.linalg.eigh(x)[0][0])(SYMMETRIC[0]),
    "nearly the largest": lambda: (jax.lax.approx_max_k(HIGH, 2, 1), jax.lax.approx_min_k(HIGH, 3)),
    "in a loop": lambda: jax.lax.scan(lambda c, m: (c + jnp.linalg.eigvalsh(m @ m.T)[0], c), jnp.float32(0), HIGH),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_decompositions_are_those_of_the_cpu(name: str) -> None:
    with jax.default_device(THERE):
        expected = jax.tree.leaves(FUNCTIONS[name]())
    with jax.default_device(HERE):
        found = jax.tree.leaves(FUNCTIONS[name]())
    for one, other in zip(found, expected, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5)


def test_vectors_make_up_the_matrix() -> None:
    with jax.default_device(HERE):
        left, values, right = jnp.linalg.svd(HIGH, full_matrices=False)
        np.testing.assert_allclose((left * values[:, None]) @ right, HIGH, atol=1e-5)
        values, vectors = jnp.linalg.eigh(SYMMETRIC, UPLO="U")
        np.testing.assert_allclose(SYMMETRIC @ vectors, vectors * values[:, None], atol=1e-4)


def test_explain_says_what_the_host_computes() -> None:
    found = tile_jax.explain(lambda x: jnp.linalg.eigh(x + 1)[0] * 2, SYMMETRIC[0], device="llvm")
    assert "2. The host computes eigh, from 1 array to 2 arrays" in found


# --- callbacks ---------------------------------------------------------------------------------------------


def sine(x: Any) -> Any:
    return jax.pure_callback(lambda v: np.sin(v), TYPE, x, vmap_method="sequential")


ROW = SQUARE[0, 0]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: sine(x + 1) * 2, lambda x: np.sin(x + 1) * 2),
        (lambda x: jax.lax.scan(lambda c, _: (sine(c), None), x, None, 3)[0], lambda x: np.sin(np.sin(np.sin(x)))),
        (lambda x: jax.lax.cond(x.sum() > 1e9, sine, lambda y: y, x), lambda x: x),
        (lambda x: jax.vmap(sine)(jnp.stack([x, x + 1])), lambda x: np.sin(np.stack([x, x + 1]))),
    ],
)
def test_pure_callbacks(function: Callable[[Any], Any], expected: Callable[[Any], Any]) -> None:
    with jax.default_device(HERE):
        np.testing.assert_allclose(jax.jit(function)(ROW), expected(ROW), rtol=1e-5)


@pytest.mark.parametrize("ordered", [False, True])
def test_callbacks_with_effects_run_each_time_in_order(ordered: bool) -> None:
    seen: list[Any] = []

    def counted(value: Any) -> Any:
        seen.append(int(value))
        return np.int32(value * 2)

    def body(k: Any, total: Any) -> Any:
        jax.debug.callback(lambda v: seen.append(-int(v)), k, ordered=ordered)
        return total + io_callback(counted, jax.ShapeDtypeStruct((), np.int32), k, ordered=ordered)

    with jax.default_device(HERE):
        function = jax.jit(lambda n: jax.lax.fori_loop(0, n, body, 0))
        assert int(function(3)) == 6
        assert int(function(2)) == 2
    jax.effects_barrier()
    assert seen == [0, 0, -1, 1, -2, 2, 0, 0, -1, 1]


def test_print_shows_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    with jax.default_device(HERE):
        jax.jit(lambda x: (jax.debug.print("sum {s} of {n}", s=x.sum(), n=x.size), x)[1])(jnp.ones(4))
    jax.effects_barrier()
    assert capsys.readouterr().out == "sum 4.0 of 4\n"


def test_what_a_callback_gives_is_checked_and_what_it_raises_is_told() -> None:
    wrong = jax.jit(lambda x: jax.pure_callback(lambda v: np.zeros(3, np.float32), TYPE, x))
    with jax.default_device(HERE), pytest.raises(jax.errors.JaxRuntimeError, match=r"a callback gave float32\[3\]"):
        wrong(ROW)
    failing = jax.jit(lambda x: jax.pure_callback(lambda v: 1 // 0, TYPE, x))
    with jax.default_device(HERE), pytest.raises(jax.errors.JaxRuntimeError, match="ZeroDivisionError"):
        failing(ROW)
