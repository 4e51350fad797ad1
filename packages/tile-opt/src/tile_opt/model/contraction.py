"""A contraction in numbers: its loops, what each operand's subscripts reach, and the arithmetic of one point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd, prod

from tile_ir.dots import DOTS
from tile_ir.dtype import DType
from tile_ir.ops import OPS, ROUNDINGS, Aggregation, Signature
from tile_ir.recent import Recent
from tile_ir.stripe.nodes import Load, Op, Store

from tile_opt.kernel.strides import flat_stride
from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.kernel.work import merged_use

Counts = Mapping[str, int]
"""Iterations of each loop; a loop that is not named runs once."""
FREE = frozenset({"ident", "neg", "abs"})
"""What an instruction does to its operand on the way."""
EXTREME = 1.35
"""Slots of a maximum: fewer units find one than add or multiply."""
ROUNDED = 2
"""Instructions that round a value to 16 bits and back."""
WIDE_OP = {"div": 8, "sqrt": 8, "recip": 8}
MATH = 14
LONG = 128
"""Elements of a row that are whole sectors and lines of any device."""
SECTOR = 32
"""Bytes that memory delivers at least."""


@dataclass(frozen=True)
class Operand:
    """An operand: per dimension the loops that subscript it, with the distances they move."""

    use: Use
    dims: tuple[tuple[tuple[str, int], ...], ...]
    """The distances in `gaps`."""
    gaps: tuple[int, ...]
    """Elements from one that is touched to the next, per dimension: more than one where all loops go in steps."""
    strides: tuple[int, ...]
    width: int
    """Bytes of an element in memory."""
    kept: DType
    """The dtype in which a copy is worth keeping: that to which every use of it converts."""
    converts: bool

    @cached_property
    def loops(self) -> frozenset[str]:
        return frozenset(n for d in self.dims for n, _ in d)

    @cached_property
    def aligned(self) -> int:
        """Elements on multiples of which all rows begin, up to `LONG`."""
        return gcd(LONG, *(s for s in self.strides if s != 1))

    def box(self, counts: Counts) -> int:
        """Elements of the box that is touched while loops run so often, without the gaps between them."""
        return prod([self._reach(dim, counts) for dim in self.dims])

    @staticmethod
    def _reach(dim: Sequence[tuple[str, int]], counts: Counts) -> int:
        """Elements of a dimension from the first one that is touched to the last; asked for every tile of every operand."""
        reach = 1
        for name, distance in dim:
            if name in counts:
                reach += distance * (counts[name] - 1)
        return reach

    def overlaps(self, counts: Counts) -> bool:
        """Loops along one dimension meet elements again: those over the parts of another loop do not."""
        return self.box(counts) < prod(counts[n] for n in self.loops)

    @property
    def steps(self) -> tuple[int, ...]:
        """Elements of the buffer from one that is touched to the next, per dimension."""
        return tuple(g * s for g, s in zip(self.gaps, self.strides, strict=True))

    @cached_property
    def delivered(self) -> int:
        """Elements that memory delivers for each that is touched: those in the gaps between neighbours."""
        near = (g for g, s in zip(self.gaps, self.strides, strict=True) if s == 1)
        return min(max(near, default=1), max(1, SECTOR // self.width))

    def distinct(self, counts: Counts) -> int:
        """Different elements that are touched: a box with gaps has fewer than its size."""
        points = [prod([counts[n] for n, _ in dim if n in counts]) for dim in self.dims]
        return prod([min(self._reach(dim, counts), many) for dim, many in zip(self.dims, points, strict=True)])

    def row(self, counts: Counts, stepped: str = "", least: int = SECTOR) -> int:
        """Neighbouring elements in memory that are touched.

        As good as a long row where the next step goes on in it, and one step touches at least `least` bytes.
        """
        found = 1
        for dim, gap, stride in zip(self.dims, self.gaps, self.strides, strict=True):
            if stride == 1 and gap * self.width < SECTOR:
                found = max(found, 1 + gap * sum(c * (counts.get(n, 1) - 1) for n, c in dim))
                if found * self.width >= least and any(n == stepped for n, _ in dim):
                    found = max(found, LONG)
        return found


@dataclass(frozen=True)
class Contraction:
    """The stage of a kernel that aggregates over loops of its own, every operand of which is used several times.

    A single operand is, where windows on it overlap for the most part.
    """

    view: KernelView
    main: Stage
    operands: tuple[Operand, ...]
    out: Use
    """The accumulator."""

    @cached_property
    def as_kept(self) -> Contraction:
        """The same with operands that are as wide in memory as where they are kept."""
        return replace(self, operands=tuple(replace(o, width=o.kept.bytes) for o in self.operands))

    @cached_property
    def shared(self) -> dict[str, int]:
        return {i.name: i.range for i in self.view.loops}

    @cached_property
    def own(self) -> dict[str, int]:
        return {i.name: i.range for i in self.main.loops}

    @property
    def points(self) -> int:
        return prod(self.shared.values()) * prod(self.own.values())

    @cached_property
    def words(self) -> int:
        """32-bit registers of one cell."""
        return max(1, self.dtype.bytes // 4)

    @cached_property
    def dtype(self) -> DType:
        return self.view.type_of(self.out.buffer).dtype

    @cached_property
    def reused(self) -> tuple[str, ...]:
        """Shared loops along which some operand is used again."""
        windows = {n for o in self.operands for d in o.dims if len(d) > 1 for n, _ in d}
        return tuple(n for n in self.shared if n in windows or any(n not in o.loops for o in self.operands))

    def partners(self, loop: str) -> tuple[str, ...]:
        """Reduction loops that slide along the same dimension as `loop`."""
        dims = [d for o in self.operands for d in o.dims if loop in {n for n, _ in d}]
        return tuple(n for n in self.own if any(n in {m for m, _ in d} for d in dims))

    @property
    def overlapping(self) -> bool:
        """Neighbouring windows of some operand share more than half of their elements."""
        steps = ((c, dim) for o in self.operands for dim in o.dims for n, c in dim if n in self.shared)
        return any(2 * c < d * self.own[n] for c, dim in steps for n, d in dim if n in self.own)

    @cached_property
    def results(self) -> list[Use]:
        """What the kernel stores."""
        return [u for u in self.view.uses if u.writes and not self.view.is_local(u.buffer)]

    @cached_property
    def result_width(self) -> int:
        """Bytes that it stores for each iteration of the shared loops."""
        return sum(self.view.type_of(u.buffer).dtype.bytes for u in self.results)

    @cached_property
    def contiguous(self) -> str | None:
        """The shared loop along which every result is stored side by side."""
        outs = self.results
        found = (n for n in reversed(self.shared) if outs and all(flat_stride(self.view, u, n) == 1 for u in outs))
        return next(found, None)

    @cached_property
    def slots(self) -> float:
        """Instructions of one point, its aggregation included."""
        copies = {s.dst for s in self.main.body if isinstance(s, Load)}
        ops = [s for s in self.main.body if isinstance(s, Op)]
        last = next((s.src for s in self.main.body if isinstance(s, Store)), "")
        fused = self.out.agg is Aggregation.SUM and any(
            s.dst == last and (s.name == "mul" or s.name in DOTS) for s in ops
        )
        merged = EXTREME if self.out.agg in (Aggregation.MAX, Aggregation.MIN) else 1
        return max(1.0, sum(_slots(s, copies) for s in ops) + (0 if fused else merged))


def _slots(op: Op, loaded: set[str]) -> float:
    if op.name in FREE or (op.name == "cast" and set(op.args) <= loaded):
        return 0
    rounded = ROUNDED if op.dtype.is_float and op.dtype.bytes == 2 else 0
    if op.name in WIDE_OP:
        return WIDE_OP[op.name] + rounded
    math = OPS[op.name].signature is Signature.MATH and op.name not in ROUNDINGS
    return (MATH if math else 1) + rounded


def contraction(view: KernelView) -> Contraction | None:
    """The first stage of `view` whose operands are all used again and again; None where there is none.

    Its result is one cell per iteration of the shared loops; the kernel's other buffers are such cells, too.
    """
    return _contractions.get(id(view), lambda: (view, _first(view)))[1]


_contractions: Recent[int, tuple[KernelView, Contraction | None]] = Recent(64)
"""By the identity of a view, which its entry keeps alive: each of hundreds of tiles asks."""


def _first(view: KernelView) -> Contraction | None:
    if not view.loops or any(prod(a.type.sizes) != 1 for a in view.allocs):
        return None
    for stage in view.stages:
        found = _contraction(view, stage)
        if found is not None:
            return found
    return None


def _contraction(view: KernelView, stage: Stage) -> Contraction | None:
    out = merged_use(stage)
    if out is None or not stage.loops or not view.is_local(out.buffer) or stage.guard:
        return None
    reads = [u for u in stage.uses if u.reads and not u.writes and not view.is_local(u.buffer)]
    if not reads or any(u.extent for u in reads):
        return None
    if any(i.order.value == "ordered" or i.bind.value != "none" for i in stage.loops):
        return None
    found = Contraction(view, stage, tuple(_operand(view, stage, u) for u in reads), out)
    if len(reads) < 2 and not found.overlapping:
        return None
    counts = {**found.shared, **found.own}
    again = [any(n not in o.loops for n in found.shared) or o.overlaps(counts) for o in found.operands]
    return found if found.results and all(again) else None


def _operand(view: KernelView, stage: Stage, use: Use) -> Operand:
    whole = view.type_of(use.buffer)
    gaps = tuple(gcd(*(c for _, c in f.terms)) or 1 for f in use.forms)
    dims = tuple(tuple((n, abs(c) // g) for n, c in f.terms) for f, g in zip(use.forms, gaps, strict=True))
    kept = _converted(stage, use) or whole.dtype
    return Operand(use, dims, gaps, whole.strides, whole.dtype.bytes, kept, kept is not whole.dtype)


def _converted(stage: Stage, use: Use) -> DType | None:
    """The dtype to which everything that is loaded through `use` is converted at once."""
    loaded = {s.dst for s in stage.body if isinstance(s, Load) and s.src == use.name}
    readers = [s for s in stage.body if not isinstance(s, Load) and loaded & _read(s)]
    dtypes = {s.dtype for s in readers if isinstance(s, Op) and s.name == "cast"}
    casts = all(isinstance(s, Op) and s.name == "cast" for s in readers)
    return dtypes.pop() if readers and casts and len(dtypes) == 1 else None


def _read(statement: object) -> set[str]:
    if isinstance(statement, Op):
        return set(statement.args)
    return {statement.src} if isinstance(statement, Store) else set()
