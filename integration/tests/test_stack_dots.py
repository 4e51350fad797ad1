"""Sums of products of 8-bit integers on every device, by whatever instruction it has, are what the language says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tile_runtime as tile
from hypothesis import given, settings
from hypothesis import strategies as st
from tile_ir.dots import DOTS

DTYPES = (np.uint8, np.int8)
MATMUL = """function (A[M, K], B[K, N]) -> (O) {{
    Ai = as_int(A, 32){za}; Bi = as_int(B, 32){zb}; O[m, n : M, N] = +(Ai[m, k] * Bi[k, n]); }}"""
CONVOLUTION = """function (X[N, C, H, W], K[O, D, I, J]) -> (R) {{
    Xi = as_int(X, 32){zx}; Ki = as_int(K, 32);
    S[n, {o}, y, x : N, O, {out}, {out}] = +(Xi[n, {c}, {s}*y + i - {p}, {s}*x + j - {p}] * Ki[{o}, c, i, j]){more};
    R = as_uint(clamp(round_even(as_float(S, 32) * 0.001) + 128, 0, 255), 8);
}}"""


def drawn(dtype: Any, *shape: int) -> Any:
    """Many of the extremes."""
    info, draw = np.iinfo(dtype), np.random.default_rng(sum(shape))
    values = draw.integers(info.min, info.max + 1, shape)
    return np.where(draw.random(shape) < 0.2, draw.choice([info.min, info.max], shape), values).astype(dtype)


def dots_of(device: Any) -> frozenset[str]:
    return frozenset(tile.device(device).target.nodes & DOTS.keys())


@settings(deadline=None, max_examples=12)
@given(
    st.sampled_from(DTYPES), st.sampled_from(DTYPES), st.sampled_from(["", " - 128", " - 3"]), st.sampled_from(["", " - 99"]),
    st.tuples(st.integers(30, 90), st.integers(30, 140), st.integers(30, 90)),
)  # fmt: skip
def test_products_of_matrices(a: Any, b: Any, za: str, zb: str, sizes: Any) -> None:
    m, k, n = sizes
    left, right = drawn(a, m, k), drawn(b, k, n)
    zeros = [int(z[3:]) if z else 0 for z in (za, zb)]
    want = (left.astype(np.int32) - zeros[0]) @ (right.astype(np.int32) - zeros[1])
    got = tile.Function(MATMUL.format(za=za, zb=zb))(left, right, device="llvm")
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("rows", [64, 300])
def test_arrays_that_begin_between_words(rows: int) -> None:
    """What is read as words where it lies is of bytes, which lie anywhere."""
    memory, right = drawn(np.int8, rows * 256 + 3), drawn(np.int8, 256, 96)
    product = tile.Function(MATMUL.format(za="", zb=""))
    for start in range(4):
        left = memory[start : start + rows * 256].reshape(rows, 256)
        got = product(left, right, device="llvm")
        np.testing.assert_array_equal(got, left.astype(np.int32) @ right.astype(np.int32))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("side", "stride", "pad", "groups"), [(3, 1, 1, 1), (1, 1, 0, 1), (3, 2, 1, 1), (5, 1, 2, 2)])
def test_convolutions_and_what_quantises_them(dtype: Any, side: int, stride: int, pad: int, groups: int) -> None:
    """As the interpreter computes the kernels of a device without such instructions."""
    x, w = drawn(dtype, 1, 24, 11, 11), drawn(np.int8, 16, 24 // groups, side, side)
    out = (11 + 2 * pad - side) // stride + 1
    names = {"o": "o", "c": "c", "more": ""}
    if groups > 1:
        names = {"o": "8*g + o", "c": "12*g + c", "more": ", o < 8, c < 12"}
    conv = tile.Function(CONVOLUTION.format(zx=" - 77", out=out, s=stride, p=pad, **names))
    np.testing.assert_array_equal(conv(x, w, device="llvm"), conv(x, w, device="interp"))


@pytest.mark.skipif(not dots_of("llvm"), reason="this processor has no dot-product instructions")
def test_the_instruction_is_there_and_explained() -> None:
    lowered = tile.Function(MATMUL.format(za="", zb="")).lower(
        drawn(np.uint8, 96, 128), drawn(np.int8, 128, 96), device="llvm"
    )
    used = [name for name in DOTS if name in str(lowered.stripe)]
    assert used and set(used) <= dots_of("llvm")
    assert f"Instruction: {used[0]}" in str(lowered.explain())
