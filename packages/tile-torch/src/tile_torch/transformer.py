"""PyTorch's fused inference kernels of transformers, as the operators that they stand for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

aten = torch.ops.aten


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Tensor, Tensor]:
    """``aten._native_multi_head_attention``: [B, T, D] and, where wanted, the weights; true cells of the mask are left out."""
    every = zip((query, key, value), qkv_weight.chunk(3), qkv_bias.chunk(3), strict=True)
    q, k, v = (_heads(F.linear(x, w, b), num_head) for x, w, b in every)
    scores = (q * (embed_dim // num_head) ** -0.5) @ k.transpose(-2, -1)
    if mask is not None:
        scores = scores.masked_fill(_masked(mask, mask_type), float("-inf"))
    weights = scores.softmax(-1)
    mixed = (weights @ v).transpose(1, 2).flatten(2)
    if not need_weights:
        return F.linear(mixed, proj_weight, proj_bias), query.new_empty(0)
    return F.linear(mixed, proj_weight, proj_bias), weights.mean(1) if average_attn_weights else weights


def _heads(x: Tensor, count: int) -> Tensor:
    return x.view(*x.shape[:-1], count, -1).transpose(1, 2)


def _masked(mask: Tensor, mask_type: int | None) -> Tensor:
    """Type 0 is of [T, T], 1 of [B, T] keys, 2 of [B, heads, T, T]; what is not zero is masked."""
    return mask.to(torch.bool)[:, None, None, :] if mask_type == 1 else mask.to(torch.bool)


def encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    """``aten._transformer_encoder_layer_fwd``: attention and two linear layers, each with a residual and a norm."""

    def mixed(x: Tensor) -> Tensor:
        weights = qkv_weight, qkv_bias, proj_weight, proj_bias
        return attention(x, x, x, embed_dim, num_heads, *weights, mask, False, False, mask_type)[0]

    def fed(x: Tensor) -> Tensor:
        inner = F.linear(x, ffn_weight_1, ffn_bias_1)
        return F.linear(F.gelu(inner) if use_gelu else F.relu(inner), ffn_weight_2, ffn_bias_2)

    def normed(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.layer_norm(x, (embed_dim,), weight, bias, eps)

    if norm_first:
        x = src + mixed(normed(src, norm_weight_1, norm_bias_1))
        return x + fed(normed(x, norm_weight_2, norm_bias_2))
    x = normed(src + mixed(src), norm_weight_1, norm_bias_1)
    return normed(x + fed(x), norm_weight_2, norm_bias_2)


DIVIDED: Mapping[Any, Callable[..., Any]] = {
    aten._native_multi_head_attention.default: attention,
    aten._transformer_encoder_layer_fwd.default: encoder_layer,
}
