"""Every code example of the Tile tutorial, verbatim, with inputs and the mathematically right answers.

Data for tests and for the conformance suite of backends: an `Example` needs no part of the compiler. Inputs
hold small whole numbers, so that sums and products are exact in float32 in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
from tile_ir.frozen import frozen

Array = npt.NDArray[Any]
Arrays = dict[str, Array]
Shape = tuple[int, ...]


@frozen
class Example:
    """A Tile function with the shapes of its float32 inputs and its meaning in NumPy."""

    name: str
    source: str
    shapes: Mapping[str, Shape]
    meaning: Callable[..., Array]
    """From the inputs, in header order, to the single output O, C or R."""
    output: str = "O"
    positive: bool = False
    """Whether the inputs must be positive (log, sqrt, pow)."""

    def inputs(self, seed: int = 0) -> Arrays:
        """Reproducible inputs: integers from -9 to 9, or quarters from 0.25 to 4."""
        rng = np.random.default_rng([seed, len(self.source)])
        low, high, scale = (1, 17, 4.0) if self.positive else (-9, 10, 1.0)
        return {n: (rng.integers(low, high, s) / scale).astype(np.float32) for n, s in self.shapes.items()}

    def expected(self, inputs: Mapping[str, Array]) -> Arrays:
        """The right outputs, computed in float64; compare with a tolerance of a few units in the last place."""
        wide = [inputs[n].astype(np.float64) for n in self.shapes]
        with np.errstate(all="ignore"):
            return {self.output: np.asarray(self.meaning(*wide))}


def _function(header: str, *lines: str) -> str:
    return header + " {\n" + "".join(f"    {line}\n" for line in lines) + "}"


# --- meanings ------------------------------------------------------------------------------------


def _sum(x: Array) -> Array:
    return np.asarray(x.sum(0))


def _max(x: Array) -> Array:
    return np.asarray(x.max(0))


def _least(x: Array) -> Array:
    return np.asarray(x.min())


def _mean(x: Array) -> Array:
    return np.asarray(x.mean(0))


def _global_mean(x: Array) -> Array:
    return np.asarray(x.mean())


def _choose(c: Array, t: Array, e: Array) -> Array:
    return np.where(c != 0, t, e)


def _broken_pool(x: Array) -> Array:
    return np.full(len(x) // 2, x.max())


def _pool(size: Callable[[int], int]) -> Callable[[Array], Array]:
    def meaning(x: Array) -> Array:
        return np.array([x[2 * i : 2 * i + 2].max() for i in range(size(len(x)))])

    return meaning


def _skipping(x: Array) -> Array:
    out = np.zeros(x.shape[0])
    out[::2] = x[::2].sum(1)
    return out


def _conv1d(x: Array, k: Array) -> Array:
    out = np.zeros((x.shape[0], x.shape[1] - k.shape[0] + 1, k.shape[2]))
    for offset in range(k.shape[0]):
        out += x[:, offset : offset + out.shape[1]] @ k[offset]
    return out


def _dilated(x: Array, k: Array) -> Array:
    n, lx, ly, _ = x.shape
    out = np.zeros((n, lx - 2 * (k.shape[0] - 1), ly - 3 * (k.shape[1] - 1), k.shape[3]))
    for a, b in product(range(k.shape[0]), range(k.shape[1])):
        out += x[:, 2 * a : 2 * a + out.shape[1], 3 * b : 3 * b + out.shape[2]] @ k[a, b]
    return out


def _padded(x: Array) -> Array:
    return np.append(x.sum(0), 0.0)


def _sigmoid(a: Array) -> Array:
    return 1 / (1 + np.exp(-a))


_I2: Mapping[str, Shape] = {"I": (5, 7)}
_AB: Mapping[str, Shape] = {"A": (3, 4), "B": (4,)}


def _elementwise(name: str, statement: str, meaning: Callable[..., Array], positive: bool = False) -> Example:
    names = [n for n in "ABC" if n in statement.split("=", 1)[1]]
    return Example(
        f"elementwise_{name}",
        _function(f"function ({', '.join(names)}) -> (O)", statement),
        {n: _AB[n] for n in names},
        meaning,
        positive=positive,
    )


TUTORIAL: tuple[Example, ...] = (
    Example(
        "sum_over_axis",
        _function("function (I[M, N]) -> (O)", "O[n: N] = +(I[m, n]);"),
        _I2,
        _sum,
    ),
    Example(
        "sum_over_axis_padded",
        _function("function (I[M, N]) -> (O)", "O[n: N+1] = +(I[m, n]);"),
        _I2,
        _padded,
    ),
    Example(
        "matmul",
        _function("function (A[M, L], B[L, N]) -> (C)", "C[i, j: M, N] = +(A[i, k] * B[k, j]);"),
        {"A": (5, 7), "B": (7, 3)},
        np.matmul,
        "C",
    ),
    Example(
        "max_over_axis",
        _function("function (I[M, N]) -> (O)", "O[n: N] = >(I[m, n]);"),
        _I2,
        _max,
    ),
    Example(
        "global_min",
        _function("function (I) -> (O)", "Neg = -I;", "O_Neg[] = >(Neg[i, j, k]);", "O = -O_Neg;"),
        {"I": (3, 4, 5)},
        _least,
    ),
    Example(
        "mean_over_axis",
        _function("function (I[X, Y]) -> (O)", "Sum[y: Y] = +(I[x, y]);", "O = Sum / X;"),
        _I2,
        _mean,
    ),
    Example(
        "global_mean_in_stages",
        _function("function (I[X, Y]) -> (O)", "Sum[] = +(I[x, y]);", "PartialMean = Sum / X;", "O = PartialMean / Y;"),
        _I2,
        _global_mean,
    ),
    Example(
        "global_mean",
        _function("function (I[X, Y]) -> (O)", "Sum[] = +(I[x, y]);", "O = Sum / (X * Y);"),
        _I2,
        _global_mean,
    ),
    Example(
        "max_pool_broken",
        _function("function (I[N]) -> (O)", "O[i: N / 2] = >(I[2 * i + j]);"),
        {"I": (11,)},
        _broken_pool,
    ),
    Example(
        "max_pool",
        _function("function (I[N]) -> (O)", "O[i: N / 2] = >(I[2 * i + j]), j < 2;"),
        {"I": (11,)},
        _pool(lambda n: n // 2),
    ),
    Example(
        "max_pool_rounding_up",
        _function("function (I[N]) -> (O)", "O[i: (N + 1) / 2] = >(I[2 * i + j]), j < 2;"),
        {"I": (11,)},
        _pool(lambda n: (n + 1) // 2),
    ),
    Example(
        "skipping",
        _function("function (I[N, M]) -> (O)", "O[2 * i: N] = +(I[2 * i, j]);"),
        {"I": (6, 5)},
        _skipping,
    ),
    Example(
        "cumulative_sum",
        _function("function (I[N]) -> (O)", "O[i: N] = +(I[k]), i - k < N;"),
        {"I": (9,)},
        np.cumsum,
    ),
    Example(
        "cumulative_sum_by_offset",
        _function("function (I[N]) -> (O)", "O[i: N] = +(I[i - j]), j < N;"),
        {"I": (9,)},
        np.cumsum,
    ),
    Example(
        "convolution_1d",
        "function (I[N, L, CI], K[LK, CI, CO]) -> (O) "
        "{O[n, x, co: N, L - LK + 1, CO] = +(I[n, x + k, ci] * K[k, ci, co]);}",
        {"I": (2, 8, 3), "K": (3, 3, 4)},
        _conv1d,
    ),
    Example(
        "convolution_2d_dilated",
        _function(
            "function (I[N, Lx, Ly, CI], K[LKx, LKy, CI, CO]) -> (O)",
            "O[n, x, y, co: N, Lx - 2 * (LKx - 1), Ly - 3 * (LKy - 1), CO] =",
            "        +(I[n, x + 2 * kx, y + 3 * ky, ci] * K[kx, ky, ci, co]);",
        ),
        {"I": (2, 9, 10, 3), "K": (3, 2, 3, 2)},
        _dilated,
    ),
    _elementwise("addition", "O = A + B;", np.add),
    _elementwise("subtraction", "O = A - B;", np.subtract),
    _elementwise("multiplication", "O = A * B;", np.multiply),
    _elementwise("division", "O = A / B;", np.divide, True),
    _elementwise("equality", "O = A == B;", np.equal),
    _elementwise("inequality", "O = A != B;", np.not_equal),
    _elementwise("less", "O = A < B;", np.less),
    _elementwise("square_root", "O = sqrt(A);", np.sqrt, True),
    _elementwise("exponential", "O = exp(A);", np.exp),
    _elementwise("power", "O = pow(A, B);", np.power, True),
    _elementwise("sine", "O = sin(A);", np.sin),
    _elementwise("hyperbolic_tangent", "O = tanh(A);", np.tanh),
    _elementwise("natural_log", "O = log(A);", np.log, True),
    _elementwise("sigmoid", "O = sigmoid(A);", _sigmoid),
    Example(
        "elementwise_conditional",
        _function("function (C, T, E) -> (O)", "O = C ? T : E;"),
        {"C": (3, 4), "T": (3, 4), "E": (3, 4)},
        _choose,
    ),
)
"""The tutorial's functions and statements (a bare statement stands in the smallest function around it)."""
