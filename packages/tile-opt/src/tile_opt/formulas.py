"""Formulas as Python writes them, whatever their operations become: nodes of a kernel's code, scalars of a stage."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

F = TypeVar("F")
"""The class of the values of a kind of formula."""


class Formula(ABC, Generic[F]):
    """A value; numbers beside it have its type."""

    __slots__ = ()

    @abstractmethod
    def alone(self, op: str) -> F:
        """An operation of one operand, of its type."""

    @abstractmethod
    def with_(self, op: str, other: F | float) -> F:
        """An operation of two operands of one type, which its result has."""

    @abstractmethod
    def test(self, op: str, other: F | float) -> F:
        """A comparison."""

    @abstractmethod
    def choose(self, then: F, other: F | float) -> F:
        """`then` where this holds, else the other."""

    def __add__(self, other: F | float) -> F:
        return self.with_("add", other)

    def __sub__(self, other: F | float) -> F:
        return self.with_("sub", other)

    def __mul__(self, other: F | float) -> F:
        return self.with_("mul", other)

    def __truediv__(self, other: F | float) -> F:
        return self.with_("div", other)

    def __floordiv__(self, other: F | int) -> F:
        return self.with_("div", other)

    def __mod__(self, other: F | int) -> F:
        return self.with_("mod", other)

    def __and__(self, other: F | int) -> F:
        return self.with_("bit_and", other)

    def __or__(self, other: F | int) -> F:
        return self.with_("bit_or", other)

    def __xor__(self, other: F | int) -> F:
        return self.with_("bit_xor", other)

    def __lshift__(self, other: F | int) -> F:
        return self.with_("bit_left", other)

    def __rshift__(self, other: F | int) -> F:
        return self.with_("bit_right", other)

    def __neg__(self) -> F:
        return self.alone("neg")

    def __abs__(self) -> F:
        return self.alone("abs")

    def __invert__(self) -> F:
        return self.alone("bit_not")

    def __lt__(self, other: F | float) -> F:
        return self.test("cmp_lt", other)

    def __le__(self, other: F | float) -> F:
        return self.test("cmp_le", other)

    def __gt__(self, other: F | float) -> F:
        return self.test("cmp_gt", other)

    def __ge__(self, other: F | float) -> F:
        return self.test("cmp_ge", other)

    def is_(self, other: F | float) -> F:
        return self.test("cmp_eq", other)

    def is_not(self, other: F | float) -> F:
        return self.test("cmp_ne", other)
