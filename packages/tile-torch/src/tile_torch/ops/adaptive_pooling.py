"""The largest of parts as equal as they can be, into which images are divided."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import torch
from tile_runtime.ops.moving import reshaped
from tile_runtime.ops.text import contraction, function
from tile_runtime.ops.values import Array, Value, apply

from tile_torch.call import Call
from tile_torch.registry import operator

aten = torch.ops.aten


@operator(aten.adaptive_max_pool2d.default, aten.adaptive_max_pool3d.default)
def adaptive_max_pool(call: Call, input: Value, output_size: Sequence[int]) -> tuple[Value, Value]:
    """The largest of each part, and the number of its first cell in the image of its channel."""
    rank = 2 if call.target is aten.adaptive_max_pool2d.default else 3
    planes, sizes = prod(call.shape[:-rank]), tuple(input.shape[-rank:])
    cells = part_cells(sizes, call.shape[-rank:])
    places, most = cells.shape
    statements = (
        contraction("G", (planes, places, most), ("n", "p", "k"), "=", "X[n, C[p, k]]"),
        contraction("Y", (planes, places), ("n", "p"), ">", "G[n, p, k]"),
        "A = argmax(G, 2);",
        contraction("I", (planes, places), ("n", "p"), "=", "C[p, A[n, p]]"),
    )
    flat = reshaped(input, (planes, prod(sizes)))
    largest, numbers = apply(function("XC", "YI", *statements), flat, cells)
    return reshaped(largest, call.shape), reshaped(numbers, call.shape)


def part_cells(sizes: Sequence[int], counts: Sequence[int]) -> Array:
    """[places, most]: the numbers (int64) of the cells of each part, the last one again where a part is smaller."""
    found = np.zeros((1, 1), np.int64)
    for size, count in zip(sizes, counts, strict=True):
        number = np.arange(count)
        first, last = number * size // count, -(-(number + 1) * size // count)
        cells = np.minimum(first[:, None] + np.arange(int((last - first).max())), last[:, None] - 1)
        joined = found[:, None, :, None] * size + cells[None, :, None, :]
        found = joined.reshape(len(found) * count, -1)
    return found
