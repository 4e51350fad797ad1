"""Packing: kernels that copy operands into panels ahead of a contraction, so that a register tile reads contiguous memory.

``stage W in DRAM as [k, o]`` above all levels, where registers take 32 iterations of `o`, makes of ``W[o, k]`` a copy
``[o / 32, k, o % 32]``: a kernel walks a panel from its first byte to its last. Where W is a constant, so is the copy.
A part of a pipeline may leave loops over tiles out: each group of tiles that read the same makes a copy for itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from tile_ir.diagnostics import Diagnostic, TileDeviceError
from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.matrix import ROUND, TF32_BITS
from tile_ir.names import claim
from tile_ir.stripe.affine import Affine, names_in
from tile_ir.stripe.nodes import (
    Bind,
    Block,
    Const,
    Direction,
    Index,
    Instr,
    Load,
    Op,
    Refinement,
    Store,
    TensorType,
)

from tile_opt.kernel.inlining import computed, with_sources
from tile_opt.kernel.strides import limits_inside
from tile_opt.kernel.tiles import PRIVATE
from tile_opt.kernel.unify import is_indirect
from tile_opt.kernel.view import KernelView, Stage, Use, close_kernel
from tile_opt.plan.plan import Plan, Staging
from tile_opt.plan.tree import Around, Ranges, spans


@frozen
class Panels:
    """The copy `name` of an operand: a dimension per loop of `order`, and before them one per loop that is cut in `tiles`."""

    operand: Use
    name: str
    order: tuple[str, ...]
    tiles: Mapping[str, int]
    source: TensorType
    extents: Mapping[str, int]
    dtype: DType
    pad: int = 0
    """Elements behind each row that count for nothing: rows begin and end where wide accesses may."""
    bits: int = 0
    """Mantissa bits that are kept; 0 for all of them."""
    zeros: bool = False
    """The elements behind each row are 0."""
    outside: bool = False
    """What would be outside the operand is 0."""
    around: tuple[Index, ...] = ()
    """Loops over tiles for each iteration of which the copy is made anew."""

    @property
    def type(self) -> TensorType:
        blocks = tuple(-(-self.extents[n] // size) for n, size in self.tiles.items())
        inner = tuple(self.tiles.get(n, self.extents[n]) for n in self.order)
        return TensorType.row_major(self.dtype, (*blocks, *inner[:-1], inner[-1] + self.pad), align=64)

    @property
    def buffer(self) -> Refinement:
        return Refinement.allocation(self.name, self.type, PRIVATE if self.around else None)

    def ref(self, direction: Direction = Direction.IN) -> Refinement:
        """The whole copy, as a kernel sees it."""
        return replace(self.buffer, dir=direction, source=self.name)

    def moved(self, stage: Stage, around: Around) -> Stage:
        """The stage with its subscripts of the loops in `order` cut into those of panels and those inside them."""
        if all(u.buffer != self.name for u in stage.uses):
            return stage
        ranges = {**around.ranges, **spans(stage.loops)}
        uses = (replace(u, forms=self._cut(u.forms, ranges)) if u.buffer == self.name else u for u in stage.uses)
        return replace(stage, uses=tuple(uses))

    def _cut(self, forms: tuple[Affine, ...], ranges: Ranges) -> tuple[Affine, ...]:
        parts = {n: _parts(f, self.tiles.get(n, 1), ranges) for n, f in zip(self.order, forms, strict=True)}
        inner = (parts[n][1] if n in self.tiles else f for n, f in zip(self.order, forms, strict=True))
        return (*(parts[n][0] for n in self.tiles), *inner)

    def kernel(self, view: KernelView) -> Block:
        """The kernel that makes the copy, in normal form."""
        taken = set(self.order)
        outer = {n: Index(claim(f"{n}_panel", taken), -(-self.extents[n] // size)) for n, size in self.tiles.items()}
        inner = tuple(Index(n, self.tiles.get(n, self.extents[n])) for n in self.order)
        if self.zeros:
            inner = (*inner[:-1], replace(inner[-1], range=inner[-1].range + self.pad))
        values = {n: Affine.var(outer[n].name, size) + Affine.var(n) for n, size in self.tiles.items()}
        own = (*outer.values(), *inner)
        loops = (*self.around, *own)
        cut = tuple(values[n] * -1 + (self.extents[n] - 1) for n, size in self.tiles.items() if self.extents[n] % size)
        forms = tuple(f.substitute(values) for f in self.operand.forms)
        inside = limits_inside(forms, self.source.sizes, {i.name: i.range for i in loops})
        uses = (
            Use("src", self.operand.buffer, forms, Direction.IN),
            Use("dst", self.name, tuple(Affine.var(i.name) for i in own), Direction.OUT),
        )
        converted = () if self.dtype is self.source.dtype else (Op("$y", "cast", ("$x",), self.dtype),)
        body = (Load("$x", "src"), *converted, Store("dst", "$y" if converted else "$x"))
        instr = Instr(ROUND, params=(self.bits,)) if self.bits else None
        stage = Stage("panels", (), tuple(dict.fromkeys((*cut, *inside))), uses, body, instr=instr)
        stages = (stage, self._cleared(uses[1])) if self.zeros else (stage,)
        stages = (self._empty(uses[1]), *stages) if self.outside and inside else stages
        source = next(r for r in view.refs if r.into == self.operand.buffer)
        refs = (replace(source, dir=Direction.IN), self.ref(Direction.OUT))
        comment = f"{self.name}: panels of {source.source}, read by {view.name}"
        made = KernelView(f"{view.name}_panels", loops, stages, refs, (), view.tags, comment, view.origin)
        return close_kernel(_computed(made, view.through))

    def _empty(self, target: Use) -> Stage:
        """Zeros everywhere."""
        return Stage("outside", (), (), (target,), (Const("$z", 0, self.dtype), Store("dst", "$z")))

    def _cleared(self, target: Use) -> Stage:
        """Zeros behind each row."""
        last = self.order[-1]
        behind = Affine.var(last) - self.extents[last]
        return Stage("behind", (), (behind,), (target,), (Const("$z", 0, self.dtype), Store("dst", "$z")))


def _computed(copy: KernelView, made: Mapping[str, KernelView]) -> KernelView:
    """The kernel of a copy that computes what it copies, where that is made for it alone."""
    stages = tuple(computed(s, made) for s in copy.stages)
    if stages == copy.stages:
        return copy
    whole = with_sources(copy, made)
    named = {u.buffer for s in stages for u in s.uses}
    return replace(whole, stages=stages, refs=tuple(r for r in whole.refs if r.into in named))


def _parts(form: Affine, size: int, ranges: Ranges) -> tuple[Affine, Affine]:
    """Quotient and remainder of a form by the size of a tile; TileDeviceError where tiles begin inside panels."""
    outer = Affine.of([(n, c // size) for n, c in form.terms if c % size == 0], form.const // size)
    inner = form - outer * size
    low, high = inner.bounds(ranges)
    if low < 0 or high >= size:
        message = f"tiles of {size} iterations cannot be staged before the kernel: some begin inside another"
        raise TileDeviceError(Diagnostic("TILE-E415", message, hint="let its edges be masked or peeled, not overlap"))
    return outer, inner


def read_ahead(
    view: KernelView, staging: Staging, tiles: Mapping[str, int], outside: bool = False
) -> tuple[KernelView, Panels]:
    """`view` reading a copy with a dimension per loop of the staging, not yet in panels; `outside` the operand there are zeros."""
    found = next((u for s in view.stages for u in s.uses if _is_staged(view, s, u, staging)), None)
    if found is None:
        message = f"no access to {staging.operand!r} moves with just the loops {', '.join(staging.order) or 'of none'}"
        raise TileDeviceError(Diagnostic("TILE-E415", message, hint="name all loops that its subscripts mention"))
    if _is_written(view, staging.operand):
        message = f"the kernel itself writes {staging.operand!r}: a copy made before it would be of what was there"
        raise TileDeviceError(Diagnostic("TILE-E415", message, hint="stage it inside a level, or not at all"))
    name = _copy_name(view, staging)
    cut = {n: tiles[n] for n in staging.order if n in tiles}
    source = view.type_of(staging.operand)
    dtype = staging.kept_as(source.dtype)
    around = tuple(i for i in _tile_loops(view) if i.name in names_in(found.forms) - {*staging.order})
    panels = Panels(
        found, name, staging.order, cut, source, view.ranges, dtype, staging.pad, outside=outside, around=around
    )
    whole = TensorType.row_major(dtype, tuple(view.ranges[n] for n in staging.order), align=64)
    ref = replace(panels.ref(), access=(Affine(),) * len(whole.sizes), type=whole)
    forms = tuple(Affine.var(n) for n in staging.order)
    return replace(_redirected(view, found, name, forms), refs=(*view.refs, ref)), panels


def _copy_name(view: KernelView, staging: Staging) -> str:
    return claim(f"{staging.operand}_panels", view.buffers | set(view.ranges))


def _redirected(view: KernelView, found: Use, name: str, forms: tuple[Affine, ...]) -> KernelView:
    """The kernel with accesses like `found` to the copy `name` in place of the operand."""

    def moved(use: Use) -> Use:
        mine = (use.buffer, use.forms, use.writes, use.extent) == (found.buffer, found.forms, False, ())
        return replace(use, buffer=name, forms=forms) if mine else use

    return view.map_uses(moved)


def turned(view: KernelView, staging: Staging, bits: int = 0) -> tuple[KernelView, Panels] | None:
    """`view` reading a copy of a whole operand, whose dimensions follow as the loops that the staging names first walk them.

    None where these are not one for each dimension that moves. Windows slide along such a copy as along the operand.
    Zeros are behind rows that end where the loop along them does.
    """
    uses = [u for s in view.stages for u in s.uses if u.buffer == staging.operand and not is_indirect(s, u)]
    found = next((u for u in uses if not u.writes and not u.extent), None)
    if found is None or _is_written(view, staging.operand):
        return None
    walked = [[n for n in staging.order if n in form.names] for form in found.forms]
    moving = [names[0] for form, names in zip(found.forms, walked, strict=True) if form.terms and len(names) == 1]
    if sorted(moving) != sorted(staging.order) or any(
        f.terms and len(w) != 1 for f, w in zip(found.forms, walked, strict=True)
    ):
        return None
    source, name = view.type_of(staging.operand), _copy_name(view, staging)
    taken = set(staging.order)
    loops = [names[0] if names else claim(f"d{d}", taken) for d, names in enumerate(walked)]
    still = [d for d, names in enumerate(walked) if not names]
    dims = [*still, *(loops.index(n) for n in staging.order)]
    whole = replace(found, forms=tuple(Affine.var(n) for n in loops))
    order, extents = tuple(loops[d] for d in dims), dict(zip(loops, source.sizes, strict=True))
    zeros = bool(staging.pad) and is_alone(view, found, order[-1])
    panels = Panels(whole, name, order, {}, source, extents, source.dtype, staging.pad, bits, zeros)
    forms = tuple(found.forms[d] for d in dims)
    return replace(_redirected(view, found, name, forms), refs=(*view.refs, panels.ref())), panels


def is_alone(view: KernelView, use: Use, loop: str) -> bool:
    """The loop alone walks a dimension of the operand, from its beginning to its end."""
    sizes = view.type_of(use.buffer).sizes
    return any(f == Affine.var(loop) and s == view.ranges[loop] for f, s in zip(use.forms, sizes, strict=True))


def copied_before(view: KernelView, plan: Plan) -> tuple[KernelView, Plan, tuple[Panels, ...]]:
    """The kernel on the copies that its plan has made before it, whole operands; the plan names them, too.

    Copies of float32 for a matrix instruction hold what that would take of them, rounded. Where zeros are behind their
    rows, the instruction goes on to these.
    """
    made: list[Panels] = []
    bits = TF32_BITS if plan.instruction is not None else 0
    depth = dict(plan.instruction.loops).get("k") if plan.instruction is not None else None
    for staging in (s for s in plan.stagings if s.level < 0):
        kept = bits if view.type_of(staging.operand).dtype is DType.FLOAT32 else 0
        found = turned(view, staging, kept) if plan.instruction is not None else None
        view, panels = found or read_ahead(view, staging, {})
        view = with_panels(view, (panels,))
        made.append(panels)
    padded = {p.name: p.pad for p in made if p.zeros and p.order[-1] == depth}
    if depth is not None and padded:
        view = _lengthened(view, depth, max(padded.values()), padded.keys())
    names = {p.operand.buffer: p.name for p in made}
    rest = (replace(s, operand=names.get(s.operand, s.operand)) for s in plan.stagings if s.level >= 0)
    return view, replace(plan, stagings=tuple(rest)), tuple(made)


def _lengthened(view: KernelView, loop: str, more: int, padded: Collection[str]) -> KernelView:
    """The kernel with `more` iterations of a loop of its own, in which the buffers `padded` have zeros.

    Others that the loop walks end where they ended: there the stage does nothing.
    """

    def longer(stage: Stage) -> Stage:
        if loop not in stage.loop_names:
            return stage
        loops = tuple(replace(i, range=i.range + more) if i.name == loop else i for i in stage.loops)
        walking = (u for u in stage.uses if u.reads and any(loop in f.names for f in u.forms))
        ends = (Affine.var(loop, -1) + (view.ranges[loop] - 1),) if any(u.buffer not in padded for u in walking) else ()
        return replace(stage, loops=loops, constraints=(*stage.constraints, *ends))

    return replace(view, stages=tuple(map(longer, view.stages)))


def _is_written(view: KernelView, buffer: str) -> bool:
    """Whether the kernel writes the buffer, under whatever name."""
    sources = {r.into: r.source for r in view.refs}
    written = {sources.get(u.buffer, u.buffer) for u in view.uses if u.writes}
    return sources.get(buffer, buffer) in written


def _is_staged(view: KernelView, stage: Stage, use: Use, staging: Staging) -> bool:
    """The copy has what moves the operand, but loops over tiles may be around it."""
    plain = use.buffer == staging.operand and not use.writes and not (use.extent or is_indirect(stage, use))
    around = {i.name for i in _tile_loops(view)} - {*staging.order}
    return plain and names_in(use.forms) - around == {*staging.order}


def _tile_loops(view: KernelView) -> tuple[Index, ...]:
    """Loops of the pipeline that the kernel is a part of."""
    return tuple(i for i in view.loops if i.bind is Bind.GRID)


def with_panels(view: KernelView, panels: Iterable[Panels]) -> KernelView:
    """`view` with its copies in panels."""
    made = {p.name: p.ref() for p in panels}
    return replace(view, refs=tuple(made.get(r.into, r) for r in view.refs))
