"""NumPy's functions of samples and signals beyond the array API: counts, quantiles, differences, filters."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from tile_ir.dtype import DType

from tile_runtime.arrays import dtype_of
from tile_runtime.numpy.creation import full, full_like
from tile_runtime.numpy.dtypes import astype, result_type
from tile_runtime.numpy.elementwise import (
    abs,
    add,
    clip,
    divide,
    equal,
    exp,
    greater,
    isfinite,
    isinf,
    isnan,
    less,
    less_equal,
    log,
    logical_and,
    logical_not,
    logical_or,
    multiply,
    sqrt,
    subtract,
    where,
)
from tile_runtime.numpy.linear import matmul
from tile_runtime.numpy.manipulation import broadcast_to, concat, diff, expand_dims, flip, indexed, moveaxis, reshape
from tile_runtime.numpy.operands import (
    Axes,
    Operand,
    Result,
    axes_of,
    axis_of,
    called,
    count_of,
    integer_of,
    made,
    numbers_of,
    shape_of,
)
from tile_runtime.numpy.searching import searchsorted, sort, take
from tile_runtime.numpy.shaping import atleast_2d, diag, ravel
from tile_runtime.numpy.statistical import all, cumulative_prod, cumulative_sum, max, mean, min, running, sum
from tile_runtime.ops import reducing
from tile_runtime.ops.text import function
from tile_runtime.ops.values import apply
from tile_runtime.tensor import Tensor

# --- running ------------------------------------------------------------------------------------------


def cumsum(x: Operand, /, axis: int | None = None) -> Result:
    """Running sums along an axis, or of all elements in C order."""
    return cumulative_sum(ravel(x) if axis is None else x, axis or 0)


def cumprod(x: Operand, /, axis: int | None = None) -> Result:
    """Running products along an axis, or of all elements in C order."""
    return cumulative_prod(ravel(x) if axis is None else x, axis or 0)


def cummax(x: Operand, /, axis: int = 0) -> Result:
    """The largest so far along an axis: NumPy's ``maximum.accumulate``."""
    return running("cummax", x, axis)


def cummin(x: Operand, /, axis: int = 0) -> Result:
    """The smallest so far along an axis: NumPy's ``minimum.accumulate``."""
    return running("cummin", x, axis)


# --- over axes ----------------------------------------------------------------------------------------


def ptp(x: Operand, /, axis: Axes = None, *, keepdims: bool = False) -> Result:
    """From the smallest to the largest."""
    return subtract(max(x, axis, keepdims=keepdims), min(x, axis, keepdims=keepdims))


def average(
    x: Operand, /, axis: int | None = None, weights: Operand | None = None, *, keepdims: bool = False
) -> Result:
    """The mean, of elements that count as much as their weights; these have the shape of `x`, or one for each part of `axis`."""
    if weights is None:
        return mean(x, axis, keepdims=keepdims)
    if axis is not None and len(shape_of(weights)) == 1:
        place = axis_of(len(shape_of(x)), axis)
        weights = reshape(weights, (-1, *(1,) * (len(shape_of(x)) - 1 - place)))
    parts = (multiply(x, weights), broadcast_to(weights, shape_of(x)))
    return divide(*(sum(part, axis, keepdims=keepdims) for part in parts))


def logsumexp(x: Operand, /, axis: Axes = None, *, keepdims: bool = False) -> Result:
    """``log(sum(exp(x)))``, also where exponentials are too large or too small for their dtype."""
    places = axes_of(len(shape_of(x)), axis)
    top = max(x, places, keepdims=True)
    top = where(isfinite(top), top, 0)
    found = add(log(sum(exp(subtract(x, top)), places, keepdims=True)), top)
    return found if keepdims else reshape(found, [n for k, n in enumerate(shape_of(x)) if k not in places])


def nansum(x: Operand, /, axis: Axes = None, *, keepdims: bool = False) -> Result:
    """The sum without NaNs."""
    return sum(where(isnan(x), 0, x), axis, keepdims=keepdims)


def nanmean(x: Operand, /, axis: Axes = None, *, keepdims: bool = False) -> Result:
    """The mean without NaNs; NaN where there is nothing else."""
    count = sum(astype(logical_not(isnan(x)), x.dtype), axis, keepdims=keepdims)
    return divide(nansum(x, axis, keepdims=keepdims), count)


def nanmax(x: Operand, /, axis: Axes = None, *, keepdims: bool = False) -> Result:
    """The largest without NaNs; NaN where there is nothing else."""
    return _without_nan(max, -np.inf, x, axis, keepdims)


def nanmin(x: Operand, /, axis: Axes = None, *, keepdims: bool = False) -> Result:
    """The smallest without NaNs; NaN where there is nothing else."""
    return _without_nan(min, np.inf, x, axis, keepdims)


def _without_nan(aggregated: Any, empty: float, x: Operand, axis: Axes, keepdims: bool) -> Result:
    shape_of(x)
    if not dtype_of(x.dtype).is_float:
        return aggregated(x, axis, keepdims=keepdims)
    found = aggregated(where(isnan(x), empty, x), axis, keepdims=keepdims)
    return where(all(isnan(x), axis, keepdims=keepdims), np.nan, found)


Places = npt.NDArray[np.float64]
_PLOTTED = {
    "linear": (1.0, 1.0), "interpolated_inverted_cdf": (0.0, 1.0), "hazen": (0.5, 0.5), "weibull": (0.0, 0.0),
    "median_unbiased": (1 / 3, 1 / 3), "normal_unbiased": (3 / 8, 3 / 8),
}  # fmt: skip
"""Where the first and the last of the elements lie among the shares, as Hyndman and Fan call it, by method."""
_WHOLE: dict[str, Callable[[Places], Places]] = {
    "lower": np.floor, "higher": np.ceil, "nearest": np.rint, "midpoint": lambda way: (np.floor(way) + np.ceil(way)) / 2,
}  # fmt: skip
"""Methods that take one element, or the middle of two, of what lies linearly between them."""


def _ways(shares: npt.NDArray[Any], count: int, method: str) -> Places:
    """How many elements in order lie before a share of them, with a part of one; ValueError for an unknown method."""
    if method not in _PLOTTED and method not in _WHOLE:
        raise ValueError(f"there is no method {method!r} of quantiles: {', '.join((*_PLOTTED, *_WHOLE))}")
    first, last = _PLOTTED.get(method, _PLOTTED["linear"])
    way = shares.astype(np.float64) * (count + 1 - first - last) + first - 1
    return np.clip(_WHOLE[method](way) if method in _WHOLE else way, 0, count - 1)


def quantile(
    x: Operand,
    q: float | Sequence[float],
    /,
    axis: int | None = None,
    *,
    keepdims: bool = False,
    method: str = "linear",
) -> Result:
    """Between which elements in order a share `q` of the way lies; NaN where there is one. Shares come first.

    `method` is one of NumPy's, but for those that step: ValueError for these.
    """
    shares = numbers_of("q", q)
    if not np.all((shares >= 0) & (shares <= 1)):
        raise ValueError("shares are from 0 to 1, percentiles from 0 to 100")
    flat = ravel(x) if axis is None else x
    place = axis_of(len(flat.shape), axis or 0)
    ordered = sort(moveaxis(flat, place, 0), 0)
    way = _ways(shares, ordered.shape[0], method)
    found = _between(astype(ordered, ordered.dtype if ordered.dtype.is_float else DType.FLOAT32), way)
    kept = [1 if axis is None or k == place else n for k, n in enumerate(shape_of(x))]
    return reshape(found, (*way.shape, *kept)) if keepdims else found


def _between(ordered: Result, way: Places) -> Result:
    """What lies so many elements behind the first, linearly; the last of them, if any, are NaN."""
    low = np.floor(way).astype(np.int32)
    share = (way - low).reshape((*way.shape, *(1,) * (len(ordered.shape) - 1)))
    below, above = (take(ordered, np.minimum(low + k, ordered.shape[0] - 1), 0) for k in (0, 1))
    part = share.astype(ordered.dtype.numpy)
    between = add(multiply(below, 1 - part), multiply(above, part))
    found = where(equal(part, 0), below, between)
    return where(isnan(indexed(ordered, -1)), np.nan, found)


def percentile(
    x: Operand,
    q: float | Sequence[float],
    /,
    axis: int | None = None,
    *,
    keepdims: bool = False,
    method: str = "linear",
) -> Result:
    """`quantile` of hundredths."""
    return quantile(x, numbers_of("q", q) / 100, axis, keepdims=keepdims, method=method)  # type: ignore[arg-type]


def median(x: Operand, /, axis: int | None = None, *, keepdims: bool = False) -> Result:
    """The middle element in order, or the mean of the two in the middle."""
    return quantile(x, 0.5, axis, keepdims=keepdims)


def cov(
    x: Operand, y: Operand | None = None, /, rowvar: bool = True, bias: bool = False, ddof: int | None = None
) -> Result:
    """How rows (columns where `rowvar` is false) vary together, those of `y` behind those of `x`.

    Divided by the count of observations less `ddof`, which is 1 where nothing is said, and 0 with `bias`; NaN or infinite
    where no more are left.
    """
    rows = concat([_variables(v, rowvar) for v in (x, y) if v is not None])
    apart = subtract(rows, mean(rows, 1, keepdims=True))
    free = rows.shape[1] - (int(not bias) if ddof is None else ddof)
    found = divide(matmul(apart, apart.T), builtins.max(free, 0))
    return reshape(found, ()) if rows.shape[0] == 1 else found


def _variables(x: Operand, rowvar: bool) -> Result:
    """Observations of a variable in each row."""
    return x.T if len(shape_of(x)) > 1 and not rowvar else atleast_2d(x)


def corrcoef(x: Operand, y: Operand | None = None, /, rowvar: bool = True) -> Result:
    """How rows (columns where `rowvar` is false) vary together, between -1 and 1; 1 of a single one."""
    found = atleast_2d(cov(x, y, rowvar))
    scale = sqrt(diag(found))
    shares = clip(divide(divide(found, expand_dims(scale, 1)), expand_dims(scale, 0)), -1, 1)
    return reshape(shares, ()) if found.shape[0] == 1 else shares


# --- comparing ----------------------------------------------------------------------------------------


def isclose(x1: Operand, x2: Operand, /, *, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Result:
    """Whether elements differ by `atol` and `rtol` of the second at most; infinities are close to themselves."""
    near = less_equal(abs(subtract(x1, x2)), add(multiply(abs(x2), rtol), atol))
    found = logical_or(equal(x1, x2), logical_and(near, logical_not(isinf(x2))))
    return logical_or(found, logical_and(isnan(x1), isnan(x2))) if equal_nan else found


def allclose(x1: Operand, x2: Operand, /, *, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Result:
    """Whether all elements are close."""
    return all(isclose(x1, x2, rtol=rtol, atol=atol, equal_nan=equal_nan))


def array_equal(x1: Operand, x2: Operand, /) -> Result:
    """Whether shapes and all elements are equal."""
    return all(equal(x1, x2)) if shape_of(x1) == shape_of(x2) else full((), False)


def nan_to_num(x: Operand, /, *, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Result:
    """Numbers for NaN and infinities: the extremes of the dtype where these are not given."""
    shape_of(x)
    dtype = dtype_of(x.dtype)
    if not dtype.is_float:
        return x
    extremes = np.finfo(dtype.numpy) if dtype is not DType.BFLOAT16 else None
    largest = float(extremes.max) if extremes else 3.3895314e38
    high, low = largest if posinf is None else posinf, -largest if neginf is None else neginf
    found = where(isnan(x), nan, x)
    found = where(equal(x, np.inf), high, found)
    return where(equal(x, -np.inf), low, found)


# --- counting -----------------------------------------------------------------------------------------


def bincount(x: Operand, /, weights: Operand | None = None, minlength: int = 0, *, length: int | None = None) -> Result:
    """How often each number below `length` occurs (int32), or the sum of its weights; of numbers below `minlength` at least.

    Without a length, numbers up to the largest are counted, for which `x` is computed; among symbols it has to be given.
    """
    if length is None:
        if not isinstance(x, np.ndarray | Tensor):
            raise TypeError("the largest number of a symbol is not known before it runs: pass length=")
        numbers: np.ndarray[Any, Any] = np.asarray(cast("Any", x))
        length = builtins.max(count_of("minlength", minlength), int(np.max(numbers)) + 1 if numbers.size else 0)
    counted = astype(equal(x, x), DType.INT32) if weights is None else weights
    return segment_sum(counted, x, length)


def segment_sum(x: Operand, segments: Operand, count: int, /) -> Result:
    """The sums of the parts of `x` along its first axis that have the same number, of each number below `count`."""
    shape_of(x)
    dtype = reducing.summed(dtype_of(x.dtype))
    return _segmented("+", x if dtype_of(x.dtype) is dtype else astype(x, dtype), segments, count)


def segment_max(x: Operand, segments: Operand, count: int, /) -> Result:
    """The largest of the parts with the same number; the least of the dtype where there is none."""
    return _segmented(">", x, segments, count)


def segment_min(x: Operand, segments: Operand, count: int, /) -> Result:
    """The smallest of the parts with the same number; the largest of the dtype where there is none."""
    return _segmented("<", x, segments, count)


_NOTHING = {"+": "0", ">": "lowest(X)", "<": "highest(X)"}
"""What is found in no elements."""


def _segmented(aggregation: str, x: Operand, segments: Operand, count: int) -> Result:
    """Numbers outside are left out: they go to two places in front and behind, which are cut off."""
    count = count_of("count", count)
    if result_type(segments).is_float:
        raise TypeError(f"numbers of parts are integers, not {result_type(segments)}: astype converts them")
    rest = "".join(f", i{k}" for k in range(1, len(shape_of(x))))
    sizes = "".join(f", {n}" for n in shape_of(x)[1:])
    text = function(
        "XS", "Y", f"E = {_NOTHING[aggregation]};", f"P = clamp(S, -1, {count}) + 1;",
        f"W[P[i0]{rest} : {count + 2}{sizes}] = {aggregation}(X[i0{rest}]) default E;",
        f"Y[i0{rest} : {count}{sizes}] = =(W[i0 + 1{rest}]);",
    )  # fmt: skip
    return called(partial(apply, text), x, astype(segments, DType.INT64))


def digitize(x: Operand, bins: Operand, /, *, right: bool = False) -> Result:
    """Between which of `bins`, which ascend or descend, elements lie: the number of those before them, or equal unless `right`.

    Of descending bins, those are before an element that are larger, or equal if `right`.
    """
    count = shape_of(bins)[0]
    falling = greater(indexed(bins, slice(None, 1)), indexed(bins, slice(-1, None)))
    place = searchsorted(where(falling, flip(bins), bins), ravel(x), "left" if right else "right")
    return reshape(where(falling, subtract(count, place), place), shape_of(x))


def histogram(
    x: Operand,
    /,
    bins: int | Operand = 10,
    range: tuple[float, float] | None = None,
    density: bool = False,
    weights: Operand | None = None,
) -> tuple[Result, Result]:
    """How many elements fall into each of equal parts of a range, by default that of the elements, and the borders of the parts.

    `bins` is the number of parts, or a vector of their ascending borders. With `density`, shares of all in relation to the
    parts' widths. ValueError for less than one part or an empty range.
    """
    values = _floating(ravel(x))
    borders = _borders(values, bins, range)
    last = shape_of(borders)[0] - 1
    part = subtract(searchsorted(borders, values, "right"), 1)
    part = where(equal(values, indexed(borders, -1)), last - 1, part)
    counts = bincount(part, None if weights is None else ravel(weights), length=last)
    return divide(divide(counts, diff(borders)), sum(counts)) if density else counts, borders


def _borders(values: Result, bins: int | Operand, range: tuple[float, float] | None) -> Result:
    if len(getattr(bins, "shape", ())) == 1:
        return astype(bins, values.dtype)
    count = integer_of("bins", bins)
    ends = numbers_of("range", (0.0, 1.0) if range is None else range)
    if ends.shape != (2,):
        raise ValueError(f"range is two numbers, the first and the last border, not {range}")
    low, high = float(ends[0]), float(ends[1])
    if count < 1 or not low <= high:
        raise ValueError(f"{count} bins from {low} to {high}: at least one, and an ascending range, are wanted")
    low, high = (low - 0.5, high + 0.5) if low == high else (low, high)
    if range is not None or 0 in shape_of(values):
        return made(np.linspace(low, high, count + 1).astype(values.dtype.numpy))
    least, largest = min(values), max(values)
    room = where(equal(least, largest), full_like(least, 0.5), full_like(least, 0))
    # A mean of both is the largest itself at the end, where a sum of steps may fall short of it.
    share = np.linspace(0, 1, count + 1).astype(values.dtype.numpy)
    return add(multiply(subtract(least, room), made(1 - share)), multiply(add(largest, room), made(share)))


# --- lines --------------------------------------------------------------------------------------------


def gradient(x: Operand, /, *spacing: float | Operand, axis: Axes = None) -> Result:
    """Slopes along an axis: between both neighbours, and to the only one at the ends. Along several axes, or all, one tensor for each.

    Samples are `spacing` apart, or at the places that it lists, one for each: along all axes, or as many spacings as there are axes.
    ValueError for less than two samples, or for other places, TypeError for another number of spacings.
    """
    places = axes_of(len(shape_of(x)), axis)
    apart = spacing or (1.0,)
    if len(apart) == 1 and not getattr(apart[0], "shape", ()):
        apart *= len(places)
    if len(apart) != len(places):
        raise TypeError(
            f"gradient along {len(places)} axes takes one distance, or a spacing for each: not {len(apart)}"
        )
    found = tuple(_slopes(_floating(x), by, place) for by, place in zip(apart, places, strict=True))
    return found[0] if len(found) == 1 else found


def _floating(x: Operand) -> Operand:
    """Floats as they are, integers, whose differences may not fit, as float32."""
    return x if dtype_of(x.dtype).is_float else astype(x, DType.FLOAT32)


def _slopes(x: Operand, spacing: float | Operand, place: int) -> Result:
    if shape_of(x)[place] < 2:
        raise ValueError(f"a slope takes two samples along axis {place}; there are {shape_of(x)[place]}")
    whole = (slice(None),) * place
    if getattr(spacing, "shape", ()):
        return _gradient_at(x, spacing, whole)
    inside = subtract(indexed(x, (*whole, slice(2, None))), indexed(x, (*whole, slice(None, -2))))
    first, last = (diff(indexed(x, (*whole, s)), axis=place) for s in (slice(None, 2), slice(-2, None)))
    return divide(concat([first, divide(inside, 2), last], place), spacing)


def _gradient_at(x: Operand, places: Operand, whole: tuple[slice, ...]) -> Result:
    """Inside, the slopes to both neighbours count as much as the other one is far."""
    axis, sizes = len(whole), shape_of(x)
    if shape_of(places) != (sizes[axis],):
        raise ValueError(f"samples along axis {axis} are {sizes[axis]}, but their places have shape {shape_of(places)}")
    steps = reshape(diff(_floating(places)), (-1, *(1,) * (len(sizes) - 1 - axis)))
    slopes = divide(diff(x, axis=axis), steps)
    before, after = indexed(steps, slice(None, -1)), indexed(steps, slice(1, None))
    near, far = (indexed(slopes, (*whole, s)) for s in (slice(None, -1), slice(1, None)))
    inside = divide(add(multiply(near, after), multiply(far, before)), add(before, after))
    first, last = (indexed(slopes, (*whole, s)) for s in (slice(None, 1), slice(-1, None)))
    return concat([first, inside, last], axis)


def trapezoid(y: Operand, x: Operand | None = None, /, dx: float = 1.0, axis: int = -1) -> Result:
    """The area below the lines between samples at places `x`, or `dx` apart."""
    place = axis_of(len(shape_of(y)), axis)
    whole = (slice(None),) * place
    pairs = add(indexed(y, (*whole, slice(1, None))), indexed(y, (*whole, slice(None, -1))))
    if x is None:
        return multiply(sum(pairs, place), dx / 2)
    steps = diff(x)
    if len(shape_of(x)) == 1:
        steps = reshape(steps, (-1, *(1,) * (len(shape_of(y)) - 1 - place)))
    return divide(sum(multiply(pairs, steps), place), 2)


def interp(x: Operand, xp: Operand, fp: Operand, /, left: float | None = None, right: float | None = None) -> Result:
    """The line through points (`xp`, `fp`), ascending, at places `x`; `left` and `right` beyond its ends, or level."""
    if len(shape_of(xp)) != 1 or shape_of(xp) != shape_of(fp) or not shape_of(xp)[0]:
        raise ValueError(
            f"points have as many places as heights, in one dimension: shapes {shape_of(xp)} and {shape_of(fp)}"
        )
    last = shape_of(xp)[0] - 1
    after = clip(searchsorted(xp, ravel(x), "right"), 1, last)
    before = subtract(after, 1)
    (x0, x1), (y0, y1) = ([take(v, k) for k in (before, after)] for v in (xp, fp))
    share = clip(divide(subtract(ravel(x), x0), subtract(x1, x0)), 0, 1)
    found = reshape(add(y0, multiply(share, subtract(y1, y0))), shape_of(x))
    found = found if left is None else where(less(x, indexed(xp, 0)), left, found)
    return found if right is None else where(greater(x, indexed(xp, -1)), right, found)


def _cut(mode: str, long: int, short: int) -> tuple[int, int]:
    """Where the result of a filter begins in the full one, and how long it is."""
    match mode:
        case "full":
            return 0, long + short - 1
        case "same":
            return (short - 1) // 2, long
        case "valid":
            return short - 1, long - short + 1
        case _:
            raise ValueError(f"mode {mode!r} is none of full, same and valid")


def convolve(x1: Operand, x2: Operand, /, mode: str = "full") -> Result:
    """Sums of products of one vector with the other backwards, at each shift; NumPy's modes full, same and valid."""
    long, short = (x1, x2) if shape_of(x1)[0] >= shape_of(x2)[0] else (x2, x1)
    first, size = _cut(mode, long.shape[0], short.shape[0])
    dtype = result_type(long, short)
    text = function("XK", "Y", f"Y[n : {size}] = +(X[n - k + {first}] * K[k]);")
    return called(partial(apply, text), astype(long, dtype), astype(short, dtype))


def correlate(x1: Operand, x2: Operand, /, mode: str = "valid") -> Result:
    """Sums of products of two vectors, at each shift; NumPy's modes full, same and valid."""
    if shape_of(x1)[0] < shape_of(x2)[0]:
        return flip(correlate(x2, x1, mode))
    return convolve(x1, flip(x2), mode)
