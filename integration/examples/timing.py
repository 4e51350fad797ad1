"""Named stages with their times."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import TypeVar

T = TypeVar("T")


@dataclass
class Stages:
    """Stages in the order they ran, each with its seconds and a remark."""

    rows: list[tuple[str, float, str]] = field(default_factory=list[tuple[str, float, str]])

    @contextmanager
    def stage(self, name: str, remark: str = "") -> Generator[None]:
        start = perf_counter()
        yield
        self.rows.append((name, perf_counter() - start, remark))

    def best(self, name: str, times: int, work: Callable[[], T], remark: str = "") -> tuple[T, float]:
        """The result of `work` and the seconds of the fastest of several runs, which become a stage."""
        seconds = float("inf")
        for _ in range(times):
            start = perf_counter()
            result = work()
            seconds = min(seconds, perf_counter() - start)
        self.rows.append((name, seconds, remark))
        return result, seconds  # pyright: ignore[reportPossiblyUnbound]
