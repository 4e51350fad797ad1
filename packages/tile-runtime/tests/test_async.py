"""Calls on Tensors return before their work is done, in host memory too, and every way to look at a Tensor waits."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tile_runtime as tile
from tile_hal.interfaces import Event, Result
from tile_ir.diagnostics import TileDeviceError
from tile_runtime import hazards
from tile_runtime.programs import executable

pytestmark = pytest.mark.skipif(
    "llvm:0" not in [d.id for d in tile.devices()], reason="the llvm device is not installed"
)
ONES = np.ones((3, 4), np.float32)


class Held:
    """The device is busy until `go`."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        executor = tile.device("llvm").executor
        executor.defer(lambda: self.gate.wait(60) and None)

    def go(self) -> None:
        self.gate.set()

    def soon(self) -> None:
        threading.Timer(0.02, self.gate.set).start()


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    monkeypatch.setattr(executable, "HANDED_OVER_SECONDS", 0)
    held = Held()
    yield held
    held.go()
    tile.synchronize("llvm")


def on(value: Any) -> tile.Tensor:
    return tile.asarray(np.asarray(value, np.float32), "llvm")


def doubling() -> tile.Function:
    """A function that nobody has compiled."""
    return tile.Function("function (A) -> (B) { B = A * 2; }", name="doubling.tile")


def test_a_call_returns_before_its_work_is_done(held: Held) -> None:
    twice = doubling()(on(ONES))
    assert not twice.done
    held.go()
    assert twice.wait() is twice and twice.done
    np.testing.assert_array_equal(twice.numpy(), 2 * ONES)


LOOKS: dict[str, Callable[[tile.Tensor], Any]] = {
    "numpy": lambda t: t.numpy(),
    "array": np.asarray,
    "dlpack": np.from_dlpack,
    "item": lambda t: np.full((3, 4), t[1, 2].item()),
    "tolist": lambda t: t.tolist(),
    "other device": lambda t: tile.asarray(t, "interp").numpy(),
    "operators": lambda t: (t + 0).numpy(),
    "iteration": lambda t: [row.numpy() for row in t],
    "deepcopy": lambda t: t.__deepcopy__({}).numpy(),
    "call with arrays": lambda t: tile.Function("function (A, B) -> (C) { C = A + B; }")(t, 0 * ONES),
    "result that is given": lambda t: tile.Function("function (A) -> (C) { C = A + 0; }")(t, out=np.empty_like(ONES)),
}


@pytest.mark.parametrize("look", LOOKS)
def test_who_looks_waits(held: Held, look: str) -> None:
    twice = doubling()(on(ONES))
    held.soon()
    np.testing.assert_array_equal(np.asarray(LOOKS[look](twice)), 2 * ONES)


def test_a_mapping_waits_for_those_who_read(held: Held) -> None:
    source = on(ONES)
    twice = doubling()(source)
    held.soon()
    with source.mmap_discard() as view:
        view[...] = 7
    np.testing.assert_array_equal(twice.numpy(), 2 * ONES)


def test_writes_come_in_order(held: Held) -> None:
    double, target = doubling(), on(0 * ONES)
    first = double(target)
    double(on(ONES), out=target)
    second = double(target)
    double(target, out=target, donate="A")
    held.go()
    assert [t.numpy().max() for t in (first, second, target)] == [0, 4, 4]


def test_updates_leave_pending_readers_what_they_began_with(held: Held) -> None:
    weights, x = on(ONES), tile.placeholder("float32", (3, 4), "X")
    train = tile.compose([x], [x * weights], updates=[(weights, weights + x)])
    results = [train(on(ONES)) for _ in range(4)]
    held.go()
    assert [r.numpy().max() for r in results] == [1, 2, 3, 4] and weights.numpy().max() == 5


def test_memory_that_others_write_to_is_read_before_the_call_returns(held: Held) -> None:
    theirs = ONES.copy()
    held.soon()
    twice = doubling()(tile.from_dlpack(theirs, "llvm"))
    assert twice.done
    theirs[...] = 9
    np.testing.assert_array_equal(twice.numpy(), 2 * ONES)


def test_failures_show_where_one_waits_and_what_it_was(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    def out_of_memory(*_: Any) -> Any:
        raise MemoryError("no memory left")

    monkeypatch.setattr(executable.Executable, "_run", out_of_memory)
    twice = doubling()(on(ONES))
    again = doubling()(twice)
    held.go()
    for failed in (twice, again):
        with pytest.raises(TileDeviceError, match=r"doubling.tile:1:11: .*no memory left \(in 'doubling'\)"):
            failed.wait()
        assert failed.done


def test_await_lets_others_run(held: Held) -> None:
    async def both() -> list[str]:
        said: list[str] = []

        async def other() -> None:
            said.append("other")
            held.go()

        twice = doubling()(on(ONES))
        task = asyncio.create_task(other())
        assert await twice is twice
        said.append("tensor")
        await task
        return said

    assert asyncio.run(both()) == ["other", "tensor"]


def test_synchronize_waits_for_a_device(held: Held) -> None:
    results = [doubling()(on(ONES)) for _ in range(3)]
    assert not any(r.done for r in results)
    held.soon()
    tile.synchronize("llvm")
    assert all(r.done for r in results)
    with pytest.raises(TileDeviceError, match="nonesuch"):
        tile.synchronize("nonesuch")


LONG = """
import signal, sys, numpy as np, tile_runtime as tile
from tile_runtime.programs import executable
executable.HANDED_OVER_SECONDS = 0
step = tile.Function("function (A) -> (B) { B = A * 0.5 + 1; }")
x = tile.placeholder("float32", (64,), "X")
many = tile.compose([x], [tile.repeat(step, x, ROUNDS)])
start = tile.asarray(np.ones(64, np.float32), "llvm")
many(start)
result = many(start)
print("pending", flush=True)
"""


def _process(rounds: int, then: str) -> subprocess.Popen[str]:
    code = LONG.replace("ROUNDS", str(rounds)) + then
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_process_ends_after_its_pending_work() -> None:
    said, problems = _process(1000, "").communicate(timeout=120)
    assert (said, problems) == ("pending\n", "")


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c_while_waiting_ends_work_that_takes_minutes() -> None:
    with _process(2**31 - 1, "result.wait()\n") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        try:
            _, problems = process.communicate(timeout=80)
        finally:
            process.kill()
    assert problems.rstrip().endswith("KeyboardInterrupt")


def test_synchronize_waits_for_a_worker_process() -> None:
    evaluator = tile.Evaluator("llvm", isolate=True)
    x = tile.asarray(ONES, evaluator.device)
    results = [evaluator(doubling(), x) for _ in range(5)]
    tile.synchronize(evaluator.device)
    assert all(r.done for r in results)


def _history(seed: int) -> None:
    """Calls that write, read and replace a Tensor in any order; its numbers are always those of the calls before."""
    draw, tensor, count, one = random.Random(seed), on(np.zeros(64)), 0, on(np.ones(64))
    add = tile.Function("function (A, B) -> (C) { C = A + B; }")
    kept: list[tuple[tile.Tensor, int]] = []
    for _ in range(120):
        match draw.randrange(6):
            case 0 | 1:
                count += 1
                add(tensor, one, out=tensor, donate="A")
            case 2:
                count += 1
                tensor = add(tensor, one)
            case 3:
                count += 1
                with tensor.mmap_current() as view:
                    view += 1
            case 4:
                kept.append((add(tensor, tensor), 2 * count))
            case _:
                assert tensor.numpy()[0] == count
    assert [int(t.numpy()[5]) for t, _ in kept] == [wanted for _, wanted in kept]


def test_histories_in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executable, "HANDED_OVER_SECONDS", 0)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(_history, range(4))) == [None] * 4


class _Asked(Event):
    """One of several commands of a queue; counts the questions."""

    questions = 0

    def __init__(self, done: bool) -> None:
        self._done = done

    @property
    def done(self) -> bool:
        _Asked.questions += 1
        return self._done

    def wait(self) -> Result:
        return Result()


@pytest.mark.parametrize("done", [0, 1, 100, 255, 256])
def test_what_is_pending_is_found_by_few_questions(done: int) -> None:
    events = [_Asked(n < done) for n in range(256)]
    _Asked.questions = 0
    assert hazards._unfinished(events) == events[done:]  # pyright: ignore[reportPrivateUsage]
    assert _Asked.questions <= done + 9


def test_what_ended_behind_pending_work_is_kept_or_dropped_but_nothing_pending_is_lost() -> None:
    for bits in range(256):
        events = [_Asked(bool(bits >> n & 1)) for n in range(8)]
        left = hazards._unfinished(events)  # pyright: ignore[reportPrivateUsage]
        assert [e for e in events if not e.done] == [e for e in left if not e.done]
        assert left == [e for e in events if e in left]
