"""Values in tuples, lists and dicts: taken apart into leaves, and put together again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast


@dataclass(frozen=True, slots=True)
class Structure:
    """How leaves are put together; equal for values of the same form."""

    kind: type | None
    """tuple (or a named one), list, dict, NoneType; None for a leaf."""
    keys: tuple[Any, ...] = ()
    """Of a dict, in its order."""
    parts: tuple[Structure, ...] = ()

    def __str__(self) -> str:
        """``(*, {'h': *})``: an asterisk for each leaf."""
        inside = ", ".join(map(str, self.parts))
        if self.kind is None:
            return "*"
        if self.kind is type(None):
            return "None"
        if self.kind is dict:
            return "{" + ", ".join(f"{key!r}: {part}" for key, part in zip(self.keys, self.parts, strict=True)) + "}"
        return f"[{inside}]" if self.kind is list else f"({inside}{',' * (len(self.parts) == 1)})"


LEAF = Structure(None)


def flatten(value: Any) -> tuple[list[Any], Structure]:
    """The leaves of a value, in order, and how they were put together; None has no leaves."""
    leaves: list[Any] = []
    return leaves, _structure(value, leaves)


def _structure(value: Any, leaves: list[Any]) -> Structure:
    kind = cast("type[Any]", type(value))
    if value is None:
        return Structure(kind)
    if isinstance(value, dict):
        table = cast("dict[Any, Any]", value)
        return Structure(dict, tuple(table), tuple(_structure(v, leaves) for v in table.values()))
    if isinstance(value, (tuple, list)):
        return Structure(kind, (), tuple(_structure(v, leaves) for v in cast("Iterable[Any]", value)))
    leaves.append(value)
    return LEAF


def unflatten(structure: Structure, leaves: Iterable[Any]) -> Any:
    """The value whose leaves these are."""
    return _value(structure, iter(leaves))


def _value(structure: Structure, leaves: Iterator[Any]) -> Any:
    if structure.kind is None:
        return next(leaves)
    if structure.kind is type(None):
        return None
    parts = [_value(part, leaves) for part in structure.parts]
    if structure.kind is dict:
        return dict(zip(structure.keys, parts, strict=True))
    return structure.kind(*parts) if hasattr(structure.kind, "_fields") else structure.kind(parts)


def paths(structure: Structure, root: str) -> list[str]:
    """How each leaf of a value called `root` is written: ``init[0]['h']``."""
    if structure.kind is None:
        return [root]
    keys = structure.keys or range(len(structure.parts))
    return [path for key, part in zip(keys, structure.parts, strict=True) for path in paths(part, f"{root}[{key!r}]")]
