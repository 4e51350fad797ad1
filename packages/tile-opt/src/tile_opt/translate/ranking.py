"""Sorting where many items run at once: each element finds its own place among others, and goes there.

Elements become words that differ, though keys be equal: a key's code, behind it the place where it stood. So an order
of words is the stable order of keys, and no two elements of a line go to one place.

The first pass counts, for each element of a short run, those of the run that come before it. Every other pass merges
two runs: an element has as many before it as its own run says, and as bisection finds in the other run. Where only the
first few are wanted, a pass drops what comes later, and runs that stay short are counted again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tile_ir.dtype import DType
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import Argsort
from tile_ir.program.printer import print_op
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Order

from tile_opt.translate.build import Kernel, Loop, Stage, cell_of, loops_over
from tile_opt.translate.codes import code, code_type
from tile_opt.translate.context import Context, cast_to

RUN = 32
"""Elements of a run that are counted, each against each; what is hardly longer is one run."""
PLACE = DType.INT32
Words = tuple[str, ...]
"""Buffers or scalars, the parts of words."""
SHIFT = 32
"""The bit from which on a word holds the code."""


def ranked(context: Context, op: Argsort) -> None:
    """The places of the elements in order; the axis has several, and some are wanted."""
    work = _Ranking(context, op)
    words, left, width = work.words(), context.shape(op.arg)[op.axis], 1
    while width < left:
        if 2 * width <= RUN:
            run = left if left <= 2 * RUN else RUN
            words = work.counted(words, left, run)
            left, width = work.left(left, run), min(run, work.wanted)
        else:
            words = work.merged(words, left, width)
            left, width = work.left(left, 2 * width), min(2 * width, work.wanted)
    work.finish(words)


@dataclass(frozen=True, slots=True)
class _Ranking:
    """The kernels of one sort. Words are one buffer, or the codes and, where those have 64 bits, the places."""

    context: Context
    op: Argsort

    @property
    def wanted(self) -> int:
        return self.op.type.shape[self.op.axis]

    @property
    def dtypes(self) -> tuple[DType, ...]:
        """Of the words."""
        dtype = code_type(self.context.dtype(self.op.arg))
        return (dtype, PLACE) if dtype.bits > SHIFT else (DType.UINT64,)

    def left(self, count: int, run: int) -> int:
        """Elements after a pass that makes runs of `run`."""
        full, rest = divmod(count, run)
        return full * min(run, self.wanted) + min(rest, self.wanted)

    @property
    def lines(self) -> tuple[int, ...]:
        """The shape across the axis, where the axis has size 1."""
        return tuple(1 if d == self.op.axis else n for d, n in enumerate(self.op.type.shape))

    # --- the passes ---

    def words(self) -> Words:
        """Each element's word."""
        kernel, shape = self._kernel(), self.along(self.context.shape(self.op.arg)[self.op.axis])
        stage, cell = kernel.stage("words", loops_over(shape)), cell_of(shape)
        key, dtype = stage.load(self.context.buffers[self.op.arg], cell), self.context.dtype(self.op.arg)
        found, place = code(stage, key, dtype, self.op.descending), stage.index(cell[self.op.axis], PLACE)
        if len(self.dtypes) == 1:
            (wide,) = self.dtypes
            high = stage.op(
                "bit_left", (cast_to(stage, found, code_type(dtype), wide), stage.const(SHIFT, PLACE)), wide
            )
            parts: tuple[str, ...] = (stage.op("bit_or", (high, stage.op("cast", (place,), wide)), wide),)
        else:
            parts = (found, place)
        buffers = self.temporaries(shape[self.op.axis])
        for buffer, word in zip(buffers, parts, strict=True):
            stage.store(buffer, cell, word)
        self.context.add(kernel)
        return buffers

    def counted(self, words: Words, count: int, run: int) -> Words:
        """Runs of `run` elements in order, the first of each that are wanted."""
        made = _Pass(self, self._kernel(), count, run, (("g", -(-count // run)), ("e", run)))
        ranks, element, other = made.state("rank"), made.form(g=run, e=1), made.form(g=run, o=1)
        begin = made.stage("begin")
        begin.store(ranks, made.cell, begin.const(0, PLACE))
        stage = made.stage("count", [("o", run)], [element, other])
        before = made.precedes(stage, made.load(stage, words, other), made.load(stage, words, element))
        stage.store(ranks, made.cell, stage.op("cast", (before,), PLACE), agg=Aggregation.SUM)
        stage = made.stage("place", inside=[element])
        return made.place(stage, words, element, stage.load(ranks, made.cell))

    def merged(self, words: Words, count: int, width: int) -> Words:
        """Runs of twice the width, or of what is wanted; a last run without another stays."""
        made = _Pass(self, self._kernel(), count, 2 * width, (("p", -(-count // (2 * width))), ("s", 2), ("e", width)))
        element, other = made.form(p=2 * width, s=width, e=1), made.form(width, p=2 * width, s=-width)
        before = made.state("before")
        begin = made.stage("begin")
        begin.store(before, made.cell, begin.const(0, PLACE))
        stage = made.stage("bisect", [("t", width.bit_length(), Order.ORDERED)], [element])
        made.bisect(stage, before, words, element, other, width)
        stage = made.stage("place", inside=[element])
        position = stage.op("add", (stage.load(before, made.cell), stage.index(made.form(e=1), PLACE)), PLACE)
        return made.place(stage, words, element, position)

    def finish(self, words: Words) -> None:
        """The places, which the words end in."""
        kernel, cell = self._kernel(), cell_of(self.op.type.shape)
        stage = kernel.stage("places", loops_over(self.op.type.shape))
        place = stage.load(words[-1], cell)
        if len(words) == 1:
            place = stage.op("bit_and", (place, stage.const((1 << SHIFT) - 1, self.dtypes[0])), self.dtypes[0])
        stage.store(self.context.buffers[self.op.name], cell, cast_to(stage, place, self.dtypes[-1], PLACE))
        self.context.add(kernel)

    def along(self, count: int) -> tuple[int, ...]:
        """The shape with `count` elements on the axis."""
        return tuple(count if d == self.op.axis else n for d, n in enumerate(self.op.type.shape))

    def temporaries(self, count: int) -> Words:
        """Buffers for the words of `count` elements a line."""
        name = self.context.buffers[self.op.name]
        return tuple(self.context.temporary(f"{name}_words", dtype, self.along(count)) for dtype in self.dtypes)

    def _kernel(self) -> Kernel:
        return self.context.kernel(print_op(self.op), ("argsort",), self.op.origin)


@dataclass(frozen=True, slots=True)
class _Pass:
    """One kernel, whose iterations are elements: `count` of a line come in, runs of `run` go out."""

    of: _Ranking
    kernel: Kernel
    count: int
    run: int
    own: tuple[tuple[str, int], ...]

    @property
    def loops(self) -> list[Loop]:
        return [*loops_over(self.of.lines), *(loop for loop in self.own if loop[1] > 1)]

    @property
    def cell(self) -> tuple[Affine, ...]:
        """Of a state."""
        return tuple(Affine.var(loop[0]) for loop in self.loops)

    def state(self, name: str) -> str:
        """An integer for each element."""
        return self.kernel.alloc(name, PLACE, tuple(loop[1] for loop in self.loops))

    def form(self, const: int = 0, **factors: int) -> Affine:
        """A place on the axis; loops of one iteration do not count."""
        single = {name for name, size in self.own if size == 1}
        return Affine.of({n: f for n, f in factors.items() if n not in single}, const)

    def stage(self, name: str, more: Sequence[Loop] = (), inside: Sequence[Affine] = ()) -> Stage:
        """All elements, and further loops; `inside` are places that must exist."""
        ragged = bool(self.count % self.run)
        limits = [Affine((), self.count - 1) - place for place in inside] if ragged else []
        return self.kernel.stage(name, [*self.loops, *(loop for loop in more if loop[1] > 1)], limits)

    # --- words ---

    def load(self, stage: Stage, words: Words, place: Affine) -> Words:
        cell = tuple(place if d == self.of.op.axis else f for d, f in enumerate(cell_of(self.of.lines)))
        return tuple(stage.load(word, cell) for word in words)

    def precedes(self, stage: Stage, a: Words, b: Words) -> str:
        """Whether one word comes before another; the first parts decide, then the second."""
        less = stage.op("cmp_lt", (a[-1], b[-1]), DType.BOOL)
        for x, y in zip(a[-2::-1], b[-2::-1], strict=True):
            equal = stage.op("bit_and", (stage.op("cmp_eq", (x, y), DType.BOOL), less), DType.BOOL)
            less = stage.op("bit_or", (stage.op("cmp_lt", (x, y), DType.BOOL), equal), DType.BOOL)
        return less

    def bisect(self, stage: Stage, state: str, words: Words, element: Affine, other: Affine, width: int) -> None:
        """Half as many more of the other run each time, where the last of them comes before this one."""
        length = self._length(stage, other, width)
        most, step = stage.const(1 << (width.bit_length() - 1), PLACE), stage.index(Affine.var("t"), PLACE)
        known = stage.load(state, self.cell)
        wanted = stage.op("add", (known, stage.op("bit_right", (most, step), PLACE)), PLACE)
        found = self._chosen(stage, words, stage.op("add", (stage.index(other + -1, PLACE), wanted), PLACE))
        before = self.precedes(stage, found, self.load(stage, words, element))
        there = stage.op("cmp_le", (wanted, length), DType.BOOL)
        taken = stage.op("bit_and", (there, before), DType.BOOL)
        stage.store(state, self.cell, stage.op("cond", (taken, wanted, known), PLACE))

    def _length(self, stage: Stage, start: Affine, width: int) -> str:
        """Elements of the run that begins there; 0 where none does."""
        if not self.count % self.run:
            return stage.const(width, PLACE)
        rest = stage.index(Affine((), self.count) - start, PLACE)
        least = stage.op("max", (rest, stage.const(0, PLACE)), PLACE)
        return stage.op("min", (least, stage.const(width, PLACE)), PLACE)

    def _chosen(self, stage: Stage, words: Words, place: str) -> Words:
        """The words at a place that is computed; those at the line's end where it lies behind."""
        zero, line = Affine(), cell_of(self.of.lines)
        found = [self.kernel.size(word)[self.of.op.axis] for word in words]
        sizes = [tuple(n if d == self.of.op.axis else 1 for d in range(len(line))) for n in found]
        at = tuple(place if d == self.of.op.axis else zero for d in range(len(line)))
        return tuple(stage.load(w, line, sizes=s, at=at, clamp=True) for w, s in zip(words, sizes, strict=True))

    def place(self, stage: Stage, words: Words, element: Affine, position: str) -> Words:
        """Each element to its position in its run, or behind all where that is not wanted; the words of the next pass."""
        left, kept, axis = self.of.left(self.count, self.run), min(self.run, self.of.wanted), self.of.op.axis
        name = self.own[0][0]
        where = stage.op("add", (stage.index(self.form(**{name: kept}), PLACE), position), PLACE)
        if kept < self.run:
            wanted = stage.op("cmp_lt", (position, stage.const(kept, PLACE)), DType.BOOL)
            where = stage.op("cond", (wanted, where, stage.const(left, PLACE)), PLACE)
        size = left + (kept < self.run)
        made, line = self.of.temporaries(size), cell_of(self.of.lines)
        sizes = tuple(size if d == axis else 1 for d in range(len(line)))
        at = tuple(where if d == axis else Affine() for d in range(len(line)))
        for buffer, word in zip(made, self.load(stage, words, element), strict=True):
            stage.store(buffer, line, word, sizes=sizes, at=at, clamp=True, atomic=True)
        self.of.context.add(self.kernel)
        return made
