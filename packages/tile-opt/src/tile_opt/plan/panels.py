"""Packing: copying an operand into panels, so that the inner loop reads it with stride one.

A panel holds what one vector tile reads: ``[other shared loops][tile][own loops][lane]``. A kernel per
tile segment makes the copy; it is scheduled like any other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tile_ir.names import claim
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Block, Direction, Index, Load, Refinement, Store, TensorType

from tile_opt.kernel.segments import Segment
from tile_opt.kernel.strides import flat_stride, limits_inside
from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.plan.nest import Panel, build_nest
from tile_opt.plan.plans import LoopPlan, Role, TilePlan


@dataclass(frozen=True, slots=True)
class Packing:
    """Copy kernels, the main kernel reading the panels, and the panel buffers of main."""

    copies: tuple[KernelView, ...]
    nest: Block
    buffers: tuple[Refinement, ...]


def pack_operands(view: KernelView, plan: TilePlan) -> Packing:
    """Pack the operands that the plan names along its vector loop."""
    vector = plan.loop(Role.VECTOR)
    assert vector is not None
    panels = {b: _panel(view, b, vector) for b in plan.packed}
    buffers = tuple(_buffer(view, b, p, vector) for b, p in panels.items())
    copies = tuple(c for b, p in panels.items() for c in _copies(view, b, p, vector, buffers))
    refs = tuple(replace(r, dir=Direction.IN, source=r.into) for r in buffers)
    nest = build_nest(replace(view, refs=view.refs + refs), plan, panels)
    return Packing(copies, nest, buffers)


def _operand(view: KernelView, buffer: str, vector: str) -> tuple[Stage, Use]:
    """The first use of `buffer` that lanes along `vector` would not read side by side."""
    uses = ((s, u) for s in view.stages for u in s.uses if u.buffer == buffer)
    return next((s, u) for s, u in uses if flat_stride(view, u, vector) not in (0, 1))


def _panel(view: KernelView, buffer: str, vector: LoopPlan) -> Panel:
    stage, use = _operand(view, buffer, vector.name)
    names = {n for f in use.forms for n in f.names}
    outer = tuple(i.name for i in view.loops if i.name in names and i.name != vector.name)
    own = [i.name for i in stage.loops if i.name in names]
    own.sort(key=lambda n: -_reach(view, stage, n))
    taken = {r.into for r in (*view.refs, *view.allocs)}
    return Panel(claim(f"{buffer}_panels", taken), use.forms, vector.name, outer, tuple(own))


def _reach(view: KernelView, stage: Stage, name: str) -> int:
    return max(abs(flat_stride(view, u, name)) for u in stage.uses if u.reads and not view.is_local(u.buffer))


def _buffer(view: KernelView, buffer: str, panel: Panel, vector: LoopPlan) -> Refinement:
    extents = view.ranges
    sizes = (
        *(extents[n] for n in panel.outer),
        vector.positions,
        *(extents[n] for n in panel.own),
        vector.tile,
    )
    type = TensorType.row_major(view.type_of(buffer).dtype, sizes, align=64)
    return Refinement(Direction.ALLOC, panel.buffer, "", (Affine(),) * len(sizes), type, tags=frozenset({"tmp"}))


def _copies(
    view: KernelView, buffer: str, panel: Panel, vector: LoopPlan, buffers: tuple[Refinement, ...]
) -> list[KernelView]:
    source = next(r for r in view.refs if r.into == buffer)
    target = replace(next(b for b in buffers if b.into == panel.buffer), dir=Direction.OUT, source=panel.buffer)
    copies: list[KernelView] = []
    before = 0
    for segment, _ in vector.segments:
        stage, loops = _copy_stage(view, buffer, panel, segment, before)
        name = f"{view.name}_pack_{buffer}" + (f"_{len(copies)}" if copies else "")
        copies.append(
            KernelView(
                name,
                loops,
                (stage,),
                (replace(source, dir=Direction.IN), target),
                tags=frozenset({"kernel", "pack"}),
                comment=f"pack {buffer} into panels",
            )
        )
        before += segment.count
    return copies


def _copy_stage(
    view: KernelView, buffer: str, panel: Panel, segment: Segment, before: int
) -> tuple[Stage, tuple[Index, ...]]:
    extents = view.ranges
    _, use = _operand(view, buffer, panel.loop)
    tile, lane = f"{panel.loop}_t", f"{panel.loop}_i"
    others = [*panel.outer, *panel.own]
    loops = [Index(n, extents[n]) for n in panel.outer]
    loops += [Index(tile, segment.count)] if segment.count > 1 else []
    loops += [Index(n, extents[n]) for n in panel.own]
    loops += [Index(lane, segment.size)] if segment.size > 1 else []
    names = {i.name for i in loops}
    position = Affine.var(tile) if tile in names else Affine()
    inner = Affine.var(lane) if lane in names else Affine()
    reads = replace(
        use.substitute({panel.loop: position * segment.size + inner + segment.start}), name="src", dir=Direction.IN
    )
    subscripts = panel.forms(position + before, inner)
    assert set(others) <= names
    # Not every combination of loops is an element of the operand.
    inside = limits_inside(reads.forms, view.type_of(buffer).sizes, {i.name: i.range for i in loops})
    stage = Stage(
        "copy", (), inside, (reads, Use("dst", panel.buffer, subscripts, Direction.OUT)),
        (Load("$x", "src"), Store("dst", "$x")),
    )  # fmt: skip
    return stage, tuple(loops)
