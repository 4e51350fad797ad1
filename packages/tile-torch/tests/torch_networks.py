"""Networks as plain PyTorch code, of any size: small ones for tests, the published sizes for measurements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def mlp(*sizes: int) -> nn.Module:
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


# --- convolutional ---------------------------------------------------------------------------------------


class Normed(nn.Sequential):
    """A convolution, its batch normalisation, and an activation."""

    def __init__(self, before: int, after: int, kernel: int = 3, stride: int = 1, groups: int = 1, act: type[nn.Module] | None = nn.ReLU) -> None:  # fmt: skip
        conv = nn.Conv2d(before, after, kernel, stride, kernel // 2, groups=groups, bias=False)
        super().__init__(conv, nn.BatchNorm2d(after), *([act()] if act is not None else []))


class Residual(nn.Module):
    def __init__(self, before: int, width: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        after = width * 4 if bottleneck else width
        if bottleneck:
            layers = [Normed(before, width, 1), Normed(width, width, 3, stride), Normed(width, after, 1, act=None)]
        else:
            layers = [Normed(before, width, 3, stride), Normed(width, width, act=None)]
        self.body = nn.Sequential(*layers)
        same = stride == 1 and before == after
        self.shortcut = nn.Identity() if same else Normed(before, after, 1, stride, act=None)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.shortcut(x))


class ResNet(nn.Module):
    """ResNet-18 is `(2, 2, 2, 2)`, ResNet-50 `(3, 4, 6, 3)` of bottlenecks."""

    def __init__(self, depths: tuple[int, ...], width: int = 64, bottleneck: bool = False, classes: int = 1000) -> None:
        super().__init__()
        self.stem = Normed(3, width, 7, 2)
        blocks: list[nn.Module] = []
        channels = width
        for stage, depth in enumerate(depths):
            for k in range(depth):
                wide = width * 2**stage
                blocks.append(Residual(channels, wide, 2 if stage and not k else 1, bottleneck))
                channels = wide * 4 if bottleneck else wide
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.stem(x), 3, 2, 1)
        return self.head(F.adaptive_avg_pool2d(self.blocks(x), 1).flatten(1))


class Squeeze(nn.Module):
    """Channels weighted by what all of the image says."""

    def __init__(
        self, channels: int, inner: int, act: Callable[[Tensor], Tensor], gate: Callable[[Tensor], Tensor]
    ) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, inner, 1), nn.Conv2d(inner, channels, 1)
        self.act, self.gate = act, gate

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(self.up(self.act(self.down(F.adaptive_avg_pool2d(x, 1)))))


class Inverted(nn.Module):
    """A block of MobileNetV3 and EfficientNet."""

    def __init__(self, before: int, inner: int, after: int, kernel: int, stride: int, squeeze: Squeeze | None, act: type[nn.Module]) -> None:  # fmt: skip
        super().__init__()
        layers: list[nn.Module] = [Normed(before, inner, 1, act=act)] if inner != before else []
        layers.append(Normed(inner, inner, kernel, stride, inner, act))
        if squeeze is not None:
            layers.append(squeeze)
        self.body = nn.Sequential(*layers, Normed(inner, after, 1, act=None))
        self.same = stride == 1 and before == after

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.same else self.body(x)


MOBILENET = (
    (3, 16, 16, True, nn.ReLU, 2), (3, 72, 24, False, nn.ReLU, 2), (3, 88, 24, False, nn.ReLU, 1),
    (5, 96, 40, True, nn.Hardswish, 2), (5, 240, 40, True, nn.Hardswish, 1), (5, 240, 40, True, nn.Hardswish, 1),
    (5, 120, 48, True, nn.Hardswish, 1), (5, 144, 48, True, nn.Hardswish, 1), (5, 288, 96, True, nn.Hardswish, 2),
    (5, 576, 96, True, nn.Hardswish, 1), (5, 576, 96, True, nn.Hardswish, 1),
)  # fmt: skip
"""Kernel, inner and outer channels, squeeze, activation, stride of each block of MobileNetV3-small."""


def mobilenet_v3(
    rows: tuple[tuple[int, int, int, bool, type[nn.Module], int], ...] = MOBILENET, classes: int = 1000
) -> nn.Module:
    layers: list[nn.Module] = [Normed(3, 16, 3, 2, act=nn.Hardswish)]
    before = 16
    for kernel, inner, after, squeezed, act, stride in rows:
        squeeze = Squeeze(inner, max(8, inner // 4), F.relu, F.hardsigmoid) if squeezed else None
        layers.append(Inverted(before, inner, after, kernel, stride, squeeze, act))
        before = after
    layers += [Normed(before, before * 6, 1, act=nn.Hardswish), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    head = [nn.Linear(before * 6, 1024), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(1024, classes)]
    return nn.Sequential(*layers, *head)


EFFICIENTNET = (
    (1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3), (6, 5, 1, 112, 3), (6, 5, 2, 192, 4), (6, 3, 1, 320, 1),
)  # fmt: skip
"""Expansion, kernel, stride, channels and depth of each stage of EfficientNet-B0."""


def efficientnet(rows: tuple[tuple[int, int, int, int, int], ...] = EFFICIENTNET, classes: int = 1000) -> nn.Module:
    layers: list[nn.Module] = [Normed(3, 32, 3, 2, act=nn.SiLU)]
    before = 32
    for expansion, kernel, stride, after, depth in rows:
        for k in range(depth):
            inner, squeezed = before * expansion, max(1, before // 4)
            squeeze = Squeeze(inner, squeezed, F.silu, torch.sigmoid)
            layers.append(Inverted(before, inner, after, kernel, 1 if k else stride, squeeze, nn.SiLU))
            before = after
    layers += [Normed(before, 4 * before, 1, act=nn.SiLU), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Dropout(0.2), nn.Linear(4 * before, classes))


class ChannelNorm(nn.LayerNorm):
    """Layer normalisation of the channels of images."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNeXtBlock(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.depthwise, self.norm = nn.Conv2d(dim, dim, 7, 1, 3, groups=dim), nn.LayerNorm(dim, 1e-6)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.scale = nn.Parameter(torch.full((dim, 1, 1), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + self.down(F.gelu(self.up(y))).permute(0, 3, 1, 2) * self.scale


def convnext(
    depths: tuple[int, ...] = (3, 3, 9, 3), dims: tuple[int, ...] = (96, 192, 384, 768), classes: int = 1000
) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, dims[0], 4, 4), ChannelNorm(dims[0], 1e-6)]
    for stage, (depth, dim) in enumerate(zip(depths, dims, strict=True)):
        if stage:
            layers += [ChannelNorm(dims[stage - 1], 1e-6), nn.Conv2d(dims[stage - 1], dim, 2, 2)]
        layers += [ConvNeXtBlock(dim) for _ in range(depth)]
    head = [nn.AdaptiveAvgPool2d(1), ChannelNorm(dims[-1], 1e-6), nn.Flatten(), nn.Linear(dims[-1], classes)]
    return nn.Sequential(*layers, *head)


# --- transformers ----------------------------------------------------------------------------------------


class Block(nn.Module):
    """Attention and two linear layers, normalised before (GPT, ViT) or behind (BERT)."""

    def __init__(self, dim: int, heads: int, causal: bool = False, before: bool = True) -> None:
        super().__init__()
        self.heads, self.causal, self.before = heads, causal, before
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def attend(self, x: Tensor, mask: Tensor | None) -> Tensor:
        batch, length, dim = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(batch, length, dim))

    def feed(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x)))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if self.before:
            x = x + self.attend(self.norm1(x), mask)
            return x + self.feed(self.norm2(x))
        x = self.norm1(x + self.attend(x, mask))
        return self.norm2(x + self.feed(x))


class GPT(nn.Module):
    def __init__(
        self, words: int = 50257, dim: int = 768, heads: int = 12, depth: int = 12, length: int = 1024
    ) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, dim), nn.Embedding(length, dim)
        self.blocks = nn.ModuleList(Block(dim, heads, causal=True) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class BERT(nn.Module):
    """An encoder whose padding is masked; sentences are means over their words."""

    def __init__(self, words: int = 30522, dim: int = 768, heads: int = 12, depth: int = 12, length: int = 512) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, dim, padding_idx=0), nn.Embedding(length, dim)
        self.norm = nn.LayerNorm(dim, 1e-12)
        self.blocks = nn.ModuleList(Block(dim, heads, before=False) for _ in range(depth))
        self.pool = nn.Linear(dim, dim)

    def forward(self, tokens: Tensor) -> Tensor:
        seen = tokens != 0
        x = self.norm(self.words(tokens) + self.places.weight[: tokens.shape[1]])
        mask = torch.zeros(seen.shape, dtype=x.dtype).masked_fill(~seen, float("-inf"))[:, None, None, :]
        for block in self.blocks:
            x = block(x, mask)
        weights = seen.unsqueeze(-1).to(x.dtype)
        return F.normalize(torch.tanh(self.pool((x * weights).sum(1) / weights.sum(1))), dim=-1)


class ViT(nn.Module):
    def __init__(self, size: int = 224, patch: int = 16, dim: int = 768, heads: int = 12, depth: int = 12, classes: int = 1000) -> None:  # fmt: skip
        super().__init__()
        self.patches = nn.Conv2d(3, dim, patch, patch)
        self.first = nn.Parameter(torch.randn(1, 1, dim) * 0.02)
        self.places = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, dim) * 0.02)
        self.blocks = nn.Sequential(*(Block(dim, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.norm(self.blocks(x))[:, 0])


class WindowBlock(nn.Module):
    """A block of Swin: attention inside of windows, every other time moved by half a window."""

    def __init__(self, dim: int, heads: int, window: int, shifted: bool) -> None:
        super().__init__()
        self.window, self.shift = window, window // 2 if shifted else 0
        self.inner = Block(dim, heads)
        self.bias = nn.Parameter(torch.randn((2 * window - 1) ** 2, heads) * 0.02)
        at = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
        apart = at[:, :, None] - at[:, None, :] + window - 1
        self.register_buffer("apart", apart[0] * (2 * window - 1) + apart[1])

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner.feed(self.inner.norm2(x := x + self.attend(self.inner.norm1(x))))

    def attend(self, x: Tensor) -> Tensor:
        batch, height, width, dim = x.shape
        w, s = self.window, self.shift
        x = torch.roll(x, (-s, -s), (1, 2)) if s else x
        parts = x.view(batch, height // w, w, width // w, w, dim).transpose(2, 3).reshape(-1, w * w, dim)
        mask = self.bias[self.apart].permute(2, 0, 1)
        if s:
            mask = mask + self.borders(height, width)[:, None].repeat(batch, 1, 1, 1)
        y = self.inner.attend(parts, mask)
        y = y.view(batch, height // w, width // w, w, w, dim).transpose(2, 3).reshape(batch, height, width, dim)
        return torch.roll(y, (s, s), (1, 2)) if s else y

    def borders(self, height: int, width: int) -> Tensor:
        """What windows that were moved over the border may look at."""
        w, s = self.window, self.shift
        regions = torch.zeros((height, width))
        for k, rows in enumerate((slice(0, -w), slice(-w, -s), slice(-s, None))):
            for n, columns in enumerate((slice(0, -w), slice(-w, -s), slice(-s, None))):
                regions[rows, columns] = 3 * k + n
        parts = regions.view(height // w, w, width // w, w).transpose(1, 2).reshape(-1, w * w)
        return torch.where(parts[:, None] == parts[:, :, None], 0.0, -100.0)


class Merge(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm, self.reduce = nn.LayerNorm(4 * dim), nn.Linear(4 * dim, 2 * dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        parts = [x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
        return self.reduce(self.norm(torch.cat(parts, -1)))


class Swin(nn.Module):
    def __init__(self, depths: tuple[int, ...] = (2, 2, 6, 2), dim: int = 96, heads: int = 3, window: int = 7, classes: int = 1000) -> None:  # fmt: skip
        super().__init__()
        self.patches, self.norm0 = nn.Conv2d(3, dim, 4, 4), nn.LayerNorm(dim)
        layers: list[nn.Module] = []
        for stage, depth in enumerate(depths):
            if stage:
                layers.append(Merge(dim * 2 ** (stage - 1)))
            layers += [WindowBlock(dim * 2**stage, heads * 2**stage, window, bool(k % 2)) for k in range(depth)]
        self.layers = nn.Sequential(*layers)
        last = dim * 2 ** (len(depths) - 1)
        self.norm, self.head = nn.LayerNorm(last), nn.Linear(last, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layers(self.norm0(self.patches(x).permute(0, 2, 3, 1)))
        return self.head(self.norm(x).mean((1, 2)))


class LlamaBlock(nn.Module):
    """Rotary places, grouped keys, root-mean-square norms, a gated feed-forward layer."""

    def __init__(self, dim: int, heads: int, groups: int, inner: int) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, dim // heads
        self.norm1, self.norm2 = nn.RMSNorm(dim, 1e-6), nn.RMSNorm(dim, 1e-6)
        self.q, self.out = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.k, self.v = (nn.Linear(dim, groups * self.size, bias=False) for _ in range(2))
        self.gate, self.up = nn.Linear(dim, inner, bias=False), nn.Linear(dim, inner, bias=False)
        self.down = nn.Linear(inner, dim, bias=False)

    def forward(self, x: Tensor, angles: Tensor) -> Tensor:
        batch, length, dim = x.shape
        y = self.norm1(x)
        q = turned(self.q(y).view(batch, length, self.heads, self.size).transpose(1, 2), angles)
        k = turned(self.k(y).view(batch, length, self.groups, self.size).transpose(1, 2), angles)
        v = self.v(y).view(batch, length, self.groups, self.size).transpose(1, 2)
        k, v = (t.repeat_interleave(self.heads // self.groups, 1) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, dim)
        x = x + self.out(y)
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def turned(x: Tensor, angles: Tensor) -> Tensor:
    """Pairs of numbers, turned by the angles of their places."""
    first, second = x.chunk(2, -1)
    return torch.cat([first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()], -1)


class Llama(nn.Module):
    def __init__(self, words: int = 32000, dim: int = 512, heads: int = 8, groups: int = 4, depth: int = 8) -> None:
        super().__init__()
        self.words = nn.Embedding(words, dim)
        self.blocks = nn.ModuleList(LlamaBlock(dim, heads, groups, 3 * dim) for _ in range(depth))
        self.norm, self.head = nn.RMSNorm(dim, 1e-6), nn.Linear(dim, words, bias=False)
        self.half = dim // heads // 2

    def forward(self, tokens: Tensor) -> Tensor:
        rates = 10000.0 ** (-torch.arange(self.half, dtype=torch.float32) / self.half)
        angles = torch.arange(tokens.shape[1])[:, None] * rates
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x, angles)
        return self.head(self.norm(x))


# --- as tests and measurements take them -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Network:
    """How a network is made, and what it is called with."""

    make: Callable[[], nn.Module]
    sample: Callable[[], Tensor]


def images(batch: int, size: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(batch, 3, size, size)


def tokens(batch: int, length: int, words: int) -> Callable[[], Tensor]:
    return lambda: torch.randint(1, words, (batch, length))


SMALL = {
    "mlp": Network(lambda: mlp(20, 32, 10), lambda: torch.randn(4, 20)),
    "gpt": Network(lambda: GPT(50, 32, 4, 2, 16), tokens(2, 16, 50)),
    "resnet18": Network(lambda: ResNet((1, 1), 8, classes=10), images(2, 32)),
    "resnet50": Network(lambda: ResNet((1, 1), 8, True, classes=10), images(2, 32)),
    "mobilenet_v3": Network(lambda: mobilenet_v3(MOBILENET[1:4:2], classes=10), images(2, 32)),
    "efficientnet": Network(lambda: efficientnet(((1, 3, 1, 16, 1), (6, 5, 2, 24, 2)), classes=10), images(2, 32)),
    "convnext": Network(lambda: convnext((1, 1), (16, 32), classes=10), images(2, 32)),
    "vit": Network(lambda: ViT(32, 8, 32, 4, 2, classes=10), images(2, 32)),
    "swin": Network(lambda: Swin((2,), 16, 2, 4, classes=10), images(2, 32)),
    "bert": Network(lambda: BERT(50, 32, 4, 2, 16), tokens(2, 12, 50)),
    "llama": Network(lambda: Llama(50, 32, 4, 2, 2), tokens(2, 12, 50)),
}
"""Of the architectures, with few blocks and channels."""

FULL = {
    "mlp": Network(lambda: mlp(784, 512, 512, 10), lambda: torch.randn(64, 784)),
    "gpt": Network(lambda: GPT(5000, 256, 8, 6, 256), tokens(1, 128, 5000)),
    "resnet18": Network(lambda: ResNet((2, 2, 2, 2)), images(1, 224)),
    "resnet50": Network(lambda: ResNet((3, 4, 6, 3), 64, True), images(1, 224)),
    "mobilenet_v3": Network(mobilenet_v3, images(1, 224)),
    "efficientnet_b0": Network(efficientnet, images(1, 224)),
    "convnext_tiny": Network(convnext, images(1, 224)),
    "vit_b_16": Network(ViT, images(1, 224)),
    "swin_t": Network(Swin, images(1, 224)),
    "bert": Network(lambda: BERT(5000, 384, 12, 6), tokens(1, 64, 5000)),
    "llama": Network(lambda: Llama(5000), tokens(1, 64, 5000)),
}
"""Of the published sizes; transformers of words have smaller vocabularies."""
