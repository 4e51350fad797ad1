"""Several plans of each contraction on a GPU: what the model predicts, what the device measures, beside PyTorch.

For choosing the model's constants, and for finding what it misjudges. Prints a line per plan as it goes:

    python3 integration/bench/gpu_variants.py --only matmul --plans 4 --seconds 200
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tile_runtime as tile
from tile_hal.submission import Prepared
from tile_ir.dtype import DType
from tile_opt.model.contraction import contraction
from tile_opt.model.group_cost import Tile
from tile_opt.plan.plan import Edge, Plan
from tile_opt.plan.space.gpu.group_plan import GroupPlan
from tile_opt.plan.space.gpu.tiles import Ranked, TileSpace

ROUNDS = 5
MATMUL = "function (A[M, L], B[L, N]) -> (C) { C[i, j : M, N] = +(A[i, k] * B[k, j]); }"
TRANSPOSED = "function (A[M, L], B[N, L]) -> (C) { C[i, j : M, N] = +(A[i, k] * B[j, k]); }"
BATCHED = "function (A[Z, M, L], B[Z, L, N]) -> (C) { C[z, i, j : Z, M, N] = +(A[z, i, k] * B[z, k, j]); }"
MAX_PLUS = "function (A[M, L], B[L, N]) -> (C) { C[i, j : M, N] = >(A[i, k] + B[k, j]); }"
DISTANCE = """function (A[M, K], B[N, K]) -> (C) {
    Bn = -B; D[i, j, k : M, N, K] = =(A[i, k] + Bn[j, k]); E = D * D; C[i, j : M, N] = +(E[i, j, k]);
}"""


def channels_last(i: int, j: int, stride: int = 1, dilation: int = 1) -> str:
    a, b = (dilation * (n - 1) // 2 for n in (i, j))
    x, y = ("X", "Y") if stride == 1 else (f"(X+{stride - 1})/{stride}", f"(Y+{stride - 1})/{stride}")
    return f"""function (D[N, X, Y, CI], K[I, J, CI, CO]) -> (O) {{
    O[n, x, y, co : N, {x}, {y}, CO] = +(D[n, {stride}*x+{dilation}*i-{a}, {stride}*y+{dilation}*j-{b}, ci] * K[i, j, ci, co]);
}}"""


CHANNELS_FIRST = """function (D[N, CI, X, Y], K[CO, CI, I, J]) -> (O) {
    O[n, co, x, y : N, CO, X, Y] = +(D[n, ci, x+i-1, y+j-1] * K[co, ci, i, j]);
}"""
DEPTHWISE = """function (D[N, X, Y, C], K[I, J, C]) -> (O) {
    O[n, x, y, c : N, X, Y, C] = +(D[n, x+i-1, y+j-1, c] * K[i, j, c]);
}"""
GROUPED = """function (D[N, X, Y, G, CI], K[I, J, G, CI, CO]) -> (O) {
    O[n, x, y, g, co : N, X, Y, G, CO] = +(D[n, x+i-1, y+j-1, g, ci] * K[i, j, g, ci, co]);
}"""


@dataclass(frozen=True, slots=True)
class Case:
    """A contraction, its operands' shapes, operations, and the same in PyTorch."""

    name: str
    source: str
    shapes: tuple[tuple[int, ...], ...]
    work: float
    peer: Callable[..., Any] | None
    dtype: str = "float32"


def matmuls(torch: Any) -> Iterator[Case]:
    sizes = [(512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096), (64, 4096, 4096)]
    sizes += [(4096, 64, 4096), (128, 768, 3072), (1000, 1000, 1000), (1023, 1025, 1021), (4095, 4097, 4093)]
    for m, n, k in [*sizes, (256, 256, 16384), (3000, 3000, 3000), (8192, 8192, 512)]:
        yield Case(f"matmul {m}x{n}x{k}", MATMUL, ((m, k), (k, n)), 2.0 * m * n * k, torch.matmul)
    yield Case("matmul t 1024", TRANSPOSED, ((1024, 1024),) * 2, 2.0 * 1024**3, lambda a, b: a @ b.T)
    yield Case("matmul t 2048", TRANSPOSED, ((2048, 2048),) * 2, 2.0 * 2048**3, lambda a, b: a @ b.T)
    yield Case("batched 64x256x256x64", BATCHED, ((64, 256, 64), (64, 64, 256)), 2.0 * 64 * 256**2 * 64, torch.matmul)
    yield Case("matmul f16 2048", MATMUL, ((2048, 2048),) * 2, 2.0 * 2048**3, None, "float16")
    yield Case("matmul bf16 2048", MATMUL, ((2048, 2048),) * 2, 2.0 * 2048**3, None, "bfloat16")
    yield Case("max-plus 2048", MAX_PLUS, ((2048, 2048),) * 2, 2.0 * 2048**3, None)
    yield Case(
        "distance 4096x4096x128", DISTANCE, ((4096, 128),) * 2, 3.0 * 4096**2 * 128, lambda a, b: torch.cdist(a, b) ** 2
    )


def convolutions(torch: Any) -> Iterator[Case]:
    shapes = [(32, 56, 64, 64, 3, 1, 1), (32, 28, 256, 256, 3, 1, 1), (32, 14, 512, 512, 3, 1, 1)]
    shapes += [(32, 7, 512, 512, 3, 1, 1), (32, 56, 64, 256, 1, 1, 1), (32, 14, 1024, 256, 1, 1, 1)]
    shapes += [(32, 224, 3, 64, 7, 2, 1), (16, 28, 96, 128, 5, 1, 1), (8, 56, 64, 64, 3, 1, 2)]
    for n, x, ci, co, i, stride, dilation in [*shapes, (32, 56, 128, 128, 3, 2, 1)]:
        out = -(-x // stride)
        peer = _conv(torch, stride, dilation * (i - 1) // 2, dilation, 1)
        name = f"conv {i}x{i}s{stride}d{dilation} {n}x{x}x{x}x{ci}-{co}"
        work = 2.0 * n * out * out * ci * co * i * i
        yield Case(name, channels_last(i, i, stride, dilation), ((n, x, x, ci), (i, i, ci, co)), work, peer)
    n, x, ci, co = 32, 28, 128, 128
    work = 2.0 * n * x * x * ci * co * 9
    first = lambda d, k: torch.nn.functional.conv2d(d, k, padding=1)  # noqa: E731
    yield Case("conv nchw 32x128x28x28-128", CHANNELS_FIRST, ((n, ci, x, x), (co, ci, 3, 3)), work, first)
    yield Case(
        "depthwise 32x56x56x256", DEPTHWISE, ((32, 56, 56, 256), (3, 3, 256)), 2.0 * 32 * 56 * 56 * 256 * 9, None
    )
    yield Case(
        "grouped 32x28x28x8x32", GROUPED, ((32, 28, 28, 8, 32), (3, 3, 8, 32, 32)), 2.0 * 32 * 784 * 8 * 1024 * 9, None
    )


def _conv(torch: Any, stride: int, padding: int, dilation: int, groups: int) -> Callable[..., Any]:
    def run(d: Any, k: Any) -> Any:
        d, k = d.permute(0, 3, 1, 2), k.permute(3, 2, 0, 1)
        return torch.nn.functional.conv2d(d, k, None, stride, padding, dilation, groups).permute(0, 2, 3, 1)

    return run


def peer_seconds(torch: Any, case: Case, cuda: list[Any]) -> float | None:
    """The best of PyTorch's layouts, in seconds; None where there is no such function."""
    if case.peer is None:
        return None
    if not case.name.startswith("conv"):
        return min(_timed(torch, lambda: case.peer(*cuda)) for _ in range(ROUNDS))
    last = torch.channels_last
    d, k = cuda if "nchw" in case.name else (cuda[0].permute(0, 3, 1, 2), cuda[1].permute(3, 2, 0, 1))
    layouts = [(d.contiguous(), k.contiguous()), tuple(t.contiguous(memory_format=last) for t in (d, k))]
    back = [(d, k)] if "nchw" in case.name else [(d.permute(0, 2, 3, 1), k.permute(2, 3, 1, 0)) for d, k in layouts]
    given = [*layouts, (d, k)] if "nchw" in case.name else back
    for x in given:
        case.peer(*x)
    return min(_timed(torch, lambda x=x: case.peer(*x)) for _ in range(ROUNDS) for x in given)


def _timed(torch: Any, run: Callable[[], Any]) -> float:
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    run()
    stop.record()
    stop.synchronize()
    return start.elapsed_time(stop) / 1e3


def variants(space: TileSpace, most: int) -> list[tuple[str, Ranked]]:
    """The model's choice, the best of other item tiles, and the choice with one decision changed."""
    ranked = space.best()
    found: dict[str, Ranked] = {}
    for r in ranked:
        found.setdefault(f"{sorted(r.tile.each.values())}{r.tile.count}{r.tile.ways > 1}", r)
    listed = [("", r) for r in list(found.values())[:most]]
    first = ranked[0].tile
    changed = {
        "double": replace(first, versions=2), "in place": replace(first, ahead=False),
        "half step": replace(first, deep=max(1, first.deep // 2)), "one way": replace(first, ways=1),
        "twice the step": replace(first, deep=first.deep * 2),
    }  # fmt: skip
    for name, other in changed.items():
        cost = space.costs.cost(other) if other != first and first.staged else None
        if cost is not None and other.deep <= space.work.own[other.stepped]:
            listed.append((name, Ranked(other, cost)))
    return listed


def edges(plan: Plan) -> Iterator[tuple[str, Plan]]:
    """The plan with the edges of images told apart, or not."""
    for label, old, new in (("masked", Edge.PEEL, Edge.MASK), ("peeled", Edge.MASK, Edge.PEEL)):
        shared = {c.loop for c in plan.levels[0].covers}
        other = tuple((n, new if e is old and n in shared else e) for n, e in plan.edges)
        if other != plan.edges:
            yield label, replace(plan, edges=other)


def device_seconds(lowered: Any, tensors: list[Any], out: Any, names: tuple[str, ...]) -> float:
    """Median seconds of the device over all kernels of a run."""
    prepared = Prepared(out.device, lowered.library, lowered.kernels)
    named = dict(zip(names, [*tensors, out], strict=True))
    listed = {b.id: b.name for b in lowered.kernels.buffers}
    buffers = [named[listed[number]].buffer for number in prepared.order]
    times = [prepared.run(buffers, profile=True).wait().seconds or 0.0 for _ in range(ROUNDS + 2)]
    return statistics.median(times[2:])


def measure(torch: Any, device: Any, case: Case, most: int) -> Iterator[str]:
    """A line for each plan of a case."""
    rng = np.random.default_rng(0)
    cuda = [torch.from_numpy(rng.standard_normal(s, dtype=np.float32)).cuda() for s in case.shapes]
    tensors = [tile.asarray(c.cpu().numpy().astype(DType(case.dtype).numpy), device=device) for c in cuda]
    function = tile.Function(case.source)
    theirs = peer_seconds(torch, case, cuda)
    expected = None if case.peer is None else case.peer(*cuda)
    lowered = tile.Evaluator(device).lower(function, *tensors)
    name, decision = next((n, d) for n, d in lowered.compiled.decisions.items() if contraction(d.view) is not None)
    work = contraction(decision.view)
    assert work is not None
    space = TileSpace(work, device.target)
    yield f"# {case.name}: PyTorch {'-' if theirs is None else f'{theirs * 1e6:.1f}'} us; chosen: {decision.plan.reason}"
    for label, ranked in variants(space, most):
        plan = GroupPlan(work, ranked.tile, ranked.cost, space.costs).plan()
        yield _row(case, device, function, tensors, {name: plan}, ranked, label, theirs, expected)
    for label, plan in edges(decision.plan):
        yield _row(case, device, function, tensors, {name: plan}, space.best()[0], label, theirs, expected)


def _row(
    case: Case, device: Any, function: Any, tensors: list[Any], plans: dict[str, Plan], ranked: Ranked, label: str,
    theirs: float | None, expected: Any,
) -> str:  # fmt: skip
    start = time.perf_counter()
    evaluator = tile.Evaluator(device, plans=plans)
    try:
        out = evaluator(function, *tensors)
        out.wait()
        spent = time.perf_counter() - start
        lowered = evaluator.lower(function, *tensors)
        ours = device_seconds(lowered, tensors, out, (*function.inputs, *function.outputs))
    except tile.TileError as problem:
        return f"  {_tile(ranked.tile)} {label}: {str(problem)[:200]}"
    error = ""
    if expected is not None:
        got, want = out.numpy().astype(np.float32), expected.float().cpu().numpy()
        error = f"{np.abs(got - want).max() / np.abs(want).max():.0e}"
    ratio = f"{theirs / ours:5.2f}" if theirs else "    -"
    predicted = ranked.cost.seconds
    return (
        f"  {_tile(ranked.tile):<52} {label:<14} predicted {predicted * 1e6:8.1f} measured {ours * 1e6:8.1f} us "
        f"x{ours / predicted:4.2f}  {case.work / ours / 1e12:5.1f} T/s  ratio {ratio}  regs {ranked.cost.registers} "
        f"error {error} first {spent:.2f} s"
    )


def _tile(t: Tile) -> str:
    items = " ".join(f"{n}:{c}x{t.each.get(n, 1)}" for n, c in t.items.items() if t.size(n) > 1)
    inner = "+".join(t.whole)
    return f"{items} | {t.stepped}:{t.deep} {inner} w{t.ways}{'' if t.staged else ' direct'} v={t.vector}"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default=None, help="an OpenCL GPU; the first one when left out")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--plans", type=int, default=4, help="item tiles of each case")
    parser.add_argument("--seconds", type=float, default=500, help="begin no case after so long")
    options = parser.parse_args(arguments)
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    device = tile.device(options.device) if options.device else next(d for d in tile.devices() if "NVIDIA" in d.name)
    begun = time.perf_counter()
    for case in [*matmuls(torch), *convolutions(torch)]:
        if options.only in case.name and time.perf_counter() - begun < options.seconds:
            try:
                for line in measure(torch, device, case, options.plans):
                    print(line, flush=True)
            except Exception as problem:
                print(f"# {case.name}: {type(problem).__name__}: {str(problem)[:300]}", flush=True)
    print(f"# {time.perf_counter() - begun:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
