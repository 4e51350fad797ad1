"""What a module becomes: device programs, and between them loops and branches that the host decides.

A plan's values live in slots, as Tensors. Most modules are one device program.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from tile_ir.program.nodes import TensorType
from tile_runtime.ops.values import Array
from tile_runtime.compose import Composition
from tile_runtime.evaluator import Evaluator
from tile_runtime.tensor import Tensor, asarray


@dataclass(frozen=True, slots=True)
class Slot:
    """A value while a plan runs."""

    number: int
    type: TensorType


Item = Slot | Array
"""Where a value is, or its numbers."""
Given = Tensor | Array
_Store = dict[int, Given]


class Step(Protocol):
    """A part of a plan."""

    @property
    def takes(self) -> tuple[Item, ...]: ...
    @property
    def gives(self) -> tuple[Slot, ...]: ...
    def run(self, values: Sequence[Given], evaluator: Evaluator) -> Sequence[Given]:
        """What it gives, of what it takes."""
        ...


@dataclass(frozen=True, slots=True)
class DeviceProgram:
    """A composition: the device computes it."""

    program: Composition
    takes: tuple[Item, ...]
    gives: tuple[Slot, ...]

    def run(self, values: Sequence[Given], evaluator: Evaluator) -> Sequence[Given]:
        found = evaluator(self.program, *(asarray(v, evaluator.device) for v in values))
        return (found,) if len(self.gives) == 1 else found


@dataclass(frozen=True, slots=True)
class Rounds:
    """A loop whose test the host reads in each round.

    `test` gives one truth value of what is carried and captured; `turn` the next carry and its test.
    """

    test: Plan
    turn: Plan
    carried: int
    tested: int
    """How many of the captured values, the first ones, the test takes; the turn takes the others."""
    takes: tuple[Item, ...]
    gives: tuple[Slot, ...]

    def run(self, values: Sequence[Given], evaluator: Evaluator) -> Sequence[Given]:
        first = self.carried + self.tested
        carry, captured = list(values[: self.carried]), values[first:]
        goes = truth(self.test.run(evaluator, values[:first])[0])
        while goes:
            *carry, test = self.turn.run(evaluator, [*carry, *captured])
            goes = truth(test)
        return carry


@dataclass(frozen=True, slots=True)
class Branches:
    """One of several plans, by an index that the host reads; beyond the range the last one."""

    branches: tuple[Plan, ...]
    captured: tuple[int, ...]
    """How many values each of them takes."""
    takes: tuple[Item, ...]
    """The index, and what all branches take."""
    gives: tuple[Slot, ...]

    def run(self, values: Sequence[Given], evaluator: Evaluator) -> Sequence[Given]:
        number = int(numbers(values[0]))
        chosen = number if 0 <= number < len(self.branches) else -1
        first = 1 + sum(self.captured[: chosen % len(self.branches)])
        return self.branches[chosen].run(evaluator, values[first : first + self.captured[chosen]])


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps from inputs to results, in order.

    `outputs` are the types of the results; a result may be the tensor of an input itself.
    """

    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    steps: tuple[Step, ...]
    results: tuple[Item, ...]

    @property
    def programs(self) -> tuple[Composition, ...]:
        """The device programs of its own steps, without those in loops and branches of the host."""
        return tuple(s.program for s in self.steps if isinstance(s, DeviceProgram))

    def run(self, evaluator: Evaluator, values: Sequence[Given]) -> list[Given]:
        """The results on the evaluator's device. It waits only where the host has to read a number."""
        store: _Store = dict(enumerate(values))
        for step, spent in zip(self.steps, self._spent(), strict=True):
            made = step.run([_found(item, store) for item in step.takes], evaluator)
            store.update(zip((slot.number for slot in step.gives), made, strict=True))
            for number in spent:
                store.pop(number, None)
        return [_found(item, store) for item in self.results]

    def _spent(self) -> list[set[int]]:
        """The slots that nothing needs after each step."""
        needed = _numbers(self.results)
        spent: list[set[int]] = []
        for step in reversed(self.steps):
            used = _numbers(step.takes) | _numbers(step.gives)
            spent.append(used - needed)
            needed |= used
        return spent[::-1]


def _numbers(items: Iterable[Item]) -> set[int]:
    return {item.number for item in items if isinstance(item, Slot)}


def _found(item: Item, store: _Store) -> Given:
    return store[item.number] if isinstance(item, Slot) else item


def numbers(value: Any) -> Array:
    """The numbers of a tensor; waits for them."""
    return value if isinstance(value, np.ndarray) else value.numpy()  # pyright: ignore[reportUnknownVariableType]


def truth(value: Given) -> bool:
    """A truth value that was computed."""
    return bool(numbers(value))
