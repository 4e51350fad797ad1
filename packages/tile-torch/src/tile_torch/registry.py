"""The table of operators: which function makes Tile of a node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from operator import attrgetter
from pkgutil import iter_modules
from typing import Any, TypeVar

import torch
from torch._ops import OpOverload

Converter = Callable[..., Any]
AnyConverter = TypeVar("AnyConverter", bound=Converter)
Overload = OpOverload[..., Any]

_table: dict[Overload, Converter] = {}
_named: dict[str, Converter] = {}


def operator(*targets: Overload) -> Callable[[AnyConverter], AnyConverter]:
    """Registers a converter of operators: called with a Call and what the node hands to its operator.

    Arguments come as in the operator's schema, nodes replaced by values (Symbols, or arrays, whose numbers are known),
    sizes by integers. It gives one value, or a tuple where the operator has several results; None for one that nobody uses.
    """

    def register(converter: AnyConverter) -> AnyConverter:
        for target in targets:
            if target in _table:
                raise ValueError(f"operator {target} has two converters")
            _table[target] = converter
        return converter

    return register


def present(name: str) -> list[Overload]:
    """The operator ``"aten.name.overload"``; none where this release of PyTorch does not have it yet, or any more."""
    try:
        return [attrgetter(name)(torch.ops)]
    except AttributeError:
        return []


def named(name: str) -> Callable[[AnyConverter], AnyConverter]:
    """Registers the converter of an operator of another library, ``library::operator``, which need not be there."""

    def register(converter: AnyConverter) -> AnyConverter:
        _named[name] = converter
        return converter

    return register


def find(target: object) -> Converter | None:
    """The converter of an operator; None where there is none."""
    found = converters().get(target)  # pyright: ignore[reportArgumentType, reportCallIssue]
    return found or (_named.get(target.name()) if isinstance(target, OpOverload) else None)


@cache
def converters() -> Mapping[Overload, Converter]:
    """Every converter by its operator."""
    folder = import_module("tile_torch.ops")
    for module in iter_modules(folder.__path__):
        import_module(f"tile_torch.ops.{module.name}")
    return _table
