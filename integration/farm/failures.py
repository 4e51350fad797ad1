"""What went wrong: the case, and a signature that cases with one cause share."""

from __future__ import annotations

import re
import traceback
from dataclasses import dataclass
from pathlib import Path

from farm.judge import Wrong
from farm.sample import Sample
from farm.ways import Way


@dataclass(frozen=True, slots=True)
class Symptom:
    """How a case fails."""

    kind: str
    """"wrong result", "crash", "hang", or the class of the exception."""
    place: str = ""
    """Where the exception was raised: the innermost function of ours, as ``module.function``."""
    text: str = ""

    @property
    def signature(self) -> str:
        return f"{self.kind} {self.place}".strip()


@dataclass(frozen=True, slots=True)
class Failure:
    """A case that failed."""

    seed: int
    number: int
    sample: Sample
    way: Way
    symptom: Symptom

    @property
    def signature(self) -> str:
        """What tells causes apart before anything is reduced: for wrong results, the kind of configuration too."""
        if self.symptom.place:
            return self.symptom.signature
        return f"{self.symptom.kind}: {self.way.kind}{', gradient' if self.sample.order else ''}"

    @property
    def command(self) -> str:
        """What repeats it."""
        return f"python -m farm --seed {self.seed} --number {self.number}"


def symptom(problem: BaseException) -> Symptom:
    """The symptom that an exception is."""
    if isinstance(problem, Wrong):
        return Symptom("wrong result", "", str(problem))
    kind = "wrong derivative" if isinstance(problem, AssertionError) and "difference quotient" in str(problem) else ""
    frames = traceback.extract_tb(problem.__traceback__)
    own = [f for f in frames if re.search(r"(tile|hal)_\w+/", f.filename) and "/farm/" not in f.filename]
    last = own[-1] if own else frames[-1]
    place = "" if kind else f"{Path(last.filename).stem}.{last.name}"
    return Symptom(kind or type(problem).__name__, place, "".join(traceback.format_exception(problem)))
