"""The checks of a plan, one function each: yields a finding per mistake."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from tile_ir.target import Target

from tile_opt.kernel.view import KernelView
from tile_opt.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class Finding:
    """A mistake in a line of a plan; `word` is the part of the line that is wrong, or ""."""

    code: str
    message: str
    kind: str = "plan"
    number: int = 0
    word: str = ""
    hint: str | None = None


def did_you_mean(name: str, known: Iterable[str], what: str = "known") -> str:
    """A hint: the closest of the known names, or all of them."""
    names = list(known)
    close = get_close_matches(name, names, n=1)
    return f"did you mean {close[0]!r}?" if close else f"{what}: {', '.join(names) or 'none'}"


Check = Callable[[KernelView, Plan, Target], Iterator[Finding]]


def loops_exist(view: KernelView, plan: Plan, target: Target) -> Iterator[Finding]:
    """Every loop that a line names is one of the kernel's."""
    named = [("level", n, c.loop) for n, level in enumerate(plan.levels) for c in level.covers]
    named += [("stage", n, loop) for n, staging in enumerate(plan.stagings) for loop in staging.order]
    named += [("reduce", n, reduction.loop) for n, reduction in enumerate(plan.reductions)]
    named += [("edge", n, loop) for n, (loop, _) in enumerate(plan.edges)]
    if plan.instruction is not None:
        named += [("instruction", 0, loop) for _, loop in plan.instruction.loops]
    for kind, number, loop in named:
        if loop not in view.ranges:
            hint = did_you_mean(loop, view.ranges, "its loops")
            yield Finding("TILE-E631", f"the kernel {view.name!r} has no loop {loop!r}", kind, number, loop, hint)


CHECKS: tuple[Check, ...] = (loops_exist,)
