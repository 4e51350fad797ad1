"""Integer forms during lowering: substitution, intervals, and DivMod folded where ranges allow.

While a nest is lowered every form is over *global* names: semtree loop variables, and at most one *lane
symbol* (it starts with ``~``) that stands for the lane number 0 … lanes - 1 of the active vector index.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import gcd

from tile_ir.stripe.affine import Affine, DivMod, DivModOp, Quasi

Env = Mapping[str, Affine]
"""Index name of a block -> its value over global names."""
Ranges = Mapping[str, tuple[int, int]]
"""Global name -> inclusive (low, high)."""
Scaled = tuple[int, DivMod]
"""A DivMod (with scale 1 and plus 0) times an integer."""

ZERO = Affine()


def resolve(form: Affine, env: Env, base: Affine = ZERO) -> Affine:
    """``base + form`` with the names of `form` replaced by their values in `env`."""
    const = base.const + form.const
    total: dict[str, int] | None = None
    for name, coefficient in form.terms:
        value = env[name]
        const += coefficient * value.const
        if value.terms:
            if total is None:
                total = dict(base.terms)
            for inner, c in value.terms:
                total[inner] = total.get(inner, 0) + coefficient * c
    if total is None:
        return Affine(base.terms, const)
    return Affine(tuple(sorted((n, c) for n, c in total.items() if c)), const)


def resolve_divmod(form: DivMod, env: Env, ranges: Ranges) -> tuple[Affine, tuple[Scaled, ...]]:
    """The form as an affine part and what remains of the DivMod over global names."""
    return fold(DivMod(resolve(form.num, env), form.den, form.op, form.scale, resolve(form.plus, env)), ranges)


def resolve_quasi(form: Quasi, env: Env, ranges: Ranges) -> tuple[Affine, tuple[Scaled, ...]]:
    """`form` over global names: an affine part plus scaled DivMods."""
    if isinstance(form, Affine):
        return resolve(form, env), ()
    return resolve_divmod(form, env, ranges)


def fold(form: DivMod, ranges: Ranges) -> tuple[Affine, tuple[Scaled, ...]]:
    """Split ``num = den * q + r``; when r stays in [0, den), the quotient is q and the remainder r."""
    quotient = Affine(
        tuple((n, c // form.den) for n, c in form.num.terms if c % form.den == 0), form.num.const // form.den
    )
    rest = Affine(tuple((n, c) for n, c in form.num.terms if c % form.den), form.num.const % form.den)
    low, high = rest.bounds(ranges)
    if low >= 0 and high < form.den:
        return form.plus + (quotient if form.op is DivModOp.DIV else rest) * form.scale, ()
    if form.op is DivModOp.MOD:
        return form.plus, ((form.scale, DivMod(rest, form.den, DivModOp.MOD)),)
    return form.plus + quotient * form.scale, ((form.scale, DivMod(rest, form.den, DivModOp.DIV)),)


def divmod_bounds(form: DivMod, ranges: Ranges) -> tuple[int, int]:
    """Inclusive interval of a DivMod with scale 1 and plus 0."""
    if form.op is DivModOp.MOD:
        return 0, form.den - 1
    low, high = form.num.bounds(ranges)
    return low // form.den, high // form.den


def bounds(affine: Affine, quasi: Iterable[Scaled], ranges: Ranges) -> tuple[int, int]:
    """Inclusive interval of ``affine + sum(scale * divmod)``."""
    low, high = affine.bounds(ranges)
    for scale, form in quasi:
        a, b = divmod_bounds(form, ranges)
        low += min(scale * a, scale * b)
        high += max(scale * a, scale * b)
    return low, high


def sign(affine: Affine, quasi: Iterable[Scaled], ranges: Ranges) -> bool | None:
    """True when the form is >= 0 everywhere, False when nowhere, None when it depends."""
    low, high = bounds(affine, quasi, ranges)
    return True if low >= 0 else False if high < 0 else None


def linear(access: Sequence[Quasi], strides: Sequence[int]) -> tuple[Affine, tuple[Scaled, ...]]:
    """``sum(access[d] * strides[d])`` over the access's own names."""
    affine = ZERO
    quasi: list[Scaled] = []
    for form, stride in zip(access, strides, strict=True):
        if isinstance(form, Affine):
            affine = affine + form * stride
        else:
            affine = affine + form.plus * stride
            quasi.append((form.scale * stride, DivMod(form.num, form.den, form.op)))
    return affine, tuple(quasi)


def without(form: Affine, name: str | None) -> Affine:
    """`form` less the term of `name`."""
    if name is None:
        return form
    return Affine(tuple((n, c) for n, c in form.terms if n != name), form.const)


def at_lane(form: Affine, name: str, lane: int) -> Affine:
    """`form` with the lane symbol replaced by a lane number."""
    return without(form, name) + form.coefficient(name) * lane


def alignment(form: Affine, width: int, base: int) -> int:
    """Alignment in bytes of element `form` of a buffer aligned to `base` whose elements have `width` bytes."""
    result = gcd(base, form.const * width)
    for _, coefficient in form.terms:
        result = gcd(result, coefficient * width)
    return result
