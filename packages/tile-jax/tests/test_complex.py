"""Complex numbers, whose parts Tile computes with, and transforms of Fourier: against JAX's own CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tile_jax
from tile_ir.diagnostics import TileError

HERE, THERE = jax.devices("tile")[0], jax.devices("cpu")[0]
RANDOM = np.random.default_rng(0)
REAL = RANDOM.standard_normal((3, 6)).astype(np.float32)
Z = (REAL + 1j * RANDOM.standard_normal((3, 6))).astype(np.complex64)
W = (RANDOM.standard_normal((3, 6)) + 1j * REAL).astype(np.complex64)
TIES = np.round(Z)
MANY = np.arange(200, dtype=np.float32).view(np.complex64)
ODD = np.array([0, np.inf, complex(np.nan, 1), complex(0, -np.inf), 1e30 + 1e30j, 1e-30j], np.complex64)


def rotated(z: Any, n: Any) -> Any:
    return jax.lax.while_loop(lambda s: s[1] > 0, lambda s: (s[0] * 1j, s[1] - 1), (z, n))[0]


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "arithmetic": lambda: (jnp.asarray(Z) + W, Z - jnp.asarray(W), -jnp.asarray(Z), jnp.asarray(Z) * W, jnp.asarray(Z) / W),
    "with numbers": lambda: jnp.asarray(Z) * (2 - 1j) + 3,
    "with real ones": lambda: jnp.asarray(REAL) * Z + jnp.complex64(1j),
    "parts": lambda: (jnp.real(Z), jnp.imag(Z), jnp.conj(Z), jnp.abs(Z), jnp.angle(Z), jax.lax.complex(REAL, REAL)),
    "functions": lambda: tuple(f(Z) for f in (jnp.exp, jnp.log, jnp.sqrt, jnp.log1p, jnp.expm1, jnp.sign, jnp.square)),
    "angles": lambda: tuple(f(Z) for f in (jnp.sin, jnp.cos, jnp.tan, jnp.sinh, jnp.cosh, jnp.tanh)),
    "inverse angles": lambda: jnp.arcsin(Z),
    "powers": lambda: (jnp.asarray(Z) ** 3, jnp.asarray(Z) ** W, jax.nn.sigmoid(jnp.asarray(Z)), jnp.reciprocal(Z)),
    "of what is not finite": lambda: (jnp.abs(ODD), jnp.isfinite(ODD), jnp.isnan(ODD)),
    "comparisons": lambda: (jnp.asarray(Z) == Z, jnp.asarray(Z) != W, jnp.where(REAL > 0, Z, W)),
    "products": lambda: (jnp.matmul(Z, W.T), jnp.einsum("ab,cb->ac", Z, jnp.conj(W)), jnp.vdot(Z, W)),
    "moves": lambda: (jnp.asarray(Z).T.reshape(-1), jnp.flip(Z, 1), jnp.roll(Z, 2, 1), jnp.pad(Z, 1), jnp.tile(Z, 2)),
    "parts of it": lambda: (jnp.asarray(Z)[1, ::2], jnp.asarray(Z)[np.array([2, 0])], jnp.concatenate([Z, W], 1), jnp.stack([Z, W])),
    "writes": lambda: (jnp.asarray(Z).at[1].set(2j), jnp.asarray(Z).at[np.array([0, 0])].add(W[:2])),
    "sums": lambda: (jnp.sum(Z, 0), jnp.mean(Z), jnp.cumsum(Z, 1), jnp.trace(Z)),
    "multiplied": lambda: (jnp.prod(Z), jnp.prod(Z, 1), jnp.prod(jnp.asarray(Z)[:, :0], 1), jnp.cumprod(Z, 1)),
    "multiplied and added": lambda: jax.lax.reduce(
        (Z, REAL), (np.complex64(1), np.float32(0)), lambda a, b: (a[0] * b[0], a[1] + b[1]), (0,)
    ),
    "sorts": lambda: (jnp.sort(TIES), jnp.argsort(TIES, 0), jax.lax.sort((REAL, Z), num_keys=1)),
    "loops": lambda: (rotated(jnp.asarray(Z), 3), jax.lax.fori_loop(0, 3, lambda k, z: z * 1j + k, jnp.asarray(Z))),
    "scans": lambda: jax.lax.scan(lambda c, z: (c * z, c + z), jnp.complex64(1), jnp.asarray(Z)[0]),
    "choices": lambda: jax.lax.cond(jnp.asarray(REAL).sum() > 0, lambda z: z @ z.T, lambda z: (z * 1j) @ z.T, jnp.asarray(Z)),
    "many constants": lambda: jax.jit(lambda x: x * MANY)(jnp.float32(2)),
    "odd constants": lambda: jax.jit(lambda x: x + ODD[:2])(jnp.float32(2)),
    "gradients": lambda: jax.grad(lambda x: jnp.sum(jnp.abs(jnp.exp(1j * x) * Z + x) ** 2))(jnp.asarray(REAL)),
    "transforms": lambda: (jnp.fft.fft(Z), jnp.fft.ifft(Z, axis=0), jnp.fft.fft2(Z), jnp.fft.fftshift(jnp.fft.fft(REAL))),
    "transforms of real ones": lambda: (jnp.fft.rfft(REAL), jnp.fft.irfft(Z, 9), jnp.fft.rfft2(REAL), jnp.fft.irfft2(Z, (3, 9))),
    "gradients of transforms": lambda: jax.grad(lambda x: jnp.sum(jnp.abs(jnp.fft.rfft(x)) ** 3))(jnp.asarray(REAL)),
    "a filter": lambda: jax.vmap(lambda x: jnp.fft.irfft(jnp.fft.rfft(x) * jnp.exp(-jnp.arange(4.0)), 6))(jnp.asarray(REAL)),
    "eigenvalues": lambda: jnp.linalg.eigvals(REAL[:, :3]),
    "hermitian": lambda: jnp.linalg.eigvalsh(Z @ Z.conj().T),
    "singular values": lambda: jnp.linalg.svd(Z, compute_uv=False),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_complex_numbers_are_those_of_the_cpu(name: str) -> None:
    with jax.default_device(THERE):
        expected = jax.tree.leaves(FUNCTIONS[name]())
    with jax.default_device(HERE):
        found = jax.tree.leaves(jax.jit(FUNCTIONS[name])())
    for one, other in zip(found, expected, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        size = np.max(np.abs(other), where=np.isfinite(other), initial=1e-6)
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5 * size)


@pytest.mark.parametrize("given", [Z, Z.T, Z[::2, ::-1], Z[0, 0], Z[:0], MANY])
def test_arrays_go_there_and_back(given: Any) -> None:
    placed = jax.device_put(given, HERE)
    assert (placed.dtype, placed.shape) == (np.complex64, given.shape)
    np.testing.assert_array_equal(placed, given)
    np.testing.assert_array_equal(jax.device_put(placed, jax.devices("tile")[-1]), given)
    np.testing.assert_array_equal(jax.device_put(placed, THERE), given)


def test_what_the_host_transforms_is_told() -> None:
    found = tile_jax.explain(lambda x: jnp.abs(jnp.fft.rfft(x * 2)), REAL, device="llvm")
    assert "2. The host computes rfft, from 1 array to 1 array" in found


def test_what_has_no_form_is_refused_by_name() -> None:
    with pytest.raises(TileError, match=r"stablehlo\.scatter .*its region is no sum"):
        tile_jax.lower(lambda z: z.at[np.array([0, 0])].multiply(2j), Z)
