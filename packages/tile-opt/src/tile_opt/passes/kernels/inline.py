"""inline: recompute cheap elementwise producers inside their consumers' loads instead of storing them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import ClassVar

from tile_ir.deadline import check
from tile_ir.machine import Machine
from tile_ir.names import claim
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Block, Const, Load, LoadIndex, Op, Program, Statement, Store
from tile_ir.target import Target

from tile_opt.blocks.buffers import drop_unused_temporaries, fixed_kernels, temporaries
from tile_opt.blocks.tree import main_of, with_kernels
from tile_opt.kernel.regroup import fresh_all
from tile_opt.kernel.strides import flat_stride
from tile_opt.kernel.unify import plain_loop
from tile_opt.kernel.view import KernelView, Stage, Use, close_kernel, open_kernel
from tile_opt.kernel.work import elements, is_elementwise, is_heavy, op_cost, points
from tile_opt.model.fusion import forecast_flat
from tile_opt.passes.choosing import Choice, Choices, ChoosingPass, Chosen, results

ROW = 64
"""Bytes that lie together, of which a device reads as fast as of more."""
_PLAIN = (Load, Const, Op, LoadIndex, Store)


@dataclass(frozen=True)
class Inline(ChoosingPass):
    """Move an elementwise producer into every consumer when recomputation costs less than memory traffic.

    A producer is inlined when all its consumers together evaluate it at most `max_recompute` times per
    element, or when it costs at most `trivial_cost` operations and all consumers are elementwise.
    Bodies beyond `max_body` statements are stored: their temporary costs nothing beside them, and
    every step of a long chain would copy all steps before it. One with math functions (`costly` operations or more)
    stays where vector lanes take it, when its readers run one iteration after the other.
    """

    name: ClassVar[str] = "inline"
    max_recompute: float = 1.5
    trivial_cost: int = 1
    max_body: int = 256
    max_cost: int = 384
    """Operations; compilers of machine code take long for longer bodies."""
    costly: int = 8
    copies: bool = False
    """Copies in another order move into contractions, too: their plans copy operands by tiles, where that is worth it.

    Without it, those that leave rows together.
    """

    def choose(self, program: Program, target: Target) -> Choices:
        work = _Work.of(program)
        temps, fixed = temporaries(program), fixed_kernels(program)
        choices: list[Choice] = []
        for k, view in enumerate(work.views):
            check(self.name, view.name if view else "a kernel")
            producer = _producer(view, temps) if view else None
            if view is None or producer is None or self._is_long(view.stages[0]):
                continue
            readers = work.readers(producer.buffer, view.type_of(producer.buffer).sizes, k)
            if readers is None:
                continue
            early = k in fixed and not fixed.issuperset(readers)
            choice = _kept(view, readers) if early else self._choice(view, producer, readers, target.machine)
            choices.append(choice)
            if choice.chosen is Chosen.INLINED:
                work.move(k, view, producer, readers)
        return Choices(drop_unused_temporaries(with_kernels(program, work.result())), tuple(choices))

    def _is_long(self, stage: Stage) -> bool:
        return len(stage.body) > self.max_body or op_cost(stage) > self.max_cost

    def _choice(self, view: KernelView, producer: Use, readers: dict[int, KernelView], machine: Machine) -> Choice:
        size = elements(view.type_of(producer.buffer))
        loads = [(r, s) for r in readers.values() for s in r.stages for u in s.uses if u.buffer == producer.buffer]
        often = sum(points(stage, reader.ranges) for reader, stage in loads) / max(1, size)
        names = producer.buffer, results(readers.values())
        moved = not op_cost(view.stages[0]) and (self.copies or _keeps_rows(view, producer))
        if moved and all(_is_operand(r, s, producer.buffer) for r, s in loads):
            return Choice(Chosen.INLINED, *names, reason="what reads it reads each of its parts again and again")
        if often > self.max_recompute:
            cheap = op_cost(view.stages[0]) <= self.trivial_cost and sum(u.reads for u in view.stages[0].uses) <= 1
            taken = cheap and all(is_elementwise(stage) for _, stage in loads)
            chosen = Chosen.INLINED if taken else Chosen.STORED
            return Choice(chosen, *names, reason=f"each element is wanted {often:.3g} times")
        if op_cost(view.stages[0]) < self.costly or all(_is_pointwise(s, producer.buffer) for _, s in loads):
            return Choice(Chosen.INLINED, *names, reason="each element is wanted once")
        together, apart = _seconds(view, producer, readers, machine)
        return Choice(Chosen.STORED if together > apart else Chosen.INLINED, *names, together, apart)


def _keeps_rows(view: KernelView, producer: Use) -> bool:
    """A copy of rows in another order, each of at least `ROW` bytes that lie together where they are read and written."""
    stage, last = view.stages[0], producer.forms[-1].names if producer.forms else ()
    if len(last) != 1 or view.ranges[last[0]] * view.type_of(producer.buffer).dtype.bytes < ROW:
        return False
    return all(flat_stride(view, use, last[0]) == 1 for use in stage.uses)


def _is_operand(view: KernelView, stage: Stage, buffer: str) -> bool:
    """The stage is a product that reads the buffer in rows and columns, which tiles of it may be copies of."""
    forms = [f for u in stage.uses if u.buffer == buffer for f in u.forms]
    plain = all(f.is_const or (len(f.terms) == 1 and f.terms[0][1] == 1) for f in forms)
    return plain and is_heavy(view, stage)


def _kept(view: KernelView, readers: dict[int, KernelView]) -> Choice:
    """What is known before a run is not computed again in every run."""
    return Choice(Chosen.STORED, results((view,)), results(readers.values()), reason="it is known before a run")


def _is_pointwise(stage: Stage, buffer: str) -> bool:
    """It reads a cell for each that it writes, the same one: whatever makes it can be made there."""
    forms = [u.forms for u in stage.uses if u.buffer == buffer or u.writes]
    return is_elementwise(stage) and len(set(forms)) == 1


def _seconds(view: KernelView, producer: Use, readers: dict[int, KernelView], machine: Machine) -> tuple[float, float]:
    """What computing it in its readers, and storing it, is expected to take."""
    apart = forecast_flat(view, machine) + sum(forecast_flat(r, machine) for r in readers.values())
    return sum(forecast_flat(_inlined(r, view, producer), machine) for r in readers.values()), apart


class _Work:
    """The kernels of a program while producers move into their readers; `touching` finds a buffer's kernels at once."""

    def __init__(self, kernels: tuple[Statement, ...]) -> None:
        self.kernels: list[Statement | None] = list(kernels)
        """None where a producer has gone."""
        self.views = [open_kernel(k) if isinstance(k, Block) else None for k in kernels]
        self.opened = tuple(self.views)
        self.touching: defaultdict[str, set[int]] = defaultdict(set)
        for k, (kernel, view) in enumerate(zip(kernels, self.views, strict=True)):
            for buffer in _touched(kernel, view):
                self.touching[buffer].add(k)

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

    def move(self, number: int, view: KernelView, producer: Use, readers: dict[int, KernelView]) -> None:
        """Kernel `number` becomes part of its readers."""
        for k, reader in readers.items():
            self.views[k] = _inlined(reader, view, producer)
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


def _touched(kernel: Statement | None, view: KernelView | None) -> set[str]:
    """Buffers of main that a kernel names."""
    if view is not None:
        return {u.buffer for s in view.stages for u in s.uses}
    return {r.source for r in kernel.refs} if isinstance(kernel, Block) else set()


def _producer(view: KernelView, temps: frozenset[str]) -> Use | None:
    """The one access an inlinable kernel writes: a whole temporary, each cell once, by plain loops."""
    if len(view.stages) != 1 or view.loops or view.allocs:
        return None
    stage = view.stages[0]
    outs = [u for u in stage.uses if u.writes]
    if len(outs) != 1 or outs[0].buffer not in temps or not _flat_elementwise(stage):
        return None
    sizes = view.type_of(outs[0].buffer).sizes
    named = [plain_loop(f, stage, s) for f, s in zip(outs[0].forms, sizes, strict=True) if s != 1]
    covers = None not in named and len(set(named)) == len(named) == len([i for i in stage.loops if i.range > 1])
    return outs[0] if covers and all(f.is_const for f, s in zip(outs[0].forms, sizes, strict=True) if s == 1) else None


def _flat_elementwise(stage: Stage) -> bool:
    if stage.constraints or stage.guard or not is_elementwise(stage):
        return False
    return all(isinstance(s, Const | Op | LoadIndex) or (isinstance(s, Load | Store) and not s.at) for s in stage.body)


def _plain_loads(stage: Stage, name: str) -> bool:
    return all(not s.at for s in stage.body if isinstance(s, Load) and s.src == name)


def _inlined(reader: KernelView, view: KernelView, producer: Use) -> KernelView:
    stages = tuple(_inline_stage(s, view.stages[0], producer) for s in reader.stages)
    refs = {r.into: r for r in reader.refs if r.into != producer.buffer}
    refs |= {r.into: r for r in view.refs if r.into != producer.buffer and r.into not in refs}
    return replace(reader, stages=stages, refs=tuple(refs.values()))


def _inline_stage(stage: Stage, producer: Stage, out: Use) -> Stage:
    while True:
        use = next((u for u in stage.uses if u.buffer == out.buffer), None)
        if use is None:
            return stage
        stage = _inline_use(stage, use, producer, out)


def _inline_use(stage: Stage, use: Use, producer: Stage, out: Use) -> Stage:
    """Replace the loads through `use` by the producer's body at the point the use subscripts.

    The longer of the two bodies keeps its names: in a long chain that is the producer's, which every step would rename.
    """
    point = {name: theirs for mine, theirs in zip(out.forms, use.forms, strict=True) for name in mine.names}
    point |= {i.name: Affine() for i in producer.loops if i.name not in point}
    moved = producer.substitute(point)
    inner = _Body(moved.body, tuple(u for u in moved.uses if u.name != out.name))
    outer = _Body(stage.body, tuple(u for u in stage.uses if u is not use))
    if len(inner.statements) > len(outer.statements) and all(isinstance(s, _PLAIN) for s in outer.statements):
        outer = outer.apart_from(inner, {use.name}).sharing(inner, use.name)
    else:
        inner = inner.apart_from(outer, {out.name, use.name})
    body, stored = inner.without_store(out.name)
    return replace(stage, uses=inner.uses + outer.uses, body=_spliced(outer.statements, use.name, body, stored))


@dataclass(frozen=True, slots=True)
class _Body:
    """Statements, and the accesses that they go through."""

    statements: tuple[Statement, ...]
    uses: tuple[Use, ...]

    @property
    def scalars(self) -> set[str]:
        return {s.dst for s in self.statements if isinstance(s, (Load, Const, Op, LoadIndex))}

    def apart_from(self, other: _Body, kept: set[str]) -> _Body:
        """The same under names that `other` does not use; accesses called `kept` keep theirs."""
        uses = fresh_all((u.name for u in self.uses), {u.name for u in other.uses} | kept)
        scalars: dict[str, str] = {}
        taken = other.scalars
        made = tuple(_renamed(s, scalars, uses, taken) for s in self.statements)
        return _Body(made, tuple(replace(u, name=uses[u.name]) for u in self.uses))

    def sharing(self, early: _Body, use: str) -> _Body:
        """The same without loads of what `early` has loaded, which will stand at the first load through `use`."""
        at = next(k for k, s in enumerate(self.statements) if isinstance(s, Load) and s.src == use)
        if not all(isinstance(s, (Load, Const, LoadIndex)) for s in self.statements[:at]):
            return self
        written = {u.buffer for u in self.uses if u.writes}
        known = {(u.buffer, u.forms): u.name for u in early.uses if not u.extent}
        twice = {u.name: known.get((u.buffer, u.forms)) for u in self.uses if not u.extent and u.buffer not in written}
        loaded = {s.src: s.dst for s in early.statements if isinstance(s, Load) and not s.at}
        alias: dict[str, str] = {}
        kept: list[Statement] = []
        for s in self.statements:
            scalar = loaded.get(twice.get(s.src) or "") if isinstance(s, Load) and not s.at else None
            if isinstance(s, Load) and scalar is not None:
                alias[s.dst] = scalar
            else:
                kept.append(renamed_operands(s, alias))
        read = {s.src for s in kept if isinstance(s, Load)}
        return _Body(tuple(kept), tuple(u for u in self.uses if u.writes or u.name in read))

    def without_store(self, out: str) -> tuple[tuple[Statement, ...], str]:
        """The statements but the store through `out`, and the scalar that it stores."""
        stored = next(s.src for s in self.statements if isinstance(s, Store) and s.dst == out)
        return tuple(s for s in self.statements if not isinstance(s, Store)), stored


def _renamed(s: Statement, scalars: dict[str, str], uses: dict[str, str], taken: set[str]) -> Statement:
    """A statement with its scalar under a fresh name, which `scalars` notes; it reads those noted before."""
    match s:
        case Load():
            source, scalars[s.dst] = uses.get(s.src, s.src), claim(s.dst, taken)
            at = tuple(scalars.get(a, a) if isinstance(a, str) else a for a in s.at)
            return replace(s, dst=scalars[s.dst], src=source, at=at, deps=())
        case Op():
            args = tuple(scalars[a] for a in s.args)
            scalars[s.dst] = claim(s.dst, taken)
            return replace(s, dst=scalars[s.dst], args=args, deps=())
        case Const() | LoadIndex():
            scalars[s.dst] = claim(s.dst, taken)
            return replace(s, dst=scalars[s.dst], deps=())
        case Store():
            at = tuple(scalars.get(a, a) if isinstance(a, str) else a for a in s.at)
            return replace(s, dst=uses.get(s.dst, s.dst), src=scalars[s.src], at=at, deps=())
        case _:
            raise AssertionError(s)


def _spliced(body: tuple[Statement, ...], use: str, inner: tuple[Statement, ...], stored: str) -> tuple[Statement, ...]:
    """`body` with the loads from `use` replaced by `inner` (once), their scalars by `stored`."""
    out: list[Statement] = []
    alias: dict[str, str] = {}
    placed = False
    for s in body:
        if isinstance(s, Load) and s.src == use:
            if not placed:
                out.extend(inner)
                placed = True
            alias[s.dst] = stored
        else:
            out.append(renamed_operands(s, alias))
    return tuple(out)


def renamed_operands(statement: Statement, alias: dict[str, str]) -> Statement:
    """`statement` with the scalars it reads renamed; its sibling dependencies are dropped with the old numbering."""
    match statement:
        case Op():
            if not statement.deps and alias.keys().isdisjoint(statement.args):
                return statement
            return replace(statement, args=tuple(alias.get(a, a) for a in statement.args), deps=())
        case Store():
            at = tuple(alias.get(a, a) if isinstance(a, str) else a for a in statement.at)
            return replace(statement, src=alias.get(statement.src, statement.src), at=at, deps=())
        case Load():
            if not statement.deps and not statement.at:
                return statement
            at = tuple(alias.get(a, a) if isinstance(a, str) else a for a in statement.at)
            return replace(statement, at=at, deps=())
        case _:
            return statement
