"""From a typed Tile program to a kernel list, stage by stage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tile_ir.collector import uncollected
from tile_ir.deadline import within_time
from tile_ir.diagnostics import Diagnostic, TileDeviceError
from tile_ir.frozen import frozen
from tile_ir.program.provenance import numbered
from tile_ir.settings import Settings
from tile_ir.stripe.nodes import Program as StripeProgram
from tile_ir.target import PassConfig, Target

from tile_opt.compiled import Compiled
from tile_opt.found_domains import shared_domains
from tile_opt.lower_kernels import lower_kernels, timed
from tile_opt.pipeline import Callback, schedule
from tile_opt.plan.check import lowering, refuse_unused

if TYPE_CHECKING:
    from tile_ir.program.nodes import Program

    from tile_opt.passes import Pass
    from tile_opt.plan.plan import Plan
    from tile_opt.proof import Report


def compile(
    program: Program,
    target: Target,
    *,
    passes: Iterable[PassConfig | Pass] | None = None,
    plans: Mapping[str, Plan] | None = None,
    callback: Callback | None = None,
    verify: bool | None = None,
) -> Compiled:
    """Compile `program` for `target`; `passes`, `plans`, `callback` and `verify` as in `pipeline.schedule`.

    TilePlanError for plans of kernels that the program does not have, too. With TILE_VERIFY=prove, ProofError for a
    schedule that does not mean what the program says, and a ProofWarning for one that could not be decided.
    TileLimitError when it takes longer than TILE_COMPILE_SECONDS.
    """
    checked = Settings.from_environment().verify if verify is None else verify
    steps = tuple(target.passes if passes is None else passes)
    with uncollected(), within_time(), shared_domains():
        return _compiled(program, target, steps, plans, callback, checked)


def _compiled(
    program: Program,
    target: Target,
    steps: tuple[PassConfig | Pass, ...],
    plans: Mapping[str, Plan] | None,
    callback: Callback | None,
    verify: bool,
) -> Compiled:
    from tile_opt.loops import compile_parts, has_loops, prepared

    parts, written = _Parts(target, steps, plans, callback, verify), prepared(numbered(program))
    compiled = compile_parts(written, target, parts) if has_loops(written) else parts.compiled(written)
    if plans:
        refuse_unused(plans, compiled.decisions)
    if Settings.from_environment().prove:
        from tile_opt.proof import check_steps

        check_steps(compiled.kernels)
    if not Settings.from_environment().long_kernels:
        from tile_opt.lowering.endless import refuse_endless

        refuse_endless(compiled.kernels, program)
    return compiled


@frozen
class _Parts:
    """Compiles programs without loops; arguments as in `compile`."""

    target: Target
    steps: tuple[PassConfig | Pass, ...]
    plans: Mapping[str, Plan] | None
    callback: Callback | None
    verify: bool

    def compiled(self, program: Program, first: int = 0) -> Compiled:
        """The stages of a program; its kernels are numbered from `first` on."""
        timings: dict[str, float] = {}
        _refuse_bits(program, self.target)
        with timed(timings, "rewrite"):
            program = _rewritten(program, self.target)
        with timed(timings, "stripe"):
            initial = _to_stripe(program, self.target, first)
        return self.scheduled(program, initial, timings)

    def scheduled(self, program: Program, initial: StripeProgram, timings: dict[str, float]) -> Compiled:
        """The stages from unscheduled Stripe on; `timings` has the seconds of those before."""
        each: dict[str, float] = {}
        target, steps, plans = self.target, self.steps, self.plans
        made = schedule(
            initial, target, passes=steps, plans=plans, callback=self.callback, verify=self.verify, timings=each
        )
        proof = _proof(initial, made.program)
        timings |= {f"pass:{label}": seconds for label, seconds in each.items()}
        with lowering(plans or {}):
            kernels = lower_kernels(made.program, target, self.verify, timings)
        return Compiled(program, initial, made.program, kernels, timings, steps, made.decisions, made.choices, proof)

    def fused(self, program: Program, label: str, first: int = 0) -> StripeProgram | None:
        """What the passes up to the one called `label` make of a program; None where the target has no such pass."""
        names = [s.label or s.name if isinstance(s, PassConfig) else s.name for s in self.steps]
        if label not in names:
            return None
        _refuse_bits(program, self.target)
        initial = _to_stripe(_rewritten(program, self.target), self.target, first)
        return schedule(initial, self.target, passes=self.steps[: names.index(label) + 1], verify=self.verify).program


def _refuse_bits(program: Program, target: Target) -> None:
    """TileDeviceError naming what reinterprets bits, for a target whose kernels cannot."""
    from tile_ir.program.liveness import defined_by
    from tile_ir.program.nodes import reinterprets_bits

    if target.codegen == "stripe" or "Bitcast" in target.nodes:
        return
    hint = "choose another target, or list Bitcast among its nodes where the device has it"
    found = [
        Diagnostic(
            "TILE-E524",
            f"target {target.name} cannot reinterpret bits, which {defined_by(op)[0]!r} needs",
            op.origin,
            hint,
        )
        for op in program.ops
        if reinterprets_bits(op)
    ]
    if found:
        raise TileDeviceError(found)


def _proof(initial: StripeProgram, scheduled: StripeProgram) -> Report | None:
    """None unless TILE_VERIFY=prove; ProofError for a schedule that is wrong."""
    if not Settings.from_environment().prove:
        return None
    from tile_opt.proof import check

    return check(initial, scheduled)


def stripe_after(
    program: Program, target: Target, label: str, plans: Mapping[str, Plan] | None = None
) -> tuple[StripeProgram, ...]:
    """Stripe right after the pass called `label` ("initial": before all), the last of that name; KeyError for none.

    One program, or those of the parts of a program with loops.
    """
    from tile_opt.loops import has_loops, prepared

    labels = ("initial", *pass_labels(target))
    if label not in labels:
        raise KeyError(label)
    number = max(n for n, found in enumerate(labels) if found == label)
    written = prepared(program)
    if has_loops(written):
        found: list[StripeProgram] = []
        compile(
            program, target, plans=plans, callback=lambda n, _, stripe: found.append(stripe) if n == number else None
        )
        return tuple(found)
    with uncollected():
        initial = _to_stripe(_rewritten(written, target), target)
        return (schedule(initial, target, passes=target.passes[:number], plans=plans).program,)


def pass_labels(target: Target) -> tuple[str, ...]:
    """What the passes of a target are called, in order."""
    return tuple(entry.label or entry.name for entry in target.passes)


def _rewritten(program: Program, target: Target) -> Program:
    from tile_opt.program import rewrite, rewrites_for

    return rewrite(program, rewrites_for(target))


def _to_stripe(program: Program, target: Target, first: int = 0) -> StripeProgram:
    from tile_opt.translate import to_stripe

    return to_stripe(program, target, first)
