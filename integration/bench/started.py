"""A fresh process that gets one program ready and runs it once; it prints CPU seconds from the first import on.

``python started.py resnet|kernels [small]``: until the program is ready, and until its first result.
Making the weights, which a user loads from somewhere, does not count.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise

BEGIN = time.process_time()

import numpy as np  # noqa: E402
import tile_runtime as tile  # noqa: E402

CONV = """function (D[N, H, W, C], K[I, J, C, F], B[F]) -> (R) {{
    S[n, y, x, f : N, (H + {s} - 1) / {s}, (W + {s} - 1) / {s}, F] =
        +(D[n, {s}*y + i - {p}, {s}*x + j - {p}, c] * K[i, j, c, f]);
    R = {result};
}}"""
RELU, PLAIN = "S + B > 0 ? S + B : 0", "S + B"
ADD = "function (A, B) -> (R) { T = A + B; R = T > 0 ? T : 0; }"
POOL = """function (D[N, H, W, C]) -> (R) {
    R[n, y, x, c : N, H / 2, W / 2, C] = >(D[n, 2*y + i, 2*x + j, c]), i < 3, j < 3;
}"""
HEAD = """function (D[N, H, W, C], V[C, K], B[K]) -> (R) {
    M[n, c : N, C] = +(D[n, y, x, c]);
    A = M / (H * W);
    L[n, k : N, K] = +(A[n, c] * V[c, k]);
    R = L + B;
}"""
STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))


class Weights:
    """Random weights, and the CPU seconds that they took."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._random = np.random.default_rng(0)

    @contextmanager
    def uncounted(self) -> Generator[None]:
        """What happens here is no part of starting."""
        start = time.process_time()
        yield
        self.seconds += time.process_time() - start

    def __call__(self, *shape: int) -> tile.Tensor:
        device = tile.device("llvm")
        with self.uncounted():
            scale = np.float32(np.prod(shape[:-1]) ** -0.5)
            return tile.asarray((self._random.random(shape, np.float32) - np.float32(0.5)) * scale, device)


def resnet(weights: Weights, small: bool) -> tuple[Callable[..., object], tuple[int, ...]]:
    """ResNet-50: 53 convolutions with bias, in one composition; its weights are bound Tensors."""
    convs = {
        (size, step, result): tile.Function(CONV.format(s=step, p=size // 2, result=result))
        for size, step, result in ((7, 2, RELU), (1, 1, RELU), (3, 1, RELU), (3, 2, RELU), (1, 1, PLAIN), (1, 2, PLAIN))
    }
    add, pool, head = (tile.Function(text) for text in (ADD, POOL, HEAD))

    def conv(x: tile.Symbol, size: int, step: int, filters: int, result: str) -> tile.Symbol:
        return convs[size, step, result](x, weights(size, size, x.shape[3], filters), weights(filters))

    shape = (1, 32, 32, 3) if small else (1, 224, 224, 3)
    image = tile.placeholder("float32", shape, "image")
    x = pool(conv(image, 7, 2, 64, RELU))
    for stage, (blocks, width) in enumerate(STAGES[: 1 if small else None]):
        for block in range(blocks):
            step = 2 if stage and not block else 1
            y = conv(conv(conv(x, 1, 1, width, RELU), 3, step, width, RELU), 1, 1, 4 * width, PLAIN)
            x = add(y, x if block else conv(x, 1, step, 4 * width, PLAIN))
    return tile.compose([image], [head(x, weights(x.shape[3], 1000), weights(1000))]), shape


def kernels(weights: Weights, small: bool) -> tuple[Callable[..., object], tuple[int, ...]]:
    """A chain of 60 distinct layers, written as one function."""
    layers = 6 if small else 60
    widths = [64 + i for i in range(layers + 1)]
    heads = ", ".join(f"W{i}[N{i}, N{i + 1}]" for i in range(layers))
    body = " ".join(
        f"H{i}[b, o : B, N{i + 1}] = +(R{i}[b, k] * W{i}[k, o]); R{i + 1} = relu(H{i} + {i}.5);" for i in range(layers)
    )
    function = tile.Function(f"function (R0[B, N0], {heads}) -> (R{layers}) {{ {body} }}")
    given = [weights(n, m) for n, m in pairwise(widths)]
    return partial(_applied, function, given), (8, widths[0])


def _applied(function: tile.Function, weights: list[tile.Tensor], values: object) -> object:
    return function(values, *weights)


def started(name: str, small: bool) -> tuple[float, float]:
    """CPU seconds until the program is ready, on ones, and until its first result."""
    weights = Weights()
    program, shape = {"resnet": resnet, "kernels": kernels}[name](weights, small)
    found = np.ones(shape, np.float32)
    program(found)
    first = time.process_time() - BEGIN - weights.seconds
    program(found)  # from now on calls are direct
    start = time.process_time()
    result = np.asarray(program(found))
    assert np.isfinite(result).all()
    return first - (time.process_time() - start), first


if __name__ == "__main__":
    print(*started(sys.argv[1], "small" in sys.argv[2:]))
