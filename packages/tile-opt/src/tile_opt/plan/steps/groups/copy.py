"""Operands in local memory: what a group reads of a buffer during one step, and how its items copy it together.

The elements of one step are a box (`plan.steps.groups.staging`). Items fetch their share of it into registers, ahead of time where
the plan says so, and put it into local memory, converted on the way where the plan says so. What lies beyond the
buffer is not fetched; local memory gets what the registers held before, for results that nobody stores or that
constraints leave out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from math import prod

from tile_ir.dtype import DType
from tile_ir.frozen import frozen, replace
from tile_ir.matrix import TENSOR_COPY
from tile_ir.stripe.affine import Affine, Quasi
from tile_ir.stripe.nodes import (
    Bind,
    Direction,
    Index,
    Instr,
    Layout,
    Load,
    Op,
    Refinement,
    Statement,
    Store,
    Swizzle,
    TensorType,
    Transfer,
    iteration_of,
    number_of,
)

from tile_opt.kernel.view import Stage, Use, as_forms
from tile_opt.plan.plan import TF32, Staging
from tile_opt.plan.steps.groups.banks import BANK_BYTES, bank_conflicts, in_panels
from tile_opt.plan.steps.groups.staging import (
    TURNED,
    Box,
    CopyPlan,
    Run,
    box_of,
    copy_plan,
    global_subscripts,
    in_pieces,
    negated,
    pieces,
)
from tile_opt.plan.tree import GROUP_MEMORY, REGISTER

ZERO = Affine()
KEPT = 1 << 10
"""Plans of copies."""
Ranges = Mapping[str, tuple[int, int]]
"""Inclusive interval of every loop around a copy."""


@frozen
class Limit:
    """Elements at p of a dimension are wanted where ``sign * p + form >= 0``."""

    dim: int
    sign: int
    form: Affine

    def of(self, at: Quasi) -> Quasi:
        if self.sign < 0:
            return negated(at, self.form)
        return at + self.form if isinstance(at, Affine) else replace(at, plus=at.plus + self.form)

    def between(self, lanes: int) -> bool:
        """It lies between pieces of so many elements."""
        first = self.form.const + (self.sign < 0)
        return first % lanes == 0 and all(c % lanes == 0 for _, c in self.form.terms)


@frozen
class Items:
    """The work items of a group by their indexes; the last one is the fastest."""

    indexes: tuple[Index, ...]

    def run(self, first: int, stop: int) -> Run:
        """The number that some neighbouring indexes make."""
        part = self.indexes[first:stop]
        return Run(number_of(part), prod(i.range for i in part))

    def cuts(self) -> Iterator[tuple[Run, ...]]:
        """The item's number whole, then in two parts, the faster first."""
        last = len(self.indexes)
        yield (self.run(0, last),)
        yield from ((self.run(cut, last), self.run(0, cut)) for cut in range(1, last))


@frozen
class GroupCopy:
    """One step's box of an operand on its way into local memory."""

    use: Use
    source: TensorType
    box: Box
    plan: CopyPlan
    local: Refinement
    held: Refinement
    limits: tuple[Quasi, ...]
    """What keeps the copy inside the buffer, each >= 0."""
    points: int
    """Iterations of the loops inside."""
    boxes: tuple[Index, ...] = ()
    """The items, where the device copies a box of a tensor for them."""

    @property
    def bytes(self) -> int:
        """Of local memory, all versions together."""
        return self.local.type.nbytes * self.local.versions

    def inside(self, step: Affine) -> tuple[Affine, ...]:
        """Subscripts in local memory of what the operand's subscripts name during `step`."""
        return as_forms((*self._version(step), *self.box.inside))

    def fetch(self, constraints: tuple[Affine, ...] = ()) -> Stage:
        """Global memory into registers, where `constraints` hold."""
        source = self._source()
        return self._stage("fetch", source, self._held(Direction.OUT), (*constraints, *self.limits))

    def ahead(self, step: Affine, items: tuple[Index, ...]) -> Stage:
        """Global into local memory for `step`, without waiting for it, zeros for what is outside; `items` are loops over the items."""
        first = {i.name: Affine() for i in self.plan.loops if i.bind is Bind.VECTOR}
        contiguous = _closest(self.box, self.source)
        line = tuple(self.plan.lanes if d == contiguous else 1 for d in range(len(self.box.extents)))
        source, target = (replace(u.substitute(first), extent=line) for u in (self._source(), self._target(step)))
        idle, outside = (tuple(f.substitute(first) for f in fs) for fs in (self.plan.constraints, self.limits))
        loops = (*items, *(i for i in self.plan.loops if i.name not in first))
        body = (Transfer("dst", "src", where=outside),)
        instr = self._box((source, target), loops) if self.boxes else None
        return Stage(f"copy_{self.use.name}", loops, as_forms(idle), (source, target), body, instr=instr)

    def _box(self, uses: tuple[Use, ...], loops: tuple[Index, ...]) -> Instr:
        """All of the copy at once: what it runs over, the tensor's sizes, the box's, and its steps."""
        moving = {n for u in uses for f in u.forms for n in f.names}
        sides = dict.fromkeys((*self.boxes, *loops))
        return Instr(
            TENSOR_COPY,
            tuple((i.name, i.range) for i in sides if i.name in moving),
            (*self.source.sizes, *self.box.extents, *self.box.steps),
        )

    def put(self, step: Affine) -> Stage:
        """Registers into local memory, for `step`."""
        return self._stage("put", self._held(Direction.IN), self._target(step), ())

    def give(self, step: Affine = ZERO, items: tuple[Index, ...] = ()) -> Stage:
        """Local memory into the buffer: results that items have left there, neighbours side by side."""
        source = replace(self._target(step), name="src", dir=Direction.IN)
        target = Use("dst", self.use.buffer, as_forms(global_subscripts(self.box, self.plan)), Direction.OUT)
        where = as_forms((*self.plan.constraints, *self.limits))
        # Unrolled, the registers of many loads at once would cost places for groups.
        loops = tuple(replace(i, bind=Bind.NONE) if i.bind is Bind.UNROLL else i for i in self.plan.loops)
        return Stage.copy(f"give_{self.use.name}", (*items, *loops), source, target, where)

    def panels(self, line: int, *, shifts: bool = True) -> bool:
        """Rows in local memory are whole panels of `line` elements, or padded to be one, and all other dimensions follow one another.

        With `shifts` alone find places, there is a power of two of them.
        """
        long = sorted((s, e) for s, e in zip(self.local.type.strides, self.box.extents, strict=True) if e > 1)
        if not long or long[0][0] != 1:
            return False
        (_, row), *others = long
        pitch = others[0][0] if others and row < line else row
        rows = [pitch * prod(e for _, e in others[:n]) for n in range(len(others))]
        return in_panels(pitch, line, shifts=shifts) and rows == [s for s, _ in others]

    def runs_along(self, loop: str) -> bool:
        """Neighbours in local memory are neighbouring iterations of the loop inside the box."""
        return any(form.coefficient(loop) == 1 for form in self.along)

    @property
    def along(self) -> Iterator[Affine]:
        """Subscripts in the box along which neighbours are neighbours in local memory."""
        strides = zip(self.box.inside, self.local.type.strides, strict=True)
        return (form for form, stride in strides if stride == 1)

    @property
    def in_rows(self) -> bool:
        """Pieces are rows in local memory, too."""
        return self.plan.lanes == 1 or self.local.type.strides[_closest(self.box, self.source)] == 1

    @property
    def dense(self) -> bool:
        """The loops inside reach every element of the box."""
        return prod(self.box.extents) == self.points

    def _source(self) -> Use:
        return Use("src", self.use.buffer, as_forms(global_subscripts(self.box, self.plan)), Direction.IN)

    def _target(self, step: Affine) -> Use:
        forms = as_forms((*self._version(step), *self.plan.subscripts))
        return Use("dst", self.local.into, forms, Direction.OUT)

    def _held(self, direction: Direction) -> Use:
        name = "dst" if direction is Direction.OUT else "src"
        return Use(name, self.held.into, tuple(Affine.var(i.name) for i in self.plan.loops), direction)

    def _version(self, step: Affine) -> tuple[Affine, ...]:
        return (step,) if self.local.versions > 1 else ()

    def _stage(self, kind: str, source: Use, target: Use, constraints: tuple[Quasi, ...]) -> Stage:
        """An item's share; on the way into local memory it takes the dtype of the copy, no load waited for before."""
        body: tuple[Statement, ...] = (Load("$x", "src"), Store("dst", "$x"))
        dtype = self.local.type.dtype
        if target.buffer == self.local.into and dtype is not self.source.dtype:
            body = (Load("$x", "src"), Op("$c", "cast", ("$x",), dtype), Store("dst", "$c"))
        where = as_forms((*self.plan.constraints, *constraints))
        return Stage(f"{kind}_{self.use.name}", self.plan.loops, where, (source, target), body)


def group_copy(
    use: Use,
    forms: tuple[Affine, ...],
    source: TensorType,
    staging: Staging,
    inner: Mapping[str, int],
    around: Ranges,
    items: Items,
    names: Mapping[str, str],
    wanted: Sequence[Limit] = (),
    *,
    turned: bool = False,
    lanes: int | None = None,
) -> GroupCopy:
    """The copy of what `use` touches at `forms` while the loops `inner` run, at any point of the loops `around`.

    `names` are those of the local copy and of the registers that hold an item's share. Only elements that are `wanted`
    are fetched. With `turned` an item has several neighbours of the rows in local memory, even where they are none in the
    buffer. Pieces have `lanes` elements, which those at all points of more loops around have too, or as many as they may.
    """
    box = box_of(forms, inner)
    contiguous, order = _closest(box, source), order_of(use, staging)
    row = order[-1] if turned and order[-1] != contiguous and box.extents[order[-1]] % TURNED == 0 else None
    dtype = staging.kept_as(source.dtype)
    width = max(source.dtype.bytes, dtype.bytes)
    plan, limits = _within(use, box, source, width, contiguous, around, items, wanted, row, lanes)
    type = arranged(local_type(box.extents, order, dtype, staging.pad), staging.swizzle)
    local = replace(_alloc(names["local"], type), versions=staging.versions)
    sizes = tuple(i.range for i in plan.loops)
    held = TensorType.row_major(source.dtype, sizes, align=16)
    return GroupCopy(
        use, source, box, plan, local, replace(_alloc(names["held"], held), loc=REGISTER), limits, prod(inner.values()),
        items.indexes if staging.dtype == TF32 else (),
    )  # fmt: skip


def _within(
    use: Use,
    box: Box,
    source: TensorType,
    width: int,
    contiguous: int,
    around: Ranges,
    items: Items,
    wanted: Sequence[Limit],
    turned: int | None,
    known: int | None,
) -> tuple[CopyPlan, tuple[Quasi, ...]]:
    """The copy by the widest pieces that lie inside the buffer or outside, never half of each; and its limits.

    Pieces are of elements of `width` bytes: those of the side where they are wider. Items that each store two words of
    16 bytes beside each other meet in the banks.
    """
    widths = (n for n in pieces(width) if known is None and in_pieces(box, source, contiguous, n))
    for lanes in widths:
        plan = _plan(use.name, box.extents, contiguous, items, lanes, turned)
        limits = _limits(box, plan, contiguous, source, around, wanted)
        whole = all(w.between(lanes) for w in wanted if w.dim == contiguous)
        if whole and (not limits or source.sizes[contiguous] % lanes == 0):
            return plan, limits
    plan = _plan(use.name, box.extents, contiguous, items, known or 1, turned)
    return plan, _limits(box, plan, contiguous, source, around, wanted)


@lru_cache(KEPT)
def _plan(
    use: str, extents: tuple[int, ...], contiguous: int, items: Items, lanes: int, turned: int | None
) -> CopyPlan:
    """The copy of a box in which an item has the least to do: tiles by the hundred have equal ones."""
    return copy_plan(f"{use}_c", extents, contiguous, lanes, items.cuts(), turned)


def _alloc(name: str, type: TensorType) -> Refinement:
    return Refinement.allocation(name, type, GROUP_MEMORY)


def _closest(box: Box, source: TensorType) -> int:
    """The dimension along which the box's elements are closest in memory."""
    dims = [d for d, e in enumerate(box.extents) if e > 1]
    return min(dims, key=lambda d: source.strides[d], default=len(box.extents) - 1)


def order_of(use: Use, staging: Staging) -> tuple[int, ...]:
    """The operand's dimensions as its copy keeps them, outermost first: those without a loop in `order` stay outside."""
    dims: list[int] = []
    for loop in staging.order:
        dims += [d for d, form in enumerate(use.forms) if loop in form.names and d not in dims]
    return (*(d for d in range(len(use.forms)) if d not in dims), *dims)


def local_type(extents: Sequence[int], order: Sequence[int], dtype: DType, pad: int = 0) -> TensorType:
    """A box in local memory with its dimensions in `order`, rows padded by `pad` elements."""
    strides = [0] * len(extents)
    step = 1
    for position, d in enumerate(reversed(order)):
        strides[d] = step
        step *= extents[d] if position else extents[d] + pad
    return TensorType(dtype, tuple(extents), Layout(tuple(strides), 16))


def arranged(type: TensorType, swizzle: Swizzle | None) -> TensorType:
    """A box in local memory as teams of sub-groups read it: in panels as wide as the swizzle's rows."""
    if swizzle is None:
        return type
    align = type.dtype.bytes << (swizzle.shift + swizzle.bits)
    return replace(type, layout=Layout(type.strides, align, swizzle, panel=1 << swizzle.shift))


def _limits(
    box: Box, plan: CopyPlan, contiguous: int, source: TensorType, around: Ranges, wanted: Sequence[Limit]
) -> tuple[Quasi, ...]:
    """What is wanted; of every dimension in which some box leaves the buffer: both ends of the share's first lane stay inside."""
    first = {i.name: Affine() for i in plan.loops if i.bind is Bind.VECTOR}
    forms = [form.substitute(first) for form in global_subscripts(box, plan)]
    found: list[Quasi] = []
    for d, form in enumerate(forms):
        low, high = box.corner[d].bounds(around)
        last = source.sizes[d] - (plan.lanes if d == contiguous else 1)
        found += [negated(form, last)] if high + (box.extents[d] - 1) * box.steps[d] >= source.sizes[d] else []
        found += [form] if low < 0 else []
    for limit in wanted:
        ahead = plan.lanes - 1 if limit.dim == contiguous and limit.sign < 0 else 0
        found.append(replace(limit, form=limit.form - ahead).of(forms[limit.dim]))
    return tuple(dict.fromkeys(found))


def conflicts(copy: GroupCopy, subgroup: int, items: Sequence[Index]) -> int:
    """Cycles that one access of a sub-group takes in the banks: one of the copy's stores plus one of the items' loads."""
    type = copy.local.type
    digits = [iteration_of(n, items) for n in range(min(subgroup, prod(i.range for i in items)))]
    zero = {n: 0 for form in (*copy.plan.subscripts, *copy.box.inside) for n in form.names}
    lanes = copy.plan.lanes if copy.plan.subscripts and _in_row(copy) else 1
    stores = [_flat(copy.plan.subscripts, type, zero | d) * type.dtype.bytes for d in digits]
    loads = [_flat(copy.box.inside, type, zero | d) * type.dtype.bytes for d in digits]
    wide = max(BANK_BYTES, min(16, lanes * type.dtype.bytes))
    return bank_conflicts(stores, wide) + bank_conflicts(loads, BANK_BYTES)


def _in_row(copy: GroupCopy) -> bool:
    """Neighbours in memory stay neighbours in local memory."""
    strides = copy.local.type.strides[-len(copy.box.extents) :]
    vector = next((i.name for i in copy.plan.loops if i.bind is Bind.VECTOR), None)
    return any(vector in form.names and stride == 1 for form, stride in zip(copy.plan.subscripts, strides, strict=True))


def _flat(forms: Sequence[Quasi], type: TensorType, at: Mapping[str, int]) -> int:
    strides = type.strides[-len(forms) :] if forms else ()
    return sum(form.evaluate(at) * stride for form, stride in zip(forms, strides, strict=True))
