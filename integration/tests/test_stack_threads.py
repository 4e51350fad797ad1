"""Many threads, many calls, wrong calls."""

from __future__ import annotations

import gc
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tile_runtime as tile
from tile_hal.interfaces import Device
from tile_ir.diagnostics import TileError

MATMUL = "function (A[M, L], B[L, N]) -> (C) { C[i, j : M, N] = +(A[i, k] * B[k, j]); }"
PAGE = resource.getpagesize()


def whole(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(-4, 5, shape).astype(np.float32)


def test_four_threads_call_one_function(device: Device) -> None:
    matmul = tile.Function(MATMUL)
    size, calls = (96, 40) if device.id.startswith("llvm") else (8, 6)

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(calls):
            a, b = whole(rng, size, size), whole(rng, size, size)
            np.testing.assert_array_equal(matmul(a, b, device=device), a @ b)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


def test_eight_threads_compile_different_functions(device: Device) -> None:
    def work(k: int) -> None:
        function = tile.Function(f"function (A[N, M]) -> (O) {{ B = A * {k + 2}; O[n : N] = +(B[n, m + {k}]); }}")
        data = whole(np.random.default_rng(k), 5, 20)
        # m may be negative: every element of a row is summed, whatever the offset.
        np.testing.assert_array_equal(function(data, device=device), (data * (k + 2)).sum(1))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))


def test_threads_that_ask_for_the_same_program_compile_it_once_and_right(device: Device) -> None:
    data = whole(np.random.default_rng(3), 6, 6)
    matmul = tile.Function(MATMUL)
    with ThreadPoolExecutor(8) as pool:
        for answer in pool.map(lambda _: matmul(data, data, device=device), range(8)):
            np.testing.assert_array_equal(answer, data @ data)


BITS = """
import hashlib
import numpy as np
import tile_runtime as tile

rng = np.random.default_rng(9)
TEXTS = (
    "function (A[N, M]) -> (O) { O[] = +(A[i, j]); }",
    "function (A[N, M]) -> (O, P) { E = exp(A); S[i : N] = +(E[i, j]); O = log(S); P[j : M] = *(A[i, j]); }",
    "function (A[N, M]) -> (O) { O[i, j : N, N] = +(A[i, k] * A[j, k]); }",
    "function (A[N, M]) -> (O) { O[i, j : N, M] = +(A[i, j - k]), k < M; }",
)
found = hashlib.sha256()
for text in TEXTS:
    function = tile.Function(text)
    for shape in ((7, 4099), (301, 67)):
        values = rng.standard_normal(shape).astype(np.float32)
        for _ in range(2):
            results = function(values, device="llvm")
            for array in results if isinstance(results, tuple) else (results,):
                found.update(np.asarray(array).tobytes())
print(found.hexdigest())
"""


def test_the_same_bits_with_any_number_of_threads_from_the_cache_and_without(tmp_path: Path) -> None:
    """Each in a process of its own; the third finds what the first has kept."""
    ways = ({"TILE_NUM_THREADS": "1"}, {"TILE_CACHE": "off", "TILE_NUM_THREADS": "3"}, {"TILE_NUM_THREADS": "2"})
    assert len({printed(BITS, {"TILE_CACHE_DIR": str(tmp_path / "cache"), **way}) for way in ways}) == 1


def printed(script: str, variables: dict[str, str]) -> str:
    """By another process."""
    command = [sys.executable, "-c", script]
    return subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=True).stdout


def test_a_wrong_call_changes_nothing(device: Device) -> None:
    matmul = tile.Function(MATMUL)
    a, b = whole(np.random.default_rng(0), 4, 5), whole(np.random.default_rng(1), 5, 6)
    out = np.full((4, 6), 7, np.float32)
    copies = [x.copy() for x in (a, b, out)]
    wrong: list[Callable[[], object]] = [
        lambda: matmul(a, a, device=device, out=out),
        lambda: matmul(a, device=device, out=out),
        lambda: matmul(a, b, a, device=device, out=out),
        lambda: matmul(a, Q=b, device=device, out=out),
        lambda: matmul(a, b, device=device, out=out[:2]),
        lambda: matmul(a, b, device=device, out=out.astype(np.float64)),
        lambda: matmul(a.astype("M8[s]"), b, device=device, out=out),
        lambda: matmul(a[0], b, device=device, out=out),
        lambda: matmul(a, b, device="no such device", out=out),
    ]
    for call in wrong:
        with pytest.raises(TileError):
            call()
    for array, copy in zip((a, b, out), copies, strict=True):
        np.testing.assert_array_equal(array, copy)
    assert matmul(a, b, device=device, out=out) is out
    np.testing.assert_array_equal(out, a @ b)


# --- memory stays flat ---------------------------------------------------------------------------------


def resident() -> int:
    """Bytes of memory that the process has now."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def growth(work: Callable[[int], object], warm: int, count: int) -> int:
    """Bytes by which `count` runs of `work` grow the process, after `warm` of them."""
    for k in range(warm):
        work(k)
    before = resident()
    for k in range(warm, warm + count):
        work(k)
    return resident() - before


def call() -> Callable[[int], object]:
    add = tile.Function("function (A, B) -> (C) { C = A + B; }")
    a = np.ones(8, np.float32)
    return lambda _: add(a, a)


def compile_another(k: int) -> object:
    return tile.Function(f"function (A) -> (B) {{ B = A * {k} + {k + 1}; }}").lower(np.ones(8, np.float32)).executable


linux = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")


@linux
def test_calls_hold_memory_flat() -> None:
    assert growth(call(), 1_000, 4_000) <= 2 << 20


@linux
@pytest.mark.slow
def test_many_calls_hold_memory_flat() -> None:
    assert growth(call(), 5_000, 100_000) <= 2 << 20


@linux
@pytest.mark.slow
def test_many_compilations_hold_memory_flat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILE_CACHE", "off")
    assert growth(compile_another, 300, 1_000) <= 24 << 20
