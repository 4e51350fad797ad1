"""What an executable runs: device programs, and the control between them that depends on numbers.

A program has a store of values by slot: first its inputs, then what its steps make. The body and the condition of a
loop, and the branches of a choice, are programs themselves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from tile_ir.program.nodes import TensorType
from tile_runtime.compose import Composition
from tile_runtime.tensor import Tensor, asarray

if TYPE_CHECKING:
    from tile_runtime.evaluator import Evaluator

Store = list[Any]
"""Tensors by slot, None where there is none yet, or nobody needs it any more."""


class Step(Protocol):
    """Something that a program does; reads slots and writes others."""

    @property
    def reads(self) -> tuple[int, ...]: ...

    @property
    def outputs(self) -> tuple[int, ...]: ...

    def run(self, store: Store, evaluator: Evaluator) -> None: ...


@dataclass(frozen=True, slots=True)
class DeviceStep:
    """A Tile program."""

    function: Composition
    reads: tuple[int, ...]
    outputs: tuple[int, ...]

    def run(self, store: Store, evaluator: Evaluator) -> None:
        made = evaluator.call(self.function, [store[k] for k in self.reads], {})
        _put(store, self.outputs, made if isinstance(made, tuple) else (made,), evaluator)  # pyright: ignore[reportUnknownArgumentType]


@dataclass(frozen=True, slots=True)
class WhileStep:
    """Runs `body` as long as `condition` holds.

    Both take what is carried, and what each of them captures. The body gives what is carried on and, after it, whether
    the condition holds again: so a round is one submission.
    """

    condition: Program
    body: Program
    carried: tuple[int, ...]
    tested: tuple[int, ...]
    """What the condition captures."""
    captured: tuple[int, ...]
    """What the body captures."""
    outputs: tuple[int, ...]

    @property
    def reads(self) -> tuple[int, ...]:
        return (*self.carried, *self.tested, *self.captured)

    def run(self, store: Store, evaluator: Evaluator) -> None:
        values = [store[k] for k in self.carried]
        captured = [store[k] for k in self.captured]
        (goes,) = self.condition.run([*values, *(store[k] for k in self.tested)], evaluator)
        while goes.numpy():
            *values, goes = self.body.run([*values, *captured], evaluator)
        _put(store, self.outputs, values, evaluator)


@dataclass(frozen=True, slots=True)
class CaseStep:
    """Runs the branch that a number names, the last one for a number that names none."""

    index: int
    branches: tuple[Program, ...]
    captured: tuple[tuple[int, ...], ...]
    """What each branch takes."""
    outputs: tuple[int, ...]

    @property
    def reads(self) -> tuple[int, ...]:
        return (self.index, *(k for own in self.captured for k in own))

    def run(self, store: Store, evaluator: Evaluator) -> None:
        number = int(store[self.index].numpy())
        chosen = number if 0 <= number < len(self.branches) else -1
        given = [store[k] for k in self.captured[chosen]]
        _put(store, self.outputs, self.branches[chosen].run(given, evaluator), evaluator)


def _put(store: Store, slots: Sequence[int], values: Sequence[Any], evaluator: Evaluator) -> None:
    for slot, value in zip(slots, values, strict=True):
        store[slot] = value if type(value) is Tensor else asarray(value, evaluator.device)


@dataclass(frozen=True, slots=True)
class Program:
    """Steps from inputs to results, for any device."""

    name: str
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    steps: tuple[Step, ...]
    results: tuple[int, ...]
    """Slots of the outputs."""
    donated: tuple[int, ...] = ()
    """Numbers of inputs whose memory the caller gives up."""
    _dead: tuple[tuple[int, ...], ...] = field(init=False, repr=False)
    """After each step: the slots that nobody reads any more."""
    _slots: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_dead", _deaths(self.steps, self.results))
        made = (slot for step in self.steps for slot in step.outputs)
        object.__setattr__(self, "_slots", 1 + max(made, default=-1) - len(self.inputs))

    def run(self, values: Sequence[Tensor], evaluator: Evaluator) -> list[Tensor]:
        """The outputs, which may be pending, for inputs on the evaluator's device."""
        store: Store = [*values, *([None] * self._slots)]
        for step, dead in zip(self.steps, self._dead, strict=True):
            step.run(store, evaluator)
            for slot in dead:
                store[slot] = None
        return [store[slot] for slot in self.results]

    def costs(self) -> dict[str, float]:
        """Bytes that go in and come out."""
        return {"bytes accessed": float(sum(map(nbytes, (*self.inputs, *self.outputs))))}


def nbytes(type: TensorType) -> int:
    """Bytes of an array of this type."""
    return math.prod(type.shape) * type.dtype.bytes


def _deaths(steps: Sequence[Step], results: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    needed = set(results)
    dead: list[tuple[int, ...]] = []
    for step in reversed(steps):
        touched = {*step.reads, *step.outputs}
        dead.append(tuple(sorted(touched - needed)))
        needed |= touched
    return tuple(reversed(dead))
