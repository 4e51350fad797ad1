"""Gradients of operators, derived from what they compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tile_runtime.compose import compose
from tile_runtime.ops.values import Value, dtype_of
from tile_runtime.symbols import Symbol
from tile_runtime.symbols import apply as apply_function
from tile_runtime.transforms.derivatives import vjp


def gradients(
    forward: Callable[..., Value], values: Sequence[Value], wanted: Sequence[bool], cotangent: Value
) -> tuple[Value | None, ...]:
    """For each of `values` that is wanted its gradient, where `cotangent` is that of ``forward(*values)``."""
    inputs = [Symbol(tuple(v.shape), dtype_of(v), f"X{k}") for k, v in enumerate(values)]
    function = compose(inputs, [forward(*inputs)])
    names = [f"X{k}" for k, want in enumerate(wanted) if want]
    arguments: dict[str, Any] = {f"X{k}": v for k, v in enumerate(values)}
    made = apply_function(vjp(function, names), {**arguments, f"d_{function.outputs[0]}": cotangent})
    found = iter(made if isinstance(made, tuple) else (made,))
    return tuple(next(found) if want else None for want in wanted)
