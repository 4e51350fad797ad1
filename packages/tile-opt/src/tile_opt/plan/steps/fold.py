"""Short rows of windows as one: tiles of rows go on from one row to the next through what lies between them in a copy.

An image of seven columns fills seven of a tile's sixteen rows. In a copy with its borders, rows follow each other nine columns apart,
and so do their windows: the 61 columns from the first window to the last make four tiles. What is computed of those between
two rows is not stored.
"""

from __future__ import annotations

from collections.abc import Collection

from tile_ir.diagnostics import Diagnostic, TileDeviceError
from tile_ir.frozen import frozen, replace
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Const, Direction, Index, Refinement, Store, TensorType

from tile_opt.kernel.segments import cover
from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.plan.steps.edges import Tiling, tile
from tile_opt.plan.tree import Around, Nest, innermost, map_stages, nests_of, stages_of


@frozen
class Fold:
    """Two loops that go along neighbouring dimensions of an operand's copy in equal steps; each row is a whole run of `inner`."""

    outer: str
    inner: str
    columns: int
    """Iterations of `inner`."""
    pitch: int
    """Iterations of `inner` after which the next row begins."""
    step: int
    """Elements of the copy for an iteration."""
    unit: int
    """Iterations in a tile."""

    def length(self, rows: int) -> int:
        """Iterations from the first of so many rows to the end of the tile that the last one ends in."""
        return -(-((rows - 1) * self.pitch + self.columns) // self.unit) * self.unit

    def beyond(self, rows: int) -> int:
        """Of these, those behind the last row."""
        return self.length(rows) - (rows - 1) * self.pitch - self.columns

    # --- what is in memory ------------------------------------------------------------------------------

    def copied(self, nest: Nest, buffer: str) -> Nest:
        """`nest`, which makes a copy of the operand: the two dimensions of `buffer` are one, as long as the last tile's windows reach."""
        use = next(u for s in stages_of(nest) for u in s.uses if u.buffer == buffer and not u.writes)
        at = next(d for d, form in enumerate(use.forms) if self.inner in form.names) - 1
        pitch = next(a for a in nest.allocs if a.into == buffer).type.sizes[at + 1]
        more = self.step * self.beyond(self._rows(nest))
        made = _as_one(nest, buffer, at, pitch, more)
        return replace(made, body=(_zeros(made, buffer, at, more), *made.body)) if more else made

    def summed(self, nest: Nest, total: Use) -> Nest:
        """`nest`, which holds a sum for each iteration, with rows of sums as far apart as those of the copy."""
        at = total.forms.index(Affine.var(self.inner))
        rows = self._rows(nest)
        if Affine.var(self.outer) in total.forms:
            return _as_one(nest, total.buffer, at - 1, self.pitch, self.length(rows) - rows * self.pitch)
        return _resized(nest, total.buffer, at, self.length(1))

    def _rows(self, nest: Nest) -> int:
        loops = (i for n in (*nests_of(nest), *stages_of(nest)) for i in n.loops if i.name == self.outer)
        return max((i.range for i in loops), default=1)

    # --- loops ------------------------------------------------------------------------------------------

    def joined(self, nest: Nest) -> Nest:
        """The loops of `nest` with both as one."""
        whole = self.length(self._rows(nest))
        loops = tuple(
            replace(i, range=whole) if i.name == self.inner else i for i in nest.loops if i.name != self.outer
        )
        return replace(map_stages(nest, lambda s: s.substitute({self.outer: Affine()})), loops=loops)

    def tiles(self, nest: Nest, size: int, name: str, around: Around) -> Nest:
        """Tiles of so many iterations of the loop that both are, numbered by `name`."""

        def cut(inner: Nest, at: Around) -> Nest:
            loop = inner.loop(self.inner)
            assert loop is not None
            return tile(inner, Tiling(self.inner, cover(0, loop.range, size), name, size=size), at)

        return innermost(nest, cut, around)


def fold_of(view: KernelView, operand: Use, inner: str, columns: int, steps: Collection[str], unit: int) -> Fold | None:
    """How rows of `columns` iterations of `inner` follow each other in a copy of what a kernel reads of an operand in `steps`."""
    along = [d for d, form in enumerate(operand.forms) if inner in form.names]
    if len(along) != 1 or along[0] == 0 or columns < 2:
        return None
    before, form = operand.forms[along[0] - 1], operand.forms[along[0]]
    outer = [n for n in before.names if n not in steps]
    step = form.coefficient(inner)
    alone = {inner} == {n for n in form.names if n not in steps} and len(outer) == 1
    if not alone or step < 1 or before.coefficient(outer[0]) != step or outer[0] not in {i.name for i in view.loops}:
        return None
    inside = sum(abs(form.coefficient(n)) * (view.ranges[n] - 1) for n in form.names if n != inner)
    return Fold(outer[0], inner, columns, step * (columns - 1) + inside + 1, step, unit)


def check_padded(fold: Fold, copied: bool) -> None:
    """TileDeviceError where rows go on into nothing: into no copy of theirs, or one of parts of rows."""
    if not copied:
        message = f"the edge of {fold.inner!r} is padded, but no level copies whole rows of the first factor"
        raise TileDeviceError(
            Diagnostic("TILE-E415", message, hint="stage it, without an order, above the tiles' rows")
        )


def tiles_alone(nest: Nest) -> Nest:
    """`nest`, a part of a row, if an instruction on tiles does it; TileDeviceError for what sets all rows to 0 in front of each part."""
    if nest.allocs:
        return nest
    message = f"the rows of {nest.name!r} are padded, but its steps are no whole number of tiles in registers"
    raise TileDeviceError(Diagnostic("TILE-E415", message, hint="cover fewer rows or columns, or do not pad the rows"))


def _as_one(nest: Nest, buffer: str, at: int, pitch: int, more: int) -> Nest:
    """`nest` with two dimensions of its buffer as one, in which rows are `pitch` apart, and `more` elements at the end."""

    def seen(use: Use) -> Use:
        if use.buffer != buffer:
            return use
        both = use.forms[at] * pitch + use.forms[at + 1]
        return replace(use, forms=(*use.forms[:at], both, *use.forms[at + 2 :]))

    (alloc,) = (a for a in nest.allocs if a.into == buffer)
    sizes = alloc.type.sizes
    whole = (*sizes[:at], sizes[at] * pitch + more, *sizes[at + 2 :])
    return _allocated(map_stages(nest, lambda s: s.map_uses(seen)), alloc, whole)


def _resized(nest: Nest, buffer: str, at: int, size: int) -> Nest:
    """`nest` with so many elements along a dimension of its buffer."""
    (alloc,) = (a for a in nest.allocs if a.into == buffer)
    sizes = alloc.type.sizes
    return _allocated(nest, alloc, (*sizes[:at], size, *sizes[at + 1 :]))


def _zeros(nest: Nest, buffer: str, at: int, last: int) -> Stage:
    """What sets the last elements along a dimension of a buffer of `nest` to 0."""
    (alloc,) = (a for a in nest.allocs if a.into == buffer)
    sizes = alloc.type.sizes
    loops = [Index(f"{buffer}_{d}", last if d == at else size) for d, size in enumerate(sizes)]
    forms = [Affine.var(i.name) + (sizes[at] - last if d == at else 0) for d, i in enumerate(loops)]
    body = (Const("$z", 0, alloc.type.dtype), Store("dst", "$z"))
    target = Use("dst", buffer, tuple(forms), Direction.OUT)
    return Stage(f"{buffer}_behind", tuple(loops), (), (target,), body)


def _allocated(nest: Nest, alloc: Refinement, sizes: tuple[int, ...]) -> Nest:
    *outer, _ = sizes
    rows = TensorType.row_major(alloc.type.dtype, (*outer, alloc.type.strides[-2]), align=64)
    made = replace(alloc, type=replace(rows, sizes=sizes), access=(Affine(),) * len(sizes))
    return replace(nest, allocs=tuple(made if a is alloc else a for a in nest.allocs))
