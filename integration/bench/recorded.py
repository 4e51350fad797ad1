"""Recordings: kernels as scheduled Stripe and how long they took on a device, a JSON line each, by which any model can be judged.

A line is written as soon as something was measured, so a recording that was ended early holds all that was done, and
recording goes on where it ended. The first line has the device's target; further lines of a kernel add rounds to it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tile_ir.target import Target

AGREE = 1.1
"""Times the fastest round that the second fastest may take."""
Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Run:
    """A kernel of a case under one plan."""

    class_: str
    case: str
    kernel: str
    plan: str
    """In its text form; "" for a kernel by itself as the compiler made it."""
    blocks: tuple[str, ...]
    """Scheduled Stripe of what was timed: the kernel, and those that its plan adds. Empty where an earlier line has it."""
    rounds: tuple[float, ...]
    """Seconds, the fastest of each round."""
    kernels: int = 1
    """Of the case that are equal to this one and were timed together with it."""

    @property
    def key(self) -> Key:
        return self.case, self.kernel, self.plan

    @property
    def measured(self) -> float:
        return min(self.rounds)

    @property
    def settled(self) -> bool:
        """Two rounds took the same."""
        return agree(self.rounds)

    def joined(self, other: Run) -> Run:
        """The run with the rounds of another line."""
        return replace(self, rounds=(*self.rounds, *other.rounds))


def agree(rounds: tuple[float, ...]) -> bool:
    """Whether the two fastest took the same."""
    fastest = sorted(rounds)[:2]
    return len(fastest) > 1 and fastest[1] < AGREE * fastest[0]


@dataclass(frozen=True, slots=True)
class Recording:
    """What a file holds: the target that all was compiled for, and the runs in the order of their first lines."""

    target: Target
    runs: Mapping[Key, Run]

    @property
    def points(self) -> list[Run]:
        """Kernels by themselves."""
        return [run for run in self.runs.values() if not run.plan]

    @property
    def orders(self) -> list[list[Run]]:
        """The plans of each kernel of which at least three were run."""
        found: dict[tuple[str, str], list[Run]] = {}
        for run in self.runs.values():
            if run.plan:
                found.setdefault((run.case, run.kernel), []).append(run)
        return [runs for runs in found.values() if len(runs) > 2]

    @property
    def cases(self) -> dict[str, str]:
        """Case -> its class."""
        return {run.case: run.class_ for run in self.runs.values()}


def begin(path: Path, target: Target) -> None:
    """Start a recording; one that is there goes on, after a line that was cut off."""
    if path.exists() and path.stat().st_size:
        with path.open("a", encoding="utf-8") as file:
            file.write("\n")
    else:
        path.write_text(json.dumps({"target": json.loads(target.to_json())}) + "\n", encoding="utf-8")


def append(path: Path, run: Run) -> None:
    """Add a line."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(run)) + "\n")


def read(path: Path) -> Recording:
    """A recording; ValueError where the file does not begin like one."""
    first, *others = _lines(path)
    if "target" not in first:
        raise ValueError(f"{path} is no recording")
    runs: dict[Key, Run] = {}
    for line in others:
        run = _run(**line)
        known = runs.get(run.key)
        runs[run.key] = run if known is None else known.joined(run)
    return Recording(Target.from_json(json.dumps(first["target"])), runs)


def _run(blocks: list[str], rounds: list[float], **others: Any) -> Run:
    return Run(blocks=tuple(blocks), rounds=tuple(rounds), **others)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Whole lines; one that was cut off is as if it had not been written."""
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            continue
