"""Initial parameters of layers: dicts of Tensors, from a key and sizes, on the key's device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tile_runtime import Tensor, random
from tile_runtime import numpy as tnp

from tile_nn.errors import wrong_number

Params = dict[str, Any]

GAINS = {"glorot": 1.0, "he": 2.0, "lecun": 1.0}


def weights(
    key: Any, shape: Sequence[int], inputs: int, outputs: int, scale: str | float = "glorot", dtype: Any = "float32"
) -> Any:
    """Normal numbers of `shape` for a layer in which each output adds up `inputs`, and each input enters `outputs`.

    `scale` is their standard deviation, or ``"glorot"`` (variance 2 / (inputs + outputs)), ``"he"`` (2 / inputs, before
    relu) or ``"lecun"`` (1 / inputs).
    """
    if isinstance(scale, str):
        if scale not in GAINS:
            raise wrong_number(f"no scale of weights is called {scale!r}", f"there are {', '.join(GAINS)}, and numbers")
        count = (inputs + outputs) / 2 if scale == "glorot" else inputs
        scale = math.sqrt(GAINS[scale] / max(count, 1))
    return (random.normal(key, shape, "float32") * float(scale)).astype(dtype)


def dense(
    key: Any, inputs: int, outputs: int, *, bias: bool = True, scale: str | float = "glorot", dtype: Any = "float32"
) -> Params:
    """For `tile_nn.dense`: weights [inputs, outputs], and a bias [outputs] of zeros."""
    made = {"weights": weights(key, (inputs, outputs), inputs, outputs, scale, dtype)}
    return {**made, "bias": _filled(key, 0, outputs, dtype)} if bias else made


def conv(
    key: Any, inputs: int, outputs: int, kernel: int | Sequence[int], *, groups: int = 1, bias: bool = True,
    scale: str | float = "he", dtype: Any = "float32",
) -> Params:  # fmt: skip
    """For `tile_nn.conv`: weights [outputs, inputs / groups, *kernel], and a bias [outputs]; one number is a square kernel."""
    cells = (kernel, kernel) if isinstance(kernel, int) else tuple(kernel)
    if inputs % groups or outputs % groups:
        raise wrong_number(f"{groups} groups do not divide {inputs} inputs and {outputs} outputs")
    area = math.prod(cells)
    shape = (outputs, inputs // groups, *cells)
    made = {"weights": weights(key, shape, inputs // groups * area, outputs // groups * area, scale, dtype)}
    return {**made, "bias": _filled(key, 0, outputs, dtype)} if bias else made


def embedding(key: Any, count: int, size: int, *, scale: float = 1.0, dtype: Any = "float32") -> Params:
    """For `tile_nn.embedding`: a table [count, size]."""
    return {"table": weights(key, (count, size), count, size, scale, dtype)}


def _filled(key: Any, value: float, size: int, dtype: Any) -> Any:
    """Where the key is."""
    return tnp.full(size, value, dtype=dtype, device=key.device if isinstance(key, Tensor) else None)


def norm(size: int, *, bias: bool = True, dtype: Any = "float32", device: Any = None) -> Params:
    """For `layer_norm`, `rms_norm` (bias=False), `group_norm` and `batch_norm`: a scale of ones, and a bias of zeros."""
    made = {"scale": tnp.ones(size, dtype=dtype, device=device)}
    return {**made, "bias": tnp.zeros(size, dtype=dtype, device=device)} if bias else made


def batch_statistics(size: int, *, device: Any = None) -> Params:
    """The running mean and variance of `tile_nn.batch_norm`."""
    return {"mean": tnp.zeros(size, device=device), "variance": tnp.ones(size, device=device)}


def self_attention(key: Any, size: int, *, bias: bool = True, dtype: Any = "float32") -> Params:
    """For `tile_nn.self_attention`: one product for queries, keys and values, and one for the result."""
    first, second = random.split(key)
    options: dict[str, Any] = {"bias": bias, "dtype": dtype}
    return {"in": dense(first, size, 3 * size, **options), "out": dense(second, size, size, **options)}
