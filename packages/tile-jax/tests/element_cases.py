"""Random cases of elementwise operations."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from drawing import (
    ALL,
    FLOATS,
    INTEGERS,
    NUMBERS,
    SIGNED,
    Case,
    Rng,
    anything,
    array,
    dtype,
    family,
    loose,
    pick,
    shape,
)
from jax import lax

_EXACT: dict[Any, tuple[str, ...]] = {
    lax.abs: FLOATS + SIGNED, lax.neg: FLOATS + SIGNED, lax.sign: FLOATS + SIGNED, lax.ceil: FLOATS, lax.floor: FLOATS,
    partial(lax.round, rounding_method=lax.RoundingMethod.AWAY_FROM_ZERO): FLOATS,
    partial(lax.round, rounding_method=lax.RoundingMethod.TO_NEAREST_EVEN): FLOATS,
    lax.is_finite: FLOATS, lax.bitwise_not: (*INTEGERS, "bool"), lax.population_count: INTEGERS, lax.clz: INTEGERS,
    lax.square: NUMBERS, jnp.isinf: FLOATS, jnp.isposinf: FLOATS, jnp.isneginf: FLOATS, jnp.isnan: FLOATS,
}  # fmt: skip
_SMOOTH: dict[Any, tuple[float, float]] = {
    lax.exp: (-5, 5), lax.expm1: (-3, 3), lax.log: (0.01, 9), lax.log1p: (-0.9, 9), lax.logistic: (-6, 6), lax.tanh: (-4, 4),
    lax.sin: (-9, 9), lax.cos: (-9, 9), lax.tan: (-1.4, 1.4), lax.sqrt: (0, 9), lax.rsqrt: (0.01, 9), lax.cbrt: (-9, 9),
    lax.asin: (-1, 1), lax.acos: (-1, 1), lax.atan: (-5, 5), lax.sinh: (-4, 4), lax.cosh: (-4, 4), lax.asinh: (-5, 5),
    lax.acosh: (1.01, 9), lax.atanh: (-0.95, 0.95), lax.erf: (-3, 3), lax.erfc: (-3, 3), lax.erf_inv: (-0.95, 0.95),
    lax.lgamma: (0.2, 9), lax.digamma: (0.3, 9), lax.bessel_i1e: (-4, 4), lax.bessel_i0e: (-4, 4), jax.nn.gelu: (-2, 4),
    jax.nn.softplus: (-9, 9), jax.nn.silu: (-9, 9), jnp.exp2: (-5, 5), jnp.log10: (0.1, 99), jnp.sinc: (-3, 3),
    jax.scipy.special.ndtri: (0.05, 0.95), jax.scipy.special.i0: (-3, 3), jax.nn.selu: (-4, 4), jax.nn.mish: (-4, 4),
}  # fmt: skip
_BINARY: dict[Any, tuple[str, ...]] = {
    lax.add: NUMBERS, lax.sub: NUMBERS, lax.mul: NUMBERS, lax.div: NUMBERS, lax.rem: NUMBERS, lax.max: ALL, lax.min: ALL,
    lax.bitwise_and: (*INTEGERS, "bool"), lax.bitwise_or: (*INTEGERS, "bool"), lax.bitwise_xor: (*INTEGERS, "bool"),
    lax.eq: ALL, lax.ne: ALL, lax.lt: ALL, lax.le: ALL, lax.gt: ALL, lax.ge: ALL,
}  # fmt: skip
_SHIFTS = (lax.shift_left, lax.shift_right_logical, lax.shift_right_arithmetic)


@family
def exact_functions(rng: Rng) -> Case:
    """What rounds nothing, on all kinds of numbers."""
    function, dtypes = pick(rng, list(_EXACT.items()))
    return Case(function, (anything(rng, pick(rng, dtypes), shape(rng)),), 0)


@family
def smooth_functions(rng: Rng) -> Case:
    """Each where it loses no digits; gelu does below -2, where it is the difference of two numbers near one."""
    function, (low, high) = pick(rng, list(_SMOOTH.items()))
    # JAX has the quantiles of the normal distribution in single precision alone.
    name = "float32" if function is jax.scipy.special.ndtri else pick(rng, FLOATS)
    return Case(function, (array(rng, name, shape(rng), low, high),), max(2 * loose(name), 4e-5))


@family
def two_operands(rng: Rng) -> Case:
    """Divisions by zero and the extremes of integers among them."""
    function, dtypes = pick(rng, list(_BINARY.items()))
    name, sizes = pick(rng, dtypes), shape(rng)
    return Case(
        function, (anything(rng, name, sizes), anything(rng, name, sizes)), loose(name) if name in FLOATS else 0
    )


@family
def with_a_number(rng: Rng) -> Case:
    """One operand is a constant, which stands in the text."""
    function, dtypes = pick(rng, list(_BINARY.items()))
    name = pick(rng, dtypes)
    number = anything(rng, name, ())
    turned = rng.random() < 0.5
    first: Any = (lambda x: function(jnp.broadcast_to(jnp.asarray(number), x.shape), x)) if turned else (
        lambda x: function(x, jnp.broadcast_to(jnp.asarray(number), x.shape)))  # fmt: skip
    return Case(first, (anything(rng, name, shape(rng)),), loose(name) if name in FLOATS else 0)


@family
def shifts(rng: Rng) -> Case:
    name, sizes = pick(rng, INTEGERS), shape(rng)
    return Case(pick(rng, _SHIFTS), (anything(rng, name, sizes), array(rng, name, sizes, 0, 40)), 0)


@family
def powers(rng: Rng) -> Case:
    sizes = shape(rng)
    match int(rng.integers(3)):
        case 0:
            name = pick(rng, FLOATS)
            return Case(lax.pow, (array(rng, name, sizes, 0.1, 3), array(rng, name, sizes, -3, 3)), 4 * loose(name))
        case 1:
            exponent = int(rng.integers(-3, 6))
            return Case(lambda x: lax.integer_pow(x, exponent), (array(rng, "float32", sizes, 0.3, 3),), 4e-5)
        case _:
            return Case(jnp.power, (array(rng, "int32", sizes, -9, 9), array(rng, "int32", sizes, 0, 9)), 0)


@family
def two_floats(rng: Rng) -> Case:
    name, sizes = pick(rng, FLOATS), shape(rng)
    function = pick(rng, (lax.atan2, lax.nextafter, jnp.hypot, jnp.logaddexp, jnp.arctan2, jnp.copysign, jnp.heaviside))
    if function is lax.nextafter:
        name = "float32"
    return Case(function, (array(rng, name, sizes), array(rng, name, sizes)), 2 * loose(name))


@family
def special_functions(rng: Rng) -> Case:
    """Functions of two numbers that come apart into hundreds of operations."""
    sizes = shape(rng, 1, 2)
    match int(rng.integers(4)):
        case 0:
            return Case(
                jax.scipy.special.zeta,
                (array(rng, "float32", sizes, 1.2, 5), array(rng, "float32", sizes, 0.5, 5)),
                1e-4,
            )
        case 1:
            orders = array(rng, "int32", sizes, 0, 3)
            return Case(jax.scipy.special.polygamma, (orders, array(rng, "float32", sizes, 0.5, 5)), 1e-4)
        case 2:
            return Case(lax.igamma, (array(rng, "float32", sizes, 0.5, 5), array(rng, "float32", sizes, 0.5, 5)), 1e-4)
        case _:
            return Case(lambda a, b: jax.scipy.special.betaln(a, b),
                        (array(rng, "float32", sizes, 0.5, 5), array(rng, "float32", sizes, 0.5, 5)), 1e-4)  # fmt: skip


@family
def selections(rng: Rng) -> Case:
    name, sizes = pick(rng, ALL), shape(rng)
    test = array(rng, "bool", sizes if rng.random() < 0.7 else ())
    return Case(lax.select, (test, anything(rng, name, sizes), anything(rng, name, sizes)), 0)


@family
def clamps(rng: Rng) -> Case:
    name, sizes = pick(rng, NUMBERS), shape(rng)
    bounds = sizes if rng.random() < 0.5 else ()
    return Case(
        lax.clamp, (array(rng, name, bounds, -2, 0), anything(rng, name, sizes), array(rng, name, bounds, 0, 3)), 0
    )


@family
def conversions(rng: Rng) -> Case:
    """All pairs; what lies beyond an integer's range comes only from integers, where XLA wraps."""
    before, after, sizes = pick(rng, ALL), pick(rng, ALL), shape(rng)
    given = (
        array(rng, before, sizes, 0, 100) if before in FLOATS and after in INTEGERS else anything(rng, before, sizes)
    )
    return Case(lambda x: lax.convert_element_type(x, dtype(after)), (given,), 0)


@family
def bit_casts(rng: Rng) -> Case:
    widths = {1: ("int8", "uint8"), 2: ("int16", "uint16", "float16", "bfloat16"), 4: ("int32", "uint32", "float32")}
    before, after = pick(rng, (1, 2, 4)), pick(rng, (1, 2, 4))
    name, to, sizes = pick(rng, widths[before]), pick(rng, widths[after]), shape(rng, 1, 3)
    if after > before:
        sizes = (*sizes, after // before)
    given = array(rng, name, sizes)
    if to in FLOATS:
        given = np.zeros_like(given) if name in INTEGERS else np.abs(given)
    return Case(lambda x: lax.bitcast_convert_type(x, dtype(to)), (given,), 0)


@family
def precisions(rng: Rng) -> Case:
    exponent, mantissa = int(rng.integers(3, 9)), int(rng.integers(1, 23))
    function = partial(lax.reduce_precision, exponent_bits=exponent, mantissa_bits=mantissa)
    scale = np.float32(10.0 ** rng.integers(-4, 5))
    return Case(lambda x: function(x), (anything(rng, "float32", shape(rng)) * scale,), 0)
