"""Kernels that see what they exchange with other dimensions become one all the same."""

from __future__ import annotations

import numpy as np
import pytest
from lowering_support import check
from test_item_chains import stripe_of, target
from tile_ir.dtype import DType
from tile_ir.stripe import interpret
from tile_opt.blocks.tree import kernels_of
from tile_opt.pipeline import optimize

PLANES = """function (A[D, H, W], K[T]) -> (O) {
    P[z, y, x : D, H, W] = +(A[z, y + t - 1, x] * K[t]);
    O[z, y, x : D, H, W] = +(P[z + t - 1, y, x] * K[t]);
}"""
IMAGES = """function (A[N, C, H, W], K[T]) -> (O) {
    P[n, c, y, x : N, C, H, W] = +(A[n, c, y, x + t - 1] * K[t]);
    O[n, c, y, x : N, C, H, W] = +(P[n, c, y + t - 1, x] * K[t]);
}"""


@pytest.mark.parametrize(("source", "shape"), [(PLANES, (6, 5, 16)), (IMAGES, (2, 3, 7, 12))])
def test_chains_over_joined_loops_are_one_kernel(source: str, shape: tuple[int, ...]) -> None:
    """One of the two has planes and rows, or images and rows, in one loop."""
    stripe = stripe_of(source, DType.FLOAT32, A=shape, K=(3,))
    scheduled = optimize(stripe, target(), verify=True)
    assert len(list(kernels_of(scheduled))) == 1
    values = np.random.default_rng(0).integers(-9, 9, shape).astype(np.float32)
    inputs = {"A": values, "K": np.array([1, 2, -3], np.float32)}
    check(scheduled, inputs, target(), expected=interpret.run(stripe, inputs))
