"""What a model takes and gives, and checking what a call passes against it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from typing import Any, cast

import numpy as np
from onnx import TypeProto, ValueInfoProto
from tile_ir.diagnostics import Diagnostic, TileTypeError
from tile_ir.frozen import frozen
from tile_runtime.tensor import Tensor

from tile_onnx.dtypes import dtype_name

Dimension = int | str | None
"""A size, the name of a size, or nothing that is known."""


@frozen
class Argument:
    """An input or output: its name, element type (`float32`), kind (`tensor`, `sequence`, `optional` …) and shape."""

    name: str
    dtype: str
    shape: tuple[Dimension, ...] | None
    kind: str = "tensor"

    @property
    def example(self) -> str:
        """Sizes that its shape might have, for hints."""
        sizes = self.shape or (None,) * 4
        usual = 224 if len(sizes) == 4 else 128
        return ", ".join(str(d if isinstance(d, int) else usual if k else 1) for k, d in enumerate(sizes))

    def __str__(self) -> str:
        dims = "[…]" if self.shape is None else f"[{', '.join('?' if d is None else str(d) for d in self.shape)}]"
        wrapped = "" if self.kind == "tensor" else f"{self.kind} of "
        return f"{wrapped}{self.dtype}{dims}"


def argument(info: ValueInfoProto) -> Argument:
    """The argument that a graph states."""
    kind, type = _unwrapped(info.type)
    tensor = type.sparse_tensor_type if type.HasField("sparse_tensor_type") else type.tensor_type
    shape = tuple(_dimension(d) for d in tensor.shape.dim) if tensor.HasField("shape") else None
    return Argument(info.name, dtype_name(tensor.elem_type), shape, kind)


def _unwrapped(type: TypeProto) -> tuple[str, TypeProto]:
    kinds: list[str] = []
    while not (type.HasField("tensor_type") or type.HasField("sparse_tensor_type")):
        which = type.WhichOneof("value")
        if which == "sequence_type":
            kinds.append("sequence")
            type = type.sequence_type.elem_type
        elif which == "optional_type":
            kinds.append("optional")
            type = type.optional_type.elem_type
        else:
            return which.removesuffix("_type") if which else "untyped", type
    return " of ".join(kinds) or "tensor", type


def _dimension(dim: Any) -> Dimension:
    if dim.HasField("dim_value"):
        return int(dim.dim_value) if dim.dim_value >= 0 else None  # -1 is how some exporters write any size
    return str(dim.dim_param) or None


def checked(arguments: Sequence[Argument], feeds: object, optional: Sequence[str] = ()) -> dict[str, Any]:
    """Feeds as arrays and Tensors, in the model's order; TileTypeError that names every input that is wrong.

    `optional` are inputs that have a value of their own.
    """
    if not isinstance(feeds, Mapping):
        hint = "such as model.run({'x': x}); model(x) takes inputs by position"
        raise TileTypeError(
            Diagnostic("TILE-E902", f"feeds are a mapping from input names, not {type(feeds).__name__}", hint=hint)
        )
    given = cast("Mapping[Any, Any]", feeds)
    known = {a.name: a for a in arguments}
    problems = [unknown(name, known) for name in given if name not in known]
    problems += [_missing(a) for a in arguments if a.name not in given and not _may_miss(a, optional)]
    found: dict[str, Any] = {}
    for name, wanted in known.items():
        if name in given:
            value = found[name] = _value(wanted, given[name])
            if isinstance(value, Diagnostic):
                problems.append(value)
        elif name not in optional:
            found[name] = None
    if problems:
        raise TileTypeError(problems)
    return found


def _may_miss(wanted: Argument, optional: Sequence[str]) -> bool:
    return wanted.name in optional or wanted.kind.startswith("optional")


def unknown(name: object, known: Mapping[str, Argument]) -> Diagnostic:
    """The finding that a model has no input of this name."""
    plain = {n.lower(): n for n in known}
    close = [plain[n] for n in get_close_matches(str(name).lower(), plain, n=1)]
    names = f"its inputs are {', '.join(map(repr, known))}" if known else "it has no inputs"
    hint = f"did you mean {close[0]!r}? {names}" if close else names
    return Diagnostic("TILE-E902", f"the model has no input {str(name)!r}", hint=hint)


def _missing(wanted: Argument) -> Diagnostic:
    return Diagnostic("TILE-E902", f"input {wanted.name!r}, {wanted}, is missing")


def _value(wanted: Argument, value: Any) -> Any:
    """The value as the model takes it, or what is wrong with it."""
    if wanted.kind.startswith("optional") and value is None:
        return None
    if "sequence" in wanted.kind:
        return _sequence(wanted, value)
    return _tensor(wanted, value)


def _sequence(wanted: Argument, value: Any) -> Any:
    if not isinstance(value, (list, tuple)):
        return _wrong(wanted, f"{type(value).__name__} was given", "a sequence is a list of arrays")
    items = [_tensor(wanted, v) for v in cast("Sequence[Any]", value)]
    return next((i for i in items if isinstance(i, Diagnostic)), items)


def _tensor(wanted: Argument, value: Any) -> Any:
    if isinstance(value, Tensor):
        dtype, shape = value.dtype.numpy, value.shape
    else:
        value = _array(wanted, value)
        if isinstance(value, Diagnostic):
            return value
        dtype, shape = value.dtype, value.shape
    if _spelled(dtype) != wanted.dtype and wanted.dtype != "undefined":
        return _wrong(wanted, f"{_described(dtype, shape)} was given", _dtype_hint(wanted, dtype))
    if wanted.shape is not None and not _fits(wanted.shape, shape):
        return _wrong(wanted, f"{_described(dtype, shape)} was given", _shape_hint(wanted.shape, shape))
    return value


def _dtype_hint(wanted: Argument, dtype: np.dtype[Any]) -> str:
    if dtype.kind not in "biufcV" or dtype.names:
        return _ARRAY
    return f"no input is converted by itself; array.astype({wanted.dtype!r}) does it"


_ARRAY = "give an array, a Tensor or numbers"


@cache
def _spelled(dtype: np.dtype[Any]) -> str:
    return str(dtype)


def _array(wanted: Argument, value: Any) -> Any:
    """Arrays as they are; numbers and lists take the model's dtype."""
    try:
        if isinstance(value, (int, float, list, tuple)):
            return np.asarray(cast(Any, value), wanted.dtype)
        array: np.ndarray[Any, Any] = np.asarray(value)
    except Exception as problem:  # other libraries' arrays refuse in their own ways
        return _wrong(wanted, f"{type(cast(object, value)).__name__} was given: {problem}", _ARRAY)
    if array.dtype == object:
        given = "an array of objects" if isinstance(value, np.ndarray) else type(value).__name__
        return _wrong(wanted, f"{given} was given", _ARRAY)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _fits(wanted: Sequence[Dimension], shape: Sequence[int]) -> bool:
    return len(wanted) == len(shape) and all(not _apart(w, s) for w, s in zip(wanted, shape, strict=True))


def _shape_hint(wanted: Sequence[Dimension], shape: Sequence[int]) -> str | None:
    if len(wanted) != len(shape):
        return f"it has {len(wanted)} dimensions, {len(shape)} were given"
    wrong = [
        f"dimension {k} is {w}, not {s}" for k, (w, s) in enumerate(zip(wanted, shape, strict=True)) if _apart(w, s)
    ]
    free = "; those with a name or '?' may have any size" if any(not isinstance(w, int) for w in wanted) else ""
    return ", ".join(wrong) + free


def _apart(wanted: Dimension, size: int) -> bool:
    return isinstance(wanted, int) and wanted != size


def _described(dtype: np.dtype[Any], shape: Sequence[int]) -> str:
    return f"{dtype}[{', '.join(map(str, shape))}]"


def _wrong(wanted: Argument, given: str, hint: str | None) -> Diagnostic:
    return Diagnostic("TILE-E903", f"input {wanted.name!r} is {wanted}, {given}", hint=hint)


def checked_outputs(names: Sequence[str], wanted: object) -> tuple[str, ...]:
    """Names of outputs that a call asks for; None is all of them."""
    if wanted is None:
        return tuple(names)
    if not isinstance(wanted, (str, Iterable)):
        message = f"outputs are a name or a list of names, not {type(wanted).__name__}"
        raise TileTypeError(Diagnostic("TILE-E902", message, hint=f"its outputs are {', '.join(map(repr, names))}"))
    several = (wanted,) if isinstance(wanted, str) else tuple(cast("Iterable[str]", wanted))
    problems = [_no_output(name, names) for name in several if name not in names]
    if problems:
        raise TileTypeError(problems)
    return tuple(dict.fromkeys(several))


def _no_output(name: object, names: Sequence[str]) -> Diagnostic:
    hint = f"its outputs are {', '.join(map(repr, names))}"
    return Diagnostic("TILE-E902", f"the model has no output {str(name)!r}", hint=hint)


def refused(arguments: Sequence[Argument]) -> list[Diagnostic]:
    """Inputs of kinds that no Tile program has: strings, maps, sparse tensors."""
    return [
        Diagnostic(
            "TILE-E911", f"input {a.name!r} is {a}: {why}", hint="take what makes numbers of it out of the model"
        )
        for a in arguments
        if (why := _why_refused(a)) is not None
    ]


def _why_refused(wanted: Argument) -> str | None:
    if wanted.dtype == "string":
        return "Tile has no strings"
    if wanted.dtype == "undefined" and wanted.kind not in ("map", "opaque", "untyped"):
        return "it states no element type that ONNX defines"
    if wanted.kind in ("map", "opaque", "untyped"):
        return f"Tile has no values of kind {wanted.kind}"
    return None
