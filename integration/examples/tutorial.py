"""Every code example of the Tile tutorial, verbatim, against its meaning in NumPy."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import tile_runtime as tile
from tile_lang.examples import TUTORIAL, Example


@dataclass(frozen=True)
class Outcome:
    """One example: how long compiling with the first call took, and the largest relative error."""

    name: str
    source: str
    seconds: float
    error: float


def run(device: Any) -> Generator[Outcome]:
    """One outcome per example, as they finish."""
    for example in TUTORIAL:
        inputs = example.inputs()
        start = perf_counter()
        answer = tile.Function(example.source, example.name)(device=device, **inputs)
        yield Outcome(example.name, example.source, perf_counter() - start, _error(example, inputs, answer))


def _error(example: Example, inputs: dict[str, Any], answer: Any) -> float:
    expected = example.expected(inputs)[example.output].astype(np.float64)
    if answer.shape != expected.shape:
        return float("inf")
    scale = np.abs(expected).max(initial=1e-30)
    return float(np.abs(answer.astype(np.float64) - expected).max(initial=0.0) / scale)


def count() -> int:
    return len(TUTORIAL)
