"""PyTorch networks of their published sizes, compiled for Tile, beside eager PyTorch and Inductor, interleaved.

    python integration/bench/torch_models.py                        inference of all, on two threads
    python integration/bench/torch_models.py resnet18 gpt --train   a training step, forward and backward
    python integration/bench/torch_models.py --peers eager          without Inductor, which needs a C++ compiler
    python integration/bench/torch_models.py --device opencl:0 --dtype bfloat16

A ratio above 1 says that Tile is faster. The error is the largest difference from eager, of the largest result.
"""

from __future__ import annotations

import os

THREADS = os.environ.get("TILE_NUM_THREADS", "2")
os.environ |= dict.fromkeys(("TILE_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), THREADS)

import argparse  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable, Sequence  # noqa: E402
from math import exp, log  # noqa: E402
from pathlib import Path  # noqa: E402

import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[2] / "packages" / "tile-torch" / "tests"))
from torch_networks import FULL, SMALL, Network  # noqa: E402

Step = Callable[[], Tensor]


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    networks = SMALL if options.small else FULL
    ratios: dict[str, list[float]] = {}
    for name in options.networks or networks:
        for peer, ratio in measured(name, networks[name], options).items():
            ratios.setdefault(peer, []).append(ratio)
    for peer, found in ratios.items():
        mean = exp(sum(map(log, found)) / len(found))
        print(f"beside {peer}: geometric mean {mean:.2f}, worst {min(found):.2f}", flush=True)


def measured(name: str, network: Network, options: argparse.Namespace) -> dict[str, float]:
    """Prints the times of one network; how much faster Tile is than each peer."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = network.make().train(options.train).to(getattr(torch, options.dtype))
    sample = network.sample()
    sample = sample.to(getattr(torch, options.dtype)) if sample.is_floating_point() else sample
    steps = {peer: _step(_compiled(model, peer, options), model, sample, options.train) for peer in _peers(options)}
    first, wanted, found = _started(steps)
    best = _interleaved(steps, options.seconds)
    error = float((found - wanted).abs().max() / wanted.abs().max())
    times = ", ".join(f"{peer} {1e3 * t:.2f} ms" for peer, t in best.items())
    ratios = {peer: t / best["tile"] for peer, t in best.items() if peer != "tile"}
    shown = ", ".join(f"{r:.2f} of {peer}" for peer, r in ratios.items())
    print(f"{name}: {times}; {shown}; first call {first:.1f} CPU s, error {error:.0e}", flush=True)
    return ratios


def _peers(options: argparse.Namespace) -> list[str]:
    return ["eager", "tile", *(p for p in options.peers.split(",") if p not in ("", "eager"))]


def _compiled(model: nn.Module, peer: str, options: argparse.Namespace) -> Callable[..., Tensor]:
    if peer == "eager":
        return model
    wanted = {"device": options.device, "reduced_precision": options.reduced_precision} if peer == "tile" else None
    return torch.compile(model, backend=peer, options=wanted)


def _step(function: Callable[..., Tensor], model: nn.Module, sample: Tensor, train: bool) -> Step:
    def infer() -> Tensor:
        with torch.no_grad():
            return function(sample)

    def learn() -> Tensor:
        model.zero_grad()
        loss = function(sample).float().square().mean()
        loss.backward()
        return loss.detach()

    return learn if train else infer


def _started(steps: dict[str, Step]) -> tuple[float, Tensor, Tensor]:
    """CPU seconds of the first call of Tile, and what eager PyTorch and Tile give."""
    results: dict[str, Tensor] = {}
    seconds = 0.0
    for peer, step in steps.items():
        torch.manual_seed(1)
        begin = time.process_time()
        results[peer] = step()
        seconds = time.process_time() - begin if peer == "tile" else seconds
    return seconds, results["eager"].float(), results["tile"].float()


def _interleaved(steps: dict[str, Step], seconds: float) -> dict[str, float]:
    """The best time of each, in turn, for as long."""
    best = dict.fromkeys(steps, float("inf"))
    end = time.perf_counter() + seconds
    rounds = 0
    while rounds < 3 or time.perf_counter() < end:
        for peer, step in steps.items():
            begin = time.perf_counter()
            step()
            best[peer] = min(best[peer], time.perf_counter() - begin)
        rounds += 1
    return best


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", help=f"some of {', '.join(FULL)}")
    parser.add_argument("--train", action="store_true", help="forward and backward, in training mode")
    parser.add_argument("--small", action="store_true", help="the sizes of the tests")
    parser.add_argument("--peers", default="inductor", help="backends beside eager, with commas (default: inductor)")
    parser.add_argument("--device", help="a Tile device (default: the best)")
    parser.add_argument("--dtype", default="float32", help="of parameters and images (default: float32)")
    parser.add_argument("--reduced-precision", action="store_true", help="allow matrix units of less precision")
    parser.add_argument("--seconds", type=float, default=3.0, help="for each network (default: 3)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
