"""The search for tile sizes that fit a memory unit: fewest lines moved per multiply, within the bytes."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import log2, prod

from tile_ir.frozen import frozen
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Block, Direction, Refinement

from tile_opt.blocks.split import tile_counts, tile_extents

SMALL_PRIMES = (2, 3, 5, 7)


@frozen
class TileRules:
    """Limits and weights of the search; names and defaults are those of PlaidML's pass where it has them."""

    capacity: int
    """Bytes that all views of one tile may take."""
    only_po2: bool = False
    only_even: bool = False
    acc_idxs: bool = True
    """False: indexes that no output names keep their full range."""
    min_count: int = 1
    """Tiles wanted at least: a preference."""
    input_cost: float = 1.0
    output_cost: float = 1.0
    split_factor: float = 0.001
    cache_width: int = 0
    """Bytes that one access of the far memory moves."""
    max_candidates: int = 4000
    patience: int = 400
    """Candidates in a row that bring nothing better end the search."""


@frozen
class Candidate:
    """Tile sizes in index order, the bytes of their views, and what they cost."""

    sizes: tuple[int, ...]
    bytes: int
    cost: float


@dataclass
class TileSearch:
    """Best-first from the smallest tile; bigger tiles need no fewer bytes, so a tile that does not fit is a dead end."""

    block: Block
    rules: TileRules
    names: tuple[str, ...] = field(init=False)
    ranges: tuple[int, ...] = field(init=False)
    steps: list[list[int]] = field(init=False)
    seen: dict[tuple[int, ...], Candidate] = field(default_factory=dict[tuple[int, ...], Candidate])

    def __post_init__(self) -> None:
        loops = [i for i in self.block.indexes if i.value is None]
        self.names, self.ranges = tuple(i.name for i in loops), tuple(i.range for i in loops)
        outputs = {n for r in self._outs() for f in r.access for n in f.names}
        fixed = {n for n in self.names if not self.rules.acc_idxs and n not in outputs}
        self.steps = [
            [r] if n in fixed else _steps(r, self.rules) for n, r in zip(self.names, self.ranges, strict=True)
        ]

    def best(self) -> Candidate | None:
        """The cheapest tile that fits; None when not even the smallest does."""
        found: Candidate | None = None
        idle = 0
        for candidate in self.candidates():
            idle += 1
            if found is None or candidate.cost < found.cost:
                found, idle = candidate, 0
            if idle > self.rules.patience:
                break
        return found

    def ranked(self) -> Iterator[Candidate]:
        """The tiles that fit, as far as they were searched, the cheapest first."""
        if self.best() is not None:
            fitting = (tile for tile in self.seen.values() if tile.bytes <= self.rules.capacity)
            yield from sorted(fitting, key=lambda tile: tile.cost)

    def candidates(self) -> Iterator[Candidate]:
        """Every tile that fits, in the order of the search."""
        start = (0,) * len(self.names)
        queue: list[tuple[float, tuple[int, ...]]] = []
        self._push(start, queue)
        while queue and len(self.seen) < self.rules.max_candidates:
            _, at = heapq.heappop(queue)
            yield self.seen[at]
            for k in range(len(at)):
                if at[k] + 1 < len(self.steps[k]):
                    self._push((*at[:k], at[k] + 1, *at[k + 1 :]), queue)

    def _push(self, at: tuple[int, ...], queue: list[tuple[float, tuple[int, ...]]]) -> None:
        if at in self.seen:
            return
        made = self.evaluate(tuple(s[k] for s, k in zip(self.steps, at, strict=True)))
        self.seen[at] = made
        if made.bytes <= self.rules.capacity:
            heapq.heappush(queue, (made.cost, at))

    def evaluate(self, sizes: tuple[int, ...]) -> Candidate:
        """Bytes and cost of one choice of tile sizes."""
        counts = tile_counts(self.block, dict(zip(self.names, sizes, strict=True)))
        views = [(r, tile_extents(r, counts)) for r in self._views()]
        total = sum(prod(s) * r.type.dtype.bytes for r, s in views)
        return Candidate(sizes, total, self._cost(sizes, counts, views))

    def _cost(
        self,
        sizes: tuple[int, ...],
        counts: Mapping[str, tuple[int, int]],
        views: list[tuple[Refinement, tuple[int, ...]]],
    ) -> float:
        rules = self.rules
        moved = 1.0
        for ref, extents in views:
            weight = rules.input_cost if ref.dir is Direction.IN else rules.output_cost
            moved += weight * lines(ref, extents, rules.cache_width)
        number = prod(k for _, k in counts.values())
        padding = prod(t * k / r for (t, k), r in zip(counts.values(), self.ranges, strict=True))
        waste = padding * rules.min_count / min(number, rules.min_count)
        outs = [s for r, s in views if r.dir is not Direction.IN]
        return (waste * moved / prod(sizes) + rules.split_factor * log2(number)) / (1 + sum(map(_primes, outs)) / 100)

    def _outs(self) -> list[Refinement]:
        return [r for r in self.block.refs if r.dir in (Direction.OUT, Direction.INOUT)]

    def _views(self) -> list[Refinement]:
        return [r for r in self.block.refs if r.dir is not Direction.ALLOC]


def lines(ref: Refinement, extents: Sequence[int], cache_width: int) -> float:
    """Expected transactions of a far memory for one tile of a view: dimensions by stride, neighbours share lines."""
    elements = cache_width / ref.type.dtype.bytes
    total, reach = 1.0, 1
    for size, step in sorted(zip(extents, ref.type.strides, strict=True), key=lambda pair: pair[1]):
        gap = step - reach
        share = 1 - gap / elements if elements and gap < elements else 0.0
        total = total * size - max(0.0, share) * (size - 1) * (1 if total > 1 else (1 - 1 / max(elements, 1)))
        reach = step * (size - 1) + reach
    return max(total, 1.0)


def _steps(limit: int, rules: TileRules) -> list[int]:
    """Sizes to try, rising: powers of two, divisors, or the smallest size for each number of tiles."""
    if rules.only_po2:
        sizes = {min(1 << k, limit) for k in range(limit.bit_length() + 1)}
    elif rules.only_even:
        sizes = {k for k in range(1, limit + 1) if limit % k == 0}
    else:
        sizes = set(range(1, min(limit, 16) + 1)) | {-(-limit // n) for n in range(1, int(limit**0.5) + 2)}
    return sorted(sizes)


def _primes(sizes: Sequence[int]) -> int:
    """How many small prime factors the sizes have together."""
    count = 0
    for size in sizes:
        for prime in SMALL_PRIMES:
            while size > 1 and size % prime == 0:
                size //= prime
                count += 1
    return count


def is_tileable(block: Block) -> bool:
    """The block has loops to tile and only affine views."""
    loops = [i for i in block.indexes if i.value is None and i.range > 1]
    return bool(loops) and all(isinstance(f, Affine) for r in block.refs for f in r.access)
