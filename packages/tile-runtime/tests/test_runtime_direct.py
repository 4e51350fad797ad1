"""Warm calls: they take no way through buffers and events, and give what that way gives."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tile_hal
import tile_runtime as tile
from tile_hal.submission import Prepared
from tile_runtime import hazards

Array = np.ndarray[Any, Any]
PROGRAMS = {
    "one kernel": "function (A, B) -> (C) { C = A * 2 + B; }",
    "several outputs": "function (A, B) -> (C, D) { C = A + B; D = A * B; }",
    "an output twice, an input unread": "function (A, B) -> (C, D) { C = A + 1; D = C; }",
    "an input as it is": "function (A, B) -> (C, D) { C = A; D = B + 1; }",
    "zeros": "function (A, B) -> (C, D) { D = A + B; C[i : 40] = +(A[i, 0]), i < 3; }",
    "temporaries": """function (A[M, N], B[M, N]) -> (E) {
        C[i, j : M, M] = +(A[i, k] * B[j, k]); D[i, j : M, M] = +(C[i, k] * C[k, j]); E[i, j : M, M] = +(D[i, k] * C[k, j]); }""",
    "constants": "function (A, B) -> (C) { I = index(A, 1); C = A * I + B; }",
}  # fmt: skip


def inputs(shape: tuple[int, ...] = (12, 8)) -> tuple[Array, Array]:
    a, b = np.random.default_rng(1).random((2, *shape), np.float32)
    return a, b


def same(left: Any, right: Any) -> None:
    pairs = zip(left, right, strict=True) if isinstance(left, tuple) else [(left, right)]
    for x, y in pairs:
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


@pytest.fixture
def only_directly(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Call it to close the ordinary way."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("this call takes the ordinary way")

    yield lambda: monkeypatch.setattr(Prepared, "run", refuse)
    monkeypatch.undo()


@pytest.mark.parametrize("source", PROGRAMS.values(), ids=PROGRAMS)
def test_warm_calls_give_what_the_first_gave(source: str, only_directly: Callable[[], None]) -> None:
    f, (a, b) = tile.Function(source), inputs()
    tensors = tile.asarray(a, "llvm"), tile.asarray(b, "llvm")
    first = f(a, b, device="llvm")
    f(a, b, device="llvm")
    only_directly()
    for _ in range(3):
        for got in (f(a, b), f(A=a, B=b, device="llvm")):
            same(got, first)
        for got in (f(*tensors), f(a, tensors[1])):
            assert all(isinstance(t, tile.Tensor) for t in (got if isinstance(got, tuple) else (got,)))
            same(got, first)
    kept = f(a, b)
    b += 1
    gc.collect()
    same(kept, first)


@pytest.mark.parametrize("source", PROGRAMS.values(), ids=PROGRAMS)
def test_warm_calls_write_where_they_are_told(source: str, only_directly: Callable[[], None]) -> None:
    f, (a, b) = tile.Function(source), inputs()
    wanted = f(a, b)
    many = wanted if isinstance(wanted, tuple) else (wanted,)
    arrays = tuple(np.zeros_like(w) for w in many)
    tensors = tuple(tile.Tensor("llvm", w.shape, w.dtype) for w in many)
    f(a, b)
    only_directly()
    for values in ((a, b), (tile.asarray(a, "llvm"), b)):
        for given in (arrays, tensors, list(arrays)):
            got = f(*values, out=given)
            assert all(x is y for x, y in zip(got if len(given) > 1 else (got,), given, strict=True))
            same(tuple(given), many)
        for array in arrays:
            array[...] = 0


def test_shapes_and_dtypes_take_turns(only_directly: Callable[[], None]) -> None:
    f = tile.Function(PROGRAMS["one kernel"])
    calls = [(inputs(s)[0].astype(d), s) for d in ("float32", "int16") for s in ((3,), (2, 2), (), (5, 1))]
    wanted = [f(a, a) for a, _ in calls for _ in range(2)][::2]
    only_directly()
    for _ in range(2):
        for (a, shape), want in zip(calls, wanted, strict=True):
            got = f(a, a)
            assert (got.shape, got.dtype) == (shape, a.dtype)
            np.testing.assert_array_equal(got, want)
            np.testing.assert_array_equal(f(tile.asarray(a), a).numpy(), want)


def test_compositions_with_tensors_of_their_own(only_directly: Callable[[], None]) -> None:
    a, w = inputs()
    x, bound = tile.placeholder("float32", a.shape, "x"), tile.asarray(w, "llvm")
    f = tile.compose([x], [tile.Function(PROGRAMS["one kernel"])(x, bound)])
    for _ in range(2):
        np.testing.assert_array_equal(f(a), a * 2 + w)
    only_directly()
    got = f(a)
    assert isinstance(got, np.ndarray)
    np.testing.assert_array_equal(got, a * 2 + w)
    got = f(tile.asarray(a, "llvm"))
    assert isinstance(got, tile.Tensor)
    np.testing.assert_array_equal(got.numpy(), a * 2 + w)


@pytest.mark.parametrize("as_tensor", [False, True])
def test_updates_of_warm_calls(only_directly: Callable[[], None], as_tensor: bool) -> None:
    a, kept = np.arange(6, dtype=np.float32), tile.asarray(np.zeros(6, np.float32), "llvm")
    x, add = tile.placeholder("float32", a.shape, "x"), tile.Function("function (A, B) -> (C) { C = A + B; }")
    f = tile.compose([x], [add(add(x, kept), kept)], updates=[(kept, add(kept, x))])
    value = tile.asarray(a, "llvm") if as_tensor else a
    for turn in range(6):
        got = f(value)
        assert isinstance(got, tile.Tensor if as_tensor else np.ndarray)
        np.testing.assert_array_equal(np.asarray(got), a * (1 + 2 * turn))
        np.testing.assert_array_equal(kept.numpy(), a * (turn + 1))
        if turn == 2:
            only_directly()


def test_wrong_calls_are_errors_when_warm_too(add: tile.Function) -> None:
    a, before = np.arange(6, dtype=np.float32), np.arange(6, dtype=np.float32)
    for _ in range(3):
        add(a, a)
    wrong = [
        ("misses input 'B'", lambda: add(a)),
        ("misses input 'B'", lambda: add(a, out=(a.copy(), a.copy()))),
        ("3 were given", lambda: add(a, a, a.copy())),
        ("1 result", lambda: add(a, a, out=(a.copy(), a.copy()))),
        ("1 result", lambda: add(a, a, out=())),
        ("overlaps input", lambda: add(a, a, out=a)),
        ("overlaps input 'A'", lambda: add(a[1:], a[:-1].copy(), out=a[:-1])),
        ("read-only", lambda: add(a, a, out=np.broadcast_to(np.float32(0), 6))),
        ("'B' is on device llvm:0", lambda: add(tile.asarray(a, "interp"), tile.asarray(a, "llvm"))),
        ("is on device interp:0", lambda: add(a, a, out=tile.Tensor("interp", (6,), "float32"), device="llvm")),
    ]  # fmt: skip
    for message, call in wrong:
        with pytest.raises(tile.TileError, match=message):
            call()
        np.testing.assert_array_equal(a, before)


def test_tensors_wait_for_what_is_pending(add: tile.Function) -> None:
    a = np.arange(6, dtype=np.float32)
    t, out = tile.asarray(a, "llvm"), tile.Tensor("llvm", (6,), "float32")
    for _ in range(3):
        add(t, t, out=out)
    unfinished = tile_hal.HostEvent()
    t.pending_write = unfinished
    late = add(t, a)
    with t.buffer.map_current() as memory:
        np.frombuffer(memory, np.float32)[:] = 7
    unfinished.set()
    np.testing.assert_array_equal(late.numpy(), a + 7)
    np.testing.assert_array_equal(add(t, a).numpy(), a + 7)

    reading = tile_hal.HostEvent()
    out.pending_reads = [reading]
    assert add(t, a, out=out) is out
    assert out.pending_write is not None and not out.pending_write.done
    reading.set()
    np.testing.assert_array_equal(out.numpy(), a + 7)


def test_idle_tensors_are_handed_over_as_they_are(add: tile.Function, monkeypatch: pytest.MonkeyPatch) -> None:
    a = np.arange(6, dtype=np.float32)
    t, out = tile.asarray(a, "llvm"), tile.Tensor("llvm", (6,), "float32")
    for _ in range(2):
        add(t, t, out=out)
    t.pending_write, out.pending_reads = tile_hal.HostEvent(), [tile_hal.HostEvent()]
    t.pending_write.set()
    out.pending_reads[0].set()
    add(t, t, out=out)  # finds that both are over
    monkeypatch.setattr(hazards, "at_once", lambda *_: pytest.fail("asked what is pending"))
    seen = out.writes
    for values in ((t, t), (t, a), (a, t)):
        np.testing.assert_array_equal(add(*values).numpy(), 2 * a)
        assert add(*values, out=out) is out
    assert out.writes == seen + 3
    np.testing.assert_array_equal(out.numpy(), 2 * a)
    monkeypatch.undo()
    late = out + t  # of operators, read when `out` is about to change
    assert add(t, a, out=out) is out
    np.testing.assert_array_equal(late.numpy(), 3 * a)


def test_failures_of_tensors_are_passed_on(add: tile.Function) -> None:
    t, fine = tile.asarray(np.ones(6, np.float32), "llvm"), tile.asarray(np.ones(6, np.float32), "llvm")
    for _ in range(3):
        add(t, t)
    t.pending_write = tile_hal.FailedEvent(RuntimeError("the device broke"))
    for _ in range(2):
        with pytest.raises(tile.TileError, match="the device broke"):
            add(t, fine).wait()
    assert add(fine, fine, out=t) is t  # written anew
    np.testing.assert_array_equal(t.numpy(), 2)
    np.testing.assert_array_equal(add(t, fine).numpy(), 3)


@pytest.mark.parametrize("size", [100, 50_000])
def test_threads_get_their_own_results(size: int) -> None:
    f = tile.Function(
        "function (A[N], S) -> (C) { B[i : N] = +(A[i + j]), j < 3; C[i : N] = +(B[i + j] * S[]), j < 3; }"
    )
    a = np.arange(size, dtype=np.float32)
    unit = f(a, np.float32(1))
    shared, wrong = tile.asarray(a, "llvm"), list[float]()

    def work(number: int) -> None:
        for turn in range(30):
            scale = np.array(2.0 ** (number * 4 + turn % 4), np.float32)
            for got in (f(a, scale), f(shared, scale).numpy(), f(shared, tile.asarray(scale, "llvm")).numpy()):
                if not np.array_equal(got, unit * scale):
                    wrong.append(float(scale))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_tensors_over_results_have_one_buffer(add: tile.Function) -> None:
    a = tile.asarray(np.arange(6, dtype=np.float32), "llvm")
    t = [add(a, a) for _ in range(3)][-1]
    assert t.buffer is t.buffer and t.buffer.nbytes == 24
    with t.mmap_current() as view:
        view += 1
    np.testing.assert_array_equal(t.numpy(), np.arange(6) * 2 + 1)
    np.testing.assert_array_equal(add(t, a).numpy(), np.arange(6) * 3 + 1)
    with pytest.raises(tile.TileTypeError, match="overlaps input"):
        add(t, a, out=t)
    assert add(t, a, out=t, donate="A") is t
    np.testing.assert_array_equal(t.numpy(), np.arange(6) * 3 + 1)


def test_a_small_program_cache_forgets_direct_calls_too(add: tile.Function) -> None:
    evaluator, a = tile.Evaluator("llvm"), np.ones(3, np.float32)
    evaluator.programs.limit = 1
    double = tile.Function("function (A, B) -> (C) { C = A - B; }")
    for _ in range(2):
        for f, want in ((add, 2.0), (double, 0.0)):
            for _ in range(3):
                assert set(evaluator(f, a, a)) == {want}
            assert len(evaluator.programs) == 1
    assert evaluator.programs.latest(add.key) is None
