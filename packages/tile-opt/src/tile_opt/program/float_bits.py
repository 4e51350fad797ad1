"""Floats as integers: keys in the order of the numbers, and sums in fixed point, which no order of values changes.

A sum in fixed point is two passes. The first finds the largest exponent of all that one cell receives. In the second
each value counts in units that are so much smaller than the last bit of the largest one that no sum of them leaves a
64-bit integer: such a sum is exact but for what lies beneath those units, and the same in every order.
"""

from __future__ import annotations

from math import inf, nan

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.program.macros import literal

from tile_opt.program.steps import Cells

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

    cells: Cells
    format: Format
    smallest: bool

    def key(self, value: str) -> str:
        """The key of a float."""
        do, f = self.cells.do, self.format
        number = do("cmp_eq", value, value)
        bits = self.cells.bits(value, f.signed)
        flip = do("bit_or", do("bit_right", bits, f.dtype.bits - 1), f.sign)
        key = do("bit_xor", bits, flip)
        key = self.cells.where(number, do("bit_not", key) if self.smallest else key, self._nan)
        return self.cells.bits(key, f.unsigned)

    @property
    def _nan(self) -> int:
        """As a signed integer, the key of not-a-number: all ones."""
        return -1

    def value(self, key: str) -> str:
        """The float of a key."""
        do, f = self.cells.do, self.format
        bits = self.cells.bits(key, f.signed)
        there = do("bit_not", bits) if self.smallest else bits
        flip = do("bit_or", do("bit_not", do("bit_right", there, f.dtype.bits - 1)), f.sign)
        value = self.cells.bits(do("bit_xor", there, flip), f.dtype)
        return self.cells.where(do("cmp_eq", bits, self._nan), nan, value)


@frozen
class FixedPoint:
    """Floats as whole numbers of units, `count` of which are added at most."""

    cells: Cells
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

    def exponent(self, value: str) -> str:
        """The exponent field, 1 where it is 0: what the numbers just below share; 2 more than any for NaN. Never 0."""
        do, f = self.cells.do, self.format
        bits = self.cells.bits(value, f.signed)
        field = do("bit_and", do("bit_right", bits, f.mantissa), f.exponents)
        numbered = self.cells.where(do("cmp_eq", value, value), do("max", field, 1), f.exponents + 1)
        return self.cells.cast(numbered, DType.UINT32)

    def words(self, value: str, largest: str) -> list[str]:
        """The value in units that `largest`, the exponent of the largest value in its cell, gives; upper word first.

        Where that is not finite, the first word counts infinities by their sign.
        """
        do, where = self.cells.do, self.cells.where
        bits = self.cells.bits(value, self.format.signed)
        down = do("sub", self.cells.cast(largest, DType.INT32), self.cells.cast(self.exponent(value), DType.INT32))
        negative, mantissa = do("cmp_lt", bits, 0), self._mantissa(bits)
        parts: list[str] = []
        for k in range(self.format.words):
            up = do("sub", literal(self.top - self._place(k), DType.INT32), down)
            shifted = do("bit_or", do("bit_left", mantissa, up), do("bit_right", mantissa, do("neg", up)))
            part = do("bit_and", shifted, (1 << self.width) - 1)
            parts.append(where(negative, do("neg", part), part))
        one = where(negative, 1 << MINUS, 1, dtype=WORD)
        counted = where(do("cmp_eq", do("abs", value), inf), one, 0)
        return [where(do("cmp_ge", largest, self.format.exponents), counted, parts[0]), *parts[1:]]

    def value(self, words: list[str], largest: str) -> str:
        """The float that the words of a cell's sum stand for."""
        do, f = self.cells.do, self.format
        total = self.cells.cast(words[0], f.dtype)
        for word in words[1:]:
            total = do("add", do("mul", total, float(1 << self.width)), self.cells.cast(word, f.dtype))
        power = do("sub", self.cells.cast(largest, DType.INT32), f.bias + f.mantissa + self.top)
        half = do("bit_right", power, 1)
        for part in (half, do("sub", power, half)):
            total = do("mul", total, self._power(part))
        return self.cells.where(do("cmp_ge", largest, f.exponents), self._endless(words[0], largest), total)

    def _place(self, word: int) -> int:
        """The bit of a sum at which a word begins."""
        return (self.format.words - 1 - word) * self.width

    def _mantissa(self, bits: str) -> str:
        """The digits of a float as a whole number, the one that is not written, too."""
        do, f = self.cells.do, self.format
        written = self.cells.cast(do("bit_and", bits, (1 << f.mantissa) - 1), WORD)
        small = do("cmp_eq", do("bit_and", bits, f.exponents << f.mantissa), 0)
        return self.cells.where(small, written, do("bit_or", written, 1 << f.mantissa))

    def _power(self, exponent: str) -> str:
        """Two to the power of a small integer."""
        field = self.cells.cast(self.cells.do("add", exponent, self.format.bias), self.format.signed)
        return self.cells.bits(self.cells.do("bit_left", field, self.format.mantissa), self.format.dtype)

    def _endless(self, counts: str, largest: str) -> str:
        """The sum of a cell that holds infinities of one sign; NaN for both, or where one is among the values."""
        do, where, dtype = self.cells.do, self.cells.where, self.format.dtype
        plus = do("cmp_ne", do("bit_and", counts, (1 << MINUS) - 1), 0)
        minus = do("cmp_ge", counts, 1 << MINUS)
        undefined = do("bit_or", do("bit_and", plus, minus), do("cmp_gt", largest, self.format.exponents))
        return where(undefined, nan, where(plus, inf, -inf, dtype=dtype))
