"""Questions about integer sets, answered exactly by ISL.

Sets are built through the API (parsing text costs most of a millisecond each). An `isl.Context` is not thread-safe, so
that every compilation has one. This module is the only one that imports islpy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

from tile_ir.stripe.affine import Affine

from tile_opt.analysis.whole import loaded

isl: Any = loaded("islpy")
"""islpy's stubs leave most results unknown; every value that leaves this module is plain Python."""

Error = cast("type[Exception]", isl.Error)
"""What a question raises that needs more than the limit of operations."""
Image = tuple[Sequence[str], Iterable[Affine], Sequence[Affine]]
"""Names, constraints (>= 0) and the forms that map a point to its image."""
Bounds = dict[str, tuple[int, int]]
Part = tuple[Sequence[Sequence[int]], Sequence[Affine]]
"""A basic set without existentials: (low, high) of every dimension, and the constraints (>= 0) they do not imply."""

IN, OUT, SET = isl.dim_type.in_, isl.dim_type.out, isl.dim_type.set
_LONG = 1 << 63

MAX_PARTS = 4
"""A difference with more parts than this counts as not small."""


class Context:
    """An ISL context; each question may take so many operations of ISL (0: any number).

    `kind` says in which tuple of a space the names of a form stand.
    """

    def __init__(self, operations: int) -> None:
        self.isl = isl.Context()
        self.isl.set_max_operations(operations)
        self._numbers: dict[int, Any] = {}

    def begin(self) -> None:
        """Count operations from here."""
        self.isl.reset_operations()

    def number(self, value: int) -> Any:
        if value not in self._numbers:
            small = -_LONG <= value < _LONG
            self._numbers[value] = (
                isl.Val.int_from_si(self.isl, value) if small else isl.Val.read_from_str(self.isl, str(value))
            )
        return self._numbers[value]

    def set(self, names: Sequence[str], constraints: Iterable[Affine]) -> Any:
        """The points at which all constraints are >= 0."""
        space = isl.Space.set_alloc(self.isl, 0, len(names))
        return isl.Set.from_basic_set(self._limited(isl.BasicSet.universe(space), SET, names, constraints))

    def map(self, names: Sequence[str], constraints: Iterable[Affine], image: Sequence[Affine]) -> Any:
        """From such points to the values of forms."""
        space = isl.Space.alloc(self.isl, 0, len(names), len(image))
        relation = self._limited(isl.BasicMap.universe(space), IN, names, constraints)
        for k, form in enumerate(image):
            equal = isl.Constraint.equality_alloc(isl.LocalSpace.from_space(space))
            equal = self.valued(equal, form, IN, names).set_coefficient_val(OUT, k, self.number(-1))
            relation = relation.add_constraint(equal)
        return isl.Map.from_basic_map(relation)

    def _limited(self, made: Any, kind: Any, names: Sequence[str], constraints: Iterable[Affine]) -> Any:
        local = isl.LocalSpace.from_space(made.get_space())
        for form in constraints:
            made = made.add_constraint(self.valued(isl.Constraint.inequality_alloc(local), form, kind, names))
        return made

    def valued(self, made: Any, form: Affine, kind: Any, names: Sequence[str]) -> Any:
        """A constraint or an expression with the terms of a form."""
        made = made.set_constant_val(self.number(form.const))
        for name, c in form.terms:
            made = made.set_coefficient_val(kind, names.index(name), self.number(c))
        return made


class Isl(Context):
    """What is asked by name."""

    def answer(self, question: str, arguments: Sequence[Any]) -> Any:
        """`question` is the name of a method below; Error beyond the limit."""
        self.begin()
        return getattr(self, question)(*arguments)

    def bounds(self, names: Sequence[str], constraints: Iterable[Affine]) -> Bounds | None:
        """Exact smallest and largest value of each name; None when the set is empty. The set must be bounded."""
        points = self.set(names, constraints)
        if points.is_empty():
            return None
        return {name: (integer(points.dim_min_val(k)), integer(points.dim_max_val(k))) for k, name in enumerate(names)}

    def is_empty(self, names: Sequence[str], constraints: Iterable[Affine]) -> bool:
        return bool(self.set(names, constraints).is_empty())

    def injective(self, names: Sequence[str], constraints: Iterable[Affine], image: Sequence[Affine]) -> bool:
        """True when no two points of the set have the same image."""
        return bool(self.map(names, constraints, image).is_injective())

    def contains(self, outer: Image, inner: Image) -> bool:
        """True when the image of `inner` lies within that of `outer`."""
        return bool(self.map(*inner).range().is_subset(self.map(*outer).range()))

    def uncovered(
        self, names: Sequence[str], constraints: Iterable[Affine], image: Sequence[Affine], shape: Sequence[int]
    ) -> list[Part] | None:
        """The cells of `shape` outside the image, as few disjoint parts over names d0, d1, …; None for more than MAX_PARTS."""
        cells = [f"d{k}" for k in range(len(shape))]
        box = [form for name, size in zip(cells, shape, strict=True) for form in _between(name, size)]
        rest = self.set(cells, box).subtract(self.map(names, constraints, image).range())
        if rest.is_empty():
            return []
        rest = rest.coalesce().make_disjoint()
        pieces = rest.get_basic_sets()
        if len(pieces) > MAX_PARTS or any(p.dim(isl.dim_type.div) for p in pieces):
            return None
        return [_part(piece, cells) for piece in pieces]


def integer(value: Any) -> int:
    """A number of ISL's as Python's; Error when that takes the last of the operations, where islpy raises nothing of its own."""
    try:
        return int(value.to_python())
    except TypeError:
        raise Error("a number is beyond the limit of operations") from None


def _between(name: str, size: int) -> tuple[Affine, Affine]:
    return Affine.var(name), Affine.var(name, -1) + (size - 1)


def _part(piece: Any, cells: Sequence[str]) -> Part:
    points = isl.Set.from_basic_set(piece)
    bounds = [(integer(points.dim_min_val(k)), integer(points.dim_max_val(k))) for k in range(len(cells))]
    table = dict(zip(cells, bounds, strict=True))
    forms: list[Affine] = []
    for c in piece.get_constraints():
        terms = {name: integer(c.get_coefficient_val(SET, k)) for k, name in enumerate(cells)}
        form = Affine.of(terms, integer(c.get_constant_val()))
        forms += [form, form * -1] if c.is_equality() else [form]
    return bounds, [f for f in forms if f.bounds(table)[0] < 0]
