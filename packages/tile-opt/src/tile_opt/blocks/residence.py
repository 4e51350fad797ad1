"""Views that stay in their memory bank while the iterations of a block go round the banks.

Iteration t of B banks works in bank t mod B. A view that does not name the inner loops is the same for a run of
iterations: each bank needs it once per run, and the far memory need give it to one bank only where the machine has
a faster way from bank to bank.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from math import prod

from tile_ir.frozen import frozen
from tile_ir.hardware import HardwareModel, Port
from tile_ir.stripe.affine import Affine, DivMod, DivModOp, Quasi, names_in
from tile_ir.stripe.nodes import Block, Direction, Index, Init, Order, Refinement, number_of

from tile_opt.kernel.work import nbytes

MAX_LOOPS = 5
"""Loops whose every order is tried."""


@frozen
class Links:
    """The ways into one of `banks` banks."""

    banks: int = 1
    between: str = ""
    """The transfer unit from bank to bank; none when empty."""
    near: float = 1.0
    """The time of a byte on it, where one from far memory takes 1."""


@frozen
class Residence:
    """How a view stays: in runs of `run` turns of the banks' `turns`, each with the same contents."""

    run: int
    turns: int
    runs: int
    within: Affine
    """The turn's number in its run; the first one has the view from far memory."""
    copy: Quasi
    """The copy that an iteration uses; its bank is this number modulo the banks."""
    first: Quasi
    """The copy that the first turn of the run filled."""
    copies: int
    """Copies per bank."""

    @property
    def fills(self) -> int:
        """Copies that get the view, over all runs."""
        return self.runs * min(self.run, self.turns)

    def cost(self, links: Links) -> float:
        """What a byte of the view costs over all iterations."""
        return self.runs + (self.fills - self.runs) * links.near if links.between else self.fills

    def load_guard(self, links: Links) -> tuple[Affine, ...]:
        """Where the view comes from far memory."""
        return (self.within * -1 + (0 if links.between else self.turns - 1),)

    def pass_guard(self) -> tuple[Affine, ...]:
        """Where the bank has it from the bank of the run's first turn."""
        last = (self.within * -1 + (self.turns - 1),) if self.run > self.turns else ()
        return (self.within - 1, *last)


@frozen
class LoopOrder:
    """An order of a block's loops, and the operands that stay."""

    block: Block
    residences: Mapping[str, Residence]


def links_of(model: HardwareModel | None, far: str, mem: str, xfer: str, banks: int) -> Links | None:
    """The ways into the banks, the one between them if it is the faster one; None when the memory has not just these banks."""
    if model is None:
        return Links(banks)
    if model.count(mem) != banks:
        return None
    ports = [(mem, number) for number in range(banks)]
    slow = _slowest(model, [(far, 0)], xfer, ports)
    if slow is None:
        return Links(banks)
    rates = {unit: _slowest(model, ports, unit, ports) for unit in model.tx_units if unit != xfer}
    unit = max(rates, key=lambda name: rates[name] or 0, default="")
    fast = rates.get(unit) or 0
    return Links(banks, unit, slow / fast) if fast > slow and banks > 1 else Links(banks)


def _slowest(model: HardwareModel, sources: Sequence[Port], unit: str, sinks: Sequence[Port]) -> int | None:
    """Bytes per cycle of the slowest bus from any source through any such transfer unit to any sink; None without a way."""
    stops = [(unit, number) for number in range(model.count(unit))]
    ways = [model.path(a, b) for stop in stops for a, b in (*((s, stop) for s in sources), *((stop, s) for s in sinks))]
    rates = [model.buses[bus].bytes_per_cycle for way in ways for bus in way or ()]
    return min(rates) if rates and all(ways) else None


def candidates(block: Block, parents: Sequence[Block], names: Sequence[str]) -> list[str]:
    """Those of the block's read-only views that no iteration changes, when its iterations can run in any order."""
    loops = _loops(block)
    if block.constraints or any(i.order is not Order.FREE for i in loops) or not _can_wrap(block, parents):
        return []
    written = {_root(r, parents) for r in block.refs if r.source and r.dir is not Direction.IN}
    own = {i.name for i in block.indexes}
    return [
        r.into for r in block.refs
        if r.into in names and r.dir is Direction.IN and _root(r, parents) not in written
        and all(isinstance(f, Affine) and own.issuperset(f.names) for f in r.access)
    ]  # fmt: skip


def loop_orders(block: Block, names: Sequence[str], links: Links, depth: int) -> Iterator[LoopOrder]:
    """What may stay, the most at first; each time in the order of loops that moves the least."""
    while names:
        plan = best_order(block, names, links, depth)
        if not plan.residences:
            return
        yield plan
        points = prod(i.range for i in _loops(block))
        gains = {n: (points - s.cost(links)) * nbytes(block.ref(n).type) for n, s in plan.residences.items()}
        names = sorted(gains, key=lambda n: gains[n], reverse=True)[:-1]


def best_order(block: Block, names: Sequence[str], links: Links, depth: int) -> LoopOrder:
    """The order of the loops in which the named views cost the least; the block's own where none is better."""
    loops = _loops(block)
    rest = tuple(i for i in block.indexes if i.value is not None)
    orders = permutations(loops) if len(loops) <= MAX_LOOPS else iter([loops])
    found: tuple[float, LoopOrder] | None = None
    for order in orders:
        residences = {n: s for n in names if (s := residence(block.ref(n), order, links, depth)) is not None}
        points = prod(i.range for i in order)
        cost = sum(
            (residences[n].cost(links) if n in residences else points) * nbytes(block.ref(n).type) for n in names
        )
        if found is None or cost < found[0]:
            found = cost, LoopOrder(replace(block, indexes=(*rest, *order)), residences)
    assert found is not None
    return found[1]


def residence(ref: Refinement, loops: Sequence[Index], links: Links, depth: int) -> Residence | None:
    """How a view stays when the loops run in this order; None when every iteration needs it from far memory."""
    named = names_in(ref.access)
    inner = _decided_by_the_bank(loops, named, links.banks)
    step = prod(i.range for i in loops[inner:])
    turns = links.banks // step
    outer = inner
    while outer and loops[outer - 1].name not in named:
        outer -= 1
    run = prod(i.range for i in loops[outer:inner])
    if run <= (1 if links.between and turns > 1 else turns):
        return None
    within, runs = number_of(loops[outer:inner]), prod(i.range for i in loops[:outer])
    time, turn = number_of(loops), number_of(loops[:outer])
    start = time - within * step
    if run <= turns:
        # A bank does not see every run: counting its iterations takes its copies in turn.
        return Residence(run, turns, runs * step, within, time, start, depth)
    own, first = (_in_bank(form, links.banks, turn) for form in (time, start))
    return Residence(run, turns, runs * step, within, own, first, depth if runs > 1 else 1)


def _decided_by_the_bank(loops: Sequence[Index], named: set[str], banks: int) -> int:
    """How many outer loops there are besides inner ones whose values are the same whenever a bank has its turn again."""
    found, size, inner = len(loops), 1, len(loops)
    while inner and banks % (size * loops[inner - 1].range) == 0:
        inner -= 1
        size *= loops[inner].range
        found = inner if loops[inner].name in named else found
    return found


def _in_bank(time: Affine, banks: int, turn: Affine) -> Quasi:
    """Copy number `turn` of the bank of an iteration."""
    return DivMod(time, banks, DivModOp.MOD, 1, turn * banks) if banks > 1 and time.terms else turn * banks + time.const


def _loops(block: Block) -> tuple[Index, ...]:
    return tuple(i for i in block.indexes if i.value is None)


# --- where the copies live ---------------------------------------------------------------------------


def view_of(home: Refinement, name: str, copy: Quasi, direction: Direction) -> Refinement:
    """One copy of an allocation, as an iteration sees it."""
    zeros = (Affine(),) * len(home.type.sizes)
    access = (copy, *zeros) if home.versions > 1 else zeros
    return Refinement(direction, name, home.into, access, home.type, loc=home.loc)


def wrapped(block: Block, parents: Sequence[Block], homes: Sequence[Refinement]) -> Block:
    """The block in one that owns what its iterations, from now on one after another, leave to each other."""
    used = {
        r.source: _whole(parents[-1].ref(r.source), block)
        for r in block.refs
        if r.source not in {h.into for h in homes} and r.source
    }
    passed = tuple(i for i in block.indexes if i.value is not None)
    indexes = tuple(
        replace(i, value=Affine.var(i.name)) if i.value is not None else replace(i, order=Order.ORDERED)
        for i in block.indexes
    )
    inside = replace(block, indexes=indexes, guard=(), deps=())
    tags = block.tags & {"kernel"} | {"resident"}
    refs = (*used.values(), *homes)
    return Block(block.name, passed, guard=block.guard, refs=refs, body=(inside,), tags=tags, deps=block.deps)


def _whole(source: Refinement, block: Block) -> Refinement:
    """All of a buffer of the enclosing block, for every view that the block has of it."""
    views = [r.dir for r in block.refs if r.source == source.into]
    direction = views[0] if len(set(views)) == 1 else Direction.INOUT
    zeros = (Affine(),) * len(source.type.sizes)
    return Refinement(
        direction, source.into, source.into, zeros, source.type, loc=source.loc, const=source.const, hint=source.hint
    )


def _can_wrap(block: Block, parents: Sequence[Block]) -> bool:
    if not parents:
        return False
    own = {i.name for i in block.indexes}
    if block.loc is not None and any(not own.issuperset(f.names) for f in block.loc.at):
        return False
    around = {r.into: r for r in parents[-1].refs}
    sources = [around[r.source] for r in block.refs if r.source]
    return all(s.versions == 1 and s.agg is None and s.init is Init.KEEP for s in sources)


def _root(ref: Refinement, parents: Sequence[Block]) -> tuple[int, str]:
    """The allocation behind a view: the depth of its block, and its name."""
    for depth in range(len(parents) - 1, -1, -1):
        if ref.dir is Direction.ALLOC:
            return depth + 1, ref.into
        ref = parents[depth].ref(ref.source)
    return 0, ref.into
