"""Proving within bounds: quick claims here, hard ones in a process with a deadline."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache, lru_cache
from time import perf_counter
from typing import Any

from tile_ir.diagnostics import TileInternalError
from tile_ir.kernels import KernelList
from tile_ir.settings import Settings
from tile_ir.stripe.nodes import Program

from tile_opt.proof.report import Finding, Report, Verdict

OPERATIONS = 1_000_000
"""Of ISL, before a claim goes to a process of its own: about a second."""


class ProofError(TileInternalError):
    """A scheduled program does not mean what the unscheduled one says."""


class ProofWarning(UserWarning):
    """A schedule was not proved."""


def prove(initial: Program, scheduled: Program, *, seconds: float | None = None) -> Report:
    """What can be shown of `scheduled`, a schedule of `initial`.

    `seconds` is the deadline for each claim (TILE_ANALYSIS_SECONDS when None).
    """
    from tile_ir.stripe.printer import print_program

    from tile_opt.analysis.answering import Answerer
    from tile_opt.proof.prover import Prover

    start = perf_counter()
    limit = Settings.from_environment().analysis_seconds if seconds is None else seconds
    prover, answerer = Prover(initial, scheduled, OPERATIONS), Answerer()
    try:
        texts = cache(lambda: tuple(print_program(program) for program in (initial, scheduled)))
        findings = tuple(_decided(prover, claim, answerer, texts, limit) for claim in prover.claims())
    finally:
        answerer.close()
    return Report(findings, perf_counter() - start)


def check(initial: Program, scheduled: Program) -> Report:
    """The report; ProofError for a claim that is refuted, one ProofWarning for those that stay open."""
    return _checked(prove(initial, scheduled))


def prove_steps(kernels: KernelList) -> Report:
    """What can be shown of the steps' waits, where buffers share addresses."""
    from tile_opt.proof.steps import findings

    start = perf_counter()
    return Report(findings(kernels), perf_counter() - start)


def check_steps(kernels: KernelList) -> Report:
    """The report; ProofError for a step that does not wait for what it has to."""
    return _checked(prove_steps(kernels))


def _checked(report: Report) -> Report:
    refuted, still = report.of(Verdict.REFUTED), report.of(Verdict.OPEN)
    if refuted:
        raise ProofError("the schedule is wrong: " + "; ".join(f"{f.kernel}: {f.message}" for f in refuted))
    if still:
        first = f"{still[0].kernel}, {still[0].claim}: {still[0].message}"
        warnings.warn(
            f"not proved: {first} ({len(still)} of {len(report.findings)} claims)", ProofWarning, stacklevel=2
        )
    return report


def _decided(prover: Any, claim: Any, answerer: Any, texts: Callable[[], tuple[str, ...]], seconds: float) -> Finding:
    from tile_opt.analysis.answering import Unanswered
    from tile_opt.proof.spaces import Error

    try:
        return prover.decide(claim)
    except Error:
        pass
    try:
        kernel, about, verdict, message = answerer.ask("prove", (*texts(), *claim), seconds)
        return Finding(kernel, about, Verdict(verdict), message)
    except Unanswered:
        return prover.too_hard(claim, seconds)


def answer(initial: str, scheduled: str, kind: str, about: int | str) -> tuple[str, str, str, str]:
    """The finding on one claim about programs in their text form, as plain values."""
    found = _prover(initial, scheduled).decide((kind, about))
    return found.kernel, found.claim, found.verdict.value, found.message


@lru_cache(maxsize=1)
def _prover(initial: str, scheduled: str) -> Any:
    from tile_ir.stripe.parser import parse_program

    from tile_opt.proof.prover import Prover

    return Prover(parse_program(initial), parse_program(scheduled))
