"""Every operator of moving, products and windows against NumPy, on drawn shapes, by the reference evaluator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tile_lang
import tile_runtime as tile
from tile_runtime.ops import convolution, einsum, gather, matmul, moving, pooling, resize, scatter, softmax, windows

Array = np.ndarray[Any, Any]
Operator = Callable[..., Any]


def evaluated(operator: Operator, *arrays: Array) -> Any:
    """What the operator gives on Symbols of these shapes, computed from the arrays."""
    symbols = [tile.placeholder(a.dtype, a.shape, f"x{k}") for k, a in enumerate(arrays)]
    composition = tile.compose(symbols, [operator(*symbols)])
    given = {s.name: a for s, a in zip(composition.program.inputs, arrays, strict=True)}
    return next(iter(tile_lang.evaluate(composition.program, given).values()))


def drawn(shape: tuple[int, ...], seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(-8, 8, shape).astype(np.float32)


X, BACKWARDS = drawn((3, 4, 5)), slice(None, None, -2)
MOVES: dict[str, tuple[Operator, Operator]] = {
    "reshaped": (lambda x: moving.reshaped(x, (4, 15)), lambda x: x.reshape(4, 15)),
    "permuted": (lambda x: moving.permuted(x, (2, 0, 1)), lambda x: x.transpose(2, 0, 1)),
    "expanded": (lambda x: moving.expanded(x, (2, 3, 4, 5)), lambda x: np.broadcast_to(x, (2, 3, 4, 5))),
    "repeated": (lambda x: moving.repeated(x, (2, 1, 3)), lambda x: np.tile(x, (2, 1, 3))),
    "sliced": (
        lambda x: moving.sliced(x, (slice(1, 3), slice(-3, None), BACKWARDS)),
        lambda x: x[1:3, -3:, BACKWARDS],
    ),
    "flipped": (lambda x: moving.flipped(x, (0, 2)), lambda x: np.flip(x, (0, 2))),
    "joined": (lambda x: moving.joined([x, drawn((3, 2, 5)), x], 1), lambda x: np.hstack([x, drawn((3, 2, 5)), x])),
    "parts": (lambda x: moving.parts(x, 1, (1, 3))[1], lambda x: x[:, 1:]),
    "padded": (
        lambda x: moving.padded(x, (1, 0, 2), (0, 3, 1), fill=np.float32(7)),
        lambda x: np.pad(x, ((1, 0), (0, 3), (2, 1)), constant_values=7),
    ),
    "cropped": (
        lambda x: moving.padded(x, (-1, 0, 1), (0, -2, 0)),
        lambda x: np.pad(x[1:, :2], ((0, 0), (0, 0), (1, 0))),
    ),
    "padded by its edges": (
        lambda x: moving.padded(x, (1, 0, 2), (0, 3, 1), "edge"),
        lambda x: np.pad(x, ((1, 0), (0, 3), (2, 1)), mode="edge"),
    ),
    "padded by its reflection": (
        lambda x: moving.padded(x, (2, -1, 4), (1, 2, 3), "reflect"),
        lambda x: np.pad(x[:, 1:], ((2, 1), (0, 2), (4, 3)), mode="reflect"),
    ),
    "padded around": (
        lambda x: moving.padded(x, (0, 1, 5), (2, 4, 1), "wrap"),
        lambda x: np.pad(x, ((0, 2), (1, 4), (5, 1)), mode="wrap"),
    ),
    "windows of its cells": (
        lambda x: moving.of_cells(x, 2, np.array([4, 3, 2, 0, 0, 0, 0, 2, 4])),
        lambda x: x[:, :, [4, 3, 2, 0, 0, 0, 0, 2, 4]],
    ),
    "cells in no order": (
        lambda x: moving.of_cells(x, 2, np.array([4, 0, 1, 4, 2, 0, 3, 3, 1])),
        lambda x: x[:, :, [4, 0, 1, 4, 2, 0, 3, 3, 1]],
    ),
    "every second": (lambda x: moving.of_cells(x, 0, np.arange(0, 3, 2)), lambda x: x[::2]),
    "taken": (lambda x: gather.chosen(x, np.array([[2, 0], [1, 1]]), 1), lambda x: x[:, [[2, 0], [1, 1]]]),
    "taken at": (lambda x: gather.taken_at(x, np.array([[2, 3], [0, 1]])), lambda x: x[[2, 0], [3, 1]]),
    "softmax": (
        lambda x: softmax.softmax(x, (1,)),
        lambda x: np.exp(x - x.max(1, keepdims=True)) / np.exp(x - x.max(1, keepdims=True)).sum(1, keepdims=True),
    ),
    "einsum": (
        lambda x: einsum.einsum("abc,dc,bd->da", x, drawn((6, 5)), drawn((4, 6))),
        lambda x: np.einsum("abc,dc,bd->da", x, drawn((6, 5)), drawn((4, 6))),
    ),
    "einsum of ones": (
        lambda x: einsum.einsum("abc,bd,...c->da...", x, drawn((1, 2)), drawn((3, 1))),
        lambda x: np.einsum("abc,bd,...c->da...", x, drawn((4, 2))[:1].repeat(4, 0), drawn((3, 1)).repeat(5, 1)),
    ),
    "doubled": (lambda x: resize.repeated_cells(x, (2, 1, 3)), lambda x: x.repeat(2, 0).repeat(3, 2)),
}


@pytest.mark.parametrize("name", MOVES)
def test_as_numpy(name: str) -> None:
    ours, theirs = MOVES[name]
    expected = theirs(X)
    found = evaluated(ours, X)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(
    "name", ["reshaped", "permuted", "expanded", "repeated", "sliced", "flipped", "parts", "taken"]
)
def test_known_numbers_move_at_once(name: str) -> None:
    ours, theirs = MOVES[name]
    found = ours(X)
    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(found, theirs(X))


@pytest.mark.parametrize("reduction", scatter.REDUCTIONS)
def test_scattered_along_an_axis(reduction: str) -> None:
    indices = np.random.default_rng(1).permuted(np.tile(np.arange(4), (3, 5, 1)), axis=2).transpose(0, 2, 1)[:, :2]
    updates, expected = drawn(indices.shape, 2), X.copy()
    old = np.take_along_axis(X, indices, 1)
    combined = {"none": updates, "add": old + updates, "mul": old * updates}
    combined |= {"max": np.maximum(old, updates), "min": np.minimum(old, updates)}
    np.put_along_axis(expected, indices, combined[reduction], 1)
    found = evaluated(lambda x, i, u: scatter.scattered_along(x, i, u, 1, reduction), X, indices, updates)
    np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize("seed", range(8))
def test_products_broadcast(seed: int) -> None:
    rng = np.random.default_rng(seed)
    left, right = ((*rng.choice([1, 2], rng.integers(0, 3)), *s) for s in ((3, 4), (4, 5)))
    a, b = drawn(left[-2 if seed % 4 else -1 :] if seed % 2 else left), drawn(right)
    np.testing.assert_allclose(evaluated(matmul.multiplied, a, b), a @ b)


@pytest.mark.parametrize("seed", range(10))
def test_convolutions_forward_and_transposed_are_each_others_transpose(seed: int) -> None:
    """<conv(x), y> = <x, transposed(y)>, for drawn strides, dilations, padding and groups; conv against its definition."""
    rng = np.random.default_rng(seed)
    groups, strides, dilations = int(rng.choice([1, 2])), rng.integers(1, 3, 2).tolist(), rng.integers(1, 3, 2).tolist()
    before, after = rng.integers(0, 2, 2).tolist(), rng.integers(0, 2, 2).tolist()
    x, w = drawn((2, 2 * groups, 9, 8), seed), drawn((3 * groups, 2, 3, 2), seed + 1)
    over = windows.sliding(x.shape[2:], w.shape[2:], strides, dilations, before, after)
    y = drawn((2, 3 * groups, *over.sizes), seed + 2)
    forward = evaluated(lambda x, w: convolution.convolved(x, w, None, over, groups), x, w)
    np.testing.assert_allclose(forward, by_definition(x, w, over, groups))
    back = windows.spreading(over.sizes, w.shape[2:], strides, dilations, before, after)
    left = [have - want for have, want in zip(x.shape[2:], back.sizes, strict=True)]
    back = windows.spreading(
        over.sizes, w.shape[2:], strides, dilations, before, [a - n for a, n in zip(after, left, strict=True)]
    )
    transposed = evaluated(lambda y, w: convolution.transposed(y, w, None, back, groups), y, w)
    assert transposed.shape == x.shape
    np.testing.assert_allclose(np.vdot(forward, y), np.vdot(x, transposed))


def by_definition(x: Array, w: Array, over: windows.Window, groups: int) -> Array:
    padded = np.pad(x, ((0, 0), (0, 0), *zip(over.before, over.after, strict=True)))
    cells = np.zeros((x.shape[0], x.shape[1], *over.kernel, *over.sizes), x.dtype)
    for k in np.ndindex(over.kernel):
        starts = [d * i for d, i in zip(over.dilations, k, strict=True)]
        at = tuple(slice(a, a + s * (n - 1) + 1, s) for a, s, n in zip(starts, over.strides, over.sizes, strict=True))
        cells[(..., *k, slice(None), slice(None))] = padded[(..., *at)]
    apart = cells.reshape(x.shape[0], groups, -1, *cells.shape[2:])
    kernels = w.reshape(groups, -1, *w.shape[1:])
    return np.einsum("ngcklyx,gockl->ngoyx", apart, kernels).reshape(x.shape[0], -1, *over.sizes)


def test_pools() -> None:
    x = drawn((1, 2, 5, 6))
    over = windows.sliding((5, 6), (2, 3), (2, 1), (1, 1), (1, 0), (0, 1))
    largest, places = (evaluated(lambda x, k=k: pooling.max_pool_with_places(x, over, (2, 3))[k], x) for k in (0, 1))
    np.testing.assert_array_equal(largest, evaluated(lambda x: pooling.max_pool(x, over), x))
    np.testing.assert_array_equal(
        np.take_along_axis(x.reshape(1, 2, -1), places.reshape(1, 2, -1), 2), largest.reshape(1, 2, -1)
    )
    inside = pooling.average_pool
    ones = np.ones_like(x)
    np.testing.assert_array_equal(evaluated(lambda x: inside(x, over, False), ones), np.ones(largest.shape))
    assert evaluated(lambda x: inside(x, over, True), ones).min() < 1


def test_a_dtype_that_tile_lacks_is_said() -> None:
    from tile_runtime.ops.values import NotInTile, apply

    with pytest.raises(NotInTile, match="complex64"):
        apply("function (X) -> (Y) { Y = X; }", np.zeros(3, np.complex64))
    with pytest.raises(TypeError, match="list"):
        apply("function (X) -> (Y) { Y = X; }", [1, 2])


def test_what_einsum_multiplies_is_nowhere_kept_at_all_indexes() -> None:
    x, y, z = drawn((5, 7)), drawn((6, 7)), drawn((7,))
    program = tile.jit(lambda x, y, z: einsum.einsum("ac,bc,c->ab", x, y, z)).lower(x, y, z).program
    assert [op.type.shape for op in program.ops] == [(5, 6)]
