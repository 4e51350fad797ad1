"""inline: recompute cheap elementwise producers inside their consumers' loads instead of storing them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import ClassVar

from tile_ir.machine import Machine
from tile_ir.names import claim
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Block, Const, Load, LoadIndex, Op, Program, Statement, Store
from tile_ir.target import Target

from tile_opt.blocks.buffers import drop_unused_temporaries, fixed_kernels, temporaries
from tile_opt.blocks.tree import main_of, with_kernels
from tile_opt.kernel.regroup import fresh_all
from tile_opt.kernel.unify import plain_loop
from tile_opt.kernel.view import KernelView, Stage, Use, close_kernel, open_kernel
from tile_opt.kernel.work import elements, is_elementwise, op_cost, points
from tile_opt.model.fusion import forecast_flat
from tile_opt.passes.base import Pass


@dataclass(frozen=True)
class Inline(Pass):
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
    costly: int = 8

    def apply(self, program: Program, target: Target) -> Program:
        work = _Work.of(program)
        temps, fixed = temporaries(program), fixed_kernels(program)
        for k, view in enumerate(work.views):
            producer = _producer(view, temps) if view else None
            if view is None or producer is None or len(view.stages[0].body) > self.max_body:
                continue
            readers = work.readers(producer.buffer, view.type_of(producer.buffer).sizes, k)
            if readers is None or (k in fixed and not fixed.issuperset(readers)):
                continue  # what is known before a run is not computed again in every run
            if self._pays(view, producer, readers, target.machine):
                work.move(k, view, producer, readers)
        return drop_unused_temporaries(with_kernels(program, work.result()))

    def _pays(self, view: KernelView, producer: Use, readers: dict[int, KernelView], machine: Machine) -> bool:
        size = elements(view.type_of(producer.buffer))
        loads = [(r, s) for r in readers.values() for s in r.stages for u in s.uses if u.buffer == producer.buffer]
        total = sum(points(stage, reader.ranges) for reader, stage in loads)
        if total <= self.max_recompute * size:
            return op_cost(view.stages[0]) < self.costly or not _loses(view, producer, readers, machine)
        cheap = op_cost(view.stages[0]) <= self.trivial_cost and sum(u.reads for u in view.stages[0].uses) <= 1
        return cheap and all(is_elementwise(stage) for _, stage in loads)


def _loses(view: KernelView, producer: Use, readers: dict[int, KernelView], machine: Machine) -> bool:
    """Computing it in its readers is expected to take longer than storing it."""
    apart = forecast_flat(view, machine) + sum(forecast_flat(r, machine) for r in readers.values())
    return sum(forecast_flat(_inlined(r, view, producer), machine) for r in readers.values()) > apart


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
    """Replace the loads through `use` by the producer's body at the point the use subscripts."""
    point = {name: theirs for mine, theirs in zip(out.forms, use.forms, strict=True) for name in mine.names}
    point |= {i.name: Affine() for i in producer.loops if i.name not in point}
    moved = producer.substitute(point)
    scalars = {s.dst for s in stage.body if isinstance(s, (Load, Const, Op, LoadIndex))}
    names = {u.name for u in stage.uses}
    rename_use = fresh_all((u.name for u in moved.uses if u.name != out.name), names)
    body, stored = _renamed_body(moved, rename_use, scalars)
    uses = tuple(replace(u, name=rename_use[u.name]) for u in moved.uses if u.name != out.name)
    kept = tuple(u for u in stage.uses if u is not use)
    return replace(stage, uses=uses + kept, body=_spliced(stage.body, use.name, body, stored))


def _renamed_body(stage: Stage, uses: dict[str, str], taken: set[str]) -> tuple[tuple[Statement, ...], str]:
    """The producer's statements under new scalar names, and the scalar that it would have stored."""
    scalars: dict[str, str] = {}
    out: list[Statement] = []
    stored = ""
    for s in stage.body:
        match s:
            case Load():
                scalars[s.dst] = claim(s.dst, taken)
                out.append(replace(s, dst=scalars[s.dst], src=uses[s.src], deps=()))
            case Op():
                scalars[s.dst] = claim(s.dst, taken)
                out.append(replace(s, dst=scalars[s.dst], args=tuple(scalars[a] for a in s.args), deps=()))
            case Const() | LoadIndex():
                scalars[s.dst] = claim(s.dst, taken)
                out.append(replace(s, dst=scalars[s.dst], deps=()))
            case Store():
                stored = scalars[s.src]
            case _:
                raise AssertionError(s)
    return tuple(out), stored


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
            return replace(statement, args=tuple(alias.get(a, a) for a in statement.args), deps=())
        case Store():
            at = tuple(alias.get(a, a) if isinstance(a, str) else a for a in statement.at)
            return replace(statement, src=alias.get(statement.src, statement.src), at=at, deps=())
        case Load():
            at = tuple(alias.get(a, a) if isinstance(a, str) else a for a in statement.at)
            return replace(statement, at=at, deps=())
        case _:
            return statement
