"""Sorting by counting, digit by digit from the lowest: linear time, for processors that run scalar steps well.

A pass counts how often each value of a digit occurs, adds the counts up, which says where the first element of each
value goes, and puts the elements there in the order they have. A long line is cut into pieces that count and put by
themselves; the sums then run over the pieces of a value before the next value, so that the order is kept.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from math import prod

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.program.nodes import Argsort
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Order

from tile_opt.translate.build import Kernel, Loop, Scalar, Stage, cell_of, loops_over
from tile_opt.translate.codes import code, code_type
from tile_opt.translate.context import Context, fill
from tile_opt.translate.sort import PLACE, Sort

WIDEST = 8
"""Bits of the widest digit: its counts, and the lines that its elements go to, stay in the first cache."""
STEP = 4
"""What an element costs in a pass, where a count costs 1."""
PIECE = 1 << 14
"""Elements from which a piece of a line is worth a work group of its own."""


def counted(context: Context, op: Argsort) -> None:
    """The places of the elements in order, from kernels that keep all cores busy."""
    steps = Steps(context, op)
    put_in_order(steps, codes(steps), "")


def put_in_order(steps: Steps, codes: str, places: str) -> None:
    """The operation's result: the `places` of elements, in the order of their `codes`; of all elements where they are ""."""
    shifts = range(0, steps.dtype.bits, steps.digit)
    counts = steps.buffer("counts", PLACE, (*steps.lines, steps.pieces, 1 << steps.digit))
    keys = [codes, *(steps.buffer("keys", code_type(steps.dtype), steps.cells) for _ in shifts[1:2])]
    others = [steps.buffer("places", PLACE, steps.cells) for _ in shifts[1:3]]
    result = steps.result()
    for number, shift in enumerate(shifts):
        given = (keys[number % 2], others[(number - 1) % 2] if number else places)
        last = number == len(shifts) - 1
        made = ("", result) if last else (keys[(number + 1) % 2], others[number % 2])
        _Pass(steps, shift, counts, *given, *made).build()
    steps.close()
    if result != steps.context.buffers[steps.op.name]:
        _wanted(steps, result)


class Steps:
    """The steps of one sort: stages of one kernel, line by line, or a kernel each where pieces wait for one another.

    Elements of a line stand together in all buffers but the argument and the result. `count` of them are sorted, or all,
    of which there are `extent`.
    """

    def __init__(self, context: Context, op: Argsort, count: int = 0) -> None:
        self.context, self.op, self.sort = context, op, Sort(context, op)
        self.dtype, self.extent, self.lines, self.turned = (
            self.sort.dtype, self.sort.extent, self.sort.lines, self.sort.turned,
        )  # fmt: skip
        cores = context.target.settings.cores
        self.count = count or self.extent
        wanted = -(-2 * cores // prod(self.lines)) if cores > 1 else 1
        self.piece = -(-self.count // max(1, min(wanted, self.count // PIECE)))
        self.pieces = -(-self.count // self.piece)
        self.kernel = self.sort.kernel() if self.pieces == 1 else None

    def close(self) -> None:
        if self.kernel is not None:
            self.context.add(self.kernel)

    def next(self) -> None:
        """Go on in another kernel, for which memory has what this one made."""
        self.close()
        self.kernel = self.sort.kernel() if self.kernel is not None else None

    @contextmanager
    def step(self, alone: bool = False) -> Generator[Kernel]:
        """The kernel to put a stage into, `alone` one of its own."""
        kernel = self.sort.kernel() if alone or self.kernel is None else self.kernel
        yield kernel
        if kernel is not self.kernel:
            self.context.add(kernel)

    def buffer(self, name: str, dtype: DType, shape: tuple[int, ...], *, shared: bool = False) -> str:
        """A temporary of the kernel, or one of main where there are several or it is `shared`."""
        if self.kernel is not None and not shared:
            return self.kernel.alloc(name, dtype, shape)
        return self.context.temporary(f"{self.context.buffers[self.op.name]}_{name}", dtype, shape)

    def result(self) -> str:
        """The operation's own buffer where the lines lie in it as they are sorted, else another."""
        if not self.turned and self.op.type.shape == self.cells:
            return self.context.buffers[self.op.name]
        return self.buffer("sorted", PLACE, self.cells, shared=True)

    @property
    def cells(self) -> tuple[int, ...]:
        return (*self.lines, self.count)

    @property
    def digit(self) -> int:
        """Bits of a digit: few passes over the elements against few counts."""

        def cost(bits: int) -> int:
            return -(-self.dtype.bits // bits) * (STEP * self.piece + (1 << bits))

        return min(range(1, WIDEST + 1), key=cost)


def codes(steps: Steps) -> str:
    """Keys of all elements as numbers."""
    cells = (*steps.lines, steps.extent)
    cell = cell_of(cells)
    made = steps.buffer("codes", code_type(steps.dtype), cells, shared=steps.turned)
    with steps.step(alone=steps.turned) as kernel:
        stage = kernel.stage("codes", loops_over(cells))
        key = stage.load(steps.context.buffers[steps.op.arg], steps.sort.outside(cell))
        stage.store(made, cell, code(key, steps.op.descending))
    return made


def _wanted(steps: Steps, places: str) -> None:
    """The first places that are wanted, where the result has them."""
    axis, shape = steps.op.axis, steps.op.type.shape
    cells = (*steps.lines, shape[axis])
    kernel = steps.sort.kernel()
    stage = kernel.stage("places", loops_over(cells))
    stage.store(
        steps.context.buffers[steps.op.name], steps.sort.outside(cell_of(cells)), stage.load(places, cell_of(cells))
    )
    steps.context.add(kernel)


@frozen
class _Pass:
    """By the digit from bit `shift` on; `places` "" are those before the first pass."""

    of: Steps
    shift: int
    counts: str
    keys: str
    places: str
    to_keys: str
    """"" in the last pass."""
    to_places: str

    @property
    def bits(self) -> int:
        """The last digit may be shorter."""
        return min(self.of.digit, self.of.dtype.bits - self.shift)

    def build(self) -> None:
        with self.of.step() as kernel:
            fill(kernel, "none", self.counts, (*self.of.lines, self.of.pieces, 1 << self.of.digit), 0)
            self._count(kernel)
        with self.of.step() as kernel:
            self._add_up(kernel)
        with self.of.step() as kernel:
            self._put(kernel)

    def _count(self, kernel: Kernel) -> None:
        """How often each value occurs in a piece."""
        stage = self._walk(kernel, "count")
        counter = self._counter(stage.load(self.keys, self._element))
        stage.store(self.counts, counter, stage.load(self.counts, counter) + 1)

    def _add_up(self, kernel: Kernel) -> None:
        """How many elements of a line come before those of a value in a piece: smaller values, or equal in pieces before."""
        lines = self.of.lines
        total = kernel.alloc("total", PLACE, lines)
        fill(kernel, "zero", total, lines, 0)
        loops: list[Loop] = [("v", 1 << self.bits, Order.ORDERED), ("p", self.of.pieces, Order.ORDERED)]
        stage = kernel.stage("sums", [*loops_over(lines), *(loop for loop in loops if loop[1] > 1)])
        cell = (*cell_of(lines), self._piece, Affine.var("v"))
        sum_, count = stage.load(total, cell_of(lines)), stage.load(self.counts, cell)
        stage.store(self.counts, cell, sum_)
        stage.store(total, cell_of(lines), sum_ + count)

    def _put(self, kernel: Kernel) -> None:
        """Each element to the first place of its value that is free."""
        stage = self._walk(kernel, "put")
        key = stage.load(self.keys, self._element)
        place = stage.load(self.places, self._element) if self.places else stage.index(self._element[-1], PLACE)
        counter, line = self._counter(key), cell_of(self.of.lines)
        to = stage.load(self.counts, counter)
        if self.to_keys:
            stage.store(self.to_keys, (*line, to), key, clamp=True)
        stage.store(self.to_places, (*line, to), place, clamp=True)
        stage.store(self.counts, counter, to + 1)

    # --- cells --------------------------------------------------------------------------

    def _walk(self, kernel: Kernel, name: str) -> Stage:
        """All elements of each piece, in order."""
        of = self.of
        pieces = [("p", of.pieces)] if of.pieces > 1 else []
        inside = [Affine((), of.count - 1) - self._element[-1]] if of.count % of.piece else []
        steps = [("t", of.piece, Order.ORDERED)] if of.piece > 1 else []
        return kernel.stage(name, [*loops_over(of.lines), *pieces, *steps], inside)

    @property
    def _piece(self) -> Affine:
        return Affine.var("p") if self.of.pieces > 1 else Affine()

    @property
    def _element(self) -> tuple[Affine, ...]:
        return (*cell_of(self.of.lines), self._piece * self.of.piece + Affine.var("t"))

    def _counter(self, key: Scalar) -> tuple[Affine | Scalar, ...]:
        """The counter of a key's digit."""
        shifted = key >> self.shift if self.shift else key
        return (*cell_of(self.of.lines), self._piece, (shifted & (1 << self.bits) - 1).cast(PLACE))
