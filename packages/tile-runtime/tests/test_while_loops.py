"""Loops that go on as long as a condition holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tile_runtime as tile
import tile_runtime.numpy as tnp

HALVED = tile.Function("function (X[N]) -> (Y) { Y = X / 2; }")


@pytest.mark.parametrize("n", [3, 1 << 17])
def test_a_state_is_halved_until_it_is_small(n: int) -> None:
    x = np.linspace(1, 1000, n).astype(np.float32)
    found = tile.while_loop(lambda x: x.max() > 1, lambda x: x * 0.5, x)
    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(found, x / 1024)
    np.testing.assert_array_equal(tile.while_loop(lambda x: x.max() > 1, HALVED, x), x / 1024)


def test_newton_in_a_dict_gives_tensors_for_tensors() -> None:
    def step(s: dict[str, Any]) -> dict[str, Any]:
        x = s["x"] - (s["x"] * s["x"] - 2) / (2 * s["x"])
        return {"x": x, "n": s["n"] + 1}

    start = {"x": tile.asarray(np.float64(1)), "n": tile.asarray(np.int32(0))}
    found = tile.while_loop(lambda s: abs(s["x"] * s["x"] - 2) > 1e-12, step, start)
    assert isinstance(found["x"], tile.Tensor)
    assert float(found["x"]) == pytest.approx(2**0.5, abs=1e-12) and int(found["n"]) == 5


@pytest.mark.parametrize(
    ("start", "most", "want"), [(0, 40, 40), (0, 33, 33), (100, None, 100), (0, 0, 0), (0, None, 64)]
)
def test_rounds_are_as_many_as_the_condition_and_max_steps_allow(start: int, most: int | None, want: int) -> None:
    found = tile.while_loop(lambda n: n < 64, lambda n: n + 1, np.int32(start), max_steps=most)
    assert int(found) == want


def test_conjugate_gradients() -> None:
    draw = np.random.default_rng(0)
    m = draw.normal(size=(20, 20))
    a, b = m @ m.T + 20 * np.eye(20), draw.normal(size=20)

    def step(s: tuple[Any, ...]) -> tuple[Any, ...]:
        x, r, p = s
        ap = tnp.asarray(a) @ p
        alpha = (r * r).sum() / (p * ap).sum()
        fresh = r - alpha * ap
        return x + alpha * p, fresh, fresh + (fresh * fresh).sum() / (r * r).sum() * p

    x, *_ = tile.while_loop(lambda s: (s[1] * s[1]).sum() > 1e-20, step, (np.zeros(20), b, b), max_steps=100)
    np.testing.assert_allclose(x, np.linalg.solve(a, b), rtol=1e-8)


def test_under_jit_and_gradients_max_steps_bounds_the_program() -> None:
    def power(x: Any) -> Any:
        return tile.while_loop(lambda s: s.sum() < 100, lambda s: s * x, x, max_steps=30).sum()

    x = np.array([2.0, 3.0])
    assert float(tile.jit(power)(x)) == 2.0**5 + 3.0**5 - 0.0
    np.testing.assert_allclose(tile.grad(power)(x), 5 * x**4)


@pytest.mark.parametrize(
    ("cond", "step", "told"),
    [
        (lambda x: x > 0, lambda x: x, "not one bool"),
        (lambda x: True, lambda x: x, "whatever the state is"),
        (lambda x: x.sum() > 0, lambda x: (x, x), "the step makes"),
        (lambda x: x.sum() > 0, lambda x: x > 0, "before a round"),
    ],
)  # fmt: skip
def test_mistakes_are_told(cond: Any, step: Any, told: str) -> None:
    with pytest.raises(tile.TileTypeError, match="TILE-E530") as problem:
        tile.while_loop(cond, step, np.ones(3, np.float32))
    assert told in str(problem.value)
