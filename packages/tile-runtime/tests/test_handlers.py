"""A signal's handler runs between any two lines of the thread that it interrupts, and may call Tile itself."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import tile_runtime as tile
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
SHARED = {"collector.py", "recent.py", "program_cache.py", "hazards.py", "workspaces.py", "submission.py"}
"""Where calls of all threads meet."""


class Handler:
    """Calls `call` at line number `at` of those files, and says where that was; None where there are fewer lines."""

    def __init__(self, call: Callable[[], object], at: int) -> None:
        self.call, self.left = call, at
        self.where: tuple[str, int] | None = None

    def during(self, work: Callable[[], Any]) -> Any:
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            return work()
        finally:
            sys.settrace(before)

    def _enter(self, frame: FrameType, event: str, argument: object) -> Any:
        return self._line if Path(frame.f_code.co_filename).name in SHARED else None

    def _line(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "line" and self.where is None:
            self.left -= 1
            if self.left < 0:
                self.where = Path(frame.f_code.co_filename).name, frame.f_lineno
                self.call()
        return self._line


_numbers = count(3)


def _compiled() -> Any:
    """A program that nobody has compiled."""
    number = next(_numbers)
    return tile.Function(f"function (A) -> (C) {{ C = A * {number}; }}")(DATA, device="llvm") / number * WANTED / DATA


def _arrays() -> Any:
    return CASCADE(DATA, DATA, device="llvm")


def _tensors() -> Any:
    a = tile.asarray(DATA, device=tile.device("llvm"))
    return CASCADE(a, a).numpy()


@pytest.mark.parametrize(
    ("work", "step"), [(_arrays, 1), (_tensors, 1), (_compiled, 199)], ids=["arrays", "tensors", "compiled"]
)
def test_a_handler_may_call_what_it_interrupts(work: Callable[[], Any], step: int) -> None:
    work()
    places = set[tuple[str, int]]()
    for at in count(0, step):
        handler = Handler(lambda: np.testing.assert_allclose(work(), WANTED, 1e-3, 1e-3), at)
        np.testing.assert_allclose(handler.during(work), WANTED, 1e-3, 1e-3)
        if handler.where is None:
            break
        places.add(handler.where)
    assert places or work is _arrays, "a direct call meets nobody"
    assert gc.isenabled()


def test_who_waits_for_work_that_it_has_interrupted_is_told() -> None:
    tensor = tile.asarray(DATA, device=tile.device("llvm"))
    ticket, _ = hazards.claim([], [tensor])
    with pytest.raises(TileDeviceError, match="the call that this one interrupts is starting this work"):
        tensor.numpy()
    ticket.started(hazards.COMPLETED)
    assert tensor.numpy().shape == DATA.shape
