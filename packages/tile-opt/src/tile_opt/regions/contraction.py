"""Boxes of contractions: indexes are counted from where the box begins, so that boxes alike have one form.

A box of the result is a range for each output subscript. Where a subscript has an index, that index is counted from
a *shift* that follows the box; what remains of the contraction's own constraints then depends on the box only near
the borders, where they cut it. The cells read are the exact bounds, by ISL, of each subscript over the points that
are left.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple, cast

from tile_ir.frozen import frozen
from tile_ir.names import claim
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import Constraint, Contraction, Literal, TensorLoad
from tile_ir.stripe.affine import Affine, intervals

from tile_opt.analysis import FlatDomain, Sets, poly
from tile_opt.regions.boxes import Box
from tile_opt.regions.rules import Cut, Emission

Interval = tuple[int, int]
"""Smallest and largest value."""
_FAR = 1 << 60
"""What no index reaches."""


@frozen
class _Bound:
    """``0 <= form < size`` in the contraction's own indexes; a box may imply it."""

    form: Affine
    size: int
    always: bool
    """No shift moves it."""


class _Form(NamedTuple):
    """All that the operation for a box depends on."""

    shape: tuple[int, ...]
    residues: tuple[int, ...] = ()
    """What each subscript of the result is where all indexes are at their shifts, counted from the box."""
    left: tuple[int | None, ...] | None = None
    """The constant of each condition, counted from the shifts; None where the box implies it. None as a whole: no point."""


class ContractionRule:
    """A contraction over `domain`; the indexes in `reduced` are cut as well: boxes begin with an axis for each."""

    def __init__(self, op: Contraction, domain: FlatDomain, sets: Sets, reduced: tuple[str, ...] = ()) -> None:
        self._op, self._domain, self._sets, self._reduced = op, domain, sets, reduced
        reads = [load.tensor for load in op.loads if isinstance(load.tensor, str)]
        self._count = len(reads)
        self._default = op.default if not reduced else None
        self.operands = (*reads, *((self._default,) if self._default is not None else ()))
        self._forms: tuple[Affine, ...] = (*map(Affine.var, reduced), *domain.output)
        self._inner: dict[Hashable, tuple[Interval, ...]] = {}
        self._relative: dict[_Form, tuple[Box, ...] | None] = {}

    def cut(self, box: Box) -> Cut:
        form = self._form(box)
        if form not in self._relative:
            self._relative[form] = self._bounds(form)
        relative = self._relative[form]
        last = () if self._default is None else (box,)
        if relative is None:
            return Cut(_Form(form.shape), (None,) * self._count + last)
        shifts = self._shifts(box.low)
        return Cut(
            form, tuple([b.moved(_steps(a, shifts)) for b, a in zip(relative, self._accesses, strict=True)]) + last
        )

    def emit(self, out: Emission) -> None:
        default = out.start(self._op.agg, default=self._default is not None, partial=bool(self._reduced))
        form = cast("_Form", out.form)
        if form.left is None:
            out.fill(out.name, Literal(0, out.type.dtype) if default is None else default)
        else:
            out.ops.append(self._contraction(out, form, default))

    # --- copies --------------------------------------------------------------------------------------

    def copied(self, box: Box) -> tuple[str, Box] | None:
        """The operand, and the box of it, whose cells are those of `box`, in their order; None where something is computed."""
        if self.written is None or not box.size:
            return None
        if self.steps is not None and box.within(self.written):
            return self.operands[0], box.moved(self.steps)
        return (self._default, box) if self._default is not None and not box.meets(self.written) else None

    @cached_property
    def written(self) -> Box | None:
        """The cells of the result that an assignment writes; None where they are no box, or it is no assignment."""
        domain = self._domain
        terms = [term for form in domain.output for term in form.terms]
        plain = sorted(terms) == [(name, 1) for name in sorted(domain.names)]
        if self._op.agg is not Aggregation.ASSIGN or self._reduced or domain.empty or domain.constraints or not plain:
            return None
        ranges = intervals(self._ranges)
        return Box.around([(low, high + 1) for low, high in (form.bounds(ranges) for form in domain.output)])

    @cached_property
    def steps(self) -> tuple[int, ...] | None:
        """How much further along each axis the operand's cells lie of which those written are copies; None where none are."""
        if self._op.body or not self._count == len(self._domain.accesses) == 1:
            return None
        (source,), output = self._domain.accesses, self._domain.output
        same = [f.terms for f in source] == [f.terms for f in output]
        return tuple(a.const - b.const for a, b in zip(source, output, strict=True)) if same else None

    # --- where a box lies ----------------------------------------------------------------------------

    def _form(self, box: Box) -> _Form:
        if self._domain.empty:
            return _Form(box.shape)
        shifts = self._shifts(box.low)
        residues = tuple([f.evaluate(shifts) - low for f, low in zip(self._forms, box.low, strict=True)])
        return _Form(box.shape, residues, self._left(box.shape, residues, shifts))

    @cached_property
    def _accesses(self) -> tuple[tuple[Affine, ...], ...]:
        """Subscripts of the loads that read a tensor."""
        pairs = zip(self._op.loads, self._domain.accesses, strict=True)
        return tuple(access for load, access in pairs if isinstance(load.tensor, str))

    @cached_property
    def _drivers(self) -> tuple[tuple[int, str, int], ...]:
        """(axis, index, coefficient): the index that follows each axis of a box; plain subscripts choose first."""
        found: list[tuple[int, str, int]] = []
        taken: set[str] = set()
        for axis in sorted(range(len(self._forms)), key=lambda k: len(self._forms[k].terms)):
            free = [(abs(c), n, c) for n, c in self._forms[axis].terms if n not in taken]
            if free:
                _, name, c = max(free, key=lambda f: (f[0], f[1]))
                taken.add(name)
                found.append((axis, name, c))
        return tuple(found)

    def _shifts(self, low: Sequence[int]) -> dict[str, int]:
        """From where each index is counted."""
        shifts = dict.fromkeys(self._domain.names, 0)
        for axis, name, c in self._drivers:
            shifts[name] = (low[axis] - self._forms[axis].evaluate(shifts)) // c
        return shifts

    @cached_property
    def _ranges(self) -> dict[str, int]:
        return self._domain.extents

    @cached_property
    def _conditions(self) -> tuple[_Bound, ...]:
        """Ranges of the indexes, and the domain's constraints."""
        follows = {name for _, name, _ in self._drivers}
        box = intervals(self._ranges)
        found = [_Bound(Affine.var(n), r, n not in follows) for n, r in self._ranges.items()]
        for form in self._domain.constraints:
            found.append(_Bound(form, form.bounds(box)[1] + 1, follows.isdisjoint(form.names)))
        return tuple(found)

    def _left(
        self, shape: tuple[int, ...], residues: tuple[int, ...], shifts: dict[str, int]
    ) -> tuple[int | None, ...]:
        """The constant of each condition, counted from the shifts; None where the box implies the condition."""
        key = (shape, residues)
        if key not in self._inner:
            self._inner[key] = self._intervals(shape, residues)
        found: list[int | None] = []
        for condition, (low, high) in zip(self._conditions, self._inner[key], strict=True):
            const = condition.form.evaluate(shifts)
            implied = not condition.always and low + const >= 0 and high + const < condition.size
            found.append(None if implied else const)
        return tuple(found)

    def _intervals(self, shape: tuple[int, ...], residues: tuple[int, ...]) -> tuple[Interval, ...]:
        """Smallest and largest value of each condition's form without its constant, as far as the box tells."""
        ranges: dict[str, Interval] = intervals(self._ranges)
        ranges |= {name: (-_FAR, _FAR) for _, name, _ in self._drivers}
        for axis, name, c in self._drivers:
            rest = replace(self._forms[axis], terms=tuple(t for t in self._forms[axis].terms if t[0] != name))
            low, high = (rest + (-rest.const)).bounds(ranges)
            ends = (-residues[axis] - high, shape[axis] - 1 - residues[axis] - low)
            ranges[name] = (-(-ends[0] // c), ends[1] // c) if c > 0 else (-(ends[1] // -c), -ends[0] // -c)
        return tuple((c.form + (-c.form.const)).bounds(ranges) for c in self._conditions)

    # --- what is left of the domain ------------------------------------------------------------------

    def _constraints(self, form: _Form) -> list[tuple[Affine, int]]:
        """(form, size): ``0 <= form < size``, in indexes that count from the shifts; the subscripts of the result first."""
        found = [(Affine(f.terms, r), n) for f, r, n in zip(self._forms, form.residues, form.shape, strict=True)]
        for condition, const in zip(self._conditions, form.left or (), strict=True):
            if const is not None:
                found.append((Affine(condition.form.terms, const), condition.size))
        return found

    def _bounds(self, form: _Form) -> tuple[Box, ...] | None:
        """The cells each load reads, without what the shifts add; None when no point is left."""
        if form.left is None:
            return None
        sides = [s for f, size in self._constraints(form) for s in (f, f * -1 + (size - 1))]
        if any(not side.terms and side.const < 0 for side in sides):
            return None
        taken = set(self._domain.names)
        values = {f: claim("value", taken) for access in self._accesses for f in access if len(f.terms) > 1}
        equal = [s for f, v in values.items() for s in (Affine.var(v) - f, f - Affine.var(v))]
        bounds = self._sets.bounds((*self._domain.names, *values.values()), [*(s for s in sides if s.terms), *equal])
        if bounds is None:
            return None

        def reach(form: Affine) -> Interval:
            low, high = bounds[values[form]] if form in values else form.bounds(bounds)
            return low, high + 1

        return tuple(Box.around(list(map(reach, access))) for access in self._accesses)

    # --- the contraction of a box --------------------------------------------------------------------

    def _contraction(self, out: Emission, form: _Form, default: str | None) -> Contraction:
        constraints = self._constraints(form)
        loads, inside = self._loads(form, out)
        return replace(
            self._op,
            name=out.name,
            type=out.type,
            indexes=self._domain.names,
            output=tuple(poly(f) for f, _ in constraints[len(self._reduced) : len(self._forms)]),
            constraints=(*(Constraint(poly(f), size, self._op.origin) for f, size in constraints), *inside),
            loads=loads,
            default=default,
            no_defract=True,
        )

    def _loads(self, form: _Form, out: Emission) -> tuple[tuple[TensorLoad, ...], tuple[Constraint, ...]]:
        """The loads, and what keeps them in operands that cells are read beyond."""
        boxes = self._relative[form]
        assert boxes is not None
        given = enumerate(boxes)
        loads: list[TensorLoad] = []
        inside: list[Constraint] = []
        for load, access in zip(self._op.loads, self._domain.accesses, strict=True):
            if isinstance(load.tensor, str):
                number, box = next(given)
                source = out.given(number)
                starts = [low - at for low, at in zip(box.low, source.at, strict=True)]
                formulas = tuple(poly(f + -start) for f, start in zip(access, starts, strict=True))
                load = TensorLoad(load.dst, source.name, formulas)
                ends = enumerate(zip(formulas, source.type.shape, strict=True))
                inside += [Constraint(f, size, self._op.origin) for k, (f, size) in ends if source.beyond(k)]
            loads.append(load)
        return tuple(loads), tuple(inside)


def _steps(access: tuple[Affine, ...], shifts: dict[str, int]) -> list[int]:
    """What shifts add to the subscripts of a load."""
    return [form.evaluate(shifts) - form.const for form in access]
