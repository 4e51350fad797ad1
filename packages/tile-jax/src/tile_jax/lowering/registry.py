"""The table of operations: which function makes Tile of which operation of StableHLO, CHLO and the dialects around."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from tile_jax.lowering.op import Op

Converter = Callable[["Op"], Any]
_Function = TypeVar("_Function", bound=Converter)


@dataclass(frozen=True, slots=True)
class Entry:
    """How an operation is converted: its function gives one value, or a tuple of them."""

    convert: Converter
    elementwise: bool
    """Whether it may stand in the region of a reduction, sort or scatter, computed for whole tensors at once."""


_table: dict[str, Entry] = {}


def operation(*names: str, elementwise: bool = False) -> Callable[[_Function], _Function]:
    """Registers a converter of operations, named as in the text form: ``stablehlo.add``."""

    def register(function: _Function) -> _Function:
        for name in names:
            if name in _table:
                raise ValueError(f"operation {name!r} has two converters")
            _table[name] = Entry(function, elementwise)
        return function

    return register


def find(name: str) -> Entry | None:
    """The entry of an operation; None where there is none."""
    _load()
    return _table.get(name)


def converted() -> Iterator[str]:
    """Names of all operations that have a converter."""
    _load()
    yield from sorted(_table)


@cache
def _load() -> None:
    package = import_module("tile_jax.lowering.ops")
    for module in iter_modules(package.__path__):
        import_module(f"{package.__name__}.{module.name}")
