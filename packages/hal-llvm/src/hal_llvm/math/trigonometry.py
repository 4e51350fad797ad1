"""sin, cos, tan and their inverses of float32 and float64."""

from __future__ import annotations

from hal_llvm.math.lanes import Lanes, narrowed, widened
from hal_llvm.math.library import of_library

_PI = 3.141592653589793
_HALF_PI = _PI / 2
_TWO_OVER_PI = 0.6366197723675814
_HALF_PI_PARTS = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21)
"""pi/2 in 33 + 33 + 53 bits: products of the first two with integers below 2**20 are exact."""
_ROUND = 1.5 * 2.0**52
_LARGE = 1.0e6
"""From here on the argument is reduced with as many bits of 2/pi as it needs."""
_TWO_OVER_PI_BITS = 0xA2F9836E4E441529FC2757D1F534DDC0DB6295993C439041FE5163ABDEBBC561
"""The first 256 bits of the fraction 2/pi."""


def sin(v: Lanes, x: str) -> str:
    r, quadrant = _reduce(v, x)
    return _or_large(v, "sin", x, _signed(v, _either(v, quadrant, _sin(v, r), _cos(v, r)), quadrant))


def cos(v: Lanes, x: str) -> str:
    r, quadrant = _reduce(v, x)
    quadrant = v.integers("add", quadrant, 1)
    return _or_large(v, "cos", x, _signed(v, _either(v, quadrant, _sin(v, r), _cos(v, r)), quadrant))


def tan(v: Lanes, x: str) -> str:
    r, quadrant = _reduce(v, x)
    s, c = _sin(v, r), _cos(v, r)
    top, bottom = _either(v, quadrant, s, c), _either(v, quadrant, c, v.neg(s))
    return _or_large(v, "tan", x, v.div(top, bottom))


def _sin(v: Lanes, r: str) -> str:
    z, size = v.mul(r, r), v.abs(r)
    return v.copysign(v.fma(v.mul(v.horner(z, v.format.sin), z), size, size), r)  # keeps the sign of -0


def _cos(v: Lanes, r: str) -> str:
    z = v.mul(r, r)
    tail = v.mul(v.mul(v.horner(z, v.format.cos), z), z)
    return v.add(v.fma(z, v.const(-0.5), tail), v.const(1.0))


def _either(v: Lanes, quadrant: str, even: str, odd: str) -> str:
    is_odd = v.icompare("ne", v.integers("and", quadrant, 1), v.iconst(0))
    return v.select(is_odd, odd, even)


def _signed(v: Lanes, value: str, quadrant: str) -> str:
    """Negated in quadrants 2 and 3."""
    sign = v.integers("shl", v.integers("and", quadrant, 2), v.format.sign - 1)
    return v.floats(v.integers("xor", v.bits(value), sign))


def _reduce(v: Lanes, x: str) -> tuple[str, str]:
    """``x - k * pi/2`` in [-pi/4, pi/4] to the format's accuracy, and k (only its last two bits count); float64 below `_LARGE`."""
    if v.element == "double":
        return _reduce_double(v, x)
    code = v.code
    r, k = _reduce_small(v, x)
    large = v.compare("uge", v.abs(x), v.const(_LARGE))
    slow, done, before = code.fresh("large"), code.fresh("reduced"), code.label
    code.branch(v.any(large), slow, done)
    code.block(slow)
    far_r, far_k = _reduce_large(v, x)
    new_r, new_k = v.select(large, far_r, r), v.iselect(large, far_k, k)
    code.jump(done)
    code.block(done)
    r = code.let(f"phi {v.f} [ {r}, %{before} ], [ {new_r}, %{slow} ]")
    return r, code.let(f"phi {v.i} [ {k}, %{before} ], [ {new_k}, %{slow} ]")


def _or_large(v: Lanes, name: str, x: str, value: str) -> str:
    """`value`, and the C library's in lanes of float64 that `_reduce` does not serve."""
    if v.element == "float":
        return value
    code, large = v.code, v.compare("uge", v.abs(x), v.const(_LARGE))
    slow, done, before = code.fresh("large"), code.fresh("done"), code.label
    code.branch(v.any(large), slow, done)
    code.block(slow)
    other = v.select(large, of_library(code, name, [x], v.lanes), value)
    code.jump(done)
    code.block(done)
    return code.let(f"phi {v.f} [ {value}, %{before} ], [ {other}, %{slow} ]")


def _nearest(wide: Lanes, x: str) -> tuple[str, str]:
    """The nearest multiple of pi/2 in float64: as an integer in the lowest bits of a float, and as a float."""
    shifted = wide.fma(x, wide.const(_TWO_OVER_PI), wide.const(_ROUND))
    return wide.bits(shifted), wide.sub(shifted, wide.const(_ROUND))


def _reduce_small(v: Lanes, x: str) -> tuple[str, str]:
    """Cody and Waite in float64, for |x| below `_LARGE`."""
    wide, y = widened(v, x)
    shifted, whole = _nearest(wide, y)
    for part in _HALF_PI_PARTS:
        y = wide.fma(whole, wide.const(-part), y)
    return narrowed(wide, v, y), v.code.let(f"trunc {wide.i} {shifted} to {v.i}")


def _reduce_double(v: Lanes, x: str) -> tuple[str, str]:
    """The same to the accuracy of float64: what the second difference loses, which is known exactly, goes into the third."""
    first, second, third = _HALF_PI_PARTS
    shifted, whole = _nearest(v, x)
    y, part = v.fma(whole, v.const(-first), x), v.mul(whole, v.const(second))
    near = v.sub(y, part)
    taken = v.sub(near, y)
    lost = v.sub(v.add(part, taken), v.sub(y, v.sub(near, taken)))
    return v.sub(near, v.fma(whole, v.const(third), lost)), shifted  # keeps the sign of -0


def _reduce_large(v: Lanes, x: str) -> tuple[str, str]:
    """Payne and Hanek: the integer mantissa times the 96 bits of 2/pi that matter, modulo 4."""
    w = Lanes(v.code, "double", v.lanes)
    bits = v.bits(x)
    exponent = v.integers("and", v.integers("lshr", bits, 23), 255)
    mantissa = v.integers("or", v.integers("and", bits, 0x7FFFFF), 0x800000)
    m = v.code.let(f"zext {v.i} {mantissa} to {w.i}")
    # x = m * 2**(exponent - 150). Bits of 2/pi before this position give multiples of 4.
    start = v.code.let(f"zext {v.i} {v.integers('sub', exponent, 150 + 2 - 32)} to {w.i}")
    high, low = _window(w, start)
    u = w.integers("add", w.integers("mul", m, high), w.integers("lshr", w.integers("mul", m, low), 32))
    # u counts quarter turns in units of 2**-62.
    k = w.integers("lshr", w.integers("add", u, 1 << 61), 62)
    fraction = w.to_float(w.integers("sub", u, w.integers("shl", k, 62)))
    r = narrowed(w, v, w.mul(fraction, w.const(_HALF_PI * 2.0**-62)))
    sign = v.integers("and", bits, -(1 << 31))
    r = v.floats(v.integers("xor", v.bits(r), sign))
    k = v.code.let(f"trunc {w.i} {k} to {v.i}")
    k = v.iselect(v.icompare("ne", sign, v.iconst(0)), v.integers("sub", v.iconst(0), k), k)
    finite = v.compare("olt", v.abs(x), v.const(float("inf")))
    return v.select(finite, r, v.const(float("nan"))), k


def _window(w: Lanes, start: str) -> tuple[str, str]:
    """64 and then 32 bits of 2/pi (with 32 zero bits in front) from bit `start` on."""
    padded = _TWO_OVER_PI_BITS  # as a fraction of 32 + 256 bits
    word = w.integers("lshr", start, 5)
    shift = w.integers("and", start, 31)
    high, low = w.iconst(0), w.iconst(0)
    for number in range(5):
        here = w.icompare("eq", word, w.iconst(number))
        top = padded >> (288 - 64 - 32 * number) & (2**64 - 1)
        next_ = padded >> (288 - 128 - 32 * number) & (2**64 - 1)
        high = w.iselect(here, w.iconst(top), high)
        low = w.iselect(here, w.iconst(next_), low)
    back = w.integers("lshr", w.integers("lshr", low, 1), w.integers("xor", shift, 63))
    first = w.integers("or", w.integers("shl", high, shift), back)
    return first, w.integers("lshr", w.integers("shl", low, shift), 32)


def atan(v: Lanes, x: str) -> str:
    size = v.abs(x)
    outer = v.compare("ogt", size, v.const(1.0))
    t = v.select(outer, v.div(v.const(1.0), size), size)
    z = v.mul(t, t)
    inner = v.fma(v.mul(v.horner(z, v.format.atan), z), t, t)
    far = v.add(v.sub(v.const(_HALF_PI), inner), v.const(v.format.half_pi_low))
    return v.copysign(v.select(outer, far, inner), x)


def atan2(v: Lanes, y: str, x: str) -> str:
    """At most 4 ulp: the angle of (x, y), whose zeros have signs."""
    height, width = v.abs(y), v.abs(x)
    steep = v.compare("ogt", height, width)
    least, most = v.select(steep, width, height), v.select(steep, height, width)
    t = v.div(least, most)
    t = v.select(v.compare("oeq", least, v.const(float("inf"))), v.const(1.0), t)
    t = v.select(v.compare("oeq", most, v.const(0.0)), v.const(0.0), t)
    z = v.mul(t, t)
    angle = v.fma(v.mul(v.horner(z, v.format.atan), z), t, t)
    angle = v.select(steep, v.sub(v.const(_HALF_PI), v.sub(angle, v.const(v.format.half_pi_low))), angle)
    back = v.sub(v.const(_PI), v.sub(angle, v.const(2 * v.format.half_pi_low)))
    angle = v.copysign(v.select(v.icompare("slt", v.bits(x), v.iconst(0)), back, angle), y)
    return v.select(v.compare("ord", x, y), angle, v.const(float("nan")))


def _asin_part(v: Lanes, t: str, z: str) -> str:
    """asin(t) for t <= 1/2, where z is t squared."""
    return v.fma(v.mul(v.horner(z, v.format.asin), z), t, t)


def _asin_argument(v: Lanes, size: str) -> tuple[str, str, str]:
    """Whether |x| > 1/2, and t with its square: |x| itself or sqrt((1 - |x|) / 2)."""
    outer = v.compare("ogt", size, v.const(0.5))
    z = v.select(outer, v.mul(v.sub(v.const(1.0), size), v.const(0.5)), v.mul(size, size))
    return outer, v.select(outer, v.sqrt(z), size), z


def asin(v: Lanes, x: str) -> str:
    outer, t, z = _asin_argument(v, v.abs(x))
    part = _asin_part(v, t, z)
    far = v.sub(v.const(_HALF_PI), v.sub(v.add(part, part), v.const(v.format.half_pi_low)))
    return v.copysign(v.select(outer, far, part), x)


def acos(v: Lanes, x: str) -> str:
    outer, t, z = _asin_argument(v, v.abs(x))
    part = _asin_part(v, t, z)
    twice = v.add(part, part)
    negative = v.compare("olt", x, v.const(0.0))
    below = v.sub(v.const(_PI), v.sub(twice, v.const(2 * v.format.half_pi_low)))
    inner = v.sub(v.const(_HALF_PI), v.sub(v.copysign(part, x), v.const(v.format.half_pi_low)))
    return v.select(outer, v.select(negative, below, twice), inner)
