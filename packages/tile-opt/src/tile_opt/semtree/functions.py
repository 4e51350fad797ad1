"""What the optional functions compute, in core nodes alone: for targets that do not list them.

Plain formulas with the functions of the core, within the stated bounds (`tile_ir.accuracy`) where those are good to an
ULP or two. float16 and bfloat16 are computed in float32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import factorial, log, pi, sqrt

from tile_ir.dtype import DType
from tile_ir.semtree.nodes import Assign, Block, Call, Cast, Const, Expr, For, Let, Statement, Type, Var

from tile_opt.semtree.terms import Term

_HALVES = (DType.FLOAT16, DType.BFLOAT16)
_ERFC = (
    1.2329951186255526, -0.13962111684056291, 0.015379652102620331, 0.06809705425473873,
    -0.10103906603633497, 0.09373283499675615, -0.06633036581181737, 0.03716751556283946,
    -0.016197734056424624, 0.005031969754831216, -0.0007577733567256261, -0.0001992555104645881,
    0.00015062229820023325, -2.4403135891352295e-05, -1.1224906797057552e-05, 5.7177736473983904e-06,
    3.0149528484928546e-07, -8.349638907330641e-07, 6.263096522176349e-08, 1.1517084307420118e-07,
    -7.730470491848769e-09, -1.3604853049383997e-08, -1.7960595745181325e-09,
)  # fmt: skip
"""``(1 + 2*x) * exp(x**2) * erfc(x)`` in q = (x - 4) / (x + 4) for 0 <= x <= 28, constant term first; relative error 8e-17."""


def expanded(call: Call) -> Expr:
    """The value of an optional function but `fmod`."""
    if call.type.dtype in _HALVES:
        wide = Type(DType.FLOAT32, call.type.lanes)
        return Cast(expanded(Call(call.name, tuple(Cast(a, wide) for a in call.args), wide)), call.type)
    return _FORMULAS[call.name](*map(Term, call.args)).expr


# --- whole numbers ---------------------------------------------------------------------------------


def _trunc(x: Term) -> Term:
    return (x < 0.0).choose(x.call("ceil"), x.call("floor"))


def _round_even(x: Term) -> Term:
    """Large numbers are whole; others lose their fraction to a number whose last bit is worth 1."""
    whole = 2.0**23 if x.expr.type.dtype is DType.FLOAT32 else 2.0**52
    size = abs(x)
    rounded = (size + whole) - whole
    return ((size > 0.0) & (size < whole)).choose((x < 0.0).choose(-rounded, rounded), x)


# --- exponentials and logarithms -------------------------------------------------------------------

_TINY = 2.0**-60


def _expm1(x: Term) -> Term:
    half = x * 0.5
    product = half.call("sinh") * half.call("exp") * 2.0
    return (abs(x) < _TINY).choose(x, (x < -50.0).choose(x.number(-1.0), product))


def _log1p(x: Term) -> Term:
    """The logarithm of the rounded sum, corrected by what the rounding changed."""
    total = x + 1.0
    kept = total - 1.0
    near = total.call("log") * (x / kept)
    return kept.is_(0.0).choose(x, (x > 2.0**60).choose(x.call("log"), near))


_LARGE = 2.0**60


def _asinh(x: Term) -> Term:
    size = abs(x)
    rest = size + size * size / ((size * size + 1.0).call("sqrt") + 1.0)
    return _of_large(size, rest).with_sign_of(x)


def _acosh(x: Term) -> Term:
    above = x - 1.0
    result = _of_large(x, above + (above * (x + 1.0)).call("sqrt"))
    return (x < 1.0).choose((-abs(x) - 1.0).call("log"), result)


def _of_large(x: Term, rest: Term) -> Term:
    """``log1p(rest)``, and ``log(2*x)`` where x has a square that may be infinite."""
    return (x > _LARGE).choose(x.call("log") + log(2), _log1p(rest))


def _atanh(x: Term) -> Term:
    size = abs(x)
    return (_log1p((size + size) / (-size + 1.0)) * 0.5).with_sign_of(x)


# --- the error function ----------------------------------------------------------------------------

_SERIES = [2 / sqrt(pi) * (-1) ** n / factorial(n) / (2 * n + 1) for n in range(14)]
"""erf(x) / x in x**2, for |x| < 1/2."""


def _polynomial(x: Term, coefficients: Sequence[float]) -> Term:
    result = x.number(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        result = result * x + c
    return result


def _tail(size: Term) -> Term:
    """erfc of a number that is not negative."""
    limit = 11.0 if size.expr.type.dtype is DType.FLOAT32 else 28.0
    size = (size > limit).choose(size.number(limit), size)
    ratio = _polynomial((size - 4.0) / (size + 4.0), _ERFC) / (size * 2.0 + 1.0)
    # The square of the leading digits is exact; the rest of the exponent is small.
    grid = 2.0**8 if size.expr.type.dtype is DType.FLOAT32 else 2.0**20
    high = (size * grid).call("floor") * (1 / grid)
    rest = (high - size) * (high + size)
    return ratio * rest.call("exp") * (-(high * high)).call("exp")


def _erf(x: Term) -> Term:
    size = abs(x)
    far = (-_tail(size) + 1.0).with_sign_of(x)
    return (size < 0.5).choose(x * _polynomial(x * x, _SERIES), far)


def _erfc(x: Term) -> Term:
    tail = _tail(abs(x))
    return (x < 0.0).choose(-tail + 2.0, tail)


# --- two operands ----------------------------------------------------------------------------------


def _atan2(y: Term, x: Term) -> Term:
    height, width = abs(y), abs(x)
    steep = height > width
    least, most = steep.choose(width, height), steep.choose(height, width)
    ratio = most.is_(0.0).choose(most, least.is_(least.largest()).choose(x.number(1.0), least / most))
    angle = ratio.call("atan")
    angle = steep.choose(-angle + pi / 2, angle)
    # 1 / x tells the zeros apart.
    back = x.is_(0.0).choose(x.number(1.0) / x, x) < 0.0
    angle = back.choose(-angle + pi, angle)
    below = y.is_(0.0).choose(y.number(1.0) / y, y) < 0.0
    number = x.is_(x) & y.is_(y)
    return number.choose(below.choose(-angle, angle), x + y)


def remainder(call: Call, name: str) -> tuple[list[Statement], Expr]:
    """fmod: statements that compute it, in variables whose names begin with `name`, and its value.

    The divisor is doubled while it fits into what is left, and halved again while multiples are taken away: each step is exact.
    """
    wide = Type(DType.FLOAT32, call.type.lanes) if call.type.dtype in _HALVES else call.type
    a, b = (Term(arg if wide is call.type else Cast(arg, wide)) for arg in call.args)
    rest, multiple = Term(Var(f"{name}_rest", wide)), Term(Var(f"{name}_multiple", wide))
    steps = 280 if wide.dtype is DType.FLOAT32 else 2100
    twice = multiple + multiple
    up = Assign(f"{name}_multiple", (rest < twice).choose(multiple, twice).expr)
    taken = (rest < multiple).choose(rest, rest - multiple)
    down = Assign(f"{name}_multiple", (abs(b) < multiple).choose(multiple * 0.5, multiple).expr)
    made: list[Statement] = [
        Let(f"{name}_rest", abs(a).expr, True),
        Let(f"{name}_multiple", abs(b).expr, True),
        _loop(f"{name}_up", steps, up),
        _loop(f"{name}_down", steps, Assign(f"{name}_rest", taken.expr), down),
    ]
    return made, _remainder(a, b, rest, call.type)


def _loop(name: str, steps: int, *body: Statement) -> For:
    index = Type(DType.INT32)
    return For(name, Const(0, index), Const(steps, index), 1, Block(body))


def _remainder(a: Term, b: Term, rest: Term, type: Type) -> Expr:
    """What was found, with the sign and the exceptions."""
    signed = (a < 0.0).choose(-rest, a.is_(0.0).choose(a, rest))
    small = (abs(a) < abs(b)).choose(a, signed)
    defined = (abs(a) < a.largest()) & (abs(b) > 0.0)
    result = defined.choose(small, (a - a) / (b - b)).expr
    return result if result.type is type else Cast(result, type)


_FORMULAS: Mapping[str, Callable[..., Term]] = {
    "trunc": _trunc, "round_even": _round_even, "expm1": _expm1, "log1p": _log1p, "asinh": _asinh, "acosh": _acosh,
    "atanh": _atanh, "erf": _erf, "erfc": _erfc, "atan2": _atan2,
}  # fmt: skip
