"""What the compiler makes of well-known programs: kernels, fusing across functions, memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tile_runtime as tile
from hal_llvm.cpu import family_target
from stack import ROOT, python
from tile_hal.interfaces import Device
from tile_ir.kernels import BufferKind, KernelList
from tile_lang.evaluate import prng_draw

SOFTMAX = """function (X[N, M]) -> (S) {
    A[n, 0 : N, 1] = >(X[n, m]);
    E = exp(X - A);
    T[n, 0 : N, 1] = +(E[n, m]);
    S = E / T;
}"""
LAYER_NORM = """function (X[N, M], G[M], B[M]) -> (Y) {
    S[n, 0 : N, 1] = +(X[n, m]);
    C = X - S / M;
    Q = C * C;
    V[n, 0 : N, 1] = +(Q[n, m]);
    Y = C / sqrt(V / M + 0.00001) * G + B;
}"""
CONV = ROOT / "integration" / "examples" / "conv_relu.tile"
MEGABYTE = 1 << 20


def placeholders(*shapes: tuple[int, ...]) -> list[Any]:
    return [tile.placeholder("float32", s, f"X{n}") for n, s in enumerate(shapes)]


def launches(kernels: KernelList) -> int:
    return len(kernels.steps)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def layer_norm(x: np.ndarray, g: np.ndarray, b: np.ndarray) -> np.ndarray:
    c = x - x.mean(1, keepdims=True)
    return c / np.sqrt((c * c).mean(1, keepdims=True) + 1e-5) * g + b


@pytest.mark.parametrize("shape", [(64, 1000), (7, 13), (1, 1), (256, 64)], ids=str)
@pytest.mark.parametrize(
    ("source", "meaning"), [(SOFTMAX, softmax), (LAYER_NORM, layer_norm)], ids=["softmax", "layer_norm"]
)
def test_is_one_kernel(source: str, meaning: Any, shape: tuple[int, int]) -> None:
    function = tile.Function(source)
    rng = np.random.default_rng(0)
    arrays = [rng.normal(0, 2, shape if k == 0 else shape[1:]).astype(np.float32) for k in range(len(function.inputs))]
    assert launches(function.lower(*arrays).kernels) == 1
    expected = meaning(*(a.astype(np.float64) for a in arrays))
    np.testing.assert_allclose(function(*arrays), expected, rtol=2e-5, atol=2e-5)


@pytest.mark.diagonal(4)
@pytest.mark.parametrize("shape", [(7,), (2048,), (2049,), (3, 2500), (64, 64)], ids=str)
def test_random_numbers_are_the_same_on_every_device(device: Device, shape: tuple[int, ...]) -> None:
    sizes = ", ".join(map(str, shape))
    draw = tile.Function(
        f"function (S[A, B]) -> (V, T) {{ P = prng_step(S, {sizes}); V = prng_value(P); T = prng_state(P); }}"
    )
    seed = np.random.default_rng(0).integers(0, 1 << 32, (3, 2048), dtype=np.uint32)
    values, state = draw(seed, device=device)
    expected, after = prng_draw(seed, int(np.prod(shape)))
    np.testing.assert_array_equal(values, expected.reshape(shape))
    np.testing.assert_array_equal(state, after)


def test_kernels_fuse_across_composed_functions(device: Device) -> None:
    scale = tile.Function("function (A) -> (B) { B = A * 3; }")
    shift = tile.Function("function (A) -> (B) { B = A + 1; }")
    (x,) = placeholders((5, 7))
    both = tile.compose([x], [shift(scale(x))])
    data = np.arange(35, dtype=np.float32).reshape(5, 7)
    assert launches(both.lower(data, device=device).kernels) == 1
    np.testing.assert_array_equal(both(data, device=device), data * 3 + 1)


def test_full_size_example_needs_only_its_inputs_and_output() -> None:
    """Device-buffer memory of 32×224×224×64 → 64: inputs + output + at most 1 MB; nothing is run."""
    conv = tile.Function.from_file(CONV)
    kernels = conv.lower(*placeholders((32, 224, 224, 64), (3, 3, 64, 64))).kernels
    user = sum(b.bytes for b in kernels.buffers if b.kind in (BufferKind.INPUT, BufferKind.OUTPUT))
    assert user == 4 * (2 * 32 * 224 * 224 * 64 + 3 * 3 * 64 * 64)
    extra = sum(kernels.arenas) + sum(b.bytes for b in kernels.buffers if b.kind is BufferKind.CONST)
    assert extra <= MEGABYTE


ATTENTION = """function (Q[H, S, D], K[H, T, D], V[H, T, D]) -> (O) {
    P[h, s, t : H, S, T] = +(Q[h, s, d] * K[h, t, d]);
    M[h, s, z : H, S, 1] = >(P[h, s, t]), z < 1;
    E = exp(P - M);
    Z[h, s, z : H, S, 1] = +(E[h, s, t]), z < 1;
    Y = E / Z;
    O[h, s, d : H, S, D] = +(Y[h, s, t] * V[h, t, d]);
}"""


def test_attention_over_long_rows_has_a_copy_of_the_keys_at_most() -> None:
    """Tiles transpose keys, so these are copied once; values are read where they lie, which takes no longer."""
    target = family_target("avx512").resolved(cores=2)
    shape = (1, 4096, 64)
    kernels = tile.Function(ATTENTION).lower(*placeholders(shape, shape, shape)).retargeted(target).kernels
    assert sum(kernels.arenas) <= 1.02 * 4 * np.prod(shape)


GROWTH = """
import numpy as np, resource, sys, tile_runtime as tile
conv = tile.Function.from_file({path!r})
shape, weights = {shape}, (3, 3, 64, 64)
conv(np.ones((1, 5, 5, 64), np.float32), np.ones(weights, np.float32))     # the compiler itself is loaded once
data, filters = np.ones(shape, np.float32), np.ones(weights, np.float32)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
result = conv(data, filters)
growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
assert result[0, 1, 1, 0] == 576 and result.shape == shape
print(growth - result.nbytes)
"""


def test_the_process_grows_little_beyond_inputs_and_output() -> None:
    """A quarter of the full size; compilation included."""
    code = GROWTH.format(path=str(CONV), shape=(8, 224, 224, 64))
    assert int(python(code, TILE_CACHE="off")) <= 64 * MEGABYTE


@pytest.mark.slow
def test_the_process_grows_little_at_full_size() -> None:
    code = GROWTH.format(path=str(CONV), shape=(32, 224, 224, 64))
    assert int(python(code, TILE_CACHE="off")) <= 64 * MEGABYTE


def test_examples_are_laid_out_and_parse() -> None:
    import tile_lang

    paths = sorted(Path(ROOT / "integration" / "examples").glob("*.tile"))
    assert len(paths) >= 5
    for path in paths:
        text = path.read_text("utf-8")
        tile_lang.parse(text)
        assert tile_lang.format_source(text) == text, f"tile fmt {path.name}"
