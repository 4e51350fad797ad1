"""The hardware abstraction layer: the abstract classes a backend implements.

``Driver → DeviceSet → Device``; a device has a compiler, an executor, a target, capabilities and memory.
The HAL orders work only by events. Run and copy wait for their dependency events first and are
asynchronous, though they may also complete before they return. Submission is thread-safe. Buffers must be
kept alive by the caller until the events of their work are complete.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.kernels import KernelList, StepKind
from tile_ir.target import Capabilities, Target

if TYPE_CHECKING:
    from tile_hal.ahead import Exporter

HAL_API: tuple[int, int] = (1, 7)
"""(major, minor) of this contract. A plugin built for another major is refused with a message; so is one built for a later minor,
unless it says what it requires of that (`Driver.requires`)."""


@frozen
class Result:
    """Outcome of a finished event."""

    seconds: float | None = None
    """Device-measured duration once dependencies were met; None when it was not measured."""


class Event(ABC):
    """The completion of one run, copy or unmap."""

    @abstractmethod
    def wait(self) -> Result:
        """Block until done; raises the TileDeviceError of a failed kernel, also when a dependency failed."""

    @property
    @abstractmethod
    def done(self) -> bool:
        """True once `wait` would not block."""


def _copied(source: memoryview, target: memoryview) -> None:
    """Copy bytes without the interpreter's lock, which a memoryview's assignment holds."""
    import numpy as np

    if source.nbytes:
        np.copyto(np.frombuffer(target, np.uint8), np.frombuffer(source, np.uint8))


class Buffer(ABC):
    """Bytes on a device."""

    nbytes: int

    @abstractmethod
    def map_current(self, dependencies: Sequence[Event] = ()) -> memoryview:
        """Wait for the dependencies, then give a writable host view of the current contents."""

    @abstractmethod
    def map_discard(self) -> memoryview:
        """Give a writable host view with undefined contents; nothing is read back."""

    @abstractmethod
    def unmap(self) -> Event:
        """End the mapping; the event signals that the device sees what was written."""


@frozen
class MemoryUsage:
    """What a device's memory is used for, by this process, at one moment."""

    used: int
    """Bytes of the buffers that there are, rounded up as the device allocates."""
    held: int
    """Those, and the bytes that are kept for the next buffers."""
    allocations: int
    """How often memory was taken from the device so far; it stands still where all calls find what they need among the kept."""
    peak: int | None = None
    """The most that was used at once so far; None where nobody has looked."""


class Memory(ABC):
    """Allocator of one device."""

    losses: int = 0
    """How often all that was in the device's memory was lost, as happens to a device whose driver is in another process."""

    @property
    @abstractmethod
    def size_goal(self) -> int:
        """Bytes a program may use without trouble."""

    @abstractmethod
    def allocate(self, nbytes: int) -> Buffer:
        """A buffer of `nbytes` (0 allowed), 64-byte aligned; TileDeviceError when memory is out."""

    def wrap(self, view: memoryview) -> Buffer | None:
        """A buffer over host memory without a copy, or None when the device cannot use it in place.

        The view must stay alive and unmoved as long as the buffer. A read-only view gives a buffer
        that must not be written.
        """
        return None

    def view(self, buffer: Buffer, offset: int, nbytes: int) -> Buffer | None:
        """A buffer over bytes [offset, offset + nbytes) of `buffer`, or None when the device has no such views.

        A view keeps `buffer` alive. Views may overlap; whoever makes them keeps them apart. `offset` is a
        multiple of 64.
        """
        return None

    def read(self, buffer: Buffer, into: memoryview, dependencies: Sequence[Event] = ()) -> None:
        """Wait for the dependencies, then copy all bytes of `buffer` to `into`: as many bytes, C-contiguous.

        Optional, as `write` is: for devices that have a faster way than a mapping.
        """
        _copied(buffer.map_current(dependencies), into)
        buffer.unmap().wait()

    def write(self, buffer: Buffer, data: memoryview) -> Event:
        """Set all bytes of `buffer`, which nothing works on, to those of `data`: as many bytes, C-contiguous.

        `data` is free when this returns; the event signals that the device sees what was written.
        """
        _copied(data, buffer.map_discard())
        return buffer.unmap()

    def prepare(self, into: memoryview) -> None:  # noqa: B027 - mappings and plain copies need nothing
        """Make host memory of any content, which `read` will fill, ready for that, while the device still works on it.

        Optional: for devices that copy faster than one thread gets new pages from the system.
        """

    @property
    def usage(self) -> MemoryUsage | None:
        """Bytes used and held; None where the device does not count."""
        return None

    def trim(self) -> None:  # noqa: B027 - who keeps nothing has nothing to give back
        """Give memory that is kept for the next buffers back to the system."""


class Library(ABC):  # noqa: B024 - all of its methods are optional
    """Executable code of a KernelList, in whatever form the device expects.

    Instances have a ``__dict__``: `tile_hal.submit` keeps what it prepared for a library there.
    """

    def serialize(self) -> bytes | None:
        """Bytes that `Compiler.deserialize` turns back into this library, or None."""
        return None

    def source(self) -> str:
        """Readable source or IR of the kernels ("" when there is none)."""
        return ""

    def assembly(self) -> str:
        """Machine code as text ("" when there is none)."""
        return ""


class Compiler(ABC):
    """Turns kernel lists into libraries; safe to call from several threads."""

    @abstractmethod
    def build(self, kernels: KernelList) -> Library:
        """Compile; may return before compilation is finished, errors then surface in `prepare`."""

    def deserialize(self, kernels: KernelList, data: bytes) -> Library:
        """Rebuild a library from `Library.serialize`; ValueError when the bytes do not fit this device."""
        raise ValueError("this device does not keep compiled code")

    def load(self, outline: KernelList, data: bytes) -> Library:
        """As `deserialize`, for a kernel list without the kernels' bodies (see `tile_ir.outline`).

        Optional, for devices whose capabilities state `loads_outlines`: they start whole programs from the disk cache
        without compiling anything. The library's `source` and `assembly` may be "".
        """
        raise ValueError("this device loads no code without the kernels it was made from")

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Everything compiled code depends on besides the kernels (driver version, CPU features…)."""

    @property
    def package(self) -> str:
        """The Python package whose files decide what code becomes: who edits them must not get old code."""
        return type(self).__module__.partition(".")[0]


class Kernel(ABC):
    """One invokable kernel."""

    @abstractmethod
    def run(self, params: Sequence[Buffer], dependencies: Sequence[Event] = (), *, profile: bool = False) -> Event:
        """Start the kernel on its buffers (outputs first, then inputs) after `dependencies`.

        Dependencies may be events of any device; `tile_hal.flatten` gives a backend its own. The caller
        keeps the buffers alive until the event is done. TileDeviceError at once for a wrong number of
        buffers, a buffer that is too small, foreign, or read-only where the kernel writes. `profile`
        asks for `Result.seconds`.
        """


@frozen
class Holder:
    """Objects that stand for the array in one of their slots, while other slots are as they should be."""

    type: type[object]
    """Exactly theirs; it has ``__slots__``."""
    array: str
    """The slot of the array."""
    fixed: tuple[tuple[str, object], ...]
    """Slots, and the very objects that must be in them."""


@frozen
class DirectArray:
    """One array that a direct call takes: a plain `numpy.ndarray` of exactly this shape and dtype.

    It must be C-contiguous, aligned and in native byte order.
    """

    shape: tuple[int, ...]
    dtype: DType
    written: bool = False
    """Then the array must be writable, and have no memory in common with any array before it."""
    holder: Holder | None = None
    """What a call that is brief may take in the array's place; a device may refuse it all the same."""


@frozen
class DirectStep:
    """One step of a direct call."""

    kind: StepKind
    buffers: tuple[Buffer | int | Turning, ...]
    """As in `tile_ir.kernels.Step`: a buffer of the device, or the number of an array that each call passes; within a loop,
    what is another one in each round."""
    nbytes: int
    """Size of `buffers[0]`: what is filled or copied."""
    kernel: Kernel | None = None
    """What runs in a step that is a kernel; of the device's own executor."""


@frozen
class Turning:
    """A buffer of a step in a loop that is other memory in each round (see `tile_ir.kernels.Window`).

    In round t it is ``first[t]``, and once those are used up, ``cycle[t % len(cycle)]``: all of it, or with a `stride` the
    `nbytes` bytes from byte ``start + t * stride`` on. These are what a step outside may have as a buffer.
    """

    first: tuple[Any, ...]
    cycle: tuple[Any, ...]
    nbytes: int
    start: int
    stride: int
    depth: int
    """Whose rounds are meant: 0 for those of the outermost loop around the step."""

    def at(self, round: int) -> tuple[Any, int]:
        """The buffer that it is in a round, and the byte where it begins there."""
        if round < len(self.first):
            return self.first[round], 0
        return self.cycle[round % len(self.cycle)], self.start + round * self.stride


@frozen
class LoopStep:
    """Steps of a direct call or a batch that run `count` times, one round after the other."""

    count: int
    steps: tuple[Any, ...]
    """Those of a round: of the same kind as the steps outside, or loops."""


@frozen
class Direct:
    """A program as a function of NumPy arrays in host memory."""

    run: Callable[..., bool]
    """``run(*arrays)``: True when all steps are done and the written arrays hold the results. False, with nothing
    changed, when an array is not as declared or another thread is in the same program: then take the ordinary way.

    From any thread. Whoever holds the function may drop everything else.
    """
    brief: bool
    """It takes no more than microseconds and keeps the interpreter lock: no other thread runs Python meanwhile."""


@frozen
class Part:
    """Bytes of an arena: memory that each run of a batch has for itself."""

    arena: int
    offset: int
    nbytes: int


@frozen
class BatchStep:
    """One step of a batch."""

    kind: StepKind
    buffers: tuple[Buffer | int | Part | Turning, ...]
    """As in `tile_ir.kernels.Step`: a buffer that the batch keeps, the number of one that each run passes, or temporary memory;
    within a loop, what is another one in each round."""
    nbytes: int
    """Size of `buffers[0]`: what is filled or copied."""
    kernel: Kernel | None = None
    """What runs in a step that is a kernel; of the device's own executor."""


class Batch(ABC):
    """The steps of a program, made ready to be started together."""

    @abstractmethod
    def run(self, buffers: Sequence[Buffer], dependencies: Sequence[Event] = ()) -> Event | None:
        """Start all steps, one after the other, after `dependencies`, and make sure that the device works on them.

        The buffers are large enough, which is not checked again. None, with nothing done, when one needs a closer look, or is
        no buffer of this device: then run the steps one by one.
        """


class Executor(ABC):
    """Runs kernels and copies on one device."""

    @abstractmethod
    def prepare(self, library: Library, index: int) -> Kernel:
        """Ready kernel number `index` of the library's kernel list."""

    @abstractmethod
    def copy(self, src: Buffer, dst: Buffer, dependencies: Sequence[Event] = ()) -> Event:
        """Copy all bytes of `src` to the equally large `dst` after `dependencies`."""

    @abstractmethod
    def fill(self, dst: Buffer, dependencies: Sequence[Event] = ()) -> Event:
        """Set every byte of `dst` to zero after `dependencies`."""

    def flush(self) -> None:  # noqa: B027 - devices that start work at once need none
        """Make sure that submitted work starts; no waiting."""

    def defer(self, work: Callable[[], None], dependencies: Sequence[Event] = (), nbytes: int = 0) -> Event | None:
        """Have a thread of the device's do `work`, which is host code, once `dependencies` are done; None where it has none.

        For devices that work on host memory: whoever submits a long program need not wait for it. `work` keeps `nbytes` of
        memory alive; where much is waiting already this blocks until some of it is done.
        """
        return None

    def finish(self) -> None:  # noqa: B027 - devices whose work is over when it is submitted need none
        """Wait until all that was submitted is over; failures stay with their events."""

    def direct(self, steps: Sequence[DirectStep | LoopStep], arrays: Sequence[DirectArray]) -> Direct | None:
        """All `steps`, in order, as one function of `arrays` (the written ones last); None when the device has no such.

        For devices that work on host memory: a call through buffers and events costs many times what a small
        kernel does. The buffers in `steps` belong to the direct call alone, but for those that no step writes. There are loops among
        the steps where the capabilities state `loops`.
        """
        return None

    def batch(self, steps: Sequence[BatchStep | LoopStep], count: int, arenas: Sequence[int]) -> Batch | None:
        """All `steps`, in order, on `count` buffers and arenas of so many bytes; None when the device has no such.

        For devices that keep buffers (`Capabilities.keeps_buffers`): what a batch saves is the way of every step through
        checks and events. There are loops among the steps where the capabilities state `loops`.
        """
        return None


class Device(ABC):
    """One place where kernels run."""

    id: str
    """``<driver>:<number>``, such as ``interp:0``."""
    name: str
    """What a person calls it ("AMD EPYC")."""
    target: Target
    capabilities: Capabilities
    compiler: Compiler
    executor: Executor
    memory: Memory
    isolated: bool = False
    """Its driver runs in a process of its own (see `tile_hal.isolation`)."""
    versions: Mapping[str, str] = {}
    """Optional: what is beneath the plugin and its version, such as ``{"driver": "550.54", "firmware": "1.2"}``."""

    @property
    def exporter(self) -> Exporter | None:
        """Optional: writes programs for use without Python (see `tile_hal.ahead`)."""
        return None

    def __repr__(self) -> str:
        return f"<device {self.id}: {self.name}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: its name, and what it can do."""
        from html import escape

        dtypes = ", ".join(d.value for d in DType if d in self.capabilities.dtypes)
        facts = {
            "target": self.target.name,
            "runs": "programs" if self.capabilities.executes else "nothing: it compiles only",
            "dtypes": dtypes,
            "memory": f"{self.memory.size_goal / 2**30:.1f} GiB",
            **self.versions,
        }
        rows = "".join(f"<tr><th>{escape(n)}</th><td>{escape(str(v))}</td></tr>" for n, v in facts.items())
        return f"<table><caption>{escape(f'{self.id}: {self.name}')}</caption>{rows}</table>"


class DeviceSet(ABC):
    """Devices that share a context."""

    @property
    @abstractmethod
    def devices(self) -> Sequence[Device]: ...


class Driver(ABC):
    """One API to hardware; `name` prefixes its device ids."""

    name: str
    api: tuple[int, int]
    """The `HAL_API` that it was written for. Stated, not computed: it says what the author knew."""
    requires: frozenset[str] | None = None
    """Names of the optional features (`tile_hal.FEATURES`) that it cannot do without: then any tile-hal of the same major version
    that has those may load it. None: all of `api`, as far as it goes."""
    priority: int | None = 0
    """The default device is the first one of the driver with the highest number, names deciding between equals;
    a driver with None is never asked. Whoever runs on real hardware states 0 or more."""

    @abstractmethod
    def device_sets(self) -> Sequence[DeviceSet]:
        """Probe; called once, when devices are first asked for. No hardware is an empty list, not an error."""

    def doctor(self) -> Sequence[str]:
        """Lines that say what is there, what is missing and which command installs it."""
        return ()
