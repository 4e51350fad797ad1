"""Calls like an earlier one: what was found and checked then holds for all arrays of the same names, dtypes and shapes.

A call that is one device program on its inputs is nothing but that then, so that small models cost little more than the program
does; any other follows what earlier calls did, as far as its numbers are theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from tile_ir.frozen import frozen

from tile_onnx.engine import PIECES, Engine, Start
from tile_onnx.segments import Name, Segment, type_of

if TYPE_CHECKING:
    from tile_runtime.evaluator import Evaluator

Key = tuple[Any, ...]


@frozen
class Ready:
    """A program that takes the inputs of a call as they are, and gives its outputs."""

    segment: Segment
    evaluator: Evaluator
    outputs: tuple[tuple[str, int], ...]
    """Each output's name, and which result of the program it is."""

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        results = self.segment.run(feeds, self.evaluator, stay=False)
        return {name: results[k] for name, k in self.outputs}


@frozen
class Known:
    """Where calls begin that are more than one program."""

    start: Start
    engine: Engine

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        return self.engine.follow(self.start, feeds)


class WarmCalls:
    """The programs of calls so far. Safe to use from any thread: a lost entry is found again."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._ready: dict[Key, Ready | Known] = {}

    def key(self, feeds: object, outputs: object) -> Key | None:
        """What calls that are alike have in common; None where that is not for dtypes and shapes of arrays to say."""
        if type(feeds) is not dict or not (outputs is None or type(outputs) is str):
            return None
        given = cast("dict[Any, Any]", feeds)
        parts: list[Any] = [outputs, self._engine.values]
        for name, value in given.items():
            if type(value) is not np.ndarray:
                return None
            parts += (name, value.dtype, value.shape)
        return tuple(parts)

    def get(self, key: Key | None) -> Ready | Known | None:
        return None if key is None else self._ready.get(key)

    def keep(
        self, key: Key | None, feeds: Mapping[str, Any], values: Mapping[str, Any], wanted: tuple[str, ...]
    ) -> None:
        """Remembers a call that has run a program, if it took its inputs as they are."""
        if key is None or feeds.keys() != values.keys() or any(values[n] is not v for n, v in feeds.items()):
            return
        types = {n: type_of(v) for n, v in values.items()}
        start = self._engine.start(types, wanted)
        if not self._engine.made(start, values):
            return  # it ran without a program
        if len(self._ready) >= PIECES:
            self._ready.clear()
        known = Known(start, self._engine)
        self._ready[key] = known if self._engine.values else self._alone(types, feeds, wanted) or known

    def _alone(self, types: Mapping[str, Any], feeds: Mapping[str, Any], wanted: tuple[str, ...]) -> Ready | None:
        """The one program that a call is, whatever numbers its inputs hold; None where it is not."""
        (piece,) = self._engine.plan(types, {}, wanted)
        steps, results = piece.steps, piece.results
        if (
            piece.asks
            or len(steps) != 1
            or not isinstance(steps[0], Segment)
            or not feeds.keys() >= set(steps[0].inputs)
        ):
            return None
        if any(not isinstance(r, Name) or r.name not in steps[0].outputs for r in results):
            return None
        places = tuple((n, steps[0].outputs.index(r.name)) for n, r in zip(wanted, results, strict=True))
        return Ready(steps[0], self._engine.evaluator(), places)
