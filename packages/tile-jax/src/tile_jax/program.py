"""What an executable runs: device programs, and the control between them that depends on numbers.

A program has a store of values by slot: its inputs, and what its steps make. The body and the condition of a
loop, and the branches of a choice, are programs themselves. Several devices run the same program in step, each with a
store of its own, so that they can tell one another what they have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
from tile_ir.program.nodes import TensorType
from tile_runtime.arrays import Array
from tile_runtime.compose import Composition
from tile_runtime.tensor import Tensor, asarray

if TYPE_CHECKING:
    from tile_runtime.evaluator import Evaluator

Store = list[Any]
"""Tensors by slot, None where there is none yet, or nobody needs it any more."""
Rows = Sequence[Sequence[Any]]
"""Tensors or arrays, a row for each device."""


class Step(Protocol):
    """Something that a program does; reads slots and writes others."""

    @property
    def reads(self) -> tuple[int, ...]: ...

    @property
    def outputs(self) -> tuple[int, ...]: ...

    def run(self, stores: Sequence[Store], evaluators: Sequence[Evaluator]) -> None: ...


@dataclass(frozen=True, slots=True)
class DeviceStep:
    """A Tile program."""

    function: Composition
    reads: tuple[int, ...]
    outputs: tuple[int, ...]

    def run(self, stores: Sequence[Store], evaluators: Sequence[Evaluator]) -> None:
        for store, evaluator in zip(stores, evaluators, strict=True):
            made = _tensors(evaluator.call(self.function, [store[k] for k in self.reads], {}), evaluator)
            for slot, tensor in zip(self.outputs, made, strict=True):
                store[slot] = tensor


@dataclass(frozen=True, slots=True)
class CollectiveStep:
    """What devices tell one another: a function of each one's arrays, a row for each device, to what each gets."""

    function: Callable[[Sequence[Sequence[Array]]], Rows]
    reads: tuple[int, ...]
    outputs: tuple[int, ...]

    def run(self, stores: Sequence[Store], evaluators: Sequence[Evaluator]) -> None:
        given = [[store[k].numpy() for k in self.reads] for store in stores]
        _put_rows(stores, self.outputs, self.function(given), evaluators)


@dataclass(frozen=True, slots=True)
class HostStep:
    """What the host computes: a function of arrays."""

    name: str
    function: Callable[..., Sequence[Array]]
    reads: tuple[int, ...]
    complexes: tuple[bool, ...]
    """Which of what it reads are complex."""
    outputs: tuple[int, ...]

    def run(self, stores: Sequence[Store], evaluators: Sequence[Evaluator]) -> None:
        _put_rows(stores, self.outputs, [self._made(store) for store in stores], evaluators)

    def _made(self, store: Store) -> list[Array]:
        parts = [store[k].numpy() for k in self.reads]
        given = [_whole(a) if c else a for a, c in zip(parts, self.complexes, strict=True)]
        return [_apart(a) if np.iscomplexobj(a) else a for a in self.function(*given)]


def _whole(parts: Array) -> Array:
    """Complex numbers from their parts."""
    return parts.view(np.result_type(parts.dtype, np.complex64))[..., 0]


def _apart(numbers: Array) -> Array:
    """Parts of complex numbers."""
    return np.stack([numbers.real, numbers.imag], -1)


@dataclass(frozen=True, slots=True)
class WhileStep:
    """Runs `body` as long as `condition` holds.

    Both take what is carried, and what each of them captures. The body gives what is carried on and, after it, whether
    to go on: so a round is one submission, or some are, of which those that the condition stops change nothing.
    """

    condition: Program
    body: Program
    carried: tuple[int, ...]
    tested: tuple[int, ...]
    """What the condition captures."""
    captured: tuple[int, ...]
    """What the body captures."""
    outputs: tuple[int, ...]
    rounds: int = 1
    """Of the loop, each time that the body runs."""

    @property
    def reads(self) -> tuple[int, ...]:
        return (*self.carried, *self.tested, *self.captured)

    def run(self, stores: Sequence[Store], evaluators: Sequence[Evaluator]) -> None:
        rows: Rows = _rows(stores, self.carried)
        captured = _rows(stores, self.captured)
        tests = self.condition.run(_beside(rows, _rows(stores, self.tested)), evaluators)
        while tests[0][-1].numpy():  # all devices agree, or their program does not know what it does
            tests = self.body.run(_beside(rows, captured), evaluators)
            rows = [row[:-1] for row in tests]
        _put_rows(stores, self.outputs, rows, evaluators)


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

    def run(self, stores: Sequence[Store], evaluators: Sequence[Evaluator]) -> None:
        numbers = [int(store[self.index].numpy()) for store in stores]
        for number in dict.fromkeys(numbers):
            places = [k for k, own in enumerate(numbers) if own == number]
            self._branch(number, [stores[k] for k in places], [evaluators[k] for k in places])

    def _branch(self, number: int, stores: Sequence[Store], evaluators: Sequence[Evaluator]) -> None:
        chosen = number if 0 <= number < len(self.branches) else -1
        made = self.branches[chosen].run(_rows(stores, self.captured[chosen]), evaluators)
        _put_rows(stores, self.outputs, made, evaluators)


def _rows(stores: Sequence[Store], slots: Sequence[int]) -> list[list[Any]]:
    return [[store[k] for k in slots] for store in stores]


def _beside(left: Rows, right: Rows) -> Rows:
    return [[*a, *b] for a, b in zip(left, right, strict=True)]


def _put_rows(stores: Sequence[Store], slots: Sequence[int], rows: Rows, evaluators: Sequence[Evaluator]) -> None:
    for store, row, evaluator in zip(stores, rows, evaluators, strict=True):
        for slot, tensor in zip(slots, _tensors(tuple(row), evaluator), strict=True):
            store[slot] = tensor


@dataclass(frozen=True, slots=True)
class _Alone:
    """The one function that most programs and bodies of loops are."""

    function: Composition
    given: tuple[int, ...]
    """Numbers of the inputs that it takes."""
    results: tuple[int, ...]
    """Where each output is, among the inputs and what the function makes behind them."""
    plain: bool
    """Whether it takes all inputs and gives all outputs, in their order."""

    def run(self, row: Sequence[Any], evaluator: Evaluator) -> list[Tensor]:
        if self.plain:
            return _tensors(evaluator.call(self.function, row, {}), evaluator)
        made = _tensors(evaluator.call(self.function, [row[k] for k in self.given], {}), evaluator)
        both: list[Tensor] = [*row, *made]
        return [both[k] for k in self.results]


@dataclass(frozen=True, slots=True)
class Program:
    """Steps from inputs to results, for any device."""

    name: str
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    steps: tuple[Step, ...]
    taken: tuple[int, ...]
    """Slots of the inputs."""
    results: tuple[int, ...]
    """Slots of the outputs."""
    donated: tuple[int, ...] = ()
    """Numbers of inputs whose memory the caller gives up."""
    complexes: frozenset[int] = frozenset()
    """Numbers of outputs that are complex: their types are those of their parts, along one more axis."""
    _dead: tuple[tuple[int, ...], ...] = field(init=False, repr=False)
    """After each step: the slots that nobody reads any more."""
    _slots: int = field(init=False, repr=False)
    """How many there are."""
    _alone: _Alone | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_alone", _alone(self.steps, self.taken, self.results))
        object.__setattr__(self, "_dead", _deaths(self.steps, self.results))
        made = (slot for step in self.steps for slot in step.outputs)
        object.__setattr__(self, "_slots", 1 + max((*self.taken, *made), default=-1))

    def run(self, rows: Rows, evaluators: Sequence[Evaluator]) -> list[list[Tensor]]:
        """The outputs, which may be pending: a row for each device, as the inputs are, each on its evaluator's device."""
        if self._alone is not None:
            return [self._alone.run(row, e) for row, e in zip(rows, evaluators, strict=True)]
        stores = [self._store(row) for row in rows]
        for step, dead in zip(self.steps, self._dead, strict=True):
            step.run(stores, evaluators)
            for store in stores:
                for slot in dead:
                    store[slot] = None
        return _rows(stores, self.results)

    def _store(self, row: Sequence[Any]) -> Store:
        store: Store = [None] * self._slots
        for slot, value in zip(self.taken, row, strict=True):
            store[slot] = value
        return store

    def costs(self) -> dict[str, float]:
        """Bytes that go in and come out."""
        return {"bytes accessed": float(sum(t.nbytes for t in (*self.inputs, *self.outputs)))}


def _alone(steps: tuple[Step, ...], taken: tuple[int, ...], results: tuple[int, ...]) -> _Alone | None:
    match steps:
        case [DeviceStep(function, reads, outputs)]:
            both = (*taken, *outputs)
            given, places = tuple(map(taken.index, reads)), tuple(map(both.index, results))
            return _Alone(function, given, places, plain=reads == taken and outputs == results)
        case _:
            return None


def _tensors(made: Any, evaluator: Evaluator) -> list[Tensor]:
    """What a call gave, one or several: arrays where it was given nothing."""
    several = cast("tuple[Any, ...]", made) if isinstance(made, tuple) else (made,)
    return [value if type(value) is Tensor else asarray(value, evaluator.device) for value in several]


def _deaths(steps: Sequence[Step], results: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    needed = set(results)
    dead: list[tuple[int, ...]] = []
    for step in reversed(steps):
        touched = {*step.reads, *step.outputs}
        dead.append(tuple(sorted(touched - needed)))
        needed |= touched
    return tuple(reversed(dead))
