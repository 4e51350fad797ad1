"""join_rows: fuses attention: a product, the softmax-like work on its rows, and the second product become one kernel over rows.

Attention multiplies queries with keys, turns each row of scores into weights, and multiplies those with values. As kernels of
their own these exchange a matrix of scores. As one kernel over rows they exchange a row; `step_rows` then takes rows in
pieces and keeps no more than those. Kernels are joined only where it can.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass
from functools import reduce
from math import prod

from tile_ir.stripe.hashing import structural_hash
from tile_ir.stripe.nodes import Block, Index, Program, Statement
from tile_ir.stripe.walk import buffers_named, buffers_written
from tile_ir.target import Target

from tile_opt.blocks.buffers import in_the_way, users, with_joined
from tile_opt.blocks.tree import main_of
from tile_opt.kernel.accumulators import accumulated, kept, stored_last
from tile_opt.kernel.regroup import drop_unit_loops, joined, localised, share, unique_loops
from tile_opt.kernel.single_row import with_row
from tile_opt.kernel.unify import shared_loops
from tile_opt.kernel.view import KernelView, close_kernel, open_kernel
from tile_opt.kernel.work import is_elementwise, view_is_product
from tile_opt.passes.choosing import Choice, Choices, ChoosingPass, Chosen, results
from tile_opt.passes.joining import Kernels
from tile_opt.plan.space.gpu.rows_in_steps import weighed

NEAR = 1.25
"""Times longer than its parts that the one kernel may be estimated to take: of eight on an H200, the median took 0.77 of its estimate."""


@dataclass(frozen=True)
class JoinRows(ChoosingPass):
    """Join at most `most` kernels.

    What a kernel gives of rows others may read as well: these compute it again, if all who read it can, so that nobody stores it.
    """

    most: int = 12

    def choose(self, program: Program, target: Target) -> Choices:
        kept_rows: frozenset[str] = frozenset()
        while True:
            chains = _Chains(program, target, self.most, kept_rows)
            while chains.sweep():
                pass
            if not chains.in_vain:
                return Choices(chains.joined(program), tuple(chains.choices))
            kept_rows |= chains.in_vain


class _Chains(Kernels):
    """The kernels of a program, and who touches each buffer."""

    def __init__(self, program: Program, target: Target, most: int, kept_rows: frozenset[str]) -> None:
        """Rows of `kept_rows` are stored, whoever reads them."""
        super().__init__(program, _flat)
        self.target, self.most, self.kept_rows = target, most, kept_rows
        self.known: dict[str, tuple[float, float] | None] = {}
        """What kernels were expected to take, by their structure."""
        runs = (k for n, k in enumerate(self.kernels) if isinstance(k, Block) and n not in self.fixed)
        self.made = {b for kernel in runs for b in buffers_written(kernel)}
        """Buffers that some kernel writes in every run; what is known before is read as it is."""
        self.sizes = {r.into: prod(r.type.sizes) for r in main_of(program).refs}
        self.again: set[str] = set()
        """Those that some kernel computes for itself."""
        self.views_made: dict[tuple[int, ...], KernelView | None] = {}
        """Members as one kernel, as long as all others stay as they are."""

    @property
    def in_vain(self) -> frozenset[str]:
        """What was computed again although it is stored."""
        stored = {b for k in self.kernels if isinstance(k, Block) for b in buffers_written(k)}
        return frozenset(self.again & stored)

    def joined(self, program: Program) -> Program:
        return with_joined(program, self.kernels)

    def sweep(self) -> bool:
        """Join what can be joined; whether something was, so that more may be."""
        joined = [self.join(last) for last in reversed(range(len(self.kernels)))]
        self._drop()
        return any(joined)

    def _drop(self) -> None:
        """Leave out what only gives rows that all who read them compute again."""
        while gone := [n for n, kernel in enumerate(self.kernels) if self._is_idle(n, kernel)]:
            for n in gone:
                self.kernels[n] = self.views[n] = None
            self._learn()

    def _is_idle(self, number: int, kernel: Statement | None) -> bool:
        if not isinstance(kernel, Block) or self.views[number] is None:
            return False
        written = {*buffers_written(kernel)}
        return bool(written) and written <= self.again and all(self.users[b] <= {number} for b in written)

    def join(self, last: int) -> bool:
        """Kernel `last` with all that it takes rows from, where that can be one kernel."""
        return any(self._joined(last, rows) for rows in self._taken(last))

    def _taken(self, last: int) -> list[str]:
        """What a product reads that other kernels make."""
        view = self.views[last]
        return sorted(view.reads() & self.made) if view is not None and view_is_product(view) else []

    def _joined(self, last: int, rows: str) -> bool:
        """With what is known of rows as a whole, if that comes from the same product and can be computed with it; else without."""
        for members in self._ways(last, rows):
            seconds = self._seconds(members)
            if seconds is not None and self._behind(members) is not None:
                return self._chosen(members, *seconds)
        return False

    def _chosen(self, whole: list[int], together: float, apart: float) -> bool:
        """Whether the members are one kernel from now on, as they are where that is faster."""
        chosen = Chosen.FUSED if together < NEAR * apart else Chosen.APART
        if chosen is Chosen.FUSED:
            whole, together, apart = self._with_others(whole, together, apart)
        first, rest = self._views(whole[:1]), self._views(whole[1:])
        self.choices.append(Choice(chosen, results(first), results(rest), together, apart))
        if chosen is Chosen.FUSED:
            self._replace(whole)
        return chosen is Chosen.FUSED

    def _ways(self, last: int, rows: str) -> Iterator[list[int]]:
        """The members, the most first."""
        whole, part = self._whole(last, rows), self._part(last, rows)
        yield from (members for members in (self._with_totals(whole, rows), whole) if members)
        yield from [part] if part != whole else []

    def _with_others(self, whole: list[int], together: float, apart: float) -> tuple[list[int], float, float]:
        """The members with other products of rows that are made of the same scores, where that is faster; and its seconds, and its parts'."""
        shared = len(self._loops(whole))
        for n in range(whole[-1]):
            parts = [self._part(n, rows) for rows in self._taken(n)] if n not in whole else []
            for part in (p for p in parts if self._count({*whole} & {*p})):
                both = self._members(n, {*whole} | {*part})
                alone = self._seconds(part) if len(self._loops(both)) == shared else None
                joint = self._seconds(both) if alone is not None and self._behind(both) is not None else None
                if alone is not None and joint is not None and joint[0] < together + min(alone):
                    whole, together, apart = both, joint[0], apart + min(alone)
        return whole, together, apart

    def _loops(self, members: list[int]) -> tuple[Index, ...]:
        """Those that the members share as one kernel."""
        made = self._made(members)
        return () if made is None else made.loops

    def _seconds(self, members: list[int]) -> tuple[float, float] | None:
        made = self._made(members) if members else None
        return None if made is None else self._weighed(made)

    def _replace(self, members: list[int]) -> None:
        """One kernel in the place of the last member, in front of what needs it; those stay whose results others read."""
        made, again, behind = self._made(members), self._again(members), self._behind(members)
        assert made is not None and behind is not None
        self.again |= again
        for k in members:
            if again.isdisjoint(self._view(k).writes()):
                self.kernels[k] = self.views[k] = None
        self.kernels[members[-1]], self.views[members[-1]] = close_kernel(made), None
        self._put(behind, members[-1])
        self._learn()

    def _put(self, behind: list[int], last: int) -> None:
        """These kernels behind the last one."""
        rest = [n for n in range(len(self.kernels)) if n not in behind]
        at = rest.index(last) + 1
        order = (*rest[:at], *behind, *rest[at:])
        self.kernels, self.views = [self.kernels[n] for n in order], [self.views[n] for n in order]

    def _learn(self) -> None:
        """Who touches each buffer, when kernels have changed."""
        self.users = users(self.program, self.kernels)
        self.views_made.clear()

    def _weighed(self, view: KernelView) -> tuple[float, float] | None:
        """Seconds of the kernel and of its parts; layers of a network are alike, and each kind of them is weighed once."""
        key = structural_hash(close_kernel(view))
        if key not in self.known:
            self.known[key] = weighed(view, self.target)
        return self.known[key]

    def _views(self, members: list[int]) -> list[KernelView]:
        return [view for k in members if (view := self.views[k]) is not None]

    def _whole(self, last: int, rows: str) -> list[int]:
        """A product of `rows`, with all from the product that these come from, and what else takes them or finishes sums."""
        back = self._back_to_products(rows, self.made)
        back = None if back is None else back - self._known_before(back, rows)
        if back is None or not self._begins(back):
            return []
        near = {n for n in self._after(back) if self._belongs(n, rows) and not self._waits(n, back | {last})}
        return self._members(last, self._finished(back | near | {last}, rows))

    def _known_before(self, members: set[int], rows: str) -> set[int]:
        """Sums among them that take nothing which comes from a product that gives rows."""
        wide = {n for n in members if any(self._size(b) >= self._size(rows) for b in self._view(n).writes())}
        behind = {n for n in wide if view_is_product(self._view(n))}
        while more := {n for n in members - behind if self._view(n).reads() & self._writes(behind)}:
            behind |= more
        return {n for n in members - behind if not all(map(is_elementwise, self._view(n).stages))}

    def _waits(self, number: int, members: set[int]) -> bool:
        """It takes what a product other than these, or than itself, gives."""
        writers = {n for b in self._view(number).reads() & self.made for n in self.writers(b)} - members - {number}
        return any(view is None or view_is_product(view) for view in map(self.views.__getitem__, writers))

    def _begins(self, members: set[int]) -> bool:
        """Of several products among them none takes what others of them give."""
        made, products = self._writes(members), filter(view_is_product, map(self._view, members))
        return self._count(members) <= 1 or all(made.isdisjoint(view.reads()) for view in products)

    def _writes(self, members: set[int]) -> set[str]:
        return {b for k in members for b in self._view(k).writes()}

    def _part(self, last: int, rows: str) -> list[int]:
        """The same with what comes from several products, and what is known of rows as a whole is read."""
        back = self._back_to_products(rows, {b for b in self.made if self._size(b) >= self._size(rows)})
        return [] if back is None else self._members(last, back | {last})

    def _members(self, last: int, found: set[int]) -> list[int]:
        members = found | {n for b in self._view(last).writes() for n in self.users[b] if self._finishes(n, found)}
        return sorted(members) if last in members and all(self.views[n] is not None for n in members) else []

    def _finished(self, members: set[int], rows: str) -> set[int]:
        """The members with what goes on with their results, as long as that is less than rows."""
        while more := {n for n in self._after(members) if self._belongs(n, rows) and self._finishes(n, members)}:
            members |= more
        return members

    def _after(self, members: set[int]) -> set[int]:
        """What reads results of these."""
        made = self._writes({n for n in members if self.views[n] is not None})
        return {n for b in made for n in self.users[b]} - members

    def _with_totals(self, members: list[int], rows: str) -> list[int]:
        """With what sums up results of these, for each row a number; empty where there is no such thing."""
        after = (n for n in self._after({*members}) if self._belongs(n, rows))
        more = {n for n in after if self._finishes(n, {*members}, totals=True)}
        return sorted({*members} | more) if more else []

    def _belongs(self, number: int, rows: str) -> bool:
        """A product, a kernel that gives less than rows; or rows, which nobody may compute again."""
        view = self.views[number]
        small = view is not None and all(self._size(b) < self._size(rows) for b in view.writes())
        return (
            small
            or (view is not None and view_is_product(view))
            or bool(self.kept_rows & (set[str]() if view is None else view.reads()))
        )

    def _size(self, buffer: str) -> int:
        return self.sizes.get(buffer, 0)

    def _count(self, members: set[int]) -> int:
        return sum(view_is_product(self._view(n)) for n in members)

    def _back_to_products(self, rows: str, through: Set[str]) -> set[int] | None:
        """The kernels that `rows` comes from, no further than products, by way of these buffers; None where none is a product."""
        found, waiting = set[int](), [rows]
        while waiting and len(found) < self.most:
            buffer = waiting.pop()
            for n in self.writers(buffer) - found:
                view = self.views[n]
                if view is None:
                    return None
                found.add(n)
                waiting += [] if view_is_product(view) else sorted(view.reads() & through)
        return found if self._count(found) and not waiting else None

    def _finishes(self, number: int, members: set[int], *, totals: bool = False) -> bool:
        """It goes over complete sums, of these members alone, element by element; or sums them up."""
        view = self.views[number]
        if view is None or view_is_product(view) or not (totals or all(map(is_elementwise, view.stages))):
            return False
        if not totals and not all(any(u.reads for u in stage.uses) for stage in view.stages):
            return False  # zeros around what one item has
        mine = members | {number}
        return all(self.writers(b) <= mine or self._is_given(b, number, members) for b in view.reads() & self.made)

    def _is_given(self, buffer: str, number: int, members: set[int]) -> bool:
        """It has a number for several results of a kernel each, and waits for no member."""
        several = all(self._size(buffer) < self._size(b) for b in self._view(number).writes())
        found = set(members) if several else set[int]()
        while more := self._after(found):
            found |= more
        return several and found.isdisjoint(self.writers(buffer))

    def writers(self, buffer: str) -> set[int]:
        """The kernels that write a buffer."""
        return {
            n for n in self.users[buffer] if isinstance(k := self.kernels[n], Block) and buffer in buffers_written(k)
        }

    def _again(self, members: list[int]) -> set[str]:
        """The rows that members give and others read, or those that these come from: members compute them for themselves.

        What the last one gives are results, and may be as many.
        """
        made = {b: k for k in members for b in self._view(k).writes() & self.temps}
        rows = max((self._size(b) for b in made), default=0)
        wide = {b: k for b, k in made.items() if self._size(b) == rows and k != members[-1]}
        found = {b for b in wide if not self.users[b] <= {*members}}
        while more := {b for n in {wide[b] for b in found} for b in self._view(n).reads() & wide.keys()} - found:
            found |= more
        return found

    def _made(self, members: list[int]) -> KernelView | None:
        """The members as one kernel over rows; None where they share no loops, or others read what they may not compute again."""
        key = tuple(members)
        if key not in self.views_made:
            self.views_made[key] = self._join(members)
        return self.views_made[key]

    def _join(self, members: list[int]) -> KernelView | None:
        again = self._again(members)
        if again & self.kept_rows:
            return None
        view = reduce(joined, self._views(members))
        elsewhere = {b for b in view.writes() if not self.users[b] <= {*members}}
        view = stored_last(localised(view, self.temps - (elsewhere - again)))
        loops = shared_loops(view)
        return with_row(kept(accumulated(share(view, loops)))) if loops else None

    def _behind(self, members: list[int]) -> list[int] | None:
        """The kernels between members that run behind all of them; None where a member takes what these give.

        They touch what a member writes, or write what it reads; what is computed again is the members' own.
        """
        again, past, later = self._again(members), list[int](), list[int]()
        for k in range(members[0], members[-1] + 1):
            kernel = self.kernels[k]
            if k in members and again.isdisjoint(self._view(k).writes()):
                if self._meets(later, self._view(k).reads() - again, self._view(k).writes()):
                    return None
                past.append(k)
            elif isinstance(kernel, Block) and self._is_behind(kernel, past, later, again):
                later.append(k)
        return later

    def _is_behind(self, kernel: Block, past: list[int], later: list[int], again: set[str]) -> bool:
        """It may not run before some of these."""
        named, written = {*buffers_named(kernel)}, {*buffers_written(kernel)}
        return self._meets(later, named, written) or self._meets(past, named - again, written - again)

    def _meets(self, kernels: list[int], reads: Set[str], writes: Set[str]) -> bool:
        return in_the_way((self.kernels[k] for k in kernels), reads, writes, self.wholes)


def _flat(kernel: Block) -> KernelView | None:
    """A kernel all of whose loops are its stages' own."""
    view = open_kernel(kernel)
    return None if view is None or view.loops else unique_loops(drop_unit_loops(view))
