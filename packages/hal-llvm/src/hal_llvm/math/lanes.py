"""Lanewise arithmetic on vectors of one width: the vocabulary in which the math functions are written."""

from __future__ import annotations

from collections.abc import Sequence

from hal_llvm.emit.code import Code
from hal_llvm.emit.types import float_literal, splat, spread
from hal_llvm.math.formats import FORMATS


class Lanes:
    """Operations on `lanes` lanes of a float type ("float" or "double") and the integer of its width."""

    def __init__(self, code: Code, element: str, lanes: int) -> None:
        self.code = code
        self.element = element
        self.lanes = lanes
        self.format = FORMATS[element]
        self.integer = "i32" if element == "float" else "i64"
        self.f = spread(element, lanes)
        self.i = spread(self.integer, lanes)
        self.m = spread("i1", lanes)
        self.fused = code.module.machine.fma

    def const(self, value: float) -> str:
        return splat(self.element, float_literal(value, self.element), self.lanes)

    def iconst(self, value: int) -> str:
        return splat(self.integer, str(value), self.lanes)

    def add(self, a: str, b: str) -> str:
        return self.code.let(f"fadd {self.f} {a}, {b}")

    def sub(self, a: str, b: str) -> str:
        return self.code.let(f"fsub {self.f} {a}, {b}")

    def mul(self, a: str, b: str) -> str:
        return self.code.let(f"fmul {self.f} {a}, {b}")

    def div(self, a: str, b: str) -> str:
        return self.code.let(f"fdiv {self.f} {a}, {b}")

    def neg(self, a: str) -> str:
        return self.code.let(f"fneg {self.f} {a}")

    def fma(self, a: str, b: str, c: str) -> str:
        """``a * b + c``, fused where the processor fuses."""
        return self.code.intrinsic("llvm.fma", self.f, a, b, c) if self.fused else self.add(self.mul(a, b), c)

    def abs(self, a: str) -> str:
        return self.code.intrinsic("llvm.fabs", self.f, a)

    def sqrt(self, a: str) -> str:
        return self.code.intrinsic("llvm.sqrt", self.f, a)

    def copysign(self, magnitude: str, sign: str) -> str:
        return self.code.intrinsic("llvm.copysign", self.f, magnitude, sign)

    def horner(self, x: str, coefficients: Sequence[float]) -> str:
        """The polynomial with the given coefficients, constant term first."""
        result = self.const(coefficients[-1])
        for c in reversed(coefficients[:-1]):
            result = self.fma(result, x, self.const(c))
        return result

    def compare(self, predicate: str, a: str, b: str) -> str:
        return self.code.let(f"fcmp {predicate} {self.f} {a}, {b}")

    def icompare(self, predicate: str, a: str, b: str) -> str:
        return self.code.let(f"icmp {predicate} {self.i} {a}, {b}")

    def both(self, a: str, b: str) -> str:
        return self.code.let(f"and {self.m} {a}, {b}")

    def select(self, mask: str, a: str, b: str) -> str:
        return self.code.let(f"select {self.m} {mask}, {self.f} {a}, {self.f} {b}")

    def iselect(self, mask: str, a: str, b: str) -> str:
        return self.code.let(f"select {self.m} {mask}, {self.i} {a}, {self.i} {b}")

    def bits(self, a: str) -> str:
        return self.code.let(f"bitcast {self.f} {a} to {self.i}")

    def floats(self, a: str) -> str:
        return self.code.let(f"bitcast {self.i} {a} to {self.f}")

    def to_float(self, a: str) -> str:
        """Signed integers as floats."""
        return self.code.let(f"sitofp {self.i} {a} to {self.f}")

    def short_to_float(self, a: str) -> str:
        """The same of integers that 32 bits hold: every processor has that conversion."""
        words = spread("i32", self.lanes)
        short = a if words == self.i else self.code.let(f"trunc {self.i} {a} to {words}")
        return self.code.let(f"sitofp {words} {short} to {self.f}")

    def integers(self, instruction: str, a: str, b: str | int) -> str:
        """An integer instruction (add, shl, ashr, and…) with a vector or a constant."""
        right = self.iconst(b) if isinstance(b, int) else b
        return self.code.let(f"{instruction} {self.i} {a}, {right}")

    def any(self, mask: str) -> str:
        """True when a lane of the mask is."""
        if self.lanes == 1:
            return mask
        return self.code.call(f"llvm.vector.reduce.or.v{self.lanes}i1", "i1", (self.m, mask))


def widened(lanes: Lanes, a: str) -> tuple[Lanes, str]:
    """float32 lanes as float64 lanes."""
    wide = Lanes(lanes.code, "double", lanes.lanes)
    return wide, lanes.code.let(f"fpext {lanes.f} {a} to {wide.f}")


def narrowed(wide: Lanes, lanes: Lanes, a: str) -> str:
    """float64 lanes rounded to float32."""
    return lanes.code.let(f"fptrunc {wide.f} {a} to {lanes.f}")
