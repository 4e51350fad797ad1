"""Weights where they are: the large tensors of a serialised model are found in its bytes, and neither parsed nor copied.

A protobuf message is a row of fields: a key (number and kind), and for what is long the number of bytes and the bytes.
`lifted` copies all of a model but the raw data of its initializers, which are views of the file.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tile_ir.frozen import frozen

LARGE = 4096
"""Bytes from which raw data are left where they are."""

_GRAPH, _INITIALIZER, _RAW = 7, 5, 9
"""Fields: ModelProto.graph, GraphProto.initializer, TensorProto.raw_data."""


class _Odd(Exception):
    """Bytes that are better left to protobuf."""


@frozen
class _Field:
    number: int
    start: int
    inner: int
    """Where the bytes of a long field begin."""
    end: int


@dataclass(frozen=True, slots=True, eq=False)
class Lifted:
    """A message without the raw data of its large initializers, and these by the number of the initializer."""

    message: bytes
    data: Mapping[int, memoryview] = field(default_factory=dict[int, memoryview])


def lifted(content: memoryview) -> Lifted:
    """The parts of a serialised model; all of it is the message where it is not as `onnx` writes models."""
    try:
        fields = list(_fields(content, 0, len(content), _GRAPH))
        graphs = [f for f in fields if f.number == _GRAPH]
        if len(graphs) != 1:
            raise _Odd
        inner, data = _graph(content, graphs[0])
        parts = [_long(_GRAPH, inner) if f.number == _GRAPH else bytes(content[f.start : f.end]) for f in fields]
        return Lifted(b"".join(parts), data)
    except _Odd:
        return Lifted(bytes(content))


def _graph(content: memoryview, graph: _Field) -> tuple[bytes, dict[int, memoryview]]:
    parts: list[bytes] = []
    data: dict[int, memoryview] = {}
    count = 0
    for f in _fields(content, graph.inner, graph.end, _INITIALIZER):
        if f.number != _INITIALIZER:
            parts.append(bytes(content[f.start : f.end]))
            continue
        fields = list(_fields(content, f.inner, f.end, _RAW)) if f.end - f.inner >= LARGE else []
        raw = [t for t in fields if t.number == _RAW]
        if len(raw) == 1 and raw[0].end - raw[0].inner >= LARGE:
            data[count] = content[raw[0].inner : raw[0].end]
            parts.append(
                _long(_INITIALIZER, b"".join(bytes(content[t.start : t.end]) for t in fields if t.number != _RAW))
            )
        else:
            parts.append(bytes(content[f.start : f.end]))
        count += 1
    return b"".join(parts), data


def _fields(content: memoryview, at: int, end: int, long: int) -> Iterator[_Field]:
    """The fields of a message, of which those with the number `long` are bytes."""
    while at < end:
        key, inner = _varint(content, at, end)
        kind, number = key & 7, key >> 3
        match kind:
            case 0:  # a number of as many bytes as it needs
                stop = _varint(content, inner, end)[1]
            case 1:  # eight bytes
                stop = inner + 8
            case 2:  # a length, and so many bytes
                length, inner = _varint(content, inner, end)
                stop = inner + length
            case 5:  # four bytes
                stop = inner + 4
            case _:
                raise _Odd
        if stop > end or (kind != 2 and number == long):
            raise _Odd
        yield _Field(number, at, inner, stop)
        at = stop


def _varint(content: memoryview, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 64:
        byte = content[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
    raise _Odd


def _long(number: int, content: bytes) -> bytes:
    """A field of bytes."""
    size, length = len(content), bytearray()
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    return bytes([number << 3 | 2, *length, size]) + content


class Mapped:
    """A file as memory: read where it is looked at."""

    def __init__(self, path: Path) -> None:
        """OSError where it cannot be read; ValueError for an empty one."""
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    @property
    def view(self) -> memoryview:
        """Its bytes."""
        return memoryview(self._map)

    def release(self) -> None:
        """Gives the memory of what was read back; what is looked at again is read again."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)
