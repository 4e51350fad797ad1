"""Schedules for processors with vector registers and caches.

The model counts issue slots of the innermost tile: fused multiply-adds and loads per step, against ports
that start two of each per cycle, and the latency of dependent accumulations. Sources: facts "cpu-codegen"
section 6 (register budgets, packing, no masks), measured there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Bind, Direction, Op, Order
from tile_ir.target import HardwareSettings

from tile_opt.kernel.segments import (
    Segment,
    cover,
    cover_vectors,
    decided,
    interior,
    split_edges,
    whole,
    without_overlap,
)
from tile_opt.kernel.strides import flat_stride, scalar_bytes
from tile_opt.kernel.unify import never_repeats
from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.kernel.work import elements, is_heavy, merged_use, nbytes, op_cost, points
from tile_opt.model.candidate import Candidate
from tile_opt.plan.plans import LoopPlan, Role, RowPlan, TilePlan
from tile_opt.plan.turned import TransposePlan, plan_transpose

FMA_PORTS = 2
LOAD_PORTS = 2
FMA_LATENCY = 4
LOAD_SHADOW = 0.1
"""Cycles that a load costs even when ports are free: caches do not always keep up."""
MAX_VECTORS = 4
MAX_STREAM_VECTORS = 16
"""Vectors per step of a reduction that streams its operand."""
MAX_UNROLL = 16
MAX_EDGE_TILES = 6
GROUPS_PER_CORE = 64
PACK_REUSE = 8
MAX_PANEL = 4
SQUARE = 256
"""Iterations along each side of a group's square: its pages and lines stay at hand while both sides walk it."""
MAX_GATHERED = 64
"""Elements that a tile reads one by one: more made the code longer, not faster."""


@dataclass(frozen=True, slots=True)
class CpuModel:
    """Chooses a TilePlan for a kernel view."""

    settings: HardwareSettings
    group_ops: int = 1 << 16
    """Least work of a group, in vector operations' worth of scalar operations."""

    def plan(self, view: KernelView) -> TilePlan:
        """The plan for `view`; a plan without vector loops where nothing can be vectorised."""
        lanes = max(1, self.settings.vector_bytes // scalar_bytes(view))
        main = _main_stage(view)
        vector = self._vector_loop(view, main, lanes)
        turned = plan_transpose(view, 2)
        if vector is None:
            base = TilePlan(tuple(_outer(view, i.name) for i in view.loops), self._rows(view, lanes), reason="rows")
        elif turned is not None and turned.along == vector:
            base = self._squares(view, turned, lanes)
        else:
            base = self._register_tile(view, main, vector, lanes)
        return self._grouped(view, base)

    # --- which loop runs across vector lanes ----------------------------------------------------------

    def _vector_loop(self, view: KernelView, main: Stage, lanes: int) -> str | None:
        """The shared loop that all stages can take across lanes, unless a reduction loop suits the main stage better."""
        if lanes == 1:
            return None
        for loop in reversed(view.loops):
            if loop.range < 2 or loop.order is not Order.FREE:
                continue
            uses = [u for s in view.stages for u in s.uses if not view.is_local(u.buffer)]
            strides = [(u, flat_stride(view, u, loop.name)) for u in uses]
            if any(u.writes and stride != 1 for u, stride in strides):
                continue
            awkward = [u for u, stride in strides if u.reads and stride not in (0, 1)]
            if all(self._packable(view, main, u, loop.name) for u in awkward):
                return loop.name
            if self._row_loop(view, main) is None and loop.range >= lanes:
                return loop.name
        return None

    def _packable(self, view: KernelView, main: Stage, use: Use, vector: str) -> bool:
        """An operand worth copying into panels along the vector loop: it is reused much."""
        if not is_heavy(view, main) or use not in main.uses or not packable_operand(view, use, vector):
            return False
        return points(main, view.ranges) >= PACK_REUSE * elements(view.type_of(use.buffer))

    # --- register tiles -------------------------------------------------------------------------------

    def _register_tile(self, view: KernelView, main: Stage, vector: str, lanes: int) -> TilePlan:
        unroll = self._unroll_loop(view, main, vector)
        best: tuple[float, int, int] = (0.0, 1, 1)
        for rows, vectors, rate in self._register_tiles(view, main, vector, unroll, lanes):
            if rate > best[0] * 1.0001:
                best = (rate, rows, vectors)
        rate, rows, vectors = best
        packed = tuple(
            u.buffer
            for u in main.uses
            if u.reads
            and not u.writes
            and flat_stride(view, u, vector) not in (0, 1)
            and self._packable(view, main, u, vector)
        )
        plans = self._loop_plans(view, vector, unroll if rows > 1 else None, rows, vectors * lanes, lanes)
        return TilePlan(plans, (), packed, rate, "register tile")

    def _register_tiles(
        self, view: KernelView, main: Stage, vector: str, unroll: str | None, lanes: int
    ) -> Iterator[tuple[int, int, float]]:
        """(rows, vectors, predicted share of peak) of every tile worth a look."""
        most = MAX_VECTORS if is_heavy(view, main) or not main.loops else MAX_STREAM_VECTORS
        for vectors in range(1, min(most, -(-view.ranges[vector] // lanes)) + 1):
            for rows in range(1, min(MAX_UNROLL, view.ranges[unroll]) + 1 if unroll else 2):
                yield rows, vectors, self._rate(view, main, vector, unroll, rows, vectors, lanes)

    def candidates(self, view: KernelView) -> tuple[Candidate, ...]:
        """Every register tile that `plan` weighs for `view`; none for kernels that get no register tile."""
        lanes = max(1, self.settings.vector_bytes // scalar_bytes(view))
        main = _main_stage(view)
        vector = self._vector_loop(view, main, lanes)
        if vector is None:
            return ()
        unroll = self._unroll_loop(view, main, vector)
        return tuple(
            Candidate(
                (*(((unroll, rows),) if unroll else ()), (vector, vectors * lanes)),
                rate,
                "" if rate else "over registers",
            )
            for rows, vectors, rate in self._register_tiles(view, main, vector, unroll, lanes)
        )

    def _unroll_loop(self, view: KernelView, main: Stage, vector: str) -> str | None:
        """A second shared loop along which the vector operands of the main stage are reused."""
        if merged_use(main) is None:
            return None
        wide = [u for u in main.uses if u.reads and not u.writes and vector in {n for f in u.forms for n in f.names}]
        for loop in reversed(view.loops):
            if loop.name == vector or loop.range < 2:
                continue
            if any(all(loop.name not in f.names for f in u.forms) for u in wide):
                return loop.name
        return None

    def _rate(
        self, view: KernelView, main: Stage, vector: str, unroll: str | None, rows: int, vectors: int, lanes: int
    ) -> float:
        """Predicted share of peak for a tile of `rows` x `vectors`, remainders included; 0 when registers run out."""
        out = merged_use(main)
        accumulators = rows * vectors if out is not None and main.loops else 0
        reads = [u for u in main.uses if u.reads and not u.writes]
        loads = sum(self._loads(view, u, vector, unroll, rows, vectors) for u in reads)
        held = vectors * sum(vector in {n for f in u.forms for n in f.names} for u in reads) + 1
        if accumulators and accumulators + held > self.settings.registers:
            return 0.0
        steps = max(rows * vectors * max(1, _vector_ops(main)) / FMA_PORTS, loads / LOAD_PORTS)
        if accumulators:
            steps = max(steps, float(FMA_LATENCY))
        steps += LOAD_SHADOW * loads
        inner = rows * vectors * max(1, _vector_ops(main)) / FMA_PORTS / steps
        shape = _filled(view.ranges[vector], vectors * lanes, lanes)
        if unroll:
            shape *= _filled(view.ranges[unroll], rows, 1) * _balance(view.ranges[unroll], rows)
        if not is_heavy(view, main) and (accumulators or _is_recurrence(main)):
            shape *= _contiguity(vectors * self.settings.vector_bytes)
        if _is_recurrence(main):
            shape *= min(1.0, view.ranges[vector] / (vectors * lanes) / self.settings.cores)
        return inner * shape

    def _loads(self, view: KernelView, use: Use, vector: str, unroll: str | None, rows: int, vectors: int) -> int:
        names = {n for f in use.forms for n in f.names}
        return (vectors if vector in names else 1) * (rows if unroll in names else 1)

    def _loop_plans(
        self, view: KernelView, vector: str, unroll: str | None, rows: int, width: int, lanes: int
    ) -> tuple[LoopPlan, ...]:
        """Nest order: plain loops, then vector tiles, then unrolled tiles, so that panels stay in cache."""
        extents = view.ranges
        constraints = tuple(c for s in view.stages for c in s.constraints)
        plans = [_outer(view, i.name) for i in view.loops if i.name not in (vector, unroll)]
        overlap = all(
            u.dir is Direction.OUT for s in view.stages for u in s.uses if u.writes and not view.is_local(u.buffer)
        )
        plans.append(_vector_plan(vector, constraints, extents, width, lanes, overlap))
        if unroll:
            plans.append(_unroll_plan(unroll, constraints, extents, rows))
        return tuple(plans)

    # --- operands that run along another loop ---------------------------------------------------------

    def _squares(self, view: KernelView, turned: TransposePlan, lanes: int) -> TilePlan:
        """Both loops in squares, so that the lines which either side touches are used up before they leave the cache."""
        rows = min(max(1, MAX_GATHERED // lanes), view.ranges[turned.across])
        plans = self._loop_plans(view, turned.along, turned.across, rows, lanes, lanes)
        side = SQUARE
        while True:
            loops = tuple(_chunked(p, max(1, side // p.tile)) if p.role is not Role.OUTER else p for p in plans)
            if side <= lanes or prod(p.groups for p in loops) >= 2 * self.settings.cores:
                return TilePlan(loops, reason="squares")
            side //= 2

    # --- stages vectorised along their own loops ------------------------------------------------------

    def _rows(self, view: KernelView, lanes: int) -> tuple[RowPlan, ...]:
        plans: list[RowPlan] = []
        for k, stage in enumerate(view.stages):
            loop = self._row_loop(view, stage) if lanes > 1 else None
            if loop is not None:
                copies = 4 if merged_use(stage) is not None else 1
                extent = view.ranges[loop]
                while copies > 1 and extent < copies * lanes:
                    copies //= 2
                plans.append(RowPlan(k, loop, lanes, copies))
        return tuple(plans)

    def _row_loop(self, view: KernelView, stage: Stage) -> str | None:
        """A loop of the stage itself that all its accesses take with stride 0 or 1."""
        merged = merged_use(stage)
        for loop in reversed(stage.loops):
            if loop.range < 2 or loop.order is not Order.FREE or loop.bind is not Bind.NONE:
                continue
            if any(loop.name in c.names for c in stage.constraints):
                continue
            strides = [(u, flat_stride(view, u, loop.name)) for u in stage.uses]
            if any(stride not in (0, 1) for _, stride in strides) or all(stride == 0 for _, stride in strides):
                continue
            if any(u.writes and stride == 0 and not _one_cell(u, merged, stage) for u, stride in strides):
                continue
            return loop.name
        return None

    # --- work groups ----------------------------------------------------------------------------------

    def _grouped(self, view: KernelView, plan: TilePlan) -> TilePlan:
        """Cut tile positions into work groups: outermost loops first, until groups are small enough."""
        work = sum(points(s, view.ranges) * max(1, op_cost(s) + len(s.uses)) for s in view.stages)
        wanted = max(1, min(work // self.group_ops, GROUPS_PER_CORE * self.settings.cores))
        loops = list(plan.loops)
        groups = prod(p.groups for p in loops)
        for k in _grid_order(loops):
            if groups >= wanted:
                break
            if loops[k].chunk is not None:
                continue
            loop = _chunked(loops[k], 1)
            chunked = replace(loop, chunk=self._chunk(view, loop, -(-wanted // groups)))
            if chunked.groups > 1:
                loops[k] = chunked
                groups *= chunked.groups
        return replace(plan, loops=tuple(loops))

    def _chunk(self, view: KernelView, loop: LoopPlan, wanted: int) -> int:
        """Tile positions per group, in groups of equal size where the count allows."""
        positions = loop.positions
        if loop.role is not Role.UNROLL:
            return max(1, positions // wanted)
        # Each group walks the whole vector operand again, so groups are as large as the cache and balance allow.
        step = 2 * self.settings.cores
        groups = max(-(-positions // self._panel_rows(view, loop)), min(wanted, 2 * step))
        groups = min(positions, -(-groups // step) * step)
        return -(-positions // groups)

    def _panel_rows(self, view: KernelView, loop: LoopPlan) -> int:
        """Tiles along the unrolled loop whose operand rows fill at most a third of the second-level cache."""
        rows = [
            nbytes(view.type_of(u.buffer)) // view.ranges[loop.name]
            for s in view.stages
            for u in s.uses
            if u.reads and loop.name in {n for f in u.forms for n in f.names} and not view.is_local(u.buffer)
        ]
        per_tile = max(1, max(rows, default=1) * loop.tile)
        return max(1, self.settings.l2_bytes // 3 // per_tile)


def _one_cell(use: Use, merged: Use | None, stage: Stage) -> bool:
    """An aggregation whose cell no loop of the stage moves: each lane can have an accumulator of its own."""
    return use is merged and not {n for f in use.forms for n in f.names} & set(stage.loop_names)


def _main_stage(view: KernelView) -> Stage:
    return max(view.stages, key=lambda s: points(s, view.ranges) * max(1, op_cost(s)))


def _is_recurrence(stage: Stage) -> bool:
    """Steps in order from state to state: what one step writes should be long, and independent chains hide its latency."""
    return any(i.order is Order.ORDERED for i in stage.loops) and any(
        u.reads and u.writes and not u.agg for u in stage.uses
    )


def _vector_ops(stage: Stage) -> int:
    """Arithmetic of one step; a product that feeds the sum is fused with it."""
    ops = sum(isinstance(s, Op) and s.name not in ("ident",) for s in stage.body)
    return max(1, ops)


def _filled(extent: int, tile: int, lanes: int) -> float:
    """Useful share of the iterations that tiles of this size run, remainder tiles at reduced speed."""
    full, rest = divmod(extent, tile)
    padded = -(-rest // lanes) * lanes if extent >= lanes else rest
    cost = full * tile + (padded + (tile - padded) * 0.25 if rest else 0)
    return extent / cost if cost else 1.0


def _contiguity(run: int) -> float:
    """Memory likes long runs: a step that reads `run` bytes in a row loses about as much as 128 more would cost."""
    return run / (run + 128)


def _balance(extent: int, tile: int) -> float:
    """A slight preference for tiles that divide the extent."""
    return 1.0 if extent % tile == 0 else 0.99


def _outer(view: KernelView, name: str) -> LoopPlan:
    return LoopPlan(name, Role.OUTER, tuple((s, False) for s in whole(view.ranges[name])))


def _chunked(loop: LoopPlan, chunk: int) -> LoopPlan:
    """Groups of so many tiles; tiles of different groups do not overlap."""
    return replace(loop, segments=without_overlap(loop.segments, loop.lanes), chunk=chunk)


def _vector_plan(
    name: str, constraints: tuple[Affine, ...], extents: dict[str, int], width: int, lanes: int, overlap: bool
) -> LoopPlan:
    parts: list[tuple[Segment, bool]] = []
    for start, stop, edge in decided(name, constraints, extents, lanes):
        covering = (Segment(start, stop - start, 1),) if edge else cover_vectors(start, stop, width, lanes)
        parts += [(s, edge) for s in covering]
    return LoopPlan(name, Role.VECTOR, tuple(parts) if overlap else without_overlap(tuple(parts), lanes), lanes)


def _unroll_plan(name: str, constraints: tuple[Affine, ...], extents: dict[str, int], rows: int) -> LoopPlan:
    low, high = interior(name, constraints, extents)
    parts = split_edges(cover(0, extents[name], rows), low, high)
    if sum(edge for _, edge in parts) > MAX_EDGE_TILES:
        return LoopPlan(name, Role.OUTER, tuple((s, False) for s in whole(extents[name])))
    return LoopPlan(name, Role.UNROLL, parts)


def _grid_order(loops: list[LoopPlan]) -> list[int]:
    """Plain loops outermost first, then the unrolled one (its operand rows are private), the vector one last."""
    rank = {Role.OUTER: 0, Role.UNROLL: 1, Role.VECTOR: 2}
    return sorted(range(len(loops)), key=lambda k: (rank[loops[k].role], k))


def packable_operand(view: KernelView, use: Use, vector: str) -> bool:
    """The vector loop alone forms one subscript, over the full extent; the others never repeat a position.

    A panel then has a dimension per loop, and is at most `MAX_PANEL` times as large as the operand.
    """
    extents = view.ranges
    seen: set[str] = set()
    sizes = view.type_of(use.buffer).sizes
    for form, size in zip(use.forms, sizes, strict=True):
        if seen & set(form.names) or not never_repeats(form, extents):
            return False
        if vector in form.names and (form != Affine.var(vector) or extents[vector] != size):
            return False
        seen |= set(form.names)
    return vector in seen and 0 < prod(extents[n] for n in seen) <= MAX_PANEL * prod(sizes)
