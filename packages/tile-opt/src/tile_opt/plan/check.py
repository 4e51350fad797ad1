"""Plans that do not fit: refused with a sentence and the place before anything is built.

`findings` runs the named checks of `plan.checks` over a plan; `checked` raises what they found, and turns whatever
building such a plan runs into into the same kind of error. A plan that a scheduling pass chose is not checked.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager

from tile_ir.diagnostics import Diagnostic, Source, Span, TileError, TilePlanError
from tile_ir.target import Target

from tile_opt.kernel.view import KernelView
from tile_opt.plan.checks import CHECKS, Finding, did_you_mean
from tile_opt.plan.plan import Plan
from tile_opt.plan.text import Entry, PlanText, parse_plans, print_plans


@contextmanager
def checked(view: KernelView, plan: Plan, target: Target, given: Mapping[str, Plan]) -> Generator[None]:
    """Check `plan`, then let it be built; TilePlanError with all findings, or with what building it failed of.

    Places are those of the text that `given` was read from, or of the plan as it prints.
    """
    found = findings(view, plan, target)
    if found:
        places = _places(view.name, plan, given)
        raise TilePlanError([_diagnostic(f, view.name, places) for f in found])
    try:
        yield
    except TileError:
        raise
    except Exception as problem:
        # Whatever no step foresaw is still the plan's mistake, and a sentence.
        message = f"the plan of {view.name!r} cannot be built: {str(problem) or type(problem).__name__}"
        finding = Finding("TILE-E649", message)
        raise TilePlanError(_diagnostic(finding, view.name, _places(view.name, plan, given))) from problem


def findings(view: KernelView, plan: Plan, target: Target) -> list[Finding]:
    """Every mistake of a plan for a kernel on a target."""
    return [finding for check in CHECKS for finding in check(view, plan, target)]


def refuse_unused(given: Mapping[str, Plan], kernels: Iterable[str]) -> None:
    """TilePlanError for given plans of kernels that are not among those that were planned."""
    known = list(kernels)
    problems: list[Diagnostic] = []
    for name in given:
        if name not in known:
            finding = Finding(
                "TILE-E630", f"no kernel {name!r} is planned here", hint=did_you_mean(name, known, "kernels")
            )
            problems.append(_diagnostic(finding, name, _places(name, given[name], given)))
    if problems:
        raise TilePlanError(problems)


def _places(name: str, plan: Plan, given: Mapping[str, Plan]) -> Mapping[Entry, Span]:
    if isinstance(given, PlanText):
        return given.places
    return parse_plans(Source(print_plans({name: plan}), f"<plan {name}>")).places


def _diagnostic(finding: Finding, kernel: str, places: Mapping[Entry, Span]) -> Diagnostic:
    span = places[Entry(kernel, finding.kind, finding.number)]
    at = span.text.find(finding.word)
    if finding.word and at >= 0:
        span = Span(span.source, span.start + at, span.start + at + len(finding.word))
    return Diagnostic(finding.code, finding.message, span, finding.hint)
