"""Trees of tensors in safetensors files, which other tools read and which run no code."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import tile_runtime as tile
from tile_ir.dtype import DType
from tile_runtime.trees import flatten, paths, unflatten

from tile_nn.errors import shown, wrong_file

_DTYPES = {
    "BOOL": DType.BOOL, "I8": DType.INT8, "I16": DType.INT16, "I32": DType.INT32, "I64": DType.INT64,
    "U8": DType.UINT8, "U16": DType.UINT16, "U32": DType.UINT32, "U64": DType.UINT64,
    "F16": DType.FLOAT16, "BF16": DType.BFLOAT16, "F32": DType.FLOAT32, "F64": DType.FLOAT64,
}  # fmt: skip
"""By what safetensors calls them."""


def save(path: str | os.PathLike[str], tree: Any, metadata: Mapping[str, str] | None = None) -> None:
    """Write a tree of tensors, called by their places in it (``layers.0.weights``), and texts beside them.

    The file is whole or not there: it is written beside its place, and moved. OSError where that cannot be.
    """
    from safetensors.numpy import save as serialized

    for name, text in (metadata or {}).items():
        if not (isinstance(name, str) and isinstance(text, str)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise wrong_file(
                f"metadata {name!r} is {type(text).__name__}", "names and values are texts: json.dumps makes one"
            )
    leaves, structure = flatten(tree)
    names = _names(paths(structure, ""))
    arrays = (np.require(np.asarray(leaf), requirements="C") for leaf in leaves)
    data = serialized(dict(zip(names, arrays, strict=True)), dict(metadata or {}))
    place = Path(path)
    handle, temporary = tempfile.mkstemp(dir=place.parent, prefix=place.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, place)
    except BaseException:
        os.unlink(temporary)
        raise


def _names(places: list[str]) -> list[str]:
    """``['layers'][0].bias`` as ``layers.0.bias``."""
    table = str.maketrans({"'": None, '"': None, "[": ".", "]": None})
    found = [place.translate(table).removeprefix(".") or "value" for place in places]
    double = next((n for n in found if found.count(n) > 1), None)
    if double is not None:
        raise wrong_file(f"two tensors of the tree are called {double!r}", "give the keys of a dict other names")
    return found


def load(path: str | os.PathLike[str], like: Any = None, *, device: Any = None) -> tuple[Any, dict[str, str]]:
    """The tree in a file as Tensors, and the texts beside it.

    With `like`, a tree of tensors, the file must have just its tensors, of its shapes and dtypes: it comes in that form.
    Without, names are taken apart at dots, into dicts. TileTypeError (TILE-E983) says what a file lacks; OSError where
    there is none.
    """
    tensors, metadata = _read(Path(path))
    if like is None:
        return _nested({n: tile.asarray(a, device) for n, a in tensors.items()}), metadata
    leaves, structure = flatten(like)
    names = _names(paths(structure, ""))
    _check_names(Path(path), set(tensors), set(names))
    for name, leaf in zip(names, leaves, strict=True):
        if shown(leaf) != shown(tensors[name]):
            raise wrong_file(f"{path} has {name} as {shown(tensors[name])}, it is {shown(leaf)} here")
    return unflatten(structure, [tile.asarray(tensors[n], device) for n in names]), metadata


def _check_names(path: Path, found: set[str], wanted: set[str]) -> None:
    for kind, names in (("lacks", wanted - found), ("has, and this network does not,", found - wanted)):
        if names:
            few = ", ".join(sorted(names)[:5]) + (", …" if len(names) > 5 else "")
            raise wrong_file(f"{path} {kind} {len(names)} of the tensors: {few}")


def _read(path: Path) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, str]]:
    import json

    import safetensors

    data = path.read_bytes()
    try:
        entries = cast("list[tuple[str, dict[str, Any]]]", cast(Any, safetensors).deserialize(data))
    except safetensors.SafetensorError as problem:
        hint = "tile_nn.save writes such files"
        raise wrong_file(f"{path} is no whole safetensors file: {problem}", hint) from None
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return {name: _array(path, name, entry) for name, entry in entries}, dict(header.get("__metadata__", {}))


def _array(path: Path, name: str, entry: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    dtype = _DTYPES.get(str(entry["dtype"]))
    if dtype is None:
        raise wrong_file(
            f"{path} has {name} as {entry['dtype']}, which Tile has not", f"there are {', '.join(_DTYPES)}"
        )
    return np.frombuffer(entry["data"], dtype.numpy).reshape(entry["shape"])


def _nested(tensors: Mapping[str, Any]) -> Any:
    tree: dict[str, Any] = {}
    for name, tensor in tensors.items():
        *folders, last = name.split(".")
        place = tree
        for folder in folders:
            place = cast("dict[str, Any]", place.setdefault(folder, {}))
            if type(place) is not dict:
                raise wrong_file(
                    f"the file has tensors called {name!r} and {folder!r}", "pass like=, a tree of its form"
                )
        place[last] = tensor
    return tree["value"] if list(tree) == ["value"] and not isinstance(tree["value"], dict) else tree
