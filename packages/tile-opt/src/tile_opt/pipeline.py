"""Running a target's pass list over a Stripe program, with dumps and verification between passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from time import perf_counter

from tile_ir.deadline import check as check_time
from tile_ir.diagnostics import TileInternalError
from tile_ir.settings import Settings, malformed
from tile_ir.stripe.nodes import Program
from tile_ir.target import PassConfig, Target

from tile_opt.kernel.view import kept_open
from tile_opt.passes import Pass, create, current
from tile_opt.passes.choosing import Choice, ChoosingPass
from tile_opt.passes.scheduling import Decision, Scheduled, SchedulingPass
from tile_opt.plan.plan import Plan

Callback = Callable[[int, str, Program], None]
"""``callback(index, label, program)``: 0 is the unscheduled program, n the result of pass n."""


class PassError(TileInternalError):
    """A pass made an invalid program; the message names the pass."""


def optimize(
    program: Program,
    target: Target,
    *,
    passes: Iterable[PassConfig | Pass] | None = None,
    callback: Callback | None = None,
    verify: bool | None = None,
    timings: dict[str, float] | None = None,
) -> Program:
    """`program` scheduled for `target`; arguments as in `schedule`."""
    return schedule(program, target, passes=passes, callback=callback, verify=verify, timings=timings).program


def schedule(
    program: Program,
    target: Target,
    *,
    passes: Iterable[PassConfig | Pass] | None = None,
    plans: Mapping[str, Plan] | None = None,
    callback: Callback | None = None,
    verify: bool | None = None,
    timings: dict[str, float] | None = None,
) -> Scheduled:
    """`program` scheduled for `target`, and what was decided for its kernels.

    `passes` replaces the target's list. `verify` checks the structure of the program before the first and
    after every pass (TILE_VERIFY when None) and raises PassError naming the culprit. `callback` sees every
    version; TILE_DUMP_IR writes each to a numbered file. `timings` receives seconds per pass label.
    `plans` by kernel name go before what the passes choose; TilePlanError with the place for one that does not fit.
    """
    settings = Settings.from_environment()
    check = settings.verify if verify is None else verify
    watch = _observers(settings.dump_ir, callback)
    steps = _resolved(target.passes if passes is None else passes)
    decisions: dict[str, Decision] = {}
    choices: list[Choice] = []
    _observe(0, "initial", program, watch, check)
    with kept_open():
        for number, (label, stripe_pass) in enumerate(steps, 1):
            check_time("pass", label)
            start = perf_counter()
            made = _applied(stripe_pass, program, target, plans or {})
            program = made.program
            decisions.update(made.decisions)
            choices.extend(made.choices)
            if timings is not None:
                timings[label] = timings.get(label, 0.0) + perf_counter() - start
            _observe(number, label, program, watch, check)
    return Scheduled(program, decisions, tuple(choices))


def _applied(stripe_pass: Pass, program: Program, target: Target, plans: Mapping[str, Plan]) -> Scheduled:
    """The program after one pass, and what the pass decided."""
    match stripe_pass:
        case SchedulingPass():
            scheduled = stripe_pass.schedule(program, target, plans)
            return Scheduled(scheduled.program, scheduled.decisions)
        case ChoosingPass():
            made = stripe_pass.choose(program, target)
            return Scheduled(made.program, {}, tuple(made.choices))
        case _:
            return Scheduled(stripe_pass.apply(program, target), {})


def _resolved(passes: Iterable[PassConfig | Pass]) -> list[tuple[str, Pass]]:
    """Every pass is created before any runs: a bad list fails at once."""
    return [
        (entry.label or entry.name, create(current(entry))) if isinstance(entry, PassConfig) else (entry.name, entry)
        for entry in passes
    ]


def _observers(dump: Path | None, callback: Callback | None) -> list[Callback]:
    watch = [] if callback is None else [callback]
    return watch if dump is None else [*watch, _dumper(dump)]


def _observe(number: int, label: str, program: Program, watch: list[Callback], check: bool) -> None:
    for callback in watch:
        callback(number, label, program)
    if not check:
        return
    from tile_ir.stripe.verify import verify

    try:
        verify(program)
    except TileInternalError as error:
        culprit = f"pass {number} ({label})" if number else "the program before any pass"
        raise PassError(f"{culprit} is not valid Stripe: {error}") from error


def _dumper(folder: Path) -> Callback:
    from tile_ir.stripe.printer import print_program

    def dump(number: int, label: str, program: Program) -> None:
        safe = "".join(ch if ch.isalnum() or ch in "-_" else "_" for ch in label)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{number:02d}_{safe}.stripe").write_text(print_program(program), encoding="utf-8")
        except OSError as problem:
            raise malformed(f"TILE_DUMP_IR must be a folder that can be written: {problem}") from None

    return dump
