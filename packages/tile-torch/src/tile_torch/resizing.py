"""Interpolation one axis after the other: PyTorch's own division reads every corner of a cell's surroundings for each result.

Of two axes that are doubled that is four reads along lanes for each result; one axis after the other takes two for half of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import add
from typing import Any, cast

import torch
from torch import Tensor
from torch.fx import GraphModule
from torch.nn.functional import interpolate

Taps = list[tuple[Tensor, Tensor]]
"""Cells of an axis, one for each of the new axis, and their weights."""
Kernel = Callable[[Tensor, bool, Any], Taps]
"""Taps at places of an axis whose last cell is given; aligned where its ends stay."""
SHARPNESS = -0.75
"""Of PyTorch's cubic kernel."""
_sym_int = cast("Callable[[Any], Any]", torch.sym_int)  # pyright: ignore[reportUnknownMemberType]


def _linear(place: Tensor, aligned: bool, last: Any) -> Taps:
    place = place if aligned else place.clamp(min=0)
    cell = place.floor()
    after = place - cell
    return [(cell.long(), 1 - after), ((cell.long() + 1).clamp(max=last), after)]


def _cubic(place: Tensor, aligned: bool, last: Any) -> Taps:
    cell = place.floor()
    found: Taps = []
    for k in range(-1, 3):
        x = (place - cell - k).abs()
        near = ((SHARPNESS + 2) * x - (SHARPNESS + 3)) * x * x + 1
        far = ((SHARPNESS * x - 5 * SHARPNESS) * x + 8 * SHARPNESS) * x - 4 * SHARPNESS
        found.append(((cell.long() + k).clamp(0, last), near if k in (0, 1) else far))
    return found


KERNELS: dict[tuple[str, int], Kernel] = {
    ("linear", 3): _linear,
    ("bilinear", 4): _linear,
    ("trilinear", 5): _linear,
    ("bicubic", 4): _cubic,
}
"""The taps of a place, by PyTorch's mode and the rank of images."""


def separate(module: GraphModule) -> None:
    """Has every interpolation of a captured graph go one axis after the other."""
    for node in module.graph.find_nodes(op="call_function", target=interpolate):
        node.target = interpolated
    module.recompile()


def interpolated(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """What `torch.nn.functional.interpolate` gives; what has other forms than sums of few cells is its own business."""
    kernel = KERNELS.get((mode, input.dim()))
    old = input.shape[2:]
    scales = _each(scale_factor, len(old))
    sizes = _each(size, len(old)) if size else [_sym_int(n * s) for n, s in zip(old, scales, strict=False) if s]
    others = recompute_scale_factor or antialias or (size and scale_factor) or not len(old) == len(sizes) == len(scales)
    if not kernel or others or not input.is_floating_point():
        return interpolate(input, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias)
    return _resized(input, kernel, sizes, scales, bool(align_corners))


def _resized(input: Tensor, kernel: Kernel, new: Sequence[Any], scales: Sequence[Any], aligned: bool) -> Tensor:
    old = input.shape[2:]
    found = input.float() if input.dtype.itemsize < 4 else input
    for axis in _order(old, new):
        step = _step(old[axis], new[axis], aligned, scales[axis])
        place = _places(new[axis], step, aligned, found.dtype)
        found = _along(found, axis + 2, kernel(place, aligned, old[axis] - 1))
    is_last = input.dim() == 4 and not input.is_contiguous() and input.is_contiguous(memory_format=torch.channels_last)
    layout = torch.channels_last if is_last else torch.contiguous_format
    return found.to(input.dtype).contiguous(memory_format=layout)


def _each(given: Any, count: int) -> list[Any]:
    """One for each axis."""
    return list(cast("Sequence[Any]", given)) if isinstance(given, (list, tuple)) else [given] * count


def _along(image: Tensor, axis: int, taps: Taps) -> Tensor:
    """Sums of weighted cells."""
    column = (-1, *(1,) * (image.dim() - axis - 1))
    terms = [image.index_select(axis, cells) * weights.view(column) for cells, weights in taps]
    return reduce(add, terms)


def _order(old: Sequence[Any], new: Sequence[Any]) -> list[int]:
    """Axes that shrink are resized first; of those that grow the last one, which takes most for each result."""
    axes = range(len(old))
    return [k for k in axes if new[k] < old[k]] + [k for k in reversed(axes) if new[k] >= old[k]]


def _step(old: Any, new: Any, aligned: bool, scale: float | None) -> float:
    """Cells of the old axis for each one of the new."""
    if aligned:
        return (old - 1) / (new - 1) if new > 1 else 0.0
    return 1 / scale if scale else old / new


def _places(new: Any, step: float, aligned: bool, dtype: torch.dtype) -> Tensor:
    """Where the new cells lie in the old axis."""
    number = torch.arange(new, dtype=dtype)
    return number * step if aligned else (number + 0.5) * step - 0.5
