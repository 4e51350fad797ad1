"""What the algorithms of the exponential functions need to know of float32 and of float64."""

from __future__ import annotations

from tile_ir.frozen import frozen

from hal_llvm.math.coefficients import EXP, EXP_LONG, LOG, LOG_LONG, SINH, SINH_LONG


@frozen
class Format:
    """A format of floating-point numbers: its bits, where its functions end, and their polynomials."""

    mantissa: int
    """Bits of the mantissa, the leading one not counted."""
    bias: int
    ln2_high: float
    """ln 2 to so few bits that its product with an exponent is exact even without FMA."""
    ln2_low: float
    root_half: int
    """The bits of sqrt(1/2)."""
    lowest: float
    """Below it, exp is 0."""
    highest: float
    """Above it, half of exp is infinite, and exp itself even one below it."""
    one: float
    """From here on expm1 of its negative is -1, and tanh of its half 1."""
    exp: tuple[float, ...]
    log: tuple[float, ...]
    sinh: tuple[float, ...]

    @property
    def rounder(self) -> float:
        """Added to a number, it leaves the nearest integer in the low bits of the mantissa."""
        return 1.5 * 2.0**self.mantissa

    @property
    def rounder_bits(self) -> int:
        return (self.bias + self.mantissa) << self.mantissa | 1 << (self.mantissa - 1)

    @property
    def least(self) -> float:
        """The smallest normal number."""
        return 2.0 ** (1 - self.bias)


FORMATS = {
    "float": Format(
        23, 127, 0.693359375, -0.00021219444005469057, 0x3F3504F3, -105.0, 90.0, 20.0, EXP, LOG, SINH
    ),
    "double": Format(
        52, 1023, 0.693147180559663, 2.8235290563031577e-13, 0x3FE6A09E667F3BCD, -746.0, 711.0, 40.0,
        EXP_LONG, LOG_LONG, SINH_LONG,
    ),
}  # fmt: skip
"""By LLVM's names of the types."""
