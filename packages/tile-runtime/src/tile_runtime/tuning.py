"""Measuring several schedules of a program instead of trusting the cost model's first choice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tile_ir.diagnostics import TileError
from tile_ir.target import Target

from tile_runtime import winners
from tile_runtime.cache import cache_key
from tile_runtime.lowered import Lowered
from tile_runtime.tensor import Tensor

ROUNDS = 5
"""Timed calls of each schedule, interleaved; the best one counts."""

_CHANGES: tuple[tuple[str, float], ...] = (
    ("registers", 0.75), ("vector_bytes", 0.5), ("l2_bytes", 0.5), ("registers", 0.5), ("l2_bytes", 2.0),
    ("threads", 0.5), ("threads", 2.0), ("max_mem", 0.5), ("l2_bytes", 0.25), ("max_regs", 0.5), ("max_mem", 0.25),
    ("cores", 4.0), ("cores", 0.25),
)  # fmt: skip
"""Settings that schedules are made from, and what to multiply each with; those a target's model ignores give no new kernels."""


@dataclass(slots=True)
class Trial:
    """One schedule that was measured."""

    lowered: Lowered
    changed: Mapping[str, int]
    """Hardware settings that differ from the device's own; empty for the cost model's first choice."""
    seconds: float = float("inf")
    """Best time of a call."""
    failure: str | None = None
    """Why the device could not run it."""


Watch = Callable[[Sequence[Trial]], None]
"""Sees all trials after each call."""


def _unwatched(trials: Sequence[Trial]) -> None:
    del trials


def targets(target: Target) -> Iterator[tuple[Mapping[str, int], Target]]:
    """`target` itself, then variations of its settings, as (what differs, target)."""
    yield {}, target
    for name, factor in _CHANGES:
        value = int(getattr(target.settings, name) * factor)
        if value >= 1 and (name != "threads" or target.settings.threads > 1):
            yield {name: value}, winners.changed(target, {name: value})


def measure(base: Lowered, count: int, watch: Watch = _unwatched) -> list[Trial]:
    """Up to `count` different schedules of `base`, fastest first, timed on inputs of ones.

    A schedule that fails on the device keeps an infinite time. The winner is stored on disk for `best`, even when
    KeyboardInterrupt ends the measuring early. `watch` is called after each timed call.
    """
    trials = _distinct(base, count)
    try:
        if len(trials) > 1:
            _time(trials, watch)
    finally:
        trials.sort(key=lambda t: t.seconds)
        if trials[0].seconds < float("inf"):
            winners.store(base, count, trials[0].changed)
    return trials


def best(base: Lowered, count: int) -> Lowered:
    """The fastest of up to `count` schedules, stored or measured now; `base` itself where nothing runs."""
    if count == 1 or not base.device.capabilities.executes:
        return base
    return winners.find(base, count) or measure(base, count)[0].lowered


def _distinct(base: Lowered, count: int) -> list[Trial]:
    found: dict[str, Trial] = {}
    for changed, target in targets(base.target):
        if len(found) >= count:
            break
        low = base.retargeted(target) if changed else base
        try:
            # The target itself is part of a cache key; kernels are compared for one and the same.
            key = cache_key(base.device, replace(low.kernels, target=base.target))
        except TileError:
            if not changed:
                raise
            continue  # a variation that cannot be scheduled
        found.setdefault(key, Trial(low, changed))
    return list(found.values())


def _time(trials: Sequence[Trial], watch: Watch) -> None:
    inputs = [_ones(trials[0].lowered, p.type) for p in trials[0].lowered.program.inputs]
    outputs: list[Any] = [None] * len(trials[0].lowered.executable.outputs)
    for turn in range(ROUNDS + 1):
        for trial in trials:
            if trial.failure is None:
                _call(trial, inputs, outputs, warm=turn > 0)
            watch(trials)


def _call(trial: Trial, inputs: Sequence[Tensor], outputs: list[Any], *, warm: bool) -> None:
    """One call of a schedule, into tensors that all share until one fails; only warm ones count."""
    start = time.perf_counter()
    try:
        outputs[:] = trial.lowered.executable.run_tensors(inputs, outputs)
        for tensor in outputs:
            tensor.wait()
    except TileError as failure:
        if not trial.changed:
            raise  # what the cost model chose has to run
        trial.failure, trial.seconds = str(failure), float("inf")
        # Its other results may be pending still, and fail whoever waits for them.
        outputs[:] = [None] * len(outputs)
        return
    if warm:
        trial.seconds = min(trial.seconds, time.perf_counter() - start)


def _ones(low: Lowered, type: Any) -> Tensor:
    tensor = Tensor(low.device, type.shape, type.dtype)
    with tensor.mmap_discard() as view:
        view[...] = np.ones((), view.dtype)
    return tensor
