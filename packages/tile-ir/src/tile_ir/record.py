"""Frozen dataclasses of plain values as JSON lists, and back: for files that programs write and read again.

A dataclass is the list of its fields, an enumeration its value, a tuple a list. What is read is checked against the
annotations, so that a document made for other classes is refused instead of half understood.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")

_SCALARS = (bool, int, float, str)


def to_record(value: Any) -> Any:
    """`value` as JSON data; TypeError for what is neither a dataclass, a tuple, an enumeration nor a scalar."""
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, _SCALARS):
        return value
    if isinstance(value, tuple):
        return [to_record(item) for item in cast("tuple[Any, ...]", value)]
    if is_dataclass(value):
        return [to_record(getattr(value, field.name)) for field in fields(value)]
    raise TypeError(f"a record cannot hold {value!r:.60}")


def from_record(kind: type[T], record: Any) -> T:
    """The value of type `kind` that `to_record` gave as `record`; ValueError when it is no such record."""
    return _value(kind, record)


def _value(kind: Any, record: Any) -> Any:
    if kind in _SCALARS:
        if type(record) is kind:
            return record
    elif isinstance(kind, UnionType):
        return _optional(kind, record)
    elif get_origin(kind) is tuple:
        if isinstance(record, list):
            return _tuple(get_args(kind), cast("list[Any]", record))
    elif is_dataclass(kind):
        if isinstance(record, list):
            return cast("Any", kind)(*_tuple(_types(kind), cast("list[Any]", record)))
    elif isinstance(kind, type) and issubclass(kind, Enum):
        return kind(record)
    raise ValueError(f"{record!r:.60} is no record of {kind}")


def _optional(kind: UnionType, record: Any) -> Any:
    (inner,) = (k for k in get_args(kind) if k is not NoneType)
    return None if record is None else _value(inner, record)


def _tuple(kinds: tuple[Any, ...], records: list[Any]) -> tuple[Any, ...]:
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return tuple(_value(kinds[0], record) for record in records)
    if len(kinds) != len(records):
        raise ValueError(f"{len(records)} values are no record of {len(kinds)}")
    return tuple(map(_value, kinds, records))


@cache
def _types(kind: Any) -> tuple[Any, ...]:
    hints = get_type_hints(kind)
    return tuple(hints[field.name] for field in fields(kind))
