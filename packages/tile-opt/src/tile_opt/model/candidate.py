"""A tile that a model weighed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Candidate:
    """A tile that a model evaluated: iterations of each tiled loop, and the predicted share of peak arithmetic."""

    tile: tuple[tuple[str, int], ...]
    rate: float
    verdict: str = ""
    """Why it was refused, where it was."""
    note: str = ""
    """What else tells it from other candidates."""
