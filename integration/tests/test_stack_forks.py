"""Children of a process that compiles: they compile and run, however they are started and wherever the others are.

Each case is a process of its own: two threads compile and run one program after the other while children are started,
which do the same and compare with NumPy. The pool of threads that runs kernels is in use in all of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = '''
import faulthandler
import multiprocessing
import sys
import threading
import time

import numpy as np
import tile_runtime as tile

WIDE = (1 << 16) + 3  # enough for the pool


def good(number, cells=WIDE):
    """Whether a program that nobody compiled before gives what NumPy gives; a fork may come anywhere in it."""
    text = f"function (A[N]) -> (S, B) {{ B = A * {number} + 1; S[] = +(B[i]); T[i : N] = >(B[i + j]), j < {number % 7 + 1}; }}"
    x = np.arange(cells, dtype=np.float32) % 5
    total, scaled = tile.Evaluator("llvm")(tile.Function(text), x)
    return bool((scaled == x * number + 1).all()) and float(total) == float((x * number + 1).sum(dtype=np.float64))


def child(number, results):
    faulthandler.dump_traceback_later(250)  # where it hangs
    results.put((number, good(number, 1000 if number % 2 else WIDE)))


def busy(first, stop):
    number = first
    while not stop.is_set():
        assert good(number, 1000)
        number += 1


def start(methods):
    contexts = [multiprocessing.get_context(method) for method in methods]
    results = contexts[0].Queue()
    children = [context.Process(target=child, args=(n, results)) for n, context in enumerate(contexts)]
    for process in children:
        process.start()
        time.sleep(0.03)
    found = dict(results.get(timeout=300) for _ in children)
    for process in children:
        process.join(300)
    return all(found.values()) and all(p.exitcode == 0 for p in children)


if __name__ == "__main__":
    stop = threading.Event()
    threads = [threading.Thread(target=busy, args=(1000 * k, stop), daemon=True) for k in (1, 2)]
    for thread in threads:
        thread.start()  # their first imports are under way, too
    done = start(sys.argv[1:])
    stop.set()
    for thread in threads:
        thread.join()
    print("good" if done and good(7) else "wrong")
'''


@pytest.mark.parametrize("methods", [("fork",) * 2, ("forkserver", "spawn")], ids=["fork", "others"])
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_children_of_a_busy_process_compile_and_run(methods: tuple[str, ...], tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(SCRIPT)
    env = {**os.environ, "TILE_CACHE": "off", "TILE_NUM_THREADS": "3"}
    command = [sys.executable, "-W", "ignore", str(script), *methods]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, env=env, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "good"), done.stderr[-4000:]
