"""Normalisations: by given statistics, or by those of a batch, of groups, of layers."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import torch
from tile_runtime.ops.reducing import moments
from tile_runtime.ops.text import cast, function, listed, literal, reshaped, wide
from tile_runtime.ops.values import Value, apply, dtype_of

from tile_torch.call import Call
from tile_torch.registry import operator

aten = torch.ops.aten


class Operands:
    """Tensors of a function that may be absent, each with its name, widened, in a shape that broadcasts."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self.names: list[str] = []

    def add(self, name: str, value: Value, shape: Sequence[int]) -> str:
        """The text of a value; "" where it is absent."""
        if value is None:
            return ""
        self.values.append(value)
        self.names.append(name)
        return reshaped(wide(name, dtype_of(value)), shape)


@operator(aten._native_batch_norm_legit_no_training.default)
def batch_norm(
    call: Call, x: Value, weight: Value, bias: Value, mean: Value, variance: Value, momentum: float, eps: float
) -> tuple[Value, Value, Value]:
    """By running statistics, as a scale and a shift of each channel; nothing is saved."""
    along = (x.shape[1], *(1,) * (len(x.shape) - 2))
    given = Operands()
    source = given.add("X", x, x.shape)
    center, spread = given.add("M", mean, along), given.add("V", variance, along)
    scale, shift = given.add("W", weight, along), given.add("B", bias, along)
    value = f"({source} - {center}) * ({scale or '1'} / sqrt({spread} + {literal(eps)}))" + (
        f" + {shift}" if shift else ""
    )
    made = apply(function(given.names, ("Y",), f"Y = {cast(f'({value})', call.dtype)};"), *given.values)
    mean, deviation = (np.zeros(shape, dtype.numpy) for shape, dtype in (call.type(1), call.type(2)))
    return made, mean, deviation


@operator(aten._native_batch_norm_legit.default, aten._native_batch_norm_legit.no_stats,
          aten._native_batch_norm_legit_functional.default)  # fmt: skip
def batch_norm_training(call: Call, x: Value, weight: Value, bias: Value, *rest: Any) -> tuple[Value, ...]:
    """By statistics of the batch, which are results, too; where running ones are given their successors follow."""
    *running, training, momentum, eps = rest
    functional = call.target is aten._native_batch_norm_legit_functional.default
    if not training:
        made = batch_norm(call, x, weight, bias, running[0], running[1], momentum, eps)
        return (*made, running[0], running[1]) if functional else made
    found = _of_batch(call, x, weight, bias, eps)
    return (*found[:3], *_running(call, x, running, found, momentum)) if functional else found[:3]


def _of_batch(call: Call, x: Value, weight: Value, bias: Value, eps: float) -> tuple[Value, ...]:
    """The result, the mean, 1 / deviation, and the variance of each channel."""
    shape, channels = tuple(x.shape), x.shape[1]
    along = (channels, *(1,) * (len(shape) - 2))
    given = Operands()
    source = given.add("In", x, shape)
    scale, shift = given.add("W", weight, along), given.add("B", bias, along)
    value = f"D * R{f' * {scale}' if scale else ''}{f' + {shift}' if shift else ''}"
    lines = [
        f"X = {source};",
        *moments(shape, tuple(k for k in range(len(shape)) if k != 1)),
        f"R = 1 / sqrt(V + {literal(eps)});",
        f"Y = {cast(f'({value})', call.dtype)};",
        f"Y1 = {cast(f'reshape(M, {channels})', call.type(1)[1])};",
        f"Y2 = {cast(f'reshape(R, {channels})', call.type(2)[1])};",
        f"Y3 = reshape(V, {channels});",
    ]
    return apply(function(given.names, ("Y", "Y1", "Y2", "Y3"), *lines), *given.values)


def _running(
    call: Call, x: Value, old: Sequence[Value], found: Sequence[Value], momentum: float
) -> tuple[Value, Value]:
    """Running statistics after this batch; the variance is that of a sample."""
    count = prod(x.shape) // x.shape[1]
    correction = literal(count / (count - 1) if count > 1 else 1.0)
    text = f"{literal(momentum)} * {{}} + {literal(1 - momentum)} * R"
    new = (("N", call.type(3)[1]), (f"(N * {correction})", call.type(4)[1]))
    mean, variance = (function("NR", "Y", f"Y = {cast(f'({text.format(n)})', dtype)};") for n, dtype in new)
    return apply(mean, found[1], old[0]), apply(variance, found[3], old[1])


@operator(aten.native_layer_norm.default)
def layer_norm(
    call: Call, x: Value, normalized_shape: Sequence[int], weight: Value, bias: Value, eps: float
) -> tuple[Value, ...]:
    """Over the last dimensions; the mean and 1 / deviation are results, too."""
    shape, rank = tuple(x.shape), len(x.shape)
    over = tuple(range(rank - len(normalized_shape), rank))
    given = Operands()
    source = given.add("In", x, shape)
    scale, shift = given.add("W", weight, normalized_shape), given.add("B", bias, normalized_shape)
    value = f"D * R{f' * {scale}' if scale else ''}{f' + {shift}' if shift else ''}"
    lines = [
        f"X = {source};",
        *moments(shape, over),
        f"R = 1 / sqrt(V + {literal(eps)});",
        f"Y = {cast(f'({value})', call.dtype)};",
        *_statistics(call),
    ]
    return _several(call, given, lines)


@operator(aten.native_group_norm.default)
def group_norm(
    call: Call, x: Value, weight: Value, bias: Value, N: int, C: int, HxW: int, group: int, eps: float
) -> tuple[Value, ...]:
    """Groups of channels, with a scale and shift for each channel."""
    each = C // group
    split = (N, group, each, HxW)
    given = Operands()
    source = given.add("In", x, split)
    scale, shift = given.add("W", weight, (group, each, 1)), given.add("B", bias, (group, each, 1))
    value = f"D * R{f' * {scale}' if scale else ''}{f' + {shift}' if shift else ''}"
    lines = [
        f"X = {source};",
        *moments(split, (2, 3)),
        f"R = 1 / sqrt(V + {literal(eps)});",
        f"N = {value};",
        f"Y = reshape({cast('N', call.dtype)}, {listed(call.shape)});",
        *_statistics(call),
    ]
    return _several(call, given, lines)


def _statistics(call: Call) -> list[str]:
    """Statements: mean and 1 / deviation as results."""
    pairs = zip(("Y1", "Y2"), "MR", (1, 2), strict=True)
    return [f"{out} = {reshaped(cast(value, call.type(k)[1]), call.type(k)[0])};" for out, value, k in pairs]


def _several(call: Call, given: Operands, lines: Sequence[str]) -> tuple[Value, ...]:
    if not (call.wants(1) or call.wants(2)):
        return apply(function(given.names, ("Y",), *lines[:-2]), *given.values), None, None
    return apply(function(given.names, ("Y", "Y1", "Y2"), *lines), *given.values)
