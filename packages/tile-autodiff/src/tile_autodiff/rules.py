"""The derivative of every elementwise function: one table, with the domain and the source of each rule.

A rule has one partial per operand. A partial gives the operand's share of the incoming derivative ``dy``, or None
where it is zero everywhere: symbolic zeros are never multiplied, added or stored. Rules are linear in ``dy``.

They serve whole tensors and the scalar bodies of contractions alike. Broadcasting is undone by the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import pi, sqrt

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.ops import OPS, ROUNDINGS, Signature
from tile_ir.program.macros import MACROS, literal
from tile_ir.program.nodes import Literal, Operand

from tile_autodiff._emit import Emitter


@frozen
class Site:
    """One use of a function: its operands, its result and the derivative that comes in."""

    emitter: Emitter
    args: Sequence[Operand]
    y: Operand
    dy: Operand
    params: tuple[int | float, ...] = ()

    @property
    def dtype(self) -> DType:
        return self.emitter.dtype(self.dy)

    def op(self, fn: str, *args: Operand) -> Operand:
        """``fn(args…)`` in the dtype of the derivative."""
        return self.emitter.emit(fn, args, self.dtype)

    def test(self, fn: str, *args: Operand) -> Operand:
        return self.emitter.emit(fn, args, DType.BOOL)

    def number(self, value: float) -> Literal:
        return literal(value, self.dtype)

    def keep_if(self, test: Operand, value: Operand | None = None) -> Operand:
        """`value` (dy) where the test holds, else 0: never a product with 0, which would spread NaN and infinity."""
        return self.op("cond", test, self.dy if value is None else value, self.number(0))


Partial = Callable[[Site], Operand | None]


@frozen
class Rule:
    """Partials by operand position (`more` serves further ones); where the rule holds and what it follows."""

    partials: tuple[Partial, ...]
    domain: str = "everywhere"
    source: str = "calculus"

    def apply(self, site: Site, position: int) -> Operand | None:
        """The derivative that flows to one operand, or None for a symbolic zero."""
        return self.partials[position](site)


def _zero(_: Site) -> None:
    return None


def _pass(s: Site) -> Operand:
    return s.dy


def _negated(s: Site) -> Operand:
    return s.op("neg", s.dy)


def _cast(s: Site) -> Operand | None:
    dtype = s.emitter.dtype(s.args[0])
    return s.emitter.cast(s.dy, dtype) if dtype.is_float else None


# --- arithmetic ----------------------------------------------------------------------------------


def _times(position: int) -> Partial:
    return lambda s: s.op("mul", s.dy, s.args[position])


def _numerator(s: Site) -> Operand:
    return s.op("div", s.dy, s.args[1])


def _denominator(s: Site) -> Operand:
    return s.op("neg", s.op("mul", _numerator(s), s.y))


def _abs(s: Site) -> Operand:
    zero = s.number(0)
    negative = s.op("cond", s.test("cmp_lt", s.args[0], zero), s.op("neg", s.dy), zero)
    return s.op("cond", s.test("cmp_gt", s.args[0], zero), s.dy, negative)


def _selected(compare: str, own: int) -> Partial:
    """max and min: to the winner, half to each where they are equal, nothing where one is NaN."""

    def partial(s: Site) -> Operand:
        mine, other = s.args[own], s.args[1 - own]
        half = s.keep_if(s.test("cmp_eq", mine, other), s.op("mul", s.dy, s.number(0.5)))
        return s.op("cond", s.test(compare, mine, other), s.dy, half)

    return partial


def _then(s: Site) -> Operand:
    return s.keep_if(s.args[0])


def _otherwise(s: Site) -> Operand:
    return s.op("cond", s.args[0], s.number(0), s.dy)


def _relu(s: Site) -> Operand:
    return s.keep_if(s.test("cmp_gt", s.y, s.number(0)))


def _reversed(s: Site) -> Operand | None:
    return s.op("mul", s.dy, s.number(-s.params[0])) if s.params[0] else None


# --- functions -----------------------------------------------------------------------------------


def _root(s: Site) -> Operand:
    return s.op("div", s.dy, s.op("mul", s.number(2), s.y))


def _squared(s: Site, x: Operand) -> Operand:
    return s.op("mul", x, x)


def _arc(s: Site) -> Operand:
    return s.op("div", s.dy, s.op("sqrt", s.op("sub", s.number(1), _squared(s, s.args[0]))))


def _base(s: Site) -> Operand | None:
    """``y * pow(x, y - 1)``: never a logarithm, so that negative bases with whole exponents are right."""
    x, exponent = s.args
    if isinstance(exponent, Literal):
        return _constant_power(s, x, exponent.value)
    zero = s.number(0)
    # 0 * pow(0, -1) would be 0 * inf.
    flat = s.test("bit_and", s.test("cmp_eq", x, zero), s.test("cmp_eq", exponent, zero))
    lower = s.op("cond", flat, zero, s.op("sub", exponent, s.number(1)))
    return s.op("mul", s.dy, s.op("mul", exponent, s.op("pow", x, lower)))


def _constant_power(s: Site, x: Operand, exponent: float) -> Operand | None:
    if exponent == 0:
        return None
    if exponent == 1:
        return s.dy
    power = x if exponent == 2 else s.op("pow", x, s.number(exponent - 1))
    return s.op("mul", s.dy, s.op("mul", s.number(exponent), power))


def _exponent(s: Site) -> Operand:
    """``y^x * log(x)``; 0 for base 0 and an exponent that is not negative, NaN for negative bases."""
    x, exponent = s.args
    zero = s.number(0)
    flat = s.test("bit_and", s.test("cmp_eq", x, zero), s.test("cmp_ge", exponent, zero))
    logarithm = s.op("log", s.op("cond", flat, s.number(1), x))
    return s.op("mul", s.dy, s.op("mul", s.y, logarithm))


def _one_minus_square(s: Site) -> Operand:
    """``1 - x*x`` as a product, which keeps its digits near 1."""
    x, one = s.args[0], s.number(1)
    return s.op("mul", s.op("sub", one, x), s.op("add", one, x))


def _acosh(s: Site) -> Operand:
    x, one = s.args[0], s.number(1)
    return s.op("div", s.dy, s.op("mul", s.op("sqrt", s.op("sub", x, one)), s.op("sqrt", s.op("add", x, one))))


def _bell(scale: float) -> Partial:
    """``dy * scale * exp(-x*x)``."""

    def partial(s: Site) -> Operand:
        power = s.op("exp", s.op("neg", _squared(s, s.args[0])))
        return s.op("mul", s.dy, s.op("mul", s.number(scale), power))

    return partial


def _angle(s: Site, other: int) -> Operand:
    """``dy * args[other] / (y*y + x*x)``, of numbers scaled so that no square overflows or vanishes; 0 at the origin."""
    size = s.op("max", s.op("abs", s.args[0]), s.op("abs", s.args[1]))
    origin = s.test("cmp_eq", size, s.number(0))
    size = s.op("cond", origin, s.number(1), size)
    parts = [s.op("div", arg, size) for arg in s.args]
    square = s.op("add", _squared(s, parts[0]), _squared(s, parts[1]))
    square = s.op("cond", origin, s.number(1), square)
    return s.op("mul", s.dy, s.op("div", s.op("div", parts[other], square), size))


def _whole_part(s: Site) -> Operand:
    """``-dy * q`` with the whole quotient q, which is how often the divisor was taken away."""
    # From the remainder itself: a quotient of its own could round to the next integer.
    whole = s.op("round_even", s.op("div", s.op("sub", s.args[0], s.y), s.args[1]))
    return s.op("neg", s.op("mul", s.dy, whole))


def _silu(s: Site) -> Operand:
    """``dy * (g + y*(1 - g))`` with g the sigmoid."""
    gate = s.op("sigmoid", s.args[0])
    return s.op("mul", s.dy, s.op("add", gate, s.op("mul", s.y, s.op("sub", s.number(1), gate))))


def _gelu(s: Site) -> Operand:
    """``dy * (P(x) + x*p(x))`` with the normal distribution's P and p."""
    x = s.args[0]
    below = s.op("mul", s.number(0.5), s.op("erfc", s.op("mul", x, s.number(-sqrt(0.5)))))
    power = s.op("exp", s.op("mul", s.number(-0.5), _squared(s, x)))
    return s.op("mul", s.dy, s.op("add", below, s.op("mul", x, s.op("mul", s.number(1 / sqrt(2 * pi)), power))))


def _one_argument(value: Callable[[Site], Operand]) -> Partial:
    return lambda s: s.op("mul", s.dy, value(s))


RULES: dict[str, Rule] = {
    "ident": Rule((_pass,)),
    "neg": Rule((_negated,)),
    "add": Rule((_pass, _pass)),
    "sub": Rule((_pass, _negated)),
    "mul": Rule((_times(1), _times(0))),
    "div": Rule((_numerator, _denominator), "denominator not 0"),
    "recip": Rule((_one_argument(lambda s: s.op("neg", _squared(s, s.y))),), "x not 0"),
    "abs": Rule((_abs,), "everywhere; 0 at 0 and at NaN", "mean of the one-sided derivatives"),
    "max": Rule(
        (_selected("cmp_gt", 0), _selected("cmp_gt", 1)),
        "ties: half to each; NaN: nothing",
        "a choice at points where no derivative exists",
    ),
    "min": Rule(
        (_selected("cmp_lt", 0), _selected("cmp_lt", 1)),
        "ties: half to each; NaN: nothing",
        "a choice at points where no derivative exists",
    ),
    "cond": Rule((_zero, _then, _otherwise), "away from jumps of the condition"),
    "cast": Rule((_cast,), "between floats; through integers and bool zero"),
    "bitcast": Rule((_zero,), source="bits are no numbers"),
    "exp": Rule((_one_argument(lambda s: s.y),)),
    "log": Rule((lambda s: s.op("div", s.dy, s.args[0]),), "x > 0"),
    "sqrt": Rule((_root,), "x > 0; infinite at 0"),
    "pow": Rule((_base, _exponent), "base: where pow is defined; exponent: base >= 0, NaN below"),
    "sin": Rule((_one_argument(lambda s: s.op("cos", s.args[0])),)),
    "cos": Rule((_one_argument(lambda s: s.op("neg", s.op("sin", s.args[0]))),)),
    "tan": Rule((_one_argument(lambda s: s.op("add", s.number(1), _squared(s, s.y))),), "cos x not 0"),
    "asin": Rule((_arc,), "-1 < x < 1"),
    "acos": Rule((lambda s: s.op("neg", _arc(s)),), "-1 < x < 1"),
    "atan": Rule((lambda s: s.op("div", s.dy, s.op("add", s.number(1), _squared(s, s.args[0]))),)),
    "sinh": Rule((_one_argument(lambda s: s.op("cosh", s.args[0])),)),
    "cosh": Rule((_one_argument(lambda s: s.op("sinh", s.args[0])),)),
    "tanh": Rule((_one_argument(lambda s: s.op("sub", s.number(1), _squared(s, s.y))),)),
    "relu": Rule((_relu,), "everywhere; 0 at 0 and at NaN", "a choice at points where no derivative exists"),
    "sigmoid": Rule((_one_argument(lambda s: s.op("mul", s.y, s.op("sub", s.number(1), s.y))),)),
    "stop_gradient": Rule((_zero,), source="definition"),
    "reverse_grad": Rule((_reversed,), source="definition: -k * dy"),
    "expm1": Rule((lambda s: s.op("mul", s.dy, s.op("add", s.y, s.number(1))),)),
    "log1p": Rule((lambda s: s.op("div", s.dy, s.op("add", s.args[0], s.number(1))),), "x > -1"),
    "asinh": Rule((lambda s: s.op("div", s.dy, s.op("sqrt", s.op("add", _squared(s, s.args[0]), s.number(1)))),)),
    "acosh": Rule((_acosh,), "x > 1; infinite at 1"),
    "atanh": Rule((lambda s: s.op("div", s.dy, _one_minus_square(s)),), "-1 < x < 1"),
    "erf": Rule((_bell(2 / sqrt(pi)),)),
    "erfc": Rule((_bell(-2 / sqrt(pi)),)),
    "atan2": Rule((lambda s: _angle(s, 1), lambda s: s.op("neg", _angle(s, 0))), "away from the origin; 0 there"),
    **{
        name: Rule((_pass, _whole_part), "away from multiples of the divisor, which is not 0")
        for name in ("fmod", "mod")
    },
    "silu": Rule((_silu,)),
    "softplus": Rule((_one_argument(lambda s: s.op("sigmoid", s.args[0])),)),
    "gelu": Rule((_gelu,)),
    **{name: Rule((_zero,), "away from the steps", "piecewise constant") for name in (*sorted(ROUNDINGS), "sign")},
    **{
        name: Rule((_zero,) * op.arity, "away from equality", "result is not a float")
        for name, op in OPS.items()
        if op.signature in (Signature.COMPARE, Signature.BITS, Signature.SHIFT, Signature.DOT)
    },
}
"""Rule by function; `tests` prove that none of ``tile_ir.ops.OPS`` and ``tile_ir.program.macros.MACROS`` is missing."""


def missing() -> list[str]:
    """Functions that Program can hold and the table lacks (none)."""
    return sorted((set(OPS) | set(MACROS)) - set(RULES))
