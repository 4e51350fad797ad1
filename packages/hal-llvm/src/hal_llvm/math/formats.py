"""What the algorithms of the functions need to know of float32 and of float64."""

from __future__ import annotations

from tile_ir.frozen import frozen

from hal_llvm.math import coefficients as fitted


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
    half_pi_low: float
    """pi/2 minus the nearest number of the format."""
    erf_split: float
    """Up to here the error function is a polynomial."""
    erf_flat: float
    """From here on it is 1."""
    erfc_gone: float
    """From here on its complement is 0."""
    exp: tuple[float, ...]
    log: tuple[float, ...]
    sinh: tuple[float, ...]
    sin: tuple[float, ...]
    cos: tuple[float, ...]
    atan: tuple[float, ...]
    asin: tuple[float, ...]
    erf: tuple[float, ...]
    erf_tail: tuple[float, ...]
    erfc: tuple[float, ...]

    @property
    def sign(self) -> int:
        """The place of the sign's bit."""
        return 31 if self.mantissa == 23 else 63

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
        23, 127, 0.693359375, -0.00021219444005469057, 0x3F3504F3, -105.0, 90.0, 20.0, -4.371139000186241e-08,
        0.92, 4.0, 11.0, fitted.EXP, fitted.LOG, fitted.SINH, fitted.SIN, fitted.COS, fitted.ATAN, fitted.ASIN,
        fitted.ERF, fitted.ERF_TAIL, fitted.ERFC,
    ),
    "double": Format(
        52, 1023, 0.693147180559663, 2.8235290563031577e-13, 0x3FE6A09E667F3BCD, -746.0, 711.0, 40.0, 6.123233995736766e-17,
        1.0, 6.0, 28.0, fitted.EXP_LONG, fitted.LOG_LONG, fitted.SINH_LONG, fitted.SIN_LONG, fitted.COS_LONG,
        fitted.ATAN_LONG, fitted.ASIN_LONG, fitted.ERF_LONG, fitted.ERF_TAIL_LONG, fitted.ERFC_LONG,
    ),
}  # fmt: skip
"""By LLVM's names of the types."""
