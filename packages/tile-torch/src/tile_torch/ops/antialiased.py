"""Images resized with filters as wide as the cells that fall into one: products with a matrix for each axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from tile_runtime.ops.text import contraction, function, wide
from tile_runtime.ops.values import Value, apply, dtype_of

from tile_torch.call import Call
from tile_torch.registry import Overload, operator, present

aten = torch.ops.aten

BACKWARD: dict[Overload, Overload] = {
    aten._upsample_bilinear2d_aa_backward.default: aten._upsample_bilinear2d_aa.default,
    aten._upsample_bicubic2d_aa_backward.default: aten._upsample_bicubic2d_aa.default,
}
"""What an operator is the gradient of."""


@operator(
    aten._upsample_bilinear2d_aa.default,
    aten._upsample_bicubic2d_aa.default,
    *present("aten._upsample_lanczos2d_aa.default"),
)
def resized(call: Call, x: Value, output_size: Sequence[int], align_corners: bool, *scales: float | None) -> Value:
    """[N, C, H, W] in another height and width; `scales` are for each of the two."""
    filters = _filters(call.target, x.shape[2:], output_size, align_corners, scales)
    return _along_both(call, x, *(f.T for f in filters))


@operator(*BACKWARD)
def resized_backward(
    call: Call,
    grad_output: Value,
    output_size: Sequence[int],
    input_size: Sequence[int],
    align_corners: bool,
    *scales: float | None,
) -> Value:
    filters = _filters(BACKWARD[call.target], input_size[2:], output_size, align_corners, scales)
    return _along_both(call, grad_output, *filters)


def _filters(
    target: Any, old: Sequence[int], new: Sequence[int], align_corners: bool, scales: Sequence[float | None]
) -> list[npt.NDArray[Any]]:
    """For each of two axes how much of each old cell, in a column, is in each new one: PyTorch's own numbers."""
    found: list[npt.NDArray[Any]] = []
    for before, after, scale in zip(old, new, scales or (None, None), strict=True):
        unit = torch.eye(before, dtype=torch.float64)[None, None]
        found.append(target(unit, [after, before], align_corners, scale, None)[0, 0].numpy())
    return found


def _along_both(call: Call, x: Value, rows: npt.NDArray[Any], columns: npt.NDArray[Any]) -> Value:
    """``rows.T @ x @ columns``, summed in float32 or wider."""
    n, c, _, width = x.shape
    dtype = call.dtype.accumulator
    matrices = (np.ascontiguousarray(m, dtype.numpy) for m in (rows, columns))
    sizes = (n, c, rows.shape[1])
    text = function(
        "VRC",
        "S",
        f"X = {wide('V', dtype_of(x))};",
        contraction("T", (*sizes, width), ("n", "c", "i", "w"), "+", "X[n, c, h, w] * R[h, i]"),
        contraction("S", (*sizes, columns.shape[1]), ("n", "c", "i", "j"), "+", "T[n, c, i, w] * C[w, j]"),
    )
    found = apply(text, x, *matrices)
    return found if dtype_of(found) is call.dtype else call.elementwise("{0}", found)
