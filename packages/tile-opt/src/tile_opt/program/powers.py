"""Powers by numbers that a few products and a root give: a general power takes ten times as long.

``pow(x, 2)`` is ``x * x``, ``pow(x, -1.5)`` is ``y * sqrt(y)`` of ``y = 1 / x``: as exact as the operation `pow` promises to be, and with its
values where C's differ from those of a root: ``pow(-0, 0.5)`` is 0 and ``pow(-inf, 0.5)`` is inf.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import inf

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.names import claim
from tile_ir.program.nodes import Elementwise, Literal, Op, Operand, Program, TensorType

from tile_opt.program.base import Rewrite, with_each

EXACT = (2.0, -1.0)
"""Exponents for which one operation is all: floats of any width lose nothing between two."""


@frozen
class Powers(Rewrite):
    """Write powers by multiples of a half, up to `largest`, as products and roots."""

    largest: float = 4

    def apply(self, program: Program) -> Program:
        if not any(isinstance(op, Elementwise) and op.fn == "pow" for op in program.ops):
            return program
        taken = set(program.types())
        return with_each(program, lambda op: self._written(op, taken))

    def _written(self, op: Op, taken: set[str]) -> Iterator[Op]:
        """The operations in the place of one, of which the last has its name."""
        match op:
            case Elementwise(fn="pow", args=(str(base), Literal(value))) if self._serves(float(value), op.type.dtype):
                terms = _Terms(op, taken)
                terms.power(base, float(value))
                *before, last = terms.ops
                yield from before
                yield replace(last, name=op.name)
            case _:
                yield op

    def _serves(self, exponent: float, dtype: DType) -> bool:
        if not dtype.is_float or not 0 < abs(exponent) <= self.largest or exponent in (0, 1):
            return False
        return exponent in EXACT or (dtype.bits >= 32 and (2 * exponent).is_integer())


@dataclass(slots=True)
class _Terms:
    """Elementwise operations in the place of one."""

    like: Elementwise
    taken: set[str]
    ops: list[Elementwise] = field(default_factory=list[Elementwise])

    def power(self, base: str, exponent: float) -> str:
        whole, half = divmod(abs(exponent), 1)
        if not half:
            return self._whole(self._do("recip", base) if exponent < 0 else base, int(whole))
        positive = self._do("add", base, 0.0)
        if exponent < -1:
            inverse = self._do("add", self._do("recip", positive), 0.0)
            return self._do("mul", self._whole(inverse, int(whole)), self._do("sqrt", inverse))
        found = self._do("sqrt", positive)
        if whole:
            found = self._do("mul", self._whole(positive, int(whole)), found)
        found = self._do("cond", self._do("cmp_eq", base, -inf), inf, found)
        return self._do("recip", found) if exponent < 0 else found

    def _whole(self, base: str, exponent: int) -> str:
        """By squaring."""
        if exponent == 1:
            return base
        half = self._whole(base, exponent // 2)
        square = self._do("mul", half, half)
        return self._do("mul", square, base) if exponent % 2 else square

    def _do(self, fn: str, *args: str | float) -> str:
        dtype = self.like.type.dtype
        operands: tuple[Operand, ...] = tuple(a if isinstance(a, str) else Literal(a, dtype) for a in args)
        type = TensorType(DType.BOOL if fn == "cmp_eq" else dtype, self.like.type.shape)
        name = claim(f"{self.like.name}_{len(self.ops)}", self.taken)
        self.ops.append(Elementwise(name, type, fn, operands, origin=self.like.origin))
        return name
