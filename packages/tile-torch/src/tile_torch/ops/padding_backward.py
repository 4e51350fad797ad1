"""Gradients of pads that repeat the border."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from tile_runtime.ops.text import contraction, function, names
from tile_runtime.ops.values import Value, apply

from tile_torch.call import Call
from tile_torch.registry import operator

aten = torch.ops.aten


@operator(
    aten.replication_pad1d_backward.default,
    aten.replication_pad2d_backward.default,
    aten.replication_pad3d_backward.default,
)
def replication_pad_backward(call: Call, grad_output: Value, input: Value, padding: Sequence[int]) -> Value:
    """Axis by axis, what each cell was repeated to; pads come for the last axis first."""
    shape = call.shape
    for k in range(len(padding) // 2):
        axis = len(shape) - 1 - k
        cells = np.arange(grad_output.shape[axis], dtype=np.int32) - padding[2 * k]
        grad_output = added(grad_output, axis, np.clip(cells, 0, shape[axis] - 1), shape[axis])
    return grad_output


def added(value: Value, axis: int, cells: Value, size: int) -> Value:
    """`value` with the lines along an axis added up in the `size` lines that `cells` names."""
    index = names(len(value.shape))
    sizes = (*value.shape[:axis], size, *value.shape[axis + 1 :])
    subscripts = (*index[:axis], f"I[{index[axis]}]", *index[axis + 1 :])
    text = contraction("Y", sizes, subscripts, "+", f"X[{', '.join(index)}]")
    return apply(function("XI", "Y", text), value, cells)
