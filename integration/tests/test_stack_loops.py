"""Loops on every device: states that are handed on, rows that need padding, loops in loops, gradients, and another process."""

from __future__ import annotations

from typing import Any

import numpy as np
import tile_lang
import tile_runtime as tile
from tile_hal.interfaces import Device

BLEND = tile.Function("function (A, B) -> (C) { C = 0.5 * A + B; }")
MIX = tile.Function("function (W[I, J], H[J]) -> (M) { M[i : I] = +(W[i, j] * H[j]); }")
ROUNDS, SIZE = 4, 5


def _program() -> Any:
    """A state of three vectors, two of which are handed on, over rows of 20 bytes, each through an inner loop; backwards."""
    w, h, xs = (tile.placeholder("float32", s, n) for n, s in (("w", (5, 5)), ("h", (5,)), ("xs", (ROUNDS, SIZE))))

    def step(carry: Any, row: Any) -> Any:
        a, b, c = carry
        inner = tile.repeat(lambda s: BLEND(s, c), row, 3)
        return (BLEND(MIX(w, a), inner), a, b), (inner, b)

    carry, (ys, zs) = tile.scan(step, (h, h, h), xs, reverse=True, checkpoint=2)
    return tile.compose([w, h, xs], {"a": carry[0], "c": carry[2], "ys": ys, "zs": zs})


def _inputs(program: Any) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(7)
    return {p.name: rng.standard_normal(p.type.shape).astype(np.float32) for p in program.inputs}


def test_a_loop_is_what_the_reference_says(device: Device) -> None:
    looped = _program()
    inputs = _inputs(looped.program)
    wanted = tile_lang.evaluate(looped.program, inputs)
    for got, want in zip(looped(**inputs, device=device), wanted.values(), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_so_is_its_gradient(device: Device) -> None:
    looped = _program()
    pull = tile.vjp(looped, wrt=("w", "h", "xs"))
    types = looped.program.types()
    known = {p.name: p.type for p in looped.program.inputs}
    program = pull.bind({**known, **{f"d_{public}": types[value] for public, value in looped.program.outputs}})
    inputs = _inputs(program)
    wanted = tile_lang.evaluate(program, inputs)
    for got, want in zip(pull(**inputs, device=device), wanted.values(), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_tensors_stay_on_the_device(device: Device) -> None:
    x = tile.asarray(np.full(8, 2, np.float32), device)
    found = tile.repeat(tile.Function("function (A) -> (B) { B = A * 0.5 + 1; }"), x, 20)
    assert isinstance(found, tile.Tensor) and found.device is device
    np.testing.assert_array_equal(found.numpy(), 2)


def test_a_device_in_another_process_runs_loops() -> None:
    looped = _program()
    inputs = _inputs(looped.program)
    wanted = tile_lang.evaluate(looped.program, inputs)
    for got, want in zip(tile.Evaluator("llvm", isolate=True)(looped, **inputs), wanted.values(), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_what_a_round_hands_on_and_nobody_reads_costs_nothing(device: Device) -> None:
    """A constant state that no round looks at is no part of the loop's memory."""
    idle, table = tile.constant(np.zeros((ROUNDS, SIZE), np.float32)), np.arange(20, dtype=np.float32).reshape(4, 5)
    pick = tile.Function("function (A, T, I) -> (B) { R[j : 5] = =(T[I[], j]); B = A + R; }")
    x = tile.placeholder("float32", (SIZE,), name="x")
    numbers = tile.constant(np.arange(ROUNDS, dtype=np.int32))
    (last, _), rows = tile.scan(lambda c, i: ((pick(c[0], table, i), c[1]), c[0]), (x, idle), numbers)
    end, before = tile.compose([x], [last, rows])(np.ones(SIZE, np.float32), device=device)
    sums = np.cumsum(table, 0) + 1
    np.testing.assert_array_equal(end, sums[-1])
    np.testing.assert_array_equal(before[1:], sums[:-1])
