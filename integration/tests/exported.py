"""Small PyTorch modules for exporting: what people export, with patterns that hand-written graphs lack."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

Made = tuple[nn.Module, Mapping[str, tuple[Tensor, Tensor]]]
"""A module, and two values of each input; dimensions that differ between the two are open in the export."""


class Mobile(nn.Module):
    """An inverted bottleneck with squeeze and excitation."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Sequential(nn.Conv2d(3, 24, 1, bias=False), nn.BatchNorm2d(24), nn.Hardswish())
        self.own = nn.Sequential(nn.Conv2d(24, 24, 5, 2, 2, groups=24), nn.BatchNorm2d(24), nn.ReLU6())
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(24, 6, 1), nn.ReLU(), nn.Conv2d(6, 24, 1), nn.Hardsigmoid())  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        y = self.own(self.up(x))
        return (y * self.gate(y)).mean((2, 3))


class Detector(nn.Module):
    """Two scales, joined by resizing, and boxes on a grid."""

    def __init__(self) -> None:
        super().__init__()
        self.fine, self.coarse = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, 2, 1)
        self.head = nn.Conv2d(16, 12, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = functional.silu(self.fine(x))
        b = functional.interpolate(self.coarse(a), size=a.shape[2:], mode="nearest")
        y = self.head(torch.cat([a, b], 1))
        n, _, h, w = y.shape
        y = y.view(n, 2, 6, h, w).permute(0, 1, 3, 4, 2).sigmoid()
        rows, columns = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        places = y[..., :2] * 2 - 0.5 + torch.stack([columns, rows], -1)
        return torch.cat([places * 2, y[..., 2:]], -1).view(n, -1, 6)


class Rotary(nn.Module):
    """Attention with rotated queries, shared keys and a causal mask."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.kv, self.out = nn.Linear(32, 32, bias=False), nn.Linear(32, 32, bias=False), nn.Linear(32, 32)
        self.words = nn.Embedding(50, 32)

    @staticmethod
    def turned(x: Tensor) -> Tensor:
        angle = torch.arange(x.shape[2])[:, None] * 100.0 ** (-torch.arange(4) / 4)
        cos, sin, (a, b) = angle.cos(), angle.sin(), x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        n, t, _ = x.shape
        q = self.turned(self.q(x).view(n, t, 4, 8).transpose(1, 2))
        k, v = self.kv(x).view(n, t, 2, 2, 8).permute(2, 0, 3, 1, 4)
        k, v = self.turned(k).repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        mask = torch.ones(t, t, dtype=torch.bool).tril()
        scores = (q @ k.transpose(-1, -2) / 8**0.5).masked_fill(~mask, float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(n, t, 32)) @ self.words.weight.T


class Tagger(nn.Module):
    def __init__(self, cell: Callable[..., nn.Module]) -> None:
        super().__init__()
        self.words, self.cell, self.out = nn.Embedding(50, 8), cell(8, 6, num_layers=2, bidirectional=True, batch_first=True), nn.Linear(12, 3)  # fmt: skip

    def forward(self, ids: Tensor) -> Tensor:
        return self.out(self.cell(self.words(ids))[0]).log_softmax(-1)


class Odds(nn.Module):
    """Indexing, sorting, scattering, cumulating."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        values, places = torch.topk(x, 3, -1)
        scattered = torch.zeros_like(x).scatter(2, places, values)
        rolled = torch.roll(x, (1, -1), (1, 2)).flip(2)
        return scattered, rolled, x.cumsum(1), torch.gather(x, 2, places), x.triu(1), torch.var_mean(x, 2)[0], torch.einsum("nij,nkj->nik", x, x)  # fmt: skip


def _images(module: nn.Module) -> Made:
    return module, {"x": (torch.randn(1, 3, 16, 20), torch.randn(2, 3, 21, 18))}


def _words(module: nn.Module) -> Made:
    return module, {"ids": (torch.randint(0, 50, (1, 5)), torch.randint(0, 50, (3, 8)))}


MODULES: dict[str, Callable[[], Made]] = {
    "mobile": lambda: _images(Mobile()),
    "detector": lambda: _images(Detector()),
    "rotary": lambda: _words(Rotary()),
    "lstm": lambda: _words(Tagger(nn.LSTM)),
    "gru": lambda: _words(Tagger(nn.GRU)),
    "odds": lambda: (Odds(), {"x": (torch.randn(2, 5, 7), torch.randn(3, 6, 7))}),
    "transformer": lambda: (
        nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True),
        {"src": (torch.randn(1, 4, 16), torch.randn(2, 7, 16))},
    ),
    "generator": lambda: (
        nn.Sequential(
            nn.Unflatten(1, (8, 2, 2)),
            nn.ConvTranspose2d(8, 4, 4, 2, 1),
            nn.BatchNorm2d(4),
            nn.PReLU(4),
            nn.PixelShuffle(2),
        ),
        {"x": (torch.randn(1, 32), torch.randn(3, 32))},
    ),
}


def made(name: str) -> tuple[nn.Module, list[dict[str, Any]]]:
    """A module with weights of a fixed seed, and its calls."""
    torch.manual_seed(0)
    module, inputs = MODULES[name]()
    return module.eval(), [{n: values[k] for n, values in inputs.items()} for k in range(2)]


def export(name: str, path: str, *, dynamo: bool) -> list[dict[str, Any]]:
    """Writes the model by one of PyTorch's two exporters; the calls."""
    torch.backends.mha.set_fastpath_enabled(False)
    module, calls = made(name)
    first, second = calls
    open_axes = {n: [d for d in range(v.ndim) if v.shape[d] != second[n].shape[d]] for n, v in first.items()}
    names = list(first)
    if dynamo:
        shapes = tuple(dict.fromkeys(open_axes[n], torch.export.Dim.AUTO) for n in names)
        torch.onnx.export(module, tuple(second.values()), path, input_names=names, dynamic_shapes=shapes, dynamo=True, external_data=False)  # fmt: skip
    else:
        axes = {n: {d: f"{n}_{d}" for d in dims} for n, dims in open_axes.items()}
        torch.onnx.export(module, tuple(second.values()), path, input_names=names, dynamic_axes=axes, dynamo=False, opset_version=17)  # fmt: skip
    return calls
