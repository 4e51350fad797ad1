"""Loops on the device: the same as their rounds written out, on every device; what is refused, and how it is told."""

from __future__ import annotations

import itertools
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tile_lang
import tile_runtime as tile
from tile_ir.kernels import flat_steps
from tile_ir.program.nodes import Loop
from tile_ir.program.parser import parse_program
from tile_ir.program.printer import print_program

ADD = tile.Function("function (A, B) -> (C) { C = A + B; }")
BLEND = tile.Function("function (A, B) -> (C) { C = A * 0.5 + tanh(B) * 0.25; }")
HALF = tile.Function("function (A) -> (B) { B = A * 0.5 + 1; }")
MIX = tile.Function("function (W[I, J], H[J]) -> (M) { M[i : I] = +(W[i, j] * H[j]); }")
SQUARES = tile.Function("function (A[I]) -> (S) { S[] = +(A[i] * A[i]); }")
SIZE = 3


def _placeholder(name: str, *shape: int, dtype: str = "float32") -> tile.Symbol:
    return tile.placeholder(dtype, shape, name)


@dataclass
class Case:
    """A random loop of vectors: where each carried value and each stacked one comes from."""

    carried: list[tuple[str, int, int]]
    stacked: list[tuple[str, int, int]]
    slices: int
    rounds: int
    reverse: bool

    @staticmethod
    def of(seed: int) -> Case:
        r = random.Random(seed)
        carries, slices = r.randint(1, 4), r.randint(0, 2)
        kinds = ("carry", "carry", "blend", "mix", "same", *(("slice",) if slices else ()))

        def draw() -> tuple[str, int, int]:
            return r.choice(kinds), r.randrange(carries), r.randrange(max(slices, carries))

        stacked = [draw() for _ in range(r.randint(0, 3))]
        return Case([draw() for _ in range(carries)], stacked, slices, r.randint(0, 5), r.random() < 0.5)

    def step(self, weights: Any, carry: Any, rows: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        made: dict[tuple[str, int, int], Any] = {}

        def value(what: tuple[str, int, int]) -> Any:
            kind, k, j = what
            if what not in made:
                other = rows[j % self.slices] if self.slices else carry[j % len(carry)]
                made[what] = {
                    "carry": lambda: carry[k], "slice": lambda: other, "blend": lambda: BLEND(carry[k], other),
                    "mix": lambda: MIX(HALF(weights), carry[k]), "same": lambda: HALF(carry[0]),
                }[kind]()  # fmt: skip
            return made[what]

        return tuple(map(value, self.carried)), tuple(map(value, self.stacked))


def _programs(case: Case) -> tuple[Any, Any, dict[str, np.ndarray[Any, Any]]]:
    """The loop, its rounds written out, and inputs for both."""
    rng = np.random.default_rng(1)
    weights = _placeholder("w", SIZE, SIZE)
    start = [_placeholder(f"c{k}", SIZE) for k in range(len(case.carried))]
    xs = [_placeholder(f"x{k}", case.rounds, SIZE) for k in range(case.slices)]
    step = lambda carry, rows: case.step(weights, carry, rows)  # noqa: E731
    carry, stacks = tile.scan(step, tuple(start), tuple(xs), length=case.rounds, reverse=case.reverse)
    looped = tile.compose([weights, *start, *xs], {f"out{k}": s for k, s in enumerate((*carry, *stacks))})
    flat = [[_placeholder(f"x{k}_{t}", SIZE) for k in range(case.slices)] for t in range(case.rounds)]
    after, rows = tuple(start), [()] * case.rounds
    for t in reversed(range(case.rounds)) if case.reverse else range(case.rounds):
        after, rows[t] = step(after, flat[t])
    outputs = {f"out{k}": s for k, s in enumerate(after)}
    outputs |= {f"row{t}_{k}": s for t, row in enumerate(rows) for k, s in enumerate(row)}
    unrolled = tile.compose([weights, *start, *itertools.chain(*flat)], outputs)
    feeds = {p.name: rng.standard_normal(p.type.shape).astype(np.float32) for p in looped.program.inputs}
    return looped, unrolled, feeds


def _expected(case: Case, unrolled: Any, feeds: dict[str, np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    split = {n: v for n, v in feeds.items() if not n.startswith("x")}
    split |= {f"{n}_{t}": v[t] for n, v in feeds.items() if n.startswith("x") for t in range(case.rounds)}
    found = tile_lang.evaluate(unrolled.program, split)
    carry = [found[f"out{k}"] for k in range(len(case.carried))]
    rows = range(case.rounds)
    stacks = [
        np.array([found[f"row{t}_{k}"] for t in rows], np.float32).reshape(-1, SIZE) for k in range(len(case.stacked))
    ]
    return [*carry, *stacks]


@pytest.mark.parametrize("seed", range(24))
def test_a_loop_is_its_rounds_written_out(seed: int) -> None:
    case = Case.of(seed)
    looped, unrolled, feeds = _programs(case)
    wanted = _expected(case, unrolled, feeds)
    results = {"reference": list(tile_lang.evaluate(looped.program, feeds).values())}
    for device in ("interp", "llvm"):
        made = looped(**feeds, device=device)
        results[device] = list(made) if isinstance(made, tuple) else [made]
    for name, found in results.items():
        for got, want in zip(found, wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6, err_msg=f"{name} of {case}")


def test_its_text_form_is_read_back() -> None:
    for seed in range(6):
        program = _programs(Case.of(seed))[0].program
        assert parse_program(print_program(program)) == program


def test_a_wave_hands_on_its_state_without_copies() -> None:
    u, p = _placeholder("u", 8000), _placeholder("p", 8000)
    wave = tile.Function("function (U[N], P[N]) -> (V) { S[i : N] = +(U[i + k - 1]), k < 3; V = S - P; }")
    made = tile.repeat(lambda c: (wave(c[0], c[1]), c[0]), (u, p), 100)
    low = tile.compose([u, p], list(made)).lower(u, p, device="llvm")
    (step,) = low.kernels.steps
    assert step.loop is not None and len(list(flat_steps(low.kernels.steps))) == 1
    assert [len(set(w.cycle)) for w in step.loop.windows] == [3, 3, 3]


@pytest.mark.parametrize(("rounds", "counts"), [(3, [3]), (4, [2]), (16, [2]), (21, [3]), (23, [2, 7]), (34, [4, 2])])
def test_rounds_of_elements_alone_are_taken_together(rounds: int, counts: list[int]) -> None:
    u, p = _placeholder("u", 8000), _placeholder("p", 8000)
    step = tile.Function("function (U, P) -> (V) { V = 1.5 * U - P; }")
    f = tile.compose([u, p], list(tile.repeat(lambda c: (step(c[0], c[1]), c[0]), (u, p), rounds)))
    found = [s.loop.count if s.loop else 1 for s in f.lower(u, p, device="llvm").kernels.steps]
    assert found == counts
    now, before = np.arange(8000, dtype=np.float32), np.ones(8000, np.float32)
    wanted = now, before
    for _ in range(rounds):
        wanted = (np.float32(1.5) * wanted[0] - wanted[1], wanted[0])
    for got, want in zip(f(now, before, device="llvm"), wanted, strict=True):
        np.testing.assert_array_equal(got, want)


def test_what_all_rounds_share_is_computed_once() -> None:
    w, h = _placeholder("w", SIZE, SIZE), _placeholder("h", SIZE)
    made = tile.repeat(lambda c: MIX(HALF(HALF(w)), c), h, 9)
    program = tile.compose([w, h], [made]).program
    assert [type(op).__name__ for op in program.ops].count("Elementwise") > 0
    loop = next(op for op in program.ops if isinstance(op, Loop))
    assert len(loop.body.ops) == 1


def test_loops_within_loops() -> None:
    xs = np.arange(24, dtype=np.float32).reshape(2, 4, 3)
    inner = lambda c, x: (ADD(c, x), c)  # noqa: E731
    for device in ("interp", "llvm"):
        carry, ys = tile.scan(lambda c, x: tile.scan(inner, c, x), np.zeros(3, np.float32), xs, device=device)
        sums = np.cumsum(xs.reshape(8, 3), 0)
        np.testing.assert_array_equal(carry, sums[-1])
        np.testing.assert_array_equal(ys.reshape(8, 3), np.vstack([np.zeros((1, 3), np.float32), sums[:-1]]))


def test_at_top_level_with_functions_arrays_and_tensors() -> None:
    device = tile.device("llvm")
    total, none = tile.scan(ADD, 0.0, np.arange(5, dtype=np.float32))
    assert total == 10 and none is None
    start = tile.asarray(np.full(4, 2, np.float32), device)
    found = tile.repeat(HALF, start, 3)
    assert isinstance(found, tile.Tensor)
    np.testing.assert_array_equal(found.numpy(), 2.0)
    state = tile.repeat(lambda s: {"n": ADD(s["n"], np.int32(1)), "v": s["v"]}, {"n": 0, "v": start}, 7)
    assert state["n"].numpy() == 7
    np.testing.assert_array_equal(state["v"].numpy(), 2.0)


def test_the_same_loop_is_compiled_once() -> None:
    evaluator = tile.Evaluator("llvm")
    f = tile.compose([x := _placeholder("x", 4)], [tile.repeat(HALF, x, 5)])
    before = len(evaluator.programs)
    for _ in range(3):
        evaluator(f, np.ones(4, np.float32))
    assert len(evaluator.programs) == before + 1


@pytest.mark.diagonal(2)
@pytest.mark.parametrize("checkpoint", [0, 2, 3])
@pytest.mark.parametrize("reverse", [False, True])
def test_gradients_are_those_of_the_rounds_written_out(checkpoint: int, reverse: bool) -> None:
    rounds, rng = 5, np.random.default_rng(3)
    w, h, xs = _placeholder("w", SIZE, SIZE), _placeholder("h", SIZE), _placeholder("xs", rounds, SIZE)
    step = lambda c, x: ((BLEND(MIX(w, c[0]), x), c[0]), BLEND(c[1], x))  # noqa: E731
    carry, ys = tile.scan(step, (h, h), xs, reverse=reverse, checkpoint=checkpoint)
    looped = tile.compose([w, h, xs], {"loss": SQUARES(ADD(*carry)), "ys": ys})
    parts = [_placeholder(f"x{t}", SIZE) for t in range(rounds)]
    after, rows = (h, h), [h] * rounds
    for t in reversed(range(rounds)) if reverse else range(rounds):
        after, rows[t] = step(after, parts[t])
    outputs = {"loss": SQUARES(ADD(*after)), **{f"y{t}": y for t, y in enumerate(rows)}}
    unrolled = tile.compose([w, h, *parts], outputs)
    given = {
        n: (rng.standard_normal(s) / 2).astype(np.float32) for n, s in (("w", (3, 3)), ("h", (3,)), ("xs", (5, 3)))
    }
    dy, one = rng.standard_normal((rounds, SIZE)).astype(np.float32), np.float32(1)
    feeds = {n: v for n, v in given.items() if n != "xs"} | {f"x{t}": given["xs"][t] for t in range(rounds)}
    seeds = {f"d_y{t}": dy[t] for t in range(rounds)}
    wrt = ("w", "h", *(f"x{t}" for t in range(rounds)))
    dw, dh, *dx = tile.vjp(unrolled, wrt=wrt)(**feeds, d_loss=one, **seeds, device="llvm")
    for device in ("interp", "llvm"):
        got = tile.vjp(looped, wrt=("w", "h", "xs"))(**given, d_loss=one, d_ys=dy, device=device)
        for found, want in zip(got, (dw, dh, np.stack(dx)), strict=True):
            np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)


def test_explain_profile_and_stages_know_loops() -> None:
    x = _placeholder("x", 4000)
    f = tile.compose([x], {"y": tile.repeat(HALF, x, 6)})
    low = f.lower(x, device="llvm")
    assert "launched 2 times" in low.explain() and "loop 6 from (x)" in print_program(low.program)
    assert "Carry0" in str(low.stripe) and "Carry0" in str(low.stripe_after("initial"))
    assert low.error_bounds["y"].relation == "none" and "loop" in low.error_bounds["y"].reason
    with tile.profile() as profile:
        f(np.ones(4000, np.float32), device="llvm")
    assert sum(k.launches for k in profile.kernels) == 2  # three rounds each


def test_plans_that_were_read_from_text_fit_again() -> None:
    x = _placeholder("x", 4)
    f = tile.compose([x], [tile.repeat(HALF, x, 6)])
    plans = str(f.lower(x, device="llvm").plans)
    np.testing.assert_array_equal(tile.Evaluator("llvm", plans=plans)(f, np.full(4, 2, np.float32)), 2.0)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "carry of another shape": (
        lambda: tile.repeat(lambda c: MIX(np.ones((2, 3), np.float32), c), np.ones(3, np.float32), 2),
        r"carry is float32\[3\] before a round and float32\[2\] after it",
    ),
    "carry of another dtype": (
        lambda: tile.repeat(HALF, np.ones(3, np.int32), 2),
        r"carry is int32\[3\] before a round and float32\[3\] after it.*\n*.*start from float32\[3\]",
    ),
    "unequal lengths": (
        lambda: tile.scan(lambda c, x: (c, None), 0.0, {"a": np.ones(3), "b": np.ones(4)}),
        r"xs\['a'\]: 3, xs\['b'\]: 4",
    ),
    "length that differs": (lambda: tile.scan(ADD, 0.0, np.ones(3, np.float32), length=4), "xs: 3, length: 4"),
    "no length": (lambda: tile.scan(lambda c, x: (c, None), 0.0), "needs a length"),
    "negative": (lambda: tile.repeat(HALF, 0.0, -1), "n is -1"),
    "no number": (lambda: tile.repeat(HALF, 0.0, 2.5), "n is a number of rounds, not float 2.5"),
    "known at run time": (
        lambda: tile.repeat(HALF, 0.0, _placeholder("n", dtype="int32")),
        "how often a loop goes round is known before it runs",
    ),
    "scalars": (lambda: tile.scan(ADD, 0.0, 1.0), "xs has no axis to go along"),
    "no pair": (lambda: tile.scan(lambda c, x: c, 0.0, np.ones(3, np.float32)), r"returns a pair \(carry, y\)"),
    "another form": (
        lambda: tile.repeat(lambda c: (c[0],), (0.0, 1.0), 2), r"carries on \(\*,\), it was given \(\*, \*\)"
    ),
    "inputs": (lambda: tile.repeat(ADD, 0.0, 2), "has inputs A, B; a step of 1 carried and 0 cut takes 1"),
    "outputs": (
        lambda: tile.repeat(tile.Function("function (A) -> (B, C) { B = A; C = A; }"), 0.0, 2),
        "gives B, C; a step of 1 carried gives just as many",
    ),
    "no function": (lambda: tile.repeat(3, 0.0, 2), "step of a loop is a function"),
    "device of symbols": (
        lambda: tile.repeat(HALF, _placeholder("x"), 2, device="llvm"), "computes nothing yet: it takes no device"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_told(name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(tile.TileTypeError, match=message):
        call()


def test_updates_and_donated_tensors_exchange_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_copy(*_: object) -> None:
        raise AssertionError("copied")

    monkeypatch.setattr("tile_runtime.tensor.copy", no_copy)
    w = tile.asarray(np.zeros(4, np.float32), tile.device("llvm"))
    x = _placeholder("x", 4)
    train = tile.compose([x], [ADD(w, x)], updates=[(w, ADD(w, x))])
    for n in range(1, 5):
        np.testing.assert_array_equal(train(np.ones(4, np.float32)), n)
        np.testing.assert_array_equal(w.numpy(), n)
    assert HALF(w, out=w, donate="A") is w
    np.testing.assert_array_equal(w.numpy(), 3)


def test_an_interrupt_comes_through_between_rounds() -> None:
    x = _placeholder("x", 8)
    f = tile.compose([x], [tile.repeat(HALF, x, 10**9)])
    f.lower(x, device="llvm").executable  # noqa: B018 - compiled before the clock starts
    ones = np.ones(8, np.float32)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for _ in range(2):  # the first call of a program takes another way than those that follow
            signal.setitimer(signal.ITIMER_REAL, 0.5, 5)  # Python drops one that comes in a finalizer
            with pytest.raises(KeyboardInterrupt):
                f(ones, device="llvm")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    small = tile.compose([x], [tile.repeat(HALF, x, 3)])
    np.testing.assert_array_equal(small(np.full(8, 2, np.float32), device="llvm"), 2)
