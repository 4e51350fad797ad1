"""Reading models: whatever is in a file, what comes out is checked, or an error of ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import cast

from onnx import FunctionProto, ModelProto
from tile_ir.diagnostics import Diagnostic, TileError, TileTypeError

from tile_onnx.checking import check, check_texts
from tile_onnx.feeds import Argument, argument
from tile_onnx.graph import Graph, of_graph
from tile_onnx.tensors import Malformed, malformed
from tile_onnx.weights import Mapped, lifted

_NOTHING: Mapping[int, memoryview] = MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False)
class Imported:
    """A model that was read: its graph, operator sets, functions, and what it takes and gives."""

    graph: Graph
    opsets: Mapping[str, int]
    functions: Mapping[tuple[str, str], FunctionProto]
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    defaults: tuple[str, ...]
    """Inputs that have a value of their own."""
    metadata: Mapping[str, str]
    file: Mapped | None = None
    """The file that weights are views of."""


def read(model: object) -> Imported:
    """The model of a file, of a file's bytes, or of a message.

    Malformed for what is no model; TileTypeError for what is none of the three; OSError for files that cannot be read.
    """
    if isinstance(model, ModelProto):
        return imported(model)
    if isinstance(model, (bytes, bytearray, memoryview)):
        content = memoryview(bytes(cast(bytes, model)))  # a copy of what may be written to
        return _taken(content, f"{len(content)} bytes")
    if isinstance(model, (str, Path)):
        path = Path(model)
        file = _mapped(path)
        found = _taken(file.view if file is not None else memoryview(b""), str(path), path.parent)
        return replace(found, file=file)
    hint = "give the path of a file, the bytes of one, or an onnx.ModelProto"
    raise TileTypeError(Diagnostic("TILE-E900", f"a model is wanted, not {type(model).__name__}", hint=hint))


def _mapped(path: Path) -> Mapped | None:
    """The file's bytes; None of an empty one."""
    if path.is_dir():
        raise Malformed(Diagnostic("TILE-E900", f"{path} is a folder", hint="give the path of the .onnx file in it"))
    try:
        return Mapped(path) if path.stat().st_size else None
    except ValueError as problem:  # a zero byte in the path
        raise Malformed(Diagnostic("TILE-E900", f"{str(path)!r}: {problem}")) from None


def _taken(content: memoryview, where: str, folder: Path | None = None) -> Imported:
    """What serialised bytes hold; large weights are views of them."""
    parts = lifted(content)
    return imported(_parsed(parts.message, where), folder, parts.data)


def _parsed(content: bytes, where: str) -> ModelProto:
    """The message; Malformed for what is none, with a word on what it looks like."""
    looks = next((what for start, what in _LOOKS.items() if content.lstrip()[: len(start)] == start), None)
    hint = looks or "a model is a file that onnx.save writes, or an exporter such as torch.onnx.export"
    try:
        proto = ModelProto.FromString(content)
    except Exception as problem:  # protobuf's own, which onnx does not export
        raise Malformed(Diagnostic("TILE-E900", f"{where}: this is no ONNX model: {problem}", hint=hint)) from None
    if not proto.HasField("graph"):
        raise Malformed(Diagnostic("TILE-E900", f"{where}: this is no ONNX model: it has no graph", hint=hint))
    return proto


_LOOKS = {
    b"version https://git-lfs": "it is a pointer of Git LFS: fetch the file itself, as with git lfs pull",
    b"PK\x03\x04": "it is a ZIP archive, as torch.save writes; torch.onnx.export makes a model of it, or unpack it",
    b"<": "it is a page of the web, perhaps an error of a download",
    b"{": "it is JSON; onnx.load(file, format='json') reads models written so",
    b"\x1c\x00\x00\x00TFL3": "it is a model of TensorFlow Lite; tf2onnx converts it",
    b"\x1f\x8b": "it is compressed with gzip",
    b"ORTM": "it is in ONNX Runtime's own format; load the .onnx file it was made from",
    b"ir_version": "it is a model in text; onnx.load(file, format='textproto') reads it",
}
"""What files that are no models begin with."""


def imported(proto: ModelProto, folder: Path | None = None, data: Mapping[int, memoryview] = _NOTHING) -> Imported:
    """What a message holds, with `data` of its initializers; Malformed with everything that is wrong with it."""
    try:
        check_texts(proto)
        return _imported(proto, folder, data)
    except TileError:
        raise
    except RecursionError:
        raise malformed("graphs are nested too deeply in this model") from None
    except Exception as problem:  # what onnx and protobuf raise for contents that nobody foresaw
        raise malformed(f"this is no valid model: {type(problem).__name__}: {problem}") from problem


def _imported(proto: ModelProto, folder: Path | None, data: Mapping[int, memoryview]) -> Imported:
    opsets = {_domain(i.domain): i.version for i in proto.opset_import}
    functions = {(_domain(f.domain), f.name): f for f in proto.functions}
    graph = of_graph(proto.graph, folder, data)
    found = check(proto, opsets, functions)
    if found:
        raise Malformed(found)
    inputs = tuple(argument(i) for i in proto.graph.input)
    defaults = tuple(a.name for a in inputs if a.name in graph.constants)
    ordered = tuple(sorted(inputs, key=lambda a: a.name in defaults))
    outputs = tuple(argument(o) for o in proto.graph.output)
    metadata = {p.key: p.value for p in proto.metadata_props}
    return Imported(graph, opsets, functions, ordered, outputs, defaults, metadata)


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name
