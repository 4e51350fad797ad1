"""Tiles of kernels that turn their operand around, where loops are short and odd: tiles that such loops fill exactly.

What a group stores side by side, and what it reads side by side, is a run: short loops whole, and a part of the next.
Items are dealt out along both runs, one after the other; their number can be cut into fields that serve both where one
run's items are a multiple of the other's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, product
from math import prod

from tile_ir.frozen import frozen

from tile_opt.model.contraction import SECTOR
from tile_opt.plan.steps.groups.transpose import reaches, shares

SHORTEST, LONGEST, VERY_LONG = 40, 160, 1024
"""Elements of a run: at least, in any number, at most."""
NEIGHBOURS = 24
"""Items, at least, that are neighbours in memory."""
VECTOR = 4
"""Elements of a wide access."""
ITEMS = (512, 128)
"""Most and fewest items of a group."""
EACH = (6, 32)
"""Elements of an item, at least and at most: all of them are under way at once."""
WASTE = 1.1
"""Times as many iterations as there are that the parts of one loop may have."""
STORED = 3
"""Times what it costs to fetch a part of a sector that it costs to store one."""
SMALL, LARGE = 4096, 1.1
"""Elements of a tile above which few groups are at work at once, and how much longer they take."""


@frozen
class OddTile:
    """Iterations of each loop, and how many items share them."""

    tile: dict[str, int]
    items: int


def overhang(tile: Mapping[str, int], ranges: Mapping[str, int]) -> float:
    """How many times as many iterations tiles have as there are."""
    return prod(-(-ranges[n] // size) * size / ranges[n] for n, size in tile.items())


def cost(tile: Mapping[str, int], orders: Sequence[Sequence[str]], ranges: Mapping[str, int], width: int) -> float:
    """Bytes that groups touch for each that is wanted: what hangs over, and parts of sectors at the ends of runs."""
    store, read = (SECTOR / width / run_of(tile, order, ranges) for order in orders)
    large = LARGE if prod(tile.values()) > SMALL else 1
    return overhang(tile, ranges) * (2 + read + STORED * store) * large


def run_of(tile: Mapping[str, int], order: Sequence[str], ranges: Mapping[str, int]) -> int:
    """Elements of a tile that lie side by side, with loops in `order` from the nearest neighbours on."""
    run = 1
    for n in order:
        run *= min(tile[n], ranges[n])
        if tile[n] < ranges[n]:
            break
    return run


def odd_tile(
    orders: tuple[Sequence[str], Sequence[str]], ranges: Mapping[str, int], most: int, width: int
) -> OddTile | None:
    """The tile with the least `cost` of at most `most` elements of `width` bytes; None where none can be dealt out.

    `orders` are those of what is stored and of what is read, nearest neighbours first.
    """
    runs = [list(_runs(order, ranges)) for order in orders]
    made = (one | other for one, other in product(*runs) if all(one[n] == other[n] for n in one.keys() & other.keys()))
    tiles = (dict.fromkeys(ranges, 1) | tile for tile in made if prod(tile.values()) <= most)
    found = [OddTile(t, count) for t in tiles if (count := _items(t, orders))]
    return min(found, key=lambda f: (cost(f.tile, orders, ranges, width), -f.items), default=None)


def _runs(order: Sequence[str], ranges: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Runs along `order`: loops that are whole in them, and a part of the next that divides it about evenly."""
    whole: dict[str, int] = {}
    for n in order:
        have = prod(whole.values())
        for part in _parts(have, ranges):
            if part <= WASTE * ranges[n] and -(-ranges[n] // part) * part <= WASTE * ranges[n]:
                yield whole | {n: part}
        if have * ranges[n] > LONGEST:
            return
        whole = whole | {n: ranges[n]}


def _parts(have: int, ranges: Mapping[str, int]) -> Iterator[int]:
    """Parts of a loop for runs of `have` times as many elements: any, and of long runs those that vectors and short loops divide."""
    yield from range(-(-SHORTEST // have), LONGEST // have + 1)
    step = VECTOR * prod(r for r in ranges.values() if r < NEIGHBOURS)
    yield from range(-(-LONGEST // step) * step, VERY_LONG // have + 1, step)


def _items(tile: Mapping[str, int], orders: Sequence[Sequence[str]]) -> int:
    """The most items that both runs can be dealt out to, neighbours to neighbours; 0 for none."""
    elements = prod(tile.values())
    for count in range(ITEMS[0], ITEMS[1] - 1, -1):
        if elements % count == 0 and EACH[0] * count <= elements <= EACH[1] * count:
            dealt = [shares(count, tile, order) for order in orders]
            if nested(dealt) and all(_near(one, tile) and prod(t for _, t in one) == count for one in dealt):
                return count
    return 0


def _near(dealt: Sequence[tuple[str, int]], tile: Mapping[str, int]) -> bool:
    """Many items in a row are neighbours in memory."""
    run = 1
    for n, taken in dealt:
        run *= taken
        if taken < tile[n]:
            break
    return run >= NEIGHBOURS


def nested(dealt: Sequence[Sequence[tuple[str, int]]]) -> bool:
    """The items' number can be cut into fields so that the items of every loop are a run of whole fields."""
    return all(high % low == 0 for low, high in pairwise(sorted(reaches(dealt))))
