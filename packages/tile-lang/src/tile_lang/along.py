"""Built-in functions along an axis: gather and scatter, the largest element's place, running totals, sorting, searching."""

from __future__ import annotations

from collections.abc import Callable

from tile_ir.dtype import DType
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import (
    Argsort,
    Constraint,
    Contraction,
    Gather,
    IndexOf,
    Literal,
    Lookup,
    Poly,
    Reshape,
    Scatter,
    Subscript,
    TensorLoad,
    TensorType,
    coordinates,
)

from tile_lang.calls import Builtin, Call
from tile_lang.operators import operate
from tile_lang.scope import origin, show
from tile_lang.types import unify
from tile_lang.values import Const, Tensor, TupleValue, Value, fail


def indices_of(c: Call, k: int) -> Tensor:
    """Argument k, which must hold integers."""
    indices = c.real_tensor(k)
    if not indices.type.dtype.is_integer:
        message = f"the indices of {c.name} must be integers, not {indices.type.dtype}"
        fail("TILE-E126", message, c.spans[k], "convert them with as_int(I, 32)")
    return indices


def _by_data(indices: Tensor, axis: int, rank: int) -> tuple[Subscript, ...]:
    """The subscripts of a table whose `axis` has the elements of `indices` as subscripts, for cells of `rank` dimensions."""
    cell, count = coordinates(rank), len(indices.type.shape)
    return (*cell[:axis], Lookup(indices.name, cell[axis : axis + count]), *cell[axis + count :])


def gather(c: Call) -> Value:
    """``gather(data, indices, axis)``: lines of `data` by number."""
    data, indices = c.real_tensor(0), indices_of(c, 1)
    if not data.type.shape:
        fail("TILE-E126", "gather needs data with at least one dimension", c.spans[0])
    axis, given = c.axis(2, data), data.type.shape
    type_ = TensorType(data.type.dtype, (*given[:axis], *indices.type.shape, *given[axis + 1 :]))
    subscripts = _by_data(indices, axis, len(type_.shape))
    return c.scope.emit(Gather(c.scope.fresh(), type_, data.name, subscripts, c.span))


def scatter(c: Call) -> Value:
    """``scatter(updates, indices, like, axis)``: lines added where the indices say, as many as `like` has."""
    updates, indices, like = c.real_tensor(0), indices_of(c, 1), c.real_tensor(2)
    if not like.type.shape:
        fail("TILE-E127", "the third argument of scatter gives a size, so it needs a dimension", c.spans[2])
    axis, given = c.axis(3, like), updates.type.shape
    end = axis + len(indices.type.shape)
    if given[axis:end] != indices.type.shape:
        which = "first dimensions" if axis == 0 else f"dimensions from axis {axis} on"
        wanted = f"scatter needs updates whose {which} are those of the indices, {show(indices.type.shape)}"
        fail("TILE-E127", f"{wanted}, not {show(given)}", c.spans[0])
    type_ = TensorType(updates.type.dtype, (*given[:axis], like.type.shape[axis], *given[end:]))
    subscripts = _by_data(indices, axis, len(given))
    return c.scope.emit(Scatter(c.scope.fresh(), type_, updates.name, subscripts, origin=c.span))


def extreme(agg: Aggregation) -> Callable[[Call], Value]:
    """The value that leaves the largest or smallest of any values of the argument's dtype as it is."""

    def bind(c: Call) -> Value:
        dtype = c.real_tensor(0).type.dtype
        return c.scope.constant(Literal(agg.identity(dtype), dtype), c.span)

    return bind


# --- places of elements ------------------------------------------------------------------------------


def _chosen_axis(c: Call, k: int, x: Tensor) -> int:
    """An axis along which something is chosen: it has elements, or nothing is asked for."""
    axis = c.axis(k, x)
    if not x.type.shape[axis] and x.type.size == 0 and all(n for d, n in enumerate(x.type.shape) if d != axis):
        fail("TILE-E140", f"{c.name} chooses among the elements of axis {axis}, and there are none", c.span)
    return axis


def _place(agg: Aggregation) -> Callable[[Call], Value]:
    """The place of the first largest or smallest element along an axis; the first NaN counts as both."""

    def bind(c: Call) -> Value:
        x = c.real_tensor(0)
        axis, scope, span = _chosen_axis(c, 1, x), c.scope, c.span
        shape, last = x.type.shape, x.type.shape[axis] - 1
        kept = tuple(1 if d == axis else n for d, n in enumerate(shape))
        hit = _equals(c, x, scope.reduce_to(agg, x, kept, span))
        place = scope.emit(IndexOf(scope.fresh(), TensorType(DType.INT32, shape), axis, span))
        back = scope.apply("sub", (Const(last), place), (DType.INT32, DType.INT32), span)
        back = scope.elementwise("cond", (hit.name, back.name, Literal(-1, DType.INT32)), place.type, span)
        first = scope.reduce_to(Aggregation.MAX, back, kept, span)
        found = scope.apply("sub", (Const(last), first), (DType.INT32, DType.INT32), span)
        without = TensorType(DType.INT32, shape[:axis] + shape[axis + 1 :])
        return scope.emit(Reshape(scope.fresh(), without, found.name, span))

    return bind


def _equals(c: Call, x: Tensor, extreme: Tensor) -> Tensor:
    dtype = x.type.dtype
    hit = c.scope.apply("cmp_eq", (x, extreme), (dtype, DType.BOOL), c.span)
    if not dtype.is_float:
        return hit
    undefined = c.scope.apply("cmp_ne", (x, x), (dtype, DType.BOOL), c.span)
    return c.scope.apply("bit_or", (hit, undefined), (DType.BOOL, DType.BOOL), c.span)


def _one_hot(c: Call) -> Value:
    """True where the last coordinate is the index."""
    indices, (count,) = indices_of(c, 0), c.sizes(1)
    shape = (*indices.type.shape, count)
    column = TensorType(indices.type.dtype, (*indices.type.shape, 1))
    wanted = c.scope.emit(Reshape(c.scope.fresh(), column, indices.name, c.span))
    place = c.scope.emit(IndexOf(c.scope.fresh(), TensorType(DType.INT32, shape), len(shape) - 1, c.span))
    return operate(c.scope, "cmp_eq", [wanted, place], c.span)


# --- running totals ------------------------------------------------------------------------------------


def _running(agg: Aggregation) -> Callable[[Call], Value]:
    """The aggregate of all elements up to each, along an axis: the form that is computed in linear time."""

    def bind(c: Call) -> Value:
        x = c.real_tensor(0)
        axis, shape, span = c.axis(1, x), x.type.shape, origin(c.span)
        dtype = x.type.dtype
        cell = coordinates(len(shape))
        earlier = Poly.of({cell[axis].names[0]: 1, "j": -1})
        read = (*cell[:axis], earlier, *cell[axis + 1 :])
        ranges = [*zip(cell, shape, strict=True), *zip(read, shape, strict=True), (Poly.of({"j": 1}), shape[axis])]
        return c.scope.emit(
            Contraction(
                c.scope.fresh(),
                x.type,
                agg,
                (*(f"i{d}" for d in range(len(shape))), "j"),
                cell,
                tuple(Constraint(f, n, span) for f, n in ranges),
                (TensorLoad("$0", x.name, read),),
                (),
                "$0",
                dtype.accumulator if agg in (Aggregation.SUM, Aggregation.PROD) else dtype,
                text=c.span.text,
                origin=span,
            )
        )

    return bind


# --- order ---------------------------------------------------------------------------------------------


def _argsort(c: Call) -> Value:
    x = c.real_tensor(0)
    descending = len(c.args) > 2 and c.integer(2) != 0
    return _order(c, x, c.axis(1, x), descending)


def _order(c: Call, x: Tensor, axis: int, descending: bool, count: int | None = None) -> Tensor:
    """The places of the elements in order, of all or of the first `count`."""
    key = c.scope.cast(x, DType.UINT8, c.span) if x.type.dtype is DType.BOOL else x
    kept = x.type.shape[axis] if count is None else count
    type_ = TensorType(DType.INT32, (*x.type.shape[:axis], kept, *x.type.shape[axis + 1 :]))
    return c.scope.emit(Argsort(c.scope.fresh(), type_, key.name, axis, descending, origin(c.span)))


def _sort(c: Call) -> Value:
    x, axis = c.real_tensor(0), c.axis(1, c.real_tensor(0))
    return _taken(c, x, _order(c, x, axis, len(c.args) > 2 and c.integer(2) != 0), axis)


def _taken(c: Call, x: Tensor, places: Tensor, axis: int) -> Tensor:
    """The elements at places along an axis, each line by its own."""
    cell = coordinates(len(x.type.shape))
    subscripts = (*cell[:axis], Lookup(places.name, cell), *cell[axis + 1 :])
    type_ = TensorType(x.type.dtype, places.type.shape)
    return c.scope.emit(Gather(c.scope.fresh(), type_, x.name, subscripts, origin(c.span)))


def _top_k(c: Call) -> Value:
    """The k largest along an axis, largest first, and their places."""
    x, count = c.real_tensor(0), c.integer(1)
    axis = c.axis(2, x)
    have = x.type.shape[axis]
    if not 0 <= count <= have:
        fail("TILE-E140", f"{c.name} cannot take {count} of {have} elements", c.spans[1])
    places = _order(c, x, axis, True, count)
    return TupleValue((_taken(c, x, places, axis), places))


def _search_sorted(c: Call) -> Value:
    """How many elements of a sorted vector come before each value; with a third argument, or are equal to it."""
    table, values = c.real_tensor(0), c.tensor(1)
    if len(table.type.shape) != 1:
        fail("TILE-E108", f"{c.name} searches a vector, not {table.type}", c.spans[0])
    scope, span, right = c.scope, c.span, len(c.args) > 2 and c.integer(2) != 0
    dtype, (size,) = unify((table, values)), table.type.shape
    table, values = scope.cast(table, dtype, span), scope.cast(values, dtype, span)
    type_ = TensorType(DType.INT32, values.type.shape)
    found = scope.elementwise("ident", (Literal(0, DType.INT32),), type_, span)
    for step in (1 << k for k in reversed(range(size.bit_length()))):
        probe = scope.apply("add", (found, Const(step)), (DType.INT32, DType.INT32), span)
        before = scope.apply("sub", (probe, Const(1)), (DType.INT32, DType.INT32), span)
        subscripts = (Lookup(before.name, coordinates(len(type_.shape))),)
        seen = scope.emit(Gather(scope.fresh(), TensorType(dtype, type_.shape), table.name, subscripts, origin(span)))
        passed = _before(c, values, seen) if right else _before(c, seen, values)
        passed = scope.apply("bit_not", (passed,), (DType.BOOL, DType.BOOL), span) if right else passed
        inside = scope.apply("cmp_le", (probe, Const(size)), (DType.INT32, DType.BOOL), span)
        passed = scope.apply("bit_and", (passed, inside), (DType.BOOL, DType.BOOL), span)
        found = scope.elementwise("cond", (passed.name, probe.name, found.name), type_, span)
    return found


def _before(c: Call, a: Tensor, b: Tensor) -> Tensor:
    """``a`` is smaller than ``b``; NaN counts as larger than all numbers."""
    dtype = a.type.dtype
    less = c.scope.apply("cmp_lt", (a, b), (dtype, DType.BOOL), c.span)
    if not dtype.is_float:
        return less
    number = c.scope.apply("cmp_eq", (a, a), (dtype, DType.BOOL), c.span)
    undefined = c.scope.apply("cmp_ne", (b, b), (dtype, DType.BOOL), c.span)
    beyond = c.scope.apply("bit_and", (number, undefined), (DType.BOOL, DType.BOOL), c.span)
    return c.scope.apply("bit_or", (less, beyond), (DType.BOOL, DType.BOOL), c.span)


ALONG: dict[str, Builtin] = {
    "lowest": Builtin(1, 1, extreme(Aggregation.MAX)),
    "highest": Builtin(1, 1, extreme(Aggregation.MIN)),
    "gather": Builtin(2, 3, gather),
    "scatter": Builtin(3, 4, scatter),
    "argmax": Builtin(2, 2, _place(Aggregation.MAX)),
    "argmin": Builtin(2, 2, _place(Aggregation.MIN)),
    "one_hot": Builtin(2, 2, _one_hot, sizes=1),
    "cumsum": Builtin(2, 2, _running(Aggregation.SUM)),
    "cumprod": Builtin(2, 2, _running(Aggregation.PROD)),
    "cummax": Builtin(2, 2, _running(Aggregation.MAX)),
    "cummin": Builtin(2, 2, _running(Aggregation.MIN)),
    "sort": Builtin(2, 3, _sort),
    "argsort": Builtin(2, 3, _argsort),
    "top_k": Builtin(3, 3, _top_k),
    "searchsorted": Builtin(2, 3, _search_sorted),
}
"""Functions along an axis by name."""
