"""Measuring several plans of each kernel instead of trusting the cost model's first choice.

Every kernel is timed by itself, so that one compilation tries another plan of each of them at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tile_ir.diagnostics import TileError
from tile_ir.frozen import frozen

from tile_runtime.measuring import winners
from tile_runtime.measuring.measure import ROUNDS, Buffers, Launch, launches

if TYPE_CHECKING:
    from tile_opt.compiled import Compiled
    from tile_opt.passes.scheduling import Decision
    from tile_opt.plan.plan import Plan

    from tile_runtime.lowered import Lowered

UNMEASURED = float("inf")
HOPELESS, LOOKS = 10, 2
"""A plan whose best of so many runs takes so many times as long as that of the fastest is not run again: the first run may have been
cold or interrupted."""


@dataclass(slots=True)
class Trial:
    """One plan of a kernel that was measured."""

    kernels: tuple[Decision, ...]
    """The kernel, and all others of the program that do the same."""
    plan: Plan
    """In the names of the first of them."""
    seconds: float = UNMEASURED
    """Best time of one run: all launches of these kernels, and of the kernels that the plan adds."""
    failure: str | None = None
    """Why the device could not run it."""
    running: bool = True
    """False once it has failed, or has taken so long that it is not run again."""

    def fail(self, reason: TileError) -> None:
        self.failure, self.seconds, self.running = str(reason), UNMEASURED, False

    @property
    def kernel(self) -> str:
        return self.kernels[0].view.name

    @property
    def measured(self) -> bool:
        return self.seconds < UNMEASURED

    @property
    def own(self) -> bool:
        """It is the compiler's choice."""
        return self.plan == self.kernels[0].plan

    def plans(self) -> Iterator[tuple[str, Plan]]:
        """The plan for each of its kernels, in their own names."""
        from tile_opt.plan.names import Names, renamed

        first = Names.of(self.kernels[0].view)
        for decision in self.kernels:
            plan = renamed(self.plan, first, Names.of(decision.view))
            if plan is not None:
                yield decision.view.name, plan


@frozen
class Tuned:
    """What tuning found: the program with the best plan of each kernel, and all trials, a kernel's fastest first."""

    lowered: Lowered
    trials: tuple[Trial, ...]


Watch = Callable[[Sequence[Trial], int, int], None]
"""Sees all trials, and how many of how many runs are done."""


def _unwatched(trials: Sequence[Trial], done: int, total: int) -> None:
    del trials, done, total


def measure(
    base: Lowered,
    count: int,
    watch: Watch = _unwatched,
    alone: AbstractContextManager[object] | None = None,
    spread: bool = False,
) -> Tuned:
    """Time up to `count` plans of each kernel of `base`, on inputs of ones.

    A plan that fails on the device keeps an infinite time. Winners are stored on disk for `best`, even when
    KeyboardInterrupt ends the measuring early. `watch` is called after each run. `alone` is held while the device runs, such as
    a lock of several processes that compile beside each other. With `spread` the plans lie evenly among all that are weighed, good
    and bad ones, instead of being those that are expected to be best.
    """
    kernels = [list(_trials(base, group, count, spread)) for group in _groups(base)]
    kernels = [trials for trials in kernels if len(trials) > 1]
    try:
        _time(base, kernels, watch, alone or nullcontext())
    finally:
        for trials in kernels:
            trials.sort(key=lambda t: t.seconds)
            if trials[0].measured:
                winners.store(base, trials[0].kernels[0], trials[0].plan, count)
    trials = tuple(trial for kernel in kernels for trial in kernel)
    return Tuned(best_of(base, trials), trials)


def best_of(base: Lowered, trials: Sequence[Trial]) -> Lowered:
    """`base` with the fastest measured plan of each kernel."""
    fastest: dict[str, Trial] = {}
    for trial in sorted(trials, key=lambda t: t.seconds):
        if trial.measured:
            fastest.setdefault(trial.kernel, trial)
    return _with(base, [t for t in fastest.values() if not t.own])


def best(base: Lowered, count: int) -> Lowered:
    """`base` with the fastest of up to `count` plans of each kernel, stored or measured now."""
    if count == 1 or not base.device.capabilities.executes:
        return base
    found: list[Trial] = []
    for group in _groups(base):
        stored = winners.find(base, group[0], count)
        if stored is not None:
            found.append(Trial(group, stored))
        elif next(group[0].others(base.target), None) is not None:
            return measure(base, count).lowered
    return _with(base, [t for t in found if not t.own])


def _groups(base: Lowered) -> list[tuple[Decision, ...]]:
    """Kernels whose plans may be changed, equal ones together; parts of a kernel cannot be timed alone."""
    from tile_ir.stripe.nodes import Block
    from tile_opt.blocks.tree import kernels_of

    groups: dict[str, list[Decision]] = {}
    compiled = base.compiled
    programs = [part.stripe for part in compiled.parts] or [compiled.stripe]
    timed = {kernel.name for program in programs for kernel in kernels_of(program) if isinstance(kernel, Block)}
    added = _makers(compiled)
    for name, decision in compiled.decisions.items():
        if decision.scheduled in timed and not (decision.given or name in added):
            groups.setdefault(decision.key, []).append(decision)
    return [tuple(group) for group in groups.values()]


def _makers(compiled: Compiled) -> dict[str, str]:
    """By kernel, the one whose plan made it: of a copy, a combination, a kernel under another name."""
    return {kernel: name for name, d in compiled.decisions.items() for kernel in d.made if kernel != name}


def _trials(base: Lowered, group: tuple[Decision, ...], count: int, spread: bool) -> Iterator[Trial]:
    """The compiler's choice, and the next best plans that make other kernels, or with `spread` some of all."""
    first = group[0]
    seen = {_built(base, first, first.plan)}
    yield Trial(group, first.plan)
    others = first.others(base.target)
    for plan in _evenly(list(others), count) if spread else others:
        if len(seen) >= count:
            return
        built = _built(base, first, plan)
        if built is not None and built not in seen:
            seen.add(built)
            yield Trial(group, plan)


def _evenly(plans: Sequence[Plan], count: int) -> Sequence[Plan]:
    """About so many, as far from each other as can be."""
    return plans[:: max(1, -(-len(plans) // max(1, count - 1)))]


def _built(base: Lowered, decision: Decision, plan: Plan) -> str | None:
    """What a plan makes of a kernel, as a hash; None where it makes nothing."""
    from tile_ir.stripe.hashing import structural_hash

    try:
        return structural_hash(decision.scheduler.checked(decision.view, plan, base.target).kernel)
    except TileError:
        return None


def _with(base: Lowered, trials: Sequence[Trial]) -> Lowered:
    """`base` with the plans of these trials; itself without any."""
    plans = dict(pair for trial in trials for pair in trial.plans())
    return base.planned({**base.given, **plans}) if plans else base


@frozen
class _Variant:
    """A compilation with one plan of each kernel, made ready to run step by step."""

    steps: tuple[tuple[Trial | None, Launch], ...]
    """Each step, and the trial that it is part of."""

    @staticmethod
    def of(base: Lowered, trials: Sequence[Trial], buffers: Buffers) -> _Variant:
        low = _with(base, [t for t in trials if not t.own])
        mine = {decision.view.name: trial for trial in trials for decision in trial.kernels}
        makers = _makers(low.compiled)

        def trial(kernel: str) -> Trial | None:
            while kernel in makers:
                kernel = makers[kernel]
            return mine.get(kernel)

        return _Variant(tuple((trial(step.kernel), step) for step in launches(low, buffers)))

    def run(self) -> dict[int, float]:
        """One run of the program: seconds by trial, under its identity."""
        spent: dict[int, float] = {}
        for trial, step in self.steps:
            if trial is not None and not trial.running:
                continue
            try:
                seconds = step.seconds() * step.times
            except TileError as failure:
                if trial is None or trial.own:
                    raise  # what the cost model chose has to run
                trial.fail(failure)
                continue
            if trial is not None:
                spent[id(trial)] = spent.get(id(trial), 0.0) + seconds
        return spent


def _variant(base: Lowered, trials: Sequence[Trial], buffers: Buffers) -> _Variant | None:
    """The variant with these trials; None, and their failure, where the device does not take it."""
    try:
        return _Variant.of(base, trials, buffers)
    except TileError as failure:
        others = [trial for trial in trials if not trial.own]
        if not others:
            raise
        for trial in others:
            trial.fail(failure)
        return None


def _time(
    base: Lowered, kernels: Sequence[Sequence[Trial]], watch: Watch, alone: AbstractContextManager[object]
) -> None:
    """Trial number n of all kernels is one variant; variants take turns."""
    count = max((len(kernel) for kernel in kernels), default=0)
    buffers: Buffers = {}
    variants = [
        variant
        for n in range(count)
        if (variant := _variant(base, [kernel[n if n < len(kernel) else 0] for kernel in kernels], buffers))
    ]
    with alone:
        _run(kernels, variants, watch)


def _run(kernels: Sequence[Sequence[Trial]], variants: Sequence[_Variant], watch: Watch) -> None:
    trials = [trial for kernel in kernels for trial in kernel]
    total = (ROUNDS + 1) * len(variants)
    for turn in range(ROUNDS + 1):
        for number, variant in enumerate(variants):
            spent = variant.run()
            for trial in trials:
                if trial.running:
                    trial.seconds = min(trial.seconds, spent.get(id(trial), UNMEASURED))
            watch(trials, turn * len(variants) + number + 1, total)
        if turn + 1 == LOOKS:
            for kernel in kernels:
                _drop_slow(kernel)


def _drop_slow(kernel: Sequence[Trial]) -> None:
    """Plans that are not worth more runs keep the best time so far."""
    fastest = min(trial.seconds for trial in kernel)
    for trial in kernel:
        if not trial.own and trial.seconds > HOPELESS * fastest:
            trial.running = False
