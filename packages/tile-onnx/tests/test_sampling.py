"""Sampling between cells, beside ONNX Runtime or ONNX's reference: every mode and padding, two and three axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tile_onnx
from hypothesis import given, settings
from hypothesis import strategies as st
from peer import SEEDS, a_model, check, numbers, random, reference


@given(
    st.sampled_from(["nearest", "linear", "cubic"]),
    st.sampled_from(["zeros", "border", "reflection"]),
    st.integers(0, 1),
    st.sampled_from([(4, 5), (1, 6), (3, 2, 4)]),
    SEEDS,
)
@settings(max_examples=6)
def test_grid_sample(mode: str, padding: str, corners: int, spatial: tuple[int, ...], seed: int) -> None:
    """Beside the reference: ONNX Runtime keeps both coordinates inside as soon as one leaves the image."""
    spatial = spatial[:2] if mode == "cubic" else spatial
    image = numbers("float32", (2, 2, *spatial), seed)
    grid = random(seed).uniform(-1.6, 1.6, (2, *(3, 4, 2)[: len(spatial)], len(spatial)))
    attributes: dict[str, Any] = {"mode": mode, "padding_mode": padding, "align_corners": corners}
    if corners and padding == "reflection" and 1 in spatial:
        return  # the reference divides by zero
    model = a_model("GridSample", [image, grid.astype(np.float32)], attributes, opset=20)
    feeds = {"x0": image, "x1": grid.astype(np.float32)}
    wanted = reference(model, feeds)
    (found,) = tile_onnx.load(model).run(feeds).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)


def test_names_of_older_opsets() -> None:
    inputs = [numbers("float32", (1, 2, 4, 5), 0), numbers("float32", (1, 3, 3, 2), 1, scale=0.4)]
    check("GridSample", inputs, {"mode": "bilinear"}, opset=16, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("sizes", [(2, 3, 4, 5), (2, 1, 2, 3, 4)])
def test_affine_grid(corners: int, sizes: tuple[int, ...]) -> None:
    rank = len(sizes) - 2
    inputs = [numbers("float32", (2, rank, rank + 1), 0), np.array(sizes, np.int64)]
    check("AffineGrid", inputs, {"align_corners": corners}, opset=20, constant=(1,), rtol=1e-4, atol=1e-5)


STEPS = st.tuples(st.integers(1, 2), st.integers(1, 2))


@given(STEPS, STEPS, st.integers(1, 2), st.integers(1, 2), st.integers(1, 2), st.booleans(), SEEDS)
@settings(max_examples=3)
def test_deform_conv(
    strides: tuple[int, int], dilations: tuple[int, int], batch: int, group: int, moved: int, masked: bool, seed: int
) -> None:
    kernel, size, pads = (3, 2), (9, 12), (1, 0, 2, 1)
    steps = zip(size, kernel, strides, dilations, pads[:2], pads[2:], strict=True)
    out = [(n + before + after - d * (k - 1) - 1) // s + 1 for n, k, s, d, before, after in steps]
    shapes = [(batch, 4, *size), (6, 4 // group, *kernel), (batch, moved * 12, *out), (6,)]
    shapes += [(batch, moved * 6, *out)] if masked else []
    inputs = [numbers("float32", shape, seed + k) for k, shape in enumerate(shapes)]
    attributes: dict[str, Any] = {
        "strides": list(strides), "dilations": list(dilations), "pads": list(pads), "group": group, "offset_group": moved
    }  # fmt: skip
    check("DeformConv", inputs, attributes, opset=19, rtol=1e-3, atol=1e-4)
