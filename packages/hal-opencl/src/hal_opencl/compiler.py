"""Kernel lists to OpenCL programs, one per distinct kernel or for some, built in the background."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol

from tile_hal.errors import Code, device_error
from tile_hal.host_queue import HostQueue
from tile_hal.interfaces import Compiler, Library
from tile_ir.diagnostics import TileError, TileInternalError
from tile_ir.dtype import DType
from tile_ir.kernels import KernelList, listed
from tile_ir.semtree.verify import verify
from tile_ir.settings import Settings

from hal_opencl import binding
from hal_opencl.context import DeviceContext
from hal_opencl.emit import matrix, registers, teams
from hal_opencl.emit.declarations import LEFT_OUT, declared
from hal_opencl.emit.dialect import Dialect
from hal_opencl.emit.source import Source, emit_kernel, gathered, joined, uses
from hal_opencl.emit.types import comment_text
from hal_opencl.endings import owner

_MAGIC = b"tile-opencl 3\n"
OPTIONS = ("-cl-std=CL1.2",)
"""No fast-math: the device's own functions keep the bounds of OpenCL's full profile."""
FAST_OPTIONS = ("-cl-std=CL1.2", "-cl-mad-enable", "-cl-no-signed-zeros")
BUILDERS = 4
"""Programs that are built at once."""


def build(context: Any, device: Any, text: str, options: Sequence[str]) -> binding.RawProgram:
    """A program from its source; with products of teams of sub-groups by way of its PTX (`hal_opencl.emit.teams`)."""
    program = binding.build_source(context, device, text, options)
    if teams.HIDDEN not in text:
        return program
    ptx = binding.binary_of(program).rstrip(b"\0").decode("ascii", "replace")
    return binding.build_binary(context, device, teams.retargeted(ptx).encode(), options)


class Program(Protocol):
    """A program, finished or still being built."""

    def result(self) -> binding.RawProgram:
        """Waits for it; BuildError when it does not compile."""
        ...


@dataclass(frozen=True, slots=True)
class Shared:
    """A kernel's program: one with others, or its own where the driver does not take them together."""

    together: Program
    alone: Callable[[], Program]

    def result(self) -> binding.RawProgram:
        try:
            return self.together.result()
        except binding.BuildError:
            return self.alone().result()


@owner
class OpenCLLibrary(Library):
    """Programs of a kernel list, finished or still being built."""

    def __init__(
        self,
        context: DeviceContext,
        kernels: KernelList,
        sources: Sequence[Source],
        programs: dict[str, Program],
        fingerprint: str,
    ) -> None:
        self.context = context
        self.kernels = kernels
        self.sources = sources
        self._programs = programs
        self._fingerprint = fingerprint

    def program(self, index: int) -> binding.RawProgram:
        """The built program of kernel `index`; TileDeviceError with the device's log when it does not compile."""
        try:
            return self._programs[self.sources[index].text].result()
        except binding.BuildError as problem:
            kernel = self.kernels.kernels[index].title
            message = f"{self.context.info.name} does not compile {kernel}:\n{problem}"
            raise device_error(Code.BUILD, message) from problem

    def serialize(self) -> bytes | None:
        try:
            built = [self._programs[source.text].result() for source in self.sources]
            numbers = {program: number for number, program in enumerate(dict.fromkeys(built))}
            binaries = [base64.b64encode(binding.binary_of(program)).decode() for program in numbers]
        except (binding.BuildError, binding.cl_error):
            return None
        kernels = [[numbers[p], s.entry, s.parts] for p, s in zip(built, self.sources, strict=True)]
        body = json.dumps({"programs": binaries, "kernels": kernels}).encode()
        header = {"fingerprint": self._fingerprint, "sha256": hashlib.sha256(body).hexdigest()}
        return _MAGIC + json.dumps(header).encode() + b"\n" + body

    def source(self) -> str:
        """The OpenCL C as the device's compiler gets it, each kernel behind a line that says what it is part of."""
        labels: dict[str, dict[str, None]] = {}
        for kernel, source in zip(self.kernels.kernels, self.sources, strict=True):
            labels.setdefault(source.text, {}).update(dict.fromkeys(kernel.labels))
        parts = ((_remark(tuple(labels[text])), text) for text in self._programs)
        return "\n".join(line for pair in parts for line in pair if line)

    def assembly(self) -> str:
        """What the driver gives as binary, where it is text (PTX on NVIDIA)."""
        texts: list[str] = []
        for program in dict.fromkeys(program.result() for program in self._programs.values()):
            data = binding.binary_of(program).rstrip(b"\0")
            if data.isascii() and b"\0" not in data:
                texts.append(data.decode())
        return "\n".join(texts)


def _remark(labels: Sequence[str]) -> str:
    return "".join(f"// part of {line}" for line in comment_text(listed(labels)))


class OpenCLCompiler(Compiler):
    """Compiles for one device."""

    def __init__(self, context: DeviceContext) -> None:
        self._context = context
        self._builders = HostQueue(BUILDERS, "hal-opencl-build")

    def build(self, kernels: KernelList) -> OpenCLLibrary:
        sources = self.emit(kernels)
        options = FAST_OPTIONS if kernels.target.options.fast_math else OPTIONS
        programs: dict[str, Program] = {}
        for group in gathered(sources, self._context.kernels_of_a_program):
            programs |= self._started(group, options)
        return OpenCLLibrary(self._context, kernels, sources, programs, self.fingerprint)

    def _started(
        self, group: Sequence[Source], options: Sequence[str], binary: bytes | None = None
    ) -> dict[str, Program]:
        """The program of each kernel by its text; of several at once, one for all."""
        whole = self._start(joined(group), options, binary)
        if len(group) == 1:
            return {group[0].text: whole}
        return {s.text: Shared(whole, partial(self._start, s.text, options)) for s in group}

    def _start(self, text: str, options: Sequence[str], binary: bytes | None = None) -> Program:
        context, device = self._context.raw, self._context.info.raw
        if registers.HINTED in text:
            options = (*options, registers.OPTION)
        if matrix.CONTRACTED in text:
            options = (*options, matrix.CONTRACTS)

        def work() -> binding.RawProgram:
            with self._context.guard:
                if binary is not None:
                    try:
                        return binding.build_binary(context, device, binary, options)
                    except binding.BuildError:
                        pass  # an older driver's code: the source is there
                return self._built(text, options)

        return self._builders.later(work)

    def _built(self, text: str, options: Sequence[str]) -> binding.RawProgram:
        context, device = self._context.raw, self._context.info.raw
        if self._context.declares_too_much:
            with suppress(binding.BuildError):  # of a text that calls what it does not declare
                return build(context, device, declared(text) + text, (*options, LEFT_OUT))
        return build(context, device, text, options)

    def emit(self, kernels: KernelList) -> list[Source]:
        """The source of each kernel."""
        info = self._context.info
        allowed = kernels.target.options
        on_cpu, reduced = info.kind == "cpu", allowed.rounds(DType.FLOAT16)
        dialect = Dialect(
            allowed.fast_math, on_cpu, info.vector_bytes, info.ptx, reduced, info.teams, bool(info.products)
        )
        check = Settings.from_environment().verify
        sources: list[Source] = []
        for kernel in kernels.kernels:
            if kernel.function is None:
                raise TileInternalError(f"kernel {kernel.name!r} has no semtree: this device needs it")
            if check:
                verify(kernel.function, kernels.target.nodes)
            try:
                if not self._context.info.fp64 and uses(kernel.function, DType.FLOAT64):
                    raise device_error(Code.BUILD, f"{self._context.info.name} has no float64 ({kernel.title})")
                sources.append(emit_kernel(kernel, dialect))
            except (TileError, TileInternalError):
                raise
            except (KeyError, TypeError, ValueError) as problem:
                raise TileInternalError(f"kernel {kernel.name!r} is no valid semtree: {problem!r}") from problem
        return sources

    def deserialize(self, kernels: KernelList, data: bytes) -> OpenCLLibrary:
        library = self.load(kernels, data)
        if library.sources != self.emit(kernels):
            raise ValueError("the compiled kernels belong to other kernels")
        return library

    def load(self, outline: KernelList, data: bytes) -> OpenCLLibrary:
        sources, binaries = self._unpacked(data)
        if len(sources) != len(outline.kernels):
            raise ValueError("the compiled kernels belong to other kernels")
        options = FAST_OPTIONS if outline.target.options.fast_math else OPTIONS
        programs: dict[str, Program] = {}
        for group, code in binaries.items():
            programs |= self._started(group, options, code)
        return OpenCLLibrary(self._context, outline, sources, programs, self.fingerprint)

    def _unpacked(self, data: bytes) -> tuple[list[Source], dict[tuple[Source, ...], bytes]]:
        """The source of each kernel, and the binaries, each of some distinct ones; ValueError for foreign and damaged bytes."""
        if not data.startswith(_MAGIC):
            raise ValueError("these bytes are no compiled kernels of an OpenCL device")
        try:
            head, body = data[len(_MAGIC) :].split(b"\n", 1)
            header = json.loads(head)
            if header["sha256"] != hashlib.sha256(body).hexdigest():
                raise ValueError("another content")
            document = json.loads(body)
            kernels = [
                (int(number), Source(tuple(map(str, parts)), str(entry)))
                for number, entry, parts in document["kernels"]
            ]
            binaries = {
                tuple(dict.fromkeys(source for n, source in kernels if n == number)): base64.b64decode(code)
                for number, code in enumerate(document["programs"])
            }
            if {number for number, _ in kernels} != {*range(len(document["programs"]))}:
                raise ValueError("kernels without a program, or the reverse")
        except (ValueError, KeyError, TypeError, IndexError) as problem:
            raise ValueError("the compiled kernels are damaged") from problem
        if header.get("fingerprint") != self.fingerprint:
            raise ValueError("the kernels were compiled for another device, driver or version")
        return [source for _, source in kernels], binaries

    @property
    def fingerprint(self) -> str:
        info = self._context.info
        parts = [_version(), f"pyopencl {binding.version()}", info.platform, info.platform_version, info.name,
                 info.version, info.driver]  # fmt: skip
        return " | ".join(parts)


def _version() -> str:
    try:
        return f"hal-opencl {version('hal-opencl')}"
    except PackageNotFoundError:
        return "hal-opencl"
