"""KernelView: a kernel block opened flat, so that a scheduling pass can rewrite it in a few lines.

In Stripe a kernel is ``kernel [shared loops] { stage [own loops] {…}; stage … }``: every iteration of the
shared loops runs the stages in order. A stage names the shared loops it uses as passed-down indexes, and
sees whole buffers, so each of its accesses is one affine form per dimension over shared and own loops.
`open_kernel` reads that normal form (None when a block is not in it), `close_kernel` writes it back.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from operator import is_
from typing import cast

from tile_ir.diagnostics import Span
from tile_ir.dtype import DType
from tile_ir.frozen import frozen, replace
from tile_ir.matrix import ROUND
from tile_ir.names import claim
from tile_ir.ops import Aggregation
from tile_ir.stripe.affine import Affine, Quasi, names_in
from tile_ir.stripe.nodes import (
    Bind,
    Block,
    Const,
    Direction,
    Index,
    Init,
    Instr,
    Load,
    Order,
    Refinement,
    Special,
    Statement,
    Store,
    TensorType,
)
from tile_ir.stripe.walk import with_indexes

from tile_opt.kernel.bodies import facts


@frozen
class Use:
    """A stage's access to a buffer: `forms[d]` is the subscript of dimension d."""

    name: str
    """Local name in the stage body."""
    buffer: str
    forms: tuple[Affine, ...]
    dir: Direction
    agg: Aggregation | None = None
    hint: str = ""
    extent: tuple[int, ...] = ()
    """Sizes of the view that the body subscripts further; () means one element."""

    @property
    def reads(self) -> bool:
        return self.dir in (Direction.IN, Direction.INOUT)

    @property
    def writes(self) -> bool:
        return self.dir in (Direction.OUT, Direction.INOUT)

    def substitute(self, values: dict[str, Affine]) -> Use:
        forms = tuple(f.substitute(values) for f in self.forms)
        return Use(self.name, self.buffer, forms, self.dir, self.agg, self.hint, self.extent)


@frozen
class Stage:
    """One stage: its own loops (outermost first), constraints (each >= 0) and flat body."""

    name: str
    loops: tuple[Index, ...]
    constraints: tuple[Affine, ...]
    uses: tuple[Use, ...]
    body: tuple[Statement, ...]
    guard: tuple[Affine, ...] = ()
    tags: frozenset[str] = frozenset()
    comment: str = ""
    origin: Span | None = None
    instr: Instr | None = None
    """A hardware instruction that does all of it."""

    def use(self, name: str) -> Use:
        return next(u for u in self.uses if u.name == name)

    @property
    def loop_names(self) -> tuple[str, ...]:
        return tuple(loop.name for loop in self.loops)

    def substitute(self, values: dict[str, Affine]) -> Stage:
        """Replace loop names by forms in every access, constraint and `load_index`."""
        values = {name: form for name, form in values.items() if form != Affine.var(name)}
        if not values:
            return self
        moved = not facts(self.body).indexes.isdisjoint(values)
        return replace(
            self,
            constraints=tuple(c.substitute(values) for c in self.constraints),
            guard=tuple(c.substitute(values) for c in self.guard),
            uses=tuple(u.substitute(values) for u in self.uses),
            body=tuple(with_indexes(s, values) for s in self.body) if moved else self.body,
        )

    def renamed(self, names: Mapping[str, str]) -> Stage:
        """The stage with other names for those of its loops that `names` has."""
        if all(old == new for old, new in names.items()):
            return self
        loops = tuple(replace(i, name=names.get(i.name, i.name)) for i in self.loops)
        return replace(self.substitute({old: Affine.var(new) for old, new in names.items()}), loops=loops)

    def limited(self, where: tuple[Affine, ...]) -> Stage:
        """The stage where forms of the loops around it are >= 0, too; an instruction does all of it or nothing."""
        if self.instr is not None:
            return replace(self, guard=(*self.guard, *where))
        return replace(self, constraints=(*self.constraints, *where))

    def names(self) -> set[str]:
        """Every loop name that the stage's forms mention."""
        return (
            names_in((*self.constraints, *self.guard, *(f for u in self.uses for f in u.forms)))
            | facts(self.body).indexes
        )

    def map_uses(self, changed: Callable[[Use], Use]) -> Stage:
        uses = tuple([changed(u) for u in self.uses])
        return self if all(map(is_, uses, self.uses)) else replace(self, uses=uses)

    def redirected(self, buffer: str, to: str, forms: tuple[Affine, ...]) -> Stage:
        """The same at `forms` of another buffer wherever it is at one."""
        return self.map_uses(lambda use: replace(use, buffer=to, forms=forms) if use.buffer == buffer else use)

    def with_buffers(self, names: Mapping[str, str]) -> Stage:
        """The same on other buffers in the place of those named."""
        return self.map_uses(lambda use: replace(use, buffer=names[use.buffer]) if use.buffer in names else use)

    @staticmethod
    def copy(
        name: str,
        loops: tuple[Index, ...],
        source: Use,
        target: Use,
        limits: tuple[Affine, ...] = (),
        value: str = "$x",
    ) -> Stage:
        """``target = source`` wherever the limits hold, or merged into it; `value` is the scalar on the way."""
        return Stage(name, loops, limits, (source, target), (Load(value, source.name), Store(target.name, value)))

    @staticmethod
    def start(name: str, loops: tuple[Index, ...], target: Use, agg: Aggregation, dtype: DType) -> Stage:
        """The aggregation's identity in every cell."""
        body = (Const("$z", agg.identity(dtype), dtype), Store(target.name, "$z"))
        return Stage(name, loops, (), (replace(target, dir=Direction.OUT),), body)


@dataclass(frozen=True, slots=True)
class KernelView:
    """A kernel in normal form. `refs` are whole buffers of main, `allocs` the kernel's own.

    Iterations of the shared loops for which one of `constraints` is negative do not run.
    """

    name: str
    loops: tuple[Index, ...]
    stages: tuple[Stage, ...]
    refs: tuple[Refinement, ...]
    allocs: tuple[Refinement, ...] = ()
    tags: frozenset[str] = frozenset()
    comment: str = ""
    origin: Span | None = None
    constraints: tuple[Affine, ...] = ()
    block: Block | None = None
    """The block itself, where it is in no normal form and the view shows its loops only."""
    fixed: frozenset[str] = field(default=frozenset(), compare=False)
    """Buffers that no call changes: what is copied of them is copied once."""
    again: frozenset[str] = field(default=frozenset(), compare=False)
    """Buffers of which each of many tiles around the kernel reads the same: what is copied of them is copied once a call."""
    copied: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]], compare=False)
    """Buffers that earlier kernels have copied, and the hashes of those copies: what reads one of them need not make it."""
    through: Mapping[str, KernelView] = field(default_factory=dict[str, "KernelView"], compare=False)
    """Buffers that another kernel makes for this one alone, and that kernel: what is copied of them may be computed instead."""
    _types: dict[str, TensorType] = field(init=False, repr=False, compare=False)
    _local: frozenset[str] = field(init=False, repr=False, compare=False)
    _touched: tuple[frozenset[str], frozenset[str]] | None = field(default=None, init=False, repr=False, compare=False)
    """What `reads` and `writes` have found."""
    _ranges: dict[str, int] | None = field(default=None, init=False, repr=False, compare=False)
    _uses: tuple[Use, ...] | None = field(default=None, init=False, repr=False, compare=False)
    _scalar_bytes: int | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Both are asked for more often than anything else here.
        object.__setattr__(self, "_types", {r.into: r.type for r in (*self.allocs, *self.refs)})
        object.__setattr__(self, "_local", frozenset([r.into for r in self.allocs]))

    def type_of(self, buffer: str) -> TensorType:
        return self._types[buffer]

    def is_local(self, buffer: str) -> bool:
        return buffer in self._local

    @property
    def ranges(self) -> dict[str, int]:
        """Range of every loop, shared and own: the same object each time, which nobody may change."""
        if self._ranges is None:
            loops = (*self.loops, *[loop for stage in self.stages for loop in stage.loops])
            object.__setattr__(self, "_ranges", {loop.name: loop.range for loop in loops})
        assert self._ranges is not None
        return self._ranges

    @property
    def scalar_bytes(self) -> int:
        """Width of the widest scalar the kernel works with, in bytes."""
        if self._scalar_bytes is None:
            object.__setattr__(self, "_scalar_bytes", max(map(self._widest, self.stages), default=4))
        assert self._scalar_bytes is not None
        return self._scalar_bytes

    def _widest(self, stage: Stage) -> int:
        """Bytes of a stage's widest scalar; subscripts that stay the same along rows of memory are none of a vector's."""
        body, along = facts(stage.body), names_in(u.forms[-1] for u in stage.uses if u.writes and u.forms)
        same = {u.name for u in stage.uses if u.name in body.places and along.isdisjoint(names_in(u.forms))}
        dtypes = {self.type_of(u.buffer).dtype for u in stage.uses if u.name not in same} | body.dtypes
        computes = body.computes or any(u.agg for u in stage.uses)
        return max((_working_bytes(d) if computes else d.bytes for d in dtypes), default=4)

    @property
    def buffers(self) -> set[str]:
        """Names of what is passed in and of the kernel's own."""
        return {r.into for r in (*self.refs, *self.allocs)}

    @property
    def taken(self) -> set[str]:
        """Names of loops and buffers."""
        return self.buffers.union(self.ranges)

    @property
    def uses(self) -> tuple[Use, ...]:
        """All accesses, stage by stage."""
        if self._uses is None:
            object.__setattr__(self, "_uses", tuple([u for s in self.stages for u in s.uses]))
        assert self._uses is not None
        return self._uses

    def unshared(self) -> KernelView | None:
        """The view with all loops in its one stage; None where it has several stages, or constraints around them."""
        if len(self.stages) != 1 or self.constraints:
            return None
        (stage,) = self.stages
        return replace(self, loops=(), stages=(replace(stage, loops=(*self.loops, *stage.loops)),))

    def users(self, buffer: str) -> list[tuple[Stage, Use]]:
        """The accesses to one buffer, and who has them."""
        return [(s, u) for s in self.stages for u in s.uses if u.buffer == buffer]

    def map_uses(self, changed: Callable[[Use], Use]) -> KernelView:
        return replace(self, stages=tuple(s.map_uses(changed) for s in self.stages))

    def reads(self) -> frozenset[str]:
        """Buffers of main that some stage reads."""
        return self._found()[0]

    def writes(self) -> frozenset[str]:
        """Buffers of main that some stage writes."""
        return self._found()[1]

    def overwritten(self) -> frozenset[str]:
        """Buffers of main that a stage reads and it, or one after it, writes: run twice, it would read what it wrote."""
        both = self.reads() & self.writes()
        seen: set[str] = set()
        found: set[str] = set()
        for stage in self.stages if both else ():
            seen |= {u.buffer for u in stage.uses if u.reads}
            found |= {u.buffer for u in stage.uses if u.writes and u.buffer in seen}
        return both & found

    def _found(self) -> tuple[frozenset[str], frozenset[str]]:
        if self._touched is None:
            reads = frozenset([u.buffer for u in self.uses if u.dir is not Direction.OUT])
            writes = frozenset([u.buffer for u in self.uses if u.dir is not Direction.IN])
            object.__setattr__(self, "_touched", (reads - self._local, writes - self._local))
        assert self._touched is not None
        return self._touched


def _working_bytes(dtype: DType) -> int:
    """Half-precision floats are computed in single precision."""
    return 4 if dtype in (DType.FLOAT16, DType.BFLOAT16) else dtype.bytes


Uses = Mapping[str, Sequence[tuple[int, Use]]]
"""Accesses to each buffer: (stage number, use)."""


def written_uses(stages: Sequence[Stage]) -> Uses:
    """Every use of every buffer that some stage writes."""
    table: dict[str, list[tuple[int, Use]]] = {u.buffer: [] for s in stages for u in s.uses if u.writes}
    for k, stage in enumerate(stages):
        for use in stage.uses:
            if use.buffer in table:
                table[use.buffer].append((k, use))
    return table


def is_parallel(loop: Index) -> bool:
    """Its iterations run in any order, and nothing has bound them."""
    return loop.order is Order.FREE and loop.bind is Bind.NONE


def as_forms(forms: Sequence[Quasi]) -> tuple[Affine, ...]:
    """Subscripts of a stage that hold quotients of loops which no later step rewrites."""
    return cast("tuple[Affine, ...]", tuple(forms))


# --- opening ---------------------------------------------------------------------------------------


_opened: ContextVar[dict[int, tuple[Block, KernelView | None]] | None] = ContextVar("opened", default=None)


@contextmanager
def kept_open() -> Generator[None]:
    """Within it each kernel is opened once: one pass after the other looks at all of them, and most change few."""
    token = _opened.set({})
    try:
        yield
    finally:
        _opened.reset(token)


def open_kernel(block: Block) -> KernelView | None:
    """The view of a kernel in normal form; None when it is scheduled already or uses other constructs."""
    opened = _opened.get()
    if opened is None:
        return _open(block)
    known = opened.get(id(block))
    if known is None:  # the entry keeps its block alive, so that an equal id means the same object
        known = opened[id(block)] = block, _open(block)
    return known[1]


def _open(block: Block) -> KernelView | None:
    if "kernel" not in block.tags or "scheduled" in block.tags or block.guard:
        return None
    constraints = tuple(c for c in block.constraints if isinstance(c, Affine))
    if len(constraints) != len(block.constraints) or any(loop.value is not None for loop in block.indexes):
        return None
    refs = tuple(r for r in block.refs if r.dir is not Direction.ALLOC)
    allocs = tuple(r for r in block.refs if r.dir is Direction.ALLOC)
    if not all(_is_whole(r) for r in refs):
        return None
    stages: list[Stage] = []
    for statement in block.body:
        stage = _open_stage(statement) if isinstance(statement, Block) else None
        if stage is None:
            return None
        stages.append(stage)
    if not stages:
        return None
    apart = _named_apart(block.indexes, stages)
    return KernelView(
        block.name, block.indexes, apart, refs, allocs, block.tags, block.comment, block.origin, constraints
    )


def _named_apart(shared: Sequence[Index], stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """The stages with loops of other names where different ranges had one name: a plan speaks of loops by name."""
    ranges = {i.name: i.range for i in shared}
    taken = {*ranges, *(i.name for s in stages for i in s.loops)}
    made: list[Stage] = []
    for stage in stages:
        clashing = [i.name for i in stage.loops if ranges.setdefault(i.name, i.range) != i.range]
        names = {name: claim(name, taken) for name in clashing}
        made.append(stage.renamed(names))
        ranges |= {i.name: i.range for i in made[-1].loops}
    return tuple(made)


def loops_of(block: Block, name: str) -> KernelView:
    """The loops of any block, for plans that are about nothing else."""
    loops = tuple(i for i in block.indexes if i.value is None)
    return KernelView(name, loops, (), block.refs, comment=block.comment, origin=block.origin, block=block)


def _is_whole(ref: Refinement) -> bool:
    return all(isinstance(a, Affine) and a.is_const and a.const == 0 for a in ref.access) and ref.versions == 1


def _open_stage(block: Block) -> Stage | None:
    if not _is_plain_or_rounds(block.instr) or any(isinstance(s, (Block, Special)) for s in block.body):
        return None
    passed = [i for i in block.indexes if i.value is not None]
    if any(i.value != Affine.var(i.name) for i in passed):
        return None
    uses: list[Use] = []
    for ref in block.refs:
        forms = tuple(a for a in ref.access if isinstance(a, Affine))
        if ref.dir is Direction.ALLOC or len(forms) != len(ref.access) or ref.init is not Init.KEEP:
            return None
        extent = () if all(size == 1 for size in ref.type.sizes) else ref.type.sizes
        uses.append(Use(ref.into, ref.source, forms, ref.dir, ref.agg, ref.hint, extent))
    constraints = tuple(c for c in block.constraints if isinstance(c, Affine))
    guard = tuple(c for c in block.guard if isinstance(c, Affine))
    if len(constraints) != len(block.constraints) or len(guard) != len(block.guard):
        return None
    loops = tuple(i for i in block.indexes if i.value is None)
    return Stage(
        block.name,
        loops,
        constraints,
        tuple(uses),
        block.body,
        guard,
        block.tags,
        block.comment,
        block.origin,
        block.instr,
    )


def _is_plain_or_rounds(instr: Instr | None) -> bool:
    """No instruction, or one that only says how its loads are rounded, however they are done."""
    return instr is None or instr.name == ROUND


# --- closing ---------------------------------------------------------------------------------------


def close_kernel(view: KernelView) -> Block:
    """The Stripe block of a view."""
    buffers = {r.into: r for r in (*view.refs, *view.allocs)}
    shared = tuple(loop.name for loop in view.loops)
    body = tuple(close_stage(stage, buffers, shared) for stage in view.stages)
    return Block(
        view.name,
        indexes=view.loops,
        constraints=view.constraints,
        refs=_directed(view.refs, view.stages) + view.allocs,
        body=body,
        tags=view.tags,
        comment=view.comment,
        origin=view.origin,
    )


def close_stage(stage: Stage, buffers: dict[str, Refinement], outer: tuple[str, ...]) -> Block:
    """The Stripe block of a stage whose parent has the loops `outer`."""
    used = stage.names()
    passed = tuple(Index(n, 1, Affine.var(n)) for n in outer if n in used)
    refs = tuple(_stage_ref(u, buffers[u.buffer]) for u in stage.uses)
    return Block(
        stage.name,
        indexes=passed + stage.loops,
        constraints=stage.constraints,
        guard=stage.guard,
        refs=refs,
        body=stage.body,
        instr=stage.instr,
        tags=stage.tags,
        comment=stage.comment,
        origin=stage.origin,
    )


def _stage_ref(use: Use, whole: Refinement) -> Refinement:
    rank = len(whole.type.sizes)
    type = replace(whole.type, sizes=use.extent + (1,) * (rank - len(use.extent)))
    return Refinement(use.dir, use.name, use.buffer, use.forms, type, agg=use.agg, loc=whole.loc, hint=use.hint)


def _directed(refs: tuple[Refinement, ...], stages: tuple[Stage, ...]) -> tuple[Refinement, ...]:
    """Only the buffers that stages use, with the direction of their uses."""
    uses: dict[str, list[Use]] = {}
    for use in (u for s in stages for u in s.uses):
        uses.setdefault(use.buffer, []).append(use)
    return tuple(replace(r, dir=direction_of(uses[r.into])) for r in refs if r.into in uses)


def direction_of(uses: list[Use]) -> Direction:
    """IN, OUT or INOUT of a buffer with these uses; reads of what an earlier use wrote still count as reads."""
    reads, writes = any(u.reads for u in uses), any(u.writes for u in uses)
    if reads and writes:
        return Direction.INOUT
    return Direction.OUT if writes else Direction.IN
