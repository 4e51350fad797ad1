"""Loops of small rounds are one kernel on processors: the same results, and what is carried never leaves its registers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tile_runtime as tile
from tile_ir.emit.walker import walk_statements
from tile_ir.kernels import StepKind
from tile_ir.semtree.nodes import Alloc
from tile_runtime import numpy as tnp

RNG = np.random.default_rng(0)
FILTER = tile.Function("function (A, B, X) -> (V, A2, O) { V = X + 1.5 * A - 0.7 * B; A2 = A; O = V; }")
KALMAN = tile.Function("""function (M[I], P[I, J], F[I, J], Z) -> (M3, P3, O) {
    M2[i : I] = +(F[i, j] * M[j]); G[i, j : I, J] = +(F[i, k] * P[k, j]); P0[i, j : I, J] = +(G[i, k] * F[j, k]);
    P2 = P0 + 0.01; C[i : I] = +(P2[i, j]), j < 1; A[] = +(C[i]), i < 1; R[] = +(M2[i]), i < 1; K = C / (A + 1);
    M3 = M2 + K * (Z - R); KC[i, j : I, J] = *(K[i] * C[j]); P3 = P2 - KC; O = M3; }""")
CELL = tile.Function("""function (H[N], X[K], W[N, N2], U[N, K]) -> (V, O) {
    Z[n : N] = +(W[n, m] * H[m]); Y[n : N] = +(U[n, k] * X[k]); V = tanh(Z + Y); O = V; }""")
NEXT = tile.Function("function (S) -> (T) { T = S * 1664525 + 1013904223; }")
SWAP = tile.Function("function (A, B) -> (C, D, O) { C = B; D = A; O = A - 2 * B; }")
WALK = tile.Function("function (T[N], P) -> (Q, O) { Q = gather(T, P); O = Q > 2; }")
HALF = tile.Function("function (A) -> (B) { B = A * 0.5; }")
TURNED = np.array([[1, 1], [0, 1]], np.float32)
WEIGHTS = RNG.standard_normal((5, 5)).astype(np.float32), RNG.standard_normal((5, 3)).astype(np.float32)
PERMUTED = np.array([3, 0, 4, 1, 2], np.int32)


def _floats(*shape: int, dtype: Any = np.float32) -> Any:
    return RNG.standard_normal(shape).astype(dtype)


def _filtered(carry: Any, x: Any) -> Any:
    a, b, out = FILTER(*carry, x)
    return (a, b), out


def _tracked(carry: Any, z: Any) -> Any:
    m, p, out = KALMAN(*carry, TURNED, z)
    return (m, p), out


def _recurrent(h: Any, x: Any) -> Any:
    after, out = CELL(h, x, *WEIGHTS)
    return after, (out, out)


def _exchanged(carry: Any, _: Any) -> Any:
    a, b, out = SWAP(*carry)
    return (a, b), out


def _walked(place: Any, _: Any) -> Any:
    return WALK(PERMUTED, place)


def _counted(state: Any, _: Any) -> Any:
    return NEXT(state), state


Case = tuple[Callable[..., Any], Any, Any, dict[str, Any]]
CASES: dict[str, Case] = {
    "filter": (_filtered, (np.float32(0), np.float32(1)), _floats(40), {}),
    "filter, reverse": (_filtered, (np.float32(0), np.float32(1)), _floats(40), {"reverse": True}),
    "filters side by side": (_filtered, (_floats(3), _floats(3)), _floats(9, 3), {}),
    "filters of a matrix": (_filtered, (_floats(2, 5), _floats(2, 5)), _floats(9, 2, 5), {}),
    "double": (_filtered, (np.float64(0), np.float64(1)), _floats(9, dtype=np.float64), {}),
    "half": (_filtered, (np.float16(0), np.float16(1)), _floats(9, dtype=np.float16), {}),
    "Kalman": (_tracked, (_floats(2), np.eye(2, dtype=np.float32)), _floats(20), {}),
    "recurrent cell": (_recurrent, _floats(5), _floats(12, 3), {}),
    "integers": (_counted, np.uint32(7), None, {"length": 30}),
    "handed on crosswise": (_exchanged, (_floats(4), _floats(4)), None, {"length": 7}),
    "places": (_walked, np.int32(1), None, {"length": 11}),
}


def _composed(step: Any, init: Any, xs: Any, options: dict[str, Any]) -> tuple[Any, list[Any]]:
    """A composition of a scan, and its arguments."""
    leaves = [*(init if isinstance(init, tuple) else (init,)), *([] if xs is None else [xs])]
    given = [np.asarray(leaf) for leaf in leaves]
    symbols = [tile.placeholder(str(a.dtype), a.shape, f"p{k}") for k, a in enumerate(given)]
    start = tuple(symbols[: len(init)]) if isinstance(init, tuple) else symbols[0]
    carry, made = tile.scan(step, start, None if xs is None else symbols[-1], **options)
    outputs = [*(carry if isinstance(carry, tuple) else (carry,)), *(made if isinstance(made, tuple) else (made,))]
    return tile.compose(symbols, outputs), given


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_small_rounds_are_one_kernel_and_give_what_they_give_one_by_one(case: Case) -> None:
    step, init, xs, options = case
    f, given = _composed(step, init, xs, options)
    steps = f.lower(*given, device="llvm").kernels.steps
    assert [s.kind for s in steps if not s.once] == [StepKind.KERNEL]
    got = f(*given, device="llvm")
    count = len(xs) if xs is not None else options["length"]
    order = reversed(range(count)) if options.get("reverse") else range(count)
    rows: dict[int, list[Any]] = {}
    carry = init
    for n in order:
        carry, made = step(carry, None if xs is None else xs[n])
        rows[n] = list(made) if isinstance(made, tuple) else [made]
    wanted = [*(carry if isinstance(carry, tuple) else (carry,))]
    wanted += [np.stack([rows[n][k] for n in range(count)]) for k in range(len(rows[0]))]
    for found, want in zip(got, wanted, strict=True):
        np.testing.assert_allclose(found, want, rtol=2e-2 if found.dtype == np.float16 else 1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["filter", "Kalman", "recurrent cell", "integers", "places"])
def test_what_small_rounds_carry_is_in_registers(name: str) -> None:
    f, given = _composed(*CASES[name])
    (kernel,) = f.lower(*given, device="llvm").kernels.kernels
    assert kernel.function is not None
    assert not [s for s in walk_statements(kernel.function.body) if isinstance(s, Alloc)]


@pytest.mark.parametrize("name", ["filter", "Kalman", "recurrent cell"])
def test_the_interpreter_agrees(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILE_VERIFY", "1")
    step, init, xs, options = CASES[name]
    f, given = _composed(step, init, xs[:4], options)
    for found, wanted in zip(f(*given, device="llvm"), f(*given, device="interp"), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


def test_gradients_go_through_small_rounds() -> None:
    f, (a, b, xs) = _composed(*CASES["filter"])
    weights = [np.float32(0), np.float32(0), np.ones(len(xs), np.float32)]
    slope = tile.vjp(f, wrt="p2")(a, b, xs, *weights)
    moved = xs.copy()
    moved[3] += 1
    assert np.isclose(slope[3], f(a, b, moved)[2].sum() - f(a, b, xs)[2].sum(), rtol=1e-3)


def test_rounds_that_carry_much_stay_steps() -> None:
    x = tile.placeholder("float32", (4096,), "x")
    wave = tile.Function("function (U[N]) -> (V) { V[i : N] = +(U[i + k - 1]), k < 3; }")
    (step,) = tile.compose([x], [tile.repeat(wave, x, 5)]).lower(x, device="llvm").kernels.steps
    assert step.loop is not None and step.loop.count == 5


def test_more_rounds_than_a_kernel_may_have_stay_steps() -> None:
    x = tile.placeholder("float32", (64,), "x")
    f = tile.compose([x], [tile.repeat(HALF, x, 2**31 - 1)])
    assert any(s.loop is not None for s in f.lower(x, device="llvm").kernels.steps)


def test_small_loops_in_small_loops() -> None:
    x = tile.placeholder("float32", (3,), "x")
    f = tile.compose([x], [tile.repeat(lambda c: tile.repeat(HALF, c, 3), x, 2)])
    np.testing.assert_array_equal(f(np.full(3, 64, np.float32), device="llvm"), 1)


def test_what_a_round_adds_up_in_two_kernels_is_not_computed_before_the_rounds() -> None:
    matrix = np.array([[3.0, 1.0, 0.5], [2.0, -4.0, 1.0], [6.0, 1.0, 2.0]])
    cofactors = np.linalg.det(matrix) * np.linalg.inv(matrix).T
    np.testing.assert_allclose(tile.jit(tile.grad(tnp.linalg.det))(matrix), cofactors, rtol=1e-12)
