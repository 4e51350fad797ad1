"""The base of scheduling passes: each kernel in normal form gets a plan, which is built into scheduled Stripe.

A scheduling pass says which plans a kernel may have and what a plan makes of it. Everything else is here: a plan that
the caller gave goes before the pass's own choice, equal kernels are chosen for once, and what was decided is returned
beside the program.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from math import inf
from typing import ClassVar

from tile_ir.deadline import check
from tile_ir.diagnostics import Diagnostic, TileDeviceError
from tile_ir.frozen import frozen
from tile_ir.names import claim
from tile_ir.stripe.hashing import structural_hash
from tile_ir.stripe.nodes import Bind, Block, Program, Refinement, Statement
from tile_ir.stripe.walk import buffers_written
from tile_ir.target import Target

from tile_opt.blocks.buffers import fixed_buffers, wholes, with_main_refs
from tile_opt.blocks.tree import main_of, with_kernels
from tile_opt.kernel.pipeline import Pipeline, close_pipeline, close_scoped, open_pipeline
from tile_opt.kernel.tiles import PRIVATE, read_again
from tile_opt.kernel.view import KernelView, close_kernel, open_kernel
from tile_opt.model.search import choose
from tile_opt.passes.base import Pass
from tile_opt.passes.choosing import Choice
from tile_opt.passes.copies import Copies
from tile_opt.passes.through import made_for_one, seen_alike, without_unread
from tile_opt.plan.again import again
from tile_opt.plan.build import Built
from tile_opt.plan.check import PlanCheck
from tile_opt.plan.names import Names, operands, renamed
from tile_opt.plan.plan import Plan
from tile_opt.plan.space.cpu.groups import ROUNDS


def _has_tiles(copy: Block) -> bool:
    """A copy that each group of a pipeline's tiles makes for itself."""
    return any(i.bind is Bind.GRID for i in copy.indexes)


def _copied(view: KernelView, plan: Plan, built: Built) -> int:
    """Bytes that the plan has copied before the kernel in each call."""
    once = all(s.operand in view.fixed for s in plan.stagings if s.level < 0)
    return 0 if once else sum(ref.type.nbytes for ref in built.buffers)


def refused(message: str) -> TileDeviceError:
    """The error of a plan that a pass cannot build."""
    return TileDeviceError(Diagnostic("TILE-E415", message, hint="leave the kernel's plan out, and it gets one"))


@frozen
class Decision:
    """The plan of one kernel."""

    view: KernelView
    """The kernel in normal form."""
    plan: Plan
    scheduler: SchedulingPass
    given: bool = False
    """It was the caller's, not the pass's own."""
    within: str = ""
    """The kernel that this one is a part of, if it is."""
    made: tuple[str, ...] = ()
    """Names of the kernels that the plan made of it: its own, then those before and after; empty where that kept its name."""

    @property
    def key(self) -> str:
        """Equal for kernels that do the same to other buffers."""
        return structural_hash(self.view.block or close_kernel(self.view))

    @property
    def scheduled(self) -> str:
        """Name of the scheduled kernel."""
        return self.made[0] if self.made else self.view.name

    @property
    def remarks(self) -> tuple[str, ...]:
        """What the kernel computes, and the names that a plan of it may use."""
        loops = ", ".join(f"{name}: {extent}" for name, extent in self.view.ranges.items())
        buffers = ", ".join(operands(self.view))
        staged = (f"operands {buffers}",) if buffers else ()
        return (*self.view.comment.splitlines(), f"loops {loops or 'none'}", *staged)

    def others(self, target: Target) -> Iterator[Plan]:
        """What else the scheduler would consider, best first."""
        return (plan for plan in self.scheduler.candidates(self.view, target) if plan != self.plan)


@frozen
class Scheduled:
    """A scheduled program, and what was decided for its kernels, by name."""

    program: Program
    decisions: Mapping[str, Decision]
    choices: tuple[Choice, ...] = ()
    """Between kernels, by the passes that ran before."""


@dataclass(frozen=True)
class SchedulingPass(Pass):
    """A pass that chooses a plan for each kernel and builds it; kernels without candidates are left to later passes."""

    computes_on_the_way: ClassVar[bool] = False
    """Its copies may compute what another kernel makes for the one that is scheduled alone."""

    @abstractmethod
    def candidates(self, view: KernelView, target: Target) -> Iterator[Plan]:
        """Legal plans for a kernel, best first and few, each made when it is asked for."""

    def ranked(self, view: KernelView, target: Target) -> Iterator[tuple[float, Plan]]:
        """The candidates, each with how many times as long as the first it takes by their own forecast; inf where there is none."""
        return ((inf, plan) for plan in self.candidates(view, target))

    @abstractmethod
    def build(self, view: KernelView, plan: Plan, target: Target) -> Built:
        """The scheduled kernel; TileError with a sentence where the plan asks for what cannot be built."""

    def accepts(self, plan: Plan) -> bool:
        """Whether a plan of the caller's is for this pass to build."""
        del plan
        return True

    def choose(self, view: KernelView, target: Target) -> tuple[Plan, Built] | None:
        """The pass's own choice, built; None leaves the kernel to the passes that follow.

        The first candidate, or the one of the first `worth` that the cost model takes for the fastest: the time of copies
        before the kernel does not count, nor does the memory of those that are made once.
        """
        made = ((plan, self._timely(view, plan, target), slower) for slower, plan in self.ranked(view, target))
        first = next(made, None)
        if first is None:
            return None
        count = self.worth(view, target)
        if count < 2 or first[1].after:
            return first[:2]
        others = (other for other in islice(made, count - 1) if not other[1].after)
        enough = self.enough(view, target)
        return choose(
            target, first, others, lambda m: m[1].kernel, lambda m: _copied(view, *m[:2]), enough, lambda m: m[2]
        )[:2]

    def _timely(self, view: KernelView, plan: Plan, target: Target) -> Built:
        check("a plan of", view.name)
        return self.build(view, plan, target)

    def worth(self, view: KernelView, target: Target) -> int:
        """How many candidates to build and estimate before one is taken; 1 trusts their order."""
        del view, target
        return 1

    def enough(self, view: KernelView, target: Target) -> float:
        """Seconds that the first plan may be estimated to take before others are; 0 where all are."""
        del view, target
        return 0.0

    def checked(self, view: KernelView, plan: Plan, target: Target, given: Mapping[str, Plan] | None = None) -> Built:
        """What a plan from outside makes of a kernel; TilePlanError where it does not fit.

        Places are those in `given`, the plans of the caller, who is warned of what will be slow.
        """
        check = PlanCheck(view, plan, target, given or {})
        check.before()
        with check.building():
            built = self.build(view, plan, target)
        check.after(built.kernel, warn=given is not None)
        return built

    def decided(self, view: KernelView, target: Target, given: Mapping[str, Plan]) -> tuple[Plan, Built] | None:
        """The kernel's plan, built: the caller's if there is one, else the pass's own; None leaves it as it is."""
        plan = given.get(view.name)
        if plan is None:
            return self.choose(view, target)
        return (plan, self.checked(view, plan, target, given)) if self.accepts(plan) else None

    def apply(self, program: Program, target: Target) -> Program:
        return self.schedule(program, target).program

    def schedule(self, program: Program, target: Target, given: Mapping[str, Plan] | None = None) -> Scheduled:
        """`program` scheduled; `given` plans go before the pass's own choice, by kernel name.

        A given plan that does not fit its kernel or the target is a TilePlanError with its place.
        """
        main = main_of(program)
        made = made_for_one(program) if self.computes_on_the_way else dict[str, KernelView]()
        names, copies = {ref.into for ref in main.refs}, Copies(wholes(program))
        run = _Run(self, target, given or {}, names, fixed_buffers(program), made, copies)
        kernels = tuple(copies.passing(run.kernels(main.body)))
        if not run.decisions:
            return Scheduled(program, {})
        scheduled = with_kernels(program, kernels)
        if run.buffers:
            scheduled = with_main_refs(scheduled, (*main.refs, *run.buffers))
        return Scheduled(without_unread(scheduled, made), run.decisions)


@frozen
class _Known:
    """A kernel, its plan, and what that made of it."""

    view: KernelView
    plan: Plan
    built: Built

    def plan_for(self, view: KernelView) -> Plan | None:
        """The plan for another kernel of this structure."""
        return renamed(self.plan, Names.of(self.view), Names.of(view))

    def built_for(self, view: KernelView) -> Built | None:
        """What the plan makes of the other kernel, where only names differ."""
        if not self.built.alone or self.built.buffers or self.view.through:
            return None
        kernel = again(self.built.kernel, self.view, view)
        return None if kernel is None else Built(kernel)


@dataclass(slots=True)
class _Run:
    """One application of a scheduling pass to a program."""

    scheduler: SchedulingPass
    target: Target
    given: Mapping[str, Plan]
    taken: set[str]
    """Names of main's buffers."""
    fixed: frozenset[str]
    """Of these, what no call changes."""
    made: Mapping[str, KernelView]
    """Of these, what a kernel makes for another alone."""
    copies: Copies
    """What was copied before kernels so far."""
    names: set[str] = field(default_factory=set[str])
    """Kernels met so far."""
    buffers: list[Refinement] = field(default_factory=list[Refinement])
    decisions: dict[str, Decision] = field(default_factory=dict[str, Decision])
    known: dict[str, _Known] = field(default_factory=dict[str, "_Known"])
    """What was chosen for kernels so far, by structure."""

    def kernels(self, statements: Iterable[Statement]) -> Iterator[Statement]:
        """The kernels that take the place of `statements`; those that get no plan stay as they are."""
        for statement in statements:
            pipeline = open_pipeline(statement) if isinstance(statement, Block) else None
            if pipeline is not None:
                yield from self._joined(pipeline)
                continue
            built = self._built(statement) if isinstance(statement, Block) else None
            if built is None:
                yield statement
                continue
            yield from self._copied(built.before)
            yield built.kernel
            yield from self.kernels(built.after)

    def _joined(self, pipeline: Pipeline) -> Iterator[Statement]:
        """A pipeline whose parts have plans of their own, and what they have copied before it; as it was where one gets none."""
        built = [self._built(part, pipeline.name) for part in pipeline.parts]
        parts = [b for b in built if b is not None and not b.after]
        if len(parts) < len(built):
            self.decisions = {name: d for name, d in self.decisions.items() if d.within != pipeline.name}
            yield close_pipeline(pipeline)
            return
        copies = [copy for b in parts for copy in b.before]
        scoped = [copy for copy in copies if _has_tiles(copy)]
        yield from self._copied(tuple(copy for copy in copies if not _has_tiles(copy)))
        pipeline = replace(pipeline, parts=tuple(b.kernel for b in parts))
        if not scoped:
            yield close_pipeline(pipeline)
            return
        made = [copy if (b := self._built(copy, pipeline.name)) is None else b.kernel for copy in scoped]
        panels = [ref for b in parts for ref in b.buffers]
        yield close_scoped(pipeline, made, panels, ROUNDS * self.target.settings.cores)

    def _copied(self, copies: tuple[Block, ...]) -> Iterator[Statement]:
        yield from self.kernels(copies)
        self.copies.made(copies)

    def _built(self, kernel: Block, within: str = "") -> Built | None:
        name = claim(kernel.name, self.names)
        view = open_kernel(kernel)
        if view is None:
            return None
        still = frozenset(r.into for r in view.refs if r.source in self.fixed)
        tiles = read_again(view) if within else frozenset[str]()
        makers = {r: maker for r in view.refs if (maker := self.made.get(r.source)) is not None}
        through = {r.into: seen for r, maker in makers.items() if (seen := seen_alike(view, r, maker)) is not None}
        copied = self.copies.of(view.refs)
        view = replace(view, name=name, fixed=still, again=tiles, copied=copied, through=through)
        known = [
            (r.into in still, r.into in tiles, r.into in through, *sorted(copied.get(r.into, ()))) for r in view.refs
        ]
        decided = self._decided(view, structural_hash(kernel) + str(known))
        if decided is None:
            return None
        plan, built = decided
        built = self._told_apart(self._among_others(built))
        made = tuple(b.name for b in (built.kernel, *built.before, *built.after))
        self.decisions[name] = Decision(view, plan, self.scheduler, name in self.given, within, made)
        return built

    def _decided(self, view: KernelView, key: str) -> tuple[Plan, Built] | None:
        if view.name in self.given:
            return self.scheduler.decided(view, self.target, self.given)
        known = self.known.get(key)
        plan = None if known is None else known.plan_for(view)
        if known is not None and plan is not None:
            return plan, known.built_for(view) or self.scheduler.build(view, plan, self.target)
        decided = self.scheduler.choose(view, self.target)
        if decided is not None:
            self.known[key] = _Known(view, *decided)
        return decided

    def _among_others(self, built: Built) -> Built:
        """Copies that are there are not made again; buffers of main that two kernels would call the same get names of their own."""
        there = self.copies.again(built.before)
        mine = [ref for ref in built.buffers if ref.into not in there]
        new = there | {ref.into: claim(ref.into, self.taken) for ref in mine}
        named = [replace(ref, into=new[ref.into]) for ref in mine]
        private = tuple(ref for ref in named if ref.loc == PRIVATE)
        self.buffers += [ref for ref in named if ref.loc != PRIVATE]
        if not there and all(old == name for old, name in new.items()):
            return replace(built, buffers=private)

        def moved(kernel: Block) -> Block:
            return replace(kernel, refs=tuple(replace(r, source=new.get(r.source, r.source)) for r in kernel.refs))

        before = tuple(moved(k) for k in built.before if there.keys().isdisjoint(buffers_written(k)))
        return Built(moved(built.kernel), before, tuple(map(moved, built.after)), private)

    def _told_apart(self, built: Built) -> Built:
        """The kernels that a plan adds under the names that they will be met by: two copies of one kernel would be called the same."""
        taken = set(self.names)
        before, after = (tuple(replace(k, name=claim(k.name, taken)) for k in b) for b in (built.before, built.after))
        return replace(built, before=before, after=after)
