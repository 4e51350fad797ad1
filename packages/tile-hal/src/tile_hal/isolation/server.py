"""The worker: a process that holds a driver and does what it is told over a socket (``python -m tile_hal.isolation.server FD``).

It ends at once when nobody is at the other end any more.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from mmap import mmap
from typing import Any

from tile_ir.kernels import KernelList

import tile_hal
from tile_hal.errors import Code, device_error
from tile_hal.host import ALIGNMENT
from tile_hal.interfaces import Buffer, Device, Event, Kernel, Library, Result
from tile_hal.isolation.description import described
from tile_hal.isolation.documents import from_document
from tile_hal.isolation.problems import report
from tile_hal.isolation.shared import PAGE
from tile_hal.isolation.wire import Blob, Channel, Ended, Message

WAITERS = 8
"""Pending events that are waited for at once."""
KEPT_FAILURES = 1000
"""Commands whose failure is remembered for those that depend on them."""

Reply = tuple[Mapping[str, Any], Sequence[Blob]]
"""A table and byte strings; or an event."""


class Server:
    """One driver, one device of it, and everything that was made for the other side, by the numbers that it gave."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._devices: tuple[Device, ...] = ()
        self._driver = ""
        self._device: Device | None = None
        self._segments: dict[int, mmap] = {}
        self._shared: dict[tuple[int, int, int], Buffer] = {}
        """Buffers over places of segments."""
        self._buffers: dict[int, Buffer] = {}
        self._libraries: dict[int, Library] = {}
        self._kernels: dict[int, tuple[Kernel, Sequence[bool]]] = {}
        """With what each of them writes."""
        self._events: dict[int, Event] = {}
        """Of commands that are not over."""
        self._failures: OrderedDict[int, Event] = OrderedDict()
        self._waiters = ThreadPoolExecutor(WAITERS, "tile-worker")
        self._lock = threading.Lock()

    def serve(self) -> None:
        """Until the other side is gone."""
        with suppress(Ended):
            while True:
                self._do(self._channel.receive())

    def _do(self, message: Message) -> None:
        table = message.table
        try:
            self._forget(table.get("gone", ()))
            action: Callable[[Message], Any] = getattr(self, f"do_{table['do']}")
            found = action(message)
        except Exception as problem:
            self._answer(table, {"error": report(problem)})
            self._fail(table, problem)
            return
        if isinstance(found, Event):
            self._follow(table, found)
        elif isinstance(found, bytes):
            self._answer(table, {}, [found])
        else:
            self._answer(table, found or {})

    def _answer(self, request: Mapping[str, Any], table: Mapping[str, Any], blobs: Sequence[Blob] = ()) -> None:
        self._channel.send({"id": request["id"], **table}, blobs)

    # --- work that goes on ---

    def _follow(self, table: Mapping[str, Any], event: Event) -> None:
        """Answer when an event is done."""
        if event.done:
            self._end(table, event)
            return
        self._events[table["id"]] = event
        self._waiters.submit(self._end, table, event)

    def _end(self, table: Mapping[str, Any], event: Event) -> None:
        try:
            result = event.wait()
        except Exception as problem:
            self._fail(table, problem)
            answer: dict[str, Any] = {"error": report(problem)}
        else:
            answer = {"seconds": result.seconds}
        with suppress(Ended):
            self._answer(table, answer)
        self._events.pop(table["id"], None)

    def _fail(self, table: Mapping[str, Any], problem: Exception) -> None:
        with self._lock:
            self._failures[table["id"]] = tile_hal.FailedEvent(problem)
            while len(self._failures) > KEPT_FAILURES:
                self._failures.popitem(last=False)

    def _awaited(self, table: Mapping[str, Any]) -> list[Event]:
        """The dependencies of a command that are not known to have ended well."""
        found = (self._events.get(n) or self._failures.get(n) for n in table["deps"])
        return [event for event in found if event is not None]

    # --- the driver and its devices ---

    @property
    def _chosen(self) -> Device:
        if self._device is None:
            raise device_error(Code.NO_DEVICE, "the worker was not told which device it is for")
        return self._device

    def do_open(self, message: Message) -> Mapping[str, Any]:
        """Import the plugin, if no entry point names it, and probe the driver."""
        if module := message.table["module"]:
            tile_hal.register(import_module(module), name=module)
        self._driver = message.table["driver"]
        self._devices = tile_hal.devices(self._driver)
        return {"devices": [described(device) for device in self._devices]}

    def do_doctor(self, message: Message) -> Mapping[str, Any]:
        return {"lines": [str(line) for line in tile_hal.drivers()[self._driver].doctor()]}

    def do_use(self, message: Message) -> Mapping[str, Any]:
        """Choose the device; tells the alignment of shared memory that it uses in place, 0 where it uses none."""
        self._device = next(d for d in self._devices if d.id == message.table["device"])
        probe = memoryview(bytearray(3 * PAGE))
        start = -_address(probe) % PAGE
        for alignment in (1, ALIGNMENT, PAGE):
            if self._device.memory.wrap(probe[start + alignment : start + alignment + ALIGNMENT]) is not None:
                return {"alignment": alignment}
        return {"alignment": 0}

    # --- memory ---

    def do_segment(self, message: Message) -> None:
        (fd,) = message.fds
        self._segments[message.table["segment"]] = mmap(fd, message.table["nbytes"])
        os.close(fd)

    def do_allocate(self, message: Message) -> None:
        self._buffers[message.table["buffer"]] = self._chosen.memory.allocate(message.table["nbytes"])

    def do_view(self, message: Message) -> Mapping[str, Any]:
        table = message.table
        made = self._chosen.memory.view(self._buffers[table["of"]], table["offset"], table["nbytes"])
        if made is not None:
            self._buffers[table["buffer"]] = made
        return {"made": made is not None}

    def do_download(self, message: Message) -> None:
        """Device memory to shared memory, after the dependencies."""
        buffer = self._buffers[message.table["buffer"]]
        _bytes(self._place(message.table["to"]))[:] = _bytes(buffer.map_current(self._awaited(message.table)))
        buffer.unmap().wait()

    def do_upload(self, message: Message) -> Event:
        buffer = self._buffers[message.table["buffer"]]
        _bytes(buffer.map_discard())[:] = _bytes(self._place(message.table["from"]))
        return buffer.unmap()

    def do_usage(self, message: Message) -> Mapping[str, Any]:
        usage = self._chosen.memory.usage
        return {"usage": usage and [usage.used, usage.held, usage.allocations, usage.peak]}

    def do_trim(self, message: Message) -> None:
        self._chosen.memory.trim()

    def _buffer(self, param: Sequence[int]) -> Buffer:
        """Device memory by its number, or a place of a segment."""
        if len(param) == 1:
            return self._buffers[param[0]]
        segment, offset, nbytes = param
        found = self._shared.get((segment, offset, nbytes))
        if found is None:
            memory = self._chosen.memory
            found = memory.wrap(self._place(param)) if nbytes else memory.allocate(0)
            if found is None:
                raise device_error(Code.PARAMETERS, f"{self._chosen.id} does not use this shared memory in place")
            self._shared[segment, offset, nbytes] = found
        return found

    def _place(self, place: Sequence[int]) -> memoryview:
        segment, offset, nbytes = place
        return memoryview(self._segments[segment])[offset : offset + nbytes]

    def _forget(self, gone: Sequence[tuple[str, Any]]) -> None:
        """Drop what the other side has dropped."""
        kinds: dict[str, dict[int, Any]] = {
            "buffer": self._buffers, "library": self._libraries, "kernel": self._kernels, "segment": self._segments,
        }  # fmt: skip
        for kind, what in gone:
            if kind != "place":
                kinds[kind].pop(what, None)
            segment, start, nbytes = (
                (what, 0, sys.maxsize) if kind == "segment" else what if kind == "place" else (0, 0, 0)
            )
            for place in [p for p in self._shared if p[0] == segment and start <= p[1] < start + nbytes]:
                del self._shared[place]

    # --- code ---

    def do_build(self, message: Message) -> None:
        """Compile a document, or load code that was compiled before, by the compiler's `build`, `deserialize` or `load`."""
        table, compiler = message.table, self._chosen.compiler
        data, *blobs = message.blobs
        kernels = from_document(KernelList, table["document"], blobs)
        load = {"deserialize": compiler.deserialize, "load": compiler.load}.get(table["by"])
        self._libraries[table["library"]] = compiler.build(kernels) if load is None else load(kernels, data)

    def do_serialize(self, message: Message) -> bytes | None:
        return self._libraries[message.table["library"]].serialize()

    def do_text(self, message: Message) -> bytes:
        library = self._libraries[message.table["library"]]
        return (library.assembly() if message.table["assembly"] else library.source()).encode()

    def do_prepare(self, message: Message) -> None:
        table = message.table
        kernel = self._chosen.executor.prepare(self._libraries[table["library"]], table["index"])
        self._kernels[table["kernel"]] = kernel, table["written"]

    # --- commands ---

    def do_run(self, message: Message) -> Event:
        table = message.table
        kernel, written = self._kernels[table["kernel"]]
        params = [self._buffer(p) for p in table["params"]]
        outputs = [b for b, p, w in zip(params, table["params"], written, strict=True) if w and len(p) > 1]
        return _Run(self._begun(kernel.run(params, self._awaited(table), profile=table["profile"])), outputs)

    def do_copy(self, message: Message) -> Event:
        source, target = (self._buffer(message.table[name]) for name in ("from", "to"))
        return self._begun(self._chosen.executor.copy(source, target, self._awaited(message.table)))

    def do_fill(self, message: Message) -> Event:
        target = self._buffer(message.table["to"])
        return self._begun(self._chosen.executor.fill(target, self._awaited(message.table)))

    def _begun(self, event: Event) -> Event:
        if not event.done:
            self._chosen.executor.flush()
        return event


class _Run(Event):
    """A kernel's run, over when what it wrote to shared memory is there."""

    def __init__(self, event: Event, outputs: Sequence[Buffer]) -> None:
        self.parts = (event,)
        self._outputs = outputs

    @property
    def done(self) -> bool:
        return self.parts[0].done

    def wait(self) -> Result:
        result = self.parts[0].wait()
        for buffer in self._outputs:
            # Until then a device may keep what it has written.
            buffer.map_current()
            buffer.unmap().wait()
        return result


def _bytes(view: memoryview) -> memoryview:
    return view.cast("B") if view.nbytes else memoryview(bytearray())


def _address(view: memoryview) -> int:
    import ctypes

    return ctypes.addressof(ctypes.c_char.from_buffer(view))


def _end_with(descriptor: int) -> None:
    """End this process when nobody is at the other end of a connection, whatever it is doing."""
    poller = select.poll()
    poller.register(descriptor, 0)  # no event but its end, which needs no asking
    poller.poll()
    os._exit(0)


def main() -> None:
    connection = socket.socket(fileno=int(sys.argv[1]))
    threading.Thread(target=_end_with, args=(connection.fileno(),), daemon=True).start()
    Server(Channel(connection)).serve()
    os._exit(0)  # drivers may not hold up the end


if __name__ == "__main__":
    main()
