"""The reference interpreter of Stripe: small, slow, obvious. It is what a program means.

`run(program, inputs)` executes every statement type in listed order; index points run in the order of
the block's index list, outermost first. Fresh buffers hold NaN (integers: the byte 0xA5; bool: true), so
that a missing initialisation is seen, and an access outside a view or its buffer is a StripeError.

How fields that schedules add are executed:

- Layouts, locations, offsets, hints and instructions change no value: buffers are logical arrays.
- `Sync` and `Reduce`: the points of indexes bound to threads or lanes, and those that a Reduce runs over,
  advance together, from one such statement to the next; other indexes stay serial and outside them. Any
  Sync holds up all enclosing threads, whatever its scope.
- `Transfer` copies at once; `Wait` does nothing.
- `init=IDENTITY` sets the view at every point of the block's domain before the first iteration.
- `acc` of a dtype other than the buffer's: the block works on a widened copy, rounded back when it ends.
- `versions`: a refinement of an allocation with v versions selects copy ``form mod v`` by an extra leading
  access form; without one, by the value of its block's first ORDERED index (copy 0 if there is none). A
  refinement with v versions itself passes all of them on.
  Statements beside the allocation itself work on copy 0.
- `Special` has no meaning here and is an error.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from operator import add, le, lt
from typing import Any

import numpy as np
import numpy.typing as npt

from tile_ir import numerics
from tile_ir.diagnostics import Diagnostic, TileTypeError
from tile_ir.dtype import DType, Kind, from_numpy
from tile_ir.stripe.affine import Affine, Quasi
from tile_ir.stripe.nodes import (
    Bind,
    Block,
    Const,
    Direction,
    Init,
    Load,
    LoadIndex,
    Op,
    Order,
    Program,
    Reduce,
    Refinement,
    Special,
    Store,
    Sync,
    TensorType,
    Transfer,
    Wait,
)
from tile_ir.stripe.printer import block_head
from tile_ir.stripe.vectorize import Domain, run_leaf
from tile_ir.stripe.verify import StripeError, is_reshape, verify
from tile_ir.stripe.view import View

Array = npt.NDArray[Any]
Values = Mapping[str, int]


Views = Mapping[str, View]


@dataclass(slots=True)
class Task:
    """One point of a block while it runs: its index values, views, and scalars so far."""

    block: Block
    indexes: Values
    views: Views
    path: tuple[str, ...]
    slow: bool
    scalars: dict[str, Any]

    def error(self, message: str) -> StripeError:
        at = ", ".join(f"{name}={value}" for name, value in self.indexes.items())
        return StripeError(f"{message}{f' at {at}' if at else ''}", self.path, block_head(self.block), "interpret")


Steps = Generator[Reduce | Sync, Any, None]
"""A run in progress; it stops at each Reduce and Sync for the scheduler of its threads."""


def run(program: Program, inputs: Mapping[str, npt.ArrayLike], *, slow: bool = False) -> dict[str, Array]:
    """The outputs of `program` by name. `slow` turns the vectorised leaf blocks off (the results are the same).

    Inputs have the shapes and dtypes of their allocations, else TileTypeError. StripeError for a
    malformed program or an access out of bounds.
    """
    verify(program)
    refs = {ref.into: ref for ref in program.entry.refs}
    given = {name: _input(refs[name], inputs, name) for name in program.inputs}
    for constant in program.constants:
        data = np.frombuffer(constant.data, constant.type.dtype.numpy.newbyteorder("<"))
        given[constant.name] = data.astype(constant.type.dtype.numpy).reshape(constant.type.sizes)
    final: dict[str, Array] = dict(given)
    for _ in _run_block(program.entry, {}, {}, (), slow, given, final):
        pass
    return {name: final[name] for name in program.outputs}


def run_block(block: Block, buffers: Mapping[str, Array], *, slow: bool = False) -> None:
    """Run one block, such as a kernel, in place: `buffers` are what its refinements' sources name.

    Each is an array of the whole buffer, with the refined buffer's rank.
    """
    views: dict[str, View] = {}
    for name, data in buffers.items():
        type_ = TensorType.row_major(from_numpy(data.dtype), data.shape)
        ref = Refinement(Direction.INOUT, name, name, (Affine(),) * data.ndim, type_)
        views[name] = View(ref, data, (0,) * data.ndim, (0,) * data.ndim, data.shape)
    for _ in _run_block(block, {}, views, (), slow):
        pass


def _input(ref: Refinement, inputs: Mapping[str, npt.ArrayLike], name: str) -> Array:
    if name not in inputs:
        raise TileTypeError(Diagnostic("TILE-E611", f"input {name} is missing"))
    array = np.array(inputs[name], order="C")
    if array.shape != ref.type.sizes or from_numpy(array.dtype) is not ref.type.dtype:
        message = f"input {name} is {array.dtype}{array.shape}, not {ref.type.dtype}{ref.type.sizes}"
        raise TileTypeError(Diagnostic("TILE-E612", message))
    return array.astype(ref.type.dtype.numpy, copy=False)


def poison(dtype: DType, shape: tuple[int, ...]) -> Array:
    """A fresh buffer: NaN, the integer made of bytes 0xA5, or true."""
    if dtype.is_float:
        return np.full(shape, np.nan, dtype.numpy)
    if dtype.kind is Kind.BOOL:
        return np.ones(shape, dtype.numpy)
    return np.full(shape, 0xA5, np.uint8).repeat(dtype.bytes).view(dtype.numpy).reshape(shape)


# --- blocks --------------------------------------------------------------------------------------


def _run_block(
    block: Block,
    outer: Values,
    parents: Views,
    path: tuple[str, ...],
    slow: bool,
    given: Mapping[str, Array] | None = None,
    final: dict[str, Array] | None = None,
) -> Steps:
    """All points of a block. `given` and `final` are the entry's buffers: initial contents, and where they go."""
    path = (*path, block.name)
    if any(form.evaluate(outer) < 0 for form in block.guard):
        return
    domain = Domain.of(block, outer)
    block, parents = _reshaped(block, parents)
    if not slow:
        block, parents = _one_copy_each(block, parents, domain)
    with_acc = {ref.source: _widened(parents[ref.source], ref) for ref in block.refs if _needs_acc(ref, parents)}
    inner = {**parents, **with_acc}
    for ref in block.refs:
        if ref.init is Init.IDENTITY and ref.source:
            _fill_identity(ref, inner, domain)
    if not slow and (reason := run_leaf(block, inner, domain)) is not None:
        if reason:
            raise StripeError(reason, path, block_head(block), "interpret")
    else:
        yield from _points(block, inner, domain, path, slow, given or {}, final)
    for source, view in with_acc.items():
        parents[source].data[...] = numerics.cast_array(view.data, parents[source].dtype)


def _points(
    block: Block,
    parents: Views,
    domain: Domain,
    path: tuple[str, ...],
    slow: bool,
    given: Mapping[str, Array],
    final: dict[str, Array] | None,
) -> Steps:
    for together in _groups(block, domain):
        tasks: list[Task] = []
        for indexes in together:
            views = {ref.into: _refine(block, ref, parents, indexes, given) for ref in block.refs}
            tasks.append(Task(block, indexes, views, path, slow, {}))
            if final is not None:
                final.update((name, view.data) for name, view in views.items())
        yield from _together(block, tasks)


def _groups(block: Block, domain: Domain) -> Iterator[list[dict[str, int]]]:
    """The points of the domain in order, in groups that advance together."""
    shared = _lockstep(block)
    if not shared:
        yield from ([point] for point in domain.points())
        return
    serial: dict[tuple[int, ...], list[dict[str, int]]] = {}
    for point in domain.points():
        serial.setdefault(tuple(v for n, v in point.items() if n not in shared), []).append(point)
    yield from serial.values()


def _lockstep(block: Block) -> frozenset[str]:
    """Indexes whose points advance together: bound to threads or lanes, or reduced over; only where it matters."""
    over = {name for statement in block.body if isinstance(statement, Reduce) for name in statement.over}
    bound = {index.name for index in block.indexes if index.bind in _PARALLEL}
    return frozenset(over | bound) if over or (bound and _has_barrier(block)) else frozenset()


_PARALLEL = (Bind.GROUP, Bind.SUBGROUP, Bind.LANE, Bind.VECTOR)


def _has_barrier(block: Block) -> bool:
    stack = [block]
    while stack:
        for statement in stack.pop().body:
            if isinstance(statement, Sync):
                return True
            if isinstance(statement, Block):
                stack.append(statement)
    return False


def _together(block: Block, tasks: list[Task]) -> Steps:
    """Advance the tasks of a group in turn, each to its next Reduce or Sync."""
    runs: list[tuple[Task, Steps]] = [(task, _run_body(task)) for task in tasks]
    answers: list[Any] = [None] * len(runs)
    while runs:
        stops = [_advance(steps, answer) for (_, steps), answer in zip(runs, answers, strict=True)]
        going = [(pair, stop) for pair, stop in zip(runs, stops, strict=True) if stop is not None]
        runs = [pair for pair, _ in going]
        if not going:
            return
        stop = going[0][1]
        if len(going) < len(stops) or any(other is not stop for _, other in going):
            raise runs[0][0].error("the threads of a group do not all reach the same barrier or reduction")
        if isinstance(stop, Reduce) and any(stop is statement for statement in block.body):
            answers = _combine(stop, [task for task, _ in runs])
        else:
            answers = [(yield stop)] * len(runs)


def _advance(steps: Steps, answer: Any) -> Reduce | Sync | None:
    try:
        return steps.send(answer)
    except StopIteration:
        return None


def _combine(reduce: Reduce, tasks: list[Task]) -> list[Any]:
    """What each task gets: the aggregate over the tasks that differ from it in the reduced indexes only."""
    keys = [tuple(v for n, v in task.indexes.items() if n not in reduce.over) for task in tasks]
    values: dict[tuple[int, ...], list[Any]] = {}
    for key, task in zip(keys, tasks, strict=True):
        values.setdefault(key, []).append(task.scalars[reduce.src])
    combined = {key: numerics.aggregate(reduce.agg, np.stack(items), 0) for key, items in values.items()}
    return [combined[key] for key in keys]


# --- views ---------------------------------------------------------------------------------------


def _refine(block: Block, ref: Refinement, parents: Views, indexes: Values, given: Mapping[str, Array]) -> View:
    rank = len(ref.type.sizes)
    if ref.dir is Direction.ALLOC:
        data = given.get(ref.into)
        shape = (ref.versions, *ref.type.sizes) if ref.versions > 1 else ref.type.sizes
        data = poison(ref.type.dtype, shape) if data is None else data
        return View(ref, data, (0,) * rank, (0,) * rank, ref.type.sizes, ref.versions > 1)
    parent = parents[ref.source]
    access = [form.evaluate(indexes) for form in ref.access]
    data = parent.data
    every = parent.versioned and ref.versions > 1
    if parent.versioned and not every:
        data = data[_version(block, ref, access, indexes) % data.shape[0], ...]
    origin = tuple(map(add, parent.origin, access[-rank:] if rank else ()))
    low = tuple(map(max, parent.low, origin))
    high = tuple(map(min, parent.high, map(add, origin, ref.type.sizes)))
    return View(ref, data, origin, low, high, every)


def _reshaped(block: Block, parents: Views) -> tuple[Block, Views]:
    """The block with each reshaping refinement turned into a plain one, of a parent's view of the new shape."""
    if not any(is_reshape(ref, parents[ref.source].ref) for ref in block.refs if ref.source):
        return block, parents
    extended, refs = dict(parents), list(block.refs)
    for number, ref in enumerate(block.refs):
        if ref.source and is_reshape(ref, parents[ref.source].ref):
            rank, name = len(ref.type.sizes), f"{ref.source} as {ref.into}"
            data = _in_shape(parents[ref.source], ref.type)
            if data is None:
                raise StripeError(f"{ref.into} cannot be a view of {ref.source} in another shape", (block.name,))
            extended[name] = View(ref, data, (0,) * rank, (0,) * rank, ref.type.sizes)
            refs[number] = replace(ref, source=name)
    return replace(block, refs=tuple(refs)), extended


def _one_copy_each(block: Block, parents: Views, domain: Domain) -> tuple[Block, Views]:
    """The block with each refinement of one copy, the same for all points, turned into one of that copy alone."""
    if not any(parents[ref.source].versioned for ref in block.refs if ref.source):
        return block, parents
    fixed = {n: v for n, size, v in zip(domain.names, domain.ranges, domain.first, strict=True) if size == 1}
    extended, refs = dict(parents), list(block.refs)
    for number, ref in enumerate(block.refs):
        rank = len(ref.type.sizes)
        parent = parents[ref.source] if ref.source else None
        if parent is None or not parent.versioned or ref.versions > 1 or len(ref.access) <= rank:
            continue
        copy, *access = ref.access
        if fixed.keys() >= set(copy.names):
            name = f"{ref.source} as {ref.into}"
            data = parent.data[copy.evaluate(fixed) % parent.data.shape[0], ...]
            extended[name] = replace(parent, data=data, versioned=False)
            refs[number] = replace(ref, source=name, access=tuple(access))
    return replace(block, refs=tuple(refs)), extended


def _in_shape(view: View, type: TensorType) -> Array | None:
    """The same memory as another type says; None where not all of the view is there, or in one order."""
    sizes = zip(view.origin, view.ref.type.sizes, strict=True)
    part = view.data[tuple(slice(start, start + size) for start, size in sizes)] if not view.versioned else view.data
    if type.dtype not in (view.ref.type.dtype, view.ref.acc):
        part = part.reshape(-1).view(type.dtype.numpy)
    same = part.reshape(type.sizes) if part.size == prod(type.sizes) else None
    return same if same is not None and (not part.size or np.shares_memory(same, part)) else None


def _version(block: Block, ref: Refinement, access: list[int], indexes: Values) -> int:
    if len(access) > len(ref.type.sizes):
        return access[0]
    return next((indexes[i.name] for i in block.indexes if i.order is Order.ORDERED), 0)


def _needs_acc(ref: Refinement, parents: Views) -> bool:
    return bool(ref.source) and ref.acc is not None and ref.acc is not parents[ref.source].dtype


def _widened(view: View, ref: Refinement) -> View:
    assert ref.acc is not None
    return replace(view, data=numerics.cast_array(view.data, ref.acc))


def _fill_identity(ref: Refinement, parents: Views, domain: Domain) -> None:
    assert ref.agg is not None
    parent = parents[ref.source]
    identity = numerics.identity(ref.agg, parent.dtype)
    rank = len(ref.type.sizes)
    for access in domain.distinct(ref.access):
        data, origin = parent.data, access[len(access) - rank :]
        low = [max(lo, po + o) for lo, po, o in zip(parent.low, parent.origin, origin, strict=True)]
        ends = [po + o + size for po, o, size in zip(parent.origin, origin, ref.type.sizes, strict=True)]
        box = tuple(slice(lo, max(lo, min(hi, e))) for lo, hi, e in zip(low, parent.high, ends, strict=True))
        if parent.versioned:
            # Without a form that selects a copy, iterations may use any of them.
            copies = slice(None) if len(access) == rank else access[0] % data.shape[0]
            box = (copies, *box)
        data[box] = identity


# --- statements ----------------------------------------------------------------------------------


def _run_body(task: Task) -> Steps:
    for statement in task.block.body:
        match statement:
            case Load(dst) | Const(dst) | LoadIndex(dst) | Op(dst):
                task.scalars[dst] = _value(task, statement)
            case Store(dst, src, at, clamp):
                view = _own(task.views[dst])
                _merge(view, _element(task, view, at, clamp), task.scalars[src])
            case Block():
                yield from _run_block(statement, task.indexes, task.views, task.path, task.slow)
            case Reduce(dst):
                task.scalars[dst] = yield statement
            case Sync():
                yield statement
            case Transfer(dst, src, where=where):
                there = all(form.evaluate(task.indexes) >= 0 for form in where)
                _transfer(task, _own(task.views[dst]), _own(task.views[src]) if there else None)
            case Wait():
                pass
            case Special(name):
                raise task.error(f"special {name!r} has no meaning that could be interpreted")


def _value(task: Task, statement: Load | Const | LoadIndex | Op) -> Any:
    match statement:
        case Load(_, src, at, clamp):
            view = _own(task.views[src])
            return view.data[_element(task, view, at, clamp)]
        case Const(_, value, dtype):
            return numerics.cast_array(value, dtype)
        case LoadIndex(_, value, dtype):
            return numerics.cast_array(np.int64(value.evaluate(task.indexes)), dtype)
        case Op(_, name, args, dtype):
            return numerics.apply(name, [task.scalars[arg] for arg in args], dtype)


def _own(view: View) -> View:
    """The copy that statements of the allocation's own block use."""
    return replace(view, data=view.data[0, ...], versioned=False) if view.versioned else view


def _element(task: Task, view: View, at: tuple[Quasi | str, ...], clamp: bool) -> tuple[int, ...]:
    """Position in the buffer of subscripts within a view; StripeError when outside the view or the buffer."""
    subscripts = [int(task.scalars[a]) if isinstance(a, str) else a.evaluate(task.indexes) for a in at]
    sizes = view.ref.type.sizes
    if clamp:
        subscripts = [min(max(s, 0), size - 1) for s, size in zip(subscripts, sizes, strict=True)]
    position = tuple(map(add, view.origin, subscripts)) if subscripts else view.origin
    if not (all(map(le, view.low, position)) and all(map(lt, position, view.high))):
        limits = ", ".join(f"{low}:{high}" for low, high in zip(view.low, view.high, strict=True))
        raise task.error(f"{view.ref.into} is accessed at element {list(position)} of its buffer, outside [{limits}]")
    return position


def _merge(view: View, position: tuple[int, ...], value: Any) -> None:
    agg = view.ref.agg
    view.data[position] = numerics.merge(agg, view.data[position], value, view.dtype)


def _transfer(task: Task, dst: View, src: View | None) -> None:
    """`src` to `dst`; zeros without a source."""
    boxes: list[tuple[slice, ...]] = []
    for view in (dst, src) if src is not None else (dst,):
        ends = tuple(o + s for o, s in zip(view.origin, view.ref.type.sizes, strict=True))
        if (view.low, view.high) != (view.origin, ends) and 0 not in view.ref.type.sizes:
            raise task.error(f"the transfer's view {view.ref.into} reaches outside its buffer or its parent's view")
        boxes.append(tuple(slice(o, e) for o, e in zip(view.origin, ends, strict=True)))
    old = dst.data[boxes[0]]
    values = np.zeros_like(old) if src is None else src.data[boxes[1]].reshape(old.shape).copy()
    dst.data[boxes[0]] = numerics.merge(dst.ref.agg, old, values, dst.dtype)
