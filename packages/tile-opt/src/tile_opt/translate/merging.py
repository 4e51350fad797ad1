"""Sorting: runs are merged pair by pair, each pass as many small merges that know nothing of one another.

A pass turns runs of `width` elements into runs of twice as many. Its result is cut into chunks. How many of a chunk's
predecessors come from the first of two runs is found by bisection, then the chunk is merged element by element: every
chunk, and every line, runs by itself. What is equal stays in order: the first run goes first. Where only the first few
elements are wanted, runs grow no longer than that, and each pass leaves half as many.
"""

from __future__ import annotations

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.program.nodes import Argsort
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Order

from tile_opt.translate.build import Kernel, Loop, Scalar, Stage, cell_of, loops_over
from tile_opt.translate.context import Context
from tile_opt.translate.sort import PLACE, Sort

CHUNK = 64
"""Elements of a merge: their number against the steps of a bisection."""


def merged(context: Context, op: Argsort) -> None:
    """The places of the elements in order, two at least, by passes from keys and places to others."""
    count, wanted = context.shape(op.arg)[op.axis], op.type.shape[op.axis]
    keys, places, width = context.buffers[op.arg], "", 1
    while width < count:
        step = _Pass(context, op, count, width, min(2 * width, wanted), keys, places)
        keys, places = step.build(last=step.pairs == 1)
        count, width = step.left, step.longer


@frozen
class _Pass:
    """Runs of `width` become runs of `longer`; `places` "" are those before the first pass."""

    context: Context
    op: Argsort
    count: int
    width: int
    longer: int
    keys: str
    places: str

    @property
    def pairs(self) -> int:
        return -(-self.count // (2 * self.width))

    @property
    def left(self) -> int:
        """Elements after the pass."""
        before = self.pairs - 1
        return before * self.longer + min(self.longer, self.count - before * 2 * self.width)

    @property
    def chunk(self) -> int:
        return min(CHUNK, self.longer)

    @property
    def dtype(self) -> DType:
        return self.context.dtype(self.op.arg)

    @property
    def lines(self) -> tuple[int, ...]:
        """The shape across the axis, where the axis has size 1."""
        return tuple(1 if d == self.op.axis else n for d, n in enumerate(self.op.type.shape))

    def along(self, count: int) -> tuple[int, ...]:
        """The shape with `count` elements on the axis."""
        return tuple(count if d == self.op.axis else n for d, n in enumerate(self.op.type.shape))

    def build(self, last: bool) -> tuple[str, str]:
        """Append the kernel; gives the new keys, "" after the last pass, and the new places."""
        target, shape = self.context.buffers[self.op.name], self.along(self.left)
        keys = "" if last else self.context.temporary(f"{target}_keys", self.dtype, shape)
        places = target if last else self.context.temporary(f"{target}_places", PLACE, shape)
        kernel = Sort(self.context, self.op).kernel()
        chunks = -(-self.longer // self.chunk)
        loops = [*loops_over(self.lines), *(loop for loop in (("p", self.pairs), ("c", chunks)) if loop[1] != 1)]
        state = (*(n for d, n in enumerate(self.lines) if d != self.op.axis), self.pairs, chunks)
        split = _Split(self, kernel, loops, kernel.alloc("low", PLACE, state), kernel.alloc("high", PLACE, state))
        split.begin()
        if chunks > 1:
            split.bisect()
        split.merge(keys, places)
        self.context.add(kernel)
        return keys, places


@frozen
class _Split:
    """The stages of a pass; `low` and `high` bound how many elements before a chunk come from the first run."""

    of: _Pass
    kernel: Kernel
    loops: list[Loop]
    low: str
    high: str

    def begin(self) -> None:
        """All that may be: between what the second run cannot give and what the first run has."""
        stage = _Merge(self, self.kernel.stage("bounds", self.loops))
        self.store(stage, self.low, (stage.index(self.before) - stage.second).with_("max", 0))
        self.store(stage, self.high, stage.index(self.before).with_("min", stage.first))

    def bisect(self) -> None:
        """Halve the interval until it is a number: all elements taken come before all that are left."""
        steps = self.of.width.bit_length() + 1
        stage = _Merge(self, self.kernel.stage("bisect", [*self.loops, ("s", steps, Order.ORDERED)]))
        low, high = self.load(stage, self.low), self.load(stage, self.high)
        half = (low + high) >> 1
        taken = stage.goes_first(half, stage.index(self.before + -1) - half)
        open_ = low < high
        more = (open_ & taken).choose(half + 1, low)
        less = (open_ & ~taken).choose(half, high)
        self.store(stage, self.low, more)
        self.store(stage, self.high, less)

    def merge(self, keys: str, places: str) -> None:
        """The smaller of the first elements left, again and again; `low` counts those of the first run."""
        of = self.of
        steps = [("t", of.chunk, Order.ORDERED)] if of.chunk > 1 else []
        number = self.before + Affine.of({name: 1 for name, *_ in steps})
        element = self._loop("p", of.longer) + number
        inside = [Affine((), of.left - 1) - element] if of.left % of.longer else []
        inside += [Affine((), of.longer - 1) - number] if of.longer % of.chunk else []
        stage = _Merge(self, self.kernel.stage("merge", [*self.loops, *steps], inside))
        left = self.load(stage, self.low)
        right = stage.index(number) - left
        rest, none = left < stage.first, right >= stage.second
        taken = rest & (none | stage.goes_first(left, right))
        place = taken.choose(stage.place(left, 0), stage.place(right, of.width))
        stage.stage.store(places, self.cell(element), place)
        if keys:
            key = taken.choose(stage.key(left, 0), stage.key(right, of.width))
            stage.stage.store(keys, self.cell(element), key)
        self.store(stage, self.low, taken.choose(left + 1, left))

    # --- where ---

    def _loop(self, name: str, factor: int) -> Affine:
        return Affine.of({name: factor}) if any(loop[0] == name for loop in self.loops) else Affine()

    @property
    def start(self) -> Affine:
        """Where the pair of runs begins."""
        return self._loop("p", 2 * self.of.width)

    @property
    def before(self) -> Affine:
        """Elements of the pair before this chunk."""
        return self._loop("c", self.of.chunk)

    def cell(self, element: Affine | Scalar) -> tuple[Affine | Scalar, ...]:
        line = cell_of(self.of.lines)
        return tuple(element if d == self.of.op.axis else f for d, f in enumerate(line))

    def _state(self) -> tuple[Affine, ...]:
        line = tuple(f for d, f in enumerate(cell_of(self.of.lines)) if d != self.of.op.axis)
        return (*line, self._loop("p", 1), self._loop("c", 1))

    def load(self, stage: _Merge, buffer: str) -> Scalar:
        return stage.stage.load(buffer, self._state())

    def store(self, stage: _Merge, buffer: str, value: Scalar) -> None:
        stage.stage.store(buffer, self._state(), value)


class _Merge:
    """Scalars of a stage: sizes of the two runs, and elements of them."""

    def __init__(self, split: _Split, stage: Stage) -> None:
        self.of, self.start, self.cell, self.stage = split.of, split.start, split.cell, stage
        left = self.stage.const(self.of.count, PLACE) - self.index(self.start)
        self.first = left.with_("min", self.of.width)
        self.second = (left - self.first).with_("min", self.of.width)

    def index(self, form: Affine) -> Scalar:
        return self.stage.index(form, PLACE)

    def goes_first(self, left: Scalar, right: Scalar) -> Scalar:
        """Whether the element of the first run is not behind that of the second."""
        return ~self._before(self.key(right, self.of.width), self.key(left, 0))

    def _before(self, a: Scalar, b: Scalar) -> Scalar:
        """In order: NaN is larger than all numbers."""
        if self.of.op.descending:
            a, b = b, a
        less = a < b
        return less | a.is_(a) & b.is_not(b) if self.of.dtype.is_float else less

    def key(self, number: Scalar, offset: int) -> Scalar:
        """The key of an element of the run that begins `offset` behind the pair's start."""
        return self._element(self.of.keys, number, offset)

    def place(self, number: Scalar, offset: int) -> Scalar:
        """Where that element stood at first."""
        if not self.of.places:
            return self.index(self.start + offset) + number
        return self._element(self.of.places, number, offset)

    def _element(self, buffer: str, number: Scalar, offset: int) -> Scalar:
        return self.stage.load(buffer, self.cell(self.index(self.start + offset) + number), clamp=True)
