"""A signal's handler runs between any two lines of the thread that it interrupts, and may call Tile itself, on any device."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import tile_hal
import tile_runtime as tile
from hal_llvm import pool
from tile_hal.host_queue import HostEvent, HostQueue
from tile_ir.diagnostics import TileDeviceError
from tile_runtime import hazards

CASCADE = tile.Function("""
function (A[N, M], B[M, L]) -> (C) {
    T[i, j : N, L] = +(A[i, k] * B[k, j]);
    X[i : N] = >(T[i, j]);
    C[i, j : N, L] = +(T[i, j] * X[i]);
}""")
DATA = np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32)
WANTED = DATA @ DATA * np.max(DATA @ DATA, 1, keepdims=True)
WIDE = np.arange((1 << 17) + 3, dtype=np.float32) % 5
RUNTIME = ("collector.py", "recent.py", "program_cache.py", "hazards.py", "workspaces.py", "submission.py")
"""Where calls of all threads meet."""
QUEUE = ("host_queue.py",)
CPU = ("hal_llvm/pool.py", "hal_llvm/executor.py", "hal_llvm/binding.py", "hal_llvm/objects.py", "hal_llvm/backlog.py")


class Handler:
    """Calls `call` at line number `at` of some files, and says where that was; None where there are fewer lines."""

    def __init__(self, call: Callable[[], object], at: int, files: Sequence[str]) -> None:
        self.call, self.left, self.files = call, at, tuple(files)
        self.where: tuple[str, int] | None = None

    def during(self, work: Callable[[], Any]) -> Any:
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            return work()
        finally:
            sys.settrace(before)

    def _enter(self, frame: FrameType, event: str, argument: object) -> Any:
        path = Path(frame.f_code.co_filename)
        return self._line if path.as_posix().endswith(self.files) or path.parent.name in self.files else None

    def _line(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "line" and self.where is None:
            self.left -= 1
            if self.left < 0:
                self.where = Path(frame.f_code.co_filename).name, frame.f_lineno
                self.call()
        return self._line


def swept(work: Callable[[], Any], call: Callable[[], Any], files: Sequence[str], step: int = 1) -> int:
    """In how many places of these files `call` may interrupt `work`: each of them fails where its result is wrong."""
    places = set[tuple[str, int]]()
    for at in count(0, step):
        handler = Handler(call, at, files)
        handler.during(work)
        if handler.where is None:
            return len(places)
        places.add(handler.where)
    raise AssertionError


_numbers = count(3)


def _same(found: Any) -> None:
    np.testing.assert_allclose(found, WANTED, 1e-3, 1e-3)


def _compiled() -> None:
    """A program that nobody has compiled."""
    number = next(_numbers)
    _same(tile.Function(f"function (A) -> (C) {{ C = A * {number}; }}")(DATA, device="llvm") / number * WANTED / DATA)


def _arrays() -> None:
    _same(CASCADE(DATA, DATA, device="llvm"))


def _tensors(device: tile_hal.Device) -> None:
    a = tile.asarray(DATA, device=device)
    _same(CASCADE(a, a).numpy())


def _on_cpu() -> None:
    _tensors(tile.device("llvm"))


@pytest.mark.parametrize(
    ("work", "step"), [(_arrays, 1), (_on_cpu, 1), (_compiled, 199)], ids=["arrays", "tensors", "compiled"]
)
def test_a_handler_may_call_what_it_interrupts(work: Callable[[], None], step: int) -> None:
    work()
    assert swept(work, work, RUNTIME, step) or work is _arrays, "a direct call meets nobody"
    assert gc.isenabled()


def test_a_handler_may_call_an_opencl_device_that_it_interrupts() -> None:
    if not (devices := tile_hal.devices("opencl")):
        pytest.skip("no OpenCL device here")
    _tensors(devices[0])
    assert swept(lambda: _tensors(devices[0]), lambda: _tensors(devices[0]), ("hal_opencl", *QUEUE), 3) > 40


def test_a_handler_may_call_a_device_in_a_worker_that_it_interrupts() -> None:
    device = tile.Evaluator("llvm", isolate=True).device
    _tensors(device)
    assert swept(lambda: _tensors(device), lambda: _tensors(device), ("isolation", *QUEUE), 3) > 40


def test_a_handler_may_start_the_worker_that_is_being_started() -> None:
    device: Any = tile.Evaluator("llvm", isolate=True).device
    _tensors(device)
    link = device.memory._link

    def started() -> None:
        link.worker().close()
        _tensors(device)

    assert swept(started, lambda: _tensors(device), ("isolation/link.py",), 61) > 1


def test_a_handler_may_use_the_threads_that_are_being_started() -> None:
    wide = tile.Function("function (A[N]) -> (B) { T[i : N] = >(A[i + j]), j < 3; B = T * 2 + 1; }")
    rows = np.lib.stride_tricks.sliding_window_view(np.append(WIDE, [-np.inf] * 2), 3)
    wanted = (rows.max(1) * 2 + 1).astype(np.float32)

    def call() -> None:
        np.testing.assert_array_equal(wide(WIDE, device="llvm"), wanted)

    def resized() -> None:
        pool.resize(2)
        pool.current().reserve(next(_numbers) * 1000)
        call()

    before = pool.current().threads
    call()
    assert swept(resized, call, CPU, 3) > 10  # as many as other threads leave to this one
    pool.resize(before)


def test_a_handler_may_wait_for_what_another_thread_completes() -> None:
    """Wherever it interrupts this thread: that one waits for no lock of this."""
    own = HostQueue(1)

    def work() -> None:
        event = HostEvent()
        events.append(event)
        later = own.run(lambda: None, [event], inline=False)
        if not event.done:
            event.set()
        later.wait()

    def call() -> None:
        if events:
            threading.Thread(target=events[-1].set).start()
            events[-1].wait()

    events: list[HostEvent] = []
    work()
    assert swept(work, call, QUEUE) > 40
    own.close()


def test_who_waits_for_work_that_it_has_interrupted_is_told() -> None:
    tensor = tile.asarray(DATA, device=tile.device("llvm"))
    ticket, _ = hazards.claim([], [tensor])
    with pytest.raises(TileDeviceError, match="the call that this one interrupts is starting this work"):
        tensor.numpy()
    ticket.started(hazards.COMPLETED)
    assert tensor.numpy().shape == DATA.shape
