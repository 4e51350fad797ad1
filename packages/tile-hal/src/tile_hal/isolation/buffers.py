"""Memory of a device whose work is done by a worker: shared with it, or by number where only the device has it."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import numpy as np

from tile_hal.errors import Code, check_range, device_error
from tile_hal.host import ALIGNMENT, HostBuffer
from tile_hal.interfaces import Buffer, Event, Memory, MemoryUsage
from tile_hal.isolation.link import Held, Link, Param
from tile_hal.isolation.shared import Bytes, Place
from tile_hal.isolation.worker import Call, Worker


class SharedBuffer(HostBuffer):
    """Bytes that the worker sees too; they outlive it."""

    __slots__ = ("link", "place")

    def __init__(self, link: Link, array: Bytes, place: Place, address: int | None = None) -> None:
        super().__init__(array, address)
        self.link = link
        self.place = place


class DeviceBuffer(Buffer):
    """Bytes in the memory of the worker's device. They are gone when the worker is."""

    def __init__(self, link: Link, held: Held, nbytes: int, root: DeviceBuffer | None = None) -> None:
        """`root` is the buffer that this is a view of."""
        self.link = link
        self.nbytes = nbytes
        self._held = held
        self._root = root
        self._maps: list[tuple[Bytes, Place]] = []
        weakref.finalize(self, link.gone.append, (held.worker, "buffer", held.number)).atexit = False

    def param(self, worker: Worker) -> Param:
        """It, for a worker; TileDeviceError when that is not the one that it was made in."""
        if worker is not self._held.worker:
            raise self._held.worker.lost(": a buffer was in its device's memory")
        return (self._held.number,)

    def map_current(self, dependencies: Sequence[Event] = ()) -> memoryview:
        staging = self._map()
        _, place = staging

        def table(worker: Worker) -> dict[str, object]:
            (number,) = self.param(worker)
            return {"do": "download", "buffer": number, "to": self.link.shown(worker, place)}

        self.link.submit(Call("reading a buffer", self), table, dependencies).wait()
        return self._mapped(staging)

    def map_discard(self) -> memoryview:
        return self._mapped(self._map())

    def _map(self) -> tuple[Bytes, Place]:
        self.param(self.link.worker())
        return self.link.arena.allocate(self.nbytes)

    def _mapped(self, staging: tuple[Bytes, Place]) -> memoryview:
        self._maps.append(staging)
        return staging[0].data

    def unmap(self) -> Event:
        array, place = self._maps.pop()

        def table(worker: Worker) -> dict[str, object]:
            (number,) = self.param(worker)
            return {"do": "upload", "buffer": number, "from": self.link.shown(worker, place)}

        return self.link.submit(Call("writing a buffer", (self, array)), table, ())


def param_of(link: Link, worker: Worker, buffer: Buffer) -> Param:
    """A buffer, for a worker."""
    if isinstance(buffer, SharedBuffer):
        return link.shown(worker, buffer.place)
    assert isinstance(buffer, DeviceBuffer)
    return buffer.param(worker)


class IsolatedMemory(Memory):
    """Shared memory where the worker's device uses it in place, else the device's own."""

    def __init__(self, link: Link, size_goal: int) -> None:
        self._link = link
        self._goal = size_goal

    @property
    def size_goal(self) -> int:
        return self._goal

    @property
    def losses(self) -> int:  # type: ignore[override]
        return self._link.losses

    @property
    def usage(self) -> MemoryUsage | None:
        if self._link.alignment:
            return self._link.arena.usage
        found = self._link.call("counting memory", {"do": "usage"}).table["usage"]
        return None if found is None else MemoryUsage(*found)

    def trim(self) -> None:
        self._link.call("giving memory back", {"do": "trim"})

    def allocate(self, nbytes: int) -> Buffer:
        if nbytes < 0:
            raise device_error(Code.MEMORY, f"cannot allocate {nbytes} bytes")
        link = self._link
        if link.alignment:
            array, place = link.arena.allocate(nbytes)
            return SharedBuffer(link, array, place)
        worker = link.worker()
        held = Held(worker, worker.number())
        link.call("allocating memory", {"do": "allocate", "buffer": held.number, "nbytes": nbytes}, worker=worker)
        return DeviceBuffer(link, held, nbytes)

    def wrap(self, view: memoryview) -> Buffer | None:
        """Only what is shared memory already, such as the result of an earlier call."""
        link = self._link
        if not view.c_contiguous or not view.nbytes or not link.alignment:
            return None
        array = np.frombuffer(view, np.uint8)
        address: int = array.__array_interface__["data"][0]
        place = link.arena.place_of(address, view.nbytes)
        if place is None or address % min(view.itemsize, ALIGNMENT) or place.offset % link.alignment:
            return None
        return SharedBuffer(link, array, place, address)

    def view(self, buffer: Buffer, offset: int, nbytes: int) -> Buffer | None:
        if not isinstance(buffer, (SharedBuffer, DeviceBuffer)) or buffer.link is not self._link:
            return None
        check_range(offset, nbytes, buffer.nbytes)
        if isinstance(buffer, DeviceBuffer):
            return self._device_view(buffer, offset, nbytes)
        if offset % self._link.alignment:
            return None
        place = Place(buffer.place.segment, buffer.place.offset + offset, nbytes)
        return SharedBuffer(self._link, buffer.array[offset : offset + nbytes], place, buffer.address + offset)

    def _device_view(self, buffer: DeviceBuffer, offset: int, nbytes: int) -> Buffer | None:
        worker = self._link.worker()
        held = Held(worker, worker.number())
        (root,) = buffer.param(worker)
        request = {"do": "view", "of": root, "buffer": held.number, "offset": offset, "nbytes": nbytes}
        made = self._link.call("viewing a buffer", request, worker=worker).table["made"]
        return DeviceBuffer(self._link, held, nbytes, buffer) if made else None
