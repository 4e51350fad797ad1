"""Where elements stand, and in which order."""

from __future__ import annotations

from functools import partial

from tile_ir.dtype import DType

from tile_runtime.numpy.manipulation import reshape
from tile_runtime.numpy.operands import Operand, Result, axis_of, called, integer_of, shape_of
from tile_runtime.ops import gather
from tile_runtime.ops.text import expression, function
from tile_runtime.ops.values import Value, apply


def _place(name: str, x: Operand, axis: int | None, keepdims: bool) -> Result:
    flat = reshape(x, -1) if axis is None else x
    place = axis_of(len(flat.shape), axis or 0)
    if not flat.shape[place]:
        raise ValueError(f"the {name} of no elements")
    found = called(partial(apply, expression("X", f"{name}(X, {place})")), flat)
    kept = [1 if axis is None or k == place else n for k, n in enumerate(shape_of(x))]
    return reshape(found, kept) if keepdims else found


def argmax(x: Operand, /, axis: int | None = None, *, keepdims: bool = False) -> Result:
    """The place (int32) of the first of the largest; NaN counts as largest. Without an axis, in C order of all."""
    return _place("argmax", x, axis, keepdims)


def argmin(x: Operand, /, axis: int | None = None, *, keepdims: bool = False) -> Result:
    """The place (int32) of the first of the smallest; NaN counts as smallest. Without an axis, in C order of all."""
    return _place("argmin", x, axis, keepdims)


def _sorted(name: str, x: Operand, axis: int, descending: bool) -> Result:
    place = axis_of(len(shape_of(x)), axis)
    return called(partial(apply, expression("X", f"{name}(X, {place}, {int(descending)})")), x)


def sort(x: Operand, /, axis: int = -1, *, descending: bool = False, stable: bool = True) -> Result:
    """In order; equal elements keep theirs."""
    return _sorted("sort", x, axis, descending)


def argsort(x: Operand, /, axis: int = -1, *, descending: bool = False, stable: bool = True) -> Result:
    """The places (int32) that put the elements in order; equal elements keep theirs."""
    return _sorted("argsort", x, axis, descending)


def top_k(x: Operand, k: int, /, axis: int = -1, *, largest: bool = True) -> tuple[Result, Result]:
    """The `k` largest (or smallest) elements, and their places (int32)."""
    place, k = axis_of(len(shape_of(x)), axis), integer_of("k", k)
    if largest:
        statements = (f"P = top_k(X, {k}, {place});", "V = element(P, 0);", "I = element(P, 1);")
        return called(partial(apply, function("X", ("V", "I"), *statements)), x)
    places = argsort(x, axis=axis)
    first = (slice(None),) * place + (slice(0, k),)
    return take_along_axis(x, places[first], axis=axis), places[first]


def searchsorted(x1: Operand, x2: Operand, /, side: str = "left") -> Result:
    """How many elements of the sorted vector `x1` come before each of `x2`; with ``right``, or are equal to it."""
    text = expression("S, V", f"searchsorted(S, V{', 1' if side == 'right' else ''})")
    return called(partial(apply, text), x1, x2)


def isin(x1: Operand, x2: Operand, /, *, invert: bool = False) -> Result:
    """Which elements of `x1` are among those of `x2`: by sorting, so that NaN is never found."""
    from tile_runtime.numpy.creation import full
    from tile_runtime.numpy.dtypes import astype, result_type
    from tile_runtime.numpy.elementwise import equal, logical_not, minimum

    dtype = result_type(x1, x2)
    known = sort(reshape(astype(x2, dtype), -1))
    if not known.shape[0]:
        return full(shape_of(x1), invert, dtype=DType.BOOL)
    x1 = astype(x1, dtype)
    places = minimum(searchsorted(known, reshape(x1, -1)), known.shape[0] - 1)
    found = equal(reshape(take(known, places), shape_of(x1)), x1)
    return logical_not(found) if invert else found


def take(x: Operand, indices: Operand, /, axis: int | None = None) -> Result:
    """Parts by number along an axis; negative numbers count from the end."""
    flat = reshape(x, -1) if axis is None else x
    place = axis_of(len(flat.shape), axis or 0)
    return called(_looked_up, flat, indices, axis=place)


def _looked_up(value: Value, indices: Value, axis: int) -> Value:
    return gather.chosen(value, gather.wrapped(indices, value.shape[axis]), axis)


def take_along_axis(x: Operand, indices: Operand, /, axis: int = -1) -> Result:
    """Elements by number along an axis, a number for each."""
    place = axis_of(len(shape_of(x)), axis)
    return called(_looked_up_along, x, indices, axis=place)


def _looked_up_along(value: Value, indices: Value, axis: int) -> Value:
    return gather.taken_along(value, gather.wrapped(indices, value.shape[axis]), axis)
