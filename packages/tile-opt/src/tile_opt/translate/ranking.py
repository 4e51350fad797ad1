"""Sorting where many items run at once: each element finds its own place among others, and goes there.

Elements become words that differ, though keys be equal: a key's code, behind it the place where it stood. So an order
of words is the stable order of keys, and no two elements of a line go to one place. Codes take the bits of floats; where
a target cannot, words have the keys themselves, whatever runs them.

Two runs merge as each of their elements finds by bisection how many of the other run come before it: as many more
places than its own run says. Runs that a group of items can hold grow so within one kernel; longer ones take a
kernel for each doubling. Where only the first few are wanted, a run keeps no more, and what is left is sorted again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.powers import power_of_two
from tile_ir.program.nodes import Argsort
from tile_ir.semtree.nodes import Bitcast
from tile_ir.stripe.affine import Affine

from tile_opt.translate.build import Kernel, Loop, Scalar, Stage, cell_of, loops_over
from tile_opt.translate.codes import code, code_type, part_types, parts
from tile_opt.translate.context import Context
from tile_opt.translate.sort import PLACE, Sort

RUN = 1024
"""Elements, at most, of runs that grow within one kernel: items of a group share them."""
EACH = 4
"""Those, at most, of an item: its code is straight."""
SHORT = 64
"""Elements of such runs where only few are wanted, at least: most need no more comparisons."""
SHARE = 8
"""Elements of a run for each that is wanted."""
SHIFT = 32
"""The bit from which on a word holds the code."""
Words = tuple[str, ...]
"""Buffers of the parts of words."""
Word = tuple[Scalar, ...]
"""The parts of one."""
Probe = Callable[[Scalar], Word]
"""The word at a place of the line that is computed."""


def ranked(context: Context, op: Argsort) -> None:
    """The places of the elements in order; the axis has several, and some are wanted."""
    work = _Ranking(context, op)
    words, left, width = work.turned_words() if work.turned else Words(), work.extent, 1
    while width < left:
        alone = width == 1 or 4 * width <= work.run(left)
        longer = work.run(left) if alone else 2 * width
        last = longer >= left
        words = (work.in_group if alone else work.merged)(words, left, longer, last)
        left, width = work.left(left, longer), min(longer, work.keeps)
    if words != (context.buffers[op.name],):
        work.finish(words)


@frozen
class _Ranking(Sort):
    """The kernels of one sort. Words are one buffer, or the parts of codes and, beside those of 64 bits, the places."""

    @property
    def keeps(self) -> int:
        """What a run keeps at most: runs are powers of two long, so that bits of a number say which it is in."""
        return power_of_two(self.wanted)

    @property
    def dtypes(self) -> tuple[DType, ...]:
        """Of the words."""
        return (DType.UINT64,) if self.has_codes and self.dtype.bits <= SHIFT else (*self.codes, PLACE)

    def run(self, left: int) -> int:
        """Elements of the runs that a kernel makes of single ones: a power of two."""
        most = min(RUN, EACH * self.context.target.settings.threads)
        enough = min(most, max(SHORT, power_of_two(self.wanted * SHARE)))
        return min(power_of_two(left), enough if left > 2 * enough else 2 * enough, 1 << (most.bit_length() - 1))

    def left(self, count: int, run: int) -> int:
        """Elements after a pass that makes runs of `run`."""
        full, rest = divmod(count, run)
        return full * min(run, self.keeps) + min(rest, self.keeps)

    def temporaries(self, count: int) -> Words:
        """Buffers for the words of `count` elements a line."""
        name, shape = self.result, (*self.lines, count)
        return tuple(self.context.temporary(f"{name}_words", dtype, shape) for dtype in self.dtypes)

    @property
    def has_codes(self) -> bool:
        return Bitcast.__name__ in self.context.target.nodes

    @property
    def codes(self) -> tuple[DType, ...]:
        """Of the parts of a code."""
        return (code_type(self.dtype),) if self.has_codes else part_types(self.dtype)

    def word(self, found: Word, element: Affine) -> Word:
        """Of a code and the place where it stands."""
        first, stage, wide = found[0], found[0].stage, self.dtypes[0]
        place = stage.index(element, PLACE)
        if len(self.dtypes) > 1:
            return *found, place
        return (first.cast(wide) << stage.const(SHIFT, PLACE) | place.cast(wide),)

    def read(self, stage: Stage, element: Affine) -> Word:
        """The word of an element of the argument."""
        key = stage.load(self.context.buffers[self.op.arg], self.outside((*cell_of(self.lines), element)))
        descending = self.op.descending
        return self.word((code(key, descending),) if self.has_codes else parts(key, descending), element)

    # --- the passes ---

    def turned_words(self) -> Words:
        """All words, those of a line side by side."""
        shape = (*self.lines, self.extent)
        kernel, made, cell = self.kernel(), self.temporaries(shape[-1]), cell_of(shape)
        stage = kernel.stage("words", loops_over(shape))
        for buffer, word in zip(made, self.read(stage, cell[-1]), strict=True):
            stage.store(buffer, cell, word)
        self.context.add(kernel)
        return made

    def in_group(self, words: Words, count: int, run: int, last: bool) -> Words:
        """Runs of `run` elements in order, of elements in any order: one of `words`, or of the argument where those are ()."""
        return _Group(self, self.kernel(), count, run).build(words, last)

    def merged(self, words: Words, count: int, longer: int, last: bool) -> Words:
        """Runs of twice the width, or of what is wanted; a last run without another stays."""
        kernel, pairs, width = self.kernel(), -(-count // longer), longer // 2
        loops: list[Loop] = [*loops_over(self.lines), *(() if pairs == 1 else (("p", pairs),)), ("e", longer)]
        element = Affine.of({"e": 1} if pairs == 1 else {"p": longer, "e": 1})
        ragged = count % longer != 0
        stage = kernel.stage("merge", loops, [Affine((), count - 1) - element] if ragged else [])
        line = cell_of(self.lines)
        mine = tuple(stage.load(word, (*line, element)) for word in words)
        find = _Bisection(mine, stage.index(element, PLACE), width, count if ragged else 0)
        position = find.position(lambda at: tuple(stage.load(word, (*line, at)) for word in words))
        found = self.kept(position, Affine.of({} if pairs == 1 else {"p": 1}), longer, count)
        made = self.stored(stage, mine, found, self.left(count, longer), longer > self.keeps, last)
        self.context.add(kernel)
        return made

    def kept(self, position: Scalar, number: Affine, run: int, count: int) -> Scalar:
        """Where what has a position in run `number` goes: behind all where it is not wanted."""
        kept = min(run, self.keeps)
        where = position.stage.index(number * kept, PLACE) + position
        return where if kept == run else (position < kept).choose(where, self.left(count, run))

    def stored(self, stage: Stage, word: Word, where: Scalar, left: int, some: bool, last: bool) -> Words:
        """Words to a place of the line that is computed, `left` or behind all where only `some` are wanted; those, or the result.

        The `last` pass stores places where the result has them side by side, and keeps all.
        """
        size = left + some
        plain = last and not self.turned and size == self.wanted
        made = (self.result,) if plain else self.temporaries(size)
        stored = (self.place(word),) if plain else word
        for buffer, part in zip(made, stored, strict=True):
            stage.store(buffer, (*cell_of(self.lines), where), part, clamp=True, atomic=True)
        return made

    def place(self, word: Word) -> Scalar:
        """The place that a word ends in."""
        return word[-1] if word[-1].dtype is PLACE else (word[-1] & (1 << SHIFT) - 1).cast(PLACE)

    def finish(self, words: Words) -> None:
        """The places that are wanted, where the result has them."""
        kernel, shape = self.kernel(), (*self.lines, self.wanted)
        stage = kernel.stage("places", loops_over(shape))
        *_, element = cell = cell_of(shape)
        place = self.place(tuple(stage.load(w, cell) for w in words))
        stage.store(self.result, self.outside((*cell_of(self.lines), element)), place)
        self.context.add(kernel)


@frozen
class _Bisection:
    """How an element finds its position in the run that its own run of `width` and its neighbour make."""

    mine: Word
    element: Scalar
    width: int
    count: int
    """Elements of the line where the last runs may be shorter; 0 where all are whole."""

    def position(self, probe: Probe) -> Scalar:
        """As many places further than in its own run as elements of the other come before it."""
        before, step = ((self.element ^ self.width) & -self.width) - 1, self.width
        known = self.element.stage.const(0, PLACE)
        while step:
            # As many as the run has are found as the half, the quarter, …, and one more.
            step = step // 2
            known = self._further(probe, before, known, max(step, 1))
        return (self.element & self.width - 1) + known

    def _further(self, probe: Probe, before: Scalar, known: Scalar, step: int) -> Scalar:
        """`step` more, where the last of them, so many behind `before`, comes before this element."""
        wanted = known + step
        last = before + wanted
        taken = self.precedes(probe(last.with_("min", self.count - 1) if self.count else last))
        if self.count:
            taken = (last < self.count) & taken
        return taken.choose(wanted, known)

    def precedes(self, word: Word) -> Scalar:
        """Whether a word comes before this element's; the first parts decide, then the second."""
        less = word[-1] < self.mine[-1]
        for x, y in zip(word[-2::-1], self.mine[-2::-1], strict=True):
            equal = x.is_(y) & less
            less = (x < y) | equal
        return less


@frozen
class _Group:
    """A kernel whose groups of items each make a run in order: a stage for each doubling of runs."""

    of: _Ranking
    kernel: Kernel
    count: int
    run: int

    @property
    def runs(self) -> int:
        return -(-self.count // self.run)

    @property
    def number(self) -> Affine:
        return Affine.of({"g": 1} if self.runs > 1 else {})

    @property
    def row(self) -> tuple[Affine, ...]:
        """A run's cell, without that of its element."""
        return (*cell_of(self.of.lines), self.number)

    def build(self, words: Words, last: bool) -> Words:
        held, other, width = self._held(), self._held(), 1
        self._read(words, held)
        while width < self.run:
            self._doubled(held, other, width)
            held, other, width = other, held, 2 * width
        made = self._give(held, last)
        self.of.context.add(self.kernel)
        return made

    def _give(self, held: Words, last: bool) -> Words:
        """What is wanted of a run, to words side by side; of the `last` one the places, where the result has them so."""
        of, plain = self.of, last and not self.of.turned
        kept = min(self.run, of.wanted if plain else of.keeps, self.count)
        made = (of.context.buffers[of.op.name],) if plain else of.temporaries(of.left(self.count, self.run))
        element = Affine.var("e") if kept > 1 else Affine()
        ragged = self.count % self.run != 0 and not last
        inside = [Affine((), self.count - 1) - self.number * self.run - element] if ragged else []
        stage = self._stage("give", inside, kept)
        word = tuple(stage.load(b, (*self.row, element)) for b in held)
        cell = (*cell_of(of.lines), self.number * kept + element)
        for buffer, part in zip(made, (of.place(word),) if plain else word, strict=True):
            stage.store(buffer, cell, part)
        return made

    def _stage(self, name: str, limits: Sequence[Affine] = (), elements: int = 0) -> Stage:
        """All runs, and the elements of each, or the first so many."""
        loops: list[Loop] = [("g", self.runs), ("e", elements or self.run)]
        return self.kernel.stage(name, [*loops_over(self.of.lines), *(i for i in loops if i[1] > 1)], limits)

    def _held(self) -> Words:
        """Words of all elements, which the items of a group share."""
        shape = (*self.of.lines, self.runs, self.run)
        return tuple(self.kernel.alloc("run", dtype, shape) for dtype in self.of.dtypes)

    def _read(self, words: Words, held: Words) -> None:
        """The words of a run, in any order; behind the end of the line such as come last."""
        element = self.number * self.run + Affine.var("e")
        inside: list[Affine] = []
        if self.count % self.run:
            stage = self._stage("beyond")
            most = tuple(stage.const(d.max_value, d) for d in self.of.codes)
            self._store(stage, held, self.of.word(most, element + self.of.extent))
            inside.append(Affine((), self.count - 1) - element)
        stage, line = self._stage("words", inside), cell_of(self.of.lines)
        found = tuple(stage.load(w, (*line, element)) for w in words) or self.of.read(stage, element)
        self._store(stage, held, found)

    def _store(self, stage: Stage, held: Words, word: Word) -> None:
        for buffer, part in zip(held, word, strict=True):
            stage.store(buffer, (*self.row, Affine.var("e")), part)

    def _doubled(self, held: Words, made: Words, width: int) -> None:
        """Runs of twice the width, in other buffers."""
        stage, element = self._stage(f"runs{2 * width}"), Affine.var("e")
        mine, number = tuple(stage.load(b, (*self.row, element)) for b in held), stage.index(element, PLACE)
        find = _Bisection(mine, number, width, 0)
        position = find.position(lambda at: tuple(stage.load(b, (*self.row, at)) for b in held))
        to = (*self.row, (number & -2 * width) + position)
        for buffer, word in zip(made, mine, strict=True):
            stage.store(buffer, to, word, atomic=True)
