"""Layers: functions of parameters and inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tile_runtime import numpy as tnp
from tile_runtime import random
from tile_runtime.numpy.operands import called
from tile_runtime.ops import convolution, pooling
from tile_runtime.ops.text import function
from tile_runtime.ops.values import Value, apply
from tile_runtime.ops.windows import sliding

from tile_nn.errors import shown, wrong_number, wrong_shape

Params = Mapping[str, Any]
Sizes = int | Sequence[int]


def dense(params: Params, x: Any) -> Any:
    """``x @ weights + bias``: [..., inputs] to [..., outputs]."""
    weights = params["weights"]
    if not x.shape or x.shape[-1] != weights.shape[0]:
        raise wrong_shape(f"a dense layer of weights {shown(weights)} takes [..., {weights.shape[0]}], not {shown(x)}")
    # One product of matrices, whatever stands in front.
    flat = x.reshape(-1, weights.shape[0]) if len(x.shape) > 2 else x
    made = _biased(params, flat @ weights)
    return made.reshape(*x.shape[:-1], weights.shape[1])


def _biased(params: Params, x: Any) -> Any:
    return x + params["bias"] if "bias" in params else x


# --- images -----------------------------------------------------------------------------------------------


def conv(
    params: Params, x: Any, *, stride: Sizes = 1, padding: str | Sizes = "same", dilation: Sizes = 1, groups: int = 1
) -> Any:
    """[N, channels, *spatial] under weights [outputs, channels / groups, *kernel], as [N, outputs, *spatial].

    `padding` is ``"same"`` (places: spatial / stride, rounded up), ``"valid"``, or cells at each end of each axis.
    """
    weights = params["weights"]
    rank = len(weights.shape) - 2
    if len(x.shape) != rank + 2 or x.shape[1] != weights.shape[1] * groups:
        channels = weights.shape[1] * groups
        hint = "images are [N, channels, height, width]"
        raise wrong_shape(f"weights {shown(weights)} take {channels} channels and {rank} axes, not {shown(x)}", hint)
    window = _window(x.shape[2:], weights.shape[2:], stride, padding, dilation)
    given = (x, weights, params["bias"]) if "bias" in params else (x, weights)

    def convolved(value: Any, weights: Any, bias: Any = None) -> Any:
        return convolution.convolved(value, weights, bias, window, groups)

    return called(convolved, *given)


def max_pool(x: Any, size: Sizes, *, stride: Sizes | None = None, padding: str | Sizes = "valid") -> Any:
    """The largest of each window of [N, channels, *spatial]; windows stand beside each other without `stride`."""
    return called(pooling.max_pool, x, over=_pool(x, size, stride, padding))


def mean_pool(x: Any, size: Sizes, *, stride: Sizes | None = None, padding: str | Sizes = "valid") -> Any:
    """The mean of each window of [N, channels, *spatial], of its cells inside the image."""
    return called(pooling.average_pool, x, over=_pool(x, size, stride, padding), with_padding=False)


def _pool(x: Any, size: Sizes, stride: Sizes | None, padding: str | Sizes) -> Any:
    if len(x.shape) < 3:
        raise wrong_shape(f"a pool takes [N, channels, *spatial], not {shown(x)}")
    kernel = _each(size, len(x.shape) - 2, "size")
    return _window(x.shape[2:], kernel, kernel if stride is None else stride, padding, 1)


def _window(shape: Sequence[int], kernel: Sequence[int], stride: Sizes, padding: str | Sizes, dilation: Sizes) -> Any:
    rank = len(kernel)
    steps, apart = _each(stride, rank, "stride"), _each(dilation, rank, "dilation")
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise wrong_number(f"no padding is called {padding!r}", "there are 'same', 'valid', and numbers of cells")
        totals = [
            max(0, (-(-n // s) - 1) * s + (k - 1) * d + 1 - n) if padding == "same" else 0
            for n, k, s, d in zip(shape, kernel, steps, apart, strict=True)
        ]
        before = [total // 2 for total in totals]
        after = [total - b for total, b in zip(totals, before, strict=True)]
    else:
        before = after = list(_each(padding, rank, "padding", 0))
    found = sliding(tuple(shape), kernel, steps, apart, before, after)
    if min(found.sizes) < 1:
        raise wrong_shape(
            f"a window of {list(kernel)} does not fit into {list(shape)}", "pad the image, or make the window smaller"
        )
    return found


def _each(given: Sizes, rank: int, name: str, least: int = 1) -> tuple[int, ...]:
    found = (given,) * rank if isinstance(given, int) else tuple(given)
    if len(found) != rank or min(found) < least:
        raise wrong_number(f"{name} {given} is not one number, or {rank}, of at least {least}")
    return found


# --- normalisation ----------------------------------------------------------------------------------------


def layer_norm(params: Params, x: Any, *, epsilon: float = 1e-5) -> Any:
    """The last axis with mean 0 and variance 1, scaled and shifted."""
    _check_norm(params, x, -1)
    centred = x - x.mean(-1, keepdims=True)
    scale = (tnp.square(centred).mean(-1, keepdims=True) + epsilon) ** -0.5
    return _biased(params, centred * scale * params["scale"])


def rms_norm(params: Params, x: Any, *, epsilon: float = 1e-6) -> Any:
    """The last axis with mean square 1, scaled."""
    _check_norm(params, x, -1)
    return _biased(params, x * (tnp.square(x).mean(-1, keepdims=True) + epsilon) ** -0.5 * params["scale"])


def group_norm(params: Params, x: Any, groups: int, *, epsilon: float = 1e-5) -> Any:
    """[N, channels, *spatial] with mean 0 and variance 1 in each group of channels, scaled and shifted by channel."""
    _check_norm(params, x, 1)
    count, channels = x.shape[:2]
    if channels % groups:
        raise wrong_number(f"{groups} groups do not divide {channels} channels")
    parts = x.reshape(count, groups, -1)
    centred = parts - parts.mean(-1, keepdims=True)
    made = centred * (tnp.square(centred).mean(-1, keepdims=True) + epsilon) ** -0.5
    return _by_channel(params, made.reshape(*x.shape))


def batch_norm(
    params: Params, statistics: Params, x: Any, *, training: bool, momentum: float = 0.9, epsilon: float = 1e-5
) -> tuple[Any, Params]:
    """[N, channels, ...] with mean 0 and variance 1 in each channel, scaled and shifted; and the next statistics.

    With `training` by the batch's own mean and variance, which enter the running ones; otherwise by those.
    """
    _check_norm(params, x, 1)
    axes = (0, *range(2, len(x.shape)))
    mean, variance = (x.mean(axes), x.var(axes)) if training else (statistics["mean"], statistics["variance"])
    shape = (1, -1, *(1,) * (len(x.shape) - 2))
    made = (x - mean.reshape(*shape)) * (variance.reshape(*shape) + epsilon) ** -0.5
    if training:
        count = math.prod(x.shape) // x.shape[1]
        unbiased = variance * (count / max(count - 1, 1))
        fresh = {"mean": mean, "variance": unbiased}
        statistics = {name: momentum * statistics[name] + (1 - momentum) * fresh[name] for name in fresh}
    return _by_channel(params, made), statistics


def _by_channel(params: Params, x: Any) -> Any:
    shape = (1, -1, *(1,) * (len(x.shape) - 2))
    return _biased({k: v.reshape(*shape) for k, v in params.items()}, x * params["scale"].reshape(*shape))


def _check_norm(params: Params, x: Any, axis: int) -> None:
    size = params["scale"].shape[0]
    if len(x.shape) < abs(axis) + (axis > 0) or x.shape[axis] != size:
        raise wrong_shape(f"a norm of {size} has no axis {axis} of that size in {shown(x)}")


# --- tokens and attention ---------------------------------------------------------------------------------


def embedding(params: Params, tokens: Any) -> Any:
    """Rows of the table [count, size] by integers [...], as [..., size]; those outside are clamped."""
    if tnp.isdtype(tnp.result_type(tokens), "real floating"):
        raise wrong_shape(f"an embedding takes integers, not {shown(tokens)}")
    return tnp.take(params["table"], tokens, axis=0)


def dropout(key: Any, x: Any, rate: float) -> Any:
    """`x` with each element 0 with probability `rate`, and the others larger to match; `x` itself where `key` is None."""
    if not 0 <= rate < 1:
        raise wrong_number(f"the rate of a dropout is {rate}", "it is a share from 0 to before 1")
    if key is None or rate == 0:
        return x
    return tnp.where(random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0.0)


def attention(queries: Any, keys: Any, values: Any, *, causal: bool = False, mask: Any = None) -> Any:
    """``softmax(queries · keys / √size) · values``, of [..., length, size].

    `causal`: a place sees none behind it. `mask`, which broadcasts to [..., length, length], is true where one may look.
    """
    if queries.shape[-1] != keys.shape[-1] or keys.shape[-2] != values.shape[-2]:
        raise wrong_shape(f"attention of {shown(queries)}, {shown(keys)} and {shown(values)} does not fit")
    scores = queries @ keys.mT * queries.shape[-1] ** -0.5
    if causal:
        scores = called(_past, scores)
    if mask is not None:
        scores = tnp.where(mask, scores, -math.inf)
    return tnp.softmax(scores) @ values


def _past(scores: Value) -> Value:
    """Minus infinity behind each row's place: told from indexes, it takes no memory, and what it leaves out need not be computed."""
    rank, (rows, columns) = len(scores.shape), scores.shape[-2:]
    seen = f"index(X, {rank - 1}) <= index(X, {rank - 2}) + {columns - rows}"
    return apply(function(["X"], ["Y"], f"Y = {seen} ? X : -inf;"), scores)


def self_attention(params: Params, x: Any, heads: int, *, causal: bool = False, mask: Any = None) -> Any:
    """Attention of [N, length, size] to itself, by `heads` that share the size."""
    if len(x.shape) != 3 or x.shape[2] % heads:
        raise wrong_shape(f"{heads} heads take [N, length, a multiple of {heads}], not {shown(x)}")
    count, length, size = x.shape
    parts = dense(params["in"], x).reshape(count, length, 3, heads, size // heads)
    queries, keys, values = (parts[:, :, k].transpose(0, 2, 1, 3) for k in range(3))
    made = attention(queries, keys, values, causal=causal, mask=mask)
    return dense(params["out"], made.transpose(0, 2, 1, 3).reshape(count, length, size))
