"""Transforms of Fourier: products with cosines and sines, along one axis after the other."""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt, prod
from typing import Any

import numpy as np
import torch
from tile_runtime.ops.einsum import einsum
from tile_runtime.ops.moving import padded, permuted, reshaped, sliced
from tile_runtime.ops.values import Array, Value, dtype_of

from tile_torch.call import Call, Unsupported, axes, axis, elementwise
from tile_torch.complexes import Complex, formula

aten = torch.ops.aten
LARGEST = 1 << 24
"""Elements of matrices of cosines and sines up to which a transform is a product with them."""
STEPPED = 1 << 23
"""Products from which on a transform is two, along the rows and the columns of a matrix of its numbers: fewer take less than the
passes between those."""
SIDE = 6
"""Numbers that each side of it has at least."""


@formula(aten._fft_c2c.default)
def _fft_c2c(call: Call, x: Complex, dim: Sequence[int], normalization: int, forward: bool) -> Complex:
    for one in axes(dim, len(x.shape)) if dim else ():
        x = _transformed(x, one, x.shape[one], -1 if forward else 1)
    return _scaled(x, [x.shape[d] for d in dim], normalization)


@formula(aten._fft_r2c.default)
def _fft_r2c(call: Call, x: Value, dim: Sequence[int], normalization: int, onesided: bool) -> Complex:
    """Of real numbers: half of the last of the axes when `onesided`."""
    sizes = [x.shape[d] for d in dim]
    last = axis(dim[-1], len(x.shape))
    kept = sizes[-1] // 2 + 1 if onesided else sizes[-1]
    made = _transformed(Complex(x, np.zeros((), dtype_of(x).numpy)), last, kept, -1)
    for one in dim[:-1]:
        made = _transformed(made, axis(one, len(x.shape)), made.shape[one], -1)
    return _scaled(made, sizes, normalization)


@formula(aten._fft_c2r.default)
def _fft_c2r(call: Call, x: Complex, dim: Sequence[int], normalization: int, last_dim_size: int) -> Value:
    """To real numbers, of half of the last of the axes: each frequency but the first and the middle one stands for two."""
    rank, sizes = len(x.shape), [*(x.shape[d] for d in dim[:-1]), last_dim_size]
    for one in dim[:-1]:
        x = _transformed(x, axis(one, rank), x.shape[one], 1)
    last = axis(dim[-1], rank)
    half = last_dim_size // 2 + 1
    whole = [slice(None)] * rank
    whole[last] = slice(0, half)
    taken = Complex(*(sliced(part, whole) for part in (x.real, x.imag)))
    twice = np.full(half, 2.0)
    twice[0] = 1
    if last_dim_size % 2 == 0:
        twice[-1] = 1
    if _steps(taken, last_dim_size, last_dim_size):
        found = _transformed(_filled(taken, last, twice, last_dim_size), last, last_dim_size, 1)
    else:
        found = _transformed(taken, last, last_dim_size, 1, twice, last_dim_size)
    return _scaled(found, sizes, normalization).real


def _filled(x: Complex, along: int, weights: Array, size: int) -> Complex:
    """Weighted numbers, and zeros behind them up to a size."""
    dtype, before = dtype_of(x.real), [0] * len(x.shape)
    factors = weights.astype(dtype.numpy).reshape(-1, *[1] * (len(x.shape) - along - 1))
    after = [size - len(weights) if k == along else 0 for k in range(len(before))]
    weighted = (elementwise("{0} * {1}", [part, factors], dtype, dtype) for part in (x.real, x.imag))
    return Complex(*(padded(part, before, after) for part in weighted))


def _transformed(
    x: Complex, along: int, made: int, sign: int, weights: Array | None = None, period: int | None = None
) -> Complex:
    """The first `made` sums of ``weights[t] * x[t] * exp(sign * 2πi * t * f / period)`` along an axis."""
    rank, given = len(x.real.shape), x.real.shape[along]
    if weights is None and _steps(x, made, given):
        return _in_two(x, along, made, sign, _side(given))
    if 2 * given * made > LARGEST:
        raise Unsupported(f"a transform of {given} numbers is too long for a product with cosines and sines")
    cosines, sines = _waves(given, made, period or given)
    dtype = dtype_of(x.real).numpy
    scale = 1.0 if weights is None else weights[:, None]
    cosines, sines = ((scale * matrix).astype(dtype) for matrix in (cosines, sines))
    order = [k for k in range(rank) if k != along] + [along]
    back = [order.index(k) for k in range(rank)]

    def times(part: Value, matrix: Any) -> Value:
        return permuted(einsum("...t,tf->...f", permuted(part, order), matrix), back)

    real, imag = times(x.real, cosines), times(x.real, sign * sines)
    if not x.imag.shape:
        return Complex(real, imag)
    other = times(x.imag, -sign * sines), times(x.imag, cosines)
    return Complex(_sum(real, other[0]), _sum(imag, other[1]))


def _steps(x: Complex, made: int, period: int) -> bool:
    """Whether so many sums of numbers that repeat after a period take less time in two steps."""
    products = prod(x.shape) * made * (4 if x.imag.shape else 2)
    return products >= STEPPED and _side(period) >= SIDE


def _in_two(x: Complex, along: int, made: int, sign: int, rows: int) -> Complex:
    """The same of ``x[columns * p + q]`` at ``u + rows * v``: sums over p, turns by ``q * u``, and sums over q.

    Each number takes part in ``rows + columns`` products instead of as many as there are numbers. With an even number of
    columns the middle frequency of real numbers is exactly real.
    """
    shape = list(x.shape)
    columns = shape[along] // rows
    if columns % 2:
        rows, columns = columns, rows
    split = [*shape[:along], rows, columns, *shape[along + 1 :]]
    matrix = Complex(reshaped(x.real, split), reshaped(x.imag, split) if x.imag.shape else x.imag)
    turned = _turned(_transformed(matrix, along, rows, sign), along, sign)
    found = _transformed(turned, along + 1, -(-made // rows), sign)
    return Complex(*(_in_order(part, along, made) for part in (found.real, found.imag)))


def _turned(x: Complex, along: int, sign: int) -> Complex:
    """Each cell of matrices times the number of turns that their size has for its row times its column."""
    rows, columns, *others = x.shape[along:]
    dtype = dtype_of(x.real)
    waves = (w.reshape(rows, columns, *[1] * len(others)) for w in _waves(rows, columns, rows * columns))
    cosines, sines = (wave.astype(dtype.numpy) for wave in waves)
    values: list[Value] = [x.real, cosines, x.imag, sign * sines]
    texts = "{0} * {1} - {2} * {3}", "{0} * {3} + {2} * {1}"
    return Complex(*(elementwise(text, values, dtype, dtype) for text in texts))


def _in_order(part: Value, along: int, made: int) -> Value:
    """The first `made` of what a matrix holds column by column."""
    shape, order = list(part.shape), list(range(len(part.shape)))
    order[along], order[along + 1] = along + 1, along
    lined = reshaped(permuted(part, order), [*shape[:along], shape[along] * shape[along + 1], *shape[along + 2 :]])
    taken = [slice(None)] * len(lined.shape)
    taken[along] = slice(0, made)
    return sliced(lined, taken)


def _side(size: int) -> int:
    """The shorter side of the matrix nearest to a square that has so many cells."""
    return next(side for side in range(isqrt(size), 0, -1) if size % side == 0)


def _waves(times: int, frequencies: int, period: int) -> tuple[Array, Array]:
    """Cosines and sines, a row for each time; those of whole quarters of a turn are exact."""
    steps: Array = np.arange(times)[:, None] * np.arange(frequencies) % period
    turns: Array = steps * (2 * np.pi / period)
    quarters = 4 * steps % period == 0
    cosines, sines = (np.where(quarters, np.rint(wave), wave) for wave in (np.cos(turns), np.sin(turns)))
    return cosines, sines


def _sum(x: Value, y: Value) -> Value:
    return elementwise("{0} + {1}", [x, y], dtype_of(x), dtype_of(x))


def _scaled(x: Complex, sizes: Sequence[int], normalization: int) -> Complex:
    """As PyTorch counts: 0 leaves sums as they are, 1 divides by the root of their number, 2 by the number."""
    factor = float(np.prod(sizes)) ** (-normalization / 2)
    if factor == 1:
        return x
    return Complex(*(elementwise("{0} * {1}", [p, factor], dtype_of(p), dtype_of(p)) for p in (x.real, x.imag)))
