"""Loops of small rounds as one kernel: what they carry stays in registers, or in memory next to them, from round to round.

A round that computes little takes less time than what happens between two launches. Here the scheduled kernels of a round
are blocks of one kernel, in a block that goes round in order: what they exchange, and what is carried, are allocations of
this kernel. Their plans stay as they are, but that nothing is divided among groups, and short loops are straight code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace
from math import prod

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.kernels import KernelList, StepKind
from tile_ir.names import claim
from tile_ir.program.nodes import ConstantTensor, Loop, Param, Program, results_of
from tile_ir.program.nodes import TensorType as ProgramType
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import (
    Bind,
    Block,
    Direction,
    Index,
    Load,
    Location,
    Order,
    Refinement,
    Scope,
    Statement,
    Store,
    TensorType,
)
from tile_ir.stripe.nodes import Program as StripeProgram
from tile_ir.stripe.walk import buffers_read, buffers_written
from tile_ir.target import Target

from tile_opt.blocks.tree import blocks_of, main_of
from tile_opt.loops.divide import has_loops
from tile_opt.loops.round import Round, needed
from tile_opt.translate.build import whole

MOST_SECONDS = 2e-6
"""Of a round, by the careful estimate of its kernels: beside more, launches do not matter, and several cores may help."""
MOST_STATE = 8192
"""Bytes of what rounds carry and exchange: it shall stay next to the registers."""
WORTH_A_LOOK = 16 * MOST_STATE
"""Bytes of all values of a round, many of which a schedule keeps in registers."""
MOST_UNROLLED = 128
"""Statements of a kernel whose loops become straight code, so that what it touches may be in registers."""
MOST_LANES = 16
_ROUND = "round"
_REGISTERS = Location("REG", scope=Scope.THREAD)


def takes_serial(target: Target) -> bool:
    """Whether a kernel of the target may be such a loop: where groups have several items, these would have to wait for one another."""
    return target.codegen == "semtree" and target.settings.threads == 1


def may_be_small(loop: Loop) -> bool:
    """Whether it is worth looking at a loop's schedule."""
    types = [t for op in loop.body.ops if not isinstance(op, ConstantTensor) for _, t in results_of(op)]
    own = [p.type for p in loop.body.inputs[: len(loop.carries) + len(loop.slices)]]
    return not has_loops(loop.body) and sum(t.nbytes for t in (*types, *own)) <= WORTH_A_LOOK


def is_small(kernels: KernelList) -> bool:
    """Whether rounds of these kernels are better one kernel."""
    each = [s for s in kernels.steps if s.kind is StepKind.KERNEL and not (s.once or s.bound)]
    return 0 < sum(kernels.kernels[s.kernel].estimated_seconds for s in each) <= MOST_SECONDS


@frozen
class Serial:
    """A loop as a part of its program that is one kernel."""

    part: Program
    stripe: StripeProgram


def in_place(
    round: Round, program: Program, stripe: StripeProgram, kernel: Block, views: Sequence[Refinement],
    inputs: Sequence[tuple[str, str]], outputs: Sequence[tuple[str, str]],
) -> Serial:  # fmt: skip
    """The kernel in place of its loop; `inputs` and `outputs` are buffers among its `views`, with the values of `program` that they are."""
    types = program.types()
    params = tuple(Param(value, types[value]) for _, value in inputs)
    part = Program(program.name, params, (round.loop,), tuple((v, v) for _, v in outputs))
    user = frozenset(("user",))
    outside = tuple(replace(r, dir=Direction.ALLOC, source="", tags=user) for r in views)
    main = Block("main", refs=tuple(views), body=(kernel,), tags=frozenset(("main",)))
    entry = Block("program", refs=outside, body=(main,), tags=frozenset(("program",)), comment=kernel.comment)
    names = (tuple(name for name, _ in pairs) for pairs in (inputs, outputs))
    return Serial(part, StripeProgram(entry, stripe.constants, *names))


def serial(round: Round, stripe: StripeProgram, program: Program, name: str) -> Serial | None:
    """The rounds of a loop of `program` as a kernel called `name`; `stripe` is the schedule of the round's body.

    None where what rounds carry and exchange is much, or the schedule has views of parts of it.
    """
    work = _Serial(round, stripe)
    sizes = [r.type.nbytes for name, r in work.own.items() if name not in work.fixed]
    if sum(sizes) > MOST_STATE or not work.is_plain():
        return None
    return work.finished(name, program, needed(program))


@frozen
class _Row:
    """A buffer, or the row of it that a round has."""

    name: str
    type: TensorType
    row: tuple[Affine, ...] = ()


@dataclass(slots=True)
class _Serial:
    """The kernel of a loop's rounds, as it is made."""

    round: Round
    stripe: StripeProgram
    own: dict[str, Refinement] = field(init=False)
    """What rounds carry and exchange: the buffers of the body, but for what it captures."""
    fixed: frozenset[str] = field(init=False)
    """What constants and captured values decide: it is computed before the first round."""
    views: list[Refinement] = field(init=False)
    """What the kernel sees from outside."""
    inputs: list[tuple[str, str]] = field(init=False)
    """Buffers that it reads, with the values of the program that they are."""
    outputs: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """The same of what it gives."""
    _names: set[str] = field(default_factory=set[str])

    def __post_init__(self) -> None:
        loop = self.round.loop
        captured = self.stripe.inputs[len(loop.carries) + len(loop.slices) :]
        seen = {*captured, *(c.name for c in self.stripe.constants)}
        entry, main = self.stripe.entry, main_of(self.stripe)
        own = (*entry.refs, *(r for r in main.refs if not r.source))
        self.own = {r.into: _allocated(r.into, r.type) for r in own if r.into not in seen}
        self.views = [view_of(Direction.IN, r.into, r.type) for r in entry.refs if r.into in seen]
        self.inputs = list(zip(captured, self.round.captured, strict=True))
        self._names = {*seen, *self.own}
        self.fixed = _fixed(self._kernels, frozenset(seen))

    @property
    def _kernels(self) -> tuple[Block, ...]:
        return blocks_of(main_of(self.stripe))

    def is_plain(self) -> bool:
        """Kernels see whole buffers, each under its own name."""
        views = [r for r in main_of(self.stripe).refs if r.source]
        same = all(r.into == r.source and all(a == Affine() for a in r.access) for r in views)
        return same and len(self._kernels) == len(main_of(self.stripe).body)

    def finished(self, name: str, program: Program, wanted: Set[str]) -> Serial:
        before, after, each = self._started(program), self._ended(wanted), self._each(program, wanted)
        before += [_undivided(k) for k in self._kernels if self.fixed.issuperset(buffers_written(k))]
        refs = (*self.views, *self.own.values())
        inside = tuple(view_of(Direction.INOUT if r.dir is Direction.ALLOC else r.dir, r.into, r.type) for r in refs)
        rounds = Block("rounds", (Index(_ROUND, self.round.loop.count, order=Order.ORDERED),), refs=inside, body=each)
        comment = f"{self.round.loop.count} rounds of\n" + "\n".join(k.comment for k in self._kernels)
        kernel = Block(name, refs=refs, body=(*before, rounds, *after), tags=frozenset(("kernel",)), comment=comment)
        return in_place(self.round, program, self.stripe, kernel, self.views, self.inputs, self.outputs)

    # --- around the kernel --------------------------------------------------------------------------------

    def _outside(self, direction: Direction, wanted: str, value: str, type: ProgramType) -> _Row:
        """Another buffer that the kernel sees: a value of the program."""
        view = view_of(direction, claim(wanted, self._names), TensorType.row_major(type.dtype, type.shape))
        self.views.append(view)
        (self.inputs if direction is Direction.IN else self.outputs).append((view.into, value))
        return _Row(view.into, view.type)

    def _own(self, name: str) -> _Row:
        return _Row(name, self.own[name].type)

    def _another(self, like: str) -> _Row:
        """Another place for a value of the same type."""
        name = claim(f"{like}_turn", self._names)
        self.own[name] = _allocated(name, self.own[like].type)
        return self._own(name)

    # --- before, after and in each round ------------------------------------------------------------------

    def _started(self, program: Program) -> list[Block]:
        types = program.types()
        pairs = zip(self.stripe.inputs, self.round.loop.carries, strict=False)
        return [
            _copied(self._own(name), self._outside(Direction.IN, f"{name}_start", value, types[value]))
            for name, value in pairs
        ]

    def _ended(self, wanted: Set[str]) -> list[Block]:
        loop = self.round.loop
        ends = zip(self.stripe.inputs, loop.carries, loop.results, loop.types, strict=False)
        return [
            _copied(self._outside(Direction.OUT, f"{name}_end", value, type), self._own(name))
            for name, _, value, type in ends
            if value in wanted
        ]

    def _each(self, program: Program, wanted: Set[str]) -> tuple[Block, ...]:
        """The statements of a round: its rows, its kernels, and what it leaves."""
        rows, stacked = self._sliced(program), self._stacked(wanted)
        kernels = tuple(_undivided(k) for k in self._kernels if not self.fixed.issuperset(buffers_written(k)))
        return (*rows, *kernels, *stacked, *self._turned())

    def _sliced(self, program: Program) -> list[Block]:
        loop, types = self.round.loop, program.types()
        names = self.stripe.inputs[len(loop.carries) :]
        return [
            _copied(self._own(name), self._row(self._outside(Direction.IN, f"{name}_rows", value, types[value])))
            for name, value in zip(names, loop.slices, strict=False)
        ]

    def _stacked(self, wanted: Set[str]) -> list[Block]:
        loop, left = self.round.loop, self._left()
        carried = len(loop.carries)
        stacks = zip(self.round.rows, loop.results[carried:], loop.types[carried:], strict=True)
        return [
            _copied(self._row(self._outside(Direction.OUT, f"{left[row]}_rows", value, type)), self._own(left[row]))
            for row, value, type in stacks
            if value in wanted
        ]

    def _turned(self) -> list[Block]:
        """What is carried on, all at once: what a round only hands on waits until it has been read."""
        left, ins = self._left(), self.stripe.inputs
        handed = {k: self._another(ins[s]) for k, s in enumerate(self.round.sources) if isinstance(s, int) and s != k}
        first = [_copied(place, self._own(ins[int(self.round.sources[k])])) for k, place in handed.items()]
        made = {k: self._own(left[s]) for k, s in enumerate(self.round.sources) if isinstance(s, str)}
        return first + [_copied(self._own(ins[k]), place) for k, place in (handed | made).items()]

    def _left(self) -> dict[str, str]:
        """The buffer of each thing that a round leaves."""
        return dict(zip(self.round.outputs, self.stripe.outputs, strict=True))

    def _row(self, stack: _Row) -> _Row:
        """The row of a round."""
        loop = self.round.loop
        number = Affine(((_ROUND, -1 if loop.reverse else 1),), loop.count - 1 if loop.reverse else 0)
        return replace(stack, row=(number,))


def _fixed(kernels: Sequence[Block], given: frozenset[str]) -> frozenset[str]:
    """The buffers that one kernel alone fills, from `given` and others of these: what several write, one changes for another."""
    writers = Counter(name for kernel in kernels for name in {*buffers_written(kernel)})
    found = given
    for kernel in kernels:
        if found.issuperset(buffers_read(kernel)) and all(writers[name] == 1 for name in buffers_written(kernel)):
            found = found.union(buffers_written(kernel))
    return found


def _allocated(name: str, type: TensorType) -> Refinement:
    return Refinement.allocation(name, type, _REGISTERS)


def view_of(direction: Direction, name: str, type: TensorType) -> Refinement:
    """All of a buffer of main."""
    return Refinement(direction, name, name, whole(type), type)


# --- copies and loops ----------------------------------------------------------------------------------------


def _copied(target: _Row, source: _Row) -> Block:
    """A block that copies all elements, in vectors where those come out even."""
    sizes = source.type.sizes[len(source.row) :]
    names = [f"i{d}" for d in range(len(sizes))]
    indexes = [Index(n, size) for n, size in zip(names, sizes, strict=True)]
    if sizes and (lanes := _lanes(sizes[-1], source.type.dtype)) > 1:
        indexes[-1] = replace(indexes[-1], bind=Bind.VECTOR, lanes=lanes)
    if target.row or source.row:
        indexes.insert(0, Index(_ROUND, 1, value=Affine.var(_ROUND)))
    cells = tuple(Affine.var(n) for n in names)
    refs = (_cell(Direction.OUT, target, cells), _cell(Direction.IN, source, cells))
    body: tuple[Statement, ...] = (Load("$x", source.name), Store(target.name, "$x"))
    return _undivided(Block("copy", tuple(indexes), refs=refs, body=body))


def _cell(direction: Direction, place: _Row, cells: Sequence[Affine]) -> Refinement:
    layout = place.type.layout
    one = TensorType(place.type.dtype, (1,) * len(place.type.sizes), layout)
    return Refinement(direction, place.name, place.name, (*place.row, *cells), one)


def _lanes(size: int, dtype: DType) -> int:
    """Of vectors that a row of so many elements consists of."""
    lanes = min(MOST_LANES, 64 // dtype.bytes)
    while size % lanes:
        lanes //= 2
    return lanes


def _undivided(block: Block) -> Block:
    """The block in one piece: no index is bound to the grid, and short loops are straight code."""
    return _rebound(block, Bind.UNROLL if _statements(block) <= MOST_UNROLLED else Bind.NONE)


def _rebound(block: Block, bind: Bind) -> Block:
    indexes = tuple(replace(i, bind=bind, axis=0) if _is_loop(i) else i for i in block.indexes)
    body = tuple(_rebound(s, bind) if isinstance(s, Block) else s for s in block.body)
    near = bind is Bind.UNROLL
    refs = tuple(replace(r, loc=_REGISTERS) if near and _is_array(r) else r for r in block.refs)
    return replace(block, indexes=indexes, refs=refs, body=body)


def _is_array(ref: Refinement) -> bool:
    """An allocation in ordinary memory."""
    return ref.dir is Direction.ALLOC and ref.loc.unit in ("DRAM", "LOCAL") and ref.versions == 1


def _is_loop(index: Index) -> bool:
    return index.bind in (Bind.GRID, Bind.NONE) and index.value is None


def _statements(block: Block) -> int:
    """How many a block is as straight code."""
    times = prod(i.range // i.lanes for i in block.indexes if i.value is None)
    return times * sum(_statements(s) if isinstance(s, Block) else 1 for s in block.body)
