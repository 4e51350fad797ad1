"""Closures of copies of boxes of tensors (see `tile_ir.semtree.closures`)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tile_ir.matrix import CHUNK_BYTES, MANTISSA_BITS, TF32_BITS
from tile_ir.semtree.closures_memory import Evaluate, Frame, Run, begin_copy
from tile_ir.semtree.memory import Thread
from tile_ir.semtree.nodes import TensorCopy

SWIZZLED = 8
"""Rows behind which the swizzle starts anew."""


def copy(node: TensorCopy, args: Sequence[Evaluate]) -> Run:
    """One item reads for all now; the target is filled when that item waits, and counts as unwritten in between."""
    dst, to, src, *at = args
    count = prod(node.box)

    def run(f: Frame) -> None:
        thread: Thread = f[0]
        if any(thread.ids[2]):
            return
        target = dst(f)
        filled = target.locate(to(f), count, None, thread, "write")
        values = _swizzled(_rounded(_box(node, src(f), [int(place(f)) for place in at], thread)))
        begin_copy(node.group, target, filled, values, thread)

    return run


def _box(node: TensorCopy, source: Any, corner: Sequence[int], thread: Thread) -> npt.NDArray[Any]:
    """The box as rows, zeros outside of the tensor."""
    *outer, line = node.box
    *above, column = corner
    rows = np.zeros((prod(outer), line), np.float32)
    first, stop = max(column, 0), min(column + line, node.sizes[-1])
    dims = tuple(zip(above, outer, node.steps, strict=False))
    for row, places in zip(rows, product(*(range(c, c + n * s, s) for c, n, s in dims)), strict=True):
        inside = all(0 <= p < size for p, size in zip(places, node.sizes, strict=False))
        if inside and first < stop:
            start = sum(p * stride for p, stride in zip(places, node.strides, strict=False)) + first
            read = source.locate(start, stop - first, None, thread, "read")
            source.on_read(read, thread)
            row[first - column : stop - column] = source.data[read.start : read.stop]
    return rows


def _rounded(floats: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """To the nearest with so many mantissa bits, ties to even."""
    dropped = MANTISSA_BITS - TF32_BITS
    bits = floats.view(np.uint32)
    half = np.uint32((1 << (dropped - 1)) - 1) + (bits >> np.uint32(dropped) & np.uint32(1))
    kept = np.uint32(0xFFFFFFFF << dropped & 0xFFFFFFFF)
    return np.where(np.isfinite(floats), ((bits + half) & kept).view(np.float32), floats)


def _swizzled(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """All rows, one after the other, their chunks where the swizzle has them."""
    count, line = rows.shape
    chunk = CHUNK_BYTES // rows.itemsize
    places = np.arange(rows.size).reshape(count, line)
    return rows.reshape(-1)[places ^ (places // line % SWIZZLED * chunk)].reshape(-1)
