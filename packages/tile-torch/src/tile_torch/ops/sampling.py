"""Images read between their cells, at places that a grid gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from tile_runtime.ops.sampling import grid_sampled
from tile_runtime.ops.values import Value

from tile_torch.call import Call
from tile_torch.ops.gradients import gradients
from tile_torch.registry import operator

aten = torch.ops.aten

KERNELS = ("linear", "nearest", "cubic")
PADDINGS = ("zeros", "border", "reflection")


@operator(aten.grid_sampler_2d.default, aten.grid_sampler_3d.default)
def grid_sampler(
    call: Call, input: Value, grid: Value, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Value:
    """[N, C, *spatial] at the places of the grid, [N, *places, axes], whose last axis counts the image's axes backwards."""
    return _sampled(interpolation_mode, padding_mode, align_corners)(input, grid)


@operator(aten.grid_sampler_2d_backward.default, aten.grid_sampler_3d_backward.default)
def grid_sampler_backward(
    call: Call,
    grad_output: Value,
    input: Value,
    grid: Value,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    output_mask: Sequence[bool],
) -> tuple[Value | None, ...]:
    """Gradients of the image and of the grid."""
    forward = _sampled(interpolation_mode, padding_mode, align_corners)
    return gradients(forward, (input, grid), output_mask, grad_output)


def _sampled(mode: int, padding: int, align_corners: bool) -> Callable[[Value, Value], Value]:
    kernel = KERNELS[mode]
    return partial(
        grid_sampled,
        kernel=kernel,
        padding=PADDINGS[padding],
        aligned_corners=align_corners,
        moved=kernel != "cubic",
    )
