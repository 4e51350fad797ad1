"""The examples of what people write, against NumPy: filters of images and the nearest of many points."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tile_runtime as tile

EXAMPLES = Path(__file__).parents[1] / "examples"
RNG = np.random.default_rng(5)


def test_means_of_pixels() -> None:
    picture = RNG.integers(0, 1 << 16, (17, 33)).astype(np.uint16)
    wide = np.pad(picture.astype(np.uint32), 1)
    wanted = sum(wide[a : a + 17, b : b + 33] for a in range(3) for b in range(3)) // 9
    np.testing.assert_array_equal(tile.Function.from_file(EXAMPLES / "mean.tile")(picture), wanted)


def test_unsharp_mask_and_its_gradient() -> None:
    sharpen = tile.Function.from_file(EXAMPLES / "unsharp.tile")
    picture, taps = RNG.random((16, 21), np.float32), np.array([1, 4, 6, 4, 1], np.float32) / 16
    rows = np.apply_along_axis(np.convolve, 1, np.pad(picture, ((0, 0), (2, 2)), "edge"), taps, "valid")
    blurred = np.apply_along_axis(np.convolve, 0, np.pad(rows, ((2, 2), (0, 0)), "edge"), taps, "valid")
    found = sharpen(picture, taps, np.float32(1.5))
    np.testing.assert_allclose(found, np.clip(picture + 1.5 * (picture - blurred), 0, 1), atol=1e-5)
    slope = tile.vjp(sharpen, wrt="Amount")(picture, taps, np.float32(1.5), np.ones_like(picture))
    inside = (found > 0) & (found < 1)
    np.testing.assert_allclose(slope, (picture - blurred)[inside].sum(), rtol=1e-3, atol=1e-4)


def test_nearest_points() -> None:
    queries, points = (RNG.standard_normal((n, 8)).astype(np.float32) for n in (30, 50))
    places, squares = tile.Function.from_file(EXAMPLES / "nearest.tile")(queries, points)
    wanted = ((queries[:, None] - points) ** 2).sum(2)
    np.testing.assert_array_equal(places, wanted.argmin(1))
    np.testing.assert_allclose(squares, wanted.min(1), rtol=1e-3, atol=1e-4)
