"""Learning rates that change: functions of the number of steps so far, an int32 scalar or a Python number."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tile_runtime import numpy as tnp

from tile_nn.errors import wrong_number

Schedule = Callable[[Any], Any]


def linear(start: float, end: float, steps: int) -> Schedule:
    """From `start` to `end` in a straight line, then `end`."""
    _check(steps)
    return lambda step: start + (end - start) * _share(step, steps)


def cosine(start: float, steps: int, *, end: float = 0.0) -> Schedule:
    """From `start` to `end` along half a cosine, then `end`."""
    _check(steps)
    return lambda step: end + (start - end) * 0.5 * (1 + tnp.cos(math.pi * _share(step, steps)))


def exponential(start: float, factor: float, steps: int) -> Schedule:
    """`start`, times `factor` after every `steps` steps, evenly between."""
    _check(steps)
    return lambda step: start * tnp.exp(math.log(factor) * _float(step) / steps)


def piecewise(rates: Sequence[float], ends: Sequence[int]) -> Schedule:
    """The first rate before step ``ends[0]``, the second before ``ends[1]``, …; one more rate than ends."""
    if len(rates) != len(ends) + 1 or list(ends) != sorted(ends):
        raise wrong_number(f"{len(rates)} rates and ends {list(ends)}", "one more rate than ends, which rise")

    def rate(step: Any) -> Any:
        jumps = zip(rates, rates[1:], ends, strict=False)
        return sum((tnp.where(_float(step) >= end, b - a, 0.0) for a, b, end in jumps), start=rates[0])

    return rate


def warmup(steps: int, schedule: Schedule | float) -> Schedule:
    """From 0 in a straight line to what `schedule`, a function or a number, begins with after so many steps; then that."""
    _check(steps)
    after: Schedule = schedule if callable(schedule) else lambda _: schedule

    def rate(step: Any) -> Any:
        return tnp.minimum((_float(step) + 1) / steps, 1.0) * after(tnp.maximum(_float(step) - steps, 0.0))

    return rate


def _float(step: Any) -> Any:
    return tnp.asarray(step).astype("float32") if isinstance(step, (int, float)) else step.astype("float32")


def _share(step: Any, steps: int) -> Any:
    return tnp.minimum(_float(step) / steps, 1.0)


def _check(steps: int) -> None:
    if steps < 1:
        raise wrong_number(f"a schedule of {steps} steps", "it takes at least one")
