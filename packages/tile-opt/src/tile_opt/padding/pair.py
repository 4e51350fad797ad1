"""Two programs of one source, and which value of the larger one stands for which of the smaller one."""

from __future__ import annotations

from functools import cached_property

from tile_ir.program.nodes import Op, Program

from tile_opt.padding.fixed import Fixed
from tile_opt.padding.needs import Needs, OtherForm, Refused

Shape = tuple[int, ...]


class Pair:
    """A comparison so far."""

    def __init__(self, small: Program, large: Program) -> None:
        self.small, self.large = small.types(), large.types()
        self.programs = small, large
        self.names: dict[str, str] = {}
        """Values of the larger program by those of the smaller one."""
        self.needs = Needs()
        self.lost: set[str] = set()
        """Values of the smaller program that the larger one does not hold."""
        self._inner: dict[str, Shape] = {}
        for ours, theirs in zip(small.inputs, large.inputs, strict=True):
            self.relate(None, ours.name, theirs.name)

    def relate(self, op: Op | None, ours: str, theirs: str) -> None:
        """States that one value stands for another."""
        a, b = self.small[ours], self.large[theirs]
        if a.dtype is not b.dtype or len(a.shape) != len(b.shape):
            raise OtherForm(op, f"the two sizes lead to values of different kinds, {a} and {b}")
        if any(size > padded for size, padded in zip(a.shape, b.shape, strict=True)):
            raise Refused(op, f"what is {a} does not fit into {b}")
        self.names[ours] = theirs
        self._inner[theirs] = a.shape

    def inner(self, name: str) -> Shape:
        """The shape that a value of the larger program has in the smaller one."""
        return self._inner[name]

    def padded(self, name: str, axis: int) -> bool:
        """Whether a value of the larger program has cells outside along an axis."""
        return self._inner[name][axis] != self.large[name].shape[axis]

    @cached_property
    def fixed(self) -> Fixed:
        """What the larger program computes from constants alone."""
        return Fixed(self.programs[1])

    @cached_property
    def _fixed_inner(self) -> Fixed:
        return Fixed(self.programs[0])

    def within(self, name: str, size: int) -> bool:
        """Whether the smaller program computes this value of the larger one from constants alone, all in [0, size)."""
        own = next(ours for ours, theirs in self.names.items() if theirs == name)
        found = self._fixed_inner.value(own)
        return found is not None and bool(((found >= 0) & (found < size)).all())
