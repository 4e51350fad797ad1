"""An operand's window in an item's registers: what the item touches of it, each element loaded once and for all its uses.

A window that slides along rows in memory is loaded by whole vectors where items begin on multiples of them: the vectors
around it, whose elements beside the window nobody uses. Loads are unconditional: where an element would lie outside the
buffer, the nearest one inside is loaded. Constraints and ragged loops see to it that nothing is made of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd, prod

from tile_ir.dtype import DType
from tile_ir.frozen import frozen, replace
from tile_ir.stripe.affine import Affine, names_in
from tile_ir.stripe.nodes import Bind, Direction, Index, Load, Op, Refinement, Statement, Store, TensorType

from tile_opt.kernel.strides import decided_outside, flat_stride, row_starts
from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.plan.steps.groups.staging import WIDEST
from tile_opt.plan.tree import REGISTER


@frozen
class Line:
    """A register dimension: `index` counts the elements, `step` apart in the operand, that `inside` chooses among."""

    index: Index
    step: int
    inside: Affine
    lanes: int = 1
    """Elements that are loaded at once."""

    @property
    def counted(self) -> tuple[Index, ...]:
        """The loops over its loads, and over the elements of one."""
        if self.lanes == 1:
            return (self.index,)
        pieces = Index(f"{self.index.name}_p", self.index.range // self.lanes, bind=Bind.UNROLL)
        return pieces, Index(f"{self.index.name}_e", self.lanes, bind=Bind.VECTOR, lanes=self.lanes)

    @property
    def vector(self) -> Index | None:
        """The loop over the elements of a load."""
        return next((i for i in self.counted if i.bind is Bind.VECTOR), None)

    @property
    def cell(self) -> Affine:
        """Which register an element is loaded to."""
        return sum((Affine.var(i.name, 1 if i == self.counted[-1] else self.lanes) for i in self.counted), Affine())

    @property
    def offset(self) -> Affine:
        """Elements of the operand between the first one and that which a load begins with."""
        return sum((Affine.var(i.name, self.lanes * self.step) for i in self.counted if i != self.vector), Affine())


@frozen
class Window:
    """The elements that one item touches of an operand while its inner loops run."""

    use: Use
    source: TensorType
    corner: tuple[Affine, ...]
    axes: tuple[tuple[Line, ...], ...]
    """Of each dimension of the operand."""
    held: Refinement
    version: tuple[Affine, ...] = ()
    """Which version of the operand, where there are several."""

    @property
    def inside(self) -> tuple[Affine, ...]:
        """Subscripts in the registers of what the operand's subscripts name."""
        return tuple(a.inside for a in registers(self.axes)) or (Affine(),)

    @property
    def wide(self) -> bool:
        """Whole vectors around it are loaded."""
        return any(a.lanes > 1 for dim in self.axes for a in dim)

    @property
    def cells(self) -> tuple[tuple[Index, ...], tuple[Affine, ...]]:
        """Loops over all of its registers, vector by vector, and the subscripts there."""
        axes = registers(self.axes)
        loops = tuple(sorted((i for a in axes for i in a.counted), key=_is_lane))
        return loops, tuple(a.cell for a in axes) or (Affine(),)

    @property
    def _at(self) -> tuple[Affine, ...]:
        """Where a load begins."""
        return tuple(sum((a.offset for a in dim), c) for c, dim in zip(self.corner, self.axes, strict=True))

    @property
    def _lanes(self) -> tuple[Index | None, ...]:
        return tuple(next((v for a in dim if (v := a.vector)), None) for dim in self.axes)

    @property
    def ends(self) -> tuple[Affine, ...]:
        """Each >= 0 where a load lies inside of the operand; those along memory first."""
        last = (s - (v.range if v else 1) for s, v in zip(self.source.sizes, self._lanes, strict=True))
        dims = sorted(zip(self.source.strides, self._at, last, strict=True), key=lambda d: d[0])
        return tuple(c for _, at, end in dims for c in (at, at * -1 + end))

    def fetch(self) -> Stage:
        """The loads, one for each register, or for each vector of them."""
        loops, cells = self.cells
        at, lanes = self._at, self._lanes
        # The view ends where the last vector begins: what is clamped is its first lane.
        extent = tuple(s - (v.range - 1 if v else 0) for s, v in zip(self.source.sizes, lanes, strict=True))
        first = tuple(Affine.var(v.name) if v else Affine() for v in lanes)
        uses = (
            Use("src", self.use.buffer, (*self.version, *first), Direction.IN, extent=extent),
            Use("dst", self.held.into, cells, Direction.OUT),
        )
        return Stage(f"fetch_{self.use.name}", loops, (), uses, self._body(at))

    def _body(self, at: tuple[Affine, ...]) -> tuple[Statement, ...]:
        load = Load("$x", "src", at, clamp=True)
        if self.held.type.dtype is self.source.dtype:
            return (load, Store("dst", "$x"))
        return (load, Op("$c", "cast", ("$x",), self.held.type.dtype), Store("dst", "$c"))


def window(
    use: Use, forms: tuple[Affine, ...], source: TensorType, inner: Mapping[str, Index], dtype: DType, name: str
) -> Window:
    """What `use` touches at `forms` while the loops `inner` run, in registers called `name`; a vector loop stays one."""
    corner: list[Affine] = []
    axes: list[tuple[Line, ...]] = []
    for d, form in enumerate(forms):
        mine = [(inner[n], c) for n, c in form.terms if n in inner]
        low = sum(c * (i.range - 1) for i, c in mine if c < 0)
        start = Affine.of([(n, c) for n, c in form.terms if n not in inner], form.const + low)
        lines = _axes(f"{name}_{d}", mine)
        lanes = _lanes(lines, start, source, d) if dtype is source.dtype else 1
        shift = start.const % lanes
        corner.append(start - shift)
        axes.append(tuple(_around(a, shift, lanes) for a in lines))
    sizes = tuple(a.index.range for a in registers(axes)) or (1,)
    type = TensorType.row_major(dtype, sizes, align=16)
    held = Refinement.allocation(name, type, REGISTER)
    return Window(use, source, tuple(corner), tuple(axes), held)


def side_by_side(stage: Stage, view: KernelView) -> Stage:
    """The stage with its last loop over whole vectors, where it moves along memory in them; as it was where it does not."""
    last = stage.loops[-1] if stage.loops else None
    outside = [u for u in stage.uses if not view.is_local(u.buffer)]
    if last is None or last.bind is not Bind.UNROLL or not outside:
        return stage
    lanes = gcd(last.range, WIDEST // max(view.type_of(u.buffer).dtype.bytes for u in outside))
    ends = tuple(decided_outside(c, {last.name: (0, last.range - 1)}) for c in stage.constraints)
    if lanes == 1 or any(last.name in c.names for c in ends):
        return stage
    if not all(_in_vectors(view, u, last.name, lanes) for u in outside):
        return stage
    loops = (*stage.loops[:-1], replace(last, bind=Bind.VECTOR, lanes=lanes))
    return replace(stage, loops=loops, constraints=ends)


def _in_vectors(view: KernelView, use: Use, loop: str, lanes: int) -> bool:
    """Neighbours along the loop are whole vectors in memory, or one element."""
    stride = flat_stride(view, use, loop)
    return stride == 0 or (stride == 1 and row_starts(view, use, names_in(use.forms) - {loop}) % lanes == 0)


def _lanes(lines: tuple[Line, ...], start: Affine, source: TensorType, dim: int) -> int:
    """Elements of a vector, where a window slides along rows that consist of whole ones."""
    slides = len(lines) == 1 and lines[0].step == 1 and len(lines[0].inside.terms) > 1
    if not slides or source.strides[dim] != 1 or not start.terms:
        return 1
    others = (s for d, s in enumerate(source.strides) if d != dim and source.sizes[d] > 1)
    whole = gcd(source.sizes[dim], *others, *(c for _, c in start.terms))
    lanes = (WIDEST // source.dtype.bytes, WIDEST // 2 // source.dtype.bytes)
    return next((n for n in lanes if n > 1 and whole % n == 0 and lines[0].index.range >= n), 1)


def _around(line: Line, shift: int, lanes: int) -> Line:
    """The whole vectors around a line that begins `shift` elements behind the first."""
    if lanes == 1:
        return line
    size = -(-(line.index.range + shift) // lanes) * lanes
    return replace(line, index=replace(line.index, range=size), inside=line.inside + shift, lanes=lanes)


def registers(axes: Sequence[Sequence[Line]]) -> tuple[Line, ...]:
    """The dimensions of the registers, that of vectors last."""
    return tuple(sorted((a for dim in axes for a in dim), key=lambda a: _is_lane(a.index)))


def _axes(name: str, terms: list[tuple[Index, int]]) -> tuple[Line, ...]:
    """One dimension for sums that meet again and again, one for each loop where few of them would be touched in between."""
    if not terms:
        return ()
    step = gcd(*(c for _, c in terms))
    low = sum(min(0, c) * (i.range - 1) for i, c in terms)
    extent = 1 + sum(abs(c) // step * (i.range - 1) for i, c in terms)
    if len(terms) == 1 or extent <= prod(i.range for i, _ in terms):
        inside = Affine.of([(i.name, c // step) for i, c in terms], -low // step)
        bind = terms[0][0] if len(terms) == 1 and terms[0][1] == 1 else None
        return (Line(_index(name, extent, bind), step, inside),)
    return tuple(_single(f"{name}{k}", i, c) for k, (i, c) in enumerate(terms))


def _single(name: str, loop: Index, step: int) -> Line:
    """A loop's own dimension; backwards where it steps down."""
    form = Affine.var(loop.name) if step > 0 else Affine.var(loop.name, -1) + (loop.range - 1)
    return Line(_index(name, loop.range, loop if step == 1 else None), abs(step), form)


def _index(name: str, extent: int, like: Index | None) -> Index:
    """Straight-line code, or the lanes of the loop that it follows."""
    if like is not None and like.bind is Bind.VECTOR:
        return replace(like, name=name)
    return Index(name, extent, bind=Bind.UNROLL)


def _is_lane(index: Index) -> bool:
    return index.bind is Bind.VECTOR
