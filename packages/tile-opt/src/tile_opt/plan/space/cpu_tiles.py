"""Register tiles: rows of some loops by vectors along another, whatever is multiplied, compared or added there."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from math import prod

from tile_ir.frozen import frozen
from tile_ir.stripe.nodes import Bind
from tile_ir.target import Target

from tile_opt.kernel.segments import fills_vectors
from tile_opt.kernel.view import KernelView, Use
from tile_opt.kernel.work import nbytes, view_is_heavy
from tile_opt.plan.plan import Across, Cover, Level, Plan, Reduction, Staging
from tile_opt.plan.space import cpu_operands
from tile_opt.plan.space.cpu_facts import SPILLS, Facts, Operand, filled, pieces, vector_ops
from tile_opt.plan.space.cpu_groups import ROUNDS, balanced, cut, cut_rows, wanted_groups
from tile_opt.plan.space.cpu_operands import SHALLOW, TURNED

MAX_VECTORS = 4
MAX_UNROLL = 16
LOAD_SHADOW = 0.1
"""Of a load's slot, what it costs even when ports are free: caches do not always keep up."""
SCATTERED = 1.5
"""Cycles per result that is stored on its own."""
TIGHT, ROOM = 0.03, 2
"""What a tile loses that leaves fewer registers than ROOM."""
EDGE = 0.15
"""What tiles on an edge lose: code of their own, unrolled further."""
AGAIN = 0.02
"""Share of a kernel's time that groups may spend on copies that others make, too, for the sake of balance."""
MASKED = 1.5
"""Cycles of a mask that is made in every step."""
LARGE, NEARLY = 240, 1.04
"""Code that takes a fifth of a second to compile, and what of its speed a shorter tile may lose."""
SHUFFLED = 4
"""Instructions for a vector that lies across memory."""
COMBINED = 10
"""Cycles that the lanes of one accumulator take to become one number."""


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

    def size(self, loop: str) -> int:
        return dict(self.rows).get(loop, 1)


def tiles(facts: Facts) -> list[Tile]:
    """Register tiles of the main stage, the fastest first."""
    found = sorted((t for v in _vector_loops(facts) for t in _Along(facts, v).tiles()), key=lambda t: t.cycles)
    if not found or found[0].code <= LARGE:
        return found
    near = [t for t in found if t.cycles <= NEARLY * found[0].cycles]
    short = min(near, key=lambda t: t.code)
    return [short, *(t for t in found if t is not short)]


def fastest_cycles(view: KernelView, target: Target) -> float | None:
    """Cycles of one core in the fastest register tile, copies included; None for a kernel that gets none."""
    if not view_is_heavy(view):
        return None
    facts = Facts(view, target, 1)
    found = tiles(facts) if facts.lanes > 1 and facts.merged is not None and facts.main.loops else []
    return found[0].cycles if found else None


def _vector_loops(facts: Facts) -> Iterator[str]:
    """Loops whose iterations may fill lanes: shared ones, and the reductions of a product of rows."""
    if any(u.extent for u in facts.main.uses):
        return
    yield from (name for name in facts.shared if facts.is_free(name))
    for name in facts.main.loop_names:
        strides = [o.strides.get(name, 0) for o in facts.operands]
        whole = all(s in (0, 1) for s in strides) and any(strides)
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
        self.ops = vector_ops(facts.main)
        writes = [u for u in facts.memory_uses() if u.writes]
        self.scattered = [] if self.own else [u for u in writes if facts.stride(u, vector) not in (0, 1)]

    def tiles(self) -> Iterator[Tile]:
        most = 1 if self.own else min(MAX_VECTORS, max(1, -(-self.extent // self.facts.lanes)))
        rows = list(self._rows())
        for vectors in range(1, most + 1):
            placed = [(o, *self._placed(o, vectors)) for o in self.wide]
            share = self._share(vectors)
            for unrolled in rows:
                made = self._weighed(vectors, unrolled, placed, share)
                if made is not None:
                    yield made

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

    def _weighed(
        self,
        vectors: int,
        rows: tuple[tuple[str, int], ...],
        placed: list[tuple[Operand, float, float, float]],
        share: float,
    ) -> Tile | None:
        """The tile with its cycles; None when registers run out."""
        facts, ports = self.facts, self.facts.machine.ports
        count = vectors * prod(size for _, size in rows)
        wide = sum(vectors * cpu_operands.repeats(o, rows) for o in self.wide)
        spare = facts.settings.registers - count - min(wide, vectors * len(self.wide)) - 1
        if spare < 0:
            return None
        loads = wide + sum(cpu_operands.repeats(o, rows) for o in facts.operands if self.vector not in o.strides)
        ops = count * self.ops / ports.fma
        flow = 0.0 if self.own else sum(cpu_operands.flowing(facts, o, vectors) for o in self.wide)
        step = max(ops, loads / max(ports.load, 1), ports.fma_latency, flow) + LOAD_SHADOW * loads / ports.fma
        step *= 1 + (TIGHT if spare < ROOM else 0)
        step *= SPILLS if self._spills(count + loads, rows) else 1
        step += self._masking(vectors)
        rate = ops / step * share * _share_of_rows(facts, rows)
        steps = facts.points * self.ops / ports.fma / facts.lanes / ops / (rate / (ops / step))
        packed, fetching, copied = self._packing(placed, steps, vectors, rows)
        spread, repeating = self._spreading(steps, rows, copied if packed else None)
        cycles = steps * step + fetching + repeating + self._storing(rows)
        if cycles == float("inf"):
            return None
        code = self._code(count, rows, bool(packed))
        return Tile(self.vector, vectors, rows, packed, spread, cycles, copied, rate, code)

    def _packing(
        self,
        placed: list[tuple[Operand, float, float, float]],
        steps: float,
        vectors: int,
        rows: tuple[tuple[str, int], ...],
    ) -> tuple[tuple[Use, ...], float, float]:
        """The operands that panels are worth it for, cycles to fetch all operands, and those of copying."""
        packed: dict[Use, float] = {}
        cycles = 0.0
        for operand, near, in_panel, copying in placed:
            in_place = near + cpu_operands.refetched(self.facts, operand, vectors, rows)
            if copying + in_panel * steps < in_place * steps:
                packed[operand.use] = copying
            cycles += min(copying + in_panel * steps, in_place * steps)
            if operand.strides[self.vector] == 1 and not cpu_operands.is_ahead(self.facts, operand, self.vector):
                cycles += cpu_operands.reached(self.facts, operand, vectors * self.facts.lanes * operand.bytes)
        copied = sum(copying * self._again(use, packed, rows) for use, copying in packed.items())
        return tuple(packed), cycles + copied - sum(packed.values()), copied

    def _again(self, use: Use, packed: Collection[Use], rows: tuple[tuple[str, int], ...]) -> int:
        """How often an operand is copied: for each iteration of the loops around that another copy moves with, and it does not."""
        facts, inner = self.facts, {self.vector, *(n for n, _ in rows)}
        just = {o.use for o in self.wide if o.use in packed and not cpu_operands.is_ahead(facts, o, self.vector)}
        moved = {n for u in just for n in facts.names(u)} & set(facts.shared) - inner
        return prod(facts.extents[n] for n in moved - facts.names(use)) if use in just else 1

    def _spreading(
        self, steps: float, rows: tuple[tuple[str, int], ...], copied: float | None
    ) -> tuple[tuple[Use, ...], float]:
        """The operands to spread over lanes, and the cycles of giving all to them.

        `copied` are the cycles of copying panels; None where there are none, which nothing is spread beside.
        """
        spread: list[Use] = []
        cycles = 0.0
        for operand in (o for o in self.facts.operands if o not in self.wide):
            in_place = steps * cpu_operands.broadcast(self.facts, operand, rows)
            if copied is not None:
                copying = cpu_operands.spreading(self.facts, operand, self.vector, rows, copied)
                if copying < in_place:
                    spread.append(operand.use)
                in_place = min(copying, in_place)
            side = cpu_operands.side_by_side(operand, rows) * operand.bytes
            cycles += in_place + cpu_operands.reached(self.facts, operand, side)
        return tuple(spread), cycles

    def _spills(self, held: float, rows: tuple[tuple[str, int], ...]) -> bool:
        """At edges steps are straight-line code, which keeps what it loads for the next ones, registers or not."""
        return held > self.facts.settings.registers and any(name in self.facts.constrained for name, _ in rows)

    def _code(self, count: int, rows: tuple[tuple[str, int], ...], packs: bool) -> int:
        """Each step and each result, once per kind of edge; results across memory and copies are shuffled."""
        edges = 3 if any(n in self.facts.constrained for n, _ in rows) else 1
        across = self.scattered or (packs and any(o.strides.get(self.vector) not in (0, 1) for o in self.wide))
        return count * edges * (SHUFFLED if across else 1) * (1 if self.extent % self.facts.lanes == 0 else 2)

    def _placed(self, operand: Operand, vectors: int) -> tuple[float, float, float]:
        """Cycles that each step waits for an operand where it lies and in a panel, and those of copying it to panels.

        What cannot be is infinite.
        """
        never = float("inf")
        if self.own:
            return 0.0, 0.0, never
        ahead = cpu_operands.is_ahead(self.facts, operand, self.vector)
        may_copy = (self.facts.heavy or ahead) and len(operand.strides) > 1
        copying = cpu_operands.packing(self.facts, operand, self.vector, vectors) if may_copy else never
        here = cpu_operands.in_place(self.facts, operand, vectors) if operand.strides[self.vector] in (0, 1) else never
        return here, cpu_operands.panelled(self.facts, operand, self.vector, vectors), copying

    def _masking(self, vectors: int) -> float:
        """Cycles of each step for masks that the steps of own loops move, at both ends of the vector loop."""
        if self.own or not self.facts.settings.masks or self.vector not in self.facts.constrained:
            return 0.0
        return MASKED * vectors * min(1.0, 2 / -(-self.extent // self.facts.lanes))

    def _share(self, vectors: int) -> float:
        """Useful share of the lanes, remainders included."""
        lanes, extent = self.facts.lanes, self.extent
        if self.facts.settings.masks:
            whole = -(-extent // lanes) * lanes
            slots = whole if self.facts.overlaps(self.vector) else self.facts.slots(extent, vectors * lanes)
            return extent / slots * filled(whole, vectors * lanes, lanes)
        if self.vector in self.facts.constrained and not self.own:
            slots = extent if extent < 3 * lanes else pieces(extent, lanes) + 4
        elif extent < lanes:
            slots = pieces(extent, lanes)
        else:
            return filled(extent, vectors * lanes, lanes)
        return extent / (slots * lanes)

    def _storing(self, rows: tuple[tuple[str, int], ...]) -> float:
        """Cycles of what happens once per result."""
        facts = self.facts
        if self.own:
            return facts.cells * COMBINED
        if not self.scattered:
            return 0.0
        across = all(any(facts.stride(u, n) == 1 and size >= 4 for n, size in rows) for u in self.scattered)
        return facts.cells * (TURNED if across else SCATTERED)


def _share_of_rows(facts: Facts, rows: tuple[tuple[str, int], ...]) -> float:
    """Useful share of the rows, remainders and edges included; whole tiles are a little better."""
    share = 1.0
    for name, size in rows:
        extent = facts.extents[name]
        edges = min(1.0, 2 * size / extent) if name in facts.constrained else 0.0
        share *= filled(extent, size, 1) * (1.0 if extent % size == 0 else 0.99) * (1 - EDGE * edges)
    return share


# --- plans ------------------------------------------------------------------------------------------------


def tile_plan(facts: Facts, tile: Tile) -> Plan:
    """The plan of a register tile: groups, loops over tiles, operands packed just in time, registers."""
    own = tile.vector not in facts.shared
    sizes = dict(tile.rows) | ({} if own else {tile.vector: tile.vectors * facts.lanes})
    order, fixed = _order(facts, tile, own)
    grid = _blocks(facts, tile, sizes) if tile.spread else _groups(facts, tile, order, sizes, fixed)
    if fixed and not tile.spread and _all_near(facts, tile):
        rows_first = _as_written(facts, order, sizes)
        few = cut(
            facts,
            [n for n in rows_first if n != tile.vector],
            sizes,
            min(wanted_groups(facts), ROUNDS * facts.settings.cores),
        )
        order, fixed, grid = (rows_first, set[str](), few) if few else (order, fixed, grid)
    elif not fixed and not own and (walked := _walked(facts)) is not None:
        order = sorted(order, key=lambda n: -abs(walked.strides.get(n, 0)))
        grid = cut(facts, order, sizes, min(wanted_groups(facts), ROUNDS * facts.settings.cores))
    elif not fixed and not own and _is_streamed(facts):
        order = _as_written(facts, order, sizes)
    deep = _depth(facts, tile)
    levels = [Level(Bind.GRID, tuple(Cover(n, grid[n]) for n in _grid_order(tile, order, fixed) if n in grid))]
    levels, at, outside = _tiled(facts, tile, order, fixed, grid, sizes, levels if grid else [])
    if deep is not None:
        at += 1
        levels.insert(at, Level(Bind.NONE, (deep,)))
    sums = (Staging(facts.merged.buffer, len(levels) - 1, "REG"),) if deep is not None and facts.merged else ()
    levels += _own_levels(facts, tile, own)
    pad = -facts.extents[tile.vector] % facts.lanes if tile.packed and not fixed else 0
    ahead = _ahead(facts, tile)
    stagings = tuple(_panels(facts, u, tile) if u in ahead else _staging(facts, u, tile, at, pad) for u in tile.packed)
    stagings = tuple(_rows_staging(facts, u, tile, outside) for u in tile.spread) + stagings
    kept = (Reduction(tile.vector, Across.LANES, tile.vectors * facts.lanes),) if own else ()
    edges = facts.tails(tile.vector, own or bool(ahead) or tile.vector in grid)
    stagings = tuple(sorted((*stagings, *sums), key=lambda s: s.level))
    return Plan(tuple(levels), stagings, kept, edges, reason="register tile")


def _tiled(
    facts: Facts,
    tile: Tile,
    order: list[str],
    fixed: set[str],
    grid: Mapping[str, int],
    sizes: Mapping[str, int],
    levels: list[Level],
) -> tuple[list[Level], int, int]:
    """`levels` and the loops over tiles below them; the level of panels, and that of rows spread over lanes."""
    at = outside = 0
    for n in order:
        if tile.spread and n == tile.vector:
            levels = levels or [Level(Bind.NONE, (Cover(n, -(-facts.extents[n] // sizes[n]) * sizes[n]),))]
            outside = len(levels) - 1
        if grid.get(n) != sizes.get(n, 1):
            levels.append(Level(Bind.NONE, (Cover(n, sizes.get(n, 1)),)))
        if n in fixed:
            at = len(levels) - 1
    return levels, at, outside


def _is_streamed(facts: Facts) -> bool:
    """The result does not stay in the second cache, and steps are few beside it."""
    written = max((nbytes(facts.view.type_of(u.buffer)) for u in facts.memory_uses() if u.writes), default=0)
    return written > facts.cache(2).bytes and max((o.rows for o in facts.operands), default=0) <= SHALLOW


def _walked(facts: Facts) -> Operand | None:
    """An operand from afar beside which all others stay in the first cache: it is read once, in the order in which it lies."""
    largest = max(facts.operands, key=lambda o: o.elements * o.bytes)
    others = sum(o.elements * o.bytes for o in facts.operands if o is not largest)
    afar = largest.elements * largest.bytes > facts.cache(2).bytes
    return largest if afar and others <= facts.cache(1).bytes // 2 else None


def _as_written(facts: Facts, order: list[str], sizes: dict[str, int]) -> list[str]:
    """Loops with those of the tile innermost, in the order in which the largest result lies in memory."""
    out = max((u for u in facts.memory_uses() if u.writes), key=lambda u: nbytes(facts.view.type_of(u.buffer)))
    tiled = sorted((n for n in order if n in sizes), key=lambda n: -abs(facts.stride(out, n)))
    return [*(n for n in order if n not in sizes), *tiled]


def _ahead(facts: Facts, tile: Tile) -> tuple[Use, ...]:
    """What is copied to panels before the kernel."""
    return tuple(o.use for o in facts.operands if o.use in tile.packed and cpu_operands.is_ahead(facts, o, tile.vector))


def _all_near(facts: Facts, tile: Tile) -> bool:
    """All panels together stay in the second cache, the result does not, and steps are few beside it: rows are written in sequence."""
    near = facts.cache(2).bytes // 2
    panels = sum(o.elements * o.bytes for o in facts.operands if o.use in tile.packed)
    moved = {n for u in tile.packed for n in facts.names(u)} & set(facts.shared)
    written = max((nbytes(facts.view.type_of(u.buffer)) for u in facts.memory_uses() if u.writes), default=0)
    steps = max((o.rows for o in facts.operands if o.use in tile.packed), default=0)
    return moved == {tile.vector} and panels <= near < written and steps <= SHALLOW


def _depth(facts: Facts, tile: Tile) -> Cover | None:
    """Steps of the outermost reduction loop whose panel stays in the second cache; None where all of them do."""
    deep = max((o.rows for o in facts.operands if o.use in tile.packed), default=0)
    panel = deep * tile.vectors * facts.lanes * facts.bytes
    room = facts.cache(2).bytes // 2
    loop = next((n for n in facts.own_order(facts.main) if facts.is_free(n, facts.main)), None)
    if panel <= room or loop is None or loop in facts.constrained or facts.merged is None:
        return None
    if not facts.view.is_local(facts.merged.buffer) or not any(loop in o.strides for o in facts.operands):
        return None
    size = -(-facts.extents[loop] // -(-2 * panel // room))
    return Cover(loop, -(-size // 16) * 16) if size < facts.extents[loop] else None


def _order(facts: Facts, tile: Tile, own: bool) -> tuple[list[str], set[str]]:
    """Shared loops, outermost first, and those that must be fixed before operands are packed."""
    inner = ([] if own else [tile.vector]) + [n for n, _ in tile.rows]
    outer = [n for n in facts.shared if n not in inner]
    if not tile.packed:
        return [*outer, *inner], set()
    moved = set[str]().union(*(facts.names(u) for u in tile.packed))
    fixed = [n for n in outer if n in moved] + [tile.vector]
    rest = [n for n in outer if n not in moved] + [n for n, _ in tile.rows]
    return [*fixed, *rest], set(fixed)


def _grid_order(tile: Tile, order: list[str], fixed: set[str]) -> list[str]:
    """Groups that follow each other share rows where operands stay in place, panels where they are packed."""
    if fixed:
        return order
    return [n for n in order if n != tile.vector] + [n for n in order if n == tile.vector]


def _groups(facts: Facts, tile: Tile, order: list[str], sizes: dict[str, int], fixed: set[str]) -> dict[str, int]:
    wanted = wanted_groups(facts)
    if not fixed:
        plain = [n for n in order if n not in sizes]
        grid = cut(facts, plain, sizes, wanted)
        groups = prod(-(-facts.extents[n] // c) for n, c in grid.items())
        for name, size in (*tile.rows, *((n, s) for n, s in sizes.items() if n == tile.vector)):
            left = -(-wanted // groups)
            if left <= 1:
                break
            chunk = cut_rows(facts, name, size, left) if name != tile.vector else None
            chunk = cut(facts, [name], sizes, left).get(name, facts.extents[name]) if chunk is None else chunk
            if chunk < facts.extents[name]:
                grid[name] = chunk
                groups *= -(-facts.extents[name] // chunk)
        return grid
    first = [n for n in order if n in fixed]
    cores = facts.settings.cores
    grid = cut(facts, first, sizes, wanted)
    groups = prod(-(-facts.extents[n] // c) for n, c in grid.items())
    few = min(wanted, ROUNDS * cores)
    if groups < few and (not balanced(groups, cores) or tile.copied * few / groups < AGAIN * tile.cycles):
        grid |= cut(facts, [n for n in order if n not in fixed], sizes, -(-few // groups))
    return grid


def _blocks(facts: Facts, tile: Tile, sizes: dict[str, int]) -> dict[str, int]:
    """Groups that copy rows first: no more than give each core its share, unless copies cost little, of rows that are held."""
    outer = [n for n in facts.shared if n not in sizes]
    grid = cut(facts, outer, sizes, wanted_groups(facts))
    groups = prod(-(-facts.extents[n] // c) for n, c in grid.items())
    along, blocks = cpu_operands.shares(facts.settings.cores)
    copies = ROUNDS * along * TURNED * sum(o.elements for o in facts.operands if o.use in tile.spread)
    few = along * (ROUNDS if copies < 2 * AGAIN * tile.cycles else 1)
    if groups < few * blocks:
        grid |= cut(facts, [tile.vector], sizes, -(-few // groups))
    for operand in (o for o in facts.operands if o.use in tile.spread):
        loop = next(n for n, _ in tile.rows if n in operand.strides)
        each = operand.rows * operand.bytes * prod(facts.extents[n] for n, _ in tile.rows if n in operand.strides)
        most = facts.extents[loop] // (1 if groups >= few * blocks else blocks)
        rows = min(most, cpu_operands.held(facts) * facts.extents[loop] // each) // sizes[loop] * sizes[loop]
        grid |= {loop: max(rows, sizes[loop])} if rows + sizes[loop] <= facts.extents[loop] else {}
    return grid


def _rows_staging(facts: Facts, use: Use, tile: Tile, level: int) -> Staging:
    """A copy with the steps innermost, rows a line further apart than they need be: they would fall into one set."""
    names = facts.names(use)
    order = (*(n for n, _ in tile.rows if n in names), *(n for n in facts.own_order(facts.main) if n in names))
    return Staging(use.buffer, level, "L2", order, pad=facts.cache(1).line // facts.bytes)


def _own_levels(facts: Facts, tile: Tile, own: bool) -> list[Level]:
    """Loops of stages, and what registers hold."""
    levels: list[Level] = []
    names = [n for s in facts.view.stages for n in facts.own_order(s) if n != tile.vector]
    if names:
        levels.append(Level(Bind.NONE, tuple(Cover(n, 1) for n in names)))
    if own:
        levels.append(Level(Bind.NONE, (Cover(tile.vector, tile.vectors * facts.lanes),)))
    if tile.rows:
        levels.append(Level(Bind.UNROLL, tuple(Cover(n, 1) for n, _ in tile.rows)))
    return [*levels, Level(Bind.VECTOR, (Cover(tile.vector, 1),), lanes=facts.lanes)]


def _staging(facts: Facts, use: Use, tile: Tile, level: int, pad: int) -> Staging:
    names = facts.names(use)
    order = (*(n for n in facts.own_order(facts.main) if n in names), tile.vector)
    return Staging(use.buffer, level, "L2", order, pad=pad)


def _panels(facts: Facts, use: Use, tile: Tile) -> Staging:
    """A copy before the kernel, where no loop is fixed yet."""
    names = facts.names(use)
    outer = tuple(i.name for i in facts.view.loops if i.name in names and i.name != tile.vector)
    return Staging(use.buffer, -1, "DRAM", (*outer, *_staging(facts, use, tile, -1, 0).order))
