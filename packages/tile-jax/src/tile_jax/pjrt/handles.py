"""Handles: what JAX holds of our objects, and gives back."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import count
from typing import Any, NamedTuple, TypeVar

Kind = TypeVar("Kind")

_objects: dict[int, Any] = {}
LASTING = 2**63
"""Handles from here on are not dropped."""
_numbers = count(16, 16)
"""No handle is given twice, so that one that was destroyed is known to be."""


class Field(NamedTuple):
    """Bits of a handle that say what JAX would ask of it: from which on, how many, and zeros behind what they say."""

    first: int
    bits: int
    zeros: int = 0


FIELDS = {
    "Executable_NumReplicas": Field(48, 4),
    "Executable_NumPartitions": Field(52, 4),
    "Executable_NumOutputs": Field(56, 7),
    "Buffer_ElementType": Field(46, 5),
    "Buffer_Device": Field(51, 6, zeros=4),
    "Buffer_Memory": Field(57, 6, zeros=4),
}
"""What JAX asks of a handle in every call and the handle says itself. 0 says nothing."""


def said(answers: Mapping[str, int]) -> int:
    """The bits of a handle that give these answers, as far as there is room for each."""
    handle = 0
    for name, answer in answers.items():
        field = FIELDS[name]
        short = answer >> field.zeros
        handle |= short << field.first if short < 1 << field.bits else 0
    return handle


def new(value: object, says: int = 0) -> int:
    """A handle of `value`, which keeps it alive until it is dropped, with the bits `says` (see `said`)."""
    handle = next(_numbers) | says
    _objects[handle] = value
    return handle


def find(kind: type[Kind], handle: int) -> Kind:
    """The object of a handle; TypeError for a handle of something else, or of nothing."""
    found = _objects.get(handle)
    if type(found) is not kind:
        raise TypeError(f"a handle of a {kind.__name__} was expected, and this is one of {type(found).__name__}")
    return found


def lasting(value: object) -> int:
    """A handle that nobody drops."""
    handle = -new(value) % 2**64
    _objects[handle] = _objects.pop(2**64 - handle)
    return handle


def drop(handle: int) -> Any:
    """Forgets a handle; gives the object that it had, None for a null handle."""
    return _objects.pop(handle, None) if handle < LASTING else None


def alive() -> int:
    """How many handles there are."""
    return len(_objects)


class Text:
    """A string in memory that C code reads as long as this lives."""

    __slots__ = ("_bytes", "address", "size")

    def __init__(self, text: str | bytes) -> None:
        raw = text.encode() if isinstance(text, str) else text
        self._bytes = ctypes.create_string_buffer(raw, len(raw) + 1)
        self.address = ctypes.addressof(self._bytes)
        self.size = len(raw)


@cache
def text(words: str) -> Text:
    """The string in memory for ever: for the few that belong to a platform, a device or a program."""
    return Text(words)


class Array:
    """Numbers in memory that C code reads as long as this lives."""

    __slots__ = ("_numbers", "address", "size")

    def __init__(self, numbers: Sequence[int], element: Any = ctypes.c_int64) -> None:
        self._numbers = (element * max(len(numbers), 1))(*numbers)
        self.address = ctypes.addressof(self._numbers)
        self.size = len(numbers)


def written(args: Any, field: str, words: Text) -> None:
    """Writes a string's address and size to the field and the one behind it."""
    setattr(args, field, words.address)
    setattr(args, f"{field}_size", words.size)


def read_text(address: int, size: int) -> bytes:
    """The bytes at an address."""
    return ctypes.string_at(address, size) if size else b""


def read_numbers(address: int, count: int, element: Any = ctypes.c_int64) -> list[int]:
    """The numbers at an address."""
    return list((element * count).from_address(address)) if count else []


Handler = Callable[[Any], int | None]
"""Reads what it is asked, and writes the answer, in a structure of arguments; gives an error's handle, or nothing."""


def _nothing(_: int) -> None:
    """What has no memory of its own has nothing to free."""


_keep = ctypes.CFUNCTYPE(None, ctypes.c_uint64)(_nothing)
KEEPER = ctypes.cast(_keep, ctypes.c_void_p).value or 0
"""The address of a C function that deletes nothing, for memory that Python frees by itself."""
