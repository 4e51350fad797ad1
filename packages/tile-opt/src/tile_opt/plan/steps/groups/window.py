"""An operand's window in an item's registers: what the item touches of it, each element loaded once and for all its uses.

Loads are unconditional: where an element would lie outside the buffer, the nearest one inside is loaded. Constraints and
ragged loops see to it that nothing is made of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd, prod

from tile_ir.dtype import DType
from tile_ir.frozen import frozen, replace
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Bind, Direction, Index, Load, Op, Refinement, Statement, Store, TensorType

from tile_opt.kernel.view import Stage, Use
from tile_opt.plan.tree import REGISTER


@frozen
class Line:
    """A register dimension: `index` counts the elements, `step` apart in the operand, that `inside` chooses among."""

    index: Index
    step: int
    inside: Affine


@frozen
class Window:
    """The elements that one item touches of an operand while its inner loops run."""

    use: Use
    source: TensorType
    corner: tuple[Affine, ...]
    axes: tuple[tuple[Line, ...], ...]
    """Of each dimension of the operand."""
    held: Refinement

    @property
    def inside(self) -> tuple[Affine, ...]:
        """Subscripts in the registers of what the operand's subscripts name."""
        return tuple(a.inside for a in registers(self.axes)) or (Affine(),)

    def fetch(self) -> Stage:
        """The loads, one for each register, or for each vector of them."""
        axes = registers(self.axes)
        steps = [
            sum((Affine.var(a.index.name, a.step) for a in dim if not _is_vector(a)), Affine()) for dim in self.axes
        ]
        at = tuple(c + s for c, s in zip(self.corner, steps, strict=True))
        lanes = [next((a for a in dim if _is_vector(a)), None) for dim in self.axes]
        # The view ends where the last vector begins: what is clamped is its first lane.
        extent = tuple(s - (a.index.range - 1 if a else 0) for s, a in zip(self.source.sizes, lanes, strict=True))
        first = tuple(Affine.var(a.index.name) if a else Affine() for a in lanes)
        cells = tuple(Affine.var(a.index.name) for a in axes) or (Affine(),)
        uses = (
            Use("src", self.use.buffer, first, Direction.IN, extent=extent),
            Use("dst", self.held.into, cells, Direction.OUT),
        )
        return Stage(f"fetch_{self.use.name}", tuple(a.index for a in axes), (), uses, self._body(at))

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
        corner.append(Affine.of([(n, c) for n, c in form.terms if n not in inner], form.const + low))
        axes.append(_axes(f"{name}_{d}", mine))
    sizes = tuple(a.index.range for a in registers(axes)) or (1,)
    type = TensorType.row_major(dtype, sizes, align=16)
    held = Refinement.allocation(name, type, REGISTER)
    return Window(use, source, tuple(corner), tuple(axes), held)


def registers(axes: Sequence[Sequence[Line]]) -> tuple[Line, ...]:
    """The dimensions of the registers, that of vectors last."""
    return tuple(sorted((a for dim in axes for a in dim), key=_is_vector))


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


def _is_vector(axis: Line) -> bool:
    return axis.index.bind is Bind.VECTOR
