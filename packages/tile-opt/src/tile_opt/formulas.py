"""Formulas as Python writes them, whatever their operations become: nodes of a kernel's code, statements of a body."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from tile_ir.dtype import DType

F = TypeVar("F")
"""The class of the values of a kind of formula."""
S = TypeVar("S", bound="Scalar[Any]")


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


class Scalar(Formula[S]):
    """A scalar of a body of statements, which what is made of it joins."""

    __slots__ = ()

    dtype: DType

    @abstractmethod
    def do(self, op: str, others: tuple[S, ...], dtype: DType) -> S:
        """A statement with this as its first operand."""

    @abstractmethod
    def number(self, value: float, dtype: DType) -> S:
        """A constant beside it."""

    def alone(self, op: str) -> S:
        return self.do(op, (), self.dtype)

    def with_(self, op: str, other: S | float) -> S:
        return self.do(op, (self.lifted(other),), self.dtype)

    def test(self, op: str, other: S | float) -> S:
        return self.do(op, (self.lifted(other),), DType.BOOL)

    def choose(self, then: S, other: S | float) -> S:
        return self.do("cond", (then, then.lifted(other)), then.dtype)

    def bits(self, dtype: DType) -> S:
        """Its bits as a dtype of the same width."""
        return self.do("bitcast", (), dtype)

    def lifted(self, other: S | float) -> S:
        """The other, numbers as constants of the own dtype."""
        return self.number(other, self.dtype) if isinstance(other, int | float) else other
