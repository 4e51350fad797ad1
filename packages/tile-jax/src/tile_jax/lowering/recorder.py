"""Collects device programs and the host's steps between them while a module is walked.

Where the host has a part, the device program so far ends. What it computed is handed on when something after it first
asks for it, so that programs give just what is needed later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tile_ir.program.nodes import TensorType
from tile_runtime.compose import Composition
from tile_runtime.ops.values import Value, dtype_of, symbol
from tile_runtime.symbols import Symbol, placeholder, roots

from tile_jax.program import DeviceStep, Program, Step

Slots = tuple[int, ...]


class _Segment:
    """A device program that is not made yet: what later steps want of it, and in which slots."""

    def __init__(self) -> None:
        self.wanted: dict[int, tuple[Symbol, int]] = {}


class Recorder:
    """The steps of one program."""

    def __init__(self) -> None:
        self._open = _Segment()
        self._steps: list[_Segment | Step] = [self._open]
        self._slots: dict[int, int] = {}
        """Of placeholders, by identity."""
        self._places: dict[int, _Segment] = {}
        """The segments that symbols belong to, by identity."""
        self._handed: dict[int, Symbol] = {}
        """What stands for a value of an earlier segment."""
        self._kept: list[Any] = []
        """Identities are of living objects."""
        self._inputs: list[TensorType] = []
        self._taken: list[int] = []
        """Slots of the inputs."""

    def input(self, type: TensorType) -> Symbol:
        """One more input of the program; a body finds what it captures wherever it first reads it, behind host's steps, too."""
        made = self._placeholder(type)
        self._inputs.append(type)
        self._taken.append(self._slots[id(made)])
        return made

    def _placeholder(self, type: TensorType) -> Symbol:
        slot = len(self._slots)
        made = placeholder(type.dtype, type.shape, f"v{slot}")
        self._slots[id(made)] = slot
        self._kept.append(made)
        return made

    def made(self, value: Value) -> None:
        """Says that a value belongs to the present segment, unless it is older."""
        if isinstance(value, Symbol) and id(value) not in self._places:
            self._places[id(value)] = self._open
            self._kept.append(value)

    def current(self, value: Value) -> Value:
        """A value as the present segment sees it: one of an earlier segment is an input."""
        if not isinstance(value, Symbol) or value.known is not None or id(value) in self._slots:
            return value
        home = self._places.get(id(value), self._open)
        return value if home is self._open else self._handed_on(value, home)

    def _handed_on(self, value: Symbol, home: _Segment) -> Symbol:
        if id(value) not in self._handed:
            made = self._placeholder(TensorType(value.dtype, value.shape))
            home.wanted[id(value)] = (value, self._slots[id(made)])
            self._handed[id(value)] = made
        return self._handed[id(value)]

    def host(
        self, takes: Sequence[Value], types: Sequence[TensorType], step: Callable[[Slots, Slots], Step]
    ) -> list[Symbol]:
        """Ends the segment; `step` makes the host's step of the slots that it reads and writes. Its results, as symbols."""
        reads = self._end(takes)
        made = [self._placeholder(type) for type in types]
        self._steps += [step(reads, tuple(self._slots[id(m)] for m in made)), self._open]
        return made

    def _end(self, values: Sequence[Value]) -> Slots:
        """The slots of values that the segment gives; another one begins."""
        for value in values:
            self.made(value)
        ended, self._open = self._open, _Segment()
        return tuple(self._slots[id(self._given(value, ended))] for value in values)

    def _given(self, value: Value, ended: _Segment) -> Symbol:
        """A placeholder for any value; numbers that are known are constants of the segment that ended."""
        if isinstance(value, Symbol) and value.known is None:
            return self.current(value)
        own = value if isinstance(value, Symbol) else symbol(value)
        self._kept += [value, own]
        return self._handed_on(own, ended)

    def program(
        self,
        results: Sequence[Value],
        name: str = "",
        donated: Slots = (),
        complexes: frozenset[int] = frozenset(),
    ) -> Program:
        """The program that gives these values."""
        slots = self._end(results)
        outputs = tuple(TensorType(dtype_of(v), tuple(v.shape)) for v in results)
        steps = [self._step(s) if isinstance(s, _Segment) else s for s in self._steps]
        found = tuple(s for s in steps if s is not None)
        return Program(name, tuple(self._inputs), outputs, found, tuple(self._taken), slots, donated, complexes)

    def _step(self, segment: _Segment) -> DeviceStep | None:
        if not segment.wanted:
            return None
        symbols = [made for made, _ in segment.wanted.values()]
        inputs = sorted(roots(symbols), key=lambda s: self._slots[id(s)])
        function = Composition(inputs, {f"out{k}": symbol for k, symbol in enumerate(symbols)}, ())
        return DeviceStep(
            function, tuple(self._slots[id(s)] for s in inputs), tuple(s for _, s in segment.wanted.values())
        )
