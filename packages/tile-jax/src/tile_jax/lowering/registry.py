"""Which converter makes what of which operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import numpy as np
from tile_ir.program.nodes import TensorType
from tile_runtime.symbols import Symbol

Value = Symbol | np.ndarray[Any, Any]
"""What an operation works on: a symbol, or an array where the numbers are known by now."""


@dataclass(frozen=True, slots=True)
class Op:
    """An operation as a converter sees it."""

    name: str
    operands: tuple[Value, ...]
    types: tuple[TensorType, ...]
    """Of its results."""
    attributes: Callable[[str], Any]
    """An attribute's value in Python, by name; None where the operation has none of the name."""
    regions: tuple[Callable[[Sequence[Value]], list[Value]], ...] = ()

    @property
    def type(self) -> TensorType:
        """The type of its one result."""
        (found,) = self.types
        return found


Converter = Callable[[Op], Any]
_converters: dict[str, Converter] = {}


def operation(*names: str) -> Callable[[Converter], Converter]:
    """Registers a converter for these operations. It gives one value, or a tuple of as many as there are results."""

    def register(converter: Converter) -> Converter:
        _converters.update(dict.fromkeys(names, converter))
        return converter

    return register


@cache
def converters() -> dict[str, Converter]:
    """Every converter, by the operation's name."""
    from tile_jax.lowering import ops

    for module in iter_modules(ops.__path__):
        import_module(f"{ops.__name__}.{module.name}")
    return _converters
