"""Tile functions over dask arrays beside what a dask user writes today, on worker processes of this machine.

    python integration/bench/dask_arrays.py [stencil product overhead image devices] [--size 16384] [--chunk 2048] [--workers 2]

Prints, for each: wall time, processor time of all workers and the scheduler, tasks, and the largest memory of all workers
together, ours beside the peers', and ratios. On a machine that does other work, too, the processor time says more. Each is run `--rounds` times, interleaved; medians with the spread. Memory is the most that workers
hold beyond what they held before the first run: the result is in it.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import dask
import dask.array
import distributed
import numpy as np
import psutil
import tile_dask
import tile_runtime as tile

da: Any = dask.array

STENCIL = tile.Function(
    """
function (X[M, N]) -> (Y) {
    U[i, j : M, N] = =(X[i - 1, j]);
    D[i, j : M, N] = =(X[i + 1, j]);
    L[i, j : M, N] = =(X[i, j - 1]);
    R[i, j : M, N] = =(X[i, j + 1]);
    Y = (X + U + D + L + R) * 0.2;
}""",
    name="stencil.tile",
)
PRODUCT = tile.Function(
    "function (A[M, L], B[L, N]) -> (C) { C[i, j : M, N] = +(A[i, k] * B[k, j]); }", name="product.tile"
)
BLUR = tile.Function(
    "function (X[M, N], K[A, B]) -> (Y) { Y[i, j : M, N] = +(X[i + a - 1, j + b - 1] * K[a, b]); }", name="blur.tile"
)
STEPS = 10


class Memory:
    """The most that processes hold together, beyond `start`, in bytes."""

    def __init__(self, processes: list[psutil.Process], start: int | None = None) -> None:
        self._processes, self._over = processes, threading.Event()
        self._start = held(processes) if start is None else start
        self.most = 0
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.02):
            self.most = max(self.most, held(self._processes) - self._start)


def held(processes: list[psutil.Process]) -> int:
    """Resident bytes of processes."""
    return sum(p.memory_info().rss for p in processes)


def step(block: Any) -> Any:
    """One step inside a block that has a cell more on each side, in Numba."""
    return _numba()(block)


def _numba() -> Callable[[Any], Any]:
    global _compiled
    if _compiled is None:
        import numba

        @numba.njit(fastmath=True)
        def compiled(x: Any) -> Any:
            y = np.zeros_like(x)
            for i in range(1, x.shape[0] - 1):
                for j in range(1, x.shape[1] - 1):
                    y[i, j] = (x[i, j] + x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1]) * np.float32(0.2)
            return y

        _compiled = compiled
    return _compiled


_compiled: Callable[[Any], Any] | None = None


def overlapped(x: Any) -> Any:
    for _ in range(STEPS):
        x = da.map_overlap(step, x, depth=1, boundary=0, dtype=x.dtype)
    return x


def blockwise(x: Any) -> Any:
    for _ in range(STEPS):
        x = da.map_blocks(step, x, dtype=x.dtype)
    return x


Way = tuple[str, Callable[[], Any]]


class Found(NamedTuple):
    """What one way took."""

    seconds: float
    """The median."""
    spread: float
    """Of the slowest round beyond the fastest, relative to the median."""
    processor: float
    """The median of the processor seconds of all workers, and of this process, which has the scheduler."""
    bytes: int
    """The most that workers held."""
    tasks: int


def measured(client: Any, ways: list[Way], rounds: int) -> dict[str, Found]:
    """What each way takes, run in turns."""
    processes = [psutil.Process(p) for p in client.run(_process).values()]
    seconds, processor = ({name: list[float]() for name, _ in ways} for _ in range(2))
    most: dict[str, int] = {name: 0 for name, _ in ways}
    tasks: dict[str, int] = {}
    client.run(_collect)
    before = held(processes)
    for turn in range(rounds + 1):
        for name, make in ways:
            client.run(_collect)
            with Memory(processes, before) as memory:
                start, used = time.perf_counter(), worked(processes)
                result = make()
                tasks[name] = len(result.__dask_graph__())
                kept = client.persist(result)
                distributed.wait(kept)  # type: ignore[no-untyped-call]
                took = time.perf_counter() - start
            if turn:
                seconds[name].append(took)
                processor[name].append(worked(processes) - used)
                most[name] = max(most[name], memory.most)
            del kept, result
    return {name: _found(seconds[name], processor[name], most[name], tasks[name]) for name, _ in ways}


def _found(seconds: list[float], processor: list[float], most: int, tasks: int) -> Found:
    middle = statistics.median(seconds)
    return Found(middle, (max(seconds) - min(seconds)) / middle, statistics.median(processor), most, tasks)


def worked(processes: list[psutil.Process]) -> float:
    """Processor seconds of processes, and of this one, so far."""
    return sum(sum(p.cpu_times()[:2]) for p in (*processes, psutil.Process()))


def _process() -> int:
    import os

    return os.getpid()


def _collect() -> None:
    """Give back what a way before has left."""
    import ctypes
    import gc

    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def show(title: str, found: dict[str, Found], unit: int, per: str) -> None:
    ours = found["tile"]
    print(f"\n{title}")
    for name, way in found.items():
        line = f"  {name:12} {way.seconds:7.2f} s ±{way.spread / 2:.0%}  {way.processor:7.2f} CPU s  {way.bytes / 1e9:6.2f} GB"
        ratios = "" if way is ours else f"   ours/its: {_ratios(ours, way)}"
        print(f"{line}  {way.tasks} tasks ({way.tasks / unit:.2f} {per}){ratios}", flush=True)


def _ratios(ours: Found, other: Found) -> str:
    time, processor = ours.seconds / other.seconds, ours.processor / other.processor
    return f"time {time:.2f}, CPU {processor:.2f}, memory {ours.bytes / max(other.bytes, 1):.2f}"


def stencil(client: Any, args: argparse.Namespace) -> None:
    x = client.persist(da.random.random((args.size, args.size), chunks=args.chunk).astype(np.float32))
    distributed.wait(x)  # type: ignore[no-untyped-call]
    ways: list[Way] = [
        ("tile", lambda: tile_dask.apply(STENCIL, x, steps=STEPS)),
        ("map_overlap", lambda: overlapped(x)),
        ("map_blocks", lambda: blockwise(x)),
    ]
    found = measured(client, ways, args.rounds)
    show(
        f"5-point stencil, {args.size}² float32, {args.chunk}² chunks, {STEPS} steps",
        found,
        x.npartitions * STEPS,
        "a chunk and step",
    )
    far = (slice(100, 110), slice(args.chunk - 5, args.chunk + 5))
    a, b = (np.asarray(w()[far]) for _, w in ways[:2])
    print(f"  largest difference: {np.abs(a - b).max():.1e}")


def product(client: Any, args: argparse.Namespace) -> None:
    rows, inner = args.size, args.size // 8
    a = client.persist(da.random.random((rows, inner), chunks=(args.chunk, args.chunk // 4)).astype(np.float32))
    b = client.persist(da.random.random((inner, rows), chunks=(args.chunk // 4, args.chunk)).astype(np.float32))
    distributed.wait([a, b])  # type: ignore[no-untyped-call]
    ways: list[Way] = [("tile", lambda: tile_dask.apply(PRODUCT, a, b)), ("dask", lambda: da.matmul(a, b))]
    found = measured(client, ways, args.rounds)
    show(
        f"product {rows}x{inner}x{rows}, chunks of {args.chunk}, {args.chunk // 4}, {args.chunk}",
        found,
        (rows // args.chunk) ** 2,
        "a chunk",
    )


def overhead(client: Any, args: argparse.Namespace) -> None:
    print("\nplanning alone (no array is touched)")
    for n in (100, 200, 316):
        x = da.zeros((n * 2048, n * 2048), chunks=2048, dtype="float32")
        start = time.process_time()
        y = tile_dask.apply(STENCIL, x)
        print(f"  {n * n} chunks: {time.process_time() - start:.1f} CPU s, {len(y.__dask_graph__())} tasks", flush=True)


def image(client: Any, args: argparse.Namespace) -> None:
    side = int((args.gigabytes * 1e9 / 4) ** 0.5) // 4096 * 4096
    x = da.random.random((side, side), chunks=4096).astype(np.float32)
    k = np.full((3, 3), 1 / 9, np.float32)
    gradient = tile.vjp(BLUR, wrt=("X", "K"))
    processes = [psutil.Process(p) for p in client.run(_process).values()]
    with Memory(processes) as memory:
        start = time.perf_counter()
        y = tile_dask.apply(BLUR, x, k)
        dx, dk = tile_dask.apply(gradient, x, k, y)
        total = dask.array.compute(abs(dx).sum(), dk)  # type: ignore[attr-defined]
        took = time.perf_counter() - start
    print(
        f"\nblur and its gradients over {side}² float32 ({side * side * 4 / 1e9:.0f} GB): {took:.0f} s, most memory {memory.most / 1e9:.2f} GB"
    )
    print(f"  dK: {np.asarray(total[1]).ravel()[:3]} …")


def devices(client: Any, args: argparse.Namespace) -> None:
    """The time loop on one worker's device, and on a device for each worker, in turns."""
    addresses = [a for a, _ in sorted(client.scheduler_info()["workers"].items(), key=lambda w: w[1]["name"])]
    counts = sorted({1, len(addresses)})
    seconds: dict[int, list[float]] = {n: [] for n in counts}
    answers: dict[int, Any] = {}
    for turn in range(args.rounds + 1):
        for count in counts:
            took, part = _loop_on(client, addresses[:count], args)
            if not np.array_equal(answers.setdefault(1, part), part):
                raise SystemExit(f"{count} devices give another answer")
            if turn:
                seconds[count].append(took)
    found = {n: statistics.median(s) for n, s in seconds.items()}
    print(
        f"\n5-point stencil, {args.size}² float32, {args.steps} steps, devices {args.device}:0 to {len(addresses) - 1}"
    )
    for count, took in found.items():
        spread = max(seconds[count]) - min(seconds[count])
        print(f"  {count} devices {took:7.3f} s ±{spread / took / 2:.0%}   {found[1] / took:.2f} times one")


def _loop_on(client: Any, workers: list[str], args: argparse.Namespace) -> tuple[float, Any]:
    """Seconds of the time loop, and some of its result, on some workers, each on the device of its number.

    Before it starts, each worker has as many rows of the array, next to each other. Both arrays are NumPy's, in the workers' memory, or
    both are on the devices, as steps before left the first one.
    """
    kind = args.device

    def own() -> str:
        return f"{kind}:{distributed.get_worker().name}"  # type: ignore[no-untyped-call]

    while any(client.has_what().values()):  # what a run before leaves would go while this one is timed
        time.sleep(0.01)
    client.run(_collect)
    x = _placed(client, workers, args)
    persist = tile_dask.persist if args.resident else client.persist
    if args.resident:
        x = persist(tile_dask.apply(STENCIL, x, device=own), workers=workers)
        _settled(client, x, kind)
    start = time.perf_counter()
    kept = persist(tile_dask.apply(STENCIL, x, steps=args.steps, exchange=args.exchange, device=own), workers=workers)
    submitted = time.perf_counter()
    _settled(client, kept, kind)
    over = time.perf_counter()
    middle = np.s_[args.size // 2 - 4 : args.size // 2 + 4, :4096]
    found = np.asarray(kept[middle])
    print(f"    {len(workers)}: submitted in {submitted - start:.3f} s, over after {over - start:.3f} s", flush=True)
    return over - start, found


def _settled(client: Any, kept: Any, kind: str) -> None:
    """Wait for the tasks of an array, and for the devices that they may run ahead of."""
    distributed.wait(client.futures_of(kept))  # type: ignore[no-untyped-call]
    client.run(_synchronized, kind)


def _synchronized(kind: str, dask_worker: Any) -> None:
    tile.synchronize(f"{kind}:{dask_worker.name}")


def _placed(client: Any, workers: list[str], args: argparse.Namespace) -> Any:
    """The array, of which each worker has as many rows, next to each other."""
    count = -(-args.size // args.chunk)

    def home(key: Any) -> list[str]:
        return [workers[key[1] * len(workers) // count]]

    with dask.annotate(workers=home):  # type: ignore[attr-defined]
        x = da.map_blocks(
            _filled,
            chunks=da.core.normalize_chunks((args.chunk, args.columns or -1), (args.size,) * 2),
            dtype=np.float32,
            name=f"filled-{uuid.uuid4().hex}",  # no chunks of a run before, on other workers
        )
    x = client.persist(x, optimize_graph=False)
    distributed.wait(x)  # type: ignore[no-untyped-call]
    return x


def _filled(block_info: Any = None) -> Any:
    chunk = np.full(block_info[None]["chunk-shape"], 0.5, np.float32)
    chunk[::7, ::5] = 1.5
    return chunk


PARTS: dict[str, Callable[[Any, argparse.Namespace], None]] = {
    "stencil": stencil, "product": product, "overhead": overhead, "image": image, "devices": devices,
}  # fmt: skip


@contextmanager
def workers(count: int, threads: int) -> Iterator[Any]:
    cluster = distributed.LocalCluster(
        n_workers=count, threads_per_worker=threads, dashboard_address=None, silence_logs=50
    )  # type: ignore[no-untyped-call]
    with cluster, distributed.Client(cluster) as client:  # type: ignore[no-untyped-call]
        client.run(_one_thread)
        yield client


def _one_thread() -> None:
    """Workers are as many as cores: kernels need no threads of their own."""
    import os

    os.environ["TILE_NUM_THREADS"] = "1"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=["stencil", "product", "overhead"])
    parser.add_argument("--size", type=int, default=16384)
    parser.add_argument("--chunk", type=int, default=2048)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--threads", type=int, default=1, help="of each worker: for `devices` some 4, which mostly wait"
    )
    parser.add_argument("--columns", type=int, default=0, help="of a chunk, of `devices`; all by default")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--gigabytes", type=float, default=20)
    parser.add_argument("--device", default="opencl", help="of `devices`: worker n computes on DEVICE:n")
    parser.add_argument("--exchange", type=int, help="steps between two exchanges, of `devices`; chosen by default")
    parser.add_argument("--resident", action="store_true", help="arrays of `devices` stay on them")
    parser.add_argument("--steps", type=int, default=100, help="of `devices`")
    args = parser.parse_args()
    with workers(args.workers, args.threads) as client:
        for part in args.parts:
            PARTS[part](client, args)


if __name__ == "__main__":
    main()
