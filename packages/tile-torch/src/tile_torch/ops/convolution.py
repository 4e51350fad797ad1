"""Convolutions and transposed ones, of any rank."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tile_runtime.ops.convolution import convolved, transposed
from tile_runtime.ops.moving import reshaped
from tile_runtime.ops.values import Value
from tile_runtime.ops.windows import sliding, spreading

from tile_torch.call import Call
from tile_torch.registry import operator

aten = torch.ops.aten


@operator(aten.convolution.default)
def convolution(
    call: Call,
    x: Value,
    weight: Value,
    bias: Value,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Value:
    """[N, C, *spatial]; weights [O, C/groups, *kernel], of transposed ones [C, O/groups, *kernel]."""
    rank = len(weight.shape) - 2
    steps, pads, apart, extra = (spread(v, rank) for v in (stride, padding, dilation, output_padding))
    image = x if len(x.shape) == rank + 2 else reshaped(x, (1, *x.shape))
    made = _convolved(image, weight, bias, steps, pads, apart, extra, transposed, groups)
    return reshaped(made, call.shape)


def spread(values: Sequence[int], rank: int) -> tuple[int, ...]:
    """One number for each axis, where a single one is for all."""
    return tuple(values) * rank if len(values) == 1 else tuple(values)


def _convolved(
    image: Value,
    weight: Value,
    bias: Value,
    steps: Sequence[int],
    pads: Sequence[int],
    apart: Sequence[int],
    extra: Sequence[int],
    backwards: bool,
    groups: int,
) -> Value:
    if not backwards:
        window = sliding(image.shape[2:], weight.shape[2:], steps, apart, pads, pads)
        return convolved(image, weight, bias, window, groups)
    after = [p - e for p, e in zip(pads, extra, strict=True)]
    window = spreading(image.shape[2:], weight.shape[2:], steps, apart, pads, after)
    return transposed(image, weight, bias, window, groups)
