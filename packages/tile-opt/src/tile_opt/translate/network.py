"""Sorting by a network: which elements are put in order never depends on any, so that lanes take the same steps at once.

Two runs in order make one of twice the length: each element of the first is put in order with that of the second which is as far
from its other end, which leaves none of the first behind any of the second; then halves of each are put in order element by
element, halves of these, and so on. A stage takes several such steps while elements are in registers.

Elements become words that differ, though keys be equal: a key's code, behind it the place where it stood. So an order of words
is the stable order of keys. Lines are filled up with words behind all others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from math import prod

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.powers import power_of_two
from tile_ir.program.nodes import Argsort
from tile_ir.stripe.affine import Affine

from tile_opt.translate.build import Kernel, Scalar, Stage, cell_of, loops_over
from tile_opt.translate.codes import code
from tile_opt.translate.context import Context
from tile_opt.translate.sort import PLACE, Sort

JOINED = {8: DType.INT32, 16: DType.INT32, 32: DType.INT64}
"""By bits of a key, an integer that holds its code and a place, each in a half."""
APART = DType.INT64
"""Of a code and of a place, where no integer holds both."""
RUN = 4
"""Elements of the first runs."""
LONGEST = 2048
"""Elements of a line up to which a network is faster than counting digits."""
DIGITS = 16
"""Bits of keys whose digits are counted in so few passes that this is faster where lines do not stand side by side."""
SHORT = 64
"""Elements of a line up to which the counts of a digit's values cost more than the elements do."""
PASSES = 8
"""Passes over longer lines, one for each byte of a key of each line, that take as long as a network for all lines side by side."""
Pair = tuple[int, int]
"""Which of a stage's elements comes first, and which second."""
Words = tuple[str, ...]
"""Buffers: one, or those of codes and of places."""
Word = tuple[Scalar, ...]
"""What they hold of an element."""


def suits(context: Context, op: Argsort) -> bool:
    """Whether a network takes less time than counting: for lines side by side that are short or many, or long keys that are all wanted."""
    shape, dtype = context.shape(op.arg), context.dtype(op.arg)
    length, passes = shape[op.axis], prod(shape[op.axis + 1 :]) * dtype.bytes
    beside = op.axis != len(shape) - 1 and (length <= SHORT or passes >= PASSES)
    return length <= LONGEST and (beside or (op.type.shape == shape and dtype.bits > DIGITS))


def networked(context: Context, op: Argsort) -> None:
    """The places of the elements in order."""
    _Places(context, op).build()


@frozen
class Network(Sort, ABC):
    """What a network does with words; which they are, and what is taken of them, kinds of it say."""

    @property
    @abstractmethod
    def word(self) -> DType:
        """The dtype of a word, or of each of its parts."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The buffers of words."""
        return ("words",)

    @property
    def length(self) -> int:
        """Of a line that is filled up."""
        return max(RUN, power_of_two(self.extent))

    def build(self) -> None:
        kernel = self.kernel()
        words = self._words(kernel)
        self._runs(kernel, words)
        for exponent in range(RUN.bit_length(), self.length.bit_length()):
            self._merge(kernel, words, exponent)
        shape = (*self.lines, self.wanted)
        stage, cell = kernel.stage("sorted", loops_over(shape)), cell_of(shape)
        stage.store(self.result, self.outside(cell), self.of_word(stage, [stage.load(w, cell) for w in words]))
        self.context.add(kernel)

    # --- words ------------------------------------------------------------------------------------------

    @abstractmethod
    def to_word(self, stage: Stage, key: Scalar, place: Affine) -> Word:
        """Of the element that stands at a place of its line."""

    @abstractmethod
    def of_word(self, stage: Stage, word: Sequence[Scalar]) -> Scalar:
        """What the result has of it."""

    def _words(self, kernel: Kernel) -> Words:
        """Those of the elements, and those that fill lines up."""
        shape, cells = (*self.lines, self.length), (*self.lines, self.extent)
        words = tuple(kernel.alloc(part, self.word, shape) for part in self.parts)
        stage, cell = kernel.stage("words", loops_over(cells)), cell_of(cells)
        key = stage.load(self.context.buffers[self.op.arg], self.outside(cell))
        self._store(stage, words, cell, self.to_word(stage, key, cell[-1]))
        if self.length > self.extent:
            rest = (*self.lines, self.length - self.extent)
            stage, (*line, last) = kernel.stage("rest", loops_over(rest)), cell_of(rest)
            largest = stage.const(self.word.max_value, self.word)
            self._store(stage, words, (*line, last + Affine((), self.extent)), (largest,) * len(words))
        return words

    def _store(self, stage: Stage, words: Words, cell: Sequence[Affine], values: Word) -> None:
        for buffer, value in zip(words, values, strict=True):
            stage.store(buffer, cell, value)

    # --- steps ------------------------------------------------------------------------------------------

    def _runs(self, kernel: Kernel, words: Words) -> None:
        """The first runs: a pair of pairs each."""
        cells = [self._block(RUN) + Affine((), k) for k in range(RUN)]
        self._stage(kernel, words, (RUN, 1), cells, [(0, 1), (2, 3), (0, 3), (1, 2), (0, 1), (2, 3)])

    def _merge(self, kernel: Kernel, words: Words, exponent: int) -> None:
        """Pairs of runs become runs of ``1 << exponent`` elements."""
        size = 1 << exponent
        first, *others = _taken(exponent)
        count, step = 1 << (first - 1), size >> first
        start, each = self._block(size), self._element(step)
        low = [start + each + Affine((), k * step) for k in range(count)]
        high = [start - each + Affine((), size - 1 - k * step) for k in range(count)]
        halves = list(_halves(count))
        pairs = [(k, k + count) for k in range(count)] + halves + [(count + b, count + a) for a, b in halves]
        self._stage(kernel, words, (size, step), [*low, *high], pairs)
        for taken in others:
            size, step = step, step >> taken
            start = self._block(size) + self._element(step)
            cells = [start + Affine((), k * step) for k in range(1 << taken)]
            self._stage(kernel, words, (size, step), cells, list(_halves(1 << taken)))

    def _block(self, size: int) -> Affine:
        return Affine.of({"b": size}) if self.length > size else Affine()

    def _element(self, step: int) -> Affine:
        return Affine.var("t") if step > 1 else Affine()

    def _stage(
        self, kernel: Kernel, words: Words, steps: tuple[int, int], cells: Sequence[Affine], pairs: Sequence[Pair]
    ) -> None:
        """Put pairs of `cells` in order, in each block of the first of `steps`, as often as the second says."""
        loops = [("b", -(-self.extent // steps[0])), ("t", steps[1])]
        stage = kernel.stage("pairs", [*loops_over(self.lines), *(loop for loop in loops if loop[1] > 1)])
        line = cell_of(self.lines)
        values: list[Word] = [tuple(stage.load(w, (*line, at)) for w in words) for at in cells]
        for a, b in pairs:
            values[a], values[b] = self._in_order(values[a], values[b])
        for at, value in zip(cells, values, strict=True):
            self._store(stage, words, (*line, at), value)

    def _in_order(self, first: Word, second: Word) -> tuple[Word, Word]:
        low, high = (first[0].with_(fn, second[0]) for fn in ("min", "max"))
        if len(first) == 1:
            return (low,), (high,)
        smaller, equal = second[0] < first[0], second[0].is_(first[0])
        swaps = smaller | equal & (second[1] < first[1])
        return (low, swaps.choose(second[1], first[1])), (high, swaps.choose(first[1], second[1]))


@frozen
class _Places(Network):
    @property
    def word(self) -> DType:
        return JOINED.get(self.dtype.bits, APART)

    @property
    def joined(self) -> bool:
        return self.dtype.bits in JOINED

    @property
    def parts(self) -> tuple[str, ...]:
        return ("words",) if self.joined else ("codes", "places")

    def to_word(self, stage: Stage, key: Scalar, place: Affine) -> Word:
        number, at = code(key, self.op.descending), stage.index(place, self.word)
        half = 1 << (self.dtype.bits - 1)
        if not self.joined:
            return (number ^ half).bits(self.word), at
        middle = stage.const(half, self.word)
        return ((number.cast(self.word) - middle) << self.word.bits // 2 | at,)

    def of_word(self, stage: Stage, word: Sequence[Scalar]) -> Scalar:
        place = word[-1]
        return (place & (1 << self.word.bits // 2) - 1 if self.joined else place).cast(PLACE)


def _taken(steps: int) -> list[int]:
    """Twos, and a three where they are odd: one step alone would take longer to load and store than for the rest."""
    return [3, *[2] * ((steps - 3) // 2)] if steps % 2 else [2] * (steps // 2)


def _halves(count: int) -> Iterator[Pair]:
    """Halves of so many elements, element by element, then halves of these."""
    width = count // 2
    while width:
        yield from ((k, k + width) for k in range(count) if not k & width)
        width //= 2
