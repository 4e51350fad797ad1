"""What plans for processors look at: a kernel's loops and accesses, and the machine's numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from math import prod

from tile_ir.frozen import frozen
from tile_ir.machine import Cache, Machine
from tile_ir.stripe.affine import names_in
from tile_ir.stripe.nodes import Bind, Load, Op, Order
from tile_ir.target import Target

from tile_opt.kernel.segments import Segment, cover, interior, short_vector, split_edges
from tile_opt.kernel.strides import flat_stride
from tile_opt.kernel.view import KernelView, Stage, Use, is_parallel
from tile_opt.kernel.work import is_heavy, merged_use, op_cost, points, repeats, reuses_memory
from tile_opt.plan.plan import Edge
from tile_opt.plan.segments import constraints_on

MAX_EDGE_TILES = 6
MAX_CODE = 128
"""Of a window that is unrolled: what a step's straight-line code may be."""
LOADED_AGAIN = 3
"""Elements that may be loaded once more for want of registers, beside what such a window shares: half as many as it saves at most."""
SPILLS = 1.3
"""Times as long that a step of a tile takes whose sums and operands together outnumber the registers."""


@frozen
class Operand:
    """What the main stage reads of one buffer."""

    use: Use
    strides: dict[str, int]
    """Elements between neighbouring iterations, for each loop that moves the access."""
    bytes: int
    """Of an element."""
    elements: int
    """That are read in all."""
    rows: int
    """Steps of the stage's own loops that move it."""
    step: int
    """Bytes between the nearest of these."""


class Facts:
    """One kernel on one machine."""

    def __init__(self, view: KernelView, target: Target, group_ops: int) -> None:
        self.view = view
        self.settings = target.settings
        self.machine: Machine = target.machine
        self.group_ops = group_ops
        self.extents = view.ranges
        self.shared = [i.name for i in view.loops if i.bind is not Bind.GRID]
        self._strides: dict[tuple[int, str], tuple[Use, int]] = {}
        self.bytes = view.scalar_bytes
        self.lanes = max(1, target.settings.vector_bytes // self.bytes)
        self.main = max(view.stages, key=lambda s: prod(i.range for i in s.loops) * max(1, op_cost(s)))
        self.merged = merged_use(self.main)
        self.heavy = is_heavy(view, self.main) or reuses_memory(view, self.main)
        self.reads = [u for u in self.main.uses if u.reads and not u.writes]
        self.operands = tuple(self._operand(u) for u in self.reads)
        self.points = points(self.main, self.extents) * repeats(self.main, view)
        self.cells = prod(i.range for i in view.loops)
        limits = (*view.constraints, *(c for s in view.stages for c in s.constraints))
        self.constrained = names_in(limits)
        self._of_memory = self._memory(view.stages)
        self._caches = {level: _cache(self.machine, level) for level in (1, 2, 3)}
        self.work = sum(
            points(s, self.extents) * repeats(s, view) * max(1, op_cost(s) + len(s.uses)) for s in view.stages
        )

    def _operand(self, use: Use) -> Operand:
        strides = {n: self.stride(use, n) for n in self.names(use)}
        width = self.view.type_of(use.buffer).dtype.bytes
        own = [n for n in self.main.loop_names if n in strides]
        step = min((abs(strides[n]) for n in own if strides[n]), default=1) * width
        size, rows = (prod(self.extents[n] for n in names) for names in (strides, own))
        return Operand(use, strides, width, size, rows, step)

    # --- accesses -------------------------------------------------------------------------------------

    def stride(self, use: Use, loop: str) -> int:
        """Elements between the accesses of consecutive iterations: asked of each of hundreds of tiles, and worked out once."""
        key = id(use), loop
        if key not in self._strides:
            self._strides[key] = use, flat_stride(self.view, use, loop)
        return self._strides[key][1]

    def step(self, use: Use, loop: str) -> int:
        """Bytes from one iteration of the loop to the next."""
        return abs(self.stride(use, loop)) * self.view.type_of(use.buffer).dtype.bytes

    def names(self, use: Use) -> set[str]:
        """Loops that move the access."""
        return names_in(use.forms)

    def places(self, use: Use, loops: Iterable[tuple[str, int]]) -> set[int]:
        """Where an access lies while loops make their first iterations."""
        found = {0}
        for name, count in loops:
            stride = self.stride(use, name)
            found = {at + stride * k for at in found for k in range(count)}
        return found

    def slides(self, use: Use, row: str, own: str) -> bool:
        """Neighbouring iterations of a loop meet the same elements at different steps of a stage's own loop."""
        steps = (row, 2), (own, self.extents[own])
        together = any({row, own} <= set(f.names) for f in use.forms)
        return together and len(self.places(use, steps)) < prod(count for _, count in steps)

    def window(self, rows: Sequence[tuple[str, int]], vectors: int) -> tuple[str, ...]:
        """A short own loop along which the rows of a tile read the same elements: as straight-line code they load each once.

        None where rows share nothing, where the code would be long, or where registers cannot hold what is shared.
        """
        return tuple([n for n in self._free if self._shares(n, rows, vectors)][:1])

    @cached_property
    def _free(self) -> list[str]:
        """The main stage's own loops that may run in any order, the innermost first."""
        return [n for n in reversed(self.own_order(self.main)) if self.is_free(n, self.main)]

    def _shares(self, own: str, rows: Sequence[tuple[str, int]], vectors: int) -> bool:
        sums = vectors * prod(size for _, size in rows)
        shared = [o.use for o in self.operands if any(self.slides(o.use, row, own) for row, _ in rows)]
        steps = [*rows, (own, self.extents[own])]
        held = sum(len(self.places(u, steps)) for u in shared)
        again = min(LOADED_AGAIN, (len(shared) * prod(count for _, count in steps) - held) // 2)
        fits = sums + held + vectors <= self.settings.registers + again
        return bool(shared) and fits and self.extents[own] * sums <= MAX_CODE

    def memory_uses(self, seldom: int = 0) -> list[Use]:
        """Accesses to buffers of main, but those of stages that take at least `seldom` times fewer steps than the main one."""
        if not seldom:
            return self._of_memory
        often = (s for s in self.view.stages if points(s, self.extents) * repeats(s, self.view) > self.points // seldom)
        return self._memory(often)

    def _memory(self, stages: Iterable[Stage]) -> list[Use]:
        return [u for s in stages for u in s.uses if not self.view.is_local(u.buffer)]

    def is_free(self, loop: str, stage: Stage | None = None) -> bool:
        """Iterations of a loop of the kernel (or of a stage) may run side by side."""
        loops = self.view.loops if stage is None else stage.loops
        return any(i.name == loop and i.range > 1 and is_parallel(i) for i in loops)

    def own_order(self, stage: Stage) -> list[str]:
        """Own loops with the longest strides outside, so that the innermost walks memory in small steps."""
        if any(i.bind is not Bind.NONE or i.order is Order.ORDERED for i in stage.loops):
            return [i.name for i in stage.loops]
        reads = [u for u in stage.uses if u.reads and not self.view.is_local(u.buffer)]

        def reach(name: str) -> int:
            return max((abs(self.stride(u, name)) for u in reads), default=0)

        return sorted((i.name for i in stage.loops), key=reach, reverse=True)

    def may_overlap(self) -> bool:
        """Cells may be written twice: nothing that is written is aggregated, or was read before that."""
        return not self.view.overwritten()

    def slots(self, extent: int, tile: int) -> int:
        """Iterations that vectors of a loop in tiles of so many run where the last one is masked, as the ports count them."""
        left = extent % tile
        if left > self.lanes:
            return extent - left + -(-left // self.lanes) * self.lanes
        native = (self.machine.vector.native or self.settings.vector_bytes) // self.bytes
        return extent - left + (max(native, short_vector(left, self.lanes)) if left else 0)

    def overlaps(self, loop: str) -> bool:
        """Vectors along the loop may reach back from its end and compute cells twice."""
        return loop not in self.constrained and self.may_overlap() and self.extents[loop] >= self.lanes

    def tails(self, loop: str, apart: bool) -> tuple[tuple[str, Edge], ...]:
        """What happens where vectors do not divide a loop that fills lanes.

        `apart` where vectors may not reach back, or not cheaply: work groups share the loop, or sums would be formed once more.
        """
        ragged = self.extents[loop] % self.lanes != 0
        if not apart and self.overlaps(loop):
            return ((loop, Edge.OVERLAP),)
        return ((loop, Edge.MASK),) if self.settings.masks and (ragged or loop in self.constrained) else ()

    def is_ragged(self, loop: str, rows: int) -> bool:
        """Constraints cut the loop into too many edge tiles."""
        return len(self._edges(loop, rows)) > MAX_EDGE_TILES

    def edge_share(self, loop: str, rows: int) -> float:
        """Share of a loop's iterations in tiles that constraints cut, which are straight-line code of their own."""
        return sum(s.count * s.size for s in self._edges(loop, rows)) / self.extents[loop]

    def _edges(self, loop: str, rows: int) -> list[Segment]:
        constraints = constraints_on(self.view, loop)
        if not constraints:
            return []
        parts = split_edges(cover(0, self.extents[loop], rows), *interior(loop, constraints, self.extents))
        return [segment for segment, edge in parts if edge]

    # --- the machine ----------------------------------------------------------------------------------

    def cache(self, level: int) -> Cache:
        """The data cache of a level, or the nearest below it that there is."""
        return self._caches[level]

    def line_cost(self, level: int) -> float:
        """Cycles that a line out of order from a cache costs a kernel that hides what it can."""
        cache = self.cache(level)
        return max(cache.line / cache.bandwidth, cache.latency / 10)

    def pages(self) -> int:
        return self.machine.pages.bytes


def _cache(machine: Machine, level: int) -> Cache:
    fitting = (c for c in machine.caches if c.level >= level)
    return next(fitting, machine.caches[-1]) if machine.caches else Cache(level, 1 << (12 + 3 * level))


def vector_ops(stage: Stage) -> int:
    """Arithmetic of one step; a product that feeds the sum is fused with it."""
    return max(1, sum(isinstance(s, Op) and s.name != "ident" for s in stage.body))


def converted(stage: Stage) -> list[str]:
    """The accesses whose elements are loaded to be converted: a tile converts each once for all that it is used in."""
    loads = {s.dst: s.src for s in stage.body if isinstance(s, Load)}
    return [loads[s.args[0]] for s in stage.body if isinstance(s, Op) and s.name == "cast" and s.args[0] in loads]


def filled(extent: int, tile: int, lanes: int, least: float = 0.0) -> float:
    """Useful share of the iterations that tiles of this size run, remainder tiles at reduced speed: they take as long as `least`."""
    full, rest = divmod(extent, tile)
    padded = -(-rest // lanes) * lanes if extent >= lanes else rest
    cost = full * tile + (max(padded + (tile - padded) * 0.25, min(tile, least)) if rest else 0)
    return extent / cost if cost else 1.0
