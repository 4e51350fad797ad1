"""The kernels of the performance run: each a Tile function, whose shapes follow from a size and three drawn factors."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from tile_ir.frozen import frozen

LEAST, MOST = 0.7, 1.4
"""Between these a side is stretched by its factor, so that no shape is a round number."""
CHANNELS = 16

Shape = tuple[int, ...]
Dims = Callable[[int, float, float, float], Mapping[str, Shape]]
"""(elements of the larger arrays, three factors) -> shapes of the inputs."""


@frozen
class Task:
    """One kernel; its time grows about as size to the power of `growth`."""

    name: str
    source: str
    dims: Dims
    growth: float = 1.0
    dtypes: Mapping[str, str] = field(default_factory=dict[str, str])
    """Of inputs that are not float32."""


def _side(n: int, factor: float, power: float = 0.5) -> int:
    return max(2, round(n**power * factor))


def _matmul(n: int, a: float, b: float, c: float) -> Mapping[str, Shape]:
    m, k, columns = (_side(n, f) for f in (a, b, c))
    return {"A": (m, k), "B": (k, columns)}


def _matvec(n: int, a: float, b: float, c: float) -> Mapping[str, Shape]:
    return {"A": (_side(n, a), _side(n, b)), "X": (_side(n, b),)}


def _convolution(n: int, a: float, b: float, c: float) -> Mapping[str, Shape]:
    channels = round(CHANNELS * c)
    x, y = _side(n // channels, a), _side(n // channels, b)
    return {"D": (1, x, y, channels), "K": (3, 3, channels, channels)}


def _matrix(n: int, a: float, b: float, c: float) -> Mapping[str, Shape]:
    return {"A": (_side(n, a), _side(n, b))}


def _row(n: int, a: float, b: float, c: float) -> Mapping[str, Shape]:
    return {"A": (max(4, round(n * a)),)}


def _image(n: int, a: float, b: float, c: float) -> Mapping[str, Shape]:
    return {"A": (2 * _side(n // CHANNELS, a), 2 * _side(n // CHANNELS, b), CHANNELS)}


def _table(n: int, a: float, b: float, c: float) -> Mapping[str, Shape]:
    return {"T": (_side(n, a), _side(n, b)), "I": (_side(n, c),)}


def _small(n: int, a: float, b: float, c: float) -> Mapping[str, Shape]:
    return {"A": (8,), "B": (8,)}


SMALL = "small calls"
TASKS: tuple[Task, ...] = (
    Task("matmul", "function (A[M, L], B[L, N]) -> (C) { C[i, j : M, N] = +(A[i, k] * B[k, j]); }", _matmul, 1.5),
    Task("matrix times vector", "function (A[M, N], X[N]) -> (Y) { Y[i : M] = +(A[i, j] * X[j]); }", _matvec),
    Task(
        "convolution",
        "function (D[N, X, Y, CI], K[I, J, CO, CI]) -> (R) {\n"
        "    O[n, x, y, co : N, X, Y, CO] = +(D[n, x+i-1, y+j-1, ci] * K[i, j, co, ci]);\n"
        "    R = (O > 0 ? O : 0);\n}",
        _convolution,
    ),
    Task("row sums", "function (A[M, N]) -> (S) { S[i : M] = +(A[i, j]); }", _matrix),
    Task("column sums", "function (A[M, N]) -> (S) { S[j : N] = +(A[i, j]); }", _matrix),
    Task(
        "softmax",
        "function (A[M, N]) -> (S) {\n    H[i, 0 : M, 1] = >(A[i, j]);\n    E = exp(A - H);\n"
        "    T[i, 0 : M, 1] = +(E[i, j]);\n    S = E / T;\n}",
        _matrix,
    ),
    Task("transpose", "function (A[M, N]) -> (B) { B[j, i : N, M] = =(A[i, j]); }", _matrix),
    Task("copy", "function (A[N]) -> (B) { B[i : N] = =(A[i]); }", _row),
    Task("elementwise chain", "function (A) -> (B) { X = A * 0.5 + 1; Y = X * X - A; B = max(Y, X) * 0.25; }", _row),
    Task(
        "stencil",
        "function (A[M, N]) -> (B) { B[i, j : M, N] = +(A[i + k - 1, j + l - 1]), k < 3, l < 3; }",
        _matrix,
    ),
    Task(
        "max pool",
        "function (A[X, Y, C]) -> (P) {\n"
        "    P[x, y, c : X / 2, Y / 2, C] = >(A[2*x + i, 2*y + j, c]), i < 2, j < 2;\n}",
        _image,
    ),
    Task("gather", "function (T[R, C], I[K]) -> (O) { O = gather(T, I); }", _table, dtypes={"I": "int32"}),
    Task("cast", "function (A) -> (B) { B = as_int(A * 100.0, 8); }", _row),
    Task(SMALL, "function (A, B) -> (C) { C = A + B; }", _small, 0.0),
)  # fmt: skip


def drawn(seed: int, names: Sequence[str] = ()) -> list[tuple[Task, tuple[float, float, float]]]:
    """The kernels (all, or those with these names) and the factors that `seed` draws for each."""
    found: list[tuple[Task, tuple[float, float, float]]] = []
    for number, task in enumerate(TASKS):
        draw = random.Random(f"{seed} {number}")
        factors = tuple(round(draw.uniform(LEAST, MOST), 3) for _ in range(3))
        if not names or task.name in names:
            found.append((task, (factors[0], factors[1], factors[2])))
    return found
