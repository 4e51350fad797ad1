"""Sizes that a model meets for the first time: ONNX's reference runs it until a program for them would have paid for itself.

A cache that grows by a token, or texts of any length, bring sizes that may never come again, and making a program takes as
long as hundreds of small calls. What renting has cost so far decides (as for skis): at most twice what foresight would take.
Calls with the same sizes one behind the other tell of many more, so the third of these gets its program at once.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from tile_onnx.graph import Graph
from tile_onnx.host import NotEvaluated
from tile_onnx.language import Language
from tile_onnx.stepwise import Stepwise

REMEMBERED = 4096
"""Sizes whose costs are kept; the oldest go first."""
ALIKE = 3
"""Calls in a row with the same sizes, the last of which gets a program."""


class Newcomers:
    """Which sizes of a graph wait for their program, and what they have cost."""

    def __init__(self, graph: Graph, language: Language) -> None:
        self._graph = graph
        self._language = language
        self._able: dict[tuple[str, ...], Stepwise | None] = {}
        self._price: float | None = None
        self._failed = False
        self._spent: OrderedDict[Hashable, float] = OrderedDict()
        self._latest: tuple[Hashable, int] = None, 0

    def wait(self, sizes: Hashable) -> bool:
        """Whether these shall go without a program once more; not before a first one has shown what one takes."""
        latest, calls = self._latest
        self._latest = sizes, calls + 1 if latest == sizes else 1
        if self._price is None or self._latest[1] >= ALIKE:
            return False
        return self._spent.get(sizes, 0.0) < self._price

    def run(self, sizes: Hashable, feeds: Mapping[str, Any], wanted: tuple[str, ...]) -> list[Any] | None:
        """Outputs in order, by the reference; None where it fails or takes too long, and a program is to do it."""
        steps = self._steps(wanted)
        if steps is None:
            return None
        start = time.perf_counter()
        spent = self._spent.get(sizes, 0.0)
        try:
            found = steps.run(dict(feeds), start + (self._price or 0.0) - spent)
        except NotEvaluated:
            self._failed = True
            found, spent = None, math.inf
        self._spent[sizes] = spent + time.perf_counter() - start
        while len(self._spent) > REMEMBERED:
            self._spent.popitem(last=False)
        return None if found is None else [_own(v) for v in found]

    def bought(self, sizes: Hashable, seconds: float) -> None:
        """A program for these was made, and took as long with its first run."""
        self._price = seconds
        self._spent.pop(sizes, None)
        if self._failed:  # of inputs that fit: these are no graphs for the reference
            self._able = dict.fromkeys(self._able)

    def _steps(self, wanted: tuple[str, ...]) -> Stepwise | None:
        if wanted not in self._able:
            try:
                self._able[wanted] = Stepwise(self._graph.pruned(wanted), self._language)
            except NotEvaluated:
                self._able[wanted] = None
        return self._able[wanted]


def _own(value: Any) -> Any:
    """An array that its owner may write to: what steps give may be an input, a constant, or a part of one."""
    return np.array(value) if isinstance(value, np.ndarray) else value  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
