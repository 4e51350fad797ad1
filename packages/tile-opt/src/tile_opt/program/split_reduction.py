"""Share a long reduction into few cells among work groups: partial results per chunk, then their aggregate.

A sum of sixteen million numbers into one cell has no parallel output index. The rewrite gives it one: the
outermost reduction index is cut into chunks whose number depends on sizes only, never on threads, so that the
result has the same bits on any number of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from math import prod

from tile_ir.diagnostics import TileTypeError
from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.names import claim, fresh
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import Constraint, Contraction, Op, Poly, Program, TensorLoad, TensorType
from tile_ir.stripe.affine import Affine, intervals, names_in

from tile_opt.analysis import FlatDomain, Sets, analyze, poly, uncovered
from tile_opt.program.base import Rewrite, with_each

GROUPS_EACH = 4
"""Groups per compute unit."""
FEW_GROUPS = 4
"""Groups for each compute unit, below which long columns end unevenly."""
GROUP_POINTS = 1 << 13
"""Points that are worth a group of their own, and a kernel that combines what groups found."""
WORTH, PRODUCT_WORTH = 3 << 16, 1 << 18
"""Points of a group above which they take longer than another kernel that combines what several groups found; of a product in all."""
JOINED_WORTH = 3 << 14
"""The same where the last group of these combines it in their own kernel, which saves a launch."""
STRETCH, LEAST_STRETCH = 32, 16
"""Neighbouring cells that a group takes together where it reduces columns, and where there are few of them."""
PARTIAL_SHARE = 16
"""Elements of operands that a product reads for each partial result: writing it and reading it again then hardly shows."""
REGISTER_TILE = (8, 64)
"""Rows and columns of a product that registers hold, roughly."""
FEW_TILES, FEW_COLUMNS = 16, 256
"""Of these are too few for the processors to share evenly; longer rows are shared, however few they are."""
FEW_RUNS = 1 << 10
"""Cells, stored side by side, of which each processor's share is too short a run of what it reads."""
APART = 16
"""Products of operands of their own, side by side, that are enough for the processors."""
RUN = 64
"""Neighbours in memory that a chunk has together: groups of fewer share what memory hands out at once."""
ROWS_EACH, ROWS_EVEN = 8, 2
"""Rows for each core of a processor that even out what rows differ in, and where each has about as many as the others."""
IDLE = 1.1
"""Times a core's even share of the rows that the longest core may have there."""
PARTIAL = "$partial"
"""A chunk's result, where it is aggregated."""


Split = Callable[[Contraction, Mapping[str, TensorType], Sets, set[str]], Sequence[Op] | None]
"""Makes several operations of one, given the program's types and the names that are taken; None where it shall stay."""


def in_parts(program: Program, split: Split) -> Program:
    """The program with what `split` makes in the place of contractions: partial results, and what aggregates them."""
    sets, types = Sets(), program.types()
    taken = set(types)

    def parts(op: Op) -> Sequence[Op]:
        return (isinstance(op, Contraction) and split(op, types, sets, taken)) or (op,)

    return with_each(program, parts)


@frozen
class SplitReduction(Rewrite):
    """Split contractions with at most `max_outputs` cells, each of which some tuple writes.

    Chunks hold at least `chunk_points` points each, and there are at most `max_chunks`. Contractions with up
    to `long_outputs` cells are split, too, when each takes `long` points or more: their operands are far
    larger than their result, and a chunk's share of them stays in cache. So are products whose cells are too few
    for processors to share, into chunks of `product_points`: each packs what it reads of the operands.
    """

    max_outputs: int = 256
    chunk_points: int = 32768
    max_chunks: int = 64
    long: int = 1 << 14
    long_outputs: int = 1 << 17
    product_points: int = 1 << 21
    product_read: int = 1 << 18
    """Elements of operands that are worth a chunk, too."""
    units: int = 0
    """Compute units of a device whose work groups share each cell's points, or each stretch of cells, among
    their items: only what would leave units without a group is split, and into more chunks. 0: no such device."""
    cores: int = 0
    """Of a processor: where each has several rows that lie along memory, these are left whole. 0: no matter how many."""
    walked: frozenset[DType] = frozenset()
    """Where rows weighed below their largest element are multiplied with one of these, kernels walk them piece by piece: these are left whole."""
    joined: bool = False
    """Of those that share, the last group may combine what all found, so that no kernel is added."""

    def apply(self, program: Program) -> Program:
        walked = _walked(program, self.walked)

        def split(
            op: Contraction, types: Mapping[str, TensorType], sets: Sets, taken: set[str]
        ) -> tuple[Contraction, Contraction] | None:
            return None if op.name in walked else self._split(op, types, sets, taken)

        return in_parts(program, split)

    def _split(
        self, op: Contraction, types: Mapping[str, TensorType], sets: Sets, taken: set[str]
    ) -> tuple[Contraction, Contraction] | None:
        most = max(self.max_outputs, self.units * STRETCH, self.long_outputs)
        if op.agg is Aggregation.ASSIGN or not 0 < op.type.size <= most or op.result == PARTIAL:
            return None  # what puts parts together is cut by whoever made them
        domain = covering(op, sets)
        if domain is None:
            return None
        wanted = self._chunks(op, domain, types)
        order = reductions(op, domain, types, wanted if self.units else 1) if wanted > 1 else []
        sizes = chunk_sizes(domain, order, wanted)
        return partial(op, domain, sizes, claim(f"{op.name}_partial", taken)) if sizes else None

    def _chunks(self, op: Contraction, domain: FlatDomain, types: Mapping[str, TensorType]) -> int:
        """How many chunks the reduction is worth; 0 or 1 to leave it whole."""
        points = prod(domain.ranges)
        if self.units:
            return self._for_groups(op, points // op.type.size, _most_is_along_memory(op, domain, types))
        if len(op.loads) < 2 and self._are_enough(rows_around(op, domain, types)):
            return 0
        if op.type.size <= self.max_outputs:
            return min(self.max_chunks, points // self.chunk_points)
        is_long = points // op.type.size >= self.long
        if len(op.loads) < 2:
            return self.max_chunks if is_long else 0
        if not is_long and not _is_narrow(op, domain, types):
            return 0
        read = _elements_read(op, domain, types)
        worth = max(points // self.product_points, read // self.product_read)
        return min(self.max_chunks, worth, read // (PARTIAL_SHARE * op.type.size))

    def _are_enough(self, rows: int) -> bool:
        """Each core of the processor has several: about as many as the others, or so many that one more hardly shows."""
        even = self.cores > 0 and -(-rows // self.cores) * self.cores <= IDLE * rows
        return self.cores > 0 and rows >= (ROWS_EVEN if even else ROWS_EACH) * self.cores

    def _for_groups(self, op: Contraction, each: int, rows: bool) -> int:
        """Chunks that give each unit several groups: where half of the units had none, and of long columns in few groups."""
        groups = op.type.size if rows else -(-op.type.size // STRETCH)
        beside = 1 if rows else min(LEAST_STRETCH, op.type.size)
        few = 2 * groups < self.units
        worth = (JOINED_WORTH if self.joined else WORTH) * (2 if few else 3) // 2
        if beside * each <= worth if len(op.loads) == 1 else op.type.size * each < PRODUCT_WORTH:
            return 0
        if len(op.loads) > 1 and op.type.size > self.max_outputs:
            return 0
        if not few and (rows or len(op.loads) > 1 or groups >= FEW_GROUPS * self.units):
            return 0
        wanted = (2 if few else 4) * GROUPS_EACH * self.units // groups
        return min(wanted, each // (GROUP_POINTS if rows else GROUP_POINTS // STRETCH))


def _walked(program: Program, dtypes: Set[DType]) -> frozenset[str]:
    """The largest elements of rows, and the sums of weights below them, one of which is a product with one of these dtypes."""
    ops = {op.name: op for op in program.ops if dtypes and isinstance(op, Contraction)}
    types, found = program.types(), set[str]()
    for weights in (op for op in ops.values() if op.agg is Aggregation.ASSIGN):
        pivots = {n for n in _loaded(weights) if n in ops and ops[n].agg is Aggregation.MAX}
        sums = {n: _loaded(op) - {weights.name} for n, op in ops.items() if weights.name in _loaded(op)}
        if pivots and any(types[n].dtype in dtypes for others in sums.values() for n in others):
            found |= pivots | {*sums}
    return frozenset(found)


def _loaded(op: Contraction) -> set[str]:
    return {load.tensor for load in op.loads if isinstance(load.tensor, str)}


def covering(op: Contraction, sets: Sets) -> FlatDomain | None:
    """The domain when it is not empty and writes every cell; None else, or when it is an error."""
    try:
        domain = analyze(op, sets)
    except TileTypeError:  # reported with the other errors by the translation
        return None
    if domain.empty or uncovered(domain, op.type.shape, sets) != ():
        return None
    return domain


def _is_narrow(op: Contraction, domain: FlatDomain, types: Mapping[str, TensorType]) -> bool:
    """A product's cells make too few tiles, or lie in too few runs, for processors to share."""
    ranges = domain.extents
    outputs = names_in(domain.output)
    moved = [names_in(access) for access in domain.accesses]
    if domain.constraints or prod(ranges[n] for n in outputs.intersection(*moved)) >= APART:
        return False
    used = sorted(prod(ranges[n] for n in outputs - names) for names in moved)
    if used[0] == 1:
        return op.type.size <= FEW_RUNS and not reduces_along_memory(op, domain, types, outputs)
    tiles = prod(-(-n // size) for n, size in zip((used[0], used[-1]), REGISTER_TILE, strict=True))
    return used[-1] <= FEW_COLUMNS and tiles < FEW_TILES


def _elements_read(op: Contraction, domain: FlatDomain, types: Mapping[str, TensorType]) -> int:
    """Elements of all operands, each counted once."""
    ranges = domain.extents
    boxes = [prod(ranges[n] for n in names_in(access)) for access in domain.accesses]
    sizes = [types[load.tensor].size for load in op.loads if isinstance(load.tensor, str)]
    return min(sum(boxes), sum(sizes))


def reduces_along_memory(
    op: Contraction,
    domain: FlatDomain,
    types: Mapping[str, TensorType],
    moved: Collection[str] = (),
    only: TensorLoad | None = None,
) -> bool:
    """Some operand, or that of one load, is read with stride 1 along a reduced index; of those that an index in `moved` moves, if any."""
    outputs = names_in(domain.output)
    for load, access in zip(op.loads, domain.accesses, strict=True):
        names = names_in(access)
        if only is not None and load is not only:
            continue
        if isinstance(load.tensor, str) and (not moved or names.intersection(moved)):
            steps, _ = domain.strides(access, types[load.tensor].shape)
            if any(abs(s) == 1 and n not in outputs for n, s in zip(domain.names, steps, strict=True)):
                return True
    return False


def _most_is_along_memory(op: Contraction, domain: FlatDomain, types: Mapping[str, TensorType]) -> bool:
    """The operand of the most elements is read with stride 1 along a reduced index."""
    read = [
        (prod(domain.extents[n] for n in names_in(access)), load)
        for load, access in zip(op.loads, domain.accesses, strict=True)
    ]
    largest = max(read, key=lambda found: found[0])[1]
    return reduces_along_memory(op, domain, types, only=largest)


def rows_around(op: Contraction, domain: FlatDomain, types: Mapping[str, TensorType]) -> int:
    """Cells that are sums along memory, or runs of neighbours that such sums have in between."""
    if reduces_along_memory(op, domain, types):
        return op.type.size
    outputs = names_in(domain.output)
    found = 1
    for load, access in zip(op.loads, domain.accesses, strict=True):
        if isinstance(load.tensor, str):
            steps = dict(zip(domain.names, map(abs, domain.strides(access, types[load.tensor].shape)[0]), strict=True))
            reach = max((s for n, s in steps.items() if n not in outputs), default=0)
            found = prod(domain.extents[n] for n in outputs if steps[n] > reach)
    return found


def chunk_sizes(domain: FlatDomain, order: list[str], wanted: int, more: bool = False) -> dict[str, int]:
    """Iterations per chunk of reduction indexes: the first of them, and others where it is too short.

    There are at most `wanted` chunks of all indexes together, or with `more` about so many or more.
    """
    sizes: dict[str, int] = {}
    ranges = domain.extents
    for index in order:
        if wanted < 2:
            break
        sizes[index] = chunk_size(ranges[index], min(wanted, ranges[index]), more)
        count = -(-ranges[index] // sizes[index])
        wanted = round(wanted / count) if more else wanted // count
    return sizes


def reductions(op: Contraction, domain: FlatDomain, types: Mapping[str, TensorType], enough: int) -> list[str]:
    """Reduction indexes, those with `enough` iterations first, of them those with the largest stride.

    Where chunks are many, those of an index along memory are runs of at least `RUN` neighbours.
    """
    outputs = names_in(domain.output)
    tied = names_in(domain.constraints)
    ranges = {n: r for n, r in domain.extents.items() if n not in outputs | tied and r > 1}
    reach: dict[str, int] = dict.fromkeys(ranges, 0)
    for load, access in zip(op.loads, domain.accesses, strict=True):
        if isinstance(load.tensor, str):
            steps, _ = domain.strides(access, types[load.tensor].shape)
            for name, step in zip(domain.names, steps, strict=True):
                if name in reach:
                    reach[name] = max(reach[name], abs(step))
    runs = {n: r // RUN if enough > 1 and reach[n] == 1 else r for n, r in ranges.items()}
    return sorted(ranges, key=lambda n: (min(runs[n], enough), reach[n], n), reverse=True)


def chunk_size(extent: int, wanted: int, more: bool) -> int:
    """Iterations per chunk, of `wanted` chunks or up to half as many: those whose last chunk lacks least.

    With `more`, of `wanted` chunks or up to twice as many: the first whose last chunk lacks little.
    """
    if not more:
        return min((-(-extent // count) for count in range(wanted, wanted // 2, -1)), key=lambda size: -extent % size)
    sizes = [-(-extent // count) for count in range(wanted, min(2 * wanted, extent + 1))]
    little = (size for size in sizes if -extent % size <= size // 8)
    return next(little, min(sizes, key=lambda size: -extent % size))


@dataclass(frozen=True, slots=True)
class Cut:
    """An index as ``each * kept + apart * gone``: partial results by the first, aggregated over the second."""

    kept: int
    each: int
    gone: int
    apart: int

    @staticmethod
    def chunks(extent: int, size: int) -> Cut:
        """A result for each run of `size` iterations."""
        return Cut(-(-extent // size), size, size, 1)

    @staticmethod
    def rounds(extent: int, count: int) -> Cut:
        """`count` results that take iterations in turn."""
        return Cut(count, 1, -(-extent // count), count)


def partial(op: Contraction, domain: FlatDomain, sizes: dict[str, int], name: str) -> tuple[Contraction, Contraction]:
    """Partial results per chunk of the indexes in `sizes`, then their aggregate."""
    cuts = {index: Cut.chunks(domain.extents[index], size) for index, size in sizes.items()}
    return partial_results(op, domain, cuts, name, 0)


def partial_results(
    op: Contraction, domain: FlatDomain, cuts: Mapping[str, Cut], name: str, at: int
) -> tuple[Contraction, Contraction]:
    """Partial results of `op` as `cuts` say, in dimensions of their own before dimension `at`; then their aggregate."""
    extents = domain.extents
    parts = {index: part_names(index, domain) for index in cuts}
    ranges = {n: r for n, r in extents.items() if n not in cuts}
    for index, cut in cuts.items():
        ranges |= {parts[index][0]: cut.kept, parts[index][1]: cut.gone}
    values = {n: Affine.var(n) if r > 1 else Affine() for n, r in ranges.items()}
    numbers = tuple(values[parts[index][0]] for index in cuts)
    split = {n: values[parts[n][0]] * c.each + values[parts[n][1]] * c.apart for n, c in cuts.items()}

    def form(affine: Affine) -> Poly:
        return poly(affine.substitute(values | split))

    limits = [Constraint(Poly.of({n: 1}), r, op.origin) for n, r in ranges.items() if r > 1]
    bounds = intervals(extents)
    limits += [Constraint(form(c), c.bounds(bounds)[1] + 1, op.origin) for c in domain.constraints]
    uneven = (n for n, c in cuts.items() if c.kept * c.gone != extents[n])
    limits += [Constraint(form(Affine.var(n)), extents[n], op.origin) for n in uneven]
    kept, output = tuple(c.kept for c in cuts.values()), tuple(form(f) for f in domain.output)
    shape = op.type.shape
    first = replace(
        op,
        name=name,
        type=TensorType(op.acc, (*shape[:at], *kept, *shape[at:])),
        indexes=tuple(sorted(n for n, r in ranges.items() if r > 1)),
        output=(*output[:at], *map(poly, numbers), *output[at:]),
        constraints=tuple(limits),
        loads=tuple(
            replace(load, formulas=tuple(form(f) for f in access))
            for load, access in zip(op.loads, domain.accesses, strict=True)
        ),
        default=None,
        no_defract=True,
    )
    return first, combine(op, name, kept, at)


def combine(op: Contraction, partial: str, chunks: tuple[int, ...], at: int = 0) -> Contraction:
    """``op.name[d0, …] = agg(partial[c, d0, …])``, the chunks in dimensions before dimension `at`."""
    cells = tuple(Poly.of({f"d{k}": 1}) for k in range(len(op.type.shape)))
    chosen = tuple(Poly.of({name: 1}) for name in chunk_indexes(len(chunks)))
    everywhere = (*cells[:at], *chosen, *cells[at:])
    sizes = (*op.type.shape[:at], *chunks, *op.type.shape[at:])
    return replace(
        op,
        indexes=tuple(sorted(f.names[0] for f in everywhere)),
        output=cells,
        constraints=tuple(Constraint(f, s, op.origin) for f, s in zip(everywhere, sizes, strict=True)),
        loads=(TensorLoad(PARTIAL, partial, everywhere),),
        body=(),
        result=PARTIAL,
        default=None,
        no_defract=True,
    )


def chunk_indexes(count: int) -> list[str]:
    """Indexes over the chunks, where they are combined."""
    return ["c"] if count == 1 else [f"c{k}" for k in range(count)]


def part_names(index: str, domain: FlatDomain) -> tuple[str, str]:
    """What an index becomes that is cut: chunks, and iterations within them."""
    return fresh(f"{index}_chunk", domain.names), index
