"""The first of many in order: the largest code among them is found digit by digit, and what is not behind it is sorted.

How many codes are smaller than a number is counted in lanes. The numbers share the digits that are known; so many as have
fewer codes before them than are wanted are the next digit. One walk over the line then keeps what is smaller, and the
first of those that are equal, in the order they have.
"""

from __future__ import annotations

from collections.abc import Callable

from tile_ir.ops import Aggregation
from tile_ir.program.nodes import Argsort
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Order

from tile_opt.translate.build import Kernel, Scalar, Stage, cell_of, loops_over
from tile_opt.translate.codes import code_type
from tile_opt.translate.context import Context, fill
from tile_opt.translate.counting import PIECE, PLACE, Steps, codes, put_in_order

BITS = 2
"""Of a digit: a pass over the line compares with one number less than a digit has values."""
WIDTHS = (16, 32)
"""Bits of codes: fewer are sorted in a pass or two, and of more it would take long to compile each digit's code."""
SHARE = 4
"""Elements of a line for each that is wanted, from which it takes less time to choose them before they are sorted."""
PIECES = 4
"""Pieces of a line, each sorted by a core, up to which one core that chooses is faster."""


def is_chosen(context: Context, op: Argsort) -> bool:
    """Whether few enough are wanted, and lines so many or short that sorting them whole keeps few cores busy each."""
    wanted, steps = op.type.shape[op.axis], Steps(context, op)
    fits = wanted < PIECE and steps.dtype.bits in WIDTHS and steps.pieces <= PIECES
    return fits and SHARE * wanted <= steps.extent


def chosen(context: Context, op: Argsort) -> None:
    """The places of the first elements in order, less than a PIECE."""
    steps = Steps(context, op, op.type.shape[op.axis])
    made = codes(steps)
    with steps.step() as kernel:
        keys, places = _Choice(steps, kernel, made).kept()
    steps.next()
    put_in_order(steps, keys, places)


class _Choice:
    """Stages of one kernel, line by line."""

    def __init__(self, steps: Steps, kernel: Kernel, codes: str) -> None:
        self.steps, self.kernel, self.codes = steps, kernel, codes
        self.lines, self.line, self.wide = steps.lines, cell_of(steps.lines), code_type(steps.dtype)
        self.lanes = max(1, steps.context.target.settings.vector_bytes // PLACE.bytes)

    def kept(self) -> tuple[str, str]:
        """Codes and places of the elements that are wanted, with one cell more that holds what is not."""
        last = self._last()
        smaller, equal = (self.kernel.alloc(name, PLACE, self.lines) for name in ("smaller", "equal"))
        fill(self.kernel, "zero", smaller, self.lines, 0)
        (found,) = self._counts("before", last, (0,))
        self._per_line("begin", equal, lambda stage: stage.load(found, self.line))
        shape = (*self.lines, self.steps.count + 1)
        keys, places = (self.steps.buffer(n, d, shape, shared=True) for n, d in (("kept", self.wide), ("from", PLACE)))
        stage = self.kernel.stage("keep", [*loops_over(self.lines), ("t", self.steps.extent, Order.ORDERED)])
        key, bound = stage.load(self.codes, self._element), stage.load(last, self.line)
        is_smaller, is_equal = key < bound, key.is_(bound)
        first, next_ = stage.load(smaller, self.line), stage.load(equal, self.line)
        outside = stage.const(self.steps.count, PLACE)
        to = (*self.line, is_smaller.choose(first, is_equal.choose(next_, outside)))
        for buffer, value in ((keys, key), (places, stage.index(Affine.var("t"), PLACE))):
            stage.store(buffer, to, value, clamp=True)
        for counter, was, test in ((smaller, first, is_smaller), (equal, next_, is_equal)):
            stage.store(counter, self.line, was + test.cast(PLACE))
        return keys, places

    def _last(self) -> str:
        """The largest code of those that are wanted, digit by digit from the highest."""
        known = self.kernel.alloc("last", self.wide, self.lines)
        fill(self.kernel, "unknown", known, self.lines, 0)
        for shift in reversed(range(0, self.wide.bits, BITS)):
            values = tuple(value << shift for value in range(1, 1 << BITS))
            counts = self._counts("below", known, values)
            found = self.kernel.alloc("digit", self.wide, self.lines)
            self._per_line("digit", found, lambda s, c=counts, d=shift, k=known: self._next(s, c, d, k))
            known = found
        return known

    def _next(self, stage: Stage, counts: tuple[str, ...], shift: int, known: str) -> Scalar:
        """The digits that are `known`, and the next."""
        found, wanted = stage.load(known, self.line), stage.const(self.steps.count, PLACE)
        for count in counts:
            few = stage.load(count, self.line) < wanted
            found += few.choose(stage.const(1 << shift, self.wide), 0)
        return found

    def _counts(self, name: str, known: str, values: tuple[int, ...]) -> tuple[str, ...]:
        """How many codes of a line are smaller than the `known` digits with each of `values` added."""
        counts = tuple(self.kernel.alloc("count", PLACE, (*self.lines, self.lanes)) for _ in values)
        for count in counts:
            fill(self.kernel, "none", count, (*self.lines, self.lanes), 0)
        steps, rest = divmod(self.steps.extent, self.lanes)
        lane, step = Affine.var("p"), Affine.of({"t": self.lanes, "p": 1})
        for loops, element in (
            ([("p", self.lanes), ("t", steps)], step),
            ([("p", rest)], lane + steps * self.lanes),
        ):
            if not loops[0][1]:
                continue
            stage = self.kernel.stage(name, [*loops_over(self.lines), *loops])
            key, start = stage.load(self.codes, (*self.line, element)), stage.load(known, self.line)
            for count, value in zip(counts, values, strict=True):
                smaller = key < (start + value if value else start)
                stage.store(count, (*self.line, lane), smaller.cast(PLACE), agg=Aggregation.SUM)
        return tuple(map(self._total, counts))

    def _total(self, counts: str) -> str:
        """The sum of what lanes counted."""
        total = self.kernel.alloc("total", PLACE, self.lines)
        fill(self.kernel, "none", total, self.lines, 0)
        stage = self.kernel.stage("total", [*loops_over(self.lines), ("p", self.lanes)])
        stage.store(total, self.line, stage.load(counts, (*self.line, Affine.var("p"))), agg=Aggregation.SUM)
        return total

    def _per_line(self, name: str, buffer: str, value: Callable[[Stage], Scalar]) -> None:
        stage = self.kernel.stage(name, loops_over(self.lines))
        stage.store(buffer, self.line, value(stage))

    @property
    def _element(self) -> tuple[Affine, ...]:
        return (*self.line, Affine.var("t"))
