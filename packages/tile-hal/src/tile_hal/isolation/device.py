"""Drivers, devices and code whose work is done by a worker."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import replace

from tile_ir import forking
from tile_ir.kernels import KernelList

from tile_hal.errors import Code, device_error
from tile_hal.host import HostBuffer, HostExecutor, parameters
from tile_hal.interfaces import Buffer, Compiler, Device, DeviceSet, Driver, Event, Kernel, Library
from tile_hal.isolation.buffers import DeviceBuffer, IsolatedMemory, SharedBuffer, param_of
from tile_hal.isolation.description import Description
from tile_hal.isolation.documents import to_document
from tile_hal.isolation.link import Held, Link, Source, opened
from tile_hal.isolation.worker import Call, Worker


class IsolatedDriver(Driver):
    """A driver in a worker of each of its devices; this process never asks the driver itself for anything but its name."""

    def __init__(self, driver: Driver, source: Source) -> None:
        self.name, self.api, self.priority = driver.name, driver.api, driver.priority
        self._source = source

    def device_sets(self) -> Sequence[DeviceSet]:
        first, found = opened(self._source)
        links = [Link(self._source, d.id, None if n else first) for n, d in enumerate(found)]
        if not found:
            first.close()
        return (_Devices(tuple(map(IsolatedDevice, found, links))),)

    def doctor(self) -> Sequence[str]:
        worker, _ = opened(self._source)
        try:
            return tuple(worker.call("looking at the hardware", {"do": "doctor"}).table["lines"])
        finally:
            worker.close()


class _Devices(DeviceSet):
    def __init__(self, devices: tuple[Device, ...]) -> None:
        self._devices = devices

    @property
    def devices(self) -> Sequence[Device]:
        return self._devices


class IsolatedDevice(Device):
    """One device of a worker; what it says of itself is known without the worker."""

    isolated = True

    def __init__(self, found: Description, link: Link) -> None:
        self.id, self.name = found.id, found.name
        self.target = found.target
        # What a worker works on is this side's to keep alive.
        self.capabilities = replace(found.capabilities, keeps_buffers=False)
        self.versions = found.versions
        self.compiler = IsolatedCompiler(found, link)
        self.memory = IsolatedMemory(link, found.size_goal)
        self.executor = IsolatedExecutor(found.id, link)


class IsolatedLibrary(Library):
    """Code that the worker has, and that another worker can be given again."""

    def __init__(self, link: Link, kernels: KernelList, by: str, data: bytes = b"") -> None:
        """`by` is the method of the worker's compiler that makes it, of `data` where code was compiled before."""
        self.link = link
        self.kernels = kernels
        self._by, self._data = by, data
        self._held: Held | None = None
        self._lock = forking.rlock()
        self.held(link.worker())

    def held(self, worker: Worker) -> int:
        """Its number in the worker, made there when it is not there yet; raises the compiler's errors."""
        with self._lock:
            if self._held is None or self._held.worker is not worker:
                self._held = self._made(worker)
                weakref.finalize(self, self.link.gone.append, (worker, "library", self._held.number)).atexit = False
            return self._held.number

    def _made(self, worker: Worker) -> Held:
        names = ", ".join(repr(k.name) for k in self.kernels.kernels[:3])
        what = f"{'compiling' if self._by == 'build' else 'loading'} kernels {names}"
        document, blobs = to_document(self.kernels)
        number = worker.number()
        request = {"do": "build", "by": self._by, "library": number, "document": document}
        self.link.call(what, request, [self._data, *blobs], worker)
        return Held(worker, number)

    def serialize(self) -> bytes | None:
        found = self._ask("storing compiled code", {"do": "serialize"})
        return found[0] if found else None

    def source(self) -> str:
        return self._ask("printing source", {"do": "text", "assembly": False})[0].decode()

    def assembly(self) -> str:
        return self._ask("printing assembly", {"do": "text", "assembly": True})[0].decode()

    def _ask(self, what: str, request: dict[str, object]) -> tuple[bytes, ...]:
        worker = self.link.worker()
        return self.link.call(what, {**request, "library": self.held(worker)}, worker=worker).blobs


class IsolatedCompiler(Compiler):
    """Compiles in the worker."""

    def __init__(self, found: Description, link: Link) -> None:
        self._link = link
        self._fingerprint, self._package = found.fingerprint, found.package

    def build(self, kernels: KernelList) -> Library:
        return IsolatedLibrary(self._link, kernels, "build")

    def deserialize(self, kernels: KernelList, data: bytes) -> Library:
        return IsolatedLibrary(self._link, kernels, "deserialize", data)

    def load(self, outline: KernelList, data: bytes) -> Library:
        return IsolatedLibrary(self._link, outline, "load", data)

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    @property
    def package(self) -> str:
        return self._package


class IsolatedKernel(Kernel):
    """A kernel of a library in the worker."""

    def __init__(self, library: IsolatedLibrary, index: int) -> None:
        self._library, self._index = library, index
        self._info = library.kernels.kernels[index]
        self._parameters = parameters(self._info)
        self._held: Held | None = None
        self._lock = forking.rlock()
        self._what = f"running {self._info.title}"
        self.held(library.link.worker())

    def held(self, worker: Worker) -> int:
        """Its number in the worker, made there when it is not there yet."""
        library = self._library.held(worker)
        with self._lock:
            if self._held is None or self._held.worker is not worker:
                number = worker.number()
                written = [p.written for p in self._parameters]
                request = {
                    "do": "prepare",
                    "library": library,
                    "index": self._index,
                    "kernel": number,
                    "written": written,
                }
                self._library.link.call(f"preparing {self._info.title}", request, worker=worker)
                self._held = Held(worker, number)
                weakref.finalize(self, self._library.link.gone.append, (worker, "kernel", number)).atexit = False
            return self._held.number

    def run(self, params: Sequence[Buffer], dependencies: Sequence[Event] = (), *, profile: bool = False) -> Event:
        self._check(params)
        link = self._library.link

        def table(worker: Worker) -> dict[str, object]:
            places = [param_of(link, worker, p) for p in params]
            return {"do": "run", "kernel": self.held(worker), "params": places, "profile": profile}

        return link.submit(Call(self._what, (self, *params)), table, dependencies)

    def _check(self, params: Sequence[Buffer]) -> None:
        """TileDeviceError for the first parameter that does not fit."""
        name, wanted = self._info.name, self._parameters
        if len(params) != len(wanted):
            raise device_error(Code.PARAMETERS, f"kernel {name!r} takes {len(wanted)} buffers, not {len(params)}")
        for buffer, parameter in zip(params, wanted, strict=True):
            where = f"parameter {parameter.name!r} of kernel {name!r}"
            if not isinstance(buffer, (SharedBuffer, DeviceBuffer)) or buffer.link is not self._library.link:
                raise device_error(Code.PARAMETERS, f"{where} is a {type(buffer).__name__} that is not of this device")
            needed = parameter.elements * parameter.dtype.bytes
            if buffer.nbytes < needed:
                raise device_error(Code.SIZE_MISMATCH, f"{where} needs {needed} bytes, the buffer has {buffer.nbytes}")
            if parameter.written and isinstance(buffer, SharedBuffer) and buffer.readonly:
                raise device_error(Code.READ_ONLY, f"{where} is written, but the buffer wraps read-only memory")


class IsolatedExecutor(HostExecutor):
    """Runs kernels in the worker; what is in shared memory is copied and cleared here."""

    def __init__(self, device: str, link: Link) -> None:
        super().__init__()
        self._device, self._link = device, link

    def prepare(self, library: Library, index: int) -> Kernel:
        if not isinstance(library, IsolatedLibrary) or library.link is not self._link:
            raise device_error(Code.PARAMETERS, f"a {type(library).__name__} was not built for {self._device}")
        if not 0 <= index < len(library.kernels.kernels):
            count = len(library.kernels.kernels)
            raise device_error(Code.PARAMETERS, f"the library has {count} kernels, none is number {index}")
        return IsolatedKernel(library, index)

    def finish(self) -> None:
        super().finish()
        self._link.finish()

    def copy(self, src: Buffer, dst: Buffer, dependencies: Sequence[Event] = ()) -> Event:
        if isinstance(src, HostBuffer) or isinstance(dst, HostBuffer):
            return super().copy(src, dst, dependencies)
        if src.nbytes != dst.nbytes:
            raise device_error(
                Code.SIZE_MISMATCH, f"a copy needs buffers of one size, not {src.nbytes} and {dst.nbytes} bytes"
            )
        source, target = self._own(src), self._own(dst)

        def table(worker: Worker) -> dict[str, object]:
            return {"do": "copy", "from": source.param(worker), "to": target.param(worker)}

        return self._link.submit(Call("copying a buffer", (src, dst)), table, dependencies)

    def fill(self, dst: Buffer, dependencies: Sequence[Event] = ()) -> Event:
        if isinstance(dst, HostBuffer):
            return super().fill(dst, dependencies)
        target = self._own(dst)

        def table(worker: Worker) -> dict[str, object]:
            return {"do": "fill", "to": target.param(worker)}

        return self._link.submit(Call("clearing a buffer", dst), table, dependencies)

    def _own(self, buffer: Buffer) -> DeviceBuffer:
        if isinstance(buffer, DeviceBuffer) and buffer.link is self._link:
            return buffer
        raise device_error(
            Code.PARAMETERS,
            f"{self._device} works on buffers of its own, not on this {type(buffer).__name__}",
            "allocate the buffer with this device's memory",
        )
