"""The device: what it can do, how its kernels are built, and how they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from importlib.util import find_spec
from itertools import product
from typing import Any

import numpy as np
from tile_hal import Buffer, Compiler, Device, DeviceSet, Event, HostBuffer, HostMemory, Kernel, Library
from tile_hal.errors import Code, device_error
from tile_hal.host import HostExecutor, HostQueue
from tile_ir import kernels as ir
from tile_ir.dtype import DType
from tile_ir.semtree.nodes import Access, Param
from tile_ir.semtree.verify import verify
from tile_ir.target import Capabilities, Target

from tile_sample.emitter import PythonPrinter, elements


@dataclass(frozen=True, slots=True)
class Built:
    """A kernel that is ready: the text of its function, and the function that Python made of it."""

    name: str
    params: tuple[Param, ...]
    groups: tuple[int, int, int]
    text: str
    function: Callable[..., None]

    @staticmethod
    def of(kernel: ir.Kernel, nodes: frozenset[str]) -> Built:
        """TileError when the kernel is malformed, uses other `nodes`, or Python refuses its text."""
        if kernel.function is None:
            raise device_error(Code.BUILD, f"kernel {kernel.name!r} has no semtree function")
        verify(kernel.function, nodes)
        printer = PythonPrinter()
        text, name = printer.function(kernel.function), printer.lookup(kernel.function.name)
        try:
            exec(compile(text, f"<{name}>", "exec"), printer.namespace)
        except (SyntaxError, RecursionError, MemoryError) as problem:
            raise device_error(Code.BUILD, f"Python does not compile {kernel.name!r}: {problem}") from problem
        return Built(kernel.name, kernel.function.params, kernel.groups, text, printer.namespace[name])


class SampleLibrary(Library):
    def __init__(self, kernels: Sequence[Built]) -> None:
        self.kernels = kernels

    def source(self) -> str:
        return "\n".join(kernel.text for kernel in self.kernels)


class SampleCompiler(Compiler):
    def __init__(self, nodes: frozenset[str]) -> None:
        self._nodes = nodes

    def build(self, kernels: ir.KernelList) -> Library:
        return SampleLibrary([Built.of(kernel, self._nodes) for kernel in kernels.kernels])

    @property
    def fingerprint(self) -> str:
        return f"tile-sample, tile-ir {version('tile-ir')}"


class SampleKernel(Kernel):
    """A launch calls the function once per work group."""

    def __init__(self, built: Built, queue: HostQueue) -> None:
        self._built, self._queue = built, queue

    def run(self, params: Sequence[Buffer], dependencies: Sequence[Event] = (), *, profile: bool = False) -> Event:
        built = self._built
        if len(params) != len(built.params):
            raise device_error(Code.PARAMETERS, f"{built.name!r} takes {len(built.params)} buffers, not {len(params)}")
        arrays = [self._elements(param, buffer) for param, buffer in zip(built.params, params, strict=True)]

        def work() -> None:
            with np.errstate(all="ignore"):
                for group in product(*map(range, built.groups)):
                    built.function(*arrays, *group)

        return self._queue.run(work, dependencies, profile=profile)

    def _elements(self, param: Param, buffer: Buffer) -> Any:
        """What generated code reads and writes; TileDeviceError for a buffer that does not fit."""
        where, dtype = f"parameter {param.name!r} of {self._built.name!r}", param.type.dtype
        if not isinstance(buffer, HostBuffer):
            raise device_error(Code.PARAMETERS, f"{where} is a {type(buffer).__name__}, not a buffer of this device")
        if buffer.nbytes < param.elements * dtype.bytes:
            raise device_error(
                Code.SIZE_MISMATCH, f"{where} needs {param.elements * dtype.bytes} bytes, not {buffer.nbytes}"
            )
        if buffer.readonly and param.access is not Access.READ:
            raise device_error(Code.READ_ONLY, f"{where} is written, but its buffer is read-only")
        return elements(buffer.as_array(dtype.numpy))


class SampleExecutor(HostExecutor):
    """Copies and fills are inherited."""

    def prepare(self, library: Library, index: int) -> Kernel:
        if not isinstance(library, SampleLibrary):
            raise device_error(Code.PARAMETERS, f"a {type(library).__name__} was not built for this device")
        if not 0 <= index < len(library.kernels):
            raise device_error(Code.PARAMETERS, f"the library has no kernel number {index}")
        return SampleKernel(library.kernels[index], self.queue)


class SampleDevice(Device):
    def __init__(self) -> None:
        self.id, self.name = "sample:0", "Python functions"
        self.target = Target.from_json(files("tile_sample").joinpath("target.json").read_text("utf-8"))
        self.capabilities = Capabilities(
            dtypes=frozenset(d for d in DType if d is not DType.BFLOAT16 or find_spec("ml_dtypes")),
            nodes=self.target.nodes,
            is_async=True,
        )
        self.compiler = SampleCompiler(self.target.nodes)
        self.executor = SampleExecutor(HostQueue(2, "tile-sample"))
        self.memory = HostMemory()


class SampleDeviceSet(DeviceSet):
    def __init__(self) -> None:
        self._devices = (SampleDevice(),)

    @property
    def devices(self) -> Sequence[Device]:
        return self._devices
