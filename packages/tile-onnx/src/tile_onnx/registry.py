"""The table of operators: which function makes Tile of a node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from tile_ir.frozen import frozen

if TYPE_CHECKING:
    from tile_onnx.node import Node
    from tile_onnx.values import Array, Value

Converter = Callable[["Node"], "Value"]
HostFunction = Callable[..., "Array | tuple[Array | None, ...]"]
AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])


@frozen
class Entry:
    """An operator from opset `since` on: a converter, or a function of arrays that runs on the host."""

    since: int
    function: Callable[..., Any]
    on_host: bool


_table: dict[tuple[str, str], list[Entry]] = {}


def operator(*names: str, since: int = 1, domain: str = "") -> Callable[[AnyFunction], AnyFunction]:
    """Registers a converter: called with a Node, it gives one value or a tuple of them.

    It holds from opset `since` until another entry of the operator begins.
    """
    return _registering(names, since, domain, on_host=False)


def host_operator(*names: str, since: int = 1, domain: str = "") -> Callable[[AnyFunction], AnyFunction]:
    """Registers a function of (Node, *arrays) that gives arrays: what a graph of fixed shapes cannot express.

    Where an input is on the device, the device program ends there, and another one follows. The Node is for
    attributes (`node.attribute`, `node.wants`); its values are the arrays.
    """
    return _registering(names, since, domain, on_host=True)


def _registering(
    names: tuple[str, ...], since: int, domain: str, on_host: bool
) -> Callable[[AnyFunction], AnyFunction]:
    def register(function: AnyFunction) -> AnyFunction:
        for name in names:
            entries = _table.setdefault((domain, name), [])
            if any(e.since == since for e in entries):
                raise ValueError(f"operator {name!r} of domain {domain!r} has two entries since {since}")
            entries.append(Entry(since, function, on_host))
            entries.sort(key=lambda e: e.since)
        return function

    return register


def find(domain: str, name: str, opset: int) -> Entry | None:
    """The newest entry that an opset has; None where the operator is unknown or newer."""
    _load()
    entries = [e for e in _table.get((domain, name), ()) if e.since <= opset]
    return entries[-1] if entries else None


def entries() -> Iterator[tuple[str, str, Entry]]:
    """Every entry as (domain, operator, entry)."""
    _load()
    for (domain, name), found in sorted(_table.items()):
        for entry in found:
            yield domain, name, entry


@cache
def _load() -> None:
    import_module("tile_onnx.ops")
