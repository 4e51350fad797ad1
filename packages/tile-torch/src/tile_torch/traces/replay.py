"""A graph that was kept, as it runs: by its recipe, without being read, where there is one."""

from __future__ import annotations

from collections.abc import Sequence, Set
from functools import cached_property
from typing import Any, cast

from tile_ir import forking
from tile_runtime.compose import Composition
from tile_runtime.evaluator import Evaluator

from tile_torch.executable import Executable
from tile_torch.fallback import Segments
from tile_torch.plans import Plan
from tile_torch.traces import graphs, keys, recipes


class Replayed:
    """A graph as a text, called with PyTorch's tensors. Safe to use from any thread."""

    def __init__(self, text: str, evaluator: Evaluator, static: Set[str]) -> None:
        """`static` has the names of parameters and buffers, which seldom change."""
        self._text = text
        self._evaluator = evaluator
        self._static = static
        self._plan: Plan | Segments | None = None
        self._lock = forking.rlock()

    def __call__(self, arguments: Sequence[Any]) -> list[Any]:
        """The graph's outputs for its inputs."""
        return (self._plan or self._planned(arguments)).run(arguments)

    def _planned(self, arguments: Sequence[Any]) -> Plan | Segments:
        with self._lock:
            if self._plan is None:
                identity = keys.identity(self._text, self._static)
                recipe = recipes.read(identity)
                if recipe is None:
                    self._plan = self._graph.plan(arguments)
                else:
                    self._plan = recipe.plan(recipe.program(self._composition), self._evaluator)
            return self._plan

    def _composition(self) -> Composition:
        return cast(Composition, self._graph.composition())

    @cached_property
    def _graph(self) -> Executable:
        identity = keys.identity(self._text, self._static)
        return Executable(graphs.read(self._text), self._evaluator, self._static, text=identity)
