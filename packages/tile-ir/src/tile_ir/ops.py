"""The scalar operations that Program, Stripe and semtree share: one table, one meaning.

Operands of an operation have equal dtypes (casts are explicit), except where the signature says
otherwise. `tile_ir.numerics` holds the executable definition of each.
"""

from __future__ import annotations

from enum import Enum

from tile_ir.dots import DOTS
from tile_ir.dtype import DType
from tile_ir.frozen import frozen


class Signature(Enum):
    """How operand dtypes and the result dtype relate."""

    SAME = "T.. -> T"
    COMPARE = "T, T -> bool"
    SELECT = "bool, T, T -> T"
    SHIFT = "integer or bool T, any integer -> T"
    CAST = "any -> the stated dtype"
    BITCAST = "any but bool -> the stated dtype, of the same width"
    MATH = "float T.. -> T"
    BITS = "integer or bool T.. -> T"
    DOT = "word, word, T -> T"


@frozen
class ScalarOp:
    """A scalar operation: its name in every IR, number of operands and typing rule."""

    name: str
    arity: int
    signature: Signature
    symbol: str | None = None
    """Tile operator, when it has one."""
    commutative: bool = False


def _table(*ops: ScalarOp) -> dict[str, ScalarOp]:
    return {op.name: op for op in ops}


OPS: dict[str, ScalarOp] = _table(
    ScalarOp("add", 2, Signature.SAME, "+", True),
    ScalarOp("sub", 2, Signature.SAME, "-"),
    ScalarOp("mul", 2, Signature.SAME, "*", True),
    ScalarOp("div", 2, Signature.SAME, "/"),
    ScalarOp("neg", 1, Signature.SAME, "-"),
    ScalarOp("abs", 1, Signature.SAME),
    ScalarOp("max", 2, Signature.SAME, None, True),
    ScalarOp("min", 2, Signature.SAME, None, True),
    ScalarOp("ident", 1, Signature.SAME),
    ScalarOp("cmp_eq", 2, Signature.COMPARE, "==", True),
    ScalarOp("cmp_ne", 2, Signature.COMPARE, "!=", True),
    ScalarOp("cmp_lt", 2, Signature.COMPARE, "<"),
    ScalarOp("cmp_gt", 2, Signature.COMPARE, ">"),
    ScalarOp("cmp_le", 2, Signature.COMPARE, "<="),
    ScalarOp("cmp_ge", 2, Signature.COMPARE, ">="),
    ScalarOp("cond", 3, Signature.SELECT, "?:"),
    ScalarOp("cast", 1, Signature.CAST),
    ScalarOp("bitcast", 1, Signature.BITCAST),
    ScalarOp("bit_and", 2, Signature.BITS, "&", True),
    ScalarOp("bit_or", 2, Signature.BITS, "|", True),
    ScalarOp("bit_xor", 2, Signature.BITS, "^", True),
    ScalarOp("bit_not", 1, Signature.BITS, "~"),
    ScalarOp("bit_left", 2, Signature.SHIFT, "<<"),
    ScalarOp("bit_right", 2, Signature.SHIFT, ">>"),
    *(
        ScalarOp(name, 1, Signature.MATH)
        for name in (
            *("exp", "log", "sqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh"),
            *("ceil", "floor", "round", "recip"),
            *("expm1", "log1p", "asinh", "acosh", "atanh", "erf", "erfc", "trunc", "round_even"),
        )
    ),
    *(ScalarOp(name, 2, Signature.MATH) for name in ("pow", "atan2", "fmod")),
    *(ScalarOp(name, 3, Signature.DOT) for name in DOTS),
)
"""Every scalar operation by name. `div` and shifts are total: see `docs/language.md`."""

ROUNDINGS = frozenset({"ceil", "floor", "trunc", "round", "round_even"})
"""Functions that give a whole number: exact, an instruction or two, and flat but for their steps."""


class Aggregation(Enum):
    """The five ways a contraction merges values of one output cell; the value is the name in Stripe."""

    SUM = "add"
    PROD = "mul"
    MAX = "max"
    MIN = "min"
    ASSIGN = "assign"

    @property
    def symbol(self) -> str:
        """The Tile spelling: ``+ * > < =``."""
        return _AGG_SYMBOLS[self]

    @property
    def op(self) -> str:
        """The scalar operation of `OPS` that merges two values; ASSIGN merges nothing: ValueError."""
        if self is Aggregation.ASSIGN:
            raise ValueError("assign keeps one value and merges none")
        return self.value

    def identity(self, dtype: DType) -> int | float | bool:
        """The value partial results start from: 0, 1, or the dtype's extreme."""
        if self is Aggregation.PROD:
            return 1
        if self is Aggregation.MAX:
            return dtype.min_value
        if self is Aggregation.MIN:
            return dtype.max_value
        return 0


_AGG_SYMBOLS = {
    Aggregation.SUM: "+",
    Aggregation.PROD: "*",
    Aggregation.MAX: ">",
    Aggregation.MIN: "<",
    Aggregation.ASSIGN: "=",
}
