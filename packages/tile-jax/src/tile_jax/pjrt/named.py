"""Named values: options that JAX gives us, and properties that we tell it."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping
from typing import Any

from tile_jax.pjrt.handles import Array, Text, read_numbers, read_text
from tile_jax.pjrt.structs import STRUCTS

STRING, INT64, INT64_LIST, FLOAT, BOOL = range(5)
_NamedValue: Any = STRUCTS["NamedValue"]


class NamedValues:
    """Values by name in memory that C code reads as long as this lives: texts, integers, lists of them, and floats."""

    def __init__(self, values: Mapping[str, str | int | float | list[int]]) -> None:
        self._kept: list[Any] = []
        self._items = (_NamedValue * max(len(values), 1))(*(self._item(n, v) for n, v in values.items()))
        self.address = ctypes.addressof(self._items)
        self.size = len(values)

    def _item(self, name: str, value: str | int | float | list[int]) -> Any:
        item = _NamedValue(struct_size=ctypes.sizeof(_NamedValue))
        words = Text(name)
        item.name, item.name_size = words.address, words.size
        item.type, item.value, item.value_size, kept = _encoded(value)
        self._kept += (words, kept)
        return item


def _encoded(value: str | int | float | list[int]) -> tuple[int, int, int, Any]:
    """Type, the eight bytes of the value, its size, and what must live as long."""
    match value:
        case str():
            words = Text(value)
            return STRING, words.address, words.size, words
        case bool():
            return BOOL, int(value), 1, None
        case int():
            return INT64, value & (2**64 - 1), 1, None
        case float():
            return FLOAT, struct.unpack("<I", struct.pack("<f", value))[0], 1, None
        case list():
            numbers = Array(value)
            return INT64_LIST, numbers.address, numbers.size, numbers


def read_named(address: int, count: int) -> dict[str, Any]:
    """The named values at an address."""
    items = (_NamedValue * count).from_address(address) if count else ()
    return {read_text(item.name, item.name_size).decode(): _decoded(item) for item in items}


def _decoded(item: Any) -> Any:
    raw = struct.pack("<Q", item.value)
    match item.type:
        case 0:
            return read_text(item.value, item.value_size).decode()
        case 1:
            return struct.unpack("<q", raw)[0]
        case 2:
            return read_numbers(item.value, item.value_size)
        case 3:
            return struct.unpack("<f", raw[:4])[0]
        case _:
            return bool(raw[0])
