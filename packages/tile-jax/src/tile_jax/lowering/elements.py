"""Tile expressions of whole tensors, element by element: numbers that are known become literals, or are computed now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tile_ir.dtype import DType
from tile_lang.evaluate import evaluate
from tile_runtime.arguments import input_type
from tile_runtime.ops.moving import expanded
from tile_runtime.ops.text import cast, expression, listed, literal
from tile_runtime.ops.values import Array, Value, apply, dtype_of, is_known, parsed

FOLDED = 1 << 14
"""Elements up to which what is known is computed while a module is lowered."""


def compact(value: Array) -> Array:
    """One element along each axis along which all are the same one, as after broadcasting."""
    return value[tuple(slice(0, 1) if s == 0 else slice(None) for s in value.strides)]


def elementwise(template: str, *values: Value, shape: Sequence[int] | None = None) -> Value:
    """`template`, in which ``{0}``, ``{1}`` … stand for the values, broadcast to `shape` where one is given."""
    thin = [compact(v) if is_known(v) else v for v in values]
    if all(map(is_known, thin)) and sum(v.size for v in thin) <= FOLDED:
        made = _folded(template, thin)
    else:
        made = _applied(template, thin)
    return made if shape is None else expanded(made, shape)


def _folded(template: str, values: Sequence[Array]) -> Array:
    texts = [f"X{k}" for k in range(len(values))]
    function = parsed(expression(listed(texts), template.format(*texts)))
    given = dict(zip(texts, values, strict=True))
    with np.errstate(all="ignore"):
        (made,) = evaluate(function.bind({n: input_type(n, v) for n, v in given.items()}), given).values()
    return made


def _applied(template: str, values: Sequence[Value]) -> Value:
    """A Tile function of those values that have no literal: truth values, and all where none else has the dtype."""
    texts: list[str] = []
    taken: list[Value] = []
    with_dtype = {dtype_of(v) for v in values if not is_known(v) or v.size != 1}
    rank = max((len(v.shape) for v in values if not is_known(v) or v.size != 1), default=0)
    for value in values:
        dtype = dtype_of(value)
        if is_known(value) and value.size == 1 and dtype in with_dtype and dtype is not DType.BOOL:
            texts.append(literal(_number(value, dtype)))
        else:
            texts.append(f"X{len(taken)}")
            taken.append(value.reshape(()) if is_known(value) and value.size == 1 and rank else value)
    return apply(expression(listed(f"X{k}" for k in range(len(taken))), template.format(*texts)), *taken)


def _number(value: Array, dtype: DType) -> float:
    """The one number of an array; exactly, of narrow floats too."""
    one: Any = value.reshape(()).astype(np.float64 if dtype.is_float else dtype.numpy)
    return one.item()


def converted(value: Value, dtype: DType) -> Value:
    """`value` in another dtype, by the rules of Tile's casts."""
    return value if dtype_of(value) is dtype else elementwise(cast("{0}", dtype), value, shape=value.shape)


def where(test: Value, one: Value, other: Value, shape: Sequence[int] | None = None) -> Value:
    """`one` where the test holds, else `other`; of true and false that is the test, as masks are written."""
    if all(is_known(v) and v.dtype == bool and compact(v).size == 1 for v in (one, other)) and one.any() != other.any():
        return elementwise("{0}" if one.any() else "(~{0})", test, shape=shape)
    return elementwise("({0} ? {1} : {2})", test, one, other, shape=shape)


def full(number: float, dtype: DType, shape: Sequence[int] = ()) -> Array:
    """One number everywhere."""
    return np.broadcast_to(np.asarray(number, dtype.numpy), tuple(shape))


def counted(shape: Sequence[int], axis: int, dtype: DType = DType.INT32) -> Array:
    """The number of each cell along an axis, broadcast along the others."""
    row = np.arange(shape[axis]).astype(dtype.numpy)
    return np.broadcast_to(row.reshape([-1 if k == axis else 1 for k in range(len(shape))]), tuple(shape))
