"""A kernel with a prefix aggregation, and the stages that compute it with a carried value."""

from __future__ import annotations

from collections.abc import Sequence

from tile_ir.frozen import frozen, replace
from tile_ir.names import claim
from tile_ir.ops import Aggregation
from tile_ir.stripe.affine import Affine, names_in
from tile_ir.stripe.nodes import Const, Direction, Index, Load, Op, Order, Refinement, Statement, Store, TensorType

from tile_opt.kernel.merge_stages import concatenated, without_buffers
from tile_opt.kernel.scan import Scan, find_scan
from tile_opt.kernel.strides import has_all_cells
from tile_opt.kernel.unify import plain_loop
from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.kernel.work import is_elementwise, merged_use

Loops = tuple[Index, ...]


@frozen
class Prefix:
    """A stage of a kernel that is a prefix aggregation, and what stands around it."""

    view: KernelView
    stage: Stage
    scan: Scan
    out: Use
    agg: Aggregation
    front: tuple[Stage, ...]
    """Stages before it, less what only started its cells."""
    finish: Stage | None
    """An elementwise stage that makes the results from cells that nothing else reads."""
    rest: tuple[Stage, ...]
    """Stages after it and `finish`."""

    @property
    def whole(self) -> TensorType:
        """The type of the buffer with the cells."""
        return self.view.type_of(self.out.buffer)

    @property
    def rows(self) -> Loops:
        """Loops over scans that run side by side."""
        named = names_in(self.out.forms)
        return tuple(i for i in self.stage.loops if i.name in named and i.name != self.scan.cell.name)

    def along(self, loop: Index) -> Loops:
        """The rows, with a loop in the place of that over cells: partial results lie in memory as the cells do."""
        rows = self.rows
        return tuple(loop if i is self.scan.cell else i for i in self.stage.loops if i is self.scan.cell or i in rows)

    @property
    def reduced(self) -> Loops:
        """Loops whose iterations make up one element."""
        kept = {i.name for i in (*self.rows, self.scan.cell, self.scan.element)}
        return tuple(i for i in self.stage.loops if i.name not in kept)

    @property
    def is_plain(self) -> bool:
        """Each cell takes in one iteration, or all cells hold the same: no partial aggregates are wanted in front."""
        return self.scan.stride == 0 or (self.scan.stride == 1 and not self.reduced and not self.scan.constraints)

    @property
    def is_ready(self) -> bool:
        """What its elements are made from is there before the kernel begins: other kernels may read it."""
        made = {u.buffer for s in self.front for u in s.uses if u.writes}
        return made.isdisjoint(u.buffer for u in self.stage.uses if u is not self.out)

    @property
    def steps(self) -> int:
        """Cells that take in an element of their own; those after them hold the same as the last of these."""
        return max(0, min(self.scan.cells, self.scan.elements - self.scan.ahead)) if self.scan.stride else 0

    def partial(self, wanted: str, taken: set[str], loops: Loops) -> Refinement:
        """An allocation of partial results, one for each iteration of the loops."""
        sizes = tuple(i.range for i in loops) or (1,)
        type = TensorType.row_major(self.whole.dtype, sizes, align=64)
        return Refinement.allocation(claim(wanted, taken), type)

    def cell(self, position: Affine) -> Use:
        """The access to one cell."""
        return replace(self.out.substitute(self.scan.at(position, Affine())), dir=Direction.OUT, agg=None)


def find_prefix(view: KernelView) -> Prefix | None:
    """The first prefix aggregation of a kernel whose loops are all in its stages."""
    for number, stage in enumerate(view.stages if not view.loops else ()):
        scan, out = find_scan(stage), merged_use(stage)
        if scan is not None and out is not None and out.agg is not None:
            found = Prefix(view, stage, scan, out, out.agg, view.stages[:number], None, view.stages[number + 1 :])
            fill = _fill(found) if _has_all_rows(found) else None
            if fill is not None:
                return _finished(_without(found, fill))
    return None


# --- what stands around the scan -------------------------------------------------------------------


def _has_all_rows(prefix: Prefix) -> bool:
    """Every iteration of the rows' loops has cells of its own: the last value of each is copied to them."""
    rows = {i.name for i in prefix.rows}
    limited = any(rows.issuperset(c.names) for c in prefix.scan.constraints)
    return not limited and has_all_cells(prefix.out, prefix.whole.sizes, {i.name: i.range for i in prefix.stage.loops})


def _fill(prefix: Prefix) -> Stage | None:
    """The stage that starts all cells at the identity, when nothing but it touches them before the scan."""
    touching = [s for s in prefix.front if any(u.buffer == prefix.out.buffer for u in s.uses)]
    if len(touching) != 1 or len(touching[0].uses) != 1 or touching[0].constraints:
        return None
    (fill,) = touching
    (use,) = fill.uses
    pairs = zip(use.forms, prefix.whole.sizes, strict=True)
    if use.dir is not Direction.OUT or any(s != 1 and plain_loop(f, fill, s) is None for f, s in pairs):
        return None
    match fill.body:
        case (Const(_, value), Store()) if value == prefix.agg.identity(prefix.whole.dtype):
            return fill
        case _:
            return None


def _without(prefix: Prefix, fill: Stage) -> Prefix:
    """`prefix` without the part of `fill` that the scan overwrites."""
    k = prefix.front.index(fill)
    return replace(prefix, front=(*prefix.front[:k], *_uncovered(prefix, fill), *prefix.front[k + 1 :]))


def _uncovered(prefix: Prefix, fill: Stage) -> tuple[Stage, ...]:
    sizes, forms = prefix.whole.sizes, prefix.out.forms
    dim = next(d for d, f in enumerate(forms) if prefix.scan.cell.name in f.names)
    rows = [
        plain_loop(f, prefix.stage, s) for d, (f, s) in enumerate(zip(forms, sizes, strict=True)) if d != dim and s != 1
    ]
    # A loop that walks two dimensions reaches their diagonal only.
    if None in rows or len(set(rows)) < len(rows) or sizes[dim] == 1:
        return (fill,)
    ends = [prefix.cell(Affine((), at)).forms[dim].const for at in (0, prefix.scan.cells - 1)]
    if max(ends) - min(ends) != prefix.scan.cells - 1:
        return (fill,)
    parts = (_part(fill, dim, 0, min(ends)), _part(fill, dim, max(ends) + 1, sizes[dim]))
    return tuple(p for p in parts if p is not None)


def _part(fill: Stage, dim: int, start: int, stop: int) -> Stage | None:
    """`fill` for the cells start to stop - 1 of a dimension."""
    if start >= stop:
        return None
    (name,) = fill.uses[0].forms[dim].names
    loops = tuple(replace(i, range=stop - start) if i.name == name else i for i in fill.loops)
    return replace(fill.substitute({name: Affine.var(name) + start}), name=f"{fill.name}_{start}", loops=loops)


def _finished(prefix: Prefix) -> Prefix:
    """`prefix` with its `finish`, where the next stage is one."""
    buffer, rest = prefix.out.buffer, prefix.rest
    if not (rest and prefix.view.is_local(buffer) and _finishes(prefix, rest[0])):
        return prefix
    if any(u.buffer == buffer for s in (*prefix.front, *rest[1:]) for u in s.uses):
        return prefix
    return replace(prefix, finish=rest[0], rest=rest[1:])


def _finishes(prefix: Prefix, stage: Stage) -> bool:
    """The stage visits each cell once and reads it there."""
    if not is_elementwise(stage) or stage.constraints or stage.guard:
        return False
    if any(s.at for s in stage.body if isinstance(s, Load | Store)):
        return False
    reads = [u for u in stage.uses if u.buffer == prefix.out.buffer]
    if len(reads) != 1 or reads[0].writes:
        return False
    sizes = prefix.whole.sizes
    named = [plain_loop(f, stage, s) for f, s in zip(reads[0].forms, sizes, strict=True) if s != 1]
    return None not in named and len(set(named)) == len(named) == len(stage.loops)


# --- its stages ------------------------------------------------------------------------------------


def cells(loops: Loops) -> tuple[Affine, ...]:
    """Subscripts of a `Prefix.partial` over these loops."""
    return tuple(Affine.var(i.name) for i in loops) or (Affine(),)


def partial_use(buffer: Refinement, forms: Sequence[Affine]) -> Use:
    """An access to partial results."""
    return Use("acc", buffer.into, tuple(forms), Direction.INOUT)


def position(loops: Loops) -> Affine:
    """The value of the only loop; 0 where there is none."""
    return Affine.var(loops[0].name) if loops else Affine()


def free(loop: Index, count: int) -> Loops:
    return (replace(loop, range=count),) if count > 1 else ()


def ordered(loop: Index, count: int) -> Loops:
    """The loop over `count` steps, one after the other."""
    return (replace(loop, range=count, order=Order.ORDERED),) if count > 1 else ()


def started(name: str, prefix: Prefix, into: Use, loops: Loops) -> Stage:
    """Store the aggregation's identity."""
    dtype = prefix.whole.dtype
    start = Const("$z", dtype.number(prefix.agg.identity(dtype)), dtype)
    return Stage(name, loops, (), (replace(into, dir=Direction.OUT),), (start, Store(into.name, "$z")))


def copied(name: str, source: Use, target: Use, loops: Loops) -> Stage:
    """``target = source``."""
    target = replace(target, name="dst", dir=Direction.OUT, agg=None)
    return Stage.copy(name, loops, replace(source, name="src", dir=Direction.IN), target)


def gathered(name: str, prefix: Prefix, element: Affine, into: Use, loops: Loops) -> Stage:
    """Aggregate elements into partial results, as far as their constraints say that they count."""
    moved = prefix.stage.substitute(prefix.scan.at(Affine(), element))
    target = replace(into, name=prefix.out.name, dir=Direction.INOUT, agg=prefix.agg)
    uses = tuple(target if u.name == prefix.out.name else u for u in moved.uses)
    return replace(moved, name=name, loops=loops, uses=uses, constraints=prefix.scan.limits(element))


def carried(prefix: Prefix, at: Affine, carry: Use, loops: Loops, inside: tuple[Affine, ...] = ()) -> Stage:
    """Step `at` takes its element into the carried value, and stores that to its cell."""
    moved = prefix.stage.substitute(prefix.scan.at(at, at + prefix.scan.ahead))
    name = claim("carry", {u.name for u in moved.uses})
    out = replace(prefix.cell(at), name=prefix.out.name)
    uses = tuple(out if u.name == out.name else u for u in moved.uses)
    uses += (replace(carry, name=name, dir=Direction.INOUT, agg=None),)
    stage = replace(moved, name="scan", loops=loops, uses=uses, body=_carrying(prefix, moved, name), constraints=inside)
    return completed(prefix, stage)


def _carrying(prefix: Prefix, stage: Stage, carry: str) -> tuple[Statement, ...]:
    scalars = {s.dst for s in stage.body if isinstance(s, Load | Op | Const)}
    old, new = claim("$old", scalars), claim("$new", scalars)
    *body, store = stage.body
    assert isinstance(store, Store)
    taken_in = Op(new, prefix.agg.value, (old, store.src), prefix.whole.dtype)
    return (*body, Load(old, carry), taken_in, Store(carry, new), replace(store, src=new, deps=()))


def taken_in(prefix: Prefix, carry: Use, element: Use, loops: Loops) -> Stage:
    """The carried value takes in one element."""
    new = Op("$new", prefix.agg.value, ("$old", "$x"), prefix.whole.dtype)
    body = (Load("$old", "carry"), Load("$x", "element"), new, Store("carry", "$new"))
    uses = (
        replace(element, name="element", dir=Direction.IN, agg=None),
        replace(carry, name="carry", dir=Direction.INOUT, agg=None),
    )
    return Stage("start", loops, (), uses, body)


def completed(prefix: Prefix, stage: Stage) -> Stage:
    """`stage`, which writes cells, with `finish` in place of the cells."""
    if prefix.finish is None:
        return stage
    buffer = prefix.out.buffer
    written = next(u for u in stage.uses if u.buffer == buffer)
    read = next(u for u in prefix.finish.uses if u.buffer == buffer)
    point = {n: theirs for mine, theirs in zip(read.forms, written.forms, strict=True) for n in mine.names}
    finish = prefix.finish.substitute(point).redirected(buffer, buffer, written.forms)
    return without_buffers(concatenated(stage, finish, {buffer: written}), {buffer})
