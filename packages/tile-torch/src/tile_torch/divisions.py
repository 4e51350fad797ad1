"""Operators that PyTorch does not take apart, as the operators that they stand for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tile_torch import listwise
from tile_torch.registry import present

aten = torch.ops.aten
linalg: Any = torch.linalg


# --- products ---------------------------------------------------------------------------------------------


def _addbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    total = alpha * torch.bmm(batch1, batch2).sum(0)
    return (beta * input + total if beta else total).to(input.dtype)


def _trilinear(
    i1: Tensor,
    i2: Tensor,
    i3: Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Tensor:
    first, second, third = (_widened(i, places) for i, places in ((i1, expand1), (i2, expand2), (i3, expand3)))
    return (first * second * third).sum(list(sumdim))


def _of_bytes(self: Tensor, mat2: Tensor, scales: Tensor) -> Tensor:
    """With the rows of a matrix of 8-bit integers, each of a scale of its own."""
    return self @ mat2.to(self.dtype).t() * scales


def _widened(tensor: Tensor, places: Sequence[int]) -> Tensor:
    for place in sorted(places):
        tensor = tensor.unsqueeze(place)
    return tensor


# --- linear algebra ---------------------------------------------------------------------------------------


def _cholesky(input: Tensor, upper: bool = False) -> Tensor:
    return linalg.cholesky(input, upper=upper)


def _cholesky_inverse(input: Tensor, upper: bool = False) -> Tensor:
    """The inverse of the matrix that has this factor."""
    one = torch.eye(input.shape[-1], dtype=input.dtype)
    inverse: Tensor = linalg.solve_triangular(input, one.expand_as(input), upper=upper)
    turned = inverse.transpose(-2, -1)
    return (inverse @ turned if upper else turned @ inverse).transpose(-2, -1)


def _lu(A: Tensor, *, pivot: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """A permutation and both triangular factors."""
    factors, pivots, _ = linalg.lu_factor_ex(A, pivot=pivot)
    return torch.lu_unpack(factors, pivots, unpack_pivots=pivot)


# --- layers -----------------------------------------------------------------------------------------------


def _weight_norm_backward(grad: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The gradients of direction and length of ``v * g / norms``, whose lengths are along one axis."""
    others = [k for k in range(v.dim()) if k != dim % v.dim()]
    slope = (grad * v).sum(others, keepdim=True) / norms
    return g / norms * (grad - v * (slope / norms)), slope


def _rrelu(input: Tensor, noise: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False,
           generator: Any = None) -> tuple[Tensor, Tensor]:  # fmt: skip
    """With the slope in the middle; in training data decides how many random numbers PyTorch draws."""
    if training:
        return NotImplemented
    return torch.nn.functional.leaky_relu(input, (lower + upper) / 2), noise.clone()


def _native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """A mask that PyTorch draws, and a product with it, which may be computed again where the mask is kept."""
    if train is False or p == 0:
        return input.clone(), torch.ones_like(input, dtype=torch.bool)
    mask: Tensor = torch.ops.tile.dropout_mask(input, p)
    return torch.where(mask, input * (0.0 if p == 1 else 1 / (1 - p)), input * 0), mask


def _quantized(input: Tensor, scale: Any, zero_point: Any, low: int, high: int) -> tuple[Tensor, Tensor]:
    """Rounded to whole multiples of a scale, and where these are within bounds."""
    places = torch.round(input * (1 / scale)) + zero_point
    return (places.clamp(low, high) - zero_point) * scale, (places >= low) & (places <= high)


def _quantized_if(
    input: Tensor, scale: Tensor, zero_point: Tensor, enabled: Tensor, low: int, high: int
) -> tuple[Tensor, Tensor]:
    found, within = _quantized(input, scale, zero_point, low, high)
    return torch.where(enabled != 0, found, input), within | (enabled == 0)


def _quantized_channels(
    input: Tensor, scale: Tensor, zero_point: Tensor, axis: int, low: int, high: int
) -> tuple[Tensor, Tensor]:
    shape = [-1 if k == axis % input.dim() else 1 for k in range(input.dim())]
    return _quantized(input, scale.reshape(shape), zero_point.reshape(shape), low, high)


# --- random numbers ---------------------------------------------------------------------------------------


def _multinomial(input: Tensor, num_samples: int, replacement: bool = False, *, generator: Any = None) -> Tensor:
    """The places of the largest ratios to numbers of an exponential distribution, as PyTorch finds them."""
    if replacement and num_samples > 1:
        return NotImplemented
    ratios = input / aten.exponential.default(torch.empty_like(input))
    return ratios.argmax(-1, keepdim=True) if num_samples == 1 else ratios.topk(num_samples, -1).indices


def _normal(mean: Any, std: Any = 1.0, *, generator: Any = None) -> Tensor:
    """Numbers of a normal distribution, with a mean and a deviation for each."""
    drawn: Tensor = torch.empty_like(mean + std)
    if isinstance(std, Tensor):
        return aten.normal_functional.default(drawn) * std + mean
    return aten.normal_functional.default(drawn, 0, std) + mean


def _normal_of_size(mean: float, std: float, size: Sequence[int], *, generator: Any = None, **how: Any) -> Tensor:
    return aten.normal_functional.default(torch.empty(size, dtype=how.get("dtype")), mean, std)


# --- rows of lengths of their own -------------------------------------------------------------------------


def _padded(values: Tensor, offsets: Sequence[Tensor], max_lengths: Sequence[int], padding_value: float = 0) -> Tensor:
    """Rows that lie one after the other, each filled up to the same length."""
    if len(offsets) > 1:
        return NotImplemented
    (ends,) = offsets
    places = ends[:-1, None] + torch.arange(max_lengths[0])
    inside = (places < ends[1:, None]).reshape(*places.shape, *(1,) * (values.dim() - 1))
    return torch.where(inside, values[places.clamp(max=values.shape[0] - 1)], padding_value)


def _unpadded(dense: Tensor, offsets: Sequence[Tensor], total_L: int | None = None) -> Tensor:
    """The rows one after the other, without what filled them up."""
    if len(offsets) > 1 or total_L is None:
        return NotImplemented
    (ends,) = offsets
    places = torch.arange(total_L)
    row = torch.searchsorted(ends, places, right=True) - 1
    return dense[row, places - ends[row]]


# --- others -----------------------------------------------------------------------------------------------


def _mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The smallest of the values that occur most often, and the place of its last occurrence."""
    if not input.dim():
        return input.clone(), torch.zeros_like(input, dtype=torch.int64)
    line = input.movedim(dim, -1)
    same = line.unsqueeze(-1) == line.unsqueeze(-2)
    count = same.sum(-1)
    rank = (line.unsqueeze(-1) > line.unsqueeze(-2)).sum(-1)
    most = count == count.amax(-1, keepdim=True)
    first = torch.where(most, rank, line.shape[-1]).amin(-1, keepdim=True)
    places = torch.arange(line.shape[-1])
    place = torch.where(most & (rank == first), places, -1).amax(-1, keepdim=True)
    found, place = line.gather(-1, place).movedim(-1, dim), place.movedim(-1, dim)
    return (found, place) if keepdim else (found.squeeze(dim), place.squeeze(dim))


def _zeros_as(self: Tensor, other: Tensor, *, self_num_batch_dims: int = 0) -> Tensor:
    """Zeros for a tangent of `other`, with the batches of `self`."""
    return other.new_zeros((*self.shape[:self_num_batch_dims], *other.shape))


DIVIDED: Mapping[Any, Callable[..., Any]] = {
    aten.addbmm.default: _addbmm,
    aten._trilinear.default: _trilinear,
    aten._weight_int8pack_mm.default: _of_bytes,
    **dict.fromkeys(present("aten.cholesky.default"), _cholesky),
    aten.cholesky_inverse.default: _cholesky_inverse,
    aten.linalg_lu.default: _lu,
    aten._weight_norm_interface_backward.default: _weight_norm_backward,
    aten.rrelu_with_noise_functional.default: _rrelu,
    aten.native_dropout.default: _native_dropout,
    aten.fake_quantize_per_tensor_affine_cachemask.default: _quantized,
    aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default: _quantized_if,
    aten.fake_quantize_per_channel_affine_cachemask.default: _quantized_channels,
    aten.multinomial.default: _multinomial,
    aten.normal.Tensor_float: _normal,
    aten.normal.float_Tensor: _normal,
    aten.normal.Tensor_Tensor: _normal,
    aten.normal.float_float: _normal_of_size,
    aten._jagged_to_padded_dense_forward.default: _padded,
    aten._padded_dense_to_jagged_forward.default: _unpadded,
    aten.mode.default: _mode,
    aten._new_zeros_with_same_feature_meta.default: _zeros_as,
    **{getattr(aten.__lshift__, kind): getattr(aten.bitwise_left_shift, own)
       for kind, own in (("Scalar", "Tensor_Scalar"), ("Tensor", "Tensor"))},
    **{getattr(aten.__rshift__, kind): getattr(aten.bitwise_right_shift, own)
       for kind, own in (("Scalar", "Tensor_Scalar"), ("Tensor", "Tensor"))},
    **dict(listwise.divisions()),
}  # fmt: skip
"""What PyTorch has no decomposition of."""
