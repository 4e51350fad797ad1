"""A model as one Tile function, with some of its initializers as inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from tile_ir.diagnostics import Diagnostic, TileTypeError
from tile_runtime.compose import Composition
from tile_runtime.symbols import Symbol

from tile_onnx import support
from tile_onnx.engine import Engine
from tile_onnx.segments import Ask, Recorder, Suspended, type_of
from tile_onnx.walk import Walk


def as_function(
    engine: Engine, samples: Mapping[str, Any], numbers: Mapping[str, Any], parameters: Sequence[str]
) -> Composition:
    """The composition of a graph's only device program; inputs given by value are part of it."""
    constants = engine.graph.constants
    for name in parameters:
        if name not in constants:
            raise _unknown(name, constants)
    types = {n: type_of(v) for n, v in samples.items()} | {n: type_of(constants[n]) for n in parameters}
    recorder = Recorder({Ask(n, True): v for n, v in numbers.items()})
    values = {n: recorder.given(n, t) for n, t in types.items()}
    walk = Walk(engine, recorder)
    try:
        made = walk.run(engine.graph, dict(values), "")
    except Suspended as ending:
        raise _not_one(sorted({a.name for a in ending.asks})) from None
    if walk.problems:
        raise support.unsupported(walk.problems) from walk.cause
    outputs = dict(zip(engine.graph.outputs, made, strict=True))
    wrong = [n for n, v in outputs.items() if not isinstance(v, Symbol)]
    if wrong:
        raise _error(f"output {wrong[0]!r} is no tensor that a program computes", "its value is known from the shapes")
    return Composition([v for v in values.values() if isinstance(v, Symbol)], outputs, ())


def _unknown(name: str, constants: Mapping[str, Any]) -> TileTypeError:
    plain = {n.lower(): n for n in constants}
    close = [plain[n] for n in get_close_matches(name.lower(), plain, n=3)]
    hint = f"did you mean {', '.join(map(repr, close))}?" if close else "model.graph.constants has their names"
    return _error(f"the model has no initializer {name!r}", hint)


def _not_one(names: Sequence[str]) -> TileTypeError:
    hint = "give inputs by value where shapes depend on them, as in shapes={'sr': 16000}"
    return _error(f"the model is more than one program: it needs the numbers of {', '.join(names)} meanwhile", hint)


def _error(message: str, hint: str) -> TileTypeError:
    return TileTypeError(Diagnostic("TILE-E905", message, hint=hint))
