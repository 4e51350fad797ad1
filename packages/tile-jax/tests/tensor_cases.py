"""Random cases of operations that move, multiply, reduce and sort."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from drawing import (
    ALL,
    FLOATS,
    NUMBERS,
    SIGNED,
    Array,
    Case,
    Rng,
    anything,
    array,
    dtype,
    family,
    full_shape,
    loose,
    pick,
)
from jax import lax


@family
def moves(rng: Rng) -> Case:
    """Reshapes, transposes, flips and broadcasts, one after the other."""
    name, sizes = pick(rng, ALL), full_shape(rng, 1, 4)
    order = [int(k) for k in rng.permutation(len(sizes))]
    axes = [k for k in range(len(sizes)) if rng.random() < 0.5]
    more = int(rng.integers(1, 4))

    def function(x: Any) -> Any:
        moved = lax.rev(lax.transpose(x, order), axes)
        spread = lax.broadcast_in_dim(moved, (*moved.shape, more), tuple(range(moved.ndim)))
        return lax.reshape(spread, (spread.size,)), spread

    return Case(function, (anything(rng, name, sizes),), 0)


@family
def slices(rng: Rng) -> Case:
    name, sizes = pick(rng, ALL), full_shape(rng, 1, 4, 8)
    starts = [int(rng.integers(0, n)) for n in sizes]
    ends = [int(rng.integers(s, n + 1)) for s, n in zip(starts, sizes, strict=True)]
    steps = [int(rng.integers(1, 4)) for _ in sizes]
    return Case(lambda x: lax.slice(x, starts, ends, steps), (anything(rng, name, sizes),), 0)


@family
def pads(rng: Rng) -> Case:
    """In front, behind and between; negative counts crop."""
    name, sizes = pick(rng, NUMBERS), full_shape(rng, 1, 3)
    inside = [int(rng.integers(0, 3)) for _ in sizes]
    spans = [n + (n - 1) * i for n, i in zip(sizes, inside, strict=True)]
    low = [int(rng.integers(-n, 4)) for n in spans]
    high = [int(rng.integers(-min(n + b, n), 4)) if n + b > 0 else 4 for n, b in zip(spans, low, strict=True)]
    config = list(zip(low, [max(h, -s - b) for h, s, b in zip(high, spans, low, strict=True)], inside, strict=True))
    return Case(lambda x, fill: lax.pad(x, fill, config), (anything(rng, name, sizes), anything(rng, name, ())), 0)


@family
def joins(rng: Rng) -> Case:
    name, sizes = pick(rng, ALL), list(full_shape(rng, 1, 3))
    axis = int(rng.integers(len(sizes)))
    parts = [anything(rng, name, [int(rng.integers(0, 5)) if k == axis else n for k, n in enumerate(sizes)])
             for _ in range(int(rng.integers(1, 6)))]  # fmt: skip
    return Case(lambda *xs: lax.concatenate(xs, axis), tuple(parts), 0)


@family
def iotas(rng: Rng) -> Case:
    name, sizes = pick(rng, ("int32", "uint8", "float32", "float16")), full_shape(rng, 1, 3)
    axis = int(rng.integers(len(sizes)))
    return Case(lambda x: x + lax.broadcasted_iota(dtype(name), sizes, axis), (array(rng, name, sizes, 0, 3),), 0)


@family
def products(rng: Rng) -> Case:
    """Any axes stacked and summed, in any order."""
    letters = list("abcdefg")[: int(rng.integers(1, 6))]
    sizes = {c: int(rng.integers(1, 6)) for c in letters}
    groups = {c: pick(rng, ("stacked", "summed", "left", "right")) for c in letters}
    left = [c for c in letters if groups[c] != "right"]
    right = [c for c in letters if groups[c] != "left"]
    rng.shuffle(left)
    rng.shuffle(right)
    name = pick(rng, (*FLOATS, "int8", "int32", "uint8"))
    wider = {"int8": "int32", "bfloat16": "float32", "float16": "float32"}.get(name) if rng.random() < 0.5 else None

    def axes(kind: str) -> tuple[list[int], list[int]]:
        chosen = [c for c in letters if groups[c] == kind]
        return [left.index(c) for c in chosen], [right.index(c) for c in chosen]

    numbers = (axes("summed"), axes("stacked"))
    given = tuple(array(rng, name, [sizes[c] for c in side]) for side in (left, right))
    kind = None if wider is None else dtype(wider)
    return Case(lambda a, b: lax.dot_general(a, b, numbers, preferred_element_type=kind), given, 4 * loose(name))


@family
def einsums(rng: Rng) -> Case:
    equation, shapes = pick(rng, (
        ("ij,jk->ik", ((3, 4), (4, 5))), ("bhqd,bhkd->bhqk", ((2, 3, 4, 5), (2, 3, 6, 5))), ("ijk,k->ji", ((2, 3, 4), (4,))),
        ("ii->i", ((4, 4),)), ("ij,kl->ikjl", ((2, 3), (4, 2))), ("...i,ij->...j", ((2, 3, 4), (4, 5))), ("ijj->i", ((3, 4, 4),)),
        ("ab,bc,cd->ad", ((2, 3), (3, 4), (4, 2))),
    ))  # fmt: skip
    name = pick(rng, FLOATS)
    return Case(lambda *xs: jnp.einsum(equation, *xs), tuple(array(rng, name, s) for s in shapes), 6 * loose(name))


@family
def convolutions(rng: Rng) -> Case:
    """1 to 3 spatial axes in any place, strides, padding that may crop, dilations of both sides, groups of both kinds."""
    rank = int(rng.integers(1, 4))
    groups, batches = pick(rng, ((1, 1), (1, 1), (2, 1), (3, 1), (1, 2)))
    own, out, batch = (
        int(rng.integers(1, 4)),
        int(rng.integers(1, 4)) * groups * batches,
        int(rng.integers(1, 3)) * batches,
    )
    image = (
        [int(n) for n in rng.integers(4, 9 - rank, rank)] if rank < 3 else [int(n) for n in rng.integers(3, 6, rank)]
    )
    kernel = [int(n) for n in rng.integers(1, 4, rank)]
    spread, dilations = ([int(n) for n in rng.choice([1, 1, 1, 2, 3], rank)] for _ in range(2))
    strides = [int(n) for n in rng.choice([1, 1, 2, 3], rank)]
    padding: Any = pick(rng, ("SAME", "VALID", None, None))
    if padding is None or max(spread) > 1:
        padding = [(int(rng.integers(-1, 4)), int(rng.integers(-1, 4))) for _ in range(rank)]
    spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
    if padding != "SAME":
        room = [(n - 1) * s + 1 for n, s in zip(image, spread, strict=True)]
        image = [n if r - 2 >= span else n + span for n, r, span in zip(image, room, spans, strict=True)]
    orders = [_order(rng, rank) for _ in range(3)]
    numbers = lax.ConvDimensionNumbers(*orders)
    given = _placed(array(rng, "float32", (batch, own * groups, *image)), orders[0]), _placed(
        array(rng, "float32", (out, own, *kernel)), orders[1])  # fmt: skip

    def function(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(x, w, strides, padding, spread, dilations, numbers, groups, batches)

    return Case(function, given, 4e-5)


def _order(rng: Rng, rank: int) -> tuple[int, ...]:
    return tuple(int(k) for k in rng.permutation(rank + 2))


def _placed(given: Array, order: tuple[int, ...]) -> Array:
    """Axis k of `given` as axis ``order[k]``."""
    return np.ascontiguousarray(given.transpose(np.argsort(order)))


@family
def convolution_gradients(rng: Rng) -> Case:
    strides, dilations = ([int(n) for n in rng.integers(1, 3, 2)] for _ in range(2))
    groups, padding = pick(rng, (1, 2)), pick(rng, ("SAME", "VALID", ((1, 2), (0, 1))))
    x, w = array(rng, "float32", (2, 2 * groups, 7, 8)), array(rng, "float32", (2 * groups, 2, 3, 2))

    def loss(x: Any, w: Any) -> Any:
        made = lax.conv_general_dilated(x, w, strides, padding, rhs_dilation=dilations, feature_group_count=groups)
        return (jnp.sin(made) * made).sum()

    return Case(jax.grad(loss, argnums=(0, 1)), (x, w), 2e-4)


# --- reductions -------------------------------------------------------------------------------------------

_REDUCERS: dict[Any, tuple[str, ...]] = {
    jnp.sum: NUMBERS, jnp.max: ALL, jnp.min: ALL, jnp.prod: ("float32", "int32"), jnp.any: ALL, jnp.all: ALL, jnp.mean: FLOATS,
    jnp.var: ("float32",), jax.nn.logsumexp: FLOATS, jnp.ptp: ("float32",), jnp.linalg.norm: ("float32",),
    jnp.bitwise_xor.reduce: ("int32",), jnp.nansum: ("float32",), jnp.count_nonzero: ALL,
}  # fmt: skip


@family
def reductions(rng: Rng) -> Case:
    function, dtypes = pick(rng, list(_REDUCERS.items()))
    name, sizes = pick(rng, dtypes), full_shape(rng, 1, 4)
    axis: Any = int(rng.integers(len(sizes)))
    if function in (jnp.sum, jnp.max, jnp.min, jnp.mean) and rng.random() < 0.5:
        axis = tuple(k for k in range(len(sizes)) if rng.random() < 0.6)
    return Case(lambda x: function(x, axis=axis), (array(rng, name, sizes, -2, 2),), 8 * loose(name))


@family
def places(rng: Rng) -> Case:
    """Of the largest and smallest, with equal ones and NaN."""
    name, sizes = pick(rng, ALL), full_shape(rng, 1, 3)
    axis, function = int(rng.integers(len(sizes))), pick(rng, (jnp.argmax, jnp.argmin))
    given = anything(rng, name, sizes) if rng.random() < 0.5 else array(rng, name, sizes, 0, 2)
    return Case(lambda x: function(x, axis=axis), (given,), 0)


@family
def general_reductions(rng: Rng) -> Case:
    """Regions that no aggregation of Tile's is."""
    sizes, number = full_shape(rng, 1, 3), int(rng.integers(4))
    axes = tuple(k for k in range(len(sizes)) if rng.random() < 0.6)
    regions: list[Any] = [
        lambda a, b: a + b + a * b,
        lambda a, b: jnp.sqrt(a * a + b * b),
        lax.bitwise_or,
        lax.bitwise_xor,
    ]
    name = "float32" if number < 2 else "int32"
    start = dtype(name).type(0)
    return Case(
        lambda x: lax.reduce(x, start, regions[number], axes),
        (array(rng, name, sizes, 0, 1 if number < 1 else 9),),
        1e-4,
    )


@family
def paired_reductions(rng: Rng) -> Case:
    """Two values together: the value beside the largest key."""
    sizes = full_shape(rng, 1, 3)
    axes = (int(rng.integers(len(sizes))),)
    keys = rng.permutation(int(np.prod(sizes))).reshape(sizes).astype(np.float32)

    def larger(one: Any, other: Any) -> Any:
        first = one[0] > other[0]
        return jnp.where(first, one[0], other[0]), jnp.where(first, one[1], other[1])

    start = np.float32(-np.inf), np.int32(0)
    return Case(lambda k, v: lax.reduce((k, v), start, larger, axes), (keys, array(rng, "int32", sizes)), 0)


@family
def windows(rng: Rng) -> Case:
    name, sizes = pick(rng, ("float32", "int32", "bfloat16")), full_shape(rng, 1, 3, 7)
    cells, strides = ([int(n) for n in rng.integers(1, 4, len(sizes))] for _ in range(2))
    spread, dilations = ([int(n) for n in rng.choice([1, 1, 2], len(sizes))] for _ in range(2))
    padding = [(int(rng.integers(0, 3)), int(rng.integers(2, 5))) for _ in sizes]
    region, start = pick(rng, ((lax.add, 0), (lax.max, None), (lax.min, None), (lax.mul, 1)))
    if start is None:
        info: Any = np.iinfo(np.int32) if name == "int32" else None
        ends = (info.min, info.max) if info else (-np.inf, np.inf)
        start = ends[0] if region is lax.max else ends[1]
    first = np.asarray(start).astype(dtype(name))
    return Case(lambda x: lax.reduce_window(x, first, region, cells, strides, padding, spread, dilations),
                (array(rng, name, sizes, -2, 2),), 8 * loose(name))  # fmt: skip


@family
def running(rng: Rng) -> Case:
    name, sizes = pick(rng, ("float32", "int32")), full_shape(rng, 1, 3, 9)
    axis, reverse = int(rng.integers(len(sizes))), bool(rng.random() < 0.5)
    functions = [lax.cumsum, lax.cumprod, lax.cummax, lax.cummin] + [lax.cumlogsumexp] * (name == "float32")
    function = pick(rng, functions)
    return Case(lambda x: function(x, axis, reverse=reverse), (array(rng, name, sizes, -2, 2),), 1e-4)


@family
def pool_gradients(rng: Rng) -> Case:
    cells, strides = ([int(n) for n in rng.integers(1, 4, 2)] for _ in range(2))
    padding, region = pick(rng, ("SAME", "VALID")), pick(rng, ("max", "min", "mean"))

    def loss(x: Any) -> Any:
        window = (1, *cells, 1), (1, *strides, 1)
        if region == "mean":
            made = lax.reduce_window(x, 0.0, lax.add, *window, padding)
        else:
            start, pool = (-jnp.inf, lax.max) if region == "max" else (jnp.inf, lax.min)
            made = lax.reduce_window(x, start, pool, *window, padding)
        return (made * jnp.arange(made.size, dtype=jnp.float32).reshape(made.shape)).sum()

    return Case(jax.grad(loss), (array(rng, "float32", (2, 6, 7, 2)),), 4e-5)


# --- sorts ------------------------------------------------------------------------------------------------


@family
def sorts(rng: Rng) -> Case:
    name, sizes = pick(rng, ALL), full_shape(rng, 1, 3, 9)
    axis, down = int(rng.integers(len(sizes))), bool(rng.random() < 0.4)
    function = pick(rng, (jnp.sort, jnp.argsort))
    given = anything(rng, name, sizes) if rng.random() < 0.5 else array(rng, name, sizes, 0, 3)
    return Case(lambda x: function(x, axis=axis, descending=down, stable=True), (given,), 0)


@family
def sorts_by_keys(rng: Rng) -> Case:
    sizes, keys, count = full_shape(rng, 1, 2, 12), int(rng.integers(1, 4)), int(rng.integers(3, 5))
    axis = int(rng.integers(len(sizes)))
    given = tuple(array(rng, pick(rng, ("int32", "uint8", "float32", "bool")), sizes, 0, 2) for _ in range(count))
    given = tuple(np.round(g) if g.dtype == np.float32 else g for g in given)
    return Case(lambda *xs: lax.sort(xs, dimension=axis, num_keys=keys), given, 0)


@family
def largest(rng: Rng) -> Case:
    name, sizes = pick(rng, (*SIGNED, "uint8", "float32", "bfloat16")), full_shape(rng, 1, 3, 9)
    count = int(rng.integers(0, sizes[-1] + 1))
    return Case(lambda x: lax.top_k(x, count), (array(rng, name, sizes, 0, 5),), 0)


@family
def statistics(rng: Rng) -> Case:
    given = array(rng, "float32", full_shape(rng, 2, 2, 9))
    return Case(pick(rng, (
        lambda x: jnp.median(x, 0), lambda x: jnp.percentile(x, 30, axis=1), lambda x: jnp.quantile(x, 0.7), lambda x: jnp.histogram(x, 5)[0],
        lambda x: jnp.searchsorted(jnp.sort(x[0]), x), lambda x: jnp.cov(x), lambda x: jnp.unique(jnp.round(x), size=4, fill_value=0),
        lambda x: jnp.digitize(x, jnp.arange(-2.0, 2.0)), lambda x: jnp.bincount(jnp.abs(x[0]).astype(int), length=5),
    )), (given,), 1e-4)  # fmt: skip
