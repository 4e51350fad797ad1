"""The plan of a register tile: groups, the order of loops over tiles, operands in panels, what registers hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from math import prod

from tile_ir.stripe.nodes import Bind

from tile_opt.kernel.tiles import MANY
from tile_opt.kernel.view import Use
from tile_opt.kernel.work import nbytes
from tile_opt.plan.plan import Across, Cover, Level, Plan, Reduction, Staging
from tile_opt.plan.space.cpu import operands as cpu_operands
from tile_opt.plan.space.cpu.facts import Facts
from tile_opt.plan.space.cpu.groups import ROUNDS, count, cut, cut_rows, is_balanced, wanted_groups
from tile_opt.plan.space.cpu.operands import SHALLOW, TURNED
from tile_opt.plan.space.cpu.order import as_written, in_pieces, is_streamed, largest_result, walked
from tile_opt.plan.space.cpu.tiles import Tile

AGAIN = 0.02
"""Share of a kernel's time that groups may spend on copies that others make, too, for the sake of balance."""


def tile_plan(facts: Facts, tile: Tile) -> Plan:
    """The plan of a register tile: groups, loops over tiles, operands packed just in time, registers."""
    own = tile.vector not in facts.shared
    sizes = dict(tile.rows) | ({} if own else {tile.vector: tile.vectors * facts.lanes})
    around = _moving(facts, tile) - {tile.vector}
    order, fixed, grid = _divided(facts, tile, own, sizes, around)
    deep = None if own else _depth(facts, tile)
    levels = [Level(Bind.GRID, tuple(Cover(n, grid[n]) for n in _grid_order(tile, order) if n in grid))]
    levels = levels if grid else _whole(facts, order[-1], sizes) if own and tile.packed else []
    levels, at, outside = _tiled(facts, tile, order, fixed, grid, sizes, levels)
    if deep is not None:
        at += 1
        levels.insert(at, Level(Bind.NONE, (deep,)))
    sums = (Staging(facts.merged.buffer, len(levels) - 1, "REG"),) if deep is not None and facts.merged else ()
    levels += _own_levels(facts, tile, own)
    pad = -facts.extents[tile.vector] % facts.lanes if tile.packed and not (fixed or own) else 0
    ahead = _ahead(facts, tile)
    # Copies of one level for all groups' points have what moves them, too: loops around, and rows beside lanes along the sum.
    apart = () if fixed else tuple(n for n in facts.shared if n in around)
    stagings = tuple(
        _panels(facts, u, tile) if u in ahead else _staging(facts, u, tile, at, pad, apart) for u in tile.packed
    )
    stagings = tuple(_rows_staging(facts, u, tile, outside) for u in tile.spread) + stagings
    kept = (Reduction(tile.vector, Across.LANES, tile.vectors * facts.lanes),) if own else ()
    # A tile that the loop does not fill is one tile yet where lanes can be masked; vectors that overlap are two.
    edges = facts.tails(tile.vector, facts.settings.masks or own or bool(ahead) or tile.vector in grid)
    stagings = tuple(sorted((*stagings, *sums), key=lambda s: s.level))
    return Plan(tuple(levels), stagings, kept, edges, reason="register tile")


def _divided(
    facts: Facts, tile: Tile, own: bool, sizes: dict[str, int], around: Set[str]
) -> tuple[list[str], set[str], dict[str, int]]:
    """Loops over tiles in order, those of them whose place is fixed, and how groups divide them."""
    order, fixed = _order(facts, tile, own)
    grid = _blocks(facts, tile, sizes) if tile.spread else _groups(facts, tile, order, sizes, fixed)
    if fixed and not tile.spread and _all_near(facts, tile):
        rows_first = as_written(facts, order, order if around else sizes)
        few = cut(
            facts,
            [n for n in rows_first if n != tile.vector],
            sizes,
            min(wanted_groups(facts), ROUNDS * facts.settings.cores),
        )
        order, fixed, grid = (rows_first, set[str](), few) if few else (order, fixed, grid)
    elif not fixed and not own and (steps := walked(facts) or in_pieces(facts, order, sizes)):
        order = sorted(order, key=lambda n: -steps.get(n, 0))
        grid = cut(facts, order, sizes, min(wanted_groups(facts), ROUNDS * facts.settings.cores))
    elif not fixed and not own and is_streamed(facts):
        order = as_written(facts, order, sizes)
    return order, fixed, grid


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
            levels = levels or _whole(facts, n, sizes)
            outside = len(levels) - 1
        if grid.get(n) != sizes.get(n, 1):
            levels.append(Level(Bind.NONE, (Cover(n, sizes.get(n, 1)),)))
        if n in fixed:
            at = len(levels) - 1
    return levels, at, outside


def _whole(facts: Facts, loop: str, sizes: Mapping[str, int]) -> list[Level]:
    """A level of one point, for copies that are made once."""
    size = sizes.get(loop, 1)
    return [Level(Bind.NONE, (Cover(loop, -(-facts.extents[loop] // size) * size),))]


def _ahead(facts: Facts, tile: Tile) -> tuple[Use, ...]:
    """What is copied to panels before the kernel."""
    return tuple(o.use for o in facts.operands if o.use in tile.packed and cpu_operands.is_ahead(facts, o, tile.vector))


def _moving(facts: Facts, tile: Tile) -> set[str]:
    """Shared loops that move what is packed."""
    return {n for u in tile.packed for n in facts.names(u)} & set(facts.shared)


def _all_near(facts: Facts, tile: Tile) -> bool:
    """All panels together stay in the second cache, the result does not, and rows had better be written in sequence.

    They had where steps are few beside the result, and where loops that move panels take pieces of what a row writes.
    """
    near = facts.cache(2).bytes // 2
    panels = sum(o.elements * o.bytes for o in facts.operands if o.use in tile.packed)
    out = largest_result(facts)
    if not panels <= near < nbytes(facts.view.type_of(out.buffer)):
        return False
    around = [facts.stride(out, n) for n in _moving(facts, tile) if n != tile.vector]
    rows = [facts.stride(out, n) for n, _ in tile.rows]
    if around and rows:
        return max(map(abs, around)) < min(map(abs, rows))
    return not around and max((o.rows for o in facts.operands if o.use in tile.packed), default=0) <= SHALLOW


def _depth(facts: Facts, tile: Tile) -> Cover | None:
    """Steps of the outermost reduction loop that no edge cuts whose panel stays in the second cache; None where all of them do."""
    deep = max((o.rows for o in facts.operands if o.use in tile.packed), default=0)
    panel = deep * tile.vectors * facts.lanes * facts.bytes
    room = facts.cache(2).bytes // 2
    free = (n for n in facts.own_order(facts.main) if facts.is_free(n, facts.main) and n not in facts.constrained)
    loop = next(free, None)
    if panel <= room or loop is None or facts.merged is None:
        return None
    if not facts.view.is_local(facts.merged.buffer) or not any(loop in o.strides for o in facts.operands):
        return None
    size = -(-facts.extents[loop] // -(-2 * panel // room))
    return Cover(loop, -(-size // 16) * 16) if size < facts.extents[loop] else None


def _order(facts: Facts, tile: Tile, own: bool) -> tuple[list[str], set[str]]:
    """Shared loops, outermost first, and those that must be fixed before operands are packed."""
    inner = ([] if own else [tile.vector]) + [n for n, _ in tile.rows]
    outer = [n for n in facts.shared if n not in inner]
    if own or not tile.packed:
        return [*outer, *inner], set()
    moved = set[str]().union(*(facts.names(u) for u in tile.packed))
    fixed = [n for n in outer if n in moved] + [tile.vector]
    rest = [n for n in outer if n not in moved] + [n for n, _ in tile.rows]
    return [*fixed, *rest], set(fixed)


def _grid_order(tile: Tile, order: list[str]) -> list[str]:
    """Groups that follow each other share rows: the last of a row has less to do, and no core should get all of these."""
    return [n for n in order if n != tile.vector] + [n for n in order if n == tile.vector]


def _groups(facts: Facts, tile: Tile, order: list[str], sizes: dict[str, int], fixed: set[str]) -> dict[str, int]:
    few = min(wanted_groups(facts), ROUNDS * facts.settings.cores)
    wanted = wanted_groups(facts) if fixed or not tile.packed else few
    if not fixed:
        plain = [n for n in order if n not in sizes]
        grid = cut(facts, plain, sizes, wanted)
        groups = count(facts, grid)
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
    grid = cut(facts, first, sizes, wanted)
    groups = count(facts, grid)
    if groups < few and (not is_balanced(facts, grid) or tile.copied * few / groups < AGAIN * tile.cycles):
        grid |= cut(facts, [n for n in order if n not in fixed], sizes, -(-few // groups), most=True)
    return grid


def _blocks(facts: Facts, tile: Tile, sizes: dict[str, int]) -> dict[str, int]:
    """Groups that copy rows first: no more than give each core its share, unless copies cost little, of rows that are held."""
    outer = [n for n in facts.shared if n not in sizes]
    grid = cut(facts, outer, sizes, wanted_groups(facts))
    groups = count(facts, grid)
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
    window = tile.window
    names = [n for s in facts.view.stages for n in facts.own_order(s) if n not in (tile.vector, *window)]
    if names:
        levels.append(Level(Bind.NONE, tuple(Cover(n, 1) for n in names)))
    if own:
        levels.append(Level(Bind.NONE, (Cover(tile.vector, tile.vectors * facts.lanes),)))
    if tile.rows:
        levels.append(Level(Bind.UNROLL, tuple(Cover(n, 1) for n in (*window, *(n for n, _ in tile.rows)))))
    return [*levels, Level(Bind.VECTOR, (Cover(tile.vector, 1),), lanes=facts.lanes)]


def _steps_in_order(facts: Facts, tile: Tile) -> list[str]:
    """The main stage's own loops as the plan has them, the innermost last."""
    window = tile.window
    return [*(n for n in facts.own_order(facts.main) if n not in window), *window]


def _staging(facts: Facts, use: Use, tile: Tile, level: int, pad: int, apart: Sequence[str] = ()) -> Staging:
    """A copy in panels; those of each iteration of the loops `apart` are in it."""
    names = facts.names(use)
    inner = [n for n in (*apart, *_steps_in_order(facts, tile)) if n in names and n != tile.vector]
    order = (*inner, tile.vector)
    return Staging(use.buffer, level, "L2", order, pad=pad)


def _anew(facts: Facts, use: Use) -> set[str]:
    """Loops over tiles for which a copy is made anew: of them all it would take more than those that cores have at a time."""
    tiles = [i for i in facts.view.loops if i.bind is Bind.GRID]
    moving, same = (prod(i.range for i in tiles if (i.name in facts.names(use)) is moved) for moved in (True, False))
    cores = facts.settings.cores
    anew = use.buffer not in facts.view.fixed and moving > cores and same >= ROUNDS * MANY
    return {i.name for i in tiles} if anew else set()


def _panels(facts: Facts, use: Use, tile: Tile) -> Staging:
    """A copy before the kernel, where no loop is fixed yet."""
    names = facts.names(use) - _anew(facts, use)
    outer = tuple(i.name for i in facts.view.loops if i.name in names and i.name != tile.vector)
    return Staging(use.buffer, -1, "DRAM", (*outer, *_staging(facts, use, tile, -1, 0).order))
