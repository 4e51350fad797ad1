"""What JAX says about a compilation: XLA's CompileOptionsProto, as far as it means anything here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

_BUILD, _OVERRIDES = 3, 7
"""Fields of CompileOptionsProto."""
_REPLICAS, _PARTITIONS, _ASSIGNMENT = 4, 5, 9
"""Fields of ExecutableBuildOptionsProto."""
_COMPUTATIONS, _IDS = 3, 1
"""Fields of DeviceAssignmentProto, and of a computation's devices in it."""


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """Where a program runs."""

    replicas: int = 1
    partitions: int = 1
    devices: tuple[int, ...] = ()
    """Numbers of devices, replica by replica; empty where JAX leaves it open."""
    overrides: dict[str, Any] = field(default_factory=dict[str, Any])
    """`compiler_options` of `jax.jit`: texts, truth values and numbers by name."""


def read_options(raw: bytes) -> CompileOptions:
    """The options of a serialized CompileOptionsProto."""
    found = fields(raw)
    build = fields(_last(found, _BUILD, b""))
    columns = [_ids(computation) for computation in fields(_last(build, _ASSIGNMENT, b"")).get(_COMPUTATIONS, ())]
    rows = zip(*columns, strict=True)
    overrides = dict(_override(entry) for entry in found.get(_OVERRIDES, ()))
    devices = tuple(number for row in rows for number in row)
    return CompileOptions(_last(build, _REPLICAS, 1), _last(build, _PARTITIONS, 1), devices, overrides)


def _last(found: dict[int, list[Any]], number: int, default: Any) -> Any:
    return found.get(number, [default])[-1] or default


def _ids(computation: bytes) -> list[int]:
    """The replicas' devices of one computation, packed or one by one."""
    ids: list[int] = []
    for item in fields(computation).get(_IDS, ()):
        ids += [item] if isinstance(item, int) else list(_packed(item))
    return ids


def _packed(raw: bytes) -> Iterator[int]:
    place = 0
    while place < len(raw):
        number, place = _varint(raw, place)
        yield number


def _override(entry: bytes) -> tuple[str, Any]:
    """A name and its value: a text (field 1), a truth value (2), or an integer (3)."""
    pair = fields(entry)
    value = fields(_last(pair, 2, b""))
    name = _last(pair, 1, b"").decode()
    if 1 in value:
        return name, value[1][-1].decode()
    return name, bool(value[2][-1]) if 2 in value else _last(value, 3, 0)


def fields(raw: bytes) -> dict[int, list[Any]]:
    """The fields of a message of protocol buffers by number: integers, and bytes for all that has a length."""
    found: dict[int, list[Any]] = {}
    place = 0
    while place < len(raw):
        key, place = _varint(raw, place)
        value, place = _value(raw, place, key & 7)
        found.setdefault(key >> 3, []).append(value)
    return found


def _value(raw: bytes, place: int, kind: int) -> tuple[Any, int]:
    match kind:
        case 0:
            return _varint(raw, place)
        case 2:
            size, place = _varint(raw, place)
            return raw[place : place + size], place + size
        case _:
            size = 8 if kind == 1 else 4
            return raw[place : place + size], place + size


def _varint(raw: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = raw[place]
        number |= (byte & 127) << shift
        place += 1
        if byte < 128:
            return number, place
        shift += 7
