"""Aggregations over axes."""

from __future__ import annotations

from math import prod

from tile_ir.dtype import DType

from tile_runtime.ops.text import Shape, at, at_axes, cast, contraction, function, names, wide, without
from tile_runtime.ops.values import Value, apply, dtype_of


def reduced(target: str, source: str, shape: Shape, axes: Shape, aggregation: str = "+", keep: bool = True) -> str:
    """A statement: `source` aggregated over `axes`, which stay with size 1 (`keep`) or go."""
    if not axes:
        return f"{target} = {source};"
    indexes = names(len(shape))
    subscripts = at_axes(indexes, axes) if keep else without(indexes, axes)
    sizes = reduced_shape(shape, axes, keep)
    return contraction(target, sizes, subscripts, aggregation, at(source, indexes))


def reduced_shape(shape: Shape, axes: Shape, keep: bool) -> Shape:
    """`shape` without `axes`, or with ones in their place."""
    return tuple(1 if k in axes else size for k, size in enumerate(shape) if keep or k not in axes)


_AGGREGATIONS = {"sum": "+", "prod": "*", "max": ">", "min": "<", "any": ">", "all": "<"}
_IDENTITIES = {"prod": 1, "all": 1}
"""What nothing gives, if not 0."""


def aggregated(name: str, value: Value, axes: Shape, keep: bool = False) -> Value:
    """NumPy's sum, prod, max, min, any or all over `axes`, which count from the front and stay with size 1 (`keep`) or go.

    Integers narrower than 32 bits, and truth values, are added and multiplied as 32 bits; narrow floats in float32. ValueError for the largest of nothing.
    """
    shape, given = tuple(value.shape), dtype_of(value)
    if name in ("max", "min") and not prod(shape[a] for a in axes):
        raise ValueError(f"the {name} of no elements")
    dtype = summed(given) if name in ("sum", "prod") else DType.BOOL if name in ("any", "all") else given
    statements = [f"A = {_computing(given, dtype)};", reduced("R", "A", shape, axes, _AGGREGATIONS[name], keep)]
    # Cells that nothing is aggregated into hold 0.
    found = "R" if prod(shape[a] for a in axes) else f"(R + {_IDENTITIES.get(name, 0)})"
    return apply(function("X", "Y", *statements, f"Y = {cast(found, dtype)};"), value)


def averaged(value: Value, axes: Shape, keep: bool = False) -> Value:
    """The mean over `axes`; of integers in float32."""
    shape, given = tuple(value.shape), dtype_of(value)
    dtype = given if given.is_float else DType.FLOAT32
    statements = [f"A = {_computing(given, dtype)};", reduced("R", "A", shape, axes, "+", keep)]
    count = float(prod(shape[a] for a in axes))
    return apply(function("X", "Y", *statements, f"Y = {cast(f'(R / {count!r})', dtype)};"), value)


def spread(value: Value, axes: Shape, correction: float = 0.0, keep: bool = False) -> Value:
    """The variance over `axes`, divided by their count less `correction`; of integers in float32."""
    shape, given = tuple(value.shape), dtype_of(value)
    dtype = given if given.is_float else DType.FLOAT32
    count = float(prod(shape[a] for a in axes))
    statements = [
        f"A = {_computing(given, dtype)};",
        reduced("S", "A", shape, axes),
        f"D = A - S / {count!r};",
        "Q = D * D;",
        reduced("R", "Q", shape, axes, "+", keep),
    ]
    return apply(
        function("X", "Y", *statements, f"Y = {cast(f'(R / {max(count - correction, 0.0)!r})', dtype)};"), value
    )


def summed(dtype: DType) -> DType:
    """What sums and products of a dtype are: integers below 32 bits have 32."""
    if dtype.is_float or dtype.bits >= 32:
        return dtype
    return DType.UINT32 if dtype.is_integer and not dtype.is_signed else DType.INT32


def _computing(given: DType, dtype: DType) -> str:
    """X in what is computed in: `dtype`, or float32 where that is a narrower float."""
    return wide("X", dtype) if given is dtype else cast("X", dtype)


def moments(shape: Shape, axes: Shape) -> list[str]:
    """Statements: the mean ``M`` of ``X`` over `axes`, which stay, what ``X`` is off it (``D``), the variance ``V``."""
    count = prod(shape[axis] for axis in axes)
    return [
        reduced("T", "X", shape, axes),
        f"M = T / {count};",
        "D = X - M;",
        "Q = D * D;",
        reduced("U", "Q", shape, axes),
        f"V = U / {count};",
    ]
