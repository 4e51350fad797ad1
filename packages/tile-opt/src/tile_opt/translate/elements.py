"""Sorting by a network where only the elements in order are wanted, not their places: words are no wider than keys.

Equal integers are one word. Of floats, numbers that are not NaN take up a part of the integers of their width, so that there is
room for a zero's place in its word: zeros keep their order, and other equal numbers are alike in all bits.
"""

from __future__ import annotations

from collections.abc import Sequence

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.program.liveness import reads
from tile_ir.program.nodes import Argsort, Gather
from tile_ir.stripe.affine import Affine

from tile_opt.program.in_order import is_in_order
from tile_opt.translate.build import Scalar, Stage
from tile_opt.translate.context import Context
from tile_opt.translate.network import Network, Word

ROOMY = (DType.FLOAT32, DType.FLOAT64)
"""Floats with more NaNs than there are words for the zeros of a line."""


def only_elements(context: Context, op: Argsort) -> Gather | None:
    """What has the elements in this order, where nothing else needs their places and words of elements are enough."""
    if context.dtype(op.arg).is_float and context.dtype(op.arg) not in ROOMY:
        return None
    found = next((g for g in context.program.ops if isinstance(g, Gather) and is_in_order(g, op)), None)
    return found if found is not None and reads(context.program)[op.name] == 1 else None


def elements_networked(context: Context, op: Argsort, elements: Gather) -> None:
    """The elements in order; their places are left out."""
    _Elements(context, op, elements.name).build()
    context.done.add(elements.name)


@frozen
class _Elements(Network):
    elements: str

    @property
    def result(self) -> str:
        return self.context.buffers[self.elements]

    @property
    def word(self) -> DType:
        return DType(f"int{self.dtype.bits}")

    @property
    def least(self) -> int:
        """The word of which only the highest bit is set: the sign of a float, and what an unsigned number is moved by."""
        return int(self.word.min_value)

    @property
    def most(self) -> int:
        """The word of which all other bits are set."""
        return int(self.word.max_value)

    @property
    def nan(self) -> int:
        """The word of each NaN, which counts as largest."""
        return self.least if self.op.descending else self.most

    @property
    def zeros(self) -> int:
        """Words of zeros: two for each place."""
        return 2 * self.length

    def to_word(self, stage: Stage, key: Scalar, place: Affine) -> Word:
        bits = key.bits(self.word)
        if self.dtype.is_float:
            return (self._of_float(key, bits, stage.index(place, self.word)),)
        return (self._turned(bits),)

    def of_word(self, stage: Stage, word: Sequence[Scalar]) -> Scalar:
        (word_,) = word
        return (self._to_float(word_) if self.dtype.is_float else self._turned(word_)).bits(self.dtype)

    def _turned(self, bits: Scalar) -> Scalar:
        """A word for an integer, and an integer for a word."""
        moved = bits if self.dtype.is_signed else bits ^ self.least
        return ~moved if self.op.descending else moved

    def _of_float(self, key: Scalar, bits: Scalar, place: Scalar) -> Scalar:
        """Of a negative number all bits but the sign are turned round; numbers above zero make room for the zeros."""
        bits = bits ^ self.least if self.op.descending else bits
        sign = bits >> self.word.bits - 1
        turned = bits ^ (sign & self.most)
        number = (turned > 0).choose(turned + self.zeros, turned)
        number = key.is_(0.0).choose((place << 1) - sign, number)
        return key.is_(key).choose(number, self.nan)

    def _to_float(self, word: Scalar) -> Scalar:
        above = (word < self.zeros).choose(word << self.word.bits - 1, word - self.zeros)
        bits = (word < 0).choose(word ^ self.most, above)
        bits = bits ^ self.least if self.op.descending else bits
        return word.is_(self.nan).choose(word.number(self.most, self.word), bits)
