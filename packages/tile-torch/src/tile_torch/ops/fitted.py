"""Functions that are polynomials between their ends, fitted to PyTorch's own values in float64 when a program first has one."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.polynomial.chebyshev import cheb2poly, chebinterpolate
from tile_runtime.ops.text import cast, function, literal, wide
from tile_runtime.ops.values import Value, apply, dtype_of

from tile_torch.call import Call
from tile_torch.registry import operator, present

aten = torch.ops.aten
special: Any = torch.special

END = 8.0
"""Up to here a Bessel function is a polynomial of its argument, beyond one of the reciprocal."""
BESSEL = {
    op: (scaled, odd, grows)
    for names, scaled, odd, grows in (
        (("prims.bessel_i0", "aten.special_modified_bessel_i0"), special.i0e, False, True),
        (("prims.bessel_i0e",), special.i0e, False, False),
        (("prims.bessel_i1", "aten.special_modified_bessel_i1"), special.i1e, True, True),
        (("prims.bessel_i1e",), special.i1e, True, False),
    )
    for name in names
    for op in present(f"{name}.default")
}
"""By operator: the function without its exponential, whether it is odd, and whether the exponential belongs to it."""


@operator(*BESSEL)
def bessel(call: Call, input: Value) -> Value:
    """Modified Bessel functions of the first kind."""
    scaled, odd, grows = BESSEL[call.target]
    near, far = _near(scaled, odd), _far(scaled)
    large = f"({'exp(A) * ' if grows else ''}{far}) / sqrt(A)"
    small = f"{near}{' * A' if odd else ''}{' * exp(A)' if grows else ''}"
    found = f"(A <= {END} ? {small} : {large})"
    signed = f"({_widened(input, call)} < 0 ? -{found} : {found})" if odd else found
    steps = f"A = abs({_widened(input, call)});", f"N = A / {END / 2} - 1;", f"F = {2 * END} / max(A, {END}) - 1;"
    return apply(function("X", "Y", *steps, f"Y = {cast(signed, call.dtype)};"), input)


@operator(*present("prims.erfcx.default"), aten.special_erfcx.default)
def erfcx(call: Call, input: Value) -> Value:
    """``exp(x²) · erfc(x)``, which has no exponential where x is positive."""
    value = _widened(input, call)
    steps = (
        f"A = abs({value});",
        "T = 4 / (2 + A) - 1;",
        f"P = {_complement()} / (2 + A);",
        "H = round_even(A * 16) / 16;",  # its square is exact
        "E = 2 * exp(H * H) * exp((A - H) * (A + H));",
    )
    text = cast(f"({value} < 0 ? (A > 30 ? inf : E - P) : P)", call.dtype)
    return apply(function("X", "Y", *steps, f"Y = {text};"), input)


def _widened(input: Value, call: Call) -> str:
    """The operand in the dtype in which the result is computed."""
    dtype = call.dtype.accumulator
    return wide("X", dtype_of(input)) if dtype_of(input).is_float else cast("X", dtype)


@cache
def _near(scaled: Callable[[torch.Tensor], torch.Tensor], odd: bool) -> str:
    """Of N, from -1 at 0 to 1 at END; an odd function is divided by its argument."""

    def values(at: Any) -> Any:
        x = (at + 1) * (END / 2)
        return _exactly(scaled, x) / (x if odd else 1)

    return _polynomial("N", values, 28)


@cache
def _far(scaled: Callable[[torch.Tensor], torch.Tensor]) -> str:
    """Of F, from -1 at infinity to 1 at END, times the root of the argument."""

    def values(at: Any) -> Any:
        x = 2 * END / (at + 1)
        return _exactly(scaled, x) * np.sqrt(x)

    return _polynomial("F", values, 18)


@cache
def _complement() -> str:
    """Of T, from -1 at infinity to 1 at 0: erfcx, times its argument and 2."""

    def values(at: Any) -> Any:
        x = 4 / (at + 1) - 2
        return _exactly(special.erfcx, x) * (2 + x)

    return _polynomial("T", values, 24)


def _exactly(of: Callable[[torch.Tensor], torch.Tensor], x: Any) -> Any:
    return of(torch.tensor(x, dtype=torch.float64)).numpy()


def _polynomial(name: str, values: Callable[[Any], Any], degree: int) -> str:
    """Text of the polynomial of `name` that has these values at the nodes of Chebyshev."""
    first, *others = reversed(cheb2poly(chebinterpolate(values, degree)).tolist())
    text = literal(first)
    for number in others:
        text = f"({text} * {name} + {literal(number)})"
    return text
