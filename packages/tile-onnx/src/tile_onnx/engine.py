"""Runs a graph: walks it for the types of its inputs, keeps what the walks made, and follows that."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from tile_ir import forking
from tile_ir.collector import uncollected
from tile_ir.frozen import frozen
from tile_runtime.tensor import Tensor, asarray, in_host_memory

from tile_onnx import support
from tile_onnx.graph import Graph
from tile_onnx.language import Language
from tile_onnx.newcomers import Newcomers
from tile_onnx.segments import Ask, Name, Piece, Recorder, Store, Suspended, host_array, key_of, type_of
from tile_onnx.values import is_array
from tile_onnx.walk import Walk

if TYPE_CHECKING:
    from tile_runtime.evaluator import Evaluator

PIECES = 64
"""Device programs that a graph keeps, for different shapes and values; the least recently used goes first."""


@dataclass(slots=True)
class Trail:
    """A piece, and those that followed it so far, by the answers to what it asks."""

    piece: Piece
    used: int = 0
    """When a run last came by."""
    next: dict[Any, Trail] = field(default_factory=dict[Any, "Trail"])


@frozen
class Start:
    """Where runs begin whose inputs have these types."""

    types: Mapping[str, Any]
    wanted: tuple[str, ...]
    numbers: tuple[str, ...]
    """Inputs whose numbers are known to matter."""
    first: dict[Any, Trail]
    """By these numbers."""

    def given(self, feeds: Mapping[str, Any]) -> dict[Ask, Any]:
        """These numbers, as answers."""
        return {Ask(n, True): host_array(feeds[n]) for n in self.numbers}

    def key(self, feeds: Mapping[str, Any]) -> tuple[Any, ...]:
        """What the first piece of a run is kept under."""
        return _key(self.wanted, self.types, self.given(feeds))


class Engine:
    """A graph with the programs made for it so far. Safe to use from any thread."""

    def __init__(self, graph: Graph, language: Language, evaluator: Callable[[], Evaluator], path: str = "") -> None:
        self.graph = graph
        self.language = language
        self.evaluator = evaluator
        self._path = path
        self._pieces: dict[Any, Trail] = {}
        self._starts: dict[Any, Start] = {}
        self._lock = forking.rlock()
        self._newcomers = Newcomers(graph, language)
        self.walks = 0
        """How often it was walked, each time for another program."""
        self.steps = 0
        """How many pieces runs followed."""
        self.values: frozenset[str] = frozenset()
        """Inputs whose numbers the programs depend on; found while walking."""

    def run(self, feeds: Mapping[str, Any], wanted: tuple[str, ...]) -> dict[str, Any]:
        """Outputs by name: arrays, but Tensors where a feed is one; lists for sequences, None for absent optionals."""
        return self.follow(self.start({n: type_of(v) for n, v in feeds.items()}, wanted), feeds)

    def start(self, types: Mapping[str, Any], wanted: tuple[str, ...]) -> Start:
        """Where runs with inputs of these types begin, as far as it is known which inputs' numbers matter."""
        key, values = (wanted, *types.items()), self.values
        found = self._starts.get((key, values))
        if found is None:
            if len(self._starts) >= PIECES:
                self._starts.clear()
            found = Start(types, wanted, tuple(n for n in sorted(values) if n in types), {})
            self._starts[key, values] = found
        return found

    def follow(self, start: Start, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """The same as `run`, for feeds that are known to have the types of `start`."""
        if not self.made(start, feeds):
            found = self._without_program(start, feeds)
            if found is not None:
                return found
        begun, walks = time.perf_counter(), self.walks
        run = _Run(self, start, feeds)
        found = run.outputs() if run.finish() else self.run(feeds, start.wanted)
        if self.walks != walks:
            self._newcomers.bought(start.key(feeds), time.perf_counter() - begun)
        return found

    def made(self, start: Start, feeds: Mapping[str, Any]) -> bool:
        """Whether there is a program for such feeds."""
        return _answer(start.given(feeds)) in start.first or start.key(feeds) in self._pieces

    def _without_program(self, start: Start, feeds: Mapping[str, Any]) -> dict[str, Any] | None:
        """Outputs of feeds whose sizes wait for a program; None where they get one now."""
        tensors = any(isinstance(v, Tensor) for v in feeds.values())
        key = start.key(feeds)
        if not self._newcomers.wait(key) or (tensors and not in_host_memory(self.evaluator().device)):
            return None
        arrays = {n: host_array(v) for n, v in feeds.items()}
        made = self._newcomers.run(key, arrays, start.wanted)
        if made is None:
            return None
        device = self.evaluator().device if tensors else None
        values = [asarray(v, device) if tensors and is_array(v) else v for v in made]
        return dict(zip(start.wanted, values, strict=True))

    def inner(self, graph: Graph, language: Language, path: str) -> Engine:
        """One for a subgraph, whose values are called `path` and their name."""
        return Engine(graph, language, self.evaluator, path)

    def trace(self, feeds: Mapping[str, Any], wanted: tuple[str, ...]) -> list[Piece]:
        """The pieces that a run with these inputs follows; it runs."""
        types = {n: type_of(v) for n, v in feeds.items()}
        while True:
            run = _Run(self, self.start(types, wanted), feeds)
            if run.finish():
                return run.pieces

    def plan(self, types: Mapping[str, Any], numbers: Mapping[str, Any], wanted: tuple[str, ...]) -> list[Piece]:
        """The pieces for inputs of these types, as far as `numbers` of inputs tell; compiled by nobody yet."""
        answers = {Ask(n, True): np.asarray(numbers[n]) for n in sorted(self.values & numbers.keys())}
        piece = self.trail(types, answers, wanted).piece
        asked = {a.name for a in piece.asks if a.numbers and a.name in numbers}
        if asked - self.values:
            self.values |= asked
            return self.plan(types, numbers, wanted)
        return [piece]

    def trail(self, types: Mapping[str, Any], answers: Mapping[Ask, Any], wanted: tuple[str, ...]) -> Trail:
        """What follows after these answers; walked to when it is new."""
        key = _key(wanted, types, answers)
        with self._lock:
            found = self._pieces.get(key)
            if found is None:
                found = self._pieces[key] = Trail(self._walk(types, answers, wanted), self.steps)
                while len(self._pieces) > PIECES:
                    self._forget(min(self._pieces, key=lambda k: self._pieces[k].used))
            return found

    def _forget(self, key: Any) -> None:
        """Drops a piece, and the ways that lead to it."""
        del self._pieces[key]
        for ways in (*(s.first for s in self._starts.values()), *(t.next for t in self._pieces.values())):
            ways.clear()

    def _walk(self, types: Mapping[str, Any], answers: Mapping[Ask, Any], wanted: tuple[str, ...]) -> Piece:
        self.walks += 1
        recorder = Recorder(answers, frozenset(types))
        walk = Walk(self, recorder)
        asks: tuple[Ask, ...] = ()
        results: list[Any] = []
        try:
            with uncollected():
                values = {n: recorder.given(n, t) for n, t in types.items()}
                results = walk.run(self.graph.pruned(wanted), values, self._path)
        except Suspended as ending:
            asks = ending.asks
        if walk.problems:
            raise support.unsupported(walk.problems) from walk.cause
        if not asks:
            recorder.end(results)
        return Piece(tuple(recorder.steps), asks, tuple(recorder.item(r) for r in results))


def _answer(made: Mapping[Ask, Any]) -> tuple[Any, ...]:
    """What leads from one piece to the next."""
    return tuple([key_of(v) for v in made.values()])


def _key(wanted: tuple[str, ...], types: Mapping[str, Any], answers: Mapping[Ask, Any]) -> tuple[Any, ...]:
    return (wanted, *types.items(), *((a.name, a.numbers, key_of(v)) for a, v in answers.items()))


class _Run:
    """One run: the values so far, and the answers that led to the next piece."""

    def __init__(self, engine: Engine, start: Start, feeds: Mapping[str, Any]) -> None:
        self._engine = engine
        self._start = start
        self._feeds = feeds
        self._store: Store = {}
        self._made: list[dict[Ask, Any]] = []
        self.pieces: list[Piece] = []
        self._results: tuple[Any, ...] = ()
        for name, value in feeds.items():
            _put(self._store, name, value)

    def finish(self) -> bool:
        """Runs to the end; False where an input turned out to be a value, so that it has to begin again."""
        engine, evaluator, ways = self._engine, self._engine.evaluator(), self._start.first
        made = self._start.given(self._feeds)
        while True:
            self._made.append(made)
            trail = self._next(ways, _answer(made))
            engine.steps = trail.used = engine.steps + 1
            piece, ways = trail.piece, trail.next
            self.pieces.append(piece)
            self._steps(piece, evaluator)
            if not piece.asks:
                self._results = piece.results
                return True
            if self._asks_inputs(piece):
                return False
            made = {ask: ask.answer(self._store) for ask in piece.asks}

    def _next(self, ways: dict[Any, Trail], answer: Any) -> Trail:
        """The piece to which the answers so far lead, the last of which is `answer`."""
        found = ways.get(answer)
        if found is None:
            if len(ways) >= PIECES:
                ways.clear()
            answers = {ask: value for made in self._made for ask, value in made.items()}
            found = ways[answer] = self._engine.trail(self._start.types, answers, self._start.wanted)
        return found

    def _steps(self, piece: Piece, evaluator: Evaluator) -> None:
        stays = not in_host_memory(evaluator.device)
        for k, step in enumerate(piece.steps):
            last = not piece.asks and k == len(piece.steps) - 1
            for name, value in zip(
                step.outputs, step.run(self._store, evaluator, stay=stays and not last), strict=False
            ):
                _put(self._store, name, value)

    def _asks_inputs(self, piece: Piece) -> bool:
        """Whether a piece asks for the numbers of an input for the first time."""
        inputs = {a.name for a in piece.asks if a.numbers and a.name in self._feeds}
        if inputs <= self._engine.values:
            return False
        self._engine.values |= inputs
        return True

    def outputs(self) -> dict[str, Any]:
        as_arrays = not any(isinstance(v, Tensor) for v in self._feeds.values())
        return {n: self._delivered(r, as_arrays) for n, r in zip(self._start.wanted, self._results, strict=True)}

    def _delivered(self, item: Any, as_arrays: bool) -> Any:
        if isinstance(item, Name):
            found = self._delivered(self._store[item.name], as_arrays)
            return np.array(found) if item.name in self._feeds and is_array(found) else found
        if isinstance(item, list):
            return [self._delivered(i, as_arrays) for i in cast("list[Any]", item)]
        return host_array(item) if as_arrays else item


def _put(store: Store, name: str, value: Any) -> None:
    """Stores a value, and those of a sequence under names of their own."""
    store[name] = value
    if isinstance(value, list):
        for k, item in enumerate(cast("list[Any]", value)):
            _put(store, f"{name}[{k}]", item)
