"""Models: what `load` gives."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import ModelProto
from tile_ir import forking

from tile_onnx import support
from tile_onnx.reading import Imported, read
from tile_onnx.segments import Ask, Name, Piece, Recorder, Store, Suspended, host_array, key_of, type_of
from tile_onnx.walk import Walk

if TYPE_CHECKING:
    from tile_hal.interfaces import Device
    from tile_runtime.evaluator import Evaluator

PIECES = 64
"""Compiled programs that a model keeps; the least recently used goes first."""


def load(model: str | Path | bytes | ModelProto, device: Device | str | None = None) -> Model:
    """The model of a file, of its bytes, or of a message."""
    return Model(read(model), device)


class Model:
    """An imported model. Nothing is compiled before shapes are known; safe to use from any thread."""

    def __init__(self, imported: Imported, device: Device | str | None) -> None:
        self._imported = imported
        self._device = device
        self._pieces: OrderedDict[Any, Piece] = OrderedDict()
        self._valued: set[str] = set()
        self._lock = forking.lock()
        self._made: Evaluator | None = None

    @property
    def input_names(self) -> tuple[str, ...]:
        """The inputs that a call gives, in order."""
        return self._imported.graph.inputs

    @property
    def evaluator(self) -> Evaluator:
        """What compiles and runs its programs; made, and its device opened, when first needed."""
        from tile_runtime.evaluator import Evaluator

        if self._made is None:
            self._made = Evaluator(self._device)
        return self._made

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None) -> dict[str, Any]:
        """Outputs by name."""
        wanted = tuple(outputs) if outputs is not None else self._imported.graph.outputs
        while True:
            found = self._attempt(feeds, wanted)
            if found is not None:
                return found

    def _attempt(self, feeds: Mapping[str, Any], wanted: tuple[str, ...]) -> dict[str, Any] | None:
        """The outputs; None where an input turned out to be a value, so that the key is another."""
        types = {n: type_of(v) for n, v in feeds.items()}
        answers = {Ask(n, True): np.asarray(host_array(feeds[n])) for n in self._valued & set(feeds)}
        key: tuple[Any, ...] = (wanted, *types.items(), *((a.name, key_of(v)) for a, v in answers.items()))
        store: Store = dict(_flat(feeds))
        while True:
            piece = self._piece(key, types, answers, wanted)
            for step in piece.steps:
                step.run(store, self.evaluator)
            if not piece.asks:
                return {n: _delivered(r, store) for n, r in zip(wanted, piece.results, strict=True)}
            fresh = {a.name for a in piece.asks if a.numbers and a.name in feeds and a.name not in self._valued}
            if fresh:
                self._valued |= fresh
                return None
            made = {ask: ask.answer(store) for ask in piece.asks}
            _spread(store, made)
            answers |= made
            key = (*key, *((a.name, key_of(v)) for a, v in made.items()))

    def _piece(self, key: Any, types: Mapping[str, Any], answers: Mapping[Ask, Any], wanted: tuple[str, ...]) -> Piece:
        with self._lock:
            found = self._pieces.get(key)
            if found is None:
                found = self._pieces[key] = self._walk(types, answers, wanted)
                while len(self._pieces) > PIECES:
                    self._pieces.popitem(last=False)
            self._pieces.move_to_end(key)
            return found

    def _walk(self, types: Mapping[str, Any], answers: Mapping[Ask, Any], wanted: tuple[str, ...]) -> Piece:
        recorder = Recorder(answers)
        walk = Walk(self._imported.functions, recorder)
        asks: tuple[Ask, ...] = ()
        results: list[Any] = []
        try:
            values = {n: recorder.given(n, t) for n, t in types.items()}
            results = walk.run(self._imported.graph.pruned(wanted), values, self._imported.opsets)
        except Suspended as ending:
            asks = ending.asks
        if walk.problems:
            raise support.unsupported(walk.problems)
        if not asks:
            recorder.end(results)
        return Piece(tuple(recorder.steps), asks, tuple(recorder.item(r) for r in results))


def _flat(feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Feeds with the items of sequences under names of their own."""
    found: dict[str, Any] = {}
    _spread(found, feeds)
    return found


def _spread(store: Store, values: Mapping[Any, Any]) -> None:
    for name, value in values.items():
        if isinstance(name, Ask):
            if not name.numbers:
                _spread(store, {name.name: store[name.name]})
        else:
            store[name] = value
            if isinstance(value, list):
                _spread(store, {f"{name}[{k}]": v for k, v in enumerate(value)})  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def _delivered(item: Any, store: Store) -> Any:
    if isinstance(item, Name):
        return store[item.name]
    if isinstance(item, list):
        return [_delivered(i, store) for i in item]  # pyright: ignore[reportUnknownVariableType]
    return item
