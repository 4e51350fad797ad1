"""Plans of a user's, or from a damaged store: refused with sentences and places before a wrong kernel is built.

A plan that a scheduling pass chose is not checked.
"""

from __future__ import annotations

import warnings
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager

from tile_ir.diagnostics import (
    Diagnostic,
    Severity,
    Source,
    Span,
    TileDeviceError,
    TileError,
    TileInternalError,
    TilePlanError,
    TilePlanWarning,
)
from tile_ir.frozen import frozen
from tile_ir.stripe.nodes import Block
from tile_ir.stripe.verify import verify_block
from tile_ir.target import Target

from tile_opt.kernel.view import KernelView
from tile_opt.plan.checks import BUILT, CHECKS, Finding, did_you_mean
from tile_opt.plan.plan import Plan
from tile_opt.plan.text import Entry, Plans, parse_plans, print_plans


@frozen
class PlanCheck:
    """What is done before, while and after a plan is built. Each raises TilePlanError with all that it finds.

    Places are those of the text that `given` was read from, or else of the plan as it prints.
    """

    view: KernelView
    plan: Plan
    target: Target
    given: Mapping[str, Plan]

    def before(self) -> None:
        """The plan against its kernel and the target."""
        self._report([f for check in CHECKS for f in check(self.view, self.plan, self.target)])

    @contextmanager
    def building(self) -> Generator[None]:
        """Whatever building trips over is the plan's mistake too, and a sentence."""
        try:
            yield
        except TilePlanError:
            raise
        except TileError as problem:
            found = (Finding(d.code, d.message, hint=d.hint) for d in problem.diagnostics)
            raise TilePlanError([self._diagnostic(f) for f in found]) from problem
        except Exception as problem:
            reason = str(problem).partition("\n")[0] or type(problem).__name__
            message = f"the plan of {self.view.name!r} cannot be built: {reason}"
            raise TilePlanError(self._diagnostic(Finding("TILE-E649", message))) from problem

    def after(self, kernel: Block, *, warn: bool = True) -> None:
        """The scheduled kernel: valid Stripe, within the target's memory. TilePlanWarning for what only costs time."""
        with self.building():
            verify_block(kernel)
        for diagnostic in self._report([f for check in BUILT for f in check(kernel, self.plan, self.target)]):
            if warn:
                warnings.warn(diagnostic.render(), TilePlanWarning, stacklevel=2)

    def _report(self, findings: list[Finding]) -> list[Diagnostic]:
        """What are no errors."""
        found = [self._diagnostic(f) for f in findings]
        errors = [d for d in found if d.severity is Severity.ERROR]
        if errors:
            raise TilePlanError(errors)
        return found

    def _diagnostic(self, finding: Finding) -> Diagnostic:
        return _placed(finding, self.view.name, _places(self.view.name, self.plan, self.given))


def refuse_unused(given: Mapping[str, Plan], kernels: Iterable[str]) -> None:
    """TilePlanError for given plans of kernels that are not among those that were planned."""
    known = list(kernels)
    problems: list[Diagnostic] = []
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known, "kernels")
            finding = Finding("TILE-E630", f"no kernel {name!r} is planned here", hint=hint)
            problems.append(_placed(finding, name, _places(name, given[name], given)))
    if problems:
        raise TilePlanError(problems)


@contextmanager
def lowering(given: Mapping[str, Plan]) -> Generator[None]:
    """What lowering trips over in a program with given plans is told as theirs."""
    try:
        yield
    except (TileInternalError, TileDeviceError) as problem:
        if not given:
            raise
        name, plan = next(iter(given.items()))
        why = (
            problem.diagnostics[0].message if isinstance(problem, TileDeviceError) else str(problem).partition("\n")[0]
        )
        finding = Finding("TILE-E649", f"with these plans the program cannot be lowered: {why}")
        raise TilePlanError(_placed(finding, name, _places(name, plan, given))) from problem


def _places(name: str, plan: Plan, given: Mapping[str, Plan]) -> Mapping[Entry, Span]:
    if isinstance(given, Plans) and given.places:
        return given.places
    return parse_plans(Source(print_plans({name: plan}), f"<plan {name}>")).places


def _placed(finding: Finding, kernel: str, places: Mapping[Entry, Span]) -> Diagnostic:
    span = places[Entry(kernel, finding.kind, finding.number)]
    at = span.text.rfind(finding.word)
    if finding.word and at >= 0:
        span = Span(span.source, span.start + at, span.start + at + len(finding.word))
    return Diagnostic(finding.code, finding.message, span, finding.hint, severity=finding.severity)
