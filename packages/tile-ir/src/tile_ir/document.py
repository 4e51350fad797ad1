"""Frozen dataclasses from JSON documents, with every wrong field named at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass, replace
from difflib import get_close_matches
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from tile_ir.diagnostics import Diagnostic, TileDeviceError

T = TypeVar("T")

MOST = 2**63 - 1
"""Whole numbers beyond count nothing that a machine has."""
_SCALARS: Mapping[type, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    str: ((str,), "a text"),
}


def from_document(base: T, document: Any, where: str) -> T:
    """`base` with the fields that the JSON table `document` states, tables within it likewise; lists replace lists.

    TileDeviceError TILE-E414 lists every unknown field, wrong type and negative number, named from `where` down.
    """
    problems: list[Diagnostic] = []
    made = _updated(base, document, where, problems)
    if problems:
        raise TileDeviceError(problems)
    return made


def to_document(value: Any) -> dict[str, Any]:
    """The dataclass `value` as a JSON table; `from_document` reads it back."""
    return asdict(value)


def _updated(base: Any, document: Any, where: str, problems: list[Diagnostic]) -> Any:
    if not isinstance(document, Mapping):
        problems.append(_bad(f"{where} is {document!r}, not a table of fields"))
        return base
    table, types = cast("Mapping[str, Any]", document), _types(cast("Any", type)(base))
    problems += [_unknown(where, key, types) for key in table if key not in types]
    found = {
        key: _value(types[key], value, f"{where}.{key}", getattr(base, key), problems)
        for key, value in table.items()
        if key in types
    }
    problems += _too_small(type(base), found, where)
    return replace(base, **found)


def _too_small(kind: Any, found: Mapping[str, Any], where: str) -> list[Diagnostic]:
    """What is said of fields, and items of lists, below the numbers that the class states as `LEAST`; others are named by now."""
    least: Mapping[str, float] = getattr(kind, "LEAST", {})
    return [
        _bad(f"{where}.{name} is {value:g}; it must be at least {least[name]:g}")
        for name in found.keys() & least.keys()
        for value in (found[name] if isinstance(found[name], tuple) else (found[name],))
        if isinstance(value, (int, float)) and value < least[name]
    ]


def _value(kind: Any, value: Any, where: str, base: Any, problems: list[Diagnostic]) -> Any:
    if isinstance(kind, UnionType):
        kind, *rest = (k for k in get_args(kind) if k is not NoneType)
        if value is None or rest:
            return value
    if is_dataclass(kind):
        start = base if isinstance(base, cast("type", kind)) else _blank(cast("type", kind), value, where, problems)
        return base if start is None else _updated(start, value, where, problems)
    if get_origin(kind) is tuple:
        return _list(get_args(kind), value, where, problems)
    return _scalar(kind, value, where, base, problems)


def _blank(kind: type, value: Any, where: str, problems: list[Diagnostic]) -> Any:
    """An object of `kind` whose required fields are those of `value`; None where one is missing."""
    needed = [f.name for f in fields(kind) if f.default is f.default_factory]
    table = cast("Mapping[str, Any]", value if isinstance(value, Mapping) else {})
    missing = [name for name in needed if name not in table]
    if missing:
        problems.append(_bad(f"{where} needs {', '.join(missing)}"))
        return None
    return kind(**{name: table[name] for name in needed})


def _list(kinds: tuple[Any, ...], value: Any, where: str, problems: list[Diagnostic]) -> Any:
    many = kinds[-1] is Ellipsis
    if not isinstance(value, (list, tuple)):
        problems.append(_bad(f"{where} is {value!r}, not a list"))
        return ()
    items = cast("Sequence[Any]", value)
    if not many and len(items) != len(kinds):
        problems.append(_bad(f"{where} has {len(items)} values, not {len(kinds)}"))
        return ()
    each = [kinds[0]] * len(items) if many else kinds
    pairs = enumerate(zip(each, items, strict=True))
    return tuple(_value(kind, item, f"{where}[{n}]", None, problems) for n, (kind, item) in pairs)


def _scalar(kind: type, value: Any, where: str, base: Any, problems: list[Diagnostic]) -> Any:
    allowed, words = _SCALARS[kind]
    if not isinstance(value, allowed) or (isinstance(value, bool) and kind is not bool):
        problems.append(_bad(f"{where} is {value!r}, not {words}"))
        return base
    if kind in (int, float) and not 0 <= value < float("inf"):
        problems.append(_bad(f"{where} is {value}; it must be finite and at least 0"))
        return base
    if kind is int and value > MOST:
        problems.append(_bad(f"{where} is {value}; it must be at most {MOST}"))
        return base
    return value


@cache
def _types(kind: type) -> Mapping[str, Any]:
    hints = get_type_hints(kind)
    return {f.name: hints[f.name] for f in fields(kind)}


def _unknown(where: str, key: str, known: Mapping[str, Any]) -> Diagnostic:
    close = get_close_matches(key, known, n=1)
    return _bad(
        f"{where} has no field {key!r}", f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
    )


def _bad(message: str, hint: str | None = None) -> Diagnostic:
    return Diagnostic("TILE-E414", message, hint=hint)
