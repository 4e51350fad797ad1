"""Floats as integers: keys in the order of the numbers, and sums in fixed point, which no order of values changes.

A sum in fixed point is two passes. The first finds the largest exponent of all that one cell receives. In the second
each value counts in units that are so much smaller than the last bit of the largest one that no sum of them leaves a
64-bit integer: such a sum is exact but for what lies beneath those units, and the same in every order.
"""

from __future__ import annotations

from math import inf, nan

from tile_ir.dtype import DType
from tile_ir.frozen import frozen

from tile_opt.program.steps import Scalar

WORD = DType.INT64
"""In which fixed-point numbers are added."""
MINUS = 31
"""The bit from which on a word counts the minus infinities; those below count the others."""


@frozen
class Format:
    """How a float is made of bits."""

    dtype: DType
    signed: DType
    unsigned: DType
    mantissa: int
    """Bits that are written: normal numbers have one more."""
    words: int
    """Integers of a fixed-point sum."""

    @property
    def exponents(self) -> int:
        """The exponent field of infinities and NaN."""
        return (1 << (self.dtype.bits - 1 - self.mantissa)) - 1

    @property
    def bias(self) -> int:
        return self.exponents >> 1

    @property
    def sign(self) -> int:
        """The integer of which only the sign bit is set."""
        return -(1 << (self.dtype.bits - 1))


FORMATS = {
    DType.FLOAT32: Format(DType.FLOAT32, DType.INT32, DType.UINT32, 23, 1),
    DType.FLOAT64: Format(DType.FLOAT64, DType.INT64, DType.UINT64, 52, 2),
}


@frozen
class Ordered:
    """Floats as unsigned keys: the larger, or with `smallest` the smaller, the number, the larger the key.

    NaN comes after all numbers. No key is 0: that is a cell without a value.
    """

    format: Format
    smallest: bool

    def key(self, value: Scalar) -> Scalar:
        """The key of a float."""
        f, number = self.format, value.is_(value)
        bits = value.bits(f.signed)
        key = bits ^ (bits >> f.dtype.bits - 1 | f.sign)
        return number.choose(~key if self.smallest else key, self._nan).bits(f.unsigned)

    @property
    def _nan(self) -> int:
        """As a signed integer, the key of not-a-number: all ones."""
        return -1

    def value(self, key: Scalar) -> Scalar:
        """The float of a key."""
        f = self.format
        bits = key.bits(f.signed)
        there = ~bits if self.smallest else bits
        value = (there ^ (~(there >> f.dtype.bits - 1) | f.sign)).bits(f.dtype)
        return bits.is_(self._nan).choose(value.number(nan, f.dtype), value)


@frozen
class FixedPoint:
    """Floats as whole numbers of units, `count` of which are added at most."""

    format: Format
    count: int

    @property
    def width(self) -> int:
        """Bits of a word that one value fills: the others are for carries, and for the sign."""
        return WORD.bits - 2 - self.count.bit_length()

    @property
    def top(self) -> int:
        """How far the mantissa of a value with the largest exponent stands above the units."""
        return self.format.words * self.width - self.format.mantissa - 1

    def exponent(self, value: Scalar) -> Scalar:
        """The exponent field, 1 where it is 0: what the numbers just below share; 2 more than any for NaN. Never 0."""
        f = self.format
        field = value.bits(f.signed) >> f.mantissa & f.exponents
        return value.is_(value).choose(field.with_("max", 1), f.exponents + 1).cast(DType.UINT32)

    def words(self, value: Scalar, largest: Scalar) -> list[Scalar]:
        """The value in units that `largest`, the exponent of the largest value in its cell, gives; upper word first.

        Where that is not finite, the first word counts infinities by their sign.
        """
        negative = value.bits(self.format.signed) < 0
        parts = [self._scaled(value, largest)] if self.format.words == 1 else self._digits(value, largest, negative)
        one = negative.choose(value.number(1 << MINUS, WORD), 1)
        counted = abs(value).is_(inf).choose(one, 0)
        return [(largest >= self.format.exponents).choose(counted, parts[0]), *parts[1:]]

    def _scaled(self, value: Scalar, largest: Scalar) -> Scalar:
        """The value in units as one word: powers of two round nothing that a whole number has."""
        return self._times_power(value, largest.number(self._unit, DType.INT32) - largest.cast(DType.INT32)).cast(WORD)

    def _digits(self, value: Scalar, largest: Scalar, negative: Scalar) -> list[Scalar]:
        """The same as several words, which have more digits than a float."""
        down = largest.cast(DType.INT32) - self.exponent(value).cast(DType.INT32)
        mantissa = self._mantissa(value.bits(self.format.signed))
        parts: list[Scalar] = []
        for k in range(self.format.words):
            up = down.number(self.top - self._place(k), DType.INT32) - down
            part = (mantissa << up | mantissa >> -up) & (1 << self.width) - 1
            parts.append(negative.choose(-part, part))
        return parts

    def value(self, words: list[Scalar], largest: Scalar) -> Scalar:
        """The float that the words of a cell's sum stand for."""
        f = self.format
        total = words[0].cast(f.dtype)
        for word in words[1:]:
            total = total * float(1 << self.width) + word.cast(f.dtype)
        total = self._times_power(total, largest.cast(DType.INT32) - self._unit)
        return (largest >= f.exponents).choose(self._endless(words[0], largest), total)

    @property
    def _unit(self) -> int:
        """What the exponents of the largest value of a cell and of the scale that makes it units add up to."""
        return self.format.bias + self.format.mantissa + self.top

    def _times_power(self, value: Scalar, power: Scalar) -> Scalar:
        """A float times a power of two that may be none by itself."""
        half = power >> 1
        return value * self._power(half) * self._power(power - half)

    def _place(self, word: int) -> int:
        """The bit of a sum at which a word begins."""
        return (self.format.words - 1 - word) * self.width

    def _mantissa(self, bits: Scalar) -> Scalar:
        """The digits of a float as a whole number, the one that is not written, too."""
        f = self.format
        written = (bits & (1 << f.mantissa) - 1).cast(WORD)
        small = (bits & f.exponents << f.mantissa).is_(0)
        return small.choose(written, written | 1 << f.mantissa)

    def _power(self, exponent: Scalar) -> Scalar:
        """Two to the power of a small integer."""
        field = (exponent + self.format.bias).cast(self.format.signed)
        return (field << self.format.mantissa).bits(self.format.dtype)

    def _endless(self, counts: Scalar, largest: Scalar) -> Scalar:
        """The sum of a cell that holds infinities of one sign; NaN for both, or where one is among the values."""
        dtype = self.format.dtype
        plus = (counts & (1 << MINUS) - 1).is_not(0)
        minus = counts >= 1 << MINUS
        undefined = plus & minus | (largest > self.format.exponents)
        return undefined.choose(counts.number(nan, dtype), plus.choose(counts.number(inf, dtype), -inf))
