"""Collects device programs and the host's steps between them while a module is walked.

Where the host has a part, the device program so far ends. What it computed is handed on when something after it first
asks for it, so that programs give just what is needed later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tile_ir.program.nodes import TensorType
from tile_runtime.ops.values import Value
from tile_runtime.compose import Composition
from tile_runtime.symbols import Symbol, placeholder

from tile_jax.lowering.plan import DeviceProgram, Item, Plan, Slot, Step


@dataclass(slots=True)
class _Segment:
    """A device program that is not made yet: what later steps want of it."""

    wanted: dict[int, tuple[Symbol, Slot]] = field(default_factory=dict[int, "tuple[Symbol, Slot]"])


class Recorder:
    """The steps of one plan."""

    def __init__(self) -> None:
        self._steps: list[_Segment | Step] = [_Segment()]
        self._open = self._steps[0]
        self._slots: dict[int, Slot] = {}
        """Of placeholders, by identity."""
        self._places: dict[int, _Segment] = {}
        """The segments that symbols belong to, by identity."""
        self._handed: dict[int, Symbol] = {}
        """What stands for a symbol of an earlier segment."""
        self._kept: list[Any] = []
        self.inputs: list[Slot] = []

    def input(self, type: TensorType) -> Symbol:
        """One more input of the plan."""
        made = self._placeholder(type)
        self.inputs.append(self._slots[id(made)])
        return made

    def _placeholder(self, type: TensorType) -> Symbol:
        slot = Slot(len(self._slots), type)
        made = placeholder(type.dtype, type.shape, f"V{slot.number}")
        self._slots[id(made)] = slot
        self._kept.append(made)
        return made

    def made(self, value: Value) -> None:
        """Says that a value belongs to the present segment, unless it is older."""
        if isinstance(value, Symbol) and id(value) not in self._places:
            assert isinstance(self._open, _Segment)
            self._places[id(value)] = self._open
            self._kept.append(value)

    def current(self, value: Value) -> Value:
        """A value as the present segment sees it: one of an earlier segment is an input."""
        if not isinstance(value, Symbol) or value.known is not None or id(value) in self._slots:
            return value
        home = self._places.get(id(value), self._open)
        return value if home is self._open else self._hand_on(value, home)

    def _hand_on(self, value: Symbol, home: _Segment | Step) -> Symbol:
        if id(value) not in self._handed:
            assert isinstance(home, _Segment)
            made = self._placeholder(TensorType(value.dtype, value.shape))
            home.wanted[id(value)] = (value, self._slots[id(made)])
            self._handed[id(value)] = made
        return self._handed[id(value)]

    def host(
        self, takes: Sequence[Value], types: Sequence[TensorType], step: Callable[[Any, Any], Step]
    ) -> list[Symbol]:
        """Ends the segment; `step` makes the host's step of what it takes and gives. Its results, as symbols."""
        self._open = _Segment()
        items = tuple(self.item(self.current(v)) for v in takes)
        made = [self._placeholder(type) for type in types]
        self._steps += [step(items, tuple(self._slots[id(m)] for m in made)), self._open]
        return made

    def item(self, value: Value) -> Item:
        """Where a value is: its numbers, or the slot of a placeholder."""
        if isinstance(value, Symbol) and value.known is not None:
            return value.known
        return self._slots[id(value)] if isinstance(value, Symbol) else value

    def plan(self, results: Sequence[Value]) -> Plan:
        """The plan that gives these values."""
        self._open = _Segment()
        items = tuple(self.item(self.current(v)) for v in results)
        steps = [self._step(s) if isinstance(s, _Segment) else s for s in self._steps]
        outputs = tuple(item.type if isinstance(item, Slot) else _type(item) for item in items)
        return Plan(tuple(s.type for s in self.inputs), outputs, tuple(s for s in steps if s is not None), items)

    def _step(self, segment: _Segment) -> DeviceProgram | None:
        if not segment.wanted:
            return None
        symbols = [symbol for symbol, _ in segment.wanted.values()]
        slots = tuple(slot for _, slot in segment.wanted.values())
        inputs = roots(symbols)
        outputs = {f"R{k}": symbol for k, symbol in enumerate(symbols)}
        taken = tuple(self._slots[id(s)] for s in inputs)
        return DeviceProgram(Composition(inputs, outputs, ()), taken, slots)


def _type(array: np.ndarray[Any, Any]) -> TensorType:
    from tile_runtime.ops.values import dtype_of

    return TensorType(dtype_of(array), array.shape)


def roots(symbols: Iterable[Symbol]) -> list[Symbol]:
    """The placeholders that symbols are computed from."""
    found: dict[int, Symbol] = {}
    seen: set[int] = set()
    stack = list(symbols)
    while stack:
        symbol = stack.pop()
        if id(symbol) in seen:
            continue
        seen.add(id(symbol))
        if symbol.is_placeholder:
            found[id(symbol)] = symbol
        elif symbol.source is not None:
            stack += [a for a in symbol.source[0].arguments.values() if isinstance(a, Symbol)]
    return list(found.values())
