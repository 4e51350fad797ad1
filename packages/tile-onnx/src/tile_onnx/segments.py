"""Device programs with host work between them: what a walk makes, and what a run follows.

A walk stops where it needs numbers that only a run has. What it made until then is a `Piece`: steps to run, and what
it asks for afterwards. The answers continue the key under which the next piece is found, or walked to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from tile_ir.diagnostics import Diagnostic, TileTypeError
from tile_ir.frozen import frozen
from tile_runtime.compose import Composition
from tile_runtime.ops.values import tile_dtype
from tile_runtime.symbols import Symbol, roots
from tile_runtime.tensor import asarray

from tile_onnx.host import NotEvaluated
from tile_onnx.values import Array, Held, Value, is_array, is_list, leaves

if TYPE_CHECKING:
    from tile_runtime.evaluator import Evaluator

Store = dict[str, Any]
"""Arrays, Tensors and lists of them by name, while a model runs."""


@frozen
class Segment:
    """A device program, and the names of what it takes and gives."""

    program: Composition
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    placeholders: tuple[Symbol, ...]

    def run(self, store: Mapping[str, Any], evaluator: Evaluator, *, stay: bool) -> Sequence[Any]:
        """Its outputs; with `stay` they stay on the device."""
        values = [store[name] for name in self.inputs]
        if stay:
            values = [asarray(v, evaluator.device) for v in values]
        results = evaluator(self.program, *values)
        return (results,) if len(self.outputs) == 1 else results


@frozen
class HostWork:
    """A function between device programs, of arrays or of whatever stands in the store."""

    label: str
    function: Callable[..., Sequence[Any]]
    inputs: tuple[Any, ...]
    """Names of values, lists of them, or known values."""
    outputs: tuple[str, ...]
    of_arrays: bool

    def run(self, store: Store, evaluator: Evaluator, *, stay: bool) -> Sequence[Any]:
        """Its outputs; TileTypeError where ONNX's reference implementation fails."""
        try:
            return self.function(*(resolved(i, store, self.of_arrays) for i in self.inputs))
        except NotEvaluated as problem:
            message = f"{self.label}: ONNX's reference implementation fails on it: {problem}"
            raise TileTypeError(Diagnostic("TILE-E910", message)) from problem


@frozen
class Name:
    """A value of the store."""

    name: str


@frozen
class Ask:
    """What a walk needs to go on: the numbers of a value, or its dtype and shape."""

    name: str
    numbers: bool

    def answer(self, store: Store) -> Any:
        found = store[self.name]
        return host_array(found) if self.numbers else type_of(found)


@frozen
class Piece:
    """Steps, and then questions, or the outputs (known values, or values of the store)."""

    steps: tuple[Segment | HostWork, ...]
    asks: tuple[Ask, ...] = ()
    results: tuple[Any, ...] = ()


class Suspended(Exception):
    """A walk that cannot go on before answers are known."""

    def __init__(self, asks: Iterable[Ask]) -> None:
        super().__init__()
        self.asks = tuple(asks)


def resolved(item: Any, store: Store, as_arrays: bool) -> Any:
    """An item of a piece: names are looked up, in lists too."""
    if isinstance(item, Name):
        return resolved(store[item.name], store, as_arrays)
    if isinstance(item, list):
        return [resolved(i, store, as_arrays) for i in cast("list[Any]", item)]
    return host_array(item) if as_arrays else item


def host_array(value: Any) -> Any:
    """The array of a Tensor; anything else as it is."""
    return value if value is None or is_array(value) or is_list(value) else value.numpy()


def type_of(value: Any) -> Any:
    """Dtype and shape; a list of them for a sequence, None for nothing."""
    if isinstance(value, list):
        return tuple(type_of(v) for v in cast("list[Any]", value))
    if value is None:
        return None
    return (value.dtype if is_array(value) else value.dtype.numpy, tuple(value.shape))


def key_of(answer: Any) -> Any:
    """An answer as a part of a key."""
    if isinstance(answer, np.ndarray):
        array = cast(Array, answer)
        return (array.dtype.str, array.shape, tuple(array.reshape(-1)) if array.dtype == object else array.tobytes())
    return answer


@dataclass
class Recorder:
    """The steps of a walk, and the names of its symbols.

    `answers` are those to the questions of the pieces before: a walk repeats what they did, and drops their steps.
    """

    answers: Mapping[Ask, Any]
    inputs: frozenset[str] = frozenset()
    """Names of the graph's own inputs."""
    names: dict[int, str] = field(default_factory=dict[int, str])
    """Of symbols and held values, by identity."""
    known: dict[int, Array] = field(default_factory=dict[int, Array])
    steps: list[Segment | HostWork] = field(default_factory=list[Segment | HostWork])
    _kept: list[Any] = field(default_factory=list[Any])
    """What identities stand for must live as long as they are used."""

    def given(self, name: str, type: Any) -> Value:
        """A value of the store as the walk sees it: its numbers where they were asked for before."""
        if type is None:
            return None
        if len(type) != 2 or not isinstance(type[0], np.dtype):
            return [self.given(f"{name}[{k}]", t) for k, t in enumerate(type)]
        if Ask(name, True) in self.answers:
            return self.answers[Ask(name, True)]
        dtype, shape = cast("tuple[np.dtype[Any], tuple[int, ...]]", type)
        known = tile_dtype(dtype)
        value = Held(name, dtype, shape) if known is None else Symbol(shape, known, name)
        self.name(value, name)
        return value

    def name(self, value: Value, name: str) -> None:
        """Names the symbols of a value that have no name yet."""
        if isinstance(value, list):
            for k, item in enumerate(cast("list[Value]", value)):
                self.name(item, f"{name}[{k}]")
        elif isinstance(value, (Symbol, Held)) and id(value) not in self.names:
            self.names[id(value)] = name
            self._kept.append(value)

    def current(self, value: Value) -> Value:
        """The numbers of a value where they are known by now, else the value."""
        return self.known.get(id(value), value)

    def array(self, value: Symbol | Held, live: Callable[[], Iterable[Value]], fallback: str) -> Array:
        """The numbers of a value; ends the device program where they have to be computed first."""
        if id(value) in self.known:
            return self.known[id(value)]
        self.name(value, fallback)
        ask = Ask(self.names[id(value)], True)
        if isinstance(value, Symbol) and value.source is not None:
            self.end([value, *live()], replay=ask in self.answers)
        self.known[id(value)] = self._answered([ask])[0]
        return self.known[id(value)]

    def work(
        self,
        label: str,
        function: Callable[..., Any],
        inputs: Sequence[Value],
        outputs: Sequence[str],
        live: Callable[[], Iterable[Value]],
        of_arrays: bool = True,
    ) -> list[Value]:
        """The outputs of host work, as values of the store; the device program ends before it where it must."""
        asks = [Ask(name, False) for name in outputs]
        if any(isinstance(v, Symbol) and v.source is not None for i in inputs for v in leaves(i)):
            self.end([*inputs, *live()], replay=asks[0] in self.answers)
        self.steps.append(HostWork(label, function, tuple(map(self.item, inputs)), tuple(outputs), of_arrays))
        return [self.given(n, t) for n, t in zip(outputs, self._answered(asks), strict=True)]

    def _answered(self, asks: Sequence[Ask]) -> list[Any]:
        if not all(ask in self.answers for ask in asks):
            raise Suspended(asks)
        self.steps.clear()
        return [self.answers[ask] for ask in asks]

    def item(self, value: Value) -> Any:
        """A value as steps and results hold it: known values themselves, others by name."""
        value = self.current(value)
        if isinstance(value, list):
            return [self.item(v) for v in cast("list[Value]", value)]
        return Name(self.names[id(value)]) if isinstance(value, (Symbol, Held)) else value

    def end(self, values: Iterable[Value], *, replay: bool = False) -> None:
        """Ends the device program: it gives these values, which are inputs of the next one."""
        wanted = {
            id(v): v for value in values for v in leaves(value)
            if isinstance(v, Symbol) and v.source is not None and id(v) not in self.known
        }  # fmt: skip
        if not wanted:
            return
        symbols = list(wanted.values())
        for k, symbol in enumerate(symbols):
            self.name(symbol, f"value {len(self.names)}.{k}")
        if not replay:
            self.steps.append(self._segment(symbols))
        for symbol in symbols:
            symbol.source = None  # from here on it is an input
            symbol.name = self.names[id(symbol)]

    def _segment(self, symbols: Sequence[Symbol]) -> Segment:
        inputs = roots(symbols)
        names = [self.names[id(s)] for s in inputs]
        outputs = {self.names[id(s)]: s for s in symbols}
        return Segment(Composition(inputs, outputs, ()), tuple(names), tuple(outputs), tuple(inputs))
