"""Counted loops on the device: what rounds carry, and what they write row by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tile_ir.program.nodes import Elementwise
from tile_lang.evaluate import evaluate
from tile_runtime.arguments import input_type
from tile_runtime.loops import scan
from tile_runtime.ops.moving import flipped, reshaped
from tile_runtime.ops.text import at, contraction, function, names
from tile_runtime.ops.values import Array, Value, apply, is_known, symbol
from tile_runtime.symbols import Application, Symbol
from tile_runtime.symbols import constant as known

from tile_jax.lowering.counting import Counter
from tile_jax.lowering.elements import full
from tile_jax.lowering.errors import Unlooped
from tile_jax.lowering.op import Op
from tile_jax.lowering.scope import TOKEN, Poison, Poisoned


def on_device(op: Op, counter: Counter) -> list[Value]:
    """What a counted loop gives, as one loop on the device; Unlooped where its body cannot be one."""
    if any(v is TOKEN for v in op.values):
        raise Unlooped
    rounds = _Rounds(op, counter)
    carried = tuple(symbol(op.values[k]) for k in rounds.carried)
    numbers = (counter.first + counter.step * np.arange(counter.trips)).astype(op.values[counter.place].dtype)
    after, stacks = scan(rounds.step, carried, known(numbers))
    found = dict(enumerate(op.values)) | dict(zip(rounds.carried, after, strict=True))
    last = counter.first + counter.step * counter.trips
    found[counter.place] = full(last, op.dtype(counter.place))
    for (k, places), rows in zip(rounds.stacked.items(), stacks, strict=True):
        found[k] = _written(op.values[k], places, rows)
    return [found[k] for k in range(len(op.values))]


class _Rounds:
    """The step of a loop, and what it found out while it was traced."""

    def __init__(self, op: Op, counter: Counter) -> None:
        self._op = op
        self._counter = counter
        self.carried = [k for k in range(len(op.values)) if k not in counter.fixed and k != counter.place]
        self.stacked: dict[int, Array] = {}
        """Carried values of which each round writes one row, and the row of each round."""

    def step(self, carry: tuple[Symbol, ...], number: Symbol) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
        values = dict(enumerate(self._op.values)) | dict(zip(self.carried, carry, strict=True))
        values[self._counter.place] = number
        given = [values[k] for k in range(len(values))]
        made = self._op.walk.block(self._op.region(1), given, self._op.scope)
        if any(isinstance(v, Poison) for v in made):
            raise Poisoned
        after = [symbol(made[k]) for k in self.carried]
        rows = self._rows(carry, after, number)
        kept = tuple(own if k in rows else new for k, own, new in zip(self.carried, carry, after, strict=True))
        return kept, tuple(rows.values())

    def _rows(self, carry: Sequence[Symbol], after: Sequence[Symbol], number: Symbol) -> dict[int, Value]:
        """The rows that rounds write to carried values which nothing reads."""
        found: dict[int, Value] = {}
        for k, own, new in zip(self.carried, carry, after, strict=True):
            row = self._op.walk.rows.get(id(new))
            others = [v for v in after if v is not new]
            if row is None or row.value is not own or _depends([*others, row.update, row.place], own):
                continue
            places = _table(row.place, number, self._numbers())
            if places is not None:
                self.stacked[k] = np.clip(places, 0, own.shape[0] - 1).astype(np.int64)
                found[k] = reshaped(row.update, tuple(own.shape[1:]))
        return found

    def _numbers(self) -> Array:
        count = self._counter.first + self._counter.step * np.arange(self._counter.trips)
        return count.astype(self._op.dtype(self._counter.place).numpy)


def _depends(values: Sequence[Value], on: Symbol) -> bool:
    """Whether any of these values is computed from a placeholder."""
    stack: list[object] = list(values)
    seen: set[int] = set()
    while stack:
        value = stack.pop()
        if value is on:
            return True
        if isinstance(value, Symbol) and value.source is not None and id(value) not in seen:
            seen.add(id(value))
            stack += value.source[0].arguments.values()
    return False


def _table(value: Value, number: Symbol, numbers: Array) -> Array | None:
    """A scalar computed from the number of the round alone, for all rounds at once; None where it is anything else."""
    if is_known(value):
        return np.broadcast_to(value.reshape(()), numbers.shape)
    done: dict[int, Array] = {id(number): numbers}
    try:
        return np.broadcast_to(_tabulated(value, done), numbers.shape)
    except _NotOfNumber:
        return None


class _NotOfNumber(Exception):
    """Something that no table of the rounds' numbers has."""


def _tabulated(value: Value, done: dict[int, Array]) -> Array:
    if id(value) in done:
        return done[id(value)]
    array: Any = value.known if isinstance(value, Symbol) else value
    if array is not None:
        if array.size != 1:
            raise _NotOfNumber
        return array.reshape(())
    if not isinstance(value, Symbol) or value.source is None or value.shape:
        raise _NotOfNumber
    application, output = value.source
    done[id(value)] = _evaluated(application, output, done)
    return done[id(value)]


def _evaluated(application: Application, output: str, done: dict[int, Array]) -> Array:
    if not all(isinstance(op, Elementwise) for op in application.program.ops):
        raise _NotOfNumber
    given = {name: _tabulated(v, done) for name, v in application.arguments.items()}
    program = application.function.bind({name: input_type(name, v) for name, v in given.items()})
    with np.errstate(all="ignore"):
        return evaluate(program, given)[output]


def _written(value: Value, places: Array, rows: Value) -> Value:
    """`value` with each round's row in its place; of several in one place the last stays."""
    size, trips = value.shape[0], len(places)
    if places.tolist() == list(range(size)):
        return rows
    if places.tolist() == list(range(size))[::-1]:
        return flipped(rows, [0])
    last = {int(place): k for k, place in enumerate(places)}
    kept = sorted(last)
    chosen = [last[p] for p in kept]
    if chosen != list(range(trips)):
        rows = apply(_picking(rows.shape, len(chosen)), rows, np.array(chosen, np.int32))
    index = names(len(value.shape))
    text = contraction("Y", value.shape, (at("I", index[:1]), *index[1:]), "=", at("U", index), "default X")
    return apply(function("XUI", "Y", text), value, rows, np.asarray(kept, np.int32))


def _picking(shape: Sequence[int], count: int) -> str:
    index = names(len(shape))
    return function(
        "XI", "Y", contraction("Y", (count, *shape[1:]), index, "=", at("X", (at("I", index[:1]), *index[1:])))
    )
