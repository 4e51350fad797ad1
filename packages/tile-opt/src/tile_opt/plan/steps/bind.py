"""Deciding what runs a stage's loops: unrolled code, vector lanes, work items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tile_ir.frozen import frozen, replace
from tile_ir.stripe.nodes import Bind, Index, Order

from tile_opt.kernel.view import Stage, Use
from tile_opt.plan.tree import Around

MAX_DECIDED = 16
"""Iterations of a loop that is unrolled so that a constraint on it is decided while compiling."""


@frozen
class Binding:
    """What runs a loop; `lanes` is the width of a vector register in elements."""

    bind: Bind
    lanes: int = 1
    axis: int = 0


def bind(stage: Stage, bindings: Mapping[str, Binding], order: Sequence[str]) -> Stage:
    """The stage's loops in `order` (others first, as they were) and bound; vectors shrink to short loops.

    Where lanes are masked, what is unrolled to decide other constraints is innermost of the others: it shares the masks.
    """
    rank = {name: k for k, name in enumerate(order)}
    decided = _decided(stage, bindings)
    if _is_masked(stage, bindings) and all(i.order is Order.FREE for i in stage.loops):
        rank = dict.fromkeys(decided, -1) | rank
    loops = tuple(sorted(stage.loops, key=lambda i: rank.get(i.name, -2)))
    return replace(stage, loops=tuple(_bound(i, bindings.get(i.name, decided.get(i.name))) for i in loops))


def across(stage: Stage, bindings: Mapping[str, Binding], around: Around) -> Mapping[str, Binding]:
    """The bindings with the vector loop and an unrolled one exchanged, where the stage's memory runs along the latter.

    Lanes have no order, so an ordered loop stays unrolled.
    """
    bound = [i for i in stage.loops if i.name in bindings]
    vectors = [i for i in bound if bindings[i.name].bind is Bind.VECTOR]
    free = [i for i in bound if i.order is not Order.ORDERED and i.range > 1]
    unrolled = [i for i in free if bindings[i.name].bind is Bind.UNROLL]
    if len(vectors) != 1 or not unrolled or interleaved(stage, bindings, around) or apart(stage, bindings, around):
        return bindings
    (vector,) = vectors
    best = min(unrolled, key=lambda i: scattered(stage, i.name, around))
    if scattered(stage, best.name, around) >= scattered(stage, vector.name, around):
        return bindings
    lanes = bindings[vector.name].lanes
    return {**bindings, best.name: Binding(Bind.VECTOR, lanes), vector.name: Binding(Bind.UNROLL)}


def interleaved(stage: Stage, bindings: Mapping[str, Binding], around: Around) -> bool:
    """An unrolled loop fills the gaps between lanes that are written; they are read as they lie.

    Where memory is written they may be read with the same gaps, too: registers take rows as they are.
    """
    found = _two_loops(stage, bindings)
    if found is None:
        return False
    vector, short = found
    strides = [(u, around.stride(u, vector), around.stride(u, short.name)) for u in stage.uses]
    kept = any(u.writes and around.in_registers(u.buffer) for u in stage.uses)
    near = (0, 1) if kept else (0, 1, short.range)
    return all((lane, step) == (short.range, 1) if u.writes else lane in near for u, lane, step in strides)


def apart(stage: Stage, bindings: Mapping[str, Binding], around: Around) -> bool:
    """An unrolled loop reads what is in the gaps between lanes, and registers take each of its steps as vectors."""
    found = _two_loops(stage, bindings)
    if found is None:
        return False
    vector, short = found
    wide = [u for u in stage.uses if not u.writes and around.stride(u, vector) not in (0, 1)]
    fills = all((around.stride(u, vector), around.stride(u, short.name)) == (short.range, 1) for u in wide)
    kept = all(around.in_registers(u.buffer) and around.stride(u, vector) == 1 for u in stage.uses if u.writes)
    return bool(wide) and fills and kept


def _two_loops(stage: Stage, bindings: Mapping[str, Binding]) -> tuple[str, Index] | None:
    """The loop along lanes, and the one that is unrolled."""
    bound = [(i, bindings[i.name].bind) for i in stage.loops if i.name in bindings]
    vector = next((i.name for i, how in bound if how is Bind.VECTOR), None)
    unrolled = [i for i, how in bound if how is Bind.UNROLL and i.range > 1]
    return (vector, unrolled[0]) if vector is not None and len(unrolled) == 1 else None


def scattered(stage: Stage, loop: str, around: Around) -> int:
    """Accesses to memory whose neighbours along a loop lie apart."""
    uses = (u for u in stage.uses if not around.in_registers(u.buffer))
    return sum(around.stride(u, loop) not in (0, 1) for u in uses)


def _bound(index: Index, binding: Binding | None) -> Index:
    if binding is None:
        return index
    lanes = 1
    if binding.bind is Bind.VECTOR:
        lanes = binding.lanes if index.range % binding.lanes == 0 else index.range
    return replace(index, bind=binding.bind, lanes=lanes, axis=binding.axis)


def _is_masked(stage: Stage, bindings: Mapping[str, Binding]) -> bool:
    """Steps of the stage's other loops decide which lanes take part."""
    vectors = {n for n, binding in bindings.items() if binding.bind is Bind.VECTOR}
    return any(vectors.intersection(c.names) for c in stage.constraints)


def _decided(stage: Stage, bindings: Mapping[str, Binding]) -> dict[str, Binding]:
    """Short loops that meet an unrolled one in a constraint: unrolling both decides it while compiling."""
    unrolled = {i.name for i in stage.loops if i.name in bindings and bindings[i.name].bind is Bind.UNROLL}
    met = {n for c in stage.constraints if unrolled.intersection(c.names) for n in c.names}
    short = {i.name for i in stage.loops if i.range <= MAX_DECIDED}
    return {n: Binding(Bind.UNROLL) for n in met & short if n not in bindings}


LINE = 64
"""Bytes: a line that is written in parts, at different times, goes to memory once for each part."""
VECTOR = (LINE // 2, LINE)
"""Bytes of vectors of which one, or two, are written to a line."""
LONG = 16
"""Lines in sequence from which on the parts at both ends do not count."""


def lines_filled(stage: Stage, around: Around) -> Stage:
    """The stage without the hint to stream past the caches what it writes where lines stay half written."""
    uses = tuple(replace(u, hint=_hint(u, stage, around)) if u.hint and u.writes else u for u in stage.uses)
    return stage if uses == stage.uses else replace(stage, uses=uses)


def _hint(use: Use, stage: Stage, around: Around) -> str:
    """To stream what the innermost loops write in sequence: it is long, or is whole lines wherever the other loops are.

    Where they write a vector in each of many rows, and go on along the rows later, lines of these are fetched before.
    """
    ranges = {n: high + 1 for n, (_, high) in around.ranges.items()} | {i.name: i.range for i in stage.loops}
    strides = [(around.stride(use, n), count) for n, count in reversed(ranges.items()) if count > 1]
    run, width = 1, around.buffers[use.buffer].type.dtype.bytes
    while strides and strides[0][0] in (0, run):
        stride, count = strides.pop(0)
        run *= count if stride else 1
    rest = [stride for stride, _ in strides]
    if run * width >= LONG * LINE or all(stride * width % LINE == 0 for stride in (run, *rest)):
        return use.hint
    return "prefetch" if run * width in VECTOR and run in rest else ""
