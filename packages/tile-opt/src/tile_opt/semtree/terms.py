"""Formulas that code of the core computes in the place of a node that a target lacks."""

from __future__ import annotations

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.semtree.nodes import Binary, Call, Compare, Const, Expr, Limit, Select, Type, Unary

from tile_opt.formulas import Formula


@frozen
class Term(Formula["Term"]):
    """A value in a formula, or a condition."""

    expr: Expr

    def number(self, value: float) -> Term:
        return Term(Const(value, self.expr.type))

    def largest(self) -> Term:
        """Infinity, or the largest integer."""
        return Term(Limit("max", self.expr.type))

    def alone(self, op: str) -> Term:
        return Term(Unary(op, self.expr, self.expr.type))

    def call(self, name: str) -> Term:
        """A function of the core."""
        return Term(Call(name, (self.expr,), self.expr.type))

    def with_sign_of(self, other: Term) -> Term:
        """Of two values of which either both or none is zero; 0 takes the other's sign as well."""
        return other.is_(0.0).choose(other, (other < 0.0).choose(-self, self))

    def with_(self, op: str, other: Term | float) -> Term:
        return Term(Binary(op, self.expr, self._lifted(other), self.expr.type))

    def test(self, op: str, other: Term | float) -> Term:
        return Term(Compare(op, self.expr, self._lifted(other), Type(DType.BOOL, self.expr.type.lanes)))

    def choose(self, then: Term, other: Term | float) -> Term:
        return Term(Select(self.expr, then.expr, then._lifted(other), then.expr.type))

    def _lifted(self, other: Term | float) -> Expr:
        return (other if isinstance(other, Term) else self.number(other)).expr
