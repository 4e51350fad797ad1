"""Formulas of values as Python writes them: what code of the core computes in the place of a node that a target lacks."""

from __future__ import annotations

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.semtree.nodes import Binary, Call, Compare, Const, Expr, Limit, Select, Type, Unary


@frozen
class Term:
    """A value in a formula; numbers beside it have its type."""

    expr: Expr

    def number(self, value: float) -> Term:
        return Term(Const(value, self.expr.type))

    def largest(self) -> Term:
        """Infinity, or the largest integer."""
        return Term(Limit("max", self.expr.type))

    def __add__(self, other: Term | float) -> Term:
        return self.with_("add", other)

    def __sub__(self, other: Term | float) -> Term:
        return self.with_("sub", other)

    def __mul__(self, other: Term | float) -> Term:
        return self.with_("mul", other)

    def __truediv__(self, other: Term | float) -> Term:
        return self.with_("div", other)

    def __floordiv__(self, other: Term | int) -> Term:
        return self.with_("div", other)

    def __mod__(self, other: Term | int) -> Term:
        return self.with_("mod", other)

    def __neg__(self) -> Term:
        return Term(Unary("neg", self.expr, self.expr.type))

    def __abs__(self) -> Term:
        return Term(Unary("abs", self.expr, self.expr.type))

    def __lt__(self, other: Term | float) -> Test:
        return self._test("cmp_lt", other)

    def __gt__(self, other: Term | float) -> Test:
        return self._test("cmp_gt", other)

    def __ge__(self, other: Term | float) -> Test:
        return self._test("cmp_ge", other)

    def is_(self, other: Term | float) -> Test:
        return self._test("cmp_eq", other)

    def call(self, name: str) -> Term:
        """A function of the core."""
        return Term(Call(name, (self.expr,), self.expr.type))

    def with_sign_of(self, other: Term) -> Term:
        """Of two values of which either both or none is zero; 0 takes the other's sign as well."""
        return other.is_(0.0).choose(other, (other < 0.0).choose(-self, self))

    def with_(self, op: str, other: Term | float) -> Term:
        """An operation of two operands."""
        return Term(Binary(op, self.expr, self._lifted(other), self.expr.type))

    def _test(self, op: str, other: Term | float) -> Test:
        return Test(Compare(op, self.expr, self._lifted(other), Type(DType.BOOL, self.expr.type.lanes)))

    def _lifted(self, other: Term | float) -> Expr:
        return (other if isinstance(other, Term) else self.number(other)).expr


@frozen
class Test:
    """A condition in a formula."""

    expr: Expr

    def choose(self, then: Term, other: Term) -> Term:
        return Term(Select(self.expr, then.expr, other.expr, then.expr.type))

    def both(self, other: Test) -> Test:
        return Test(Binary("bit_and", self.expr, other.expr, self.expr.type))
