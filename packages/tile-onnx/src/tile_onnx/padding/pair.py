"""Two programs of one source, and which value of the larger one stands for which of the smaller one."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from tile_ir.program.liveness import live_ops
from tile_ir.program.nodes import Op, Program
from tile_opt.program.base import fixed_values

from tile_onnx.padding.needs import Needs, OtherForm, Refused

LARGEST = 2**26
"""Elements up to which values behind a constant are computed."""


class Fixed:
    """Of one program."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._types = program.types()
        self._names = fixed_values(program, bound=False).keys()
        self._finite: dict[str, bool] = {}

    def finite(self, name: str) -> bool:
        """Whether a value is computed from constants alone, and has neither infinities nor NaN."""
        if name not in self._finite:
            found = self.value(name) if self._types[name].dtype.is_float else None
            known = name in self._names and not self._types[name].dtype.is_float
            self._finite[name] = known or (found is not None and bool(np.isfinite(found.astype(np.float64)).all()))
        return self._finite[name]

    def value(self, name: str) -> np.ndarray[Any, Any] | None:
        """A value that is computed from constants alone, and is not too large to look at."""
        from tile_lang.evaluate import evaluate

        if name not in self._names or self._types[name].size > LARGEST:
            return None
        ops = live_ops(self._program.ops, [name])
        return evaluate(Program("fixed", (), ops, ((name, name),)), {})[name]


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
