"""Pools of one, two and three axes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from tile_runtime.ops.moving import reshaped
from tile_runtime.ops.pooling import average_pool, cell, counted, max_pool, max_pool_with_places, pooled
from tile_runtime.ops.text import cast, function
from tile_runtime.ops.values import Value, apply, dtype_of
from tile_runtime.ops.windows import Window, sliding

from tile_torch.call import Call
from tile_torch.ops.convolution import spread
from tile_torch.registry import operator

aten = torch.ops.aten


def batched(x: Value, rank: int) -> Value:
    """[N, C, *spatial] of an image that may lack N."""
    return x if len(x.shape) == rank + 2 else reshaped(x, (1, *x.shape))


def pool_window(
    shape: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> Window:
    """The window over spatial axes of `shape`; no stride is as far as the window is wide."""
    rank = len(shape)
    cells, pads = spread(kernel, rank), spread(padding, rank)
    return sliding(shape, cells, spread(stride or kernel, rank), spread(dilation, rank), pads, pads, ceil_mode)


@operator(aten.max_pool2d_with_indices.default, aten.max_pool3d_with_indices.default)
def max_pool_with_indices(
    call: Call,
    x: Value,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> tuple[Value, Value | None]:
    """The largest of each place, and its cell's number in the image of its channel."""
    rank = 2 if call.target is aten.max_pool2d_with_indices.default else 3
    image = batched(x, rank)
    over = pool_window(image.shape[2:], kernel_size, stride, padding, dilation, ceil_mode)
    if not call.wants(1):
        return reshaped(max_pool(image, over), call.shape), None
    largest, places = max_pool_with_places(image, over, range(2, rank + 2))
    return reshaped(largest, call.shape), reshaped(places, call.type(1)[0])


@operator(aten.avg_pool1d.default, aten.avg_pool2d.default, aten.avg_pool3d.default)
def avg_pool(
    call: Call,
    x: Value,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Value:
    """The mean of each place, or its sum over a divisor of the caller's."""
    rank = int(call.name[-2])
    image = batched(x, rank)
    over = pool_window(image.shape[2:], kernel_size, stride, padding, (1,), ceil_mode)
    if divisor_override is None and call.dtype.is_float:
        return reshaped(average_pool(image, over, count_include_pad), call.shape)
    total = pooled("S", "+", cell(over), image.shape, over)
    counts = counted(over, image.shape[2:], count_include_pad) if divisor_override is None else divisor_override
    text = function("XC", "Y", total, f"Y = {cast('(S / C)', call.dtype)};")
    return reshaped(apply(text, image, np.asarray(counts).astype(call.dtype.numpy)), call.shape)


@operator(aten._adaptive_avg_pool2d.default, aten._adaptive_avg_pool3d.default, aten.adaptive_avg_pool1d.default)
def adaptive_avg_pool(call: Call, x: Value, output_size: Sequence[int]) -> Value:
    """The mean of each of the parts into which the axes are divided, as equal as they can be."""
    rank = len(output_size)
    image = batched(x, rank)
    sizes = tuple(image.shape[2:])
    if all(n and size % n == 0 for size, n in zip(sizes, output_size, strict=True)):
        kernel = [size // n for size, n in zip(sizes, output_size, strict=True)]
        return reshaped(average_pool(image, pool_window(sizes, kernel, kernel, (0,)), True), call.shape)
    return reshaped(_averaged(image, output_size), call.shape)


def _averaged(image: Value, output_size: Sequence[int]) -> Value:
    """Axis by axis, as products with matrices of shares."""
    from tile_runtime.ops.text import at, contraction, names

    for k, wanted in enumerate(output_size):
        index = names(len(image.shape))
        along = 2 + k
        shares = adaptive_shares(image.shape[along], wanted).astype(dtype_of(image).numpy)
        target = (*index[:along], "o", *index[along + 1 :])
        sizes = (*image.shape[:along], wanted, *image.shape[along + 1 :])
        body = f"{at('X', index)} * {at('W', ('o', index[along]))}"
        image = apply(function("XW", "Y", contraction("Y", sizes, target, "+", body)), image, shares)
    return image


def adaptive_shares(size: int, wanted: int) -> np.ndarray:
    """[wanted, size]: what each of `size` cells adds to the mean of each part."""
    starts = np.arange(wanted) * size // wanted
    ends = -(-(np.arange(wanted) + 1) * size // wanted)
    cells = np.arange(size)
    inside = (starts[:, None] <= cells) & (cells < ends[:, None])
    return inside / np.maximum(1, inside.sum(1, keepdims=True))
