"""Chains of sliding boxes in the registers of items: one kernel, the same results, for any aggregation, size and length."""

from __future__ import annotations

import numpy as np
import pytest
import tile_lang
from explain_support import FRONT, GPU
from lowering_support import check, random_inputs
from tile_ir.diagnostics import Source
from tile_ir.dtype import DType
from tile_ir.frozen import replace
from tile_ir.machine import Launch, LocalMemory
from tile_ir.program.nodes import TensorType
from tile_ir.stripe import interpret
from tile_ir.stripe.nodes import Bind, Block, Program
from tile_ir.stripe.walk import blocks_in
from tile_ir.target import PassConfig, Target
from tile_opt.blocks.tree import kernels_of
from tile_opt.pipeline import optimize
from tile_opt.translate import to_stripe

FUSE = PassConfig("fuse", options={"min_parallel": 1 << 20})
PASSES = (PassConfig("scan"), FRONT[0], FUSE, *FRONT[2:], PassConfig("item_chains"), PassConfig("gpu_tile"))
BLUR = """function (A[H, W], K[T]) -> (O) {
    P[y, x : H, W] = +(A[y, x + t - HALF] * K[t]);
    O[y, x : H, W] = +(P[y + t - HALF, x] * K[t]);
}"""
TWICE = """function (A[H, W], K[T]) -> (O) {
    P[y, x : H, W] = +(A[y + t - HALF, x] * K[t]);
    O[y, x : H, W] = +(P[y + s - 1, x + t - HALF] * K[t]), s < 3;
}"""
THRICE = """function (A[H, W], K[T]) -> (O) {
    P[y, x : H, W] = +(A[y, x + t - HALF] * K[t]);
    Q[y, x : H, W] = >(P[y + t - HALF, x]), t < T;
    O[y, x : H, W] = +(Q[y + t - HALF, x] * K[t]);
}"""
STEPS = """function (A[H, W], K[T]) -> (O) {
    P[y, x : H, W] = +(A[y, x + t - HALF] * K[t]);
    O[y, x : H/2, W] = >(P[2*y + t, x]), t < 2;
}"""

SAMPLES = [
    (BLUR, DType.FLOAT32),
    (BLUR, DType.FLOAT16),
    (TWICE, DType.FLOAT32),
    (THRICE, DType.INT16),
    (STEPS, DType.FLOAT32),
]
"""Chains, and the dtypes of their elements."""


def target() -> Target:
    machine = replace(GPU.machine, local=LocalMemory(), cores=132, launch=Launch(kernel=4e-6))
    return replace(GPU, settings=replace(GPU.settings, threads=32), machine=machine, passes=PASSES)


def stripe_of(source: str, dtype: DType, **shapes: tuple[int, ...]) -> Program:
    function = tile_lang.parse(Source(source, "sample.tile"))
    return to_stripe(tile_lang.bind(function, {n: TensorType(dtype, s) for n, s in shapes.items()}))


@pytest.mark.parametrize(("source", "dtype"), SAMPLES)
@pytest.mark.parametrize(("height", "width", "taps"), [(10, 6, 3), (4, 17, 3)])
def test_items_hand_on_what_they_keep(source: str, dtype: DType, height: int, width: int, taps: int) -> None:
    stripe, on = stripe_of(source.replace("HALF", str(taps // 2)), dtype, A=(height, width), K=(taps,)), target()
    scheduled = optimize(stripe, on, verify=True)
    assert len(list(kernels_of(scheduled))) == 1
    inputs = {name: np.rint(value).astype(value.dtype) for name, value in random_inputs(stripe).items()}
    expected = interpret.run(stripe, inputs)
    assert np.any(expected["O"])
    if dtype is DType.FLOAT16:
        np.testing.assert_allclose(interpret.run(scheduled, inputs)["O"], expected["O"], rtol=2e-2)
    else:
        check(scheduled, inputs, on, expected=expected)


def test_no_item_waits_for_another() -> None:
    scheduled = optimize(stripe_of(BLUR.replace("HALF", "2"), DType.FLOAT32, A=(64, 64), K=(5,)), target(), verify=True)
    (kernel,) = kernels_of(scheduled)
    assert isinstance(kernel, Block) and "sync" not in str(kernel).lower()
    assert all(
        i.bind is not Bind.NONE or i.value is not None or i.range == 1 for b in blocks_in(kernel) for i in b.indexes
    )


@pytest.mark.parametrize("line", ["P[y, j : H, W] = +(A[y, i] * B[i, j]);", "P[y, x : H, W] = +(A[y, z]), x - z < W;"])
def test_what_is_costly_is_computed_once(line: str) -> None:
    """A product uses its operands again and again, and a scan has an order."""
    source = f"function (A[H, W], B[W, W]) -> (O) {{ {line} O[y, x : H, W] = +(P[y + t - 2, x]), t < 5; }}"
    stripe = stripe_of(source, DType.FLOAT32, A=(64, 64), B=(64, 64))
    assert len(list(kernels_of(optimize(stripe, target(), verify=True)))) > 1


@pytest.mark.parametrize(("rows", "kernels"), [(3, 1), (64, 2)])
def test_items_share_long_sums(rows: int, kernels: int) -> None:
    """An item that takes in all of them by itself waits for longer than another kernel takes to begin."""
    source = "function (A[B, I, C]) -> (O) { P[b, c : B, C] = +(A[b, i, c]); M = P / 3.0; O[c : C] = >(M[b, c]); }"
    scheduled = optimize(stripe_of(source, DType.FLOAT32, A=(rows, rows, 4)), target())
    assert len(list(kernels_of(scheduled))) == kernels
