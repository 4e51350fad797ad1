"""Which instruction, which index side by side in words, and in which form factors are stored: by the time that it takes."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from math import prod

from tile_ir.dots import DOTS, DotProduct
from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.matrix import MatrixInstruction
from tile_ir.matrix.x86 import TILED_INSTRUCTIONS
from tile_ir.program.nodes import TensorType
from tile_ir.stripe.affine import Affine, intervals, names_in
from tile_ir.target import Target

from tile_opt.program.dots.match import Factor, Match
from tile_opt.program.dots.words import FLIP, Pads, Stored, is_words, packed_dim

PACKED = 0.3
"""Cycles that packing one byte takes."""
SUMMED = 0.1
"""Cycles of one byte in the sum of a factor alone."""
KERNEL = 3000
"""Cycles of a kernel more."""
INTEGER_PRODUCT = 2
"""Instructions of a product of int32, beside one of floats."""


@frozen
class Choice:
    """How one sum of products becomes one of words."""

    dot: DotProduct
    index: str
    """The packed index."""
    words: int
    """Words along it."""
    stored: tuple[Stored, Stored]
    """The factors, in the order of the instruction's operands."""
    dims: tuple[int, int]
    """The packed dimension of each."""
    padded: bool = False
    """Terms that a constraint leaves out are there with a factor of 0."""
    cycles: float = 0
    tiling: Tiling | None = None
    """The instruction on tiles that the products are for."""
    apart: bool = False
    """The terms behind the last whole word are added by themselves."""


@frozen
class Chooser:
    """Choices for one program on one target; `fixed` names values that no run changes."""

    target: Target
    types: dict[str, TensorType]
    fixed: Container[str]
    gain: float
    """Of the time as it was, what must be left at most."""
    given: Container[str] = ()
    """Values that no operation makes."""

    def choice(self, match: Match) -> Choice | None:
        """The fastest one; None where none is faster than the contraction as it is."""
        found = min(self._choices(match), key=lambda c: c.cycles, default=None)
        return found if found is not None and found.cycles < self.gain * self._before(match) else None

    @property
    def _lanes(self) -> float:
        """Words that a cycle multiplies."""
        settings, ports = self.target.settings, self.target.machine.ports
        native = self.target.machine.vector.native or settings.vector_bytes
        return min(native, settings.vector_bytes) / 4 * ports.fma

    def _before(self, match: Match) -> float:
        each = INTEGER_PRODUCT if match.op.type.dtype is DType.INT32 else 1
        return prod(match.ranges.values()) * each / self._lanes

    def _choices(self, match: Match) -> Iterator[Choice]:
        first, second = match.factors
        for dot in DOTS.values():
            if dot.c.is_float and not self.target.options.rounds(dot.a):
                continue
            for index, pair in product(match.reduced, ((first, second), (second, first))):
                yield from self._with(match, dot, index, pair)

    def _with(self, match: Match, dot: DotProduct, index: str, pair: tuple[Factor, Factor]) -> Iterator[Choice]:
        """The choice with these operands and this index, if it is legal."""
        stored = [_stored(f, dtype) for f, dtype in zip(pair, (dot.a, dot.b), strict=True)]
        dims = [packed_dim(f.leaf, index, dot.depth) for f in pair]
        (a, b), (left, right) = stored, dims
        if (
            any(index in form.names for form, _ in match.cuts)
            or a is None
            or b is None
            or left is None
            or right is None
        ):
            return
        padded = self._padded(match, a, b)
        ends = match.ranges[index] % dot.depth
        # A float that is no number stays none when it is multiplied by 0.
        enough = all if dot.c.is_float else any
        if padded is None or (ends and not enough(map(partial(self._is_ended, match, index), padded, (left, right)))):
            return
        words = -(-match.ranges[index] // dot.depth)
        made = Choice(dot, index, words, padded, (left, right), padded=padded != (a, b))
        if dot.name in self.target.nodes:
            yield replace(made, cycles=self._cycles(match, made))
        made = self._ended_apart(match, made)
        whole = made.words > 1 and self._is_whole(match, made)
        for tiling in tilings(self.target, match, dot, index, pair) if whole else ():
            tiled = replace(made, tiling=tiling)
            yield replace(tiled, cycles=self._cycles(match, tiled))

    def _ended_apart(self, match: Match, choice: Choice) -> Choice:
        """The choice with whole words alone where a sum over one index has terms behind them: no factor is filled up for these."""
        ends = match.ranges[choice.index] % choice.dot.depth
        plain = all(s.center == 0 and not s.flipped for s in choice.stored)
        if not ends or not plain or match.cuts or match.reduced != (choice.index,):
            return choice
        return replace(choice, words=choice.words - 1, apart=True)

    def _is_whole(self, match: Match, choice: Choice) -> bool:
        """All terms may be there: one factor is 0 in those that are left out, when a kernel copies it with zeros around."""
        if choice.padded or not match.cuts:
            return True
        ends = match.ranges[choice.index] % choice.dot.depth
        return not ends and _is_full(match) and self._bordered(match, *choice.stored) is not None

    def _is_ended(self, match: Match, index: str, factor: Stored, dim: int) -> bool:
        """The factor is stored as 0 in the last word wherever the index has ended."""
        whole = self.types[factor.leaf.tensor].shape[dim] == match.ranges[index]
        return whole and factor.leaf.forms[dim] == Affine.var(index) and not factor.pads

    def _padded(self, match: Match, a: Stored, b: Stored) -> tuple[Stored, Stored] | None:
        """The factors, padded where terms that are left out would have a part in the sums of a factor alone."""
        if a.center == b.center == 0:
            return a, b
        if not _is_full(match):
            return None
        return self._bordered(match, a, b) if match.cuts else (a, b)

    def _bordered(self, match: Match, a: Stored, b: Stored) -> tuple[Stored, Stored] | None:
        """The factors, one of them padded so that every term that is left out has a factor of 0 from there."""
        for one, other in ((a, b), (b, a)):
            pads = self._pads(match, one, match.cuts)
            if pads is not None and one.can_pad and self._pads(match, other, ()) == self._none(other):
                made = replace(one, pads=pads)
                return (made, other) if one is a else (other, made)
        return None

    def _pads(self, match: Match, factor: Stored, cuts: tuple[tuple[Affine, int], ...]) -> Pads | None:
        """What is to stand around a tensor, so that no subscript leaves it; None where `cuts` say more than that."""
        shape = self.types[factor.leaf.tensor].shape
        limits = intervals(match.ranges)
        bounds = [f.bounds(limits) for f in factor.leaf.forms]
        if not set(zip(factor.leaf.forms, shape, strict=True)).issuperset(cuts):
            return None
        return tuple((max(0, -low), max(0, high + 1 - n)) for (low, high), n in zip(bounds, shape, strict=True))

    def _cycles(self, match: Match, choice: Choice) -> float:
        """Of all words' products, of packing what each run brings, and of the sums of factors alone."""
        total = self._products(match, choice)
        for one, dim, other in zip(choice.stored, choice.dims, choice.stored[::-1], strict=True):
            moves = names_in(one.leaf.forms)
            size = prod(
                n + sum(p) for n, p in zip(self.types[one.leaf.tensor].shape, one.pads or self._none(one), strict=True)
            )
            if one.leaf.tensor not in self.fixed:
                total += 0 if self._is_there(choice, one, dim) else size * PACKED + KERNEL
                if other.center != 0:
                    total += prod(match.ranges[n] for n in moves) * SUMMED + KERNEL
        return total

    def _is_there(self, choice: Choice, stored: Stored, dim: int) -> bool:
        """The factor's own bytes are its words."""
        plain = not stored.flipped and not any(map(any, stored.pads)) and stored.leaf.tensor in self.given
        return plain and is_words(stored, dim, self.types[stored.leaf.tensor], choice.dot.depth)

    def _products(self, match: Match, choice: Choice) -> float:
        """Cycles of the products."""
        if choice.tiling is not None:
            return choice.tiling.cycles(self.target, match.ranges, choice.index, choice.words)
        points = prod(n for name, n in match.ranges.items() if name != choice.index) * choice.words
        return points / self._lanes * self.target.machine.slots(choice.dot.name)

    def _none(self, stored: Stored) -> Pads:
        return ((0, 0),) * len(stored.leaf.forms)


def _is_full(match: Match) -> bool:
    """Every cell of the result has a term for each tuple of the summed indexes."""
    named = [n for f in match.output for n in f.names]
    return len(named) == len(set(named)) and all(map(partial(_counts, match), match.output, match.op.type.shape))


def _counts(match: Match, form: Affine, size: int) -> bool:
    """The form takes every value from 0 to `size` once: its indexes are digits."""
    step = 1
    for name, coefficient in sorted(form.terms, key=lambda t: t[1]):
        if coefficient != step:
            return False
        step *= match.ranges[name]
    return form.const == 0 and step == size


def _stored(factor: Factor, dtype: DType) -> Stored | None:
    """The factor in words of `dtype`; None where these do not hold it."""
    own = factor.leaf.dtype
    fits = own is dtype or FLIP.get(own) is dtype or (dtype.is_integer and own.is_integer and dtype.bits > own.bits)
    return Stored(factor.leaf, dtype, factor.zero) if fits else None


APART = 2
"""Cycles of a result that is stored by itself."""
TURNED = 0.5
"""Cycles of a result that a tile of registers turns, so that it is stored along the rows of the sum."""
BUSY = 0.5
"""Share of the time in which the instruction runs, loads beside it."""


@frozen
class Tiling:
    """Rows, columns and words of a sum that an instruction takes tile by tile; beyond their ends, the kernel fills tiles up."""

    instruction: MatrixInstruction
    rows: str
    columns: str
    storing: float = 0
    """Cycles of storing results whose columns do not lie side by side."""

    def side(self, index: str) -> int:
        """Iterations of an index in a tile; 1 for those beside the tiles."""
        m, n, _ = self.instruction.shape
        return {self.rows: m, self.columns: n}.get(index, 1)

    def cycles(self, target: Target, ranges: Mapping[str, int], index: str, words: int) -> float:
        """Of all products of whole tiles, of which so many words have factors."""
        machine = target.machine
        depth = up(words, self.instruction.shape[2])
        points = prod(up(n, self.side(name)) for name, n in ranges.items() if name != index) * depth
        times = points / prod(self.instruction.shape)
        return times * machine.slots(self.instruction.name) / machine.ports.fma / BUSY + self.storing


def up(count: int, unit: int) -> int:
    return -(-count // unit) * unit


def tilings(target: Target, match: Match, dot: DotProduct, index: str, pair: tuple[Factor, Factor]) -> Iterator[Tiling]:
    """Every instruction that adds up such products, with the longest rows, and columns that lie side by side in the result if some do.

    Windows that overlap are rows, which are copied together. Fewer rows or columns than a tile has are filled up, too:
    `Tiling.cycles` counts what that wastes.
    """
    left, right = pair
    if any(slides(f, match) for f in right.leaf.forms) and not any(slides(f, match) for f in left.leaf.forms):
        return
    kept = names_in(match.output)
    long = {n for n, size in match.ranges.items() if size > 1}
    rows = [n for n in kept & left.names & long - right.names if _steps(left, n)]
    last = {n for n, step in (match.output[-1].terms if match.output else ()) if step == 1}
    beside = [n for n in match.ranges if n in kept & right.names & long - left.names and _steps(right, n) == 1]
    columns = sorted(beside, key=lambda n: n not in last)
    for name in target.matrix:
        instruction = TILED_INSTRUCTIONS.get(name)
        if instruction is None or instruction.product != dot.name or not rows or not columns:
            continue
        if index in left.names:
            row = max(rows, key=lambda n: (match.ranges[n], n))
            each = 0 if columns[0] in last else TURNED if row in last else APART
            yield Tiling(instruction, row, columns[0], each * prod(match.ranges[n] for n in kept))


def slides(form: Affine, match: Match) -> bool:
    """Windows slide along a dimension, one into the other."""
    return sum(match.ranges[n] > 1 for n in form.names) > 1


def _steps(factor: Factor, index: str) -> int:
    """By how much the one subscript of the factor that goes along the index does so; 0 where there are several, or it goes down."""
    steps = [f.coefficient(index) for f in factor.leaf.forms if index in f.names]
    return max(0, int(steps[0])) if len(steps) == 1 else 0
