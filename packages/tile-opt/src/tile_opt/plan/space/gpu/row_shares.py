"""How the items of a group share the loops of a kernel that memory bounds: items, lanes and steps along each loop."""

from __future__ import annotations

from collections.abc import Set
from functools import cached_property
from math import prod

from tile_ir.powers import power_of_two
from tile_ir.stripe.affine import names_in
from tile_ir.stripe.nodes import Bind, Scope
from tile_ir.target import Target

from tile_opt.kernel.view import Use
from tile_opt.model.contraction import SECTOR
from tile_opt.plan.plan import Cover, Level, Plan, Staging
from tile_opt.plan.space.facts import Facts
from tile_opt.plan.space.gpu.shares import Share, reduction
from tile_opt.plan.steps.keep import shared_row

KEPT = 64
"""Elements of four bytes of each row that an item keeps in registers."""
MANY = 56
"""The same of an item of more than `KEEPING`: a softmax of rows of 53000 takes 0.7 of the time of two kernels."""
KEEPING = 512
"""Items of a group that may each have so many registers."""
FEW_STEPS = 8
"""Accesses of an item that are straight-line code."""
WINDOW = 32
"""Points of small loops that are straight-line code together."""
IDLE = 0.15
"""Share of an item's steps that may lie beyond the end of its loop."""
STORED, READ = 4, 16
"""Times as many elements as items that take what memory gives at once, up to which half of these share a row: of rows that
are stored, in pieces that begin anywhere, and of rows that are only read."""
LONG = 64
"""Times as many iterations as items, from which those that come out even do not matter."""
WORD = 4
"""Bytes of a register."""
FULL = 0.85
"""Share of items at work from which the rest does not matter."""
BUSY = 1024
"""Items that keep a compute unit busy."""


class RowShares:
    """The facts of one kernel and device, and the shares that follow from them: what its plans are put together from."""

    def __init__(self, facts: Facts, target: Target, staged: bool) -> None:
        self.facts = facts
        self.settings = settings = target.settings
        occupancy = target.machine.occupancy
        self.most_items = max(settings.threads, occupancy.group_items if occupancy else 0)
        self.staged = staged
        self.busy = BUSY * settings.cores
        self.along = facts.along
        self.most = 4 * settings.vec_size
        """Bytes of an access."""
        self.wide = facts.lanes(self.along, self.most) if self.along else 1
        self.machine = target.machine

    def _least_items(self, loop: str) -> int:
        """Items that take what memory gives at once, a word each or more; neighbouring rows share that where they are short."""
        least, extent = max(1, SECTOR // max(WORD, self.wide * self._narrowest())), self.facts.extent(loop)
        if self.wide == 1 and extent <= least * (STORED if self._stores(loop) else READ):
            return least // 2
        return least if extent > 2 * least * self.wide else max(1, min(least, SECTOR // (self.wide * WORD)))

    def _stores(self, loop: str) -> bool:
        """Elements along the loop are stored."""
        return any(u.writes and loop in names_in(u.forms) for _, u in self.facts.accesses)

    def _bytes(self, buffer: str) -> int:
        return self.facts.view.type_of(buffer).dtype.bytes

    def _row_items(self, length: int, kept: bool) -> int:
        """Items for a row: where it is read several times, as many as keep it, or the most, so that fewer rows fill the cache.

        Few rows need more items, too.
        """
        threads, whole = self.settings.threads, length * self._words()
        few = self.facts.iterations() < 2 * self.settings.cores
        while threads < self.most_items and (kept or few) and whole > threads * KEPT:
            threads *= 2
        return threads

    def _words(self) -> int:
        """Registers of an element."""
        return max(1, self._widest() // 4)

    def _items(self, loop: str, lanes: int, most: int, least: int = 1) -> int:
        """Items along the loop, a power of two: less than `most` where they then divide it, or few of them idle."""
        extent = -(-self.facts.extent(loop) // lanes)
        most = min(power_of_two(most), power_of_two(extent))
        found = [n for n in (most, most // 2, most // 4, most // 8) if n >= min(least, most)]
        exact = next((n for n in found[:2] if extent % n == 0 and extent <= LONG * most), 0)
        return exact or max(found, key=lambda n: min(FULL, extent / (n * -(-extent // n))))

    def _widest(self) -> int:
        return max((self.facts.bytes(u) for _, u in self.facts.accesses), default=4)

    def _narrowest(self) -> int:
        return min((self.facts.bytes(u) for _, u in self.facts.accesses), default=4)

    def _others(self, room: int) -> list[Share]:
        """Shared loops, innermost first, get the items that are left, as far as every compute unit has a group."""
        shares: list[Share] = []
        groups = self.facts.iterations()
        for loop in reversed(self.facts.shared):
            items = 1
            while items < min(room, self.facts.extent(loop)) and groups // 2 >= 2 * self.settings.cores:
                items, groups = items * 2, groups // 2
            room //= items
            shares.append(Share(loop, items))
        return shares

    def _even(self, loop: str, lanes: int, steps: int) -> int:
        """About so many steps of an item: as many as leave the fewest items without any, where a few groups have the loop."""
        extent, threads = -(-self.facts.extent(loop) // lanes), self.settings.threads

        def idle(each: int) -> int:
            span = each * min(threads, power_of_two(-(-extent // each)))
            return -(-extent // span) * span

        if steps == 1 or idle(steps) <= extent * (1 + IDLE):
            return steps
        return min((n for n in range(steps - 1, 2 * steps) if n > 1), key=idle)

    def _kept(self, loops: frozenset[str]) -> tuple[str, ...]:
        """Rows that an item can keep its part of: the kernel's own, and what several stages read of memory."""
        view = self.facts.view
        moved = [b for b in sorted(view.reads() - view.writes()) if moves(self.facts, b, loops)]
        own = (r for r in self.facts.rows(loops) if self.facts.outlives(r))
        return (*own, *(b for b in moved if shared_row(view, b) is not None))

    def _kept_beside(self, shared: frozenset[str], kept: tuple[str, ...]) -> int:
        """Iterations of own loops that each item runs for itself, for each of which it keeps its part of a row."""
        left = [n for n in self._left(shared) if any(moves(self.facts, b, frozenset((n,))) for b in kept)]
        return prod(map(self.facts.extent, left))

    def _steps(self, loop: str, items: int, lanes: int) -> Share:
        """Many steps are whole pieces of straight-line code: those beyond the loop's end do nothing."""
        steps, few = -(-self.facts.extent(loop) // (items * lanes)), self._straight
        kept = steps * lanes * self._words() <= KEPT and self._kept(frozenset((loop,)))
        if steps <= few or kept:
            return Share(loop, items, lanes, steps)
        wholes = [-(-steps // n) * n for n in range(few, few // 2, -1)]
        return Share(loop, items, lanes, next((n for n in wholes if n <= steps * (1 + IDLE)), min(wholes)))

    @property
    def _straight(self) -> int:
        """Accesses of an item that are straight-line code: one where they wait for a staged piece each."""
        return 1 if self.staged else FEW_STEPS * min(2, self._narrow)

    @property
    def _narrow(self) -> int:
        """Accesses to most of the memory that are under way together where each takes so small a part of what it may."""
        each = self.facts.bytes(self._largest) if self._largest else self._widest()
        return max(1, self.most // (self.wide * each))

    def _assembled(self, own: list[Share], shared: list[Share], reason: str, keep: int = MANY) -> Plan:
        """The plan of all shares; `shared` and `own` each start with the loop whose items are neighbours.

        Items of large groups keep at most `keep` elements of four bytes.
        """
        kept = self._kept(frozenset(s.loop for s in own))
        elements = prod(s.steps * s.lanes for s in (*own, *shared))
        elements *= self._kept_beside(frozenset(s.loop for s in own), kept)
        items = prod(s.items for s in (*own, *shared))
        fits = elements * self._words() <= (KEPT if items <= KEEPING else keep)
        group = [*own, *shared] if self.along in {s.loop for s in own} else [*shared, *own]
        order = (*sorted(shared, key=lambda s: (-self._reach(s.loop), -shared.index(s))), *reversed(own))
        grid = Level(Bind.GRID, tuple(Cover(s.loop, s.span) for s in order))
        group_level = Level(Bind.GROUP, tuple(Cover(s.loop, s.steps * s.lanes, s.lanes) for s in reversed(group)))
        inner = self._inner(own, shared, bool(kept) and fits)
        vector = [Level(Bind.VECTOR, (Cover(s.loop, 1),), lanes=s.lanes) for s in (*own, *shared) if s.lanes > 1]
        stagings = tuple(Staging(b, 1, "REG", scope=Scope.THREAD) for b in kept) if fits else ()
        reductions = tuple(reduction(s) for s in own if s.items * s.lanes > 1 and self.facts.reduces(s.loop))
        return Plan((grid, group_level, *inner, *vector), stagings, reductions, reason=reason)

    def _reach(self, loop: str) -> int:
        """Elements between neighbouring iterations, in the largest operand: groups follow one another as it lies in memory."""
        return abs(self.facts.stride(self._largest, loop)) if self._largest else 0

    @cached_property
    def _largest(self) -> Use | None:
        """The access to most of the memory; of equal ones the first that reads. None where nothing in memory is met."""
        return max((u for _, u in self.facts.accesses), key=lambda u: (self._met(u), u.reads), default=None)

    def _met(self, use: Use) -> int:
        """Bytes of the elements that an access meets."""
        moved = names_in(use.forms) & self.facts.loops.keys()
        return prod(map(self.facts.extent, moved)) * self.facts.bytes(use)

    def _inner(self, own: list[Share], shared: list[Share], static: bool) -> list[Level]:
        """What an item does one after the other: straight-line code where it is little, or must stay in registers."""
        serial: list[Cover] = []
        straight: list[Cover] = []
        budget = WINDOW
        for loop in self._left({s.loop for s in own}):
            extent = self.facts.extent(loop)
            at_once = extent if extent <= budget else divisor(extent, min(4, budget))
            budget //= at_once
            serial += [Cover(loop, at_once)] if at_once < extent else []
            straight += [Cover(loop, 1)] if at_once > 1 else []
        budget = KEPT if static else self._straight if budget == WINDOW else max(1, self._straight // 2)
        for share in own:
            at_once = share.steps if share.steps <= budget else divisor(share.steps, budget)
            budget = max(1, budget // at_once)
            serial += [Cover(share.loop, at_once * share.lanes)] if at_once < share.steps else []
            straight += [Cover(share.loop, share.lanes)] if at_once > 1 else []
        straight += [Cover(s.loop, s.lanes) for s in shared if s.steps > 1]
        levels = [Level(Bind.NONE, tuple(reversed(serial)))] if serial else []
        return [*levels, Level(Bind.UNROLL, tuple(reversed(straight)))] if straight else levels

    def _left(self, shared: Set[str]) -> list[str]:
        """Own loops that each item runs for itself, innermost first: those that items do not share."""
        named = shared | set(self.facts.shared)
        free = [
            n for n, i in self.facts.loops.items() if n not in named and i.bind is Bind.NONE and i.order.value == "free"
        ]
        return list(reversed(free))


def moves(facts: Facts, buffer: str, loops: frozenset[str]) -> bool:
    return any(loops & set(f.names) for _, u in facts.accesses if u.buffer == buffer for f in u.forms)


def divisor(number: int, most: int) -> int:
    """The largest divisor of at most `most`."""
    return next(n for n in range(min(number, most), 0, -1) if number % n == 0)
