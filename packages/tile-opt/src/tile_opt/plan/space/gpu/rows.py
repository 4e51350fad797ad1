"""Plans for kernels that memory bounds, on a machine with groups of items: rows, columns, and single elements.

One form serves all of them. Items of a group lie along the loop whose iterations are neighbours in memory, each with
one wide access; what is left of the group's items lies along the next loops. Where that loop is a stage's own, a row is
shared by items and its reductions are combined across them; where it is a shared one, the own loops are what further
items divide between them. A short row leaves room for several rows in a group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from tile_ir.frozen import replace
from tile_ir.powers import power_of_two
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Bind, Scope
from tile_ir.target import Target

from tile_opt.kernel.view import KernelView
from tile_opt.kernel.widen import widen
from tile_opt.kernel.work import merged_use, op_cost
from tile_opt.model.contraction import SECTOR
from tile_opt.plan.plan import Plan, Staging
from tile_opt.plan.space.facts import Facts
from tile_opt.plan.space.gpu.row_shares import FEW_STEPS, IDLE, KEEPING, KEPT, MANY, WORD, RowShares
from tile_opt.plan.space.gpu.shares import Share, meet, partial_results
from tile_opt.plan.steps.alike import alike
from tile_opt.plan.steps.cells import write_once
from tile_opt.plan.steps.groups.pieces import row_operands
from tile_opt.plan.steps.groups.spread import MOST_CELLS
from tile_opt.plan.steps.keep import keep, recompute

SHORT = 8
"""Iterations of an own loop below which items do not divide it."""
SUB_GROUP = 32
STRETCH = 256
"""Bytes of neighbours that a group takes together."""
NARROW = 64
"""The same of columns so long that another group has room beside one that keeps so few of them."""
WORDS = 64
"""The same of columns whose elements are parts of words."""
RUN = 10
"""Iterations of an item of these, at least."""
FULL_HALF, FEW_ROUNDS = 1.75, 6
"""Part of half a unit's registers, and rounds of groups: of longer columns in fewer rounds narrow groups are worth it."""
SMALL_GROUP = 64
LEAST_GROUP = 128
"""Items of a group that goes over long columns."""
EXCHANGED = 4
"""Elements of an item of rows that items exchange where data says: others work while some wait for one another."""
ACROSS = 64
"""Items of a group along memory that leave enough for neighbours along other loops."""
ROUNDS = 32
"""Rounds of groups beside which the last one does not matter."""


def prepared(view: KernelView) -> KernelView:
    """The view that plans speak of: stages as long as the rows they walk, whose own loops are named alike; cells stored once."""
    return write_once(alike(widen(view, read=True)))


def plans(view: KernelView, target: Target, staged: bool = False) -> Iterator[Plan]:
    """Legal plans, best first; operands of row reductions go through local memory where that is `staged`."""
    facts = Facts(prepared(view))
    best = _Chooser(facts, target, staged).plan()
    plain = _Chooser(facts, target, staged).element_plan()
    fits = partial_results(facts, best) <= MOST_CELLS and not meet(facts, best)
    if fits:
        yield best
    if plain != best or not fits:
        yield plain


def plan_of_group(view: KernelView, target: Target, items: int, tile: Mapping[str, int]) -> Plan | None:
    """A plan with groups of just so many items and `tile`, one of all else; None where they could not share the kernel."""
    return _Chooser(Facts(prepared(view)), target, False).group_plan(items, tile)


def rewritten(view: KernelView, plan: Plan) -> KernelView:
    """The view with what the plan stages in registers kept there, and all other rows computed where they are read."""
    view = prepared(view)
    staged = {s.operand for s in plan.stagings if s.unit == "REG"}
    shared = {c.loop for level in plan.bound(Bind.GROUP) for c in level.covers} - {i.name for i in view.loops}
    for row in Facts(view).rows(frozenset(shared)):
        view = view if row in staged else recompute(view, row)
    for buffer in sorted(staged & view.reads()):
        view = keep(view, buffer)
    return view


class _Chooser(RowShares):
    def plan(self) -> Plan:
        own = self._own()
        if own and self.facts.may_share(frozenset(own)):
            return self._row_plan(own) if self.along in own or not self.facts.shared else self._column_plan(own)
        if self.along in own and self.facts.may_share(frozenset((self.along,))):
            return self._row_plan((self.along,))
        return self.element_plan()

    def _shared_along(self) -> str:
        """The loop along memory, if all stages have it; vectors run along another one else."""
        if self.along in self.facts.shared:
            return self.along
        along = self.facts.shared[-1]
        self.wide = self.facts.lanes(along, self.most)
        return along

    def _own(self) -> tuple[str, ...]:
        """Own loops of the main stage that are worth sharing out, the one along memory first: no short ones of a window."""
        loops = [i.name for i in reversed(self.facts.main.loops) if i.range >= SHORT or i.name == self.along]
        if self.along in loops and self.facts.extent(self.along) < SHORT and self._is_of_window(self.along, len(loops)):
            loops.remove(self.along)
        return tuple(sorted(loops, key=lambda n: n != self.along))

    def _is_of_window(self, loop: str, own: int) -> bool:
        """A dimension follows another loop, too: of windows that overlap, or are all that there is; not the last digit of long rows."""
        forms = (f for u in self.facts.main.uses for f in u.forms if loop in f.names)
        others = [abs(c) for f in forms for n, c in f.terms if n != loop]
        return bool(others) and (own == 1 or min(others) < self.facts.extent(loop))

    # --- rows ---------------------------------------------------------------------------------------

    def _row_plan(self, own: tuple[str, ...]) -> Plan:
        """Items along the row; several rows in a group where they are short."""
        kept = self._kept(frozenset(own))
        self.wide = self.facts.lanes(own[0], self.most, ragged=not self.facts.rows(frozenset(own)) and not kept)
        if self.facts.scatters(own[0]):
            self.wide = 1
        length = prod(map(self.facts.extent, own))
        beside = self._kept_beside(frozenset(own), kept)
        threads = self._row_items(length * beside, bool(kept))
        few = EXCHANGED if self.facts.scatters(own[0]) else FEW_STEPS * max(self.wide, WORD // self._narrowest())
        each = max(min(few, KEPT // 2 // self._words() // beside), -(-length // threads))
        least = self._least_items(own[0])
        # With fewer items those that keep a row would have so many registers that few groups run at once.
        wanted = power_of_two(-(-length * beside * self._words() // (KEPT // 2))) if kept else 1
        most = min(threads, max(length // each, 2 * least, wanted))
        items = self._items(own[0], self.wide, most, max(least, wanted))
        shares = [self._steps(own[0], items, self.wide)]
        left = max(1, min(threads, power_of_two(length // each)) // items)
        for loop in own[1:]:
            shares.append(self._steps(loop, self._items(loop, 1, left), 1))
            left //= shares[-1].items
        used = prod(s.items for s in shares)
        plan = self._assembled(shares, self._others(threads // used), f"{used} items share a row")
        return self._staged_plan(own[0], plan) if self.staged else plan

    def _staged_plan(self, loop: str, plan: Plan) -> Plan:
        """A group per row, whose operands go through local memory; `plan` and the reason where none does."""
        view, kept = self.facts.view, {s.operand for s in plan.stagings}
        found = [u for s in view.stages for u in row_operands(view, s, (loop,)) if u.buffer not in kept]
        extent = self.facts.extent(loop)
        share = self._steps(loop, min(self.settings.threads, power_of_two(-(-extent // self.wide))), self.wide)
        needed = self._local_bytes(share, {(u.buffer, u.forms) for u in found})
        note = self._unstaged(bool(found), needed)
        if note:
            return replace(plan, reason=f"{plan.reason}; straight from memory: {note}")
        piece = min(share.items * share.lanes, extent)
        shared = [Share(n) for n in reversed(self.facts.shared)]
        made = self._assembled([share], shared, f"rows through local memory, {piece} elements at a time")
        level = 2 if share.steps > 1 else 0
        stagings = (Staging(b, level, "LOCAL", scope=Scope.GROUP) for b in dict.fromkeys(u.buffer for u in found))
        return replace(made, stagings=(*made.stagings, *stagings))

    def _local_bytes(self, share: Share, pieces: set[tuple[str, tuple[Affine, ...]]]) -> int:
        """Local memory of a group: the pieces, and the partial results of each reduction."""
        piece = min(share.items * share.lanes, self.facts.extent(share.loop))
        merged = [m for s in self.facts.view.stages if s.loops and (m := merged_use(s)) is not None]
        exchanged = sum(share.items * self._bytes(m.buffer) for m in merged)
        return exchanged + sum(piece * self._bytes(buffer) for buffer, _ in pieces)

    def _unstaged(self, found: bool, needed: int) -> str:
        """Why rows are read straight from memory; nothing where they need not be."""
        if not found:
            return "no reduction reads a row of memory that is its own"
        if self.settings.use_global:
            return "the target's use_global asks for it"
        most = self.settings.max_mem
        return f"staging takes {needed} bytes of local memory, the target has {most}" if needed > most else ""

    # --- columns --------------------------------------------------------------------------------------

    def _column_plan(self, own: tuple[str, ...]) -> Plan:
        """Items along the neighbours in memory; further items divide the columns between them."""
        along = self._shared_along()
        threads = self.settings.threads
        length = prod(map(self.facts.extent, own))
        rows = bool(self.facts.rows(frozenset(own)) or self._kept(frozenset(own)))
        if rows and 1 < WORD // self._narrowest() <= self.wide:
            return self._word_columns(own, along)
        room = KEPT * threads // (SUB_GROUP // 4)
        long = rows and self.wide * self._narrowest() > 8 and room < length * self.wide <= 2 * room
        narrow = long and self._are_few(length * self.wide / room)
        if long and not narrow:
            self.wide //= 2
        # Accesses so wide would be fewer than the items at work.
        little = not rows and self.facts.iterations() * length < self.wide * self.busy
        if little:
            self.wide = min(self.wide, max(1, WORD // self._widest()))
        columns = self.facts.iterations() // self.wide
        piece = self.wide * self._widest()
        beside = power_of_two(-(-self.facts.extent(along) // self.wide))
        across = max(1, min(threads // 2, (NARROW if narrow else STRETCH) // piece, beside))
        usual = STRETCH // 4 if self.wide > 1 else SUB_GROUP * self._widest()
        piled = self._least_row(along) if little else usual
        while across > 1 and across * piece > piled and columns < self.settings.cores * across:
            across //= 2
        most = threads * min(self._narrow, max(1, self.most_items // threads))
        if columns < self.settings.cores * across and length * across > 2 * FEW_STEPS * threads:
            most = max(most, self.most_items)
        ways = self._column_ways(length, columns, across, most)
        if rows:
            most_ways = threads // (across if narrow else SUB_GROUP // 4)
            ways = max(ways, min(power_of_two(-(-length * self.wide // (KEPT // 2))), most_ways))
        if ways < 2:
            return self.element_plan()
        shares = self._dealt(own, ways)
        used = prod(s.items for s in shares)
        across = min(max(1, most // used), max(across, SUB_GROUP), beside)
        columns = [Share(along, across, self.wide), *(Share(n) for n in reversed(self.facts.shared) if n != along)]
        plan = self._assembled(shares, columns, f"{used} items share a column")
        return plan if plan.stagings or not rows else self._kept_columns(own, along) or plan

    def _column_ways(self, length: int, columns: int, across: int, most: int) -> int:
        """Items that divide a column of so many steps, at most ``most`` in a group of so many columns."""
        ways = min(power_of_two(-(-self.busy // max(1, columns))), most // across, power_of_two(length) // 4)
        # A unit holds few groups: where they are small, little of it is at work, however many there are.
        return max(ways, min(LEAST_GROUP // across, power_of_two(length) // (4 * FEW_STEPS)))

    def _least_row(self, along: str) -> int:
        """Bytes of neighbours that a group takes at least: rows that begin anywhere have their sectors torn apart."""
        return SECTOR if self.facts.extent(along) * self._narrowest() % SECTOR == 0 else 2 * SECTOR

    def _are_few(self, filled: float) -> bool:
        """A unit has room for one group of columns so long, and has few: narrower ones, two at a time, end more evenly.

        `filled` is the part that a column takes of the registers of a half of a unit.
        """
        groups = self.facts.iterations() * self._widest() // (STRETCH // 2)
        return filled > FULL_HALF and groups < FEW_ROUNDS * self.settings.cores

    def _word_columns(self, own: tuple[str, ...], along: str) -> Plan:
        """An item has a word of each iteration: what items find of more columns takes longer to combine than to load."""
        self.wide = WORD // self._narrowest()
        length, columns = prod(map(self.facts.extent, own)), self.facts.iterations() // self.wide
        few = 4 * columns < self.settings.cores * (WORDS // WORD)
        across = (SECTOR if few else WORDS) // WORD
        most = min(self.most_items, self.settings.threads * (4 if few else 2)) // across
        ways = min(most, power_of_two(length // RUN + 1) // 2)
        shares = self._dealt(own, max(2, ways))
        across = max(across, LEAST_GROUP // prod(s.items for s in shares))
        shared = [Share(along, across, self.wide), *(Share(n) for n in reversed(self.facts.shared) if n != along)]
        plan = self._assembled(shares, shared, f"{prod(s.items for s in shares)} items share a column of words")
        again = not plan.stagings and not self._is_cached()
        return (self._kept_columns(own, along) if again else None) or plan

    def _is_cached(self) -> bool:
        """The last cache has what is read again."""
        room = max((c.bytes for c in self.machine.caches), default=0)
        return self._largest is None or self._met(self._largest) <= room

    def _kept_columns(self, own: tuple[str, ...], along: str) -> Plan | None:
        """As many items as a group may have, for as few columns as memory hands out: they keep what is read several times."""
        most = min(self.most_items, power_of_two(self.facts.extent(along)))
        sector = min(most, max(1, SECTOR // self._narrowest()))
        # Rows that begin anywhere have their sectors torn apart by groups of so few columns.
        least = sector if self.facts.extent(along) % sector == 0 else 2 * sector
        wide = [n for n in (4 * sector, 2 * sector, least) if n <= min(most, self.facts.iterations())]
        found = [(n, self._dealt(own, self.most_items // n)) for n in wide]
        room = KEPT if self.most_items <= KEEPING else MANY
        held = [(n, s) for n, s in found if self._held(s) <= (KEPT // 2 if n > 2 * sector else room)]
        enough = ((n, s) for n, s in held if self.facts.iterations() >= n * self.settings.cores)
        # Groups that read all of it again take longer than few groups.
        across, shares = next(enough, held[-1] if held else (0, []))
        if not across:
            return None
        columns = [Share(along, across), *(Share(n) for n in reversed(self.facts.shared) if n != along)]
        plan = self._assembled(shares, columns, f"{prod(s.items for s in shares)} items keep a column", KEPT)
        # What is made of an operand is made again: there are no registers for both.
        operands = tuple(s for s in plan.stagings if not self.facts.view.is_local(s.operand))
        return replace(plan, stagings=operands) if len(operands) == 1 else None

    def _dealt(self, own: tuple[str, ...], items: int) -> list[Share]:
        """So many items for the iterations of own loops, the longest one first."""
        shares: list[Share] = []
        for loop in sorted(own, key=self.facts.extent, reverse=True):
            shares.append(self._steps(loop, self._items(loop, 1, items), 1))
            items //= shares[-1].items
        return shares

    def _held(self, shares: list[Share]) -> int:
        """Registers in which an item keeps its part of a column."""
        return prod(s.steps for s in shares) * self._words()

    # --- one group ------------------------------------------------------------------------------------

    def group_plan(self, items: int, tile: Mapping[str, int]) -> Plan | None:
        """Neighbouring cells side by side, and the other items along the longest own loop where one is long."""
        own = self._own()
        if items != power_of_two(items) or not self.facts.may_share(frozenset(own)):
            return None
        long = max(own, key=self.facts.extent, default="")
        room = min(items, SUB_GROUP) if long and self.facts.extent(long) >= SHORT else items
        shared: list[Share] = []
        for loop in reversed(self.facts.shared):
            size = tile.get(loop, self.facts.extent(loop))
            count = min(room, power_of_two(size))
            shared.append(Share(loop, count, 1, -(-size // count)))
            room //= count
        if any(s.span != tile.get(s.loop, s.span) for s in shared):
            return None
        left = items // prod(s.items for s in shared)
        if not long and not shared:
            return None
        if not long and left > 1:  # more than there are cells
            if tile:
                return None
            shared[0] = replace(shared[0], items=shared[0].items * left)
        self.wide = 1
        dealt = [self._steps(long, left, 1)] if long else []
        plan = self._assembled(dealt, shared, "the last group")
        return plan if partial_results(self.facts, plan) <= MOST_CELLS and not meet(self.facts, plan) else None

    # --- single elements ------------------------------------------------------------------------------

    def element_plan(self) -> Plan:
        """An item per iteration of the shared loops, or several where an access is narrow."""
        facts, settings = self.facts, self.settings
        total = facts.iterations()
        along = self.along if self.along in facts.shared else None
        busy = settings.threads * settings.cores
        short = self._calculates() and total < ROUNDS * settings.vec_size * settings.threads * settings.cores
        most = min(self.most, settings.vec_size * self._widest()) if short else self.most
        wide = facts.lanes(along, most, ragged=True) if along else 1
        wide = wide if total >= wide * busy else 1
        steps = max(1, min(FEW_STEPS // 2, most // (wide * self._widest()))) if along else 1
        steps = self._even(along, wide, steps) if along and total >= 4 * steps * wide * busy else 1
        threads = settings.threads if total >= busy else min(settings.threads, SMALL_GROUP)
        met = self._met_again(along, wide) if total >= 4 * FEW_STEPS * wide * busy else {}
        rows = self._rows_beside(along, wide) if not met and total >= FEW_STEPS * wide * busy else []
        if rows:
            return self._assembled([], rows, "an item per element of rows side by side")
        count = met or {along: steps}
        # Elements that neighbours of two loops read are near to those of a square of items.
        most = ACROSS if len(met) > 1 else threads
        shares: list[Share] = []
        for loop in [*([along] if along else []), *(n for n in reversed(facts.shared) if n != along)]:
            lanes, each = wide if loop == along else 1, count.get(loop, 1)
            items = min(most if loop == along else threads, power_of_two(-(-facts.extent(loop) // (lanes * each))))
            shares.append(Share(loop, items, lanes, each))
            threads //= items
        return self._assembled([], shares, "an item per element")

    def _rows_beside(self, along: str | None, wide: int) -> list[Share]:
        """Items for all accesses to a short row, and to rows that follow one another in memory: neighbours all along it.

        Nothing where powers of two divide the row, where it is long, where other elements of it are read, too, or where accesses
        are of few elements: caches close the gaps between these.
        """
        facts, largest, threads = self.facts, self._largest, self.settings.threads
        if (
            along is None
            or largest is None
            or wide < self.settings.vec_size
            or facts.slid(along)
            or facts.shifted(along)
        ):
            return []
        extent = facts.extent(along)
        items, left = divmod(extent, wide)
        if left or items == power_of_two(items) or 2 * items > threads:
            return []
        after = next(
            (n for n in facts.shared if facts.stride(largest, n) == extent * facts.stride(largest, along)), None
        )
        rows = threads // items
        if after is None or -facts.extent(after) % rows > IDLE * facts.extent(after):
            return []
        others = [Share(n) for n in reversed(facts.shared) if n not in (along, after)]
        return [Share(along, items, wide), Share(after, rows), *others]

    def _met_again(self, along: str | None, wide: int) -> dict[str, int]:
        """Steps of an item along a loop whose neighbours read some of the same elements; one along others of these.

        Shifts along several loops are for groups of whole rows of memory: others meet too few elements again. Where accesses
        are parts of words, to load such elements once more takes as long as all others.
        """
        facts = self.facts
        slid, shifted = facts.slid(along), facts.shifted(along)
        if slid:
            return {slid[0]: FEW_STEPS // 2}
        if len(shifted) == 1:
            return {shifted[0]: FEW_STEPS}
        if not shifted and wide * self._widest() < WORD:
            even = {n: -(-facts.extent(n) // -(-facts.extent(n) // FEW_STEPS)) for n in facts.repeated(along)}
            return dict([(n, each) for n, each in even.items() if each >= FEW_STEPS // 2][:1])
        whole = along is not None and facts.extent(along) % (ACROSS * wide) == 0
        return dict.fromkeys(shifted, 1) | {shifted[0]: FEW_STEPS // 2} if shifted and whole else {}

    def _calculates(self) -> bool:
        """Arithmetic takes longer than memory: few elements an item are short code, and more groups end more evenly."""
        machine, facts = self.machine, self.facts
        if machine.occupancy is None:
            return False
        adds = machine.cores * machine.ports.issue * machine.occupancy.subgroup * machine.clock_ghz * 1e9
        cost = sum(op_cost(s) for s in facts.view.stages)
        moved = sum(facts.bytes(u) for _, u in facts.accesses)
        return cost * machine.memory.all_cores.read * 1e9 > moved * adds
