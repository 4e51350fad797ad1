"""Ratios against PyTorch on a GPU: the same work through an OpenCL device and through CUDA, side by side.

Times are the device's own: OpenCL profiling events on one side, CUDA events on the other, so that launch
overhead of neither counts; rounds alternate between the two. Needs an OpenCL GPU device and a CUDA build of
PyTorch.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tile_runtime as tile
from tile_hal.submission import Prepared
from tile_ir.dtype import DType

ROUNDS = 15

MATMUL = "function (A[M, L], B[L, N]) -> (C) { C[i, j : M, N] = +(A[i, k] * B[k, j]); }"
CONV = """function (D[N, X, Y, CI], K[I, J, CO, CI]) -> (R) {
    O[n, x, y, co : N, X, Y, CO] = +(D[n, x+i-1, y+j-1, ci] * K[i, j, co, ci]);
    R = (O > 0 ? O : 0);
}"""
CHAIN = (
    "function (X) -> (Y) { A = X * 1.5; B = A + 0.5; C = max(B, 0.0); D = C * 0.25;"
    " E = D - 1.0; F = abs(E); G = min(F, 3.0); Y = G + 2.0; }"
)
SOFTMAX = "function (X[M, N]) -> (Y) { Y = builtin_softmax(X, M, N); }"
LAYER_NORM = """function (X[M, N]) -> (Y) {
    S[i, z : M, 1] = +(X[i, j]), z < 1;
    D = X - S / N;
    Q = D * D;
    V[i, z : M, 1] = +(Q[i, j]), z < 1;
    Y = D / sqrt(V / N + 0.00001);
}"""
ROWS = "function (A[M, N]) -> (O) { O[i : M] = +(A[i, j]); }"
COLUMNS = "function (A[M, N]) -> (O) { O[j : N] = +(A[i, j]); }"
TRANSPOSE = "function (A[M, N]) -> (O) { O[j, i : N, M] = =(A[i, j]); }"


@dataclass(frozen=True, slots=True)
class Case:
    """One row: the same work in Tile and in PyTorch."""

    source: str
    shapes: list[tuple[int, ...]]
    work: float
    """Operations per run; bytes, negative, where memory is the limit."""
    peer: Callable[..., Any]
    layouts: list[Callable[..., Any]]
    """What the peer's inputs may be turned into; the fastest counts."""
    dtype: str = "float32"
    reduced: bool = False
    """Matrix instructions allowed, on both sides."""


def torch_cases(torch: Any) -> dict[str, Case]:
    """Name -> Tile source, input shapes, operations (or bytes, negative) per run, the peer and its layouts."""
    relu = torch.nn.functional.relu
    conv2d = torch.nn.functional.conv2d

    def conv(d: Any, k: Any) -> Any:
        return relu(conv2d(d, k, padding=1))

    def channels_last(d: Any, k: Any) -> tuple[Any, Any]:
        last = torch.channels_last
        weights = k.permute(2, 3, 0, 1).contiguous(memory_format=last)
        return d.permute(0, 3, 1, 2).contiguous(memory_format=last), weights

    def channels_first(d: Any, k: Any) -> tuple[Any, Any]:
        return d.permute(0, 3, 1, 2).contiguous(), k.permute(2, 3, 0, 1).contiguous()

    def chain(x: Any) -> Any:
        return torch.clamp(torch.abs(torch.clamp(x * 1.5 + 0.5, min=0) * 0.25 - 1), max=3) + 2

    n, big = 8192, 1 << 27
    image, weights = (32, 224, 224, 64), (3, 3, 64, 64)
    plane = 4.0 * n * n
    as_is: list[Callable[..., Any]] = [lambda *tensors: tensors]
    return {
        "matmul 4096": Case(MATMUL, [(4096, 4096)] * 2, 2.0 * 4096**3, torch.matmul, as_is),
        "matmul 1024": Case(MATMUL, [(1024, 1024)] * 2, 2.0 * 1024**3, torch.matmul, as_is),
        "matmul 4096 tf32": Case(MATMUL, [(4096, 4096)] * 2, 2.0 * 4096**3, torch.matmul, as_is, reduced=True),
        "matmul 4096 bf16": Case(
            MATMUL, [(4096, 4096)] * 2, 2.0 * 4096**3, torch.matmul, as_is, "bfloat16", reduced=True
        ),
        "matmul 4096 f16": Case(
            MATMUL, [(4096, 4096)] * 2, 2.0 * 4096**3, torch.matmul, as_is, "float16", reduced=True
        ),
        "conv + relu": Case(
            CONV, [image, weights], 2.0 * 32 * 224 * 224 * 64 * 64 * 9, conv, [channels_last, channels_first]
        ),
        "chain 2^27": Case(CHAIN, [(big,)], -8.0 * big, chain, as_is),
        "softmax rows": Case(SOFTMAX, [(n, n)], -2 * plane, lambda x: torch.softmax(x, 1), as_is),
        "layer norm rows": Case(
            LAYER_NORM, [(n, n)], -2 * plane, lambda x: torch.nn.functional.layer_norm(x, (n,)), as_is
        ),
        "sum of rows": Case(ROWS, [(n, n)], -plane, lambda x: x.sum(1), as_is),
        "sum of columns": Case(COLUMNS, [(n, n)], -plane, lambda x: x.sum(0), as_is),
        "transpose": Case(TRANSPOSE, [(n, n)], -2 * plane, lambda x: x.t().contiguous(), as_is),
    }


def device_seconds(
    evaluator: tile.Evaluator, function: tile.Function, tensors: list[tile.Tensor], out: tile.Tensor
) -> Callable[[], float]:
    """A call that runs the kernels once and gives the seconds that the device measured."""
    lowered = evaluator.lower(function, *tensors)
    prepared = Prepared(out.device, lowered.library, lowered.kernels)
    named = dict(zip(function.inputs, tensors, strict=True)) | {function.outputs[0]: out}
    listed = {b.id: b.name for b in lowered.kernels.buffers}
    buffers = [named[listed[number]].buffer for number in prepared.order]
    return lambda: prepared.run(buffers, profile=True).wait().seconds or 0.0


def cuda_seconds(torch: Any, run: Callable[[], Any]) -> float:
    """Seconds between two CUDA events around one run."""
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    run()
    stop.record()
    stop.synchronize()
    return start.elapsed_time(stop) / 1e3


def inputs(case: Case, torch: Any, device: Any) -> tuple[list[tile.Tensor], list[Any]]:
    """The same random arrays as Tile's tensors and PyTorch's."""
    rng = np.random.default_rng(0)
    host = [rng.standard_normal(s, dtype=np.float32) for s in case.shapes]
    cuda = [torch.from_numpy(h).cuda().to(getattr(torch, case.dtype)) for h in host]
    given = [c.float().cpu().numpy().astype(DType(case.dtype).numpy) for c in cuda]
    return [tile.asarray(g, device=device) for g in given], cuda


def allow_tf32(torch: Any, allowed: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed


def error_of(name: str, case: Case, torch: Any, out: tile.Tensor, cuda: list[Any]) -> float:
    """The largest difference from PyTorch in float32, relative to the largest result."""
    allow_tf32(torch, allowed=False)
    expected = case.peer(*case.layouts[0](*(c.float() for c in cuda)))
    if name.startswith("conv"):
        expected = expected.permute(0, 2, 3, 1)
    got, want = out.numpy().astype(np.float32), expected.cpu().numpy()
    return float(np.abs(got - want).max() / max(1e-30, np.abs(want).max()))


def measure(name: str, case: Case, torch: Any, device: Any) -> dict[str, Any]:
    """Medians of alternating rounds, and the largest difference of the results."""
    function, evaluator = tile.Function(case.source), tile.Evaluator(device, reduced_precision=case.reduced)
    tensors, cuda = inputs(case, torch, device)
    start = time.perf_counter()
    out = evaluator(function, *tensors)
    out.wait()
    compile_seconds = time.perf_counter() - start
    error = error_of(name, case, torch, out, cuda)
    allow_tf32(torch, case.reduced)
    work, peer, ready = case.work, case.peer, [layout(*cuda) for layout in case.layouts]
    mine_once = device_seconds(evaluator, function, tensors, out)
    mine: list[float] = []
    theirs: list[float] = []
    for turn in range(ROUNDS + 2):
        ours = mine_once()
        peers = min(cuda_seconds(torch, lambda x=x: peer(*x)) for x in ready)
        if turn >= 2:
            mine.append(ours)
            theirs.append(peers)
    a, b = statistics.median(mine), statistics.median(theirs)
    rate = abs(work) / a / 1e9
    return {
        "name": name, "tile_ms": a * 1e3, "torch_ms": b * 1e3, "ratio": b / a, "rate": rate,
        "unit": "GB/s" if work < 0 else "GFLOP/s", "error": error, "compile_s": compile_seconds,
        "spread": (max(mine) - min(mine)) / a,
    }  # fmt: skip


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default=None, help="an OpenCL GPU; the first one when left out")
    parser.add_argument("--only", default="", help="run the cases whose name contains this")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    import torch

    device = tile.device(options.device) if options.device else next(d for d in tile.devices() if "NVIDIA" in d.name)
    copied = torch.empty(1 << 28, device="cuda")
    target = torch.empty_like(copied)
    copy = min(cuda_seconds(torch, lambda: target.copy_(copied)) for _ in range(9))
    print(f"{device.id} {device.name}; copy {2 * copied.nbytes / copy / 1e9:.0f} GB/s", file=sys.stderr)
    results: list[dict[str, Any]] = []
    for name, case in torch_cases(torch).items():
        if options.only not in name:
            continue
        try:
            row = measure(name, case, torch, device)
        except tile.TileError as problem:
            print(f"{name}: {problem}", file=sys.stderr)
            continue
        results.append(row)
        print(
            f"{row['name']:<16} tile {row['tile_ms']:9.3f} ms  torch {row['torch_ms']:9.3f} ms  ratio {row['ratio']:5.2f}"
            f"  {row['rate']:9.0f} {row['unit']}  error {row['error']:.1e}  compile {row['compile_s']:.2f} s",
            file=sys.stderr, flush=True,
        )  # fmt: skip
    if options.json:
        print(json.dumps(results))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
