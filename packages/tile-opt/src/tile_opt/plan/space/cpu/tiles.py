"""Register tiles: rows of some loops by vectors along another, whatever is multiplied, compared or added there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf, prod

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.ops import Aggregation
from tile_ir.target import Target

from tile_opt.kernel.segments import fills_vectors
from tile_opt.kernel.view import KernelView, Use
from tile_opt.kernel.work import view_is_heavy
from tile_opt.model.operations import NARROW, NARROW_ALONE
from tile_opt.plan.space.cpu import operands as cpu_operands
from tile_opt.plan.space.cpu.facts import SPILLS, Facts, Operand, converted, filled, vector_ops
from tile_opt.plan.space.cpu.operands import TURNED

MAX_VECTORS, MOST_VECTORS = 4, 7
"""Of a tile beside others, and of one that leaves none."""
MAX_UNROLL = 16
MORE, CLOSE = 1.5, 1.25
"""Factors from which numbers of rows are different, and up to which a tile may be slower than the fastest."""
LOAD_SHADOW = 0.1
"""Of a load's slot, what it costs even when ports are free: caches do not always keep up."""
SCATTERED = 1.5
"""Cycles per result that is stored on its own."""
TIGHT, ROOM = 0.03, 2
"""What a tile loses that leaves fewer registers than ROOM."""
DISTURBED = 8
"""Power of the norm of arithmetic and the latency of sums: where both take as long, whatever disturbs one is lost."""
EDGE = 0.05
"""What tiles on an edge lose, beside others: code of their own, unrolled further."""
ENDED, FEW_TRIPS = 6, 16
"""Cycles of a loop's end and of what the loops around it do there, and trips from which on they do not count."""
PAGED = 0.03
"""What rows lose that are written to pages of their own."""
MASKED = 1.5
"""Cycles of a mask that is made in every step."""
LARGE, NEARLY = 240, 1.04
"""Code that takes a fifth of a second to compile, and what of its speed a shorter tile may lose."""
SHUFFLED = 4
"""Instructions for a vector that lies across memory."""
COMBINED, COMPARED = 6, 12
"""Cycles that the lanes of one accumulator take to become one number: as a sum, and otherwise."""
RAGGED = 3
"""Beside these, cycles of a last step that does not fill its lanes."""


@frozen
class Tile:
    """A register tile: `vectors` along one loop, rows of others; what it copies first, and the cycles it takes in all."""

    vector: str
    vectors: int
    rows: tuple[tuple[str, int], ...]
    packed: tuple[Use, ...] = ()
    spread: tuple[Use, ...] = ()
    """Beside these, operands that every lane reads and that are copied, too: their steps follow each other then."""
    cycles: float = 0.0
    copied: float = 0.0
    """Of these, the cycles that the copies take."""
    rate: float = 0.0
    """Share of peak arithmetic inside the tile."""
    code: int = 0
    """Vector instructions of all copies of the tile, roughly."""
    window: tuple[str, ...] = ()
    """The own loop that is straight-line code with the rows."""

    def size(self, loop: str) -> int:
        return dict(self.rows).get(loop, 1)


def tiles(facts: Facts, within: float = inf) -> list[Tile]:
    """Register tiles of the main stage, the fastest first; those that take `within` times as long as it may be missing."""
    found = sorted((t for v in _vector_loops(facts) for t in _Along(facts, v).tiles(within)), key=lambda t: t.cycles)
    if not found or found[0].code <= LARGE:
        return found
    near = [t for t in found if t.cycles <= NEARLY * found[0].cycles]
    short = min(near, key=lambda t: t.code)
    return [short, *(t for t in found if t is not short)]


def different(found: list[Tile], few: int) -> list[Tile]:
    """The fastest `few` of `found`, best first, no two alike if that can be: what else there is may suit the caches better.

    All spread the same operands and unroll the same window: that pays by pages and at ends of loops, which estimates do not see.
    """
    kept = found[:1]
    for tile in found:
        near = tile.cycles <= CLOSE * kept[0].cycles and (tile.spread, tile.window) == (kept[0].spread, kept[0].window)
        if near and len(kept) < few and not any(_alike(tile, other) for other in kept):
            kept.append(tile)
    return [*kept, *(tile for tile in found if tile not in kept)][:few]


def _alike(a: Tile, b: Tile) -> bool:
    """Vectors of one loop, as many, and hardly more rows of one than of the other, whatever they are rows of."""
    rows = sorted(prod(size for _, size in tile.rows) for tile in (a, b))
    return (a.vector, a.vectors) == (b.vector, b.vectors) and rows[1] < MORE * rows[0]


def fastest_cycles(view: KernelView, target: Target) -> float | None:
    """Cycles of one core in the fastest register tile, copies included; None for a kernel that gets none."""
    facts = Facts(view, target, 1)
    if not (facts.heavy or view_is_heavy(view)):
        return None
    tiled = facts.lanes > 1 and facts.merged is not None and facts.main.loops
    found = tiles(facts, NEARLY) if tiled else []
    return found[0].cycles if found else None


@frozen
class _Rows:
    """Unrolled loops, and what they alone decide: every number of vectors is weighed beside each of them."""

    sizes: tuple[tuple[str, int], ...]
    count: int
    share: float
    """What tiles on an edge leave of the speed, and rows that are left over or lie on pages of their own."""
    narrow: tuple[tuple[Operand, float, float], ...]
    """Operands that every lane reads, the cycles that each step waits for one, and those of the first look at it."""
    loads: int
    """Of these, in each step."""
    widening: float
    """Instructions of each step that convert these."""
    storing: float
    """Cycles of what happens once per result."""
    cut: float
    """Share of the loops in tiles that constraints cut: straight-line code, which keeps what it loads for next steps, registers or not."""


@frozen
class _Vectors:
    """So many vectors side by side, and what their number alone decides."""

    count: int
    flow: float
    """Cycles in which the second cache delivers what a step reads."""
    masking: float
    wide: tuple[_Wide, ...]


@frozen
class _Wide:
    """An operand whose elements fill lanes, and the cycles that each step waits for it where it lies and in a panel."""

    operand: Operand
    here: float
    in_panel: float
    copying: float
    """Cycles of copying it to panels; what cannot be is infinite, here as there."""
    reached: float
    """Cycles of the first look at it."""


def _vector_loops(facts: Facts) -> Iterator[str]:
    """Loops whose iterations may fill lanes: shared ones, and the reductions of a product of rows."""
    if any(u.extent for u in facts.main.uses):
        return
    yield from (name for name in facts.shared if facts.is_free(name))
    for name in facts.main.loop_names:
        across = (o for o in facts.operands if o.strides.get(name, 0) not in (0, 1))
        along = any(o.strides.get(name) == 1 for o in facts.operands)
        whole = along and all(cpu_operands.may_turn(facts, o) for o in across)
        open_ = fills_vectors(name, facts.main.constraints, facts.extents, facts.lanes)
        if whole and facts.is_free(name, facts.main) and open_:
            yield name


class _Along:
    """Tiles whose vectors run along one loop."""

    def __init__(self, facts: Facts, vector: str) -> None:
        self.facts = facts
        self.vector = vector
        self.own = vector not in facts.shared
        self.extent = facts.extents[vector]
        self.wide = [o for o in facts.operands if vector in o.strides]
        self.converted = converted(facts.main)
        self.ops = max(1, vector_ops(facts.main) - len(self.converted))
        writes = [u for u in facts.memory_uses() if u.writes]
        self.scattered = [] if self.own else [u for u in writes if facts.stride(u, vector) not in (0, 1)]
        self.narrow = [o for o in facts.operands if vector not in o.strides]
        self.latency = _latency(facts)
        trips = facts.extents[facts.own_order(facts.main)[-1]]
        self.ending = 0.0 if self.own or trips >= FEW_TRIPS else ENDED / trips
        self.turned = [o for o in self.wide if o.strides[vector] != 1] if self.own else []

    def tiles(self, within: float) -> Iterator[Tile]:
        """Those that take less than `within` times as long as the fastest, and perhaps others."""
        fastest = inf
        rows = [self._unrolled(sizes) for sizes in self._rows()]
        for vectors in map(self._vectors, self._counts()):
            for unrolled in rows:
                made = self._weighed(vectors, unrolled, within * fastest)
                if made is not None:
                    fastest = min(fastest, made.cycles)
                    yield made

    def _unrolled(self, sizes: tuple[tuple[str, int], ...]) -> _Rows:
        facts = self.facts
        narrow = tuple([(o, cpu_operands.broadcast(facts, o, sizes), self._met(o, sizes)) for o in self.narrow])
        loads = sum([cpu_operands.repeats(o, sizes) for o in self.narrow])
        widening = self._widening(self.narrow, sizes, NARROW_ALONE)
        cut = max([facts.edge_share(name, size) for name, size in sizes], default=0.0)
        count = prod([size for _, size in sizes])
        return _Rows(sizes, count, _speed_of_rows(facts, sizes), narrow, loads, widening, self._storing(sizes), cut)

    def _widening(
        self, operands: Sequence[Operand], sizes: tuple[tuple[str, int], ...], each: Mapping[DType, float]
    ) -> float:
        """Instructions of each step, and each vector beside another, that widen 16-bit floats and convert others."""
        return sum([cpu_operands.repeats(o, sizes) * self._converting(o, each) for o in operands])

    def _converting(self, operand: Operand, each: Mapping[DType, float]) -> float:
        dtype = self.facts.view.type_of(operand.use.buffer).dtype
        return each.get(dtype, 1.0 if operand.use.name in self.converted else 0.0)

    def _met(self, operand: Operand, sizes: tuple[tuple[str, int], ...]) -> float:
        """Cycles of the first look at an operand that every lane reads."""
        side = cpu_operands.side_by_side(operand, sizes) * operand.bytes
        return cpu_operands.reached(self.facts, operand, side)

    def _vectors(self, count: int) -> _Vectors:
        flow = 0.0 if self.own else sum(cpu_operands.flowing(self.facts, o, count) for o in self.wide)
        wide = tuple([self._placed(o, count) for o in self.wide])
        return _Vectors(count, flow, self._masking(count), wide)

    def _counts(self) -> Iterator[int]:
        """Vectors of a tile: few, or all that there are, so that no row is walked twice."""
        every = max(1, -(-self.extent // self.facts.lanes))
        yield from range(1, 2 if self.own else min(MAX_VECTORS, every) + 1)
        if not self.own and MAX_VECTORS < every <= MOST_VECTORS:
            yield every

    def _rows(self) -> Iterator[tuple[tuple[str, int], ...]]:
        """Unrolled loops: those along which what moves with the vector loop is used again, one or two of them."""
        facts = self.facts
        reused = [n for n in facts.shared if n != self.vector and any(n not in o.strides for o in self.wide)]
        reused = [n for n in reversed(reused) if facts.is_free(n)]
        yield ()
        for k, name in enumerate(reused[:2]):
            sizes = [s for s in range(2, min(MAX_UNROLL, facts.extents[name]) + 1) if not facts.is_ragged(name, s)]
            yield from (((name, size),) for size in sizes)
            for other in reused[k + 1 : 3] if self.own else ():
                more = [s for s in range(2, min(6, facts.extents[other]) + 1) if not facts.is_ragged(other, s)]
                yield from (((name, a), (other, b)) for a in sizes if a <= 6 for b in more)

    def _weighed(self, vectors: _Vectors, rows: _Rows, most: float) -> Tile | None:
        """The tile with its cycles; None when registers run out, or where its arithmetic alone takes more than `most`."""
        facts, ports = self.facts, self.facts.machine.ports
        count = vectors.count * rows.count
        wide = sum([vectors.count * cpu_operands.repeats(o, rows.sizes) for o in self.wide])
        spare = facts.settings.registers - count - min(wide, vectors.count * len(self.wide)) - 1
        if spare < 0:
            return None
        window = () if self.own else facts.window(rows.sizes, vectors.count)
        loads = wide + (self._in_window(rows, window) if window else rows.loads)
        ops = count * self.ops / ports.fma
        widening = rows.widening + vectors.count * self._widening(self.wide, rows.sizes, NARROW)
        busy = max(widening / ports.shuffle, (count * self.ops + widening) / ports.vector) if widening else 0.0
        chained = (ops**DISTURBED + self.latency**DISTURBED) ** (1 / DISTURBED)
        step = max(chained, busy, loads / max(ports.load, 1), vectors.flow)
        step += LOAD_SHADOW * loads / ports.fma
        step *= 1 + (TIGHT if spare < ROOM else 0)
        step *= 1 + (SPILLS - 1) * rows.cut if count + loads > facts.settings.registers else 1
        step += vectors.masking + (0.0 if window else self.ending)
        rate = ops / step * rows.share * self._filled(vectors.count, rows)
        steps = facts.points * self.ops / ports.fma / facts.lanes / ops / (rate / (ops / step))
        if steps * step + rows.storing > most:
            return None
        packed, fetching, copied = self._turning(rows) if self.own else self._packing(vectors, steps, rows)
        spread, repeating = self._spreading(steps, rows, copied if packed else None)
        cycles = steps * step + fetching + repeating + rows.storing
        if cycles == inf:
            return None
        code = self._code(count, rows, bool(packed))
        return Tile(self.vector, vectors.count, rows.sizes, packed, spread, cycles, copied, rate, code, window)

    def _turning(self, rows: _Rows) -> tuple[tuple[Use, ...], float, float]:
        """The operands that each group copies with the sum's steps side by side, and cycles of doing so."""
        copied = sum([cpu_operands.turning(self.facts, o, rows.sizes) for o in self.turned])
        return tuple(o.use for o in self.turned), copied, copied

    def _packing(self, vectors: _Vectors, steps: float, rows: _Rows) -> tuple[tuple[Use, ...], float, float]:
        """The operands that panels are worth it for, cycles to fetch all operands, and those of copying."""
        packed: list[_Wide] = []
        cycles = 0.0
        for wide in vectors.wide:
            again = cpu_operands.refetched(self.facts, wide.operand, vectors.count, rows.sizes)
            in_panel, in_place = wide.in_panel * steps, (wide.here + again) * steps
            if wide.copying + in_panel < in_place:
                packed.append(wide)
            cycles += min(wide.copying + in_panel, in_place)
            cycles += wide.reached
        if not packed:
            return (), cycles, 0
        copied = sum([wide.copying * self._again(wide.operand, packed, rows) for wide in packed])
        uses = tuple([wide.operand.use for wide in packed])
        return uses, cycles + copied - sum([wide.copying for wide in packed]), copied

    def _again(self, operand: Operand, packed: Sequence[_Wide], rows: _Rows) -> int:
        """How often an operand is copied: for each iteration of the loops around that another copy moves with, and it does not."""
        if len(packed) < 2:
            return 1
        facts, inner = self.facts, {self.vector, *(n for n, _ in rows.sizes)}
        just = [wide.operand for wide in packed if not cpu_operands.is_ahead(facts, wide.operand, self.vector)]
        moved = {n for o in just for n in o.strides} & set(facts.shared) - inner
        again = any(o is operand for o in just)
        return prod(facts.extents[n] for n in moved - operand.strides.keys()) if again else 1

    def _spreading(self, steps: float, rows: _Rows, copied: float | None) -> tuple[tuple[Use, ...], float]:
        """The operands to spread over lanes, and the cycles of giving all to them.

        `copied` are the cycles of copying panels; None where there are none, which nothing is spread beside.
        """
        spread: list[Use] = []
        cycles = 0.0
        for operand, waiting, reached in rows.narrow:
            in_place = steps * waiting
            if copied is not None:
                copying = cpu_operands.spreading(self.facts, operand, self.vector, rows.sizes, copied)
                if copying < in_place:
                    spread.append(operand.use)
                in_place = min(copying, in_place)
            cycles += in_place + reached
        return tuple(spread), cycles

    def _filled(self, vectors: int, rows: _Rows) -> float:
        """Useful share of the lanes and rows of tiles: those that are left over wait for their sums at least."""
        sums = self.latency * self.facts.machine.ports.fma / self.ops
        each = sums / vectors / rows.count
        shares = [filled(self.facts.extents[n], size, 1, each * size) for n, size in rows.sizes]
        return prod(shares) * self._share(vectors, sums / rows.count)

    def _in_window(self, rows: _Rows, window: Sequence[str]) -> float:
        """Loads of each step of operands that every lane reads, where the steps of a window are straight-line code."""
        sizes = [(n, self.facts.extents[n]) for n in window]
        together = sum([len(self.facts.places(o.use, [*rows.sizes, *sizes])) for o in self.narrow])
        return together / prod([size for _, size in sizes])

    def _code(self, count: int, rows: _Rows, packs: bool) -> int:
        """Each step and each result, once per kind of edge; results across memory and copies are shuffled."""
        across = self.scattered or (packs and any(o.strides.get(self.vector) not in (0, 1) for o in self.wide))
        whole = self.extent % self.facts.lanes == 0
        return count * (3 if rows.cut else 1) * (SHUFFLED if across else 1) * (1 if whole else 2)

    def _placed(self, operand: Operand, vectors: int) -> _Wide:
        facts = self.facts
        if self.own:
            return _Wide(operand, 0.0, 0.0, inf, 0.0)
        ahead, stride = cpu_operands.is_ahead(facts, operand, self.vector), operand.strides[self.vector]
        may_copy = (facts.heavy or ahead) and len(operand.strides) > 1
        copying = cpu_operands.packing(facts, operand, self.vector, vectors) if may_copy else inf
        here = cpu_operands.in_place(facts, operand, vectors) if stride in (0, 1) else inf
        run = vectors * facts.lanes * operand.bytes
        reached = cpu_operands.reached(facts, operand, run) if stride == 1 and not ahead else 0.0
        return _Wide(operand, here, cpu_operands.panelled(facts, operand, self.vector, vectors), copying, reached)

    def _masking(self, vectors: int) -> float:
        """Cycles of each step for masks that the steps of own loops move, at both ends of the vector loop."""
        if self.own or not self.facts.settings.masks or self.vector not in self.facts.constrained:
            return 0.0
        return MASKED * vectors * min(1.0, 2 / -(-self.extent // self.facts.lanes))

    def _share(self, vectors: int, least: float) -> float:
        """Useful share of the lanes, remainders included, which take as long as `least` vectors."""
        lanes, extent = self.facts.lanes, self.extent
        if self.facts.settings.masks:
            whole = -(-extent // lanes) * lanes
            return (
                extent
                / self.facts.slots(extent, vectors * lanes)
                * filled(whole, vectors * lanes, lanes, least * lanes)
            )
        if self.vector in self.facts.constrained and not self.own:
            slots = extent if extent < 3 * lanes else -(-extent // lanes) + 4
        elif extent < lanes:
            slots = 1
        else:
            return filled(extent, vectors * lanes, lanes, least * lanes)
        return extent / (slots * lanes)

    def _combining(self) -> int:
        """Cycles that each result takes beside the steps that fill lanes."""
        added = self.facts.merged is not None and self.facts.merged.agg is Aggregation.SUM
        return (COMBINED if added else COMPARED) + (RAGGED if self.extent % self.facts.lanes else 0)

    def _storing(self, rows: tuple[tuple[str, int], ...]) -> float:
        """Cycles of what happens once per result."""
        facts = self.facts
        if self.own:
            return facts.cells * self._combining()
        if not self.scattered:
            return 0.0
        across = all(any(facts.stride(u, n) == 1 and size >= 4 for n, size in rows) for u in self.scattered)
        return facts.cells * (TURNED if across else SCATTERED)


def _latency(facts: Facts) -> float:
    """Cycles that a step waits for the one before."""
    ports, merged = facts.machine.ports, facts.merged
    extreme = merged is not None and merged.agg in (Aggregation.MAX, Aggregation.MIN)
    return ports.minmax_latency if extreme else ports.fma_latency


def _speed_of_rows(facts: Facts, rows: tuple[tuple[str, int], ...]) -> float:
    """What edges and pages leave of the speed of rows; whole tiles are a little better."""
    share = 1.0
    for name, size in rows:
        extent = facts.extents[name]
        edges = 2 * size / extent if name in facts.constrained and size < extent else 0.0
        share *= (1.0 if extent % size == 0 else 0.99) * (1 - EDGE * min(1.0, edges))
        share *= 1 - PAGED * _goes_from_page_to_page(facts, name)
    return share


def _goes_from_page_to_page(facts: Facts, row: str) -> bool:
    """Rows of a tile are written to pages of their own."""
    written = [u for u in facts.memory_uses() if u.writes]
    return any(abs(facts.stride(u, row)) * facts.bytes >= facts.pages() for u in written)
