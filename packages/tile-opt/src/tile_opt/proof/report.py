"""What was proved of a schedule, what was refuted, and what stayed open."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from tile_ir.frozen import frozen


class Verdict(Enum):
    PROVED = "proved"
    REFUTED = "refuted"
    OPEN = "not proved"
    """It could not be decided in time, or is beyond what is analysed."""
    EXCLUDED = "not covered"
    """Gathers, scatters and foreign code: subscripts that are data."""


@frozen
class Finding:
    """The verdict on one kernel, or on one tensor that kernels hand on."""

    kernel: str
    claim: str
    """What it is about: ``result C``, ``accesses``, ``races``."""
    verdict: Verdict
    message: str = ""

    def __str__(self) -> str:
        return f"{self.verdict.value}: {self.kernel}, {self.claim}" + (f": {self.message}" if self.message else "")


@frozen
class Report:
    """All findings on a scheduled program."""

    findings: tuple[Finding, ...]
    seconds: float = 0.0

    def of(self, verdict: Verdict) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.verdict is verdict)

    @property
    def proved(self) -> bool:
        """Every claim that is covered is proved."""
        return not self.of(Verdict.REFUTED) and not self.of(Verdict.OPEN)

    def kernels(self) -> dict[str, Verdict]:
        """The worst verdict of each kernel."""
        worst: dict[str, Verdict] = {}
        for finding in self.findings:
            known = worst.get(finding.kernel, Verdict.PROVED)
            worst[finding.kernel] = max(known, finding.verdict, key=_ORDER.index)
        return worst

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        verdicts = [*self.kernels().values()]
        counts = ", ".join(f"{verdicts.count(v)} {v.value}" for v in Verdict if v in verdicts)
        yield f"{len(verdicts)} kernels: {counts or 'none'} ({self.seconds:.2f} s)"
        yield from (f"  {f}" for f in self.findings if f.verdict is not Verdict.PROVED)


_ORDER = (Verdict.PROVED, Verdict.EXCLUDED, Verdict.OPEN, Verdict.REFUTED)
