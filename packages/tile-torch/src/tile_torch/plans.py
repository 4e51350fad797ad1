"""How a graph runs for one set of sizes: a program, and how arguments and results go in and out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from tile_runtime.evaluator import Evaluator

from tile_torch.dtypes import ordered_array, to_array, to_tensor
from tile_torch.parameters import Parameters
from tile_torch.program import Bindable, Deferred, Make, Summary
from tile_torch.sources import Source
from tile_torch.walk import Slot

RECORDERS: list[Callable[[Evaluator, Bindable], None]] = []
"""Told of every program that runs."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """All of a plan but its program, and what PyTorch does before and after."""

    inputs: tuple[tuple[str, Slot], ...]
    """The program's, by name, without what PyTorch draws."""
    bound: tuple[str, ...]
    """Inputs that are parameters and buffers, which the program keeps."""
    outputs: tuple[str, ...]
    """The program's; none where the graph computes nothing."""
    sources: tuple[Source, ...]
    """Of the graph's outputs."""
    summary: Summary | None = None
    """Of the program, where its code may be found by that."""

    def program(self, make: Make) -> Deferred | None:
        """The program, which `make` gives; None where the graph computes nothing."""
        inputs = tuple(name for name, _ in self.inputs)
        return Deferred(inputs, self.outputs, self.summary, make) if self.summary else None

    def plan(self, program: Bindable | None, evaluator: Evaluator) -> Plan:
        """The plan, with nothing to be drawn or checked."""
        given = [slot for name, slot in self.inputs if name not in self.bound]
        kept = [(name, slot) for name, slot in self.inputs if name in self.bound]
        parameters = Parameters(program, kept, evaluator.device) if program is not None and kept else None
        return Plan(evaluator, program, given, parameters, self.sources)


@dataclass(slots=True)
class Plan:
    """A program for one set of sizes, and how arguments and results go in and out."""

    evaluator: Evaluator
    program: Bindable | None
    slots: Sequence[Slot]
    parameters: Parameters | None
    sources: Sequence[Source]
    draws: Sequence[Callable[[], torch.Tensor]] = ()
    checks: Sequence[Callable[[torch.Tensor], None]] = ()
    """Of the last results, which are not among the outputs."""

    def run(self, arguments: Sequence[Any]) -> list[Any]:
        """The graph's outputs."""
        computed = [] if self.program is None else self._computed(arguments, self.program)
        if self.checks:
            for check, found in zip(self.checks, computed[-len(self.checks) :], strict=True):
                check(found)
        return [source(arguments, computed) for source in self.sources]

    def _computed(self, arguments: Sequence[Any], program: Bindable) -> list[torch.Tensor]:
        arrays = [ordered_array(arguments[s.number], s.order) for s in self.slots]
        arrays += [to_array(draw()) for draw in self.draws]
        if self.parameters is not None:
            program = self.parameters.bound(arguments)
        made: Any = self.evaluator.call(program, arrays, {})
        for record in RECORDERS:
            record(self.evaluator, program)
        return [to_tensor(a) for a in cast("tuple[Any, ...]", made)] if isinstance(made, tuple) else [to_tensor(made)]
