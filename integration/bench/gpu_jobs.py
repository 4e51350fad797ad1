"""What people write, on a GPU: waves beside a copy; scans, sorts and searches beside PyTorch with CUDA.

    python integration/bench/gpu_jobs.py                      the first OpenCL device
    python integration/bench/gpu_jobs.py --only sort --kernels

Two figures a row: the device's own time, and that of calls queued one behind the other, by the clock. The rows' functions
are those of `jobs` and `waves`; --kernels prints where our time goes.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tile_runtime as tile
import torch
from jobs import EXAMPLES, WIDE
from on_gpu import copied, cuda_seconds
from tile_hal.interfaces import Device
from tile_hal.submission import Prepared

ROUNDS, QUEUED = 9, 10
SIDE, STEPS = 8192, 100


@dataclass(frozen=True)
class Job:
    """A function of arrays, and what PyTorch has in its place; what both give is compared by `same`."""

    function: Callable[[], Any]
    arrays: Callable[[np.random.Generator], Sequence[np.ndarray[Any, Any]]]
    torch: Callable[..., Any]
    compared: int = 1
    """How many of our results PyTorch gives, too."""
    required: float = 0.5


def _text(text: str) -> Callable[[], Any]:
    return lambda: tile.Function(text)


def _normal(*shape: int) -> Callable[[np.random.Generator], Sequence[np.ndarray[Any, Any]]]:
    return lambda rng: [rng.standard_normal(shape).astype(np.float32)]


def _points(rng: np.random.Generator) -> Sequence[np.ndarray[Any, Any]]:
    return [rng.standard_normal((n, 64)).astype(np.float32) for n in (2048, 4096)]


def _nearest(q: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    return ((p * p).sum(1) - 2 * q @ p.T).argmin(1)


JOBS: Mapping[str, Job] = {
    "cumsum of 10⁷": Job(
        _text("function (X) -> (Y) { Y = cumsum(X, 0); }"), _normal(10**7), lambda x: torch.cumsum(x, 0)
    ),
    "sort of 10⁶": Job(
        _text("function (X) -> (Y) { Y = sort(X, 0); }"), _normal(10**6), lambda x: torch.sort(x).values
    ),
    "argmax of 4096×1000": Job(
        _text("function (X) -> (Y) { Y = argmax(X, 1); }"), _normal(*WIDE), lambda x: torch.argmax(x, 1)
    ),
    "top_k(5) of 4096×1000": Job(
        _text("function (X) -> (V, I) { V, I = top_k(X, 5, 1); }"),
        _normal(*WIDE),
        lambda x: tuple(torch.topk(x, 5, 1)),
        2,
    ),
    "nearest of 4096 for 2048 in 64": Job(
        lambda: tile.Function.from_file(EXAMPLES / "nearest.tile"), _points, _nearest
    ),
    "nearest, cdist": Job(
        lambda: tile.Function.from_file(EXAMPLES / "nearest.tile"), _points, lambda q, p: torch.cdist(q, p).argmin(1)
    ),
}


def device_seconds(device: Device, function: Any, tensors: Sequence[tile.Tensor]) -> Callable[[], float]:
    """A sample of the seconds that the device spends in our kernels."""
    lowered = function.lower(*tensors)
    prepared = Prepared(device, lowered.library, lowered.kernels)
    named = dict(zip((*function.inputs, *function.outputs), (*tensors, *_listed(function(*tensors))), strict=True))
    listed = {b.id: b.name for b in lowered.kernels.buffers}
    buffers = [named[listed[number]].buffer for number in prepared.order]
    return lambda: prepared.run(buffers, profile=True).wait().seconds or 0.0


def queued_seconds(run: Callable[[], Any], wait: Callable[[Any], object]) -> float:
    """Seconds of a call among `QUEUED`, one queued behind the other, by the clock."""
    wait(run())
    start = time.perf_counter()
    for _ in range(QUEUED):
        last = run()
    wait(last)
    return (time.perf_counter() - start) / QUEUED


def _wait(result: Any) -> None:
    _listed(result)[0].wait()


def _listed(results: Any) -> list[Any]:
    return list(results) if isinstance(results, tuple) else [results]


def _differ(ours: Sequence[tile.Tensor], theirs: Sequence[torch.Tensor]) -> float:
    """The largest share of cells that differ, of the results."""
    pairs = zip(ours, theirs, strict=True)
    return max(
        1 - float(np.isclose(a.numpy(), b.cpu().numpy(), rtol=1e-2, atol=2.0 if a.dtype == "float32" else 0).mean())
        for a, b in pairs
    )


def job(device: Device, name: str, job: Job, kernels: bool) -> str:
    arrays = job.arrays(np.random.default_rng(0))
    function = job.function()
    ours = [tile.asarray(a, device=device) for a in arrays]
    theirs = [torch.from_numpy(a).cuda() for a in arrays]
    differ = _differ(_listed(function(*ours))[: job.compared], _listed(job.torch(*theirs)))
    samples = {
        "tile": device_seconds(device, function, ours),
        "torch": partial(cuda_seconds, lambda: job.torch(*theirs)),
        "tile queued": partial(queued_seconds, lambda: function(*ours), _wait),
        "torch queued": partial(queued_seconds, lambda: job.torch(*theirs), lambda _: torch.cuda.synchronize()),
    }
    found = _interleaved(samples)
    ratio, queued = found["torch"] / found["tile"], found["torch queued"] / found["tile queued"]
    times = ", ".join(f"{n} {1e6 * s:.1f} µs" for n, s in found.items())
    lines = [
        f"{name:<32} {ratio:5.2f} (queued {queued:.2f}), floor {job.required}; {times}; {differ:.1e} of cells differ"
    ]
    return "\n".join(lines + ([_where(function, ours)] if kernels else []))


def _where(function: Any, given: Sequence[tile.Tensor]) -> str:
    with tile.profile() as measured:
        for _ in range(5):
            _wait(function(*given))
    return str(measured)


def _interleaved(samples: Mapping[str, Callable[[], float]]) -> dict[str, float]:
    for sample in samples.values():
        sample()
    rounds = [{n: sample() for n, sample in samples.items()} for _ in range(ROUNDS)]
    return {n: statistics.median(r[n] for r in rounds) for n in samples}


def wave(device: Device, kernels: bool) -> str:
    """`STEPS` steps of a wave on SIDE² floats: bytes that a step must move, over what a copy of as many takes."""
    step = tile.Function.from_file(EXAMPLES / "wave.tile")
    u, p = (tile.placeholder("float32", (SIDE, SIDE), name) for name in ("u", "p"))
    run = tile.compose([u, p], [tile.repeat(lambda state: (step(*state), state[0]), (u, p), STEPS)[0]])
    start = tile.asarray(np.random.default_rng(0).random((SIDE, SIDE), np.float32), device=device)
    moved = 3 * 4 * SIDE * SIDE
    seconds = _interleaved({"step": lambda: queued_seconds(lambda: run(start, start), _wait) / STEPS})["step"]
    share = moved / seconds / copied(moved)
    line = f"wave {SIDE}², {STEPS} steps: {1e6 * seconds:.1f} µs a step, {share:.2f} of a copy, floor 0.85"
    return "\n".join([line] + ([_where(run, [start, start])] if kernels else []))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="such as opencl:1; the first OpenCL device when left out")
    parser.add_argument("--only", default="", help="rows whose name has this text")
    parser.add_argument("--kernels", action="store_true", help="where our time goes, too")
    options = parser.parse_args(arguments)
    device = tile.device(options.device or next(d.id for d in tile.devices() if d.id.startswith("opencl:")))
    print(f"{device.id} {device.name}, PyTorch {torch.__version__}")
    if options.only in "wave":
        print(wave(device, options.kernels), flush=True)
    for name, row in JOBS.items():
        if options.only in name:
            print(job(device, name, row, options.kernels), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
