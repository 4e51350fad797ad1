"""Runs a graph: walks it for the types of its inputs, keeps what the walks made, and follows that."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from tile_ir import forking
from tile_ir.collector import uncollected
from tile_runtime.tensor import Tensor

from tile_onnx import support
from tile_onnx.graph import Graph
from tile_onnx.language import Language
from tile_onnx.segments import Ask, Name, Piece, Recorder, Store, Suspended, host_array, key_of, type_of
from tile_onnx.walk import Walk

if TYPE_CHECKING:
    from tile_runtime.evaluator import Evaluator

PIECES = 64
"""Device programs that a graph keeps, for different shapes and values; the least recently used goes first."""


class Engine:
    """A graph with the programs made for it so far. Safe to use from any thread."""

    def __init__(self, graph: Graph, language: Language, evaluator: Callable[[], Evaluator], path: str = "") -> None:
        self.graph = graph
        self.language = language
        self.evaluator = evaluator
        self._path = path
        self._pieces: OrderedDict[Any, Piece] = OrderedDict()
        self._lock = forking.rlock()
        self.walks = 0
        """How often it was walked, each time for another program."""
        self.values: frozenset[str] = frozenset()
        """Inputs whose numbers the programs depend on; found while walking."""

    def run(self, feeds: Mapping[str, Any], wanted: tuple[str, ...]) -> dict[str, Any]:
        """Outputs by name: arrays, but Tensors where a feed is one; lists for sequences, None for absent optionals."""
        while True:
            run = _Run(self, feeds, wanted)
            if run.finish():
                return run.outputs()

    def inner(self, graph: Graph, language: Language, path: str) -> Engine:
        """One for a subgraph, whose values are called `path` and their name."""
        return Engine(graph, language, self.evaluator, path)

    def trace(self, feeds: Mapping[str, Any], wanted: tuple[str, ...]) -> list[Piece]:
        """The pieces that a run with these inputs follows; it runs."""
        while True:
            run = _Run(self, feeds, wanted)
            if run.finish():
                return run.pieces

    def plan(self, types: Mapping[str, Any], numbers: Mapping[str, Any], wanted: tuple[str, ...]) -> list[Piece]:
        """The pieces for inputs of these types, as far as `numbers` of inputs tell; compiled by nobody yet."""
        key, answers = _start(types, {n: v for n, v in numbers.items() if n in self.values}, wanted)
        piece = self.piece(key, types, answers, wanted)
        asked = {a.name for a in piece.asks if a.numbers and a.name in numbers}
        if asked - self.values:
            self.values |= asked
            return self.plan(types, numbers, wanted)
        return [piece]

    def piece(self, key: Any, types: Mapping[str, Any], answers: Mapping[Ask, Any], wanted: tuple[str, ...]) -> Piece:
        """What follows after these answers; walked to when it is new."""
        with self._lock:
            found = self._pieces.get(key)
            if found is None:
                found = self._pieces[key] = self._walk(types, answers, wanted)
                while len(self._pieces) > PIECES:
                    self._pieces.popitem(last=False)
            self._pieces.move_to_end(key)
            return found

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


class _Run:
    """One run: the values so far, and the key of the next piece."""

    def __init__(self, engine: Engine, feeds: Mapping[str, Any], wanted: tuple[str, ...]) -> None:
        self._engine = engine
        self._feeds = feeds
        self._wanted = wanted
        self._types = {n: type_of(v) for n, v in feeds.items()}
        numbers = {n: host_array(feeds[n]) for n in sorted(engine.values) if n in feeds}
        self._key, self._answers = _start(self._types, numbers, wanted)
        self._store: Store = {}
        self.pieces: list[Piece] = []
        self._results: tuple[Any, ...] = ()
        for name, value in feeds.items():
            _put(self._store, name, value)

    def finish(self) -> bool:
        """Runs to the end; False where an input turned out to be a value, so that it has to begin again."""
        while True:
            piece = self._engine.piece(self._key, self._types, self._answers, self._wanted)
            self.pieces.append(piece)
            self._steps(piece)
            if not piece.asks:
                self._results = piece.results
                return True
            if not self._answer(piece):
                return False

    def _steps(self, piece: Piece) -> None:
        evaluator = self._engine.evaluator()
        for k, step in enumerate(piece.steps):
            last = not piece.asks and k == len(piece.steps) - 1
            for name, value in zip(step.outputs, step.run(self._store, evaluator, stay=not last), strict=False):
                _put(self._store, name, value)

    def _answer(self, piece: Piece) -> bool:
        inputs = {a.name for a in piece.asks if a.numbers and a.name in self._feeds}
        if inputs - self._engine.values:
            self._engine.values |= inputs
            return False
        made = {ask: ask.answer(self._store) for ask in piece.asks}
        self._answers = {**self._answers, **made}
        self._key = (*self._key, *((a.name, a.numbers, key_of(v)) for a, v in made.items()))
        return True

    def outputs(self) -> dict[str, Any]:
        as_arrays = not any(isinstance(v, Tensor) for v in self._feeds.values())
        return {n: self._delivered(r, as_arrays) for n, r in zip(self._wanted, self._results, strict=True)}

    def _delivered(self, item: Any, as_arrays: bool) -> Any:
        if isinstance(item, Name):
            return self._delivered(self._store[item.name], as_arrays)
        if isinstance(item, list):
            return [self._delivered(i, as_arrays) for i in cast("list[Any]", item)]
        return host_array(item) if as_arrays else item


def _start(types: Mapping[str, Any], numbers: Mapping[str, Any], wanted: tuple[str, ...]) -> tuple[Any, dict[Ask, Any]]:
    """The first key, and the answers that are known from the start."""
    answers = {Ask(n, True): np.asarray(v) for n, v in numbers.items()}
    return (wanted, *types.items(), *((a.name, True, key_of(v)) for a, v in answers.items())), answers


def _put(store: Store, name: str, value: Any) -> None:
    """Stores a value, and those of a sequence under names of their own."""
    store[name] = value
    if isinstance(value, list):
        for k, item in enumerate(cast("list[Any]", value)):
            _put(store, f"{name}[{k}]", item)
