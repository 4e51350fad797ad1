"""A step of training a transformer, forward, backward and Adam, beside PyTorch's eager one: interleaved, in one process.

    python integration/bench/transformer.py [--size 64] [--length 64] [--batch 16] [--blocks 2] [--device llvm] [--seconds 20]

The network is that of `integration/examples/characters.py`. Needs PyTorch. Figures are milliseconds a step, the medians of
rounds; on a GPU name the device of both: ``--device opencl:0 --torch cuda``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import tile_nn as nn
import tile_runtime as tile
import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))

import characters

COUNT = 96
"""Characters of the alphabet."""


class Network(torch.nn.Module):
    """The same in PyTorch."""

    def __init__(self, length: int, size: int, heads: int, blocks: int) -> None:
        super().__init__()
        self.characters = torch.nn.Embedding(COUNT, size)
        self.places = torch.nn.Parameter(torch.randn(length, size) * 0.1)
        layer = {"activation": "gelu", "batch_first": True, "norm_first": True, "dropout": 0.0}
        self.blocks = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(size, heads, 4 * size, **layer) for _ in range(blocks)
        )
        self.norm, self.out = torch.nn.LayerNorm(size), torch.nn.Linear(size, COUNT)
        self.register_buffer("mask", torch.nn.Transformer.generate_square_subsequent_mask(length))

    def forward(self, text: Any) -> Any:
        x = self.characters(text) + self.places
        for block in self.blocks:
            x = block(x, src_mask=self.mask, is_causal=True)
        return self.out(self.norm(x))


def torch_step(options: argparse.Namespace, text: Any) -> Callable[[], float]:
    """One eager step; its loss is waited for."""
    torch.manual_seed(0)
    network = Network(options.length, options.size, options.heads, options.blocks).to(options.torch)
    optimizer = torch.optim.Adam(network.parameters(), 1e-3)
    data = torch.from_numpy(text).to(options.torch, torch.int64)

    def step() -> float:
        optimizer.zero_grad()
        found = network(data[:, :-1])
        loss = torch.nn.functional.cross_entropy(found.reshape(-1, COUNT), data[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def tile_step(options: argparse.Namespace, text: Any) -> Callable[[], float]:
    """One step of Tile's; its loss is waited for."""
    device = tile.device(options.device)
    key = tile.key(0, device)
    params = characters.parameters(key, COUNT, options.length, options.size, options.blocks)

    def loss(params: Any, text: Any) -> Any:
        shares = characters.logits(params, text[:, :-1], options.heads)
        return nn.cross_entropy(shares, text[:, 1:]).mean()

    optimizer = nn.adam(1e-3)
    train, state, data = nn.training_step(loss, optimizer), optimizer.init(params), tile.asarray(text, device)

    def step() -> float:
        nonlocal params, state
        params, state, value = train(params, state, data)
        return float(value.item())

    return step


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name, default in (("size", 64), ("length", 64), ("batch", 16), ("blocks", 2), ("heads", 4)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--device", help="Tile's device")
    parser.add_argument("--torch", default="cpu", help="PyTorch's device")
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args(arguments)
    shape = (options.batch, options.length + 1)
    text = np.random.default_rng(0).integers(0, COUNT, shape).astype(np.int32)
    start = perf_counter()
    steps = {"tile": tile_step(options, text), "torch": torch_step(options, text)}
    losses = {name: step() for name, step in steps.items()}
    print(f"first steps {perf_counter() - start:.1f} s, losses {losses}", flush=True)
    times: dict[str, list[float]] = {name: [] for name in steps}
    start = perf_counter()
    while perf_counter() - start < options.seconds:
        for name, step in steps.items():
            for _ in range(3):
                before = perf_counter()
                step()
                times[name].append(perf_counter() - before)
    found = {name: 1e3 * median(values) for name, values in times.items()}
    print(f"tile {found['tile']:.2f} ms, torch {found['torch']:.2f} ms, ratio {found['torch'] / found['tile']:.2f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
