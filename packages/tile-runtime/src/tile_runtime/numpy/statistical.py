"""Aggregations over axes, and running ones."""

from __future__ import annotations

from functools import partial

import numpy.typing as npt
from tile_ir.dtype import DType

from tile_runtime.arrays import dtype_of
from tile_runtime.numpy.dtypes import astype
from tile_runtime.numpy.operands import Axes, Operand, Result, axes_of, axis_of, called, numbers_of, shape_of
from tile_runtime.ops import reducing
from tile_runtime.ops import softmax as shares
from tile_runtime.ops.text import expression
from tile_runtime.ops.values import apply

Dtype = npt.DTypeLike | DType | None


def _aggregated(name: str, x: Operand, axis: Axes, keepdims: bool, dtype: Dtype = None) -> Result:
    x = x if dtype is None else astype(x, dtype)
    return called(partial(reducing.aggregated, name), x, axes=axes_of(len(shape_of(x)), axis), keep=keepdims)


def sum(x: Operand, /, axis: Axes = None, dtype: Dtype = None, *, keepdims: bool = False) -> Result:
    """The sum; integers below 32 bits add as 32 bits."""
    return _aggregated("sum", x, axis, keepdims, dtype)


def prod(x: Operand, /, axis: Axes = None, dtype: Dtype = None, *, keepdims: bool = False) -> Result:
    """The product; integers below 32 bits multiply as 32 bits."""
    return _aggregated("prod", x, axis, keepdims, dtype)


def max(x: Operand, /, axis: Axes = None, *, keepdims: bool = False) -> Result:
    """The largest; NaN where there is one. ValueError of no elements."""
    return _aggregated("max", x, axis, keepdims)


def min(x: Operand, /, axis: Axes = None, *, keepdims: bool = False) -> Result:
    """The smallest; NaN where there is one. ValueError of no elements."""
    return _aggregated("min", x, axis, keepdims)


def any(x: Operand, /, axis: Axes = None, *, keepdims: bool = False) -> Result:
    """Whether one is not zero."""
    return _aggregated("any", x, axis, keepdims)


def all(x: Operand, /, axis: Axes = None, *, keepdims: bool = False) -> Result:
    """Whether none is zero."""
    return _aggregated("all", x, axis, keepdims)


def count_nonzero(x: Operand, /, axis: Axes = None, *, keepdims: bool = False) -> Result:
    """How many are not zero, NaN included (int32)."""
    from tile_runtime.numpy.elementwise import not_equal

    return sum(astype(not_equal(x, 0), DType.INT32), axis=axis, keepdims=keepdims)


def mean(x: Operand, /, axis: Axes = None, *, keepdims: bool = False) -> Result:
    """The mean; of integers in float32."""
    return called(reducing.averaged, x, axes=axes_of(len(shape_of(x)), axis), keep=keepdims)


def var(
    x: Operand, /, axis: Axes = None, *, correction: float = 0.0, keepdims: bool = False, ddof: float = 0.0
) -> Result:
    """The variance, divided by the count less `correction`, which NumPy calls `ddof`."""
    less = float(numbers_of("correction", correction or ddof))
    return called(reducing.spread, x, axes=axes_of(len(shape_of(x)), axis), correction=less, keep=keepdims)


def std(
    x: Operand, /, axis: Axes = None, *, correction: float = 0.0, keepdims: bool = False, ddof: float = 0.0
) -> Result:
    """The standard deviation: the root of the variance."""
    from tile_runtime.numpy.elementwise import sqrt

    return sqrt(var(x, axis=axis, correction=correction, keepdims=keepdims, ddof=ddof))


def softmax(x: Operand, /, axis: Axes = -1) -> Result:
    """Exponentials as shares of their sum over `axis`."""
    return called(shares.softmax, x, axes=axes_of(len(shape_of(x)), axis))


def log_softmax(x: Operand, /, axis: Axes = -1) -> Result:
    """The logarithms of `softmax`, also of shares that are too small for their dtype."""
    return called(shares.softmax, x, axes=axes_of(len(shape_of(x)), axis), logarithm=True)


def running(name: str, x: Operand, axis: int) -> Result:
    """What Tile's function of this name has found so far, along an axis."""
    return called(partial(apply, expression("X", f"{name}(X, {axis_of(len(shape_of(x)), axis)})")), x)


def cumulative_sum(
    x: Operand, /, axis: int | None = None, dtype: Dtype = None, *, include_initial: bool = False
) -> Result:
    """Running sums, in linear time; `axis` may be left out of a vector. With the 0 in front where that is wanted.

    Integers below 32 bits add as 32 bits.
    """
    found = running("cumsum", _widened(x, dtype), _only(x, axis))
    return _begun(found, 0, axis or 0) if include_initial else found


def cumulative_prod(
    x: Operand, /, axis: int | None = None, dtype: Dtype = None, *, include_initial: bool = False
) -> Result:
    """Running products, in linear time; `axis` may be left out of a vector. With the 1 in front where that is wanted.

    Integers below 32 bits multiply as 32 bits.
    """
    found = running("cumprod", _widened(x, dtype), _only(x, axis))
    return _begun(found, 1, axis or 0) if include_initial else found


def _widened(x: Operand, dtype: Dtype) -> Operand:
    """In `dtype`, or in what sums are."""
    shape_of(x)
    given = dtype_of(x.dtype)
    wanted = reducing.summed(given) if dtype is None else dtype_of(dtype)
    return x if given is wanted else astype(x, wanted)


def _begun(found: Result, first: int, axis: int) -> Result:
    """With a number in front along an axis."""
    from tile_runtime.numpy.creation import full
    from tile_runtime.numpy.manipulation import concat

    shape = list(found.shape)
    shape[axis_of(len(shape), axis)] = 1
    return concat([full(shape, first, dtype=found.dtype), found], axis=axis)


def _only(x: Operand, axis: int | None) -> int:
    if axis is None and len(shape_of(x)) != 1:
        raise ValueError(f"name the axis: the tensor has {len(shape_of(x))}")
    return axis_of(len(shape_of(x)), axis or 0)
