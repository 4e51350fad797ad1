"""Plans for processors with vector registers and caches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tile_ir.stripe.nodes import Bind, Direction, Op, Order
from tile_ir.target import Target

from tile_opt.kernel.segments import cover, interior, split_edges
from tile_opt.kernel.strides import flat_stride, scalar_bytes
from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.kernel.work import elements, is_heavy, merged_use, nbytes, op_cost, points
from tile_opt.plan.plan import Across, Cover, Edge, Level, Plan, Reduction, Staging
from tile_opt.plan.segments import constraints_on

FMA_PORTS = 2
LOAD_PORTS = 2
FMA_LATENCY = 4
LOAD_SHADOW = 0.1
MAX_VECTORS = 4
MAX_STREAM_VECTORS = 16
MAX_UNROLL = 16
MAX_EDGE_TILES = 6
GROUPS_PER_CORE = 64
PACK_REUSE = 8


@dataclass(frozen=True, slots=True)
class Tile:
    """A register tile: rows of the unrolled loop, vectors along the vector loop."""

    rows: int
    vectors: int
    rate: float


class CpuSpace:
    """The plans of one kernel, best first."""

    def __init__(self, view: KernelView, target: Target, group_ops: int) -> None:
        self.view = view
        self.settings = target.settings
        self.group_ops = group_ops
        self.extents = view.ranges
        self.lanes = max(1, target.settings.vector_bytes // scalar_bytes(view))
        self.main = max(view.stages, key=lambda s: points(s, self.extents) * max(1, op_cost(s)))

    def plans(self) -> Iterator[Plan]:
        vector = self._vector_loop()
        if vector is None:
            yield self._rows()
        else:
            yield self._register_tile(vector)

    # --- which loop runs across vector lanes ----------------------------------------------------------

    def _vector_loop(self) -> str | None:
        """The shared loop that all stages can take across lanes, unless a reduction loop suits the main stage better."""
        view = self.view
        if self.lanes == 1:
            return None
        for loop in reversed(view.loops):
            if loop.range < 2 or loop.order is not Order.FREE:
                continue
            uses = [u for s in view.stages for u in s.uses if not view.is_local(u.buffer)]
            strides = [(u, flat_stride(view, u, loop.name)) for u in uses]
            if any(u.writes and stride != 1 for u, stride in strides):
                continue
            awkward = [u for u, stride in strides if u.reads and stride not in (0, 1)]
            if all(self._packable(u, loop.name) for u in awkward):
                return loop.name
            if self._row_loop(self.main) is None and loop.range >= self.lanes:
                return loop.name
        return None

    def _packable(self, use: Use, vector: str) -> bool:
        """An operand worth copying into panels along the vector loop: it is reused much."""
        if not is_heavy(self.view, self.main) or use not in self.main.uses or use.extent:
            return False
        return points(self.main, self.extents) >= PACK_REUSE * elements(self.view.type_of(use.buffer))

    # --- register tiles ---------------------------------------------------------------------------------

    def _register_tile(self, vector: str) -> Plan:
        unroll = self._unroll_loop(vector)
        tile = max(self._tiles(vector, unroll), key=lambda t: round(t.rate, 4), default=Tile(1, 1, 0.0))
        if tile.rows == 1 or (unroll and self._ragged(unroll, tile.rows)):
            unroll = None
        outer = [i.name for i in self.view.loops if i.name not in (vector, unroll)]
        sizes = {vector: tile.vectors * self.lanes} | ({unroll: tile.rows} if unroll else {})
        packed = [
            u for u in self.main.uses if u.reads and not u.writes and flat_stride(self.view, u, vector) not in (0, 1)
        ]
        packed = [u for u in packed if self._packable(u, vector)]
        grid = self._grid([*outer, *((unroll,) if unroll else ()), vector], sizes, unroll)
        own = self._own_order(self.main)
        levels: list[Level] = []
        if grid:
            levels.append(Level(Bind.GRID, tuple(Cover(n, s) for n, s in grid.items())))
        rest = [n for n in outer if grid.get(n) != 1]
        for n in rest:
            levels.append(Level(Bind.NONE, (Cover(n, 1),)))
        if grid.get(vector) != sizes[vector]:
            levels.append(Level(Bind.NONE, (Cover(vector, sizes[vector]),)))
        at = len(levels) - 1
        if unroll and grid.get(unroll) != sizes[unroll]:
            levels.append(Level(Bind.NONE, (Cover(unroll, sizes[unroll]),)))
        if own:
            levels.append(Level(Bind.NONE, tuple(Cover(n, 1) for n in own)))
        if unroll:
            levels.append(Level(Bind.UNROLL, (Cover(unroll, 1),)))
        levels.append(Level(Bind.VECTOR, (Cover(vector, 1),), lanes=self.lanes))
        stagings = tuple(Staging(u.buffer, at, "L2", (*self._order_of(u, own), vector)) for u in packed)
        edges = ((vector, Edge.OVERLAP),) if self._may_overlap() and vector not in grid else ()
        return Plan(tuple(levels), stagings, (), edges, reason="register tile")

    def _order_of(self, use: Use, own: list[str]) -> list[str]:
        names = {n for f in use.forms for n in f.names}
        return [n for n in own if n in names]

    def _may_overlap(self) -> bool:
        """Cells may be written twice: nothing that is written is read or aggregated."""
        view = self.view
        return all(
            u.dir is Direction.OUT for s in view.stages for u in s.uses if u.writes and not view.is_local(u.buffer)
        )

    def _ragged(self, loop: str, rows: int) -> bool:
        """Constraints cut the loop into too many edge tiles."""
        constraints = constraints_on(self.view, loop)
        if not constraints:
            return False
        parts = split_edges(cover(0, self.extents[loop], rows), *interior(loop, constraints, self.extents))
        return sum(edge for _, edge in parts) > MAX_EDGE_TILES

    def _own_order(self, stage: Stage) -> list[str]:
        """Own loops with the longest strides outside, so that the innermost walks memory in small steps."""
        if any(i.bind is not Bind.NONE or i.order is Order.ORDERED for i in stage.loops):
            return [i.name for i in stage.loops]
        reads = [u for u in stage.uses if u.reads and not self.view.is_local(u.buffer)]

        def reach(name: str) -> int:
            return max((abs(flat_stride(self.view, u, name)) for u in reads), default=0)

        return sorted((i.name for i in stage.loops), key=reach, reverse=True)

    def _unroll_loop(self, vector: str) -> str | None:
        """A second shared loop along which the vector operands of the main stage are reused."""
        if merged_use(self.main) is None:
            return None
        names = [(u, {n for f in u.forms for n in f.names}) for u in self.main.uses if u.reads and not u.writes]
        wide = [found for _, found in names if vector in found]
        for loop in reversed(self.view.loops):
            if loop.name != vector and loop.range >= 2 and any(loop.name not in found for found in wide):
                return loop.name
        return None

    def _tiles(self, vector: str, unroll: str | None) -> Iterator[Tile]:
        """Every register tile worth a look, with the predicted share of peak."""
        heavy = is_heavy(self.view, self.main)
        most = MAX_VECTORS if heavy or not self.main.loops else MAX_STREAM_VECTORS
        for vectors in range(1, min(most, -(-self.extents[vector] // self.lanes)) + 1):
            for rows in range(1, min(MAX_UNROLL, self.extents[unroll]) + 1 if unroll else 2):
                yield Tile(rows, vectors, self._rate(vector, unroll, rows, vectors))

    def _rate(self, vector: str, unroll: str | None, rows: int, vectors: int) -> float:
        """Predicted share of peak of a tile, remainders included; 0 when registers run out."""
        main = self.main
        heavy = is_heavy(self.view, main)
        accumulators = rows * vectors if merged_use(main) is not None and main.loops else 0
        reads = [{n for f in u.forms for n in f.names} for u in main.uses if u.reads and not u.writes]
        loads = sum((vectors if vector in r else 1) * (rows if unroll in r else 1) for r in reads)
        held = vectors * sum(vector in r for r in reads) + 1
        if accumulators and accumulators + held > self.settings.registers:
            return 0.0
        work = rows * vectors * _vector_ops(main) / FMA_PORTS
        steps = max(work, loads / LOAD_PORTS)
        if accumulators:
            steps = max(steps, float(FMA_LATENCY))
        steps += LOAD_SHADOW * loads
        shape = _filled(self.extents[vector], vectors * self.lanes, self.lanes)
        if unroll:
            shape *= _filled(self.extents[unroll], rows, 1) * (1.0 if self.extents[unroll] % rows == 0 else 0.99)
        if not heavy and (accumulators or _is_recurrence(main)):
            run = vectors * self.settings.vector_bytes
            shape *= run / (run + 128)
        if _is_recurrence(main):
            shape *= min(1.0, self.extents[vector] / (vectors * self.lanes) / self.settings.cores)
        return work / steps * shape

    # --- stages vectorised along their own loops ------------------------------------------------------

    def _rows(self) -> Plan:
        grid = self._grid([i.name for i in self.view.loops], {}, None)
        levels: list[Level] = []
        if grid:
            levels.append(Level(Bind.GRID, tuple(Cover(n, s) for n, s in grid.items())))
        levels += [Level(Bind.NONE, (Cover(i.name, 1),)) for i in self.view.loops if grid.get(i.name) != 1]
        tiles: dict[str, int] = {}
        for stage in self.view.stages:
            loop = self._row_loop(stage) if self.lanes > 1 else None
            if loop is not None:
                copies = 4 if merged_use(stage) is not None else 1
                while copies > 1 and self.extents[loop] < copies * self.lanes:
                    copies //= 2
                tiles[loop] = copies * self.lanes
        own: list[str] = []
        for stage in self.view.stages:
            own += self._own_order(stage)
        if own:
            levels.append(Level(Bind.NONE, tuple(Cover(n, 1) for n in own if n not in tiles)))
            levels.append(Level(Bind.NONE, tuple(Cover(n, s) for n, s in tiles.items())))
            levels = [x for x in levels if x.covers]
        if tiles:
            levels.append(Level(Bind.VECTOR, tuple(Cover(n, 1) for n in tiles), lanes=self.lanes))
        kept = tuple(
            Reduction(n, Across.LANES, s)
            for stage in self.view.stages
            for n, s in tiles.items()
            if n in stage.loop_names and (u := merged_use(stage)) is not None and flat_stride(self.view, u, n) == 0
        )
        return Plan(tuple(levels), (), kept, reason="rows")

    def _row_loop(self, stage: Stage) -> str | None:
        """A loop of the stage itself that all its accesses take with stride 0 or 1."""
        merged = merged_use(stage)
        for loop in reversed(stage.loops):
            if loop.range < 2 or loop.order is not Order.FREE or loop.bind is not Bind.NONE:
                continue
            if any(loop.name in c.names for c in stage.constraints):
                continue
            strides = [(u, flat_stride(self.view, u, loop.name)) for u in stage.uses]
            if any(stride not in (0, 1) for _, stride in strides) or all(stride == 0 for _, stride in strides):
                continue
            if any(u.writes and stride == 0 and not _one_cell(u, merged, stage) for u, stride in strides):
                continue
            return loop.name
        return None

    # --- work groups ----------------------------------------------------------------------------------

    def _grid(self, order: list[str], sizes: dict[str, int], unroll: str | None) -> dict[str, int]:
        """Iterations of each loop that a group covers, outermost loops cut first, until groups are small enough."""
        work = sum(points(s, self.extents) * max(1, op_cost(s) + len(s.uses)) for s in self.view.stages)
        wanted = max(1, min(work // self.group_ops, GROUPS_PER_CORE * self.settings.cores))
        groups = 1
        found: dict[str, int] = {}
        for name in order:
            if groups >= wanted:
                break
            tile = sizes.get(name, 1)
            positions = -(-self.extents[name] // tile)
            chunk = max(1, positions // -(-wanted // groups))
            if name == unroll:
                chunk = self._rows_per_group(name, tile, positions, -(-wanted // groups))
            if chunk < positions:
                found[name] = chunk * tile
                groups *= -(-positions // chunk)
        return found

    def _rows_per_group(self, loop: str, tile: int, positions: int, wanted: int) -> int:
        """Each group walks the whole vector operand again, so groups are as large as the cache and balance allow."""
        step = 2 * self.settings.cores
        per_tile = max(1, self._row_bytes(loop) * tile)
        held = max(1, self.settings.l2_bytes // 3 // per_tile)
        groups = max(-(-positions // held), min(wanted, 2 * step))
        groups = min(positions, -(-groups // step) * step)
        return -(-positions // groups)

    def _row_bytes(self, loop: str) -> int:
        """Bytes of the operand rows that one iteration of the loop reads."""
        view = self.view
        return max(
            (
                nbytes(view.type_of(u.buffer)) // self.extents[loop]
                for s in view.stages
                for u in s.uses
                if u.reads and loop in {n for f in u.forms for n in f.names} and not view.is_local(u.buffer)
            ),
            default=1,
        )


def _one_cell(use: Use, merged: Use | None, stage: Stage) -> bool:
    """An aggregation whose cell no loop of the stage moves: each lane can have an accumulator of its own."""
    return use is merged and not {n for f in use.forms for n in f.names} & set(stage.loop_names)


def _is_recurrence(stage: Stage) -> bool:
    """Steps in order from state to state: what one step writes should be long, and independent chains hide its latency."""
    return any(i.order is Order.ORDERED for i in stage.loops) and any(
        u.reads and u.writes and not u.agg for u in stage.uses
    )


def _vector_ops(stage: Stage) -> int:
    """Arithmetic of one step; a product that feeds the sum is fused with it."""
    return max(1, sum(isinstance(s, Op) and s.name not in ("ident",) for s in stage.body))


def _filled(extent: int, tile: int, lanes: int) -> float:
    """Useful share of the iterations that tiles of this size run, remainder tiles at reduced speed."""
    full, rest = divmod(extent, tile)
    padded = -(-rest // lanes) * lanes if extent >= lanes else rest
    cost = full * tile + (padded + (tile - padded) * 0.25 if rest else 0)
    return extent / cost if cost else 1.0
