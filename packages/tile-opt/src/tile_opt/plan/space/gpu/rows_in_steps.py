"""Plans for kernels over rows that are walked piece by piece (`kernel.rows_in_steps`), on graphics processors.

A group has as many rows as its memory and its items' registers hold; items lie along rows and along what both products
give of a row, four neighbours each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product, starmap
from math import prod

from tile_ir.stripe.nodes import Bind, Scope
from tile_ir.target import Target

from tile_opt.kernel.rows_in_steps import LEAST, RowsInSteps, rows_in_steps, shared_by
from tile_opt.kernel.strides import flat_stride
from tile_opt.kernel.unrounded import unrounded
from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.model.estimate import estimate
from tile_opt.plan.builders.row_fragments import RowFragments
from tile_opt.plan.builders.row_parts import RowParts
from tile_opt.plan.builders.row_products import RowProducts
from tile_opt.plan.builders.rows_in_steps import build_rows_in_steps, local_bytes
from tile_opt.plan.builders.shared_rows import shared_rows
from tile_opt.plan.plan import Across, Cover, Level, Plan, Reduction, Staging
from tile_opt.plan.space.tensor.rows_in_steps import fetching
from tile_opt.plan.space.tensor.rows_in_steps import plans as tensor_plans
from tile_opt.plan.space.tensor.rows_in_steps import rate as tensor_rate
from tile_opt.plan.space.tensor.rows_in_steps import seconds as tensor_seconds

LANES = 4
"""Elements of a vector, and of the pieces in which items take turns."""
TALL = (8, 4)
"""Rows of an item."""
SCORES = (8, 4)
"""Scores of an item, for each of its rows."""
WIDE = (16, 8)
"""Items along a row."""
HIGH = 16
"""Items along rows."""
SUBGROUP = 32
ACROSS = 8
"""Lanes of a sub-group along a row."""
CELLS = 128
"""Scores and results that an item has in registers."""
LOADS = 4
"""Times longer that loading an element from local memory takes than multiplying it."""
ALONE = 0.72
"""Share of the peak that a large product reaches in a kernel of its own: the median of those measured."""
PARTS = 3
"""Kernels without which a chain of two products is not done."""
DEPTH = 16
VERSIONS = (2, 1)
"""Of local copies: the next step is copied while one is computed."""
STEPS = 4
"""The level whose points bring operands into local memory."""


def plans(view: KernelView, target: Target) -> Iterator[Plan]:
    """Plans for a kernel over rows, best first; none for kernels of other classes."""
    kinds = _kinds(view, target)
    if kinds is not None:
        yield from _plans(kinds, target)


def _kinds(view: KernelView, target: Target) -> RowsInSteps | None:
    return rows_in_steps(view) if target.machine.is_gpu and not target.settings.use_global else None


def _plans(kinds: RowsInSteps, target: Target) -> Iterator[Plan]:
    row = _row(kinds)
    if row is None:
        return
    fits = (p for p in tensor_plans(kinds, row, target) if _fits(parts_of(kinds, p, target), target))
    found = next(fits, None)
    if found is not None:
        yield found
        yield from fits
    elif _is_plain(kinds, target) and len(kinds.products) == LEAST:
        yield from _item_plans(kinds, row, target)


def _fits(parts: RowParts, target: Target) -> bool:
    """Groups have room for the plan; False where it cannot be built."""
    try:
        suits = not isinstance(parts, RowFragments) or parts.suits_teams
        return suits and local_bytes(parts) <= _room(target)
    except ValueError:
        return False


def parts_of(kinds: RowsInSteps, plan: Plan, target: Target) -> RowParts:
    """What a plan says of both products."""
    if plan.instruction is None:
        return RowProducts(kinds, plan)
    collective = "MatrixLoad" in target.nodes
    shared = shared_rows(kinds, plan)
    if shared is None:
        return RowFragments(unrounded(kinds), plan, collective=collective)
    return RowFragments(shared.partial, shared.plan(plan), shared.share, collective)


def _item_plans(kinds: RowsInSteps, row: str, target: Target) -> Iterator[Plan]:
    """Plans for products that items multiply one by one."""
    room = _room(target)
    space = _Space(kinds, row, target.machine.cores)
    for items in space.ranked(target.settings.threads):
        made = (space.plan(items, versions) for versions in VERSIONS)
        fits = next((p for p in made if local_bytes(RowProducts(kinds, p)) <= room), None)
        yield from () if fits is None else (fits,)


def _room(target: Target) -> int:
    """Bytes of local memory that a group may have: all but the driver's share, where kernels may declare more than is reported."""
    local = target.machine.local
    return (
        local.bytes * 31 // 32 if local is not None and target.settings.static_local_bytes else target.settings.max_mem
    )


def weighed(view: KernelView, target: Target) -> tuple[float, float] | None:
    """Seconds that the kernel is expected to take, and those of its parts as kernels of their own; None where it has no plan."""
    kinds = _kinds(view, target)
    plan = None if kinds is None else next(_plans(kinds, target), None)
    if kinds is None or plan is None:
        return None
    apart = _apart(kinds, plan, target)
    if plan.instruction is not None:
        return tensor_seconds(kinds, plan, target), apart
    return estimate(build_rows_in_steps(parts_of(kinds, plan, target)), target).seconds, apart


def _apart(kinds: RowsInSteps, plan: Plan, target: Target) -> float:
    """Products by themselves, and rows of scores and weights through memory."""
    view, machine = kinds.view, target.machine
    each = machine.ports.fma * SUBGROUP if plan.instruction is None else tensor_rate(plan.instruction.name, machine)
    rate = machine.cores * machine.clock_ghz * 1e9 * each * ALONE
    rows = prod(i.range for i in view.loops)
    products = rows * sum(prod(i.range for i in view.stages[k].loops) for k in kinds.products)
    width = sum(view.type_of(u.buffer).dtype.bytes for u in _ends(kinds))
    passes = 2 * rows * view.ranges[kinds.row] * width / (machine.memory.all_cores.read * 1e9)
    launches = (PARTS + len(kinds.products) - LEAST) * machine.launch.kernel
    return max(products / rate, fetching(kinds, machine)) + passes + launches


def _ends(kinds: RowsInSteps) -> Iterator[Use]:
    """What the first products give of a row, and what the last takes."""
    for number, writes in (*((k, True) for k in kinds.firsts), *((k, False) for k in kinds.lasts)):
        yield from (u for u in kinds.view.stages[number].uses if u.buffer in kinds.wide and u.writes is writes)


def _is_plain(kinds: RowsInSteps, target: Target) -> bool:
    """The products are of numbers that items multiply one by one: matrix instructions, where they may be used, are faster."""
    operands = (u for k in kinds.products for u in kinds.operands(k))
    wide = all(kinds.view.type_of(u.buffer).dtype.bytes >= 4 for u in operands)
    return wide and not (target.matrix and target.options.reduced_precision)


def _row(kinds: RowsInSteps) -> str | None:
    """The longest shared loop whose iterations take the same operands from memory."""
    firsts, values = ([kinds.operands(k) for k in ks] for ks in (kinds.firsts, kinds.lasts))
    along = [
        [u for u in f if any(kinds.pieces[k] in form.names for form in u.forms)]
        for k, f in zip(kinds.firsts, firsts, strict=True)
    ]
    if {len(f) for f in firsts} != {2} or {len(f) for f in (*along, *values)} != {1}:
        return None
    common = [shared_by(use, kinds.view) for (use,) in (*along, *values)]
    found = [i for i in kinds.view.loops if all(i.name in names for names in common)]
    return max(found, key=lambda i: i.range).name if found else None


@dataclass(frozen=True, slots=True)
class _Items:
    """Items along a row, and rows of each."""

    wide: int
    tall: int
    scores: int
    """Of an item, for each of its rows."""

    @property
    def rows(self) -> int:
        """Of a group."""
        return HIGH * self.tall

    @property
    def piece(self) -> int:
        """Scores of a row in one piece."""
        return self.wide * self.scores

    def each(self, columns: int) -> int:
        """Values of an item, along a row."""
        return -(-columns // (self.wide * LANES)) * LANES


@dataclass(frozen=True)
class _Space:
    kinds: RowsInSteps
    row: str
    cores: int

    @property
    def column(self) -> str:
        """The loop over values: there is one product of either kind."""
        return self.kinds.columns[self.kinds.lasts[0]]

    def ranked(self, threads: int) -> list[_Items]:
        """Those whose cells fit registers, best first: by loads for each product, and by cores that have nothing to do."""
        columns = self.kinds.view.ranges[self.column]
        made = starmap(_Items, product(WIDE, TALL, SCORES))
        fit = [i for i in made if i.wide * HIGH <= threads and i.tall * (i.scores + i.each(columns)) <= CELLS]
        return sorted(fit, key=self._time)

    def _time(self, items: _Items) -> float:
        """In proportion to what a run takes."""
        kinds, ranges = self.kinds, self.kinds.view.ranges
        columns = ranges[self.column]
        groups = prod(-(-i.range // (items.rows if i.name == self.row else 1)) for i in kinds.view.loops)
        turns = -(-groups // self.cores)
        scores = ranges[self._depth(kinds.firsts[0])] * (1 + LOADS * (1 / items.tall + 1 / items.scores))
        each = items.each(columns)
        values = each * items.wide * (1 + LOADS * (1 / items.tall + 1 / each))
        return turns * items.rows * (scores + values)

    def plan(self, items: _Items, versions: int) -> Plan:
        """The plan with these items; operands are copied `versions` at once."""
        kinds, ranges = self.kinds, self.kinds.view.ranges
        wide, tall, piece, each = items.wide, items.tall, items.piece, items.each(ranges[self.column])
        lanes = min(wide, ACROSS)
        part = {kinds.row: items.scores, self.column: each}
        depths = tuple(map(self._depth, kinds.products))
        serial = [Cover(n, min(DEPTH, ranges[n])) for n in depths]
        grid = [Cover(i.name, 1) for i in kinds.view.loops if i.name != self.row]
        levels = (
            Level(Bind.GRID, (*grid, Cover(self.row, items.rows), Cover(self.column, each * wide))),
            Level(Bind.NONE, (Cover(kinds.row, piece),), ordered=True),
            Level(
                Bind.GROUP, (Cover(self.row, SUBGROUP // lanes * tall), *(Cover(n, lanes * p) for n, p in part.items()))
            ),
            Level(Bind.GROUP, (Cover(self.row, tall, LANES), *(Cover(n, p, LANES) for n, p in part.items()))),
            Level(Bind.NONE, tuple(serial), ordered=True),
            Level(Bind.UNROLL, (*(Cover(n, 1) for n in depths), Cover(self.row, 1))),
            Level(Bind.VECTOR, tuple(Cover(n, 1) for n in part), LANES),
        )
        stagings = tuple(s for k in kinds.products for s in self._staged(k, versions))
        reductions = tuple(Reduction(n, Across.SERIAL) for n in depths)
        reason = f"rows in pieces of {piece}, {items.rows} rows to a group of {HIGH * wide} items with {tall} x {each} results"
        return Plan(levels, stagings, reductions, reason=reason)

    def _depth(self, number: int) -> str:
        """The loop that a product sums over; of several, the last."""
        kinds = self.kinds
        if number in kinds.lasts:
            return kinds.pieces[number]
        return [n for n in kinds.view.stages[number].loop_names if n != kinds.row][-1]

    def _staged(self, number: int, versions: int) -> Iterator[Staging]:
        stage, depth = self.kinds.view.stages[number], self._depth(number)
        for use in self.kinds.operands(number):
            order = self._order(stage, use, depth)
            turned = flat_stride(self.kinds.view, use, depth) == 1
            yield Staging(use.buffer, STEPS, "LOCAL", order, Scope.GROUP, pad=LANES if turned else 0, versions=versions)
            yield Staging(use.buffer, STEPS, "REG")

    def _order(self, stage: Stage, use: Use, depth: str) -> tuple[str, ...]:
        """The depth outermost, what items lie along innermost."""
        last = {self.row, self.kinds.row, self.column} - {depth}
        names = [n for f in use.forms for n in f.names]
        middle = [n for n in names if n != depth and n not in last]
        return (depth, *middle, *(n for n in names if n in last))
