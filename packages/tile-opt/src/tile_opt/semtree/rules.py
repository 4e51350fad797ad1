"""The simplifier's rule table: pattern -> replacement, as data that a test can enumerate.

A pattern is nested tuples ``(operation, operand, …)``. Operands: ``"x" "y" "c"`` match any expression
(the same one where a name repeats), ``"#a" "#b"`` match literals, and a number or bool matches that literal.
In a replacement an operation on literals is computed.
"""

from __future__ import annotations

from tile_ir.dtype import DType
from tile_ir.frozen import frozen

Pattern = str | int | bool | tuple["Pattern", ...]

INTEGERS = frozenset(d for d in DType if d.is_integer)
NUMBERS = frozenset(d for d in DType if d is not DType.BOOL)
BOOLEAN = frozenset({DType.BOOL})
ANY = frozenset(DType)


@frozen
class Rule:
    """Rewrite `pattern` to `to` when the operands' dtype is one of `dtypes`; exact for every value, NaN and -0.0 included."""

    name: str
    pattern: tuple[Pattern, ...]
    to: Pattern
    dtypes: frozenset[DType] = INTEGERS


RULES: tuple[Rule, ...] = (
    Rule("add zero", ("add", "x", 0), "x"),
    Rule("zero add", ("add", 0, "x"), "x"),
    Rule("subtract zero", ("sub", "x", 0), "x", NUMBERS),
    Rule("subtract itself", ("sub", "x", "x"), 0),
    Rule("times one", ("mul", "x", 1), "x", NUMBERS),
    Rule("one times", ("mul", 1, "x"), "x", NUMBERS),
    Rule("times zero", ("mul", "x", 0), 0),
    Rule("zero times", ("mul", 0, "x"), 0),
    Rule("over one", ("div", "x", 1), "x", NUMBERS),
    Rule("zero over", ("div", 0, "x"), 0),
    Rule("modulo one", ("mod", "x", 1), 0, frozenset({DType.INT32, DType.INT64})),
    Rule("literal to the right of add", ("add", "#a", "x"), ("add", "x", "#a")),
    Rule("literal to the right of mul", ("mul", "#a", "x"), ("mul", "x", "#a")),
    Rule("add add", ("add", ("add", "x", "#a"), "#b"), ("add", "x", ("add", "#a", "#b"))),
    Rule("add sub", ("sub", ("add", "x", "#a"), "#b"), ("add", "x", ("sub", "#a", "#b"))),
    Rule("sub add", ("add", ("sub", "x", "#a"), "#b"), ("add", "x", ("sub", "#b", "#a"))),
    Rule("sub sub", ("sub", ("sub", "x", "#a"), "#b"), ("sub", "x", ("add", "#a", "#b"))),
    Rule("mul mul", ("mul", ("mul", "x", "#a"), "#b"), ("mul", "x", ("mul", "#a", "#b"))),
    Rule("max of itself", ("max", "x", "x"), "x", ANY),
    Rule("min of itself", ("min", "x", "x"), "x", ANY),
    Rule("max max", ("max", ("max", "x", "#a"), "#b"), ("max", "x", ("max", "#a", "#b"))),
    Rule("min min", ("min", ("min", "x", "#a"), "#b"), ("min", "x", ("min", "#a", "#b"))),
    Rule("and itself", ("bit_and", "x", "x"), "x", INTEGERS | BOOLEAN),
    Rule("or itself", ("bit_or", "x", "x"), "x", INTEGERS | BOOLEAN),
    Rule("xor itself", ("bit_xor", "x", "x"), 0, INTEGERS | BOOLEAN),
    Rule("and zero", ("bit_and", "x", 0), 0, INTEGERS | BOOLEAN),
    Rule("or zero", ("bit_or", "x", 0), "x", INTEGERS | BOOLEAN),
    Rule("xor zero", ("bit_xor", "x", 0), "x", INTEGERS | BOOLEAN),
    Rule("zero and", ("bit_and", 0, "x"), 0, INTEGERS | BOOLEAN),
    Rule("zero or", ("bit_or", 0, "x"), "x", INTEGERS | BOOLEAN),
    Rule("and true", ("bit_and", "x", True), "x", BOOLEAN),
    Rule("true and", ("bit_and", True, "x"), "x", BOOLEAN),
    Rule("or true", ("bit_or", "x", True), True, BOOLEAN),
    Rule("left shift by zero", ("bit_left", "x", 0), "x"),
    Rule("right shift by zero", ("bit_right", "x", 0), "x"),
    Rule("negate twice", ("neg", ("neg", "x")), "x", NUMBERS),
    Rule("invert twice", ("bit_not", ("bit_not", "x")), "x", INTEGERS | BOOLEAN),
    Rule("abs twice", ("abs", ("abs", "x")), ("abs", "x"), NUMBERS),
    Rule("equal to itself", ("cmp_eq", "x", "x"), True, INTEGERS | BOOLEAN),
    Rule("different from itself", ("cmp_ne", "x", "x"), False, INTEGERS | BOOLEAN),
    Rule("less than itself", ("cmp_lt", "x", "x"), False, ANY),
    Rule("more than itself", ("cmp_gt", "x", "x"), False, ANY),
    Rule("at most itself", ("cmp_le", "x", "x"), True, INTEGERS | BOOLEAN),
    Rule("at least itself", ("cmp_ge", "x", "x"), True, INTEGERS | BOOLEAN),
    Rule("select when true", ("cond", True, "x", "y"), "x", ANY),
    Rule("select when false", ("cond", False, "x", "y"), "y", ANY),
    Rule("select of one", ("cond", "c", "x", "x"), "x", ANY),
)
"""Applied top to bottom; the first match wins, and the result is simplified again."""

BY_OPERATION: dict[str, tuple[Rule, ...]] = {}
for _rule in RULES:
    _operation = str(_rule.pattern[0])
    BY_OPERATION[_operation] = (*BY_OPERATION.get(_operation, ()), _rule)


LITERALS = frozenset(p for r in RULES for p in r.pattern if not isinstance(p, (str, tuple)))
"""The literals that rules name as operands."""
