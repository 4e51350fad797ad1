"""Graphs' arguments and PyTorch's own dataclasses as JSON, and back. Nothing but what is listed here is ever made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from types import ModuleType
from typing import Any, cast

import torch
from torch._functorch._aot_autograd import descriptors, schemas
from torch._ops import OpOverload
from torch._subclasses.functional_tensor import FunctionalTensor

from tile_torch import plans, program, sources, walk
from tile_torch.dtypes import to_array

Json = Any
SMALL = 4096
"""Elements of a constant that is kept."""
NAMESPACES = ("aten", "prims")
"""Of operators whose meaning PyTorch's version decides."""
TYPES: Mapping[str, type] = {
    **{kind.__name__: kind for kind in (torch.Tensor, FunctionalTensor, int, float, bool)},
    "NoneType": type(None),
}
"""That PyTorch notes of outputs and tangents."""
NAMED = (torch.dtype, torch.layout, torch.memory_format)
"""Objects of PyTorch that are its attributes."""
HOMES: tuple[ModuleType, ...] = (schemas, descriptors, sources, plans, program, walk)
"""Modules of the dataclasses and enumerations in which AOTAutograd notes what it found, and of those of recipes."""


BROKEN = (ValueError, TypeError, LookupError, AttributeError, StopIteration, RecursionError)
"""What a text of another form ends in."""


class Unkept(Exception):
    """Something that has no form in JSON: its trace is not kept."""


def packed(value: Any, node: Callable[[Any], Json] | None = None) -> Json:
    """A value as JSON; nodes of a graph by what `node` gives. Unkept for what has no form."""
    match value:
        case None | bool() | str():
            return value
        case int() if type(value) is int:
            return value
        case float():
            return {"float": value.hex()}
        case list():
            return [packed(v, node) for v in cast("list[Any]", value)]
        case torch.device():
            return {"device": str(value)}
        case OpOverload() if value.namespace in NAMESPACES:
            return {"operator": str(cast(object, value))}
        case torch.fx.Node() if node is not None:
            return {"node": node(value)}
        case _ if isinstance(value, NAMED):
            return {"torch": str(value).removeprefix("torch.")}
        case _:
            return _collection(value, node)


def _collection(value: Any, node: Callable[[Any], Json] | None) -> Json:
    match value:
        case tuple():  # torch.Size among them
            return {"tuple": [packed(v, node) for v in cast("tuple[Any, ...]", value)]}
        case set():
            return {"set": sorted(cast("set[int]", value))}
        case dict():
            pairs = cast("dict[Any, Any]", value).items()
            return {"pairs": [[packed(k, node), packed(v, node)] for k, v in pairs]}
        case slice():
            ends = cast("slice[Any, Any, Any]", value)
            return {"slice": [packed(v, node) for v in (ends.start, ends.stop, ends.step)]}
        case _:
            return _noted(value)


def _noted(value: Any) -> Json:
    """What AOTAutograd notes, of a kind of its own."""
    kind = cast("type[Any]", type(value))
    if isinstance(value, type) and TYPES.get(value.__name__) is value:
        return {"type": value.__name__}
    if kind is torch.Tensor:
        return _content(cast(torch.Tensor, value))
    if any(getattr(home, kind.__name__, None) is kind for home in HOMES):
        if isinstance(value, Enum):
            return {"member": [kind.__name__, value.name]}
        if is_dataclass(value):
            return {"record": [kind.__name__, {k: packed(v) for k, v in _attributes(value)}]}
    raise Unkept(f"a {kind.__name__}")


def _attributes(record: Any) -> Iterable[tuple[str, Any]]:
    if hasattr(record, "__dict__"):
        return cast("dict[str, Any]", vars(record)).items()
    return ((f.name, getattr(record, f.name)) for f in fields(record))


def _content(tensor: torch.Tensor) -> Json:
    """A small constant, with its numbers."""
    if tensor.numel() > SMALL or tensor.layout is not torch.strided or tensor.device.type != "cpu":
        raise Unkept("a large constant")
    data = to_array(tensor.detach().contiguous().clone()).tobytes()
    return {"tensor": [data.hex(), packed(tensor.dtype), list(tensor.shape)]}


def unpacked(value: Json, nodes: Sequence[Any] = ()) -> Any:
    """The value that `packed` made JSON of; a ValueError, TypeError or LookupError for what it never makes."""
    if isinstance(value, list):
        return [unpacked(v, nodes) for v in cast("list[Json]", value)]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = cast("dict[str, Json]", value).items()
    if kind == "node":
        return nodes[content]
    return MAKERS[kind](content, nodes)


def _operator(name: str, nodes: Sequence[Any]) -> Any:
    namespace, packet, overload = name.split(".")
    if namespace not in NAMESPACES:
        raise ValueError(f"an operator of {namespace}")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload)


def _attribute(name: str, nodes: Sequence[Any]) -> Any:
    found = getattr(torch, name)
    if not isinstance(found, NAMED):
        raise ValueError(f"torch.{name}")
    return found


def _tensor(content: Sequence[Any], nodes: Sequence[Any]) -> torch.Tensor:
    data, dtype, shape = content
    flat = torch.frombuffer(bytearray.fromhex(data), dtype=unpacked(dtype)) if data else torch.empty(0)
    return flat.to(unpacked(dtype)).reshape(shape)


def _class(name: str) -> Any:
    return next(getattr(home, name) for home in HOMES if hasattr(home, name))


def _member(content: Sequence[str], nodes: Sequence[Any]) -> Any:
    name, member = content
    return _class(name)[member]


def _record(given: tuple[str, Mapping[str, Json]], nodes: Sequence[Any]) -> Any:
    """With the very attributes that it had: its constructor would work some of them out from what is gone."""
    name, attributes = given
    kind = _class(name)
    if not is_dataclass(kind):
        raise ValueError(f"{name} is no record")
    made = object.__new__(cast("type[Any]", kind))
    for attribute, content in attributes.items():
        object.__setattr__(made, attribute, unpacked(content))
    return made


def _items(content: Iterable[Json], nodes: Sequence[Any]) -> Iterable[Any]:
    return (unpacked(v, nodes) for v in content)


MAKERS: Mapping[str, Callable[[Any, Sequence[Any]], Any]] = {
    "float": lambda content, nodes: float.fromhex(content),
    "tuple": lambda content, nodes: tuple(_items(content, nodes)),
    "set": lambda content, nodes: set(_items(content, nodes)),
    "slice": lambda content, nodes: slice(*_items(content, nodes)),
    "pairs": lambda content, nodes: {unpacked(k, nodes): unpacked(v, nodes) for k, v in content},
    "device": lambda content, nodes: torch.device(content),
    "operator": _operator,
    "torch": _attribute,
    "type": lambda content, nodes: TYPES[content],
    "tensor": _tensor,
    "member": _member,
    "record": _record,
}
"""What makes a value of its form."""
