"""Work that depends on constants alone is done when a program is made ready, on every device."""

from __future__ import annotations

import numpy as np
import pytest
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


def test_its_copies_of_the_weights_are_made_once() -> None:
    weights, x = np.ones((512, 300), np.float32), tile.placeholder("float32", (7, 300), name="x")
    steps = tile.compose([x], [LINEAR(x, weights)]).lower(np.ones((7, 300), np.float32), device="llvm").kernels.steps
    once = [step.once for step in steps]
    assert any(once)
    assert once.index(False) == len(once) - 1


def test_a_layer_with_bound_weights_follows_them(device: Device) -> None:
    """Packed weights are as new as the Tensors that they were made of."""
    rng = np.random.default_rng(1)
    weights, values = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((40, 30), (7, 30)))
    bound, x = tile.asarray(weights, device), tile.placeholder("float32", values.shape, name="x")
    layer = tile.compose([x], [LINEAR(x, bound)])
    given = tile.asarray(values, device)
    for turn in range(6):
        result = layer(given) if turn % 2 else layer(values)
        np.testing.assert_array_equal(np.asarray(result), values @ weights.T)
        if turn % 3 == 0:
            weights = weights + 1
            with bound.mmap_discard() as view:
                view[...] = weights
        if turn == 4:
            weights = (weights * 2).astype(np.float32)
            tile.Function("function (A) -> (B) { B = 2 * A; }")(tile.asarray(weights / 2, device), out=bound)


def test_weights_that_every_call_updates_are_not_kept(device: Device) -> None:
    weights, x = np.ones((40, 30), np.float32), tile.placeholder("float32", (7, 30), name="x")
    bound, step = tile.asarray(weights, device), tile.placeholder("float32", (), name="step")
    more = tile.Function("function (A, S) -> (B) { B = A + S; }")
    layer = tile.compose([x, step], [LINEAR(x, bound)], updates=[(bound, more(bound, step))])
    values = np.ones((7, 30), np.float32), np.float32(1)
    assert not any(s.bound for s in layer.lower(*values, device=device).kernels.steps)
    for turn in range(3):
        np.testing.assert_array_equal(layer(*values), np.full((7, 40), 30.0 * (turn + 1), np.float32))


def test_chains_of_weights_are_folded_once() -> None:
    """By a constant and a bound tensor: what the product reads is there before any call."""
    x = tile.placeholder("float32", (7, 300), name="x")
    weights, scale = np.ones((512, 300), np.float32), tile.asarray(np.ones((512, 1), np.float32), "llvm")
    function = tile.Function(
        "function (X[N, K], W[O, K], G[O, I]) -> (Y) { V = W * 2 + G; Y[n, o : N, O] = +(X[n, k] * V[o, k]); }"
    )
    layer = tile.compose([x], [function(x, weights, scale)])
    steps = layer.lower(np.ones((7, 300), np.float32), device="llvm").kernels.steps
    assert [step.bound for step in steps] == [True] * (len(steps) - 1) + [False]
    np.testing.assert_array_equal(layer(np.ones((7, 300), np.float32)), np.full((7, 512), 900, np.float32))


def test_memory_that_a_device_keeps_stays_its_own(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands of others that are queued may still use what a device keeps for the next buffers."""
    trimmed: list[bool] = []
    monkeypatch.setattr(type(device.memory), "trim", lambda _: trimmed.append(True))
    x = tile.placeholder("float32", (2, 30), name="x")
    weights = np.random.default_rng(1).random((41, 30), np.float32)
    tile.compose([x], [LINEAR(x, weights)])(np.ones((2, 30), np.float32), device=device)
    assert not (trimmed and device.capabilities.keeps_buffers)
