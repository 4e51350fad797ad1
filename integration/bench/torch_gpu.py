"""``python integration/bench/torch_gpu.py``: PyTorch models compiled for an OpenCL GPU, beside Inductor on CUDA.

Inference without gradients, in bfloat16 unless ``--dtype`` says otherwise. Times are the device's own, so that the host
counts on neither side: Inductor's of a captured graph from end to end, ours of the kernels without what passes between
them (see `on_gpu.device_seconds`). They are medians of interleaved rounds, each side in the faster of both memory layouts
of images. Errors are those beside float32, of the largest result. ``--slowest N`` lists the kernels that take longest.
Compiling takes much longer than measuring: ``--prepare`` only compiles, for a later run to find all on disk; ``--sides``
chooses who runs.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import tile_runtime as tile
import torch
from on_gpu import captured, device_seconds
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[2] / "packages" / "tile-torch" / "tests"))
from torch_networks import GPT, Network, ResNet, ViT, images, tokens

ROUNDS = 7
OURS = "tile"
MODES = ("default", "max-autotune-no-cudagraphs")
LAYOUTS = {"NCHW": torch.contiguous_format, "NHWC": torch.channels_last}


def resnet50() -> nn.Module:
    return ResNet((3, 4, 6, 3), 64, True)


NETWORKS: Mapping[str, Network] = {
    "resnet50, batch 32": Network(resnet50, images(32, 224)),
    "resnet50, batch 1": Network(resnet50, images(1, 224)),
    "gpt2 small, 8 x 512": Network(GPT, tokens(8, 512, 50257)),
    "gpt2 small, 4 x 1024": Network(GPT, tokens(4, 1024, 50257)),
    "vit_b_16, batch 32": Network(ViT, images(32, 224)),
}


@dataclass(frozen=True)
class Contestant:
    """One of the sides, in one memory layout."""

    name: str
    sample: Callable[[], float]
    """Seconds of the device."""
    found: Tensor


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    with torch.no_grad():
        ratios = [r for name in NETWORKS if options.only in name for r in measured(name, options)]
    if ratios:
        print(f"geometric mean {math.exp(statistics.fmean(map(math.log, ratios))):.2f}, worst {min(ratios):.2f}")
    return 0


def measured(name: str, options: argparse.Namespace) -> Iterator[float]:
    """How much faster Tile is than the faster of Inductor's modes; nothing where there is only one side."""
    torch._dynamo.reset()
    model, x = made(NETWORKS[name])
    wanted = model(x).float()
    dtype = getattr(torch, options.dtype)
    model, x = model.to(dtype), x.to(dtype) if x.is_floating_point() else x
    sides = list(_contestants(model, x, options))
    if options.prepare:
        return
    seconds = _interleaved({f"{c.name} {k}": c.sample for k, c in enumerate(sides)})
    best: dict[bool, float] = {}
    for (label, times), side in zip(seconds.items(), sides, strict=True):
        middle, error = statistics.median(times), (side.found.float().cuda() - wanted).abs().max() / wanted.abs().max()
        spread = (max(times) - min(times)) / middle
        print(f"{name:22} {label:38} {1e3 * middle:8.3f} ms  spread {spread:4.0%}  error {error:.1e}", flush=True)
        ours = side.name.startswith(OURS)
        best[ours] = min(best.get(ours, math.inf), middle)
    if len(best) == 2:
        print(f"{name:22} ratio {best[False] / best[True]:.2f}", flush=True)
        yield best[False] / best[True]


def made(network: Network) -> tuple[nn.Module, Tensor]:
    """A network with weights of a seed; batch normalisations have seen a batch, so that values keep their size."""
    torch.manual_seed(0)
    model, x = network.make().cuda(), network.sample().cuda()
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0
    if norms:
        model.train()(torch.cat([x, x.flip(0)]))
    return model.eval(), x


def _contestants(model: nn.Module, x: Tensor, options: argparse.Namespace) -> Iterator[Contestant]:
    layouts = LAYOUTS if x.ndim == 4 else {"": torch.contiguous_format}
    for (layout, form), side in product(layouts.items(), options.sides.split(",")):
        start = time.perf_counter()
        given = x.contiguous(memory_format=form)
        moved = deepcopy(model).to(memory_format=form)  # pyright: ignore[reportCallIssue]
        one = _ours(moved, given, options) if side == OURS else _inductor(moved, given, side)
        print(f"{side} {layout}: ready after {time.perf_counter() - start:.1f} s", flush=True)
        yield Contestant(f"{side} {layout}", *one)


def _ours(model: nn.Module, x: Tensor, options: argparse.Namespace) -> tuple[Callable[[], float], Tensor]:
    run: Any = torch.compile(model.cpu(), backend="tile", dynamic=False, options={"device": options.device})
    given = x.cpu()
    found = run(given)
    if options.slowest and not options.prepare:
        _slowest(lambda: run(given), options.slowest)
    return partial(device_seconds, lambda: run(given)), found


def _inductor(model: nn.Module, x: Tensor, mode: str) -> tuple[Callable[[], float], Tensor]:
    run: Any = torch.compile(model, mode=mode, dynamic=False)
    run(x)
    return captured(lambda: run(x))


def _slowest(run: Callable[[], Any], count: int) -> None:
    with tile.profile() as profile:
        run()
    print(f"    {1e3 * profile.seconds:.3f} ms in {len(profile.kernels)} kernels")
    for kernel in sorted(profile.kernels, key=lambda k: -k.seconds)[:count]:
        each = kernel.seconds / kernel.launches
        rates = (
            f"{kernel.operations / kernel.seconds / 1e12:6.1f} TFLOP/s {kernel.bytes / kernel.seconds / 1e9:6.0f} GB/s"
        )
        print(
            f"    {1e6 * each:9.1f} us x {kernel.launches:3} {rates}  {kernel.kernel}  {', '.join(kernel.labels)}",
            flush=True,
        )


def _interleaved(samples: Mapping[str, Callable[[], float]]) -> Mapping[str, list[float]]:
    """Seconds of each in every round; the first one only wakes the device up."""
    found: dict[str, list[float]] = {name: [] for name in samples}
    for _ in range(ROUNDS + 1):
        for name, sample in samples.items():
            found[name].append(sample())
    return {name: times[1:] for name, times in found.items()}


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="opencl")
    parser.add_argument("--dtype", default="bfloat16", help="of parameters and images (default: bfloat16)")
    parser.add_argument("--only", default="", help="networks whose name contains this")
    parser.add_argument("--sides", default=",".join((OURS, *MODES)), help="tile, and modes of Inductor, with commas")
    parser.add_argument("--prepare", action="store_true", help="compile, and measure nothing")
    parser.add_argument("--slowest", type=int, default=0, help="kernels to list")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
