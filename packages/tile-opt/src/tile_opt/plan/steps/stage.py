"""Local copies: of what a nest reads of an operand, and of the cells that it aggregates into."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from tile_ir.dtype import DType
from tile_ir.frozen import frozen, replace
from tile_ir.names import claim
from tile_ir.ops import Aggregation
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Const, Direction, Index, Load, Location, Refinement, Store, TensorType

from tile_opt.kernel.strides import limits_inside
from tile_opt.kernel.unify import is_indirect
from tile_opt.kernel.view import Stage, Use
from tile_opt.plan.tree import ARRAY, REGISTER, Around, Nest, Ranges, map_stages, spans, stages_of


@frozen
class Copy:
    """A copy called `name` of what a nest reads of a buffer.

    `order` names the loops of the copy's dimensions, outermost first: the copy has an element per iteration of them.
    Without it the copy has the operand's own dimensions, and holds the box that the nest touches.
    """

    operand: str
    name: str
    order: tuple[str, ...] = ()
    place: Location = ARRAY
    pad: int = 0
    """Elements between rows of the last dimension."""
    inside: bool = False
    """The nest's constraints keep what is read within the operand; otherwise the copy makes sure of that itself."""
    zeros: bool = False
    """What is read outside the operand is 0."""


def stage_input(nest: Nest, copy: Copy, around: Around) -> Nest:
    """`nest` reading a copy that is made in front of it; `nest` itself where it reads nothing of that kind."""
    found = _packed(nest, copy, around) if copy.order else _boxed(nest, copy, around)
    if found is None:
        return nest
    stage, alloc, moved = found
    zeros = tuple(_zeros(stage, set(stage.constraints) - set(nest.constraints))) if copy.zeros else ()
    return Nest(nest.name, body=(*zeros, stage, replace(moved, guard=())), guard=nest.guard, allocs=(alloc,))


def _zeros(copy: Stage, limits: Set[Affine]) -> Iterator[Stage]:
    """Zeros wherever one of the limits keeps a copy within its operand."""
    target = next(u for u in copy.uses if u.writes)
    body = (Const("$z", 0, DType.INT32), Store(target.name, "$z"))
    for k, limit in enumerate(c for c in copy.constraints if c in limits):
        name, beyond = f"{copy.name}_{k}_zeros", limit * -1 - 1
        yield replace(copy, name=name, constraints=(beyond,), uses=(target,), body=body)


def _uses(nest: Nest, buffer: str) -> Iterator[tuple[Stage, Use]]:
    for stage in stages_of(nest):
        for use in stage.uses:
            if use.buffer == buffer and use.reads and not use.writes and not (use.extent or is_indirect(stage, use)):
                yield stage, use


def _redirected(nest: Nest, of: str, forms: dict[tuple[Affine, ...], tuple[Affine, ...]], to: str) -> Nest:
    """The uses of a buffer with the given subscripts, to a copy."""

    def moved(use: Use) -> Use:
        mine = use.buffer == of and use.reads and not use.writes and use.forms in forms
        return replace(use, buffer=to, forms=forms[use.forms]) if mine else use

    return map_stages(nest, lambda s: s.map_uses(moved))


def _packed(nest: Nest, copy: Copy, around: Around) -> tuple[Stage, Refinement, Nest] | None:
    """A copy with a dimension per loop; stages that walk the same elements by loops of their own read it, too."""
    for stage, use in _uses(nest, copy.operand):
        inner = {i.name: i for i in (*nest.loops, *stage.loops)}
        if {n for f in use.forms for n in f.names if n in inner} == set(copy.order):
            loops = tuple(replace(inner[n], name=n) for n in copy.order)
            cell = tuple(Affine.var(n) for n in copy.order)
            alloc = _alloc(copy, around.buffers[copy.operand].type, tuple(i.range for i in loops))
            made = _copy_stage(copy, loops, use.forms, cell, around, _limits(nest, loops, around))
            forms = {
                u.forms: c for s, u in _uses(nest, copy.operand) if (c := _cell(use, cell, stage, u, s)) is not None
            }
            return made, alloc, _redirected(nest, copy.operand, forms, copy.name)
    return None


def _cell(use: Use, cell: tuple[Affine, ...], stage: Stage, other: Use, by: Stage) -> tuple[Affine, ...] | None:
    """The subscripts in the copy of what another stage reads; None where its loops do not walk as those of `stage` do."""
    if other.forms == use.forms:
        return cell
    alike = _alike(stage, by)
    return tuple(c.substitute(alike) for c in cell) if walked_alike(use, stage, other, by) else None


def walked_alike(use: Use, stage: Stage, other: Use, by: Stage) -> bool:
    """Two stages touch the same elements of a buffer in the same iterations of their loops, whatever these are called."""
    alike = _alike(stage, by)
    return other.forms == use.forms or tuple(f.substitute(alike) for f in use.forms) == other.forms


def _alike(stage: Stage, other: Stage) -> dict[str, Affine]:
    """Loops of one stage as those in the same place of the other."""
    pairs = zip(stage.loops, other.loops, strict=False)
    return {a.name: Affine.var(b.name) for a, b in pairs if a.range == b.range}


def _boxed(nest: Nest, copy: Copy, around: Around) -> tuple[Stage, Refinement, Nest] | None:
    """A copy of the box that all uses with the same place in the outer loops touch together."""
    found = [(s, u, spans((*nest.loops, *s.loops))) for s, u in _uses(nest, copy.operand)]
    if not found:
        return None
    origins = {tuple(_outside(f, r) for f in u.forms) for _, u, r in found}
    if len(origins) > 1:
        return None
    (origin,) = origins
    rank = range(len(origin))
    bounds = [[(u.forms[d] - origin[d]).bounds(r) for _, u, r in found] for d in rank]
    low = [min(b[0] for b in bounds[d]) for d in rank]
    sizes = tuple(max(b[1] for b in bounds[d]) - low[d] + 1 for d in rank)
    start = tuple(origin[d] + low[d] for d in rank)
    taken = {*around.ranges, *nest.loop_names}
    reached = _reached(nest, [(tuple(f - s for f, s in zip(u.forms, start, strict=True)), r) for _, u, r in found])
    loops = tuple(Index(claim(f"{copy.name}_{d}", taken), size) for d, size in enumerate(reached) if size > 1)
    names = iter(loops)
    cell = tuple(Affine.var(next(names).name) if size > 1 else Affine() for size in reached)
    alloc = _alloc(copy, around.buffers[copy.operand].type, sizes)
    made = _copy_stage(copy, loops, tuple(a + b for a, b in zip(start, cell, strict=True)), cell, around)
    forms = {u.forms: tuple(f - s for f, s in zip(u.forms, start, strict=True)) for _, u, _ in found}
    return made, alloc, _redirected(nest, copy.operand, forms, copy.name)


def _reached(nest: Nest, uses: Sequence[tuple[tuple[Affine, ...], Ranges]]) -> tuple[int, ...]:
    """Elements from the box's first one that are read, per dimension: what a masked last vector leaves out may hold nothing."""
    most = [
        [form.bounds({n: _within(nest, n, r) for n, r in ranges.items()})[1] + 1 for form in forms]
        for forms, ranges in uses
    ]
    return tuple(max(1, *sizes) for sizes in zip(*most, strict=True))


def _within(nest: Nest, loop: str, span: tuple[int, int]) -> tuple[int, int]:
    """What constraints on one loop alone leave of its interval."""
    low, high = span
    for constraint in nest.constraints:
        if constraint.names == (loop,) and constraint.coefficient(loop) < 0:
            high = min(high, constraint.const // -constraint.coefficient(loop))
    return low, max(low, high)


def _outside(form: Affine, inner: dict[str, tuple[int, int]]) -> Affine:
    """The part of a form over the loops around the nest."""
    return Affine(tuple((n, c) for n, c in form.terms if n not in inner))


def _alloc(copy: Copy, whole: TensorType, sizes: tuple[int, ...]) -> Refinement:
    rows = (*sizes[:-1], sizes[-1] + copy.pad) if sizes else sizes
    type = replace(TensorType.row_major(whole.dtype, rows, align=64), sizes=sizes)
    return Refinement.allocation(copy.name, type, copy.place)


def _copy_stage(
    copy: Copy,
    loops: tuple[Index, ...],
    source: tuple[Affine, ...],
    target: tuple[Affine, ...],
    around: Around,
    limits: tuple[Affine, ...] = (),
) -> Stage:
    """The copy, of what lies inside the operand."""
    if not copy.inside:
        limits = _inside(copy.operand, source, loops, around, limits)
    ends = Use("src", copy.operand, source, Direction.IN), Use("dst", copy.name, target, Direction.OUT)
    return Stage.copy(f"{copy.name}_copy", loops, *ends, limits)


def _inside(
    buffer: str, forms: tuple[Affine, ...], loops: tuple[Index, ...], around: Around, limits: tuple[Affine, ...]
) -> tuple[Affine, ...]:
    """The limits, and what else keeps an access inside its buffer."""
    extents = {n: high + 1 for n, (_, high) in around.ranges.items()} | {i.name: i.range for i in loops}
    more = limits_inside(forms, around.buffers[buffer].type.sizes, extents)
    return (*limits, *(c for c in more if c not in limits))


def is_copy(stage: Stage) -> bool:
    """The stage only moves elements."""
    match stage.body:
        case (Load(value, source, ()), Store(target, stored, ())):
            return value == stored and source != target and stage.use(target).agg is None
        case _:
            return False


def _limits(nest: Nest, loops: tuple[Index, ...], around: Around) -> tuple[Affine, ...]:
    """The constraints of a nest that some of its loops decide alone."""
    known = {*around.ranges, *(i.name for i in loops)}
    return tuple(c for c in nest.constraints if known.issuperset(c.names))


# --- results ------------------------------------------------------------------------------------------


def stage_output(nest: Nest, copy: Copy, around: Around) -> Nest:
    """`nest` writing a copy with a dimension per loop of `copy.order`, from which its cells are stored after it.

    The copy is read at once, so only what stores its cells may pass the caches by. `nest` itself where it does not set each
    of them once, by these loops.
    """
    found = [(s, u) for s in stages_of(nest) for u in s.uses if u.buffer == copy.operand]
    if len(found) != 1:
        return nest
    ((stage, use),) = found
    inner = {i.name: i for i in (*nest.loops, *stage.loops)}
    moved_by = {n for f in use.forms for n in f.names if n in inner}
    plain = use.dir is Direction.OUT and use.agg in (None, Aggregation.ASSIGN) and not use.extent
    if not plain or stage.constraints or stage.guard or is_indirect(stage, use) or moved_by != set(copy.order):
        return nest
    loops = tuple(inner[n] for n in copy.order)
    cell = tuple(Affine.var(n) for n in copy.order)
    alloc = _alloc(copy, around.buffers[copy.operand].type, tuple(i.range for i in loops))
    source, target = Use("src", copy.name, cell, Direction.IN), replace(use, name="dst", agg=None)
    last = Stage.copy(f"{copy.name}_store", loops, source, target, _limits(nest, loops, around))
    into = replace(use, buffer=copy.name, forms=cell, hint="")
    made = map_stages(nest, lambda s: s.map_uses(lambda u: into if u is use else u))
    return Nest(nest.name, body=(replace(made, guard=()), last), guard=nest.guard, allocs=(alloc,))


# --- accumulators ------------------------------------------------------------------------------------


def stage_sums(nest: Nest, buffer: str, name: str, around: Around, place: Location = REGISTER) -> Nest:
    """`nest` aggregating into cells of its own, started at the identity in front of it and merged into `buffer` after it.

    `nest` itself where it does not aggregate into the buffer.
    """
    found = [(s, u) for s in stages_of(nest) for u in s.uses if u.buffer == buffer and u.writes]
    if not found or any(u.extent or is_indirect(s, u) for s, u in found):
        return nest
    stage, use = found[0]
    agg = use.agg
    if agg is None or agg is Aggregation.ASSIGN:
        return nest
    assert all(u.forms == use.forms for _, u in found), f"{nest.name} aggregates into several places of {buffer}"
    inner = {i.name: i for i in (*nest.loops, *stage.loops)}
    loops = tuple(i for i in inner.values() if any(i.name in f.names for f in use.forms))
    cell = tuple(Affine.var(i.name) for i in loops)
    sizes = tuple(i.range for i in loops)
    dtype = around.buffers[buffer].type.dtype
    alloc = Refinement.allocation(name, TensorType.row_major(dtype, sizes, align=64), place)
    limits = _inside(buffer, use.forms, loops, around, _limits(nest, loops, around))
    held = Use("acc", name, cell, Direction.IN)
    moved = map_stages(nest, lambda s: s.map_uses(lambda u: _moved(u, buffer, name, cell)))
    first = Stage.start(f"{name}_start", loops, held, agg, dtype)
    last = Stage.copy(f"{name}_merge", loops, held, replace(use, name="out"), limits, "$a")
    return Nest(nest.name, body=(first, replace(moved, guard=()), last), guard=nest.guard, allocs=(alloc,))


def _moved(use: Use, buffer: str, name: str, cell: Sequence[Affine]) -> Use:
    return replace(use, buffer=name, forms=tuple(cell), hint="") if use.buffer == buffer and use.writes else use
