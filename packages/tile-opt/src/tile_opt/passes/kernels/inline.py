"""inline: recompute cheap elementwise producers inside their consumers' loads instead of storing them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Set
from dataclasses import dataclass, field

from tile_ir.deadline import check
from tile_ir.stripe.nodes import Block, Load, Program, Statement
from tile_ir.stripe.walk import buffers_named
from tile_ir.target import Target

from tile_opt.blocks.buffers import drop_unused_temporaries, fixed_kernels, temporaries
from tile_opt.blocks.tree import main_of, with_kernels
from tile_opt.kernel.alike import structure
from tile_opt.kernel.inlining import inlined, is_operand, producer_of
from tile_opt.kernel.merging import merged
from tile_opt.kernel.strides import flat_stride
from tile_opt.kernel.view import KernelView, Stage, Use, close_kernel, open_kernel
from tile_opt.kernel.work import elements, exchanges, is_elementwise, is_heavy, op_cost, points
from tile_opt.model.fusion import forecast, forecast_flat, sharing
from tile_opt.passes.choosing import SIDE_BY_SIDE, Choice, Choices, ChoosingPass, Chosen, results
from tile_opt.plan.space.cpu.tiles import fastest_cycles

Readers = dict[int, KernelView]
"""Kernels, by number."""
Seconds = Callable[[KernelView, Target], float]
"""A forecast."""

ROW = 64
"""Bytes that lie together, of which a device reads as fast as of more."""
DEEP = 64
"""Iterations of a sum's loop that steps of matrix instructions are cut from."""


@dataclass(frozen=True)
class Inline(ChoosingPass):
    """Move an elementwise producer into every consumer when recomputation costs less than memory traffic.

    A producer is inlined when all its consumers together evaluate it at most `max_recompute` times per
    element, or when it costs at most `trivial_cost` operations and all consumers are elementwise. What is made of indexes
    alone, and reads nothing, is worth as many times as a forecast says.
    Bodies beyond `max_body` statements are stored: their temporary costs nothing beside them, and
    every step of a long chain would copy all steps before it. One with math functions (`costly` operations or more)
    stays where vector lanes take it, when its readers run one iteration after the other.
    """

    max_recompute: float = 1.5
    trivial_cost: int = 1
    max_body: int = 256
    max_cost: int = 384
    """Operations; compilers of machine code take long for longer bodies."""
    costly: int = 8
    copies: bool = False
    """Copies in another order move into contractions, too, unless stored ones take less: plans copy operands by tiles.

    Without it, those that leave rows together.
    """
    turns: bool = False
    """Copies that turn rows move into products whose tiles have these rows as a side: groups copy tiles either way around."""

    def choose(self, program: Program, target: Target) -> Choices:
        work, temps, fixed, times = _Work.of(program), temporaries(program), fixed_kernels(program), Times(target)
        choices = [c for views in (True, False) for c in self._swept(work, temps, fixed, times, views=views)]
        return Choices(drop_unused_temporaries(with_kernels(program, work.result())), tuple(choices))

    def _swept(
        self, work: _Work, temps: Set[str], fixed: frozenset[int], times: Times, *, views: bool
    ) -> Iterator[Choice]:
        """What becomes of each producer, in order; with `views` of those that only show what kernels make in another order.

        These move first: what they show then stays whole, with the product that it ends, and is not made part by part.
        """
        for k, view in enumerate(work.views):
            check(self.name, view.name if view else "a kernel")
            view = self.opened(view) if view else None
            producer = producer_of(view, temps) if view else None
            if view is None or producer is None or self._is_long(view.stages[0]):
                continue
            readers = work.readers(producer.buffer, view.type_of(producer.buffer).sizes, k)
            if readers is None or (views and not (work.shows(view) and _is_view(view, producer))):
                continue
            early = k in fixed and not fixed.issuperset(readers) and not _is_view(view, producer)
            if early:
                choice = _kept(view, readers, "it is known before a run")
            elif work.ends_a_product(view, producer, readers):
                choice = _kept(view, readers, "the kernel that makes its operand does it on the way")
            else:
                choice = self.judged(view, producer, readers, times)
            if choice.chosen is Chosen.INLINED:
                work.move(k, view, producer, readers)
            if choice.chosen is Chosen.INLINED or not views:
                yield choice

    def opened(self, view: KernelView) -> KernelView:
        """The view as a producer: with no loops around its stage."""
        return view

    def _is_long(self, stage: Stage) -> bool:
        return len(stage.body) > self.max_body or op_cost(stage) > self.max_cost

    def judged(self, view: KernelView, producer: Use, readers: Readers, times: Times) -> Choice:
        """Whether the view's result is computed by its readers."""
        size = elements(view.type_of(producer.buffer))
        loads = [(r, s) for r in readers.values() for s in r.stages for u in s.uses if u.buffer == producer.buffer]
        often = sum(points(stage, reader.ranges) for reader, stage in loads) / max(1, size)
        names = producer.buffer, results(readers.values())
        if not op_cost(view.stages[0]) and all(self._takes(view, producer, r, s) for r, s in loads):
            if self.copies:
                return _by_tiles(view, producer, readers, times)
            return Choice(Chosen.INLINED, *names, reason="what reads it reads each of its parts again and again")
        if often > self.max_recompute:
            if not view.reads():
                return _by_time(view, producer, readers, times)
            cheap = op_cost(view.stages[0]) <= self.trivial_cost and sum(u.reads for u in view.stages[0].uses) <= 1
            taken = cheap and all(is_elementwise(stage) for _, stage in loads)
            chosen = Chosen.INLINED if taken else Chosen.STORED
            return Choice(chosen, *names, reason=f"each element is wanted {often:.3g} times")
        turned = _turns_rows(view, producer)
        if turned and any(exchanges(r) for r, _ in loads):
            return Choice(Chosen.STORED, *names, reason=SIDE_BY_SIDE)
        turned = turned and not any(is_elementwise(s) for _, s in loads)
        cheap = op_cost(view.stages[0]) < self.costly and not turned
        if cheap or all(_is_pointwise(s, producer.buffer) for _, s in loads):
            return Choice(Chosen.INLINED, *names, reason="each element is wanted once")
        return _by_time(view, producer, readers, times)

    def _takes(self, view: KernelView, producer: Use, reader: KernelView, stage: Stage) -> bool:
        """The stage is a product whose tiles may be copies of what the view, which computes nothing, copies."""
        if not is_operand(reader, stage, producer.buffer):
            return False
        if self.copies or not self.turns:
            return self.copies or _keeps_rows(view, producer)
        moves = _keeps_rows(view, producer) or _has_side(view, producer, stage)
        return moves and not _joins(view, producer, reader)


def _has_side(view: KernelView, producer: Use, stage: Stage) -> bool:
    """What lies together before the copy, `ROW` bytes at least, is a side of a factor in the stage, not a loop of all of them."""
    source = next((u for u in view.stages[0].uses if u.reads), None)
    if source is None:
        return False
    least = ROW // view.type_of(source.buffer).dtype.bytes
    loops = {n for f in source.forms for n in f.names if view.ranges[n] >= least}
    near = [(n,) for n in loops if flat_stride(view, source, n) == 1]
    place = next((k for k, f in enumerate(producer.forms) if f.names in near), None)
    if place is None:
        return False
    sides = {n for u in stage.uses if u.buffer == producer.buffer for n in u.forms[place].names}
    return all(any(n not in {m for f in u.forms for m in f.names} for u in stage.uses) for n in sides)


def _joins(view: KernelView, producer: Use, reader: KernelView) -> bool:
    """The copy makes one long loop of loops that the reader goes through in another order otherwise, all short."""
    return _longest(inlined(reader, view, producer)) < DEEP <= _longest(reader)


def _longest(view: KernelView) -> int:
    """Iterations of the longest loop of a stage's own, once those are merged that will be."""
    return max((i.range for s in _as_merged(view).stages for i in s.loops), default=1)


def _keeps_rows(view: KernelView, producer: Use) -> bool:
    """A copy of rows in another order, each of at least `ROW` bytes that lie together where they are read and written."""
    stage, last = view.stages[0], producer.forms[-1].names if producer.forms else ()
    if len(last) != 1 or view.ranges[last[0]] * view.type_of(producer.buffer).dtype.bytes < ROW:
        return False
    return all(flat_stride(view, use, last[0]) == 1 for use in stage.uses)


def _turns_rows(view: KernelView, producer: Use) -> bool:
    """A copy whose rows lie across what it copies: who reads these side by side would not read that side by side."""
    stage, last = view.stages[0], producer.forms[-1].names if producer.forms else ()
    if op_cost(stage) or len(last) != 1:
        return False
    steps = [flat_stride(view, use, last[0]) for use in stage.uses if use.reads]
    return bool(steps) and all(abs(step) > 1 for step in steps)


def _is_view(view: KernelView, producer: Use) -> bool:
    """Whoever reads it may as well read what it copies."""
    return not op_cost(view.stages[0]) and _keeps_rows(view, producer)


def _kept(view: KernelView, readers: dict[int, KernelView], reason: str) -> Choice:
    """Its readers do not make it again."""
    return Choice(Chosen.STORED, results((view,)), results(readers.values()), reason=reason)


def _is_pointwise(stage: Stage, buffer: str) -> bool:
    """It reads a cell for each that it writes, the same one: whatever makes it can be made there."""
    forms = [u.forms for u in stage.uses if u.buffer == buffer or u.writes]
    return is_elementwise(stage) and len(set(forms)) == 1


@dataclass(slots=True)
class Times:
    """What is expected of producers and their readers, found once for all that are alike: programs repeat their layers and steps."""

    target: Target
    _known: dict[Hashable, float] = field(default_factory=dict[Hashable, float])

    def compared(self, view: KernelView, producer: Use, readers: Readers, seconds: Seconds) -> tuple[float, float]:
        """Seconds of the readers that compute what the view does, and of all of them apart, by this forecast of readers."""
        maker, apart, together = close_kernel(view), [flat_seconds(view, self.target)], list[float]()
        for reader in readers.values():
            kernel = close_kernel(reader)
            apart.append(self._once((seconds, *structure((kernel,))), lambda r=reader: seconds(r, self.target)))
            key = (seconds, *structure((maker, kernel)))
            together.append(self._once(key, lambda r=reader: seconds(inlined(r, view, producer), self.target)))
        return sum(together), sum(apart)

    def _once(self, key: Hashable, find: Callable[[], float]) -> float:
        if key not in self._known:
            self._known[key] = find()
        return self._known[key]


def _by_time(view: KernelView, producer: Use, readers: Readers, times: Times, seconds: Seconds | None = None) -> Choice:
    """Computed in its readers, or stored, whichever is expected to take less."""
    together, apart = times.compared(view, producer, readers, seconds or flat_seconds)
    chosen = Chosen.STORED if together > apart else Chosen.INLINED
    return Choice(chosen, producer.buffer, results(readers.values()), together, apart)


def _by_tiles(view: KernelView, producer: Use, readers: Readers, times: Times) -> Choice:
    """The same for products: one that seems to take longer with the producer in it is asked for its fastest register tiles."""
    first = _by_time(view, producer, readers, times)
    if first.chosen is Chosen.INLINED:
        return first
    return _by_time(view, producer, readers, times, _tiled_seconds)


def flat_seconds(view: KernelView, target: Target) -> float:
    """Seconds of a kernel whose loops are all in its stages."""
    return forecast_flat(view, target.machine)


def _tiled_seconds(view: KernelView, target: Target) -> float:
    """Seconds of a kernel whose loops are all in its stages, once those are merged that will be."""
    found = _as_merged(view)
    return forecast(found, target.machine, fastest_cycles(found, target)).seconds


def _as_merged(view: KernelView) -> KernelView:
    found = sharing(view)
    return open_kernel(merged(close_kernel(found))) or found


class _Work:
    """The kernels of a program while producers move into their readers.

    `touching` finds a buffer's kernels at once, and `writing` those that write it: thousands may read an input.
    """

    def __init__(self, kernels: tuple[Statement, ...]) -> None:
        self.kernels: list[Statement | None] = list(kernels)
        """None where a producer has gone."""
        self.views = [open_kernel(k) if isinstance(k, Block) else None for k in kernels]
        self.opened = tuple(self.views)
        self.touching: defaultdict[str, set[int]] = defaultdict(set)
        for k, (kernel, view) in enumerate(zip(kernels, self.views, strict=True)):
            for buffer in _touched(kernel, view):
                self.touching[buffer].add(k)
        self.writing: defaultdict[str, list[int]] = defaultdict(list)
        for k, view in enumerate(self.views):
            for buffer in view.writes() if view is not None else ():
                self.writing[buffer].append(k)

    @staticmethod
    def of(program: Program) -> _Work:
        return _Work(main_of(program).body)

    def readers(self, buffer: str, sizes: tuple[int, ...], producer: int) -> dict[int, KernelView] | None:
        """The views that read `buffer`, by kernel number; None when something reads it in a way inlining cannot follow."""
        found: dict[int, KernelView] = {}
        for k in sorted(self.touching[buffer] - {producer}):
            view = self.views[k]
            if view is None:
                return None
            uses = [(s, u) for s in view.stages for u in s.uses if u.buffer == buffer]
            if not uses:
                continue
            if view.type_of(buffer).sizes != sizes:
                return None
            if any(u.writes or not _plain_loads(s, u.name) for s, u in uses):
                return None
            found[k] = view
        return found

    def shows(self, view: KernelView) -> bool:
        """It reads what kernels make."""
        return any(self.writing.get(u.buffer) for u in view.stages[0].uses if u.reads)

    def ends_a_product(self, view: KernelView, producer: Use, readers: dict[int, KernelView]) -> bool:
        """It is the last step of a product that nothing else reads, and its readers wait for a later product.

        Such a reader is the end of that product, and would do this step beside its own: a kernel of another form than
        where both steps stand with their products, as everywhere else in a network. Or it is that of several products, and
        its readers put it beside other parts of something larger: these would read all of them.
        """
        stage = view.stages[0]
        sources = {u.buffer for u in stage.uses if u.reads and u.forms == producer.forms}
        made = [(k, b) for b in sources for k, maker in self._makers(b).items() if _makes_product(maker, b)]
        if not made or any(len(self.touching[b]) > 2 for _, b in made):
            return False
        if len(made) > 1:
            return all(_puts_beside(reader, producer.buffer) for reader in readers.values())
        return all(
            any(self._waits(reader, stage, producer.buffer, made[0][0]) for stage in reader.stages)
            for reader in readers.values()
        )

    def _makers(self, buffer: str) -> dict[int, KernelView]:
        """The kernels in normal form that write a buffer, by number."""
        return {k: view for k in self.writing.get(buffer, ()) if (view := self.views[k]) is not None}

    def _waits(self, reader: KernelView, stage: Stage, buffer: str, number: int) -> bool:
        """Of the cells that a stage reads beside those of `buffer`, some come from a product behind kernel `number`."""
        mine = {u.forms for u in stage.uses if u.buffer == buffer}
        left = [u.buffer for u in stage.uses if u.reads and u.buffer != buffer and u.forms in mine]
        seen = {buffer}
        while left:
            name = left.pop()
            behind = {} if name in seen else {k: view for k, view in self._makers(name).items() if k > number}
            for view in behind.values():
                if _makes_product(view, name):
                    return True
                left += view.reads()
            seen.add(name)
        return False

    def move(self, number: int, view: KernelView, producer: Use, readers: dict[int, KernelView]) -> None:
        """Kernel `number` becomes part of its readers."""
        for k, reader in readers.items():
            self.views[k] = inlined(reader, view, producer)
        self.views[number] = self.kernels[number] = None
        for buffer in _touched(None, view):
            self.touching[buffer].discard(number)
            self.touching[buffer].update(readers)

    def result(self) -> tuple[Statement, ...]:
        return tuple(
            close_kernel(view) if view is not None and view is not opened else kernel
            for kernel, view, opened in zip(self.kernels, self.views, self.opened, strict=True)
            if kernel is not None
        )


def _makes_product(view: KernelView, buffer: str) -> bool:
    return any(is_heavy(view, s) for s in view.stages if any(u.writes and u.buffer == buffer for u in s.uses))


def _touched(kernel: Statement | None, view: KernelView | None) -> set[str]:
    """Buffers of main that a kernel names."""
    if view is not None:
        return {u.buffer for s in view.stages for u in s.uses}
    return {*buffers_named(kernel)} if isinstance(kernel, Block) else set()


def _plain_loads(stage: Stage, name: str) -> bool:
    return all(not s.at for s in stage.body if isinstance(s, Load) and s.src == name)


def _puts_beside(reader: KernelView, buffer: str) -> bool:
    """All that the kernel writes is larger than the buffer."""
    return all(elements(reader.type_of(b)) > elements(reader.type_of(buffer)) for b in reader.writes())
