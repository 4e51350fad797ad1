"""Questions about integer sets, answered exactly by ISL.

Sets are built through the API (parsing text costs most of a millisecond each). One `Sets` per
compilation: an `isl.Context` is not thread-safe. A question that takes more than the operation limit
raises TileLimitError. This module is the only one of the package that imports islpy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import islpy
from tile_ir.diagnostics import Diagnostic, Span, TileLimitError
from tile_ir.stripe.affine import Affine

isl = cast(Any, islpy)
"""islpy's stubs leave most results unknown; every value that leaves this module is plain Python."""

_T = TypeVar("_T")
Image = tuple[Sequence[str], Iterable[Affine], Sequence[Affine]]
"""Names, constraints (>= 0) and the forms that map a point to its image."""
Bounds = dict[str, tuple[int, int]]

MAX_OPERATIONS = 2_000_000
"""ISL operations for one question: about a second."""

_LONG = 1 << 63

MAX_PARTS = 4
"""A difference with more parts than this counts as not small."""


@dataclass(frozen=True, slots=True)
class Part:
    """A basic set without existentials: bounds of every dimension and the constraints (>= 0) they do not imply."""

    bounds: tuple[tuple[int, int], ...]
    constraints: tuple[Affine, ...]


class Sets:
    """An ISL context with an operation limit."""

    def __init__(self, max_operations: int = MAX_OPERATIONS) -> None:
        self._context = isl.Context()
        self._context.set_max_operations(max_operations)
        self.origin: Span | None = None
        """Where a limit is reported."""
        self.domains: dict[object, object] = {}
        """Flat domains by what they depend on, for `analysis.domain`."""

    def bounds(self, names: Sequence[str], constraints: Iterable[Affine]) -> Bounds | None:
        """Exact smallest and largest value of each name; None when the set is empty. The set must be bounded."""

        def ask() -> Bounds | None:
            points = self._set(names, constraints)
            if points.is_empty():
                return None
            return {
                name: (points.dim_min_val(k).to_python(), points.dim_max_val(k).to_python())
                for k, name in enumerate(names)
            }

        return self._limited(ask)

    def is_empty(self, names: Sequence[str], constraints: Iterable[Affine]) -> bool:
        return self._limited(lambda: bool(self._set(names, constraints).is_empty()))

    def implied(self, names: Sequence[str], constraints: Sequence[Affine], claim: Affine) -> bool:
        """True when `claim` >= 0 is known to hold wherever `constraints` do; False when that is too hard to tell."""
        try:
            return self.is_empty(names, (*constraints, claim * -1 - 1))
        except TileLimitError:
            return False

    def injective(self, names: Sequence[str], constraints: Iterable[Affine], image: Sequence[Affine]) -> bool:
        """True when no two points of the set have the same image."""
        return self._limited(lambda: bool(self._map(names, constraints, image).is_injective()))

    def contains(self, outer: Image, inner: Image) -> bool:
        """True when the image of `inner` is known to lie within that of `outer`; False when it is too hard to tell."""

        def ask() -> bool:
            return bool(self._map(*inner).range().is_subset(self._map(*outer).range()))

        try:
            return self._limited(ask)
        except TileLimitError:
            return False

    def uncovered(
        self,
        names: Sequence[str],
        constraints: Iterable[Affine],
        image: Sequence[Affine],
        shape: Sequence[int],
    ) -> tuple[Part, ...] | None:
        """The cells of `shape` outside the image, as few disjoint parts over names d0, d1, ….

        None when there are more than MAX_PARTS, or when they cannot be found within the operation limit.
        """

        def ask() -> tuple[Part, ...] | None:
            cells = [f"d{k}" for k in range(len(shape))]
            box = [form for name, size in zip(cells, shape, strict=True) for form in _between(name, size)]
            rest = self._set(cells, box).subtract(self._map(names, constraints, image).range())
            if rest.is_empty():
                return ()
            rest = rest.coalesce().make_disjoint()
            pieces = rest.get_basic_sets()
            if len(pieces) > MAX_PARTS or any(p.dim(isl.dim_type.div) for p in pieces):
                return None
            return tuple(_part(piece, cells) for piece in pieces)

        try:
            return self._limited(ask)
        except TileLimitError:
            return None

    def _limited(self, ask: Callable[[], _T]) -> _T:
        self._context.reset_operations()
        try:
            return ask()
        except isl.Error as error:
            raise TileLimitError(
                Diagnostic(
                    "TILE-E303",
                    "the set of valid index tuples is too complicated to analyse",
                    self.origin,
                    "split the contraction, or use fewer coupled indexes",
                )
            ) from error

    def _set(self, names: Sequence[str], constraints: Iterable[Affine]) -> Any:
        space = isl.Space.set_alloc(self._context, 0, len(names))
        local = isl.LocalSpace.from_space(space)
        position = {name: k for k, name in enumerate(names)}
        points = isl.BasicSet.universe(space)
        for form in constraints:
            points = points.add_constraint(self._constraint(local, form, position, isl.dim_type.set))
        return isl.Set.from_basic_set(points)

    def _map(self, names: Sequence[str], constraints: Iterable[Affine], image: Sequence[Affine]) -> Any:
        space = isl.Space.alloc(self._context, 0, len(names), len(image))
        local = isl.LocalSpace.from_space(space)
        position = {name: k for k, name in enumerate(names)}
        relation = isl.BasicMap.universe(space)
        for form in constraints:
            relation = relation.add_constraint(self._constraint(local, form, position, isl.dim_type.in_))
        for k, form in enumerate(image):
            equal = self._constraint(local, form, position, isl.dim_type.in_, equality=True)
            relation = relation.add_constraint(equal.set_coefficient_val(isl.dim_type.out, k, self._number(-1)))
        return isl.Map.from_basic_map(relation)

    def _constraint(
        self, local: Any, form: Affine, position: Mapping[str, int], kind: Any, *, equality: bool = False
    ) -> Any:
        make = isl.Constraint.equality_alloc if equality else isl.Constraint.inequality_alloc
        made = make(local).set_constant_val(self._number(form.const))
        for name, c in form.terms:
            made = made.set_coefficient_val(kind, position[name], self._number(c))
        return made

    def _number(self, value: int) -> Any:
        if -_LONG <= value < _LONG:
            return isl.Val.int_from_si(self._context, value)
        return isl.Val.read_from_str(self._context, str(value))


def _between(name: str, size: int) -> tuple[Affine, Affine]:
    return Affine.var(name), Affine.var(name, -1) + (size - 1)


def _part(piece: Any, cells: Sequence[str]) -> Part:
    points = isl.Set.from_basic_set(piece)
    bounds = [(points.dim_min_val(k).to_python(), points.dim_max_val(k).to_python()) for k in range(len(cells))]
    table = dict(zip(cells, bounds, strict=True))
    forms: list[Affine] = []
    for c in piece.get_constraints():
        terms = {name: c.get_coefficient_val(isl.dim_type.set, k).to_python() for k, name in enumerate(cells)}
        form = Affine.of(terms, c.get_constant_val().to_python())
        forms += [form, form * -1] if c.is_equality() else [form]
    return Part(tuple(bounds), tuple(f for f in forms if f.bounds(table)[0] < 0))
