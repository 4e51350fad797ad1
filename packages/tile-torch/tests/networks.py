"""Networks as people write them, small enough for tests by default and of their real sizes on demand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


def mlp(inputs: int = 24, hidden: int = 32, classes: int = 10) -> nn.Module:
    """Two hidden layers."""
    return nn.Sequential(
        nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, classes)
    )


# --- transformers -------------------------------------------------------------------------------------


class Attention(nn.Module):
    """Several heads; each place sees those before it, or all."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.joint, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, t, c = x.shape
        q, k, v = (part.view(n, t, self.heads, -1).transpose(1, 2) for part in self.joint(x).chunk(3, -1))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(seen.transpose(1, 2).reshape(n, t, c))


class Block(nn.Module):
    """Attention and a feed-forward layer, normalised before (GPT) or after (BERT)."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.before = causal
        self.attention = Attention(width, heads, causal)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.before:
            x = x + self.attention(self.first(x))
            return x + self.feed(self.second(x))
        x = self.first(x + self.attention(x))
        return self.second(x + self.feed(x))


class Transformer(nn.Module):
    """Tokens in, one row of logits for each place (GPT) or for the whole (BERT) out."""

    def __init__(
        self, causal: bool, words: int = 40, width: int = 32, heads: int = 4, layers: int = 2, places: int = 16
    ) -> None:
        super().__init__()
        self.causal = causal
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(places, width)
        self.blocks = nn.Sequential(*(Block(width, heads, causal) for _ in range(layers)))
        self.last = nn.LayerNorm(width)
        self.head = nn.Linear(width, words if causal else 2, bias=not causal)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        x = self.blocks(self.last(x) if not self.causal else x)
        return self.head(self.last(x)) if self.causal else self.head(torch.tanh(x[:, 0]))


# --- convolutional networks ---------------------------------------------------------------------------


class Residual(nn.Module):
    """Two convolutions beside a short cut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)])
        changed = stride > 1 or inputs != outputs
        short = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        self.short = short if changed else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = F.relu(self.norms[0](self.first(x)))
        return F.relu(self.norms[1](self.second(made)) + self.short(x))


def resnet18(width: int = 8, classes: int = 10) -> nn.Module:
    """ResNet-18; the real one has a width of 64 and 1000 classes."""
    stages = [
        Residual(max(width * 2**k // (1 if second or not k else 2), width), width * 2**k, 2 if k and not second else 1)
        for k in range(4)
        for second in (False, True)
    ]
    return nn.Sequential(
        nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1), *stages,
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * width, classes),
    )  # fmt: skip


# --- what they are trained on -------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """A network, and batches of inputs and the classes that they belong to."""

    network: Callable[[], nn.Module]
    batch: Callable[[], tuple[torch.Tensor, torch.Tensor]]

    def loss(self, network: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Cross entropy."""
        logits = network(x)
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))


def _tokens(batch: int, places: int, words: int) -> torch.Tensor:
    return torch.randint(words, (batch, places))


TASKS = {
    "mlp": Task(mlp, lambda: (torch.randn(16, 24), torch.randint(10, (16,)))),
    "gpt": Task(lambda: Transformer(True), lambda: (_tokens(3, 12, 40), _tokens(3, 12, 40))),
    "resnet18": Task(resnet18, lambda: (torch.randn(8, 3, 32, 32), torch.randint(10, (8,)))),
    "bert": Task(lambda: Transformer(False), lambda: (_tokens(4, 16, 40), torch.randint(2, (4,)))),
}
LARGE = {
    "mlp": Task(lambda: mlp(784, 512), lambda: (torch.randn(64, 784), torch.randint(10, (64,)))),
    "gpt": Task(
        lambda: Transformer(True, words=1000, width=128, heads=4, layers=4, places=128),
        lambda: (_tokens(4, 128, 1000), _tokens(4, 128, 1000)),
    ),
    "resnet18": Task(lambda: resnet18(64, 1000), lambda: (torch.randn(2, 3, 224, 224), torch.randint(1000, (2,)))),
    "bert": Task(
        lambda: Transformer(False, words=1000, width=128, heads=2, layers=2, places=128),
        lambda: (_tokens(4, 128, 1000), torch.randint(2, (4,))),
    ),
}
"""The sizes that speed is measured on."""
