"""The loops that a plan's levels make of one loop: a mixed-radix number whose value is the iteration."""

from __future__ import annotations

from dataclasses import dataclass

from tile_ir.frozen import frozen
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import ITEMS, Bind, Index

from tile_opt.plan.plan import Cover, Plan

_SUFFIX = {
    Bind.GRID: "g",
    Bind.GROUP: "i",
    Bind.SUBGROUP: "w",
    Bind.LANE: "l",
    Bind.NONE: "t",
    Bind.UNROLL: "u",
    Bind.VECTOR: "v",
}


@frozen
class Digit:
    """One loop of the nest: `index`, and how far apart in the planned loop its neighbouring iterations are."""

    index: Index
    step: int
    level: int

    @property
    def form(self) -> Affine:
        return Affine.var(self.index.name, self.step)


@frozen
class Split:
    """One loop as the digits that its levels make of it, outermost first."""

    loop: str
    extent: int
    digits: tuple[Digit, ...]
    start: int = 0
    """The first iteration."""

    @property
    def form(self) -> Affine:
        """The iteration of the loop."""
        return sum((d.form for d in self.digits), Affine((), self.start))

    @property
    def lanes(self) -> int:
        return next((d.index.range for d in self.digits if d.index.bind is Bind.VECTOR), 1)

    @property
    def ragged(self) -> bool:
        return self.start + 1 + sum((d.index.range - 1) * d.step for d in self.digits) > self.extent

    def inside(self) -> tuple[Affine, ...]:
        """What keeps whole vectors inside the loop; less than a vector may be left over at its end, for `tail`."""
        if not self.ragged:
            return ()
        first = sum((d.form for d in self.digits if d.index.bind is not Bind.VECTOR), Affine())
        return (first * -1 + (self.extent - self.lanes),)

    def tail(self) -> Split | None:
        """The iterations that are less than a vector, one by one under the vector's name, for the first item alone."""
        rest = self.extent % self.lanes
        lane = next((d.index for d in self.digits if d.index.bind is Bind.VECTOR), None)
        if lane is None or not rest:
            return None
        index = Index(lane.name, rest, bind=Bind.UNROLL)
        return Split(self.loop, self.extent, (Digit(index, 1, 0),), self.extent - rest)

    def first(self) -> tuple[Affine, ...]:
        """What holds for the first item of the first group alone."""
        others = self.bound(Bind.GRID, *ITEMS)
        return (sum((Affine.var(d.index.name, -1) for d in others), Affine()),) if others else ()

    def bound(self, *binds: Bind) -> tuple[Digit, ...]:
        return tuple(d for d in self.digits if d.index.bind in binds)


def lanes_agree(constraint: Affine, loop: str, lanes: int) -> bool:
    """Whether `lanes` neighbouring iterations of `loop`, the first a multiple of `lanes`, all meet it or all do not."""
    step = constraint.coefficient(loop)
    others = all(c % lanes == 0 for n, c in constraint.terms if n != loop)
    whole = constraint.const % lanes == 0 if step == 1 else (constraint.const + 1) % lanes == 0
    return step == 0 or (abs(step) == 1 and others and whole)


@dataclass(slots=True)
class _Rest:
    """What is left of a loop inside a level's point: `pieces` of `size` iterations, `far` apart."""

    size: int
    pieces: int = 1
    far: int = 0

    def points(self, cover: Cover) -> list[tuple[int, int]]:
        """The points of `cover`, as (count, distance) outermost first; what is left is one point's."""
        found: list[tuple[int, int]] = []
        if self.pieces > 1:
            each = max(1, cover.size // self.size)
            found.append((self.pieces // each, self.far * each))
            self.pieces = each
            if each > 1 or cover.size == self.size:
                return found
        count = -(-self.size // cover.size)
        if cover.stride:
            self.size, self.pieces, self.far = cover.stride, cover.size // cover.stride, cover.stride * count
            return [*found, (count, cover.stride)]
        self.size = cover.size
        return [*found, (count, cover.size)]


def split(plan: Plan, loop: Index) -> Split:
    """`loop` by the levels of `plan`; what no level names is a plain loop innermost."""
    rest = _Rest(loop.range)
    made: list[tuple[int, Bind, int, int]] = []
    for number, level in enumerate(plan.levels):
        cover = level.cover(loop.name)
        if cover is not None:
            made += [(number, level.bind, *point) for point in rest.points(cover)]
    if not made:
        return Split(loop.name, loop.range, (Digit(loop, 1, len(plan.levels)),) if loop.range > 1 else ())
    made += [(len(plan.levels), Bind.NONE, *point) for point in rest.points(Cover(loop.name, 1))]
    return Split(loop.name, loop.range, _digits(loop.name, made))


def _digits(loop: str, made: list[tuple[int, Bind, int, int]]) -> tuple[Digit, ...]:
    digits: list[Digit] = []
    for level, bind, count, step in made:
        name = f"{loop}_{_SUFFIX[bind]}"
        same = sum(d.index.bind is bind for d in digits)
        if count > 1:
            lanes = count if bind is Bind.VECTOR else 1
            digits.append(Digit(Index(f"{name}{same}" if same else name, count, bind=bind, lanes=lanes), step, level))
    _check(loop, digits)
    return tuple(digits)


def _check(loop: str, digits: list[Digit]) -> None:
    """ValueError unless each iteration has digits of its own: a level's tiles are whole in those around it."""
    reach = 1
    for digit in sorted(digits, key=lambda d: d.step):
        if digit.step != reach:
            raise ValueError(f"what a level covers of {loop!r} does not divide what the level outside it does")
        if digit.index.bind is Bind.VECTOR and reach > 1:
            raise ValueError(f"vectors take neighbouring iterations of {loop!r}: let their level cover 1")
        reach *= digit.index.range
