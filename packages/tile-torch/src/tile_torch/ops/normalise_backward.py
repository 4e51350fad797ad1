"""Gradients of normalisations."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any
from typing import cast as cast_to

import torch
from tile_runtime.ops.reducing import reduced
from tile_runtime.ops.text import cast, function, literal
from tile_runtime.ops.values import Value, apply

from tile_torch.call import Call
from tile_torch.ops.normalise import Operands
from tile_torch.registry import operator

aten = torch.ops.aten


@operator(aten.native_batch_norm_backward.default)
def batch_norm_backward(
    call: Call, grad_out: Value, input: Value, weight: Value, running_mean: Value, running_var: Value, save_mean: Value,
    save_invstd: Value, train: bool, eps: float, output_mask: Sequence[bool],
) -> tuple[Value | None, ...]:  # fmt: skip
    """Of the input, the scale and the shift: by the batch's statistics, which move with it, or by running ones."""
    shape, channels = tuple(input.shape), input.shape[1]
    along = (channels, *(1,) * (len(shape) - 2))
    given = Operands()
    slope, source = given.add("G", grad_out, shape), given.add("X", input, shape)
    center = given.add("M", save_mean if train else running_mean, along)
    spread = given.add("V", save_invstd if train else running_var, along)
    scale = given.add("W", weight, along)
    others = tuple(k for k in range(len(shape)) if k != 1)
    count = prod(shape) // channels
    moved = f"S - (U + D * R * R * T) / {count}" if train else "S"
    lines = [
        f"S = {slope};",
        f"R = {spread if train else f'1 / sqrt({spread} + {literal(eps)})'};",
        f"D = {source} - {center};",
        "P = S * D;",
        reduced("U", "S", shape, others),
        reduced("T", "P", shape, others),
    ]
    results = {
        0: f"({moved}) * R{f' * {scale}' if scale else ''}",
        1: f"reshape(T * R, {channels})",
        2: f"reshape(U, {channels})",
    }
    wanted = [k for k in results if output_mask[k] and call.wants(k)]
    outputs = tuple(f"Y{k}" for k in wanted)
    lines += [f"Y{k} = {cast(f'({results[k]})', call.type(k)[1])};" for k in wanted]
    made: Any = apply(function(given.names, outputs, *lines), *given.values) if wanted else ()
    several = cast_to("tuple[Value, ...]", made) if isinstance(made, tuple) else (made,)
    found: dict[int, Value] = dict(zip(wanted, several, strict=True))
    return tuple(found.get(k) for k in results)
