"""Kernel lists, and what else both sides know, as plain data, and back.

A document is a list of nodes, each of which names earlier ones by number: what is shared stays shared, and however deep
an expression is, its document is flat. Only the classes of the compiler's own data model are made from one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from importlib import import_module
from typing import Any, TypeVar, cast

from tile_ir.contents import Contents
from tile_ir.diagnostics import Span, TileError
from tile_ir.target import Target

T = TypeVar("T")

Nodes = list[list[Any]]

_MODULES = {
    "kernels": "tile_ir.kernels",
    "semtree": "tile_ir.semtree.nodes",
    "expressions": "tile_ir.semtree.expressions",
    "stripe": "tile_ir.stripe.nodes",
    "affine": "tile_ir.stripe.affine",
    "dtype": "tile_ir.dtype",
    "ops": "tile_ir.ops",
    "target": "tile_ir.target",
}
"""Where the classes are that a kernel list is made of, and how a node calls these places."""
_TUPLE, _SET, _TABLE, _BYTES, _TARGET = "tuple", "set", "table", "bytes", "target"
_PLAIN = (bool, int, float, str, type(None))


def to_document(value: object) -> tuple[Nodes, list[bytes]]:
    """The nodes of a value, the last one its own, and the byte strings that they number. Origins are left out."""
    writer = _Writer()
    writer.write(value)
    return writer.nodes, writer.blobs


def from_document(kind: type[T], nodes: Sequence[Sequence[Any]], blobs: Sequence[bytes] = ()) -> T:
    """The value of type `kind` that `to_document` wrote; ValueError for anything else."""
    made: list[object] = []
    try:
        for name, *parts in nodes:
            inner = [made[cast("list[int]", p)[0]] if isinstance(p, list) else p for p in parts]
            made.append(_made(name, inner, blobs))
    except (TypeError, LookupError, AttributeError, TileError) as problem:
        raise ValueError(f"this is no document of a {kind.__name__}: {problem}") from problem
    last = made[-1] if made else None
    if not isinstance(last, kind):
        raise ValueError(f"this is no document of a {kind.__name__}")
    return last


def _made(kind: str, parts: list[Any], blobs: Sequence[bytes]) -> object:
    match kind:
        case "tuple":
            return tuple(parts)
        case "set":
            return frozenset(parts)
        case "table":
            return dict(zip(parts[::2], parts[1::2], strict=True))
        case "bytes":
            return Contents(blobs[int(parts[0])])
        case "target":
            return Target.from_json(parts[0])
        case _:
            return cast("Callable[..., object]", _classes()[kind])(*parts)


@cache
def _classes() -> Mapping[str, type]:
    """The classes by what nodes call them."""
    return {
        f"{place}.{name}": kind
        for place, module in _MODULES.items()
        for name, kind in vars(import_module(module)).items()
        if isinstance(kind, type) and kind.__module__ == module and (is_dataclass(kind) or issubclass(kind, Enum))
    }


@cache
def _names() -> Mapping[type, str]:
    return {kind: name for name, kind in _classes().items()}


@cache
def _fields(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(cast("Any", kind)))


class _Writer:
    """Writes every value once, after those that it is made of; without recursion."""

    def __init__(self) -> None:
        self.nodes: Nodes = []
        self.blobs: list[bytes] = []
        self._numbers: dict[int, int] = {}
        """Of the nodes, by the identity of what they stand for."""

    def write(self, root: object) -> None:
        waiting: list[tuple[Any, str, Sequence[Any]]] = [(root, *self._parts(root))]
        while waiting:
            value, kind, parts = waiting[-1]
            missing = [p for p in parts if not isinstance(p, _PLAIN) and id(p) not in self._numbers]
            if missing:
                waiting += [(p, *self._parts(p)) for p in missing]
                continue
            waiting.pop()
            if id(value) not in self._numbers:
                self._numbers[id(value)] = len(self.nodes)
                self.nodes.append([kind, *(p if isinstance(p, _PLAIN) else [self._numbers[id(p)]] for p in parts)])

    def _parts(self, value: Any) -> tuple[str, Sequence[Any]]:
        """What kind of node a value is, and its parts."""
        if isinstance(value, tuple):
            return _TUPLE, tuple(None if isinstance(v, Span) else v for v in cast("tuple[Any, ...]", value))
        if isinstance(value, frozenset):
            return _SET, tuple(cast("frozenset[Any]", value))
        if isinstance(value, Mapping):
            pairs = cast("Mapping[object, object]", value).items()
            return _TABLE, [part for pair in pairs for part in pair]
        if isinstance(value, Contents):
            self.blobs.append(bytes(value.view))
            return _BYTES, (len(self.blobs) - 1,)
        if isinstance(value, Target):
            return _TARGET, (value.to_json(),)
        made: type = cast(object, value).__class__
        name = _names().get(made)
        if name is None:
            raise TypeError(f"a document cannot hold {value!r:.60}")
        if isinstance(value, Enum):
            return name, (value.value,)
        parts = [getattr(value, field) for field in _fields(made)]
        return name, [None if isinstance(p, Span) else p for p in parts]
