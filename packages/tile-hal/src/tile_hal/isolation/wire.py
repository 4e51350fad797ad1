"""Messages between a process and its worker: JSON, byte strings and file descriptors over a Unix socket.

A message is plain data: numbers, text, lists and tables. What arrives is never executed and makes no object but those, so
that a worker, with whatever driver it holds, can forge nothing but wrong answers.
"""

from __future__ import annotations

import json
import socket
import struct
from array import array
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tile_ir import forking

Table = Mapping[str, Any]
Blob = bytes | bytearray | memoryview

_HEAD = struct.Struct("<QQ")
"""Bytes of the JSON text and of the byte strings behind it."""
_ANCILLARY = socket.CMSG_SPACE(array("i").itemsize) if hasattr(socket, "CMSG_SPACE") else 0
_SIZES = "sizes"
"""The entry of a message with the length of each byte string."""


class Ended(Exception):
    """Nobody is at the other end."""


@dataclass(frozen=True, slots=True)
class Message:
    """What arrived."""

    table: dict[str, Any]
    blobs: tuple[bytes, ...] = ()
    fds: tuple[int, ...] = ()
    """File descriptors, which belong to the receiver now."""


class Channel:
    """One end of a connection; one thread receives, any may send."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._lock = forking.lock()

    def send(self, table: Table, blobs: Sequence[Blob] = (), fds: Sequence[int] = ()) -> None:
        """`Ended` when the other end is gone. Whoever is interrupted in it has spoilt the connection."""
        text = json.dumps({**table, _SIZES: [len(b) for b in blobs]} if blobs else table).encode()
        head = _HEAD.pack(len(text), sum(map(len, blobs)))
        try:
            with self._lock:
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", fds))] if fds else []
                sent = self.connection.sendmsg([head, text], rights)
                for part in ((head + text)[sent:], *blobs):
                    self.connection.sendall(part)
        except OSError as problem:
            raise Ended from problem

    def receive(self) -> Message:
        """The next message; `Ended` when none will come."""
        head, fds = self._head()
        length, rest = _HEAD.unpack(head)
        table: dict[str, Any] = json.loads(self._exactly(length))
        sizes: list[int] = table.pop(_SIZES, [])
        if sum(sizes) != rest:
            raise Ended
        return Message(table, tuple(bytes(self._exactly(size)) for size in sizes), fds)

    def _head(self) -> tuple[bytes, tuple[int, ...]]:
        """The first bytes of a message, and the descriptors that come with them."""
        try:
            data, ancillary, _, _ = self.connection.recvmsg(_HEAD.size, _ANCILLARY)
        except OSError as problem:
            raise Ended from problem
        fds = array("i")
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
        if not data:
            raise Ended
        return data + self._exactly(_HEAD.size - len(data)), tuple(fds)

    def _exactly(self, count: int) -> bytearray:
        data = bytearray(count)
        view = memoryview(data)
        while view:
            try:
                got = self.connection.recv_into(view)
            except OSError as problem:
                raise Ended from problem
            if not got:
                raise Ended
            view = view[got:]
        return data

    def close(self) -> None:
        """Let the other end know; the descriptor itself stays until the channel is dropped or `forget` is called."""
        with suppress(OSError):  # the other end was quicker
            self.connection.shutdown(socket.SHUT_RDWR)

    def forget(self) -> None:
        """Drop this process's descriptor without a word to the other end: it is another process's connection."""
        self.connection.close()
