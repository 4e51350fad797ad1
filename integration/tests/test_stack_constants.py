"""Work that depends on constants alone is done when a program is made ready, on every device."""

from __future__ import annotations

import numpy as np
import tile_runtime as tile
from tile_hal.interfaces import Device

LINEAR = tile.Function("function (X[N, K], W[O, K]) -> (Y) { Y[n, o : N, O] = +(X[n, k] * W[o, k]); }")


def test_a_layer_with_constant_weights(device: Device) -> None:
    rng = np.random.default_rng(0)
    weights, values = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((40, 30), (7, 30)))
    x = tile.placeholder("float32", values.shape, name="x")
    layer = tile.compose([x], [LINEAR(x, weights * 2)])
    for _ in range(3):
        np.testing.assert_array_equal(layer(values, device=device), values @ (weights * 2).T)
        values += 1


def test_its_copy_of_the_weights_is_made_once() -> None:
    weights, x = np.ones((512, 300), np.float32), tile.placeholder("float32", (7, 300), name="x")
    steps = tile.compose([x], [LINEAR(x, weights)]).lower(np.ones((7, 300), np.float32), device="llvm").kernels.steps
    assert [step.once for step in steps] == [True, False]
