"""fuse: gather operations into kernels that share their outer loops.

A kernel joins the kernel that computes its operand when some loops can be shared (`kernel.unify`): an
elementwise tail joins its contraction with all loops shared; softmax and layer norm become one kernel over
rows whose stages exchange rows through local buffers. Contractions that reduce nothing (shifts, paddings,
concatenations) run over all of what they write where loops can be shared then (`kernel.widen`), and join what
reads them. Temporaries used by one kernel only become local to an iteration of its shared loops.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Set
from dataclasses import dataclass

from tile_ir.deadline import check
from tile_ir.frozen import replace
from tile_ir.machine import Machine
from tile_ir.stripe.hashing import structural_hash
from tile_ir.stripe.nodes import Block, Direction, Program, Refinement, Statement
from tile_ir.stripe.walk import buffers_read, buffers_written
from tile_ir.target import Target

from tile_opt.blocks.buffers import fixed_kernels, temporaries, users, wholes, with_main_refs, writer_counts
from tile_opt.blocks.tree import main_of, with_kernels
from tile_opt.kernel.digits import same_digits
from tile_opt.kernel.merge_stages import merge_stages
from tile_opt.kernel.parts import in_wholes, writes_parts_of_rows
from tile_opt.kernel.regroup import drop_unit_loops, joined, localised, shrunk, unique_loops
from tile_opt.kernel.view import KernelView, close_kernel, open_kernel
from tile_opt.kernel.widen import narrow, widen, writes_each_point
from tile_opt.kernel.work import exchanges, is_heavy, nbytes, op_cost
from tile_opt.model.fusion import VECTORS, forecast, neighbours, pieces, tile_bytes, waits
from tile_opt.passes.choosing import SIDE_BY_SIDE, Choice, Choices, ChoosingPass, Chosen, results
from tile_opt.passes.pairs import Pairs
from tile_opt.passes.parts import Part, makes_rows_alone, shares_columns, slides, waits_for_all, walks_rows
from tile_opt.plan.steps.groups.carries import shareable

SPLIT_GAIN = 4
"""Times more parallel iterations that make separate kernels, and another pass over the output, worth it."""

MARGIN = 1.05
ONE_PASS = "one pass over the same elements"
TOO_FEW = "too few iterations in common"
FEW = 4
"""Rows for each core below which some cores have to walk more of them than others."""
LONG = 1 << 14
"""Iterations of a row from which on single elements are quicker: the groups that hold rows walk them in many steps."""
IDLE = 2
"""Share of the items that a device holds which have nothing to do from where fewer iterations cost time."""
ROW = 256
"""Bytes of a row whose parts are written together: kernels after one another would write each line of memory several times."""
SLIGHT = 16
"""A part with less than this share of the work may run in fewer parallel iterations than the other."""


@dataclass(frozen=True)
class Fuse(ChoosingPass):
    """Group kernels; `max_local_bytes` bounds what one iteration of the shared loops keeps in local buffers.

    `min_shared` is the least number of shared iterations a fused kernel keeps, unless the parts had fewer;
    `min_parallel` is the same for kernels whose stages do not walk memory in rows of their own, so that
    nothing but the shared loops can run in parallel. Parts of at most `small` points need no parallel loops.
    A fused kernel has at most `max_stages` stages of `max_cost` operations: every part that joins costs time in proportion
    to them, and compilers of machine code take long for more.
    Producers other than the latest join from at most `reach` kernels back.
    """

    max_local_bytes: int = 1 << 17
    min_shared: int = 8
    min_parallel: int = 8
    small: int = 1 << 12
    max_stages: int = 48
    max_cost: int = 768
    reach: int = 64

    def choose(self, program: Program, target: Target) -> Choices:
        group = _Groups(program, self, target.machine)
        for number, kernel in enumerate(main_of(program).body):
            check(self.name, f"kernel {number}")
            group.add(number, kernel)
        return Choices(group.finish(), tuple(group.choices.values()))


class _Groups:
    """Kernels gathered so far, each a flat view (all loops in the stages) or an opaque statement."""

    def __init__(self, program: Program, options: Fuse, machine: Machine) -> None:
        self.program = program
        self.options = options
        self.machine = machine
        self.items: list[KernelView | Statement | None] = []
        """None where an item has joined a later one."""
        self.reads: list[Set[str]] = []
        self.writes: list[Set[str]] = []
        """What each item reads and writes."""
        self.members: list[frozenset[int]] = []
        """Which kernels of the program each item does."""
        self.users = users(program)
        self.fixed = fixed_kernels(program)
        """Kernels that run less often than others."""
        self.waiting: list[int] = []
        """Items that only move data: they join what reads them, and only in the end what they read."""
        self.writer: dict[str, int] = {}
        """The last item that writes each buffer: looking through all items for each kernel takes long in long programs."""
        self.reader: dict[str, int] = {}
        self.parts: dict[int, Part] = {}
        """By the view's identity, which lasts as long as it is kept here."""
        self.around: dict[tuple[int, frozenset[str]], tuple[KernelView, KernelView]] = {}
        """By the view's identity and the names of what it keeps to itself: groups grow, and are what was tried before."""
        self.seconds: dict[int, float] = {}
        """Forecasts, by the identity of what is `around`."""
        self.choices: dict[tuple[str, str], Choice] = {}
        self.temps = temporaries(program)
        self.refs = {r.into: r for r in main_of(program).refs}
        self.wholes = wholes(program)
        """What views are views of."""
        self.pairs = Pairs(self.wholes)
        several = {name for name, count in writer_counts(program).items() if count > 1}
        self.divided = several.union(self.wholes, self.wholes.values())
        """Buffers of which several kernels write a part."""

    def add(self, number: int, kernel: Statement) -> None:
        """Kernel `number` of the program."""
        view = open_kernel(kernel) if isinstance(kernel, Block) else None
        members = frozenset({number})
        if (
            not isinstance(kernel, Block)
            or view is None
            or view.loops
            or any(r.type.sizes != self.refs[r.into].type.sizes for r in view.refs)
        ):
            self._append(kernel, members)
            return
        parts = self._parts(self._fitted(unique_loops(drop_unit_loops(view))))
        for k, part in enumerate(parts):
            self.pairs.met(part, (structural_hash(kernel), k, *(r.into in self.divided for r in view.refs)))
            if len(parts) == 1 and self._is_awaited(part, members):
                self.waiting.append(self._append(part, members))
            else:
                self._place(part, members)

    def _parts(self, view: KernelView) -> tuple[KernelView, ...]:
        """A kernel is split into its stages when those share far more loops each on their own."""
        if len(view.stages) == 1 or view.allocs:
            return (view,)
        halves = tuple(
            replace(view, name=f"{view.name}_{k}", stages=(s,), refs=_named(view, {u.buffer for u in s.uses}))
            for k, s in enumerate(view.stages)
        )
        alone = max(self._part(h).iterations for h in halves[1:])
        return halves if alone >= SPLIT_GAIN * self._part(view).iterations else (view,)

    def _place(self, view: KernelView, members: frozenset[int]) -> None:
        """`view` joins what computes its operands, or stands alone."""
        home = self._latest_producer(view)
        both = members if home is None else members | self.members[home]
        fused = None if home is None else self._fused(self.items[home], view, both)
        if home is None or fused is None:
            self._put(self._append(view, members), view, members)
        else:
            self._put(home, fused, both)

    def _is_awaited(self, view: KernelView, members: frozenset[int]) -> bool:
        """It computes nothing, and later kernels read its result: each of them can take it from where it comes."""
        moves = _reduces_nothing(view) and not any(op_cost(s) for s in view.stages)
        return (
            moves and view.writes() <= self.temps - self.divided and any(self.users[b] - members for b in view.writes())
        )

    def _put(self, home: int, fused: KernelView, members: frozenset[int]) -> None:
        """Item `home` is `fused` now; its other producers join it where they can."""
        self._set(home, fused, members)
        producers = {self.writer.get(b, home) for b in self.reads[home]}
        for k in sorted((k for k in producers if home - self.options.reach <= k < home), reverse=True):
            self._absorb(k, home)

    def _absorb(self, k: int, home: int) -> None:
        """Item `k` joins the later item `home`, when one of them reduces nothing and nothing between them is in the way."""
        early, late = self.items[k], self.items[home]
        if not (self._goes_once(early) or self._goes_once(late)) or not self._may_move(k, home):
            return
        both = self.members[k] | self.members[home]
        fused = self._fused(early, late, both)
        if fused is not None:
            self._set(k, None, frozenset())
            self._set(home, fused, both)

    def _fused(
        self, early: KernelView | Statement | None, late: KernelView | Statement | None, members: frozenset[int]
    ) -> KernelView | None:
        """Both as one kernel; None where they are not kernels in normal form, or it would not pay."""
        if not (isinstance(early, KernelView) and isinstance(late, KernelView)):
            return None
        if len(early.stages) + len(late.stages) > self.options.max_stages:
            return None
        cost = self._part(early).cost + self._part(late).cost
        pair = self._pair(early, late, members) if cost <= self.options.max_cost else None
        known = self.pairs.chosen.get(pair)
        if cost > self.options.max_cost or (known is not None and known.chosen is Chosen.APART):
            return self._choose(early, late, known)
        fused = in_wholes(joined(early, late), self.refs)
        if fused is None:
            return None
        if self._in_one_pass(early, late, members):
            part = self._part(fused)
            part.sizes, part.cost = self._part(early).sizes, cost
            known = Choice(Chosen.FUSED, "", "", reason=ONE_PASS)
        elif known is None and self._has_too_few(early, late, members):
            known = Choice(Chosen.APART, "", "", reason=TOO_FEW)
        else:
            fused = fused if early.writes() & late.writes() else self._fitted(fused)  # parts of rows stay apart
            known = known or self._weighed(early, late, fused, members)
        if pair is not None:
            self.pairs.chosen[pair] = known
            self.pairs.joined(fused, pair)
        return self._choose(early, late, known, fused)

    def _choose(
        self, early: KernelView, late: KernelView, known: Choice | None, fused: KernelView | None = None
    ) -> KernelView | None:
        """Keeps a choice for two kernels; both as one where it is that."""
        if known is None:
            return None
        choice = replace(known, producer=results((early,)), consumer=results((late,)))
        self.choices[choice.key] = choice
        return fused if choice.chosen is Chosen.FUSED else None

    def _pair(self, early: KernelView, late: KernelView, members: frozenset[int]) -> Hashable:
        """Equal for pairs for which the same is chosen; None where it has to be found."""
        return self.pairs.of(
            early,
            late,
            lambda b: (b in self.temps, self.users[b] <= members, b in self.divided, self._as_often(members)),
        )

    def _weighed(self, early: KernelView, late: KernelView, fused: KernelView, members: frozenset[int]) -> Choice:
        """Whether the two should be the one."""
        reason = self._obstacle(early, late, fused, members)
        together, apart = (None, None) if reason else self._forecast(early, late, fused, members)
        taken = together is not None and apart is not None and together <= MARGIN * apart
        chosen = Chosen.FUSED if taken else Chosen.APART
        return Choice(chosen, "", "", together, apart, reason)

    def _in_one_pass(self, early: KernelView, late: KernelView, members: frozenset[int]) -> bool:
        """Both go over the same elements: no forecast is needed to see that going once is better."""
        sizes = self._part(early).sizes
        return sizes is not None and sizes == self._part(late).sizes and self._as_often(members)

    def _part(self, view: KernelView) -> Part:
        known = self.parts.get(id(view))
        if known is None:
            known = self.parts[id(view)] = Part(view)
        return known

    def _as_often(self, members: frozenset[int]) -> bool:
        """All of them run in every run, or none does."""
        return self.fixed.intersection(members) in (set(), members)

    def _goes_once(self, item: KernelView | Statement | None) -> bool:
        """It is a kernel that reduces nothing."""
        return isinstance(item, KernelView) and (self._part(item).sizes is not None or _reduces_nothing(item))

    def _may_move(self, k: int, home: int) -> bool:
        """Nothing between the two items reads what item `k` writes, or writes what it touches."""
        touched = self.reads[k] | self.writes[k]
        return not any(self.writes[j] & touched or self.reads[j] & self.writes[k] for j in range(k + 1, home))

    def _fitted(self, view: KernelView) -> KernelView:
        """`view` with stages widened along the loops that can be shared then, and along no others."""
        view = same_digits(view)
        exact = drop_unit_loops(narrow(view))
        wide = widen(exact, divided=self.divided)
        if wide is exact:
            return view
        part = self._part(wide)
        if part.iterations <= self._part(exact).iterations:
            return exact
        return widen(exact, {name for loop in part.shared for name in loop.members}, self.divided)

    def _append(self, item: KernelView | Statement, members: frozenset[int]) -> int:
        """Another item; gives its number."""
        self.items.append(None)
        self.reads.append(set())
        self.writes.append(set())
        self.members.append(members)
        self._set(len(self.items) - 1, item, members)
        return len(self.items) - 1

    def _set(self, number: int, item: KernelView | Statement | None, members: frozenset[int]) -> None:
        """Item `number` is `item` now."""
        self.members[number] = members
        self.items[number] = item
        self.reads[number], self.writes[number] = self._memory(_read(item)), self._memory(_written(item))
        for last, names in ((self.writer, self.writes[number]), (self.reader, self.reads[number])):
            last.update((name, max(number, last.get(name, 0))) for name in names)

    def _memory(self, names: Set[str]) -> Set[str]:
        """The buffers that `names` are, or are views of."""
        return {self.wholes.get(name, name) for name in names} if self.wholes else names

    def _latest_producer(self, view: KernelView) -> int | None:
        """The last item that touches what the view does; nothing after it may.

        Those that do no more than write other parts of the same buffer have nothing for each other, but where they take
        turns within each of its short rows.
        """
        written, read = self._memory(view.writes()), self._memory(view.reads())
        last = {self.writer.get(b, -1) for b in read | written} | {self.reader.get(b, -1) for b in written}
        home = max(last, default=-1)
        both = self.writes[home] & written if home >= 0 else set[str]()
        apart = bool(both) and both <= self.divided and not self.writes[home] & read
        apart = apart and not all(self._is_row_by_row(view, buffer) for buffer in both)
        return None if home < 0 or apart else home

    def _is_row_by_row(self, view: KernelView, buffer: str) -> bool:
        """It has short rows, of each of which the view writes a part."""
        type = self.refs[buffer].type
        if self.machine.occupancy is not None or len(type.sizes) < 2:
            return False
        row = type.sizes[-1]
        return row * type.dtype.bytes <= ROW and writes_parts_of_rows(view, buffer, row)

    def _forecast(
        self, a: KernelView, b: KernelView, fused: KernelView, members: frozenset[int]
    ) -> tuple[float, float]:
        """Seconds that one kernel and two are expected to take."""
        return self._seconds(fused, members), self._seconds(a, members) + self._seconds(b, members)

    def _seconds(self, view: KernelView, members: frozenset[int]) -> float:
        """The forecast for a kernel; what only `members` use can be local."""
        around = self._around(view, frozenset(b for b in view.writes() & self.temps if self.users[b] <= members))
        known = self.seconds.get(id(around))
        if known is None:
            known = self.seconds[id(around)] = forecast(around, self.machine).seconds
        return known

    def _obstacle(self, a: KernelView, b: KernelView, fused: KernelView, members: frozenset[int]) -> str:
        """Why the two cannot be one kernel; "" where a forecast is to decide."""
        if not self._as_often(members):
            return "one of them is known before a run"
        if waits_for_all(fused):
            return "every item merges into what is read"
        parts, whole = (self._part(a), self._part(b)), self._part(fused)
        heavy = [p for p in parts if p.is_heavy]
        if len(heavy) > 1 or (heavy and any(s.constraints and not is_heavy(fused, s) for s in fused.stages)):
            # Two contractions would share little, and a guard's edges would be computed without vectors in all of one.
            return "two contractions" if len(heavy) > 1 else "edges in a contraction"
        carrying = [p for p in parts if p.carries]
        # As many loops may be fewer iterations: the digits of one of them, where another is lost.
        if any(len(p.shared) != len(whole.shared) or p.iterations > whole.iterations for p in (*heavy, *carrying)):
            return "fewer loops around a contraction or a scan"
        before = (*parts[0].in_registers, *parts[1].in_registers)
        if any(kept > now for kept, now in zip(before, whole.in_registers, strict=True)):
            return "a reduction would not stay in registers"
        large = self._large(parts)
        local = self._around(fused, fused.writes() & self.temps)
        if any(self._shares_scan(p.view) for p in carrying) and not self._shares_scan(fused):
            return "items of a group could no longer share a scan"
        wanted = self._wanted([p.iterations for p in large], local)
        if whole.iterations < wanted or self._is_idle(parts, whole.iterations, local):
            return TOO_FEW
        if self.machine.occupancy is not None and makes_rows_alone(local):
            return "each item would make all of a row that data chooses from"
        return self._lost_side_by_side(local, large) or self._too_much_beside(local)

    def _has_too_few(self, early: KernelView, late: KernelView, members: frozenset[int]) -> bool:
        """One has a stage without loops, so that both share none, and there is no other obstacle: no need to look at the two as one."""
        parts = self._part(early), self._part(late)
        if not any(p.has_point for p in parts) or any(p.may_lose for p in parts) or not self._as_often(members):
            return False
        least = min((p.iterations for p in self._large(parts)), default=0)
        return min(self.options.min_shared, self.options.min_parallel, least) > 1

    def _large(self, parts: tuple[Part, Part]) -> list[Part]:
        """Those whose iterations count."""
        least = max(self.options.small, sum(p.points for p in parts) // SLIGHT)
        return [p for p in parts if p.points > least]

    def _too_much_beside(self, fused: KernelView) -> str:
        """What an iteration would keep that caches have no room for; "" for nothing."""
        if self._is_strip(fused):
            return "boxes that slide along whole columns"
        kept = sum(nbytes(r.type) for r in fused.allocs)
        return f"{kept} bytes local to an iteration" if kept > self.options.max_local_bytes else ""

    def _lost_side_by_side(self, fused: KernelView, large: list[Part]) -> str:
        """What the large parts have beside each other on a processor and lose; "" for nothing."""
        if self.machine.occupancy is not None:
            return ""
        left, parts = pieces(fused, self.machine, VECTORS), [self._around(p.view, frozenset()) for p in large]
        if left < self.options.min_parallel and any(pieces(p, self.machine, VECTORS) > left for p in parts):
            return "too few pieces for cores to share"
        cells = neighbours(fused, self.machine)
        if cells is None and any(exchanges(p) and neighbours(p, self.machine) for p in parts):
            return SIDE_BY_SIDE
        chains = [p for p in parts if waits(p, self.machine)] if cells is not None else []
        if any((neighbours(p, self.machine) or 0) > (cells or 0) for p in chains):
            return "vectors would wait for each other"
        return ""

    def _is_strip(self, view: KernelView) -> bool:
        """Lanes would walk boxes that slide along whole columns, more than the first cache holds: tiles of rows suit them."""
        if self.machine.occupancy is not None or not self.machine.caches:
            return False
        return tile_bytes(view, self.machine) > self.machine.caches[0].bytes and any(map(slides(view), view.stages))

    def _shares_scan(self, view: KernelView) -> bool:
        """Items of a group share the cells of a scan, where that is all that the kernel does, and has some for each of a sub-group."""
        occupancy = self.machine.occupancy
        if occupancy is None:
            return False
        scan = shareable(merge_stages(self._around(view, view.writes() & self.temps)))
        return scan is not None and scan.loops[0].range >= occupancy.subgroup

    def _is_idle(self, parts: tuple[Part, Part], left: int, local: KernelView) -> bool:
        """A device holds more items than would run together, and than one part would give something to do by itself.

        That is a reduction in more iterations, or work beside which the other is slight, unless rows are many and not long.
        """
        occupancy = self.machine.occupancy
        if occupancy is None:
            return False
        early, late = parts
        full = self.machine.cores * occupancy.items // IDLE
        reduces, moves = (left < min(p.iterations, full) for p in parts)
        crowded = walks_rows(local) and left >= FEW * self.machine.cores and late.points <= LONG * left
        slight = early.points * SLIGHT < late.points
        return (reduces and not _reduces_nothing(early.view)) or (moves and slight and not crowded)

    def _wanted(self, needed: list[int], fused: KernelView) -> int:
        """Shared iterations that fusing must keep: rows also run in parallel along themselves, and columns that items share."""
        if walks_rows(fused) or (self.machine.occupancy is not None and shares_columns(fused)):
            return min(self.options.min_shared, min(needed, default=0))
        return min(self.options.min_parallel, max(needed, default=0))

    def _around(self, view: KernelView, mine: frozenset[str]) -> KernelView:
        """`view` with its shared loops around its stages; the temporaries of main that are `mine` become its own allocations."""
        known = self.around.get((id(view), mine))
        if known is None:
            known = view, shrunk(localised(self._part(view).around, mine))
            self.around[id(view), mine] = known
        return known[1]

    def finish(self) -> Program:
        for number in self.waiting:
            item = self.items[number]
            if isinstance(item, KernelView):
                self._put(number, item, self.members[number])
        kernels: list[Statement] = []
        local: set[str] = set()
        touched = [r | w for r, w in zip(self.reads, self.writes, strict=True)]
        users = Counter(name for names in touched for name in names)
        for item, mine in zip(self.items, touched, strict=True):
            if not isinstance(item, KernelView):
                kernels += [] if item is None else [item]
                continue
            own = item.writes() & self.temps
            view = self._around(item, frozenset(b for b in own if users[b] == (b in mine)))
            local |= {a.into for a in view.allocs}
            kernels.append(close_kernel(merge_stages(view)))
        program = with_kernels(self.program, tuple(kernels))
        refs = tuple(r for r in main_of(program).refs if r.dir is not Direction.ALLOC or r.into not in local)
        return with_main_refs(program, refs)


def _named(view: KernelView, names: set[str]) -> tuple[Refinement, ...]:
    return tuple(r for r in view.refs if r.into in names)


def _reduces_nothing(view: KernelView) -> bool:
    return all(map(writes_each_point, view.stages))


def _written(item: KernelView | Statement | None) -> Set[str]:
    if isinstance(item, KernelView):
        return item.writes()
    return set(buffers_written(item)) if isinstance(item, Block) else set()


def _read(item: KernelView | Statement | None) -> Set[str]:
    if isinstance(item, KernelView):
        return item.reads()
    return set(buffers_read(item)) if isinstance(item, Block) else set()
