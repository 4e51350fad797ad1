"""Plans for kernels without loops of their own whose operands run along another loop than what they write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from tile_ir.frozen import replace
from tile_ir.powers import power_of_two
from tile_ir.stripe.nodes import Bind, Scope
from tile_ir.target import Target

from tile_opt.kernel.strides import flat_stride
from tile_opt.kernel.unify import is_indirect
from tile_opt.kernel.view import KernelView, Use
from tile_opt.kernel.work import is_elementwise
from tile_opt.plan.plan import Cover, Level, Plan, Staging
from tile_opt.plan.space.facts import Facts
from tile_opt.plan.space.gpu.odd_tiles import OddTile, nested, odd_tile, overhang
from tile_opt.plan.steps.groups.banks import BANK_BYTES
from tile_opt.plan.steps.groups.transpose import Turn, copy_walk, shares

PIECE = 64
"""Neighbouring elements that a group takes on each side, where it takes several at once; half as many where it does not."""
PIECE_BYTES = 128
PADS = (1, 2, 3, 4, 6, 8, 16)
"""Elements between the rows of a tile: those under which lanes meet least in the banks of local memory."""
TILE = 4096
"""Elements of a group's tile, at least; of narrow ones as many as `TILE_BYTES`."""
TILE_BYTES = 8192
CLEARLY = 1.1
"""Times as many iterations as there are from which tiles of other sizes than powers of two are tried, and must save."""
SHORT_BYTES = 64
"""Bytes of neighbours that stay neighbours from which memory is moved whole without a tile."""
WORTH = 1 << 12
"""Elements from which a tile pays."""


def transposed(view: KernelView) -> tuple[str, tuple[Use, ...]] | None:
    """(the loop that what is written runs along, the operands that run along another); None when there are none."""
    if view.allocs or view.constraints or any(s.loops or s.guard or not is_elementwise(s) for s in view.stages):
        return None
    uses = [(s, u) for s in view.stages for u in s.uses]
    if any(u.extent or is_indirect(s, u) for s, u in uses):
        return None
    run = _kept(view, [u for _, u in uses])
    along = _neighbours(view, [u for _, u in uses if u.writes], run)
    if along is None or prod(i.range for i in view.loops) < WORTH:
        return None
    others = tuple(u for _, u in uses if not u.writes and flat_stride(view, u, along) not in (0, run))
    across = _neighbours(view, list(others), run)
    moving = all(all(flat_stride(view, u, i.name) for i in view.loops) for u in others)
    return (along, others) if others and across not in (None, along) and moving else None


def _kept(view: KernelView, uses: list[Use]) -> int:
    """Elements that lie side by side in whatever the kernel reads and writes, where these are fewer than make whole sectors."""
    run = 1
    while (inner := _neighbours(view, uses, run)) is not None:
        run *= view.ranges[inner]
    return run if run * min(view.type_of(u.buffer).dtype.bytes for u in uses) < SHORT_BYTES else 1


def _neighbours(view: KernelView, uses: list[Use], run: int) -> str | None:
    """The loop that moves all accesses to the next `run` of elements."""
    loops = (i.name for i in reversed(view.loops) if i.range > 1)
    return next((n for n in loops if uses and all(flat_stride(view, u, n) == run for u in uses)), None)


def plans(view: KernelView, target: Target) -> Iterator[Plan]:
    """Legal plans, best first."""
    found = transposed(view)
    if found is None:
        return
    along, uses = found
    facts = Facts(view)
    width = max(facts.bytes(u) for u in uses)
    written = next(u for u in view.uses if u.writes)
    read, store = _order(view, uses[0]), _order(view, written)
    wide = _lanes(facts, store[0], 4 * target.settings.vec_size) > 1
    piece = max(PIECE if wide else PIECE // 2, PIECE_BYTES // width)
    tile = dict.fromkeys((i.name for i in view.loops), 1)
    for order in (store, read):
        _extend(view, tile, order, piece)
    most = min(max(TILE, TILE_BYTES // width), target.settings.max_mem // (2 * width * len(uses)))
    _enlarge(view, tile, (along, read[0], *store, *read), most)
    items = min(target.settings.threads, prod(tile.values()))
    narrow = width < BANK_BYTES and copy_walk(view, uses[0], tile, items, 4 * target.settings.vec_size).lanes[1] > 1
    if not (wide or narrow) and overhang(tile, view.ranges) > CLEARLY:
        most = target.settings.max_mem * 2 // (3 * width * len(uses))
        odd = odd_tile((store, read), view.ranges, most, width)
        less = odd is not None and overhang(odd.tile, view.ranges) * CLEARLY < overhang(tile, view.ranges)
        if odd is not None and less and _is_dealt_out(view, uses, odd, store, target):
            tile, items = odd.tile, odd.items
    most = 4 * target.settings.vec_size
    made = _plan(view, tile, items, store, facts, most)
    found = [_laid(made, row, pad) for row in _rows(read[: read.index(along)], tile) for pad in PADS]
    if width < BANK_BYTES:
        words = _plan(view, tile, items, store, facts, BANK_BYTES)
        if words.levels[-1].lanes * width == BANK_BYTES:
            rows = _rows(store[: store.index(read[0])], tile)
            found += [_laid(words, row, pad) for row in rows for pad in PADS]
    yield min(found, key=lambda plan: _cycles(view, plan, target))


def _is_dealt_out(view: KernelView, uses: Sequence[Use], odd: OddTile, store: Sequence[str], target: Target) -> bool:
    """Items share the tile as it is stored and as it is copied, by whole vectors where it can be."""
    copies = (copy_walk(view, u, odd.tile, odd.items, 4 * target.settings.vec_size).items for u in uses)
    return nested([shares(odd.items, odd.tile, store), *copies])


def _rows(near: list[str], tile: Mapping[str, int]) -> Iterator[tuple[str, ...]]:
    """Loops, outermost first, along which a tile lies side by side in local memory: all of `near`, or the nearest ones alone."""
    yield tuple(reversed(near))
    for count in range(len(near) - 1, 0, -1):
        if tile[near[count]] > 1:
            yield tuple(reversed(near[:count]))


def _laid(plan: Plan, row: tuple[str, ...], pad: int) -> Plan:
    return replace(plan, stagings=tuple(replace(s, order=row, pad=pad) for s in plan.stagings))


def _cycles(view: KernelView, plan: Plan, target: Target) -> int:
    """What the lanes of a sub-group wait for the banks of local memory."""
    occupancy = target.machine.occupancy
    lanes = occupancy.subgroup if occupancy else 1
    return Turn(view, plan, 4 * target.settings.vec_size).cycles(lanes)


def _order(view: KernelView, use: Use) -> list[str]:
    """The loops along the memory of an access, nearest neighbours first."""
    return sorted((i.name for i in view.loops), key=lambda n: abs(flat_stride(view, use, n)) or 1 << 62)


def _extend(view: KernelView, tile: dict[str, int], order: list[str], piece: int) -> None:
    """Grow the tile until it holds `piece` neighbours."""
    have = 1
    for loop in order:
        if have >= piece:
            return
        tile[loop] = max(tile[loop], min(power_of_two(view.ranges[loop]), -(-piece // have)))
        have *= tile[loop]


def _enlarge(view: KernelView, tile: dict[str, int], loops: tuple[str, ...], most: int) -> None:
    for loop in loops:
        while prod(tile.values()) < most and tile[loop] < view.ranges[loop]:
            tile[loop] *= 2
    while prod(tile.values()) > 2 * most and max(tile.values()) > 1:
        tile[max(tile, key=lambda n: tile[n])] //= 2


def _plan(
    view: KernelView,
    tile: dict[str, int],
    items: int,
    store: list[str],
    facts: Facts,
    most: int,
) -> Plan:
    """Vectors of what is written have at most `most` bytes."""
    lanes = min(_lanes(facts, store[0], most), tile[store[0]])
    counts = dict(shares(items, tile, store, lanes))
    grid = Level(Bind.GRID, tuple(Cover(i.name, tile[i.name]) for i in view.loops))
    each = {n: tile[n] // c for n, c in counts.items()}
    wide = {n: lanes if n == store[0] else 1 for n in counts}
    group = Level(Bind.GROUP, tuple(Cover(n, each[n], wide[n]) for n in reversed(store)))
    steps = tuple(Cover(n, wide[n]) for n in reversed(store) if each[n] > wide[n])
    levels = [grid, group, *([Level(Bind.UNROLL, steps)] if steps else [])]
    levels += [Level(Bind.VECTOR, (Cover(store[0], 1),), lanes=lanes)] if lanes > 1 else []
    found = transposed(view)
    buffers = dict.fromkeys(u.buffer for u in found[1]) if found else ()
    stagings = tuple(Staging(b, 0, "LOCAL", scope=Scope.GROUP) for b in buffers)
    return Plan(
        tuple(levels), stagings, reason=f"a tile of {' x '.join(map(str, tile.values()))} goes through local memory"
    )


def _lanes(facts: Facts, loop: str, most: int) -> int:
    """Of an access to what is written, and what is read beside the tiles."""
    found = transposed(facts.view)
    skipped = {u.buffer for u in found[1]} if found else set[str]()
    return facts.lanes(loop, most, skipped)
