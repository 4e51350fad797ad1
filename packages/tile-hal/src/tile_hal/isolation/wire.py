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
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from itertools import accumulate, count, pairwise
from typing import Any

from tile_ir import forking

Table = Mapping[str, Any]
Blob = bytes | bytearray | memoryview

_HEAD = struct.Struct("<QQQ")
"""Of a packet: its message's number, bytes of that's JSON text, and bytes of all of it."""
_MOST = 1 << 16
"""Bytes of a message that a packet has at most; all but the last have so many."""
_ANCILLARY = socket.CMSG_SPACE(array("i").itemsize) if hasattr(socket, "CMSG_SPACE") else 0
_SIZES = "sizes"
"""The entry of a message with the length of each byte string."""
_numbers = count(1)


def connected() -> tuple[socket.socket, socket.socket]:
    """Both ends of a connection, which keeps packets whole where the system has such sockets: Linux has, macOS has not."""
    try:
        return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    except OSError:
        return socket.socketpair()


class Ended(Exception):
    """Nobody is at the other end."""


@dataclass(frozen=True, slots=True)
class Message:
    """What arrived."""

    table: dict[str, Any]
    blobs: tuple[bytes, ...] = ()
    fds: tuple[int, ...] = ()
    """File descriptors, which belong to the receiver now."""


@dataclass(slots=True)
class _Begun:
    """What has arrived of a message."""

    data: bytearray = field(default_factory=bytearray)
    fds: array[int] = field(default_factory=lambda: array("i"))


class Channel:
    """One end of a connection; one thread receives, any may send."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._whole = connection.type == socket.SOCK_SEQPACKET
        self._lock = forking.lock()
        self._begun: dict[int, _Begun] = {}

    def send(self, table: Table, blobs: Sequence[Blob] = (), fds: Sequence[int] = ()) -> None:
        """`Ended` when the other end is gone.

        Packets of several messages may follow each other in any order, so that no thread waits for another, nor a signal's
        handler for the thread that it interrupts. Where packets are not kept whole, whoever is interrupted has spoilt the
        connection.
        """
        text = json.dumps({**table, _SIZES: [len(b) for b in blobs]} if blobs else table).encode()
        body = b"".join((text, *blobs))
        head = _HEAD.pack(next(_numbers), len(text), len(body))
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", fds))] if fds else []
        try:
            with nullcontext() if self._whole else self._lock:
                for start in range(0, len(body), _MOST):
                    packet = head + body[start : start + _MOST]
                    sent = self.connection.sendmsg([packet], () if start else rights)
                    if sent < len(packet):
                        self.connection.sendall(packet[sent:])
        except OSError as problem:
            raise Ended from problem

    def receive(self) -> Message:
        """The next message that is complete; `Ended` when none will come."""
        while True:
            number, length, total = self._packet()
            begun = self._begun[number]
            if len(begun.data) >= total:
                del self._begun[number]
                return _message(begun, length)

    def _packet(self) -> tuple[int, int, int]:
        """What the head of the next packet says; the rest is with what arrived before."""
        try:
            data, ancillary, _, _ = self.connection.recvmsg(_HEAD.size + (_MOST if self._whole else 0), _ANCILLARY)
        except OSError as problem:
            raise Ended from problem
        if not data:
            raise Ended
        if len(data) < _HEAD.size:
            data += self._exactly(_HEAD.size - len(data))
        number, length, total = _HEAD.unpack_from(data)
        begun = self._begun.setdefault(number, _Begun())
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                begun.fds.frombytes(content[: len(content) - len(content) % begun.fds.itemsize])
        begun.data += data[_HEAD.size :] if self._whole else self._exactly(min(_MOST, total - len(begun.data)))
        return number, length, total

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


def _message(whole: _Begun, length: int) -> Message:
    table: dict[str, Any] = json.loads(whole.data[:length])
    sizes: list[int] = table.pop(_SIZES, [])
    if sum(sizes) != len(whole.data) - length:
        raise Ended
    ends = [*accumulate(sizes, initial=length)]
    return Message(table, tuple(bytes(whole.data[a:b]) for a, b in pairwise(ends)), tuple(whole.fds))
