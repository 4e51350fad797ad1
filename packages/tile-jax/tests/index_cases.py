"""Random cases of gathers, scatters, slices that begin where data says, and branches and loops."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from drawing import ALL, FLOATS, NUMBERS, Case, Rng, anything, array, family, full_shape, loose, pick
from jax import lax


def _cut(rng: Rng, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Sizes of a window, which often is as long as an axis, or one cell."""
    return tuple(int(rng.choice([1, n, int(rng.integers(1, n + 1))])) for n in sizes)


def _split(rng: Rng, rank: int, window: tuple[int, ...]) -> tuple[list[int], list[int], list[int]]:
    """Axes of the operand that are collapsed, that go with the indices' batch (one at most), and that data places."""
    stacked = [int(rng.integers(rank))] if rank > 1 and rng.random() < 0.3 else []
    collapsed = [k for k in range(rank) if k not in stacked and window[k] == 1 and rng.random() < 0.6]
    placed = [k for k in range(rank) if k not in stacked and rng.random() < 0.7]
    rng.shuffle(placed)
    return collapsed, stacked, placed


@family
def gathers(rng: Rng) -> Case:
    """Any dimension numbers; places in front of and behind the operand are clamped."""
    sizes = full_shape(rng, 1, 3)
    window = _cut(rng, sizes)
    collapsed, stacked, placed = _split(rng, len(sizes), window)
    window = tuple(1 if k in stacked else n for k, n in enumerate(window))
    batch = [sizes[k] for k in stacked] + [int(n) for n in rng.integers(1, 4, int(rng.integers(0, 3)))]
    kept = len(sizes) - len(collapsed) - len(stacked)
    offsets = sorted(int(k) for k in rng.choice(kept + len(batch), kept, replace=False))
    numbers = lax.GatherDimensionNumbers(
        tuple(offsets), tuple(collapsed), tuple(placed), tuple(stacked), tuple(range(len(stacked)))
    )
    indices = rng.integers(-2, 8, (*batch, len(placed))).astype(pick(rng, ("int32", "int32", "int16")))
    name = pick(rng, ALL)
    return Case(lambda x, i: lax.gather(x, i, numbers, window, mode="clip"), (anything(rng, name, sizes), indices), 0)


@family
def scatters(rng: Rng) -> Case:
    """Any dimension numbers; windows that do not lie inside change nothing."""
    sizes = full_shape(rng, 1, 3)
    window = _cut(rng, sizes)
    inserted, stacked, placed = _split(rng, len(sizes), window)
    batch = [sizes[k] for k in stacked] + [int(n) for n in rng.integers(1, 4, int(rng.integers(0, 3)))]
    if not placed:
        batch = batch[: len(stacked)]  # of windows that nothing places XLA's CPU keeps the last one
    kept = [n for k, n in enumerate(window) if k not in inserted and k not in stacked]
    places = sorted(int(k) for k in rng.choice(len(kept) + len(batch), len(kept), replace=False))
    rest, own = iter(batch), iter(kept)
    updates = [next(own) if k in places else next(rest) for k in range(len(kept) + len(batch))]
    numbers = lax.ScatterDimensionNumbers(
        tuple(places), tuple(inserted), tuple(placed), tuple(stacked), tuple(range(len(stacked)))
    )
    function = pick(
        rng, (lax.scatter, lax.scatter_add, lax.scatter_mul, lax.scatter_max, lax.scatter_min, lax.scatter_sub)
    )
    indices = rng.integers(-1, 6, (*batch, len(placed))).astype(np.int32)
    name = pick(rng, ("float32", "int32", "uint8"))

    def applied(x: Any, i: Any, u: Any) -> Any:
        return function(x, i, u, numbers, mode="drop")

    return Case(applied, (array(rng, name, sizes), indices, array(rng, name, updates)), 1e-4)


@family
def indexing(rng: Rng) -> Case:
    """NumPy's forms."""
    name, number = pick(rng, NUMBERS), int(rng.integers(8))
    rows, columns = rng.integers(-4, 4, 5).astype(np.int32), rng.integers(-5, 5, (3, 1)).astype(np.int32)
    forms: list[Any] = [
        lambda x, i, j: x[i], lambda x, i, j: x[:, j], lambda x, i, j: x[j, i], lambda x, i, j: x[1:, i, ::2],
        lambda x, i, j: jnp.take(x, i, axis=1, mode="wrap"), lambda x, i, j: jnp.take_along_axis(x, j[None], 1, mode="clip"),
        lambda x, i, j: x[..., i[0]], lambda x, i, j: x.at[i].get(mode="fill", fill_value=0),
    ]  # fmt: skip
    if number == 5:
        columns = rng.integers(0, 5, (1, 6)).astype(np.int32)
    return Case(forms[number], (array(rng, name, (4, 5, 6)), rows, columns), 0)


@family
def updating(rng: Rng) -> Case:
    number = int(rng.integers(8))
    rows, columns = rng.integers(-4, 6, 5).astype(np.int32), rng.integers(-5, 5, (3, 1)).astype(np.int32)
    forms: list[Any] = [
        lambda x, i, j: x.at[i].set(1), lambda x, i, j: x.at[:, j].add(x[0, 0, 0]), lambda x, i, j: x.at[j, i].multiply(2),
        lambda x, i, j: x.at[1:, 2].set(3), lambda x, i, j: x.at[i, 1:].max(1), lambda x, i, j: x.at[i[0]].min(0),
        lambda x, i, j: x.at[i, :, 2].add(jnp.arange(5, dtype=x.dtype)), lambda x, i, j: jax.ops.segment_sum(x, jnp.abs(i[:4]), 6),
    ]  # fmt: skip
    return Case(forms[number], (array(rng, pick(rng, ("float32", "int32")), (4, 5, 6)), rows, columns), 1e-5)


@family
def moving_slices(rng: Rng) -> Case:
    name, sizes = pick(rng, ALL), full_shape(rng, 1, 3)
    window = _cut(rng, sizes)
    starts = tuple(np.int32(rng.integers(-2, 7)) for _ in sizes)
    if rng.random() < 0.5:
        return Case(lambda x, *at: lax.dynamic_slice(x, at, window), (anything(rng, name, sizes), *starts), 0)
    update = anything(rng, name, window)
    return Case(lambda x, u, *at: lax.dynamic_update_slice(x, u, at), (anything(rng, name, sizes), update, *starts), 0)


@family
def index_gradients(rng: Rng) -> Case:
    rows = rng.integers(-4, 4, (2, 3)).astype(np.int32)
    forms: list[Any] = [
        lambda x, i: (x[i] ** 2).sum(), lambda x, i: (x.at[i].set(2.0) ** 2).sum(), lambda x, i: (x.at[:, i].add(x[0, 0]) ** 2).sum(),
        lambda x, i: jnp.sort(x, 0)[0].sum() + x.max(), lambda x, i: (lax.dynamic_slice(x, (i[0, 0], 0), (2, 3)) ** 2).sum(),
        lambda x, i: jnp.cumsum(x, 1).max() + jnp.cumprod(x, 0).sum(), lambda x, i: lax.top_k(x, 2)[0].sum(),
    ]  # fmt: skip
    return Case(jax.grad(pick(rng, forms)), (array(rng, "float32", (4, 5)), rows), 4e-5)


@family
def batched(rng: Rng) -> Case:
    """Under vmap."""
    forms: list[Any] = [
        lambda x, i: x[i], lambda x, i: x.at[i].set(0.0), lambda x, i: lax.dynamic_slice(x, (i, 1), (2, 2)), lambda x, i: jnp.sort(x, 1)[0],
        lambda x, i: lax.cond(i > 1, jnp.sin, jnp.cos, x), lambda x, i: lax.dynamic_update_slice(x, x[:1] * 2, (i, 0)),
        lambda x, i: x @ x.T, lambda x, i: lax.fori_loop(0, i, lambda k, c: c * 0.5 + k, x), lambda x, i: jnp.argmax(x) + i,
        lambda x, i: jnp.roll(x, i), lambda x, i: jnp.where(x > i, x, 0.0),
    ]  # fmt: skip
    return Case(
        jax.vmap(pick(rng, forms)), (array(rng, "float32", (3, 4, 5)), rng.integers(0, 6, 3).astype(np.int32)), 4e-5
    )


# --- branches and loops -----------------------------------------------------------------------------------


@family
def branches(rng: Rng) -> Case:
    x, number = array(rng, "float32", full_shape(rng, 1, 2)), np.int32(rng.integers(-1, 5))
    parts: list[Any] = [
        jnp.sin,
        lambda v: v * 2,
        lambda v: jnp.cumsum(v, 0),
        lambda v: v @ v.T @ v if v.ndim == 2 else v - 1,
    ]
    if rng.random() < 0.5:
        return Case(lambda v, i: lax.switch(i, parts, v), (x, number), 4e-5)
    return Case(lambda v, i: lax.cond(i > 1, parts[3], parts[0], v), (x, number), 4e-5)


@family
def loops(rng: Rng) -> Case:
    """How often they go round only data knows."""
    x, count = array(rng, "float32", full_shape(rng, 1, 2), 0.5, 2), np.int32(rng.integers(0, 6))
    forms: list[Any] = [
        lambda v, n: lax.fori_loop(0, n, lambda k, c: c * 0.5 + k, v), lambda v, n: lax.fori_loop(n, 8, lambda k, c: jnp.sin(c) + n, v),
        lambda v, n: lax.while_loop(lambda c: c[0].sum() > 0.1, lambda c: (c[0] * 0.4, c[1] + n), (v, 0)),
        lambda v, n: jax.jit(lambda w: lax.while_loop(lambda c: (c * v).sum() > 0.2, lambda c: c * 0.5, w))(v) + n,
        lambda v, n: lax.fori_loop(0, n, lambda k, c: lax.fori_loop(0, k, lambda j, d: d * 0.5 + j, c), v),
        lambda v, n: lax.fori_loop(0, n, lambda k, c: lax.fori_loop(0, k, lambda j, d: d * 0.5 + j, c) + v * k, v),
        lambda v, n: lax.cond(v.sum() > 0, lambda c: lax.fori_loop(0, n, lambda j, d: d * 0.5, 1.0) + c, lambda c: c * 2, v),
    ]  # fmt: skip
    return Case(pick(rng, forms), (x, count), 4e-5)


@family
def counted_loops(rng: Rng) -> Case:
    rounds, start = int(rng.integers(0, 9)), int(rng.integers(-2, 3))
    x = array(rng, "float32", (3, 4), -1, 1)
    forms: list[Any] = [
        lambda v: lax.fori_loop(start, start + rounds, lambda k, c: jnp.sin(c) * 0.5 + k, v),
        lambda v: lax.fori_loop(0, rounds, lambda k, c: (c[1], c[0] @ c[0].T @ c[1] * 0.1 + c[2], c[2]), (v, v * 2, v)),
        lambda v: lax.fori_loop(0, rounds, lambda k, c: c.at[k % 3].set(c[(k + 1) % 3] * 0.5), v),
        lambda v: lax.fori_loop(0, rounds, lambda k, c: lax.cond(k % 2 == 0, jnp.sin, lambda d: d * 0.5, c), v),
        lambda v: lax.fori_loop(0, rounds, lambda k, c: lax.while_loop(lambda d: d.sum() > 1, lambda d: d * 0.5, c + 1), v),
    ]  # fmt: skip
    return Case(pick(rng, forms), (x,), 4e-5)


@family
def scans(rng: Rng) -> Case:
    """Carries, stacks, rows from both ends, scans within scans, and their gradients."""
    length, reverse = int(rng.integers(1, 9)), bool(rng.random() < 0.5)
    rows, x = array(rng, "float32", (length, 3), -1, 1), array(rng, "float32", (3,), -1, 1)
    forms: list[Any] = [
        lambda c, r: (jnp.tanh(c * 0.5 + r), (c, r.sum())), lambda c, r: (c + r, jnp.outer(c, r)), lambda c, r: (r, c),
        lambda c, r: lax.scan(lambda d, e: (d * 0.5 + e, d), c, r)[::1], lambda c, r: (c, c @ r), lambda c, r: (jnp.sort(c + r), None),
    ]  # fmt: skip
    body = pick(rng, forms)

    def function(c: Any, r: Any) -> Any:
        return lax.scan(body, c, r, reverse=reverse)

    def loss(c: Any, r: Any) -> Any:
        return sum((leaf**2).sum() for leaf in jax.tree.leaves(function(c, r)))

    return Case(jax.grad(loss, argnums=(0, 1)) if rng.random() < 0.5 else function, (x, rows), 2e-4)


@family
def linear_algebra(rng: Rng) -> Case:
    size, more = int(rng.integers(1, 6)), tuple(int(n) for n in rng.integers(1, 3, int(rng.integers(0, 2))))
    x = array(rng, "float32", (*more, size, size), -1, 1)
    square = x @ np.swapaxes(x, -1, -2) + 2 * np.eye(size, dtype=np.float32)
    flags = {name: bool(rng.random() < 0.5) for name in ("left_side", "lower", "transpose_a", "unit_diagonal")}
    forms: list[Any] = [
        lambda a, b: jnp.linalg.cholesky(a), lambda a, b: lax.linalg.triangular_solve(a, b, **flags), lambda a, b: jnp.linalg.solve(a, b),
        lambda a, b: jnp.linalg.inv(a), lambda a, b: jnp.linalg.slogdet(a)[1], lambda a, b: jnp.linalg.cholesky(a, upper=True),
        lambda a, b: jax.scipy.linalg.expm(b * 0.3), lambda a, b: jnp.linalg.matrix_power(b, 3),
    ]  # fmt: skip
    return Case(pick(rng, forms), (square, x), 2e-3)


@family
def random_numbers(rng: Rng) -> Case:
    """JAX's own generator is arithmetic: the numbers are the same everywhere."""
    seed, sizes = np.uint32(rng.integers(1 << 31)), full_shape(rng, 0, 2)
    forms: list[Any] = [
        lambda k: jax.random.uniform(k, sizes), lambda k: jax.random.normal(k, sizes), lambda k: jax.random.randint(k, sizes, -5, 9),
        lambda k: jax.random.bernoulli(k, 0.3, sizes), lambda k: jax.random.permutation(k, 9), lambda k: jax.random.split(k, 3).sum(),
        lambda k: jax.random.categorical(k, jnp.arange(5.0), shape=sizes), lambda k: jax.random.bits(k, sizes, jnp.uint8),
        lambda k: jax.random.truncated_normal(k, -1, 1, sizes), lambda k: jax.random.exponential(k, sizes),
    ]  # fmt: skip
    form = pick(rng, forms)

    def function(seed: Any) -> Any:
        return form(jax.random.PRNGKey(seed))

    return Case(function, (seed,), 4e-5)


@family
def activations(rng: Rng) -> Case:
    functions = (
        jax.nn.softmax,
        jax.nn.log_softmax,
        jax.nn.relu6,
        jax.nn.elu,
        jax.nn.glu,
        jax.nn.leaky_relu,
        jax.nn.standardize,
        jnp.diff,
    )
    function, name = pick(rng, functions), pick(rng, FLOATS)
    return Case(function, (array(rng, name, (3, 8)),), 8 * loose(name))


@family
def numpy_functions(rng: Rng) -> Case:
    forms: list[Any] = [
        lambda x, y: jnp.roll(x, 2, 1), lambda x, y: jnp.kron(x, y), lambda x, y: jnp.convolve(x[0], y[0]), lambda x, y: jnp.tril(x) + jnp.triu(y, 1),
        lambda x, y: jnp.diag(x[0]), lambda x, y: jnp.diagonal(x @ y.T), lambda x, y: jnp.trace(x), lambda x, y: jnp.interp(x, jnp.arange(4.0), y[:, 0]),
        lambda x, y: jnp.meshgrid(x[0], y[1]), lambda x, y: jnp.stack([x, y], 1), lambda x, y: jnp.split(x, 2), lambda x, y: jnp.tile(x, (2, 1)),
        lambda x, y: jnp.repeat(x, 3, 1), lambda x, y: jnp.rot90(x), lambda x, y: jnp.cross(x[:, :3], y[:, :3]), lambda x, y: jnp.trapezoid(x),
        lambda x, y: jnp.nonzero(x > 0, size=5), lambda x, y: jnp.where(x > y, x, y), lambda x, y: jnp.floor_divide(x, y), lambda x, y: jnp.mod(x, y),
        lambda x, y: jnp.polyval(x[0], y), lambda x, y: jnp.tensordot(x, y, ((0, 1), (0, 1))), lambda x, y: jnp.pad(x, 2, mode="reflect"),
        lambda x, y: jax.image.resize(x, (7, 3), "bilinear"), lambda x, y: jnp.gradient(x)[0], lambda x, y: jnp.nan_to_num(x / 0),
        lambda x, y: jax.lax.associative_scan(jnp.maximum, x), lambda x, y: jnp.isclose(x, y), lambda x, y: jnp.round(x, 1),
    ]  # fmt: skip
    return Case(pick(rng, forms), (array(rng, "float32", (4, 5)), array(rng, "float32", (4, 5))), 1e-4)
