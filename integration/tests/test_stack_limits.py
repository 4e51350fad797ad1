"""Whatever a program asks for, there is an answer or a sentence in bounded time, and Ctrl-C gets through."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest
import tile_runtime as tile
from tile_ir.diagnostics import Diagnostic, TileLimitError

ROW = np.ones(1000, np.float32)


def forty(count: int) -> str:
    """A sum over so many indexes of range 2."""
    names = [f"i{k}" for k in range(count)]
    ranges = ", ".join(f"{name} < 2" for name in names)
    return f"function (A[N]) -> (B) {{ B[] = +(A[{' + '.join(names)}]), {ranges}; }}"


def fractions(size: int) -> str:
    return f"""function (A[N]) -> (B) {{
        B[i/2 + j/3 + k/5 + l/7 + m/11 + n/13 : {size}] = +(A[i]), j < {size}, k < {size}, l < {size}, m < {size}, n < {size};
    }}"""


ENDLESS = {
    "10^18 iterations": "function (A[N]) -> (B) { B[] = +(A[i]), j < 1000000000, k < 1000000000; }",
    "forty indexes of range 2": forty(40),
    "sums of six fractions": fractions(1000),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_endless_programs_are_refused_with_their_count(name: str) -> None:
    with pytest.raises(TileLimitError) as caught:
        tile.Function(ENDLESS[name])(ROW, device="llvm")
    (found,) = caught.value.diagnostics
    assert found.code == "TILE-E304" and "contraction B would take" in found.message and found.span is not None


def test_the_same_programs_of_smaller_sizes_are_answered() -> None:
    assert tile.Function(forty(16))(ROW, device="llvm") == 2**16
    found = tile.Function(fractions(12))(ROW, device="llvm")
    assert found.shape == (12,) and found.sum() > 0


def test_endless_programs_may_be_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILE_LONG_KERNELS", "1")
    assert tile.Function(forty(41)).lower(ROW, device="llvm").kernels.kernels[0].flops > 2**40


def test_large_products_are_none_of_them() -> None:
    product = tile.Function("function (A[M, K], B[K, N]) -> (C) { C[i, j : M, N] = +(A[i, k] * B[k, j]); }")
    square = tile.placeholder("float32", (32_768, 32_768), name="X")
    assert product.lower(square, square, device="llvm").kernels.kernels


# --- the time of a whole program ---------------------------------------------------------------------

LONG = (
    "function (A[N, K], B[K, M]) -> (E) { C[i, j : N, M] = +(A[i, k] * B[k, j]); D = tanh(C); E[i : N] = +(D[i, j]); }"
)
DOING = (
    "binding",
    "rewriting",
    "translating",
    "pass",
    "inline",
    "fuse",
    "a plan of",
    "lowering",
    "simplifying",
    "machine code of",
)


def stopped_after(looks: int, monkeypatch: pytest.MonkeyPatch) -> Diagnostic | None:
    """What is said when time is up at so many looks at the clock; None when compiling has come to its end before."""
    clock = itertools.count()
    monkeypatch.setattr("tile_ir.deadline.monotonic", lambda: float(next(clock)))
    monkeypatch.setenv("TILE_COMPILE_SECONDS", str(looks))
    monkeypatch.setenv("TILE_CACHE", "off")
    square = np.ones((8, 8), np.float32)
    try:
        found = tile.Evaluator("llvm")(tile.vjp(tile.Function(LONG), "A"), square, square, d_E=square[0])
    except TileLimitError as problem:
        (diagnostic,) = problem.diagnostics
        return diagnostic
    assert found.shape == (8, 8)
    return None


def test_time_is_up_at_whatever_was_being_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Diagnostic] = []
    while (diagnostic := stopped_after(len(said) + 1, monkeypatch)) is not None:
        said.append(diagnostic)
    assert all(d.code == "TILE-E305" and "TILE_COMPILE_SECONDS" in d.hint for d in said)
    reached = [d.message.partition("has come to ")[2] for d in said]
    for doing in (*DOING, "the gradient of"):
        assert any(r.startswith(f"{doing} ") for r in reached), doing
    assert any(r == "translating C" and d.span is not None for r, d in zip(reached, said, strict=True))


def test_compiling_may_take_as_long_as_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert stopped_after(0, monkeypatch) is None


INTERRUPTED = """
import os, signal, sys, threading, time
import numpy as np
import tile_runtime as tile

signal.signal(signal.SIGINT, signal.default_int_handler)
lines = "".join(f"B{k + 1} = tanh(B{k} + {k}); C{k + 1}[i, j : N, N] = +(B{k + 1}[i, k] * B0[k, j]);" for k in range(500))
text = "function (B0[N, N]) -> (C500) {" + lines + "}"
function = tile.Function(text)

def interrupt():
    while "tile_opt.translate" not in sys.modules:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt).start()
try:
    function(np.zeros((16, 16), np.float32), device="llvm")
    print("complete")
except KeyboardInterrupt:
    print("interrupted")
print(tile.Function("function (A) -> (B) { B = A + 1; }")(np.zeros(2, np.float32), device="llvm").tolist())
"""


def test_an_interrupt_ends_compiling_and_the_next_call_works() -> None:
    env = {**os.environ, "TILE_CACHE": "off"}
    command = [sys.executable, "-c", INTERRUPTED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=env, check=False)
    assert (done.returncode, done.stdout) == (0, "interrupted\n[1.0, 1.0]\n"), done.stderr[-2000:]


ONE_GROUP = """
import os, signal, sys, threading, time
sys.path.insert(0, {folder!r})
import numpy as np
import tile_runtime as tile
from test_stack_limits import ROW, fractions

signal.signal(signal.SIGINT, signal.default_int_handler)
function = tile.Function(fractions(400))

def interrupt():
    while not any(t.name == "hal-llvm-long" for t in threading.enumerate()):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt).start()
try:
    function(ROW, device="llvm")
    print("complete")
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_ends_a_group_that_would_run_for_many_minutes() -> None:
    env = {**os.environ, "TILE_CACHE": "off", "TILE_LONG_KERNELS": "1"}
    command = [sys.executable, "-c", ONE_GROUP.format(folder=os.path.dirname(__file__))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=env, check=False)
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr[-2000:]
