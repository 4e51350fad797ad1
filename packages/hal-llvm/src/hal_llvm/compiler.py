"""Kernel lists to machine code, and machine code to bytes and back.

What writes code is imported when there is some to write: programs from the disk cache do without it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from itertools import accumulate, islice, pairwise
from typing import TYPE_CHECKING

from tile_hal.errors import Code, device_error
from tile_hal.interfaces import Compiler, Library
from tile_ir.collector import uncollected
from tile_ir.deadline import check
from tile_ir.diagnostics import TileInternalError, shown
from tile_ir.kernels import Kernel, KernelList
from tile_ir.outline import is_outline
from tile_ir.settings import Settings

from hal_llvm import binding
from hal_llvm.cpu import family, family_target, present
from hal_llvm.dots import forms

if TYPE_CHECKING:
    from hal_llvm.emit.code import Machine
    from hal_llvm.emit.module import Emitted

_MAGIC = b"tile-llvm 3\n"


def machine_for(processor: binding.Processor) -> Machine:
    """What emission must know of a processor."""
    from hal_llvm.emit.code import Machine

    settings = family_target(family(processor.triple, processor.features)).settings
    arm = processor.triple.startswith(("aarch64", "arm64"))
    features = present(processor.features)
    short = {"avx512bf16", "avx512dq"} <= features
    numbers = {"native_minmax": arm, "native_saturation": arm, "rounds_bfloat16": short}
    return Machine(settings.vector_bytes, settings.fma, dots=forms(features), **numbers)


class LlvmLibrary(Library):
    """Loaded machine code of a kernel list."""

    def __init__(
        self,
        kernels: KernelList,
        processor: binding.Processor,
        objects: Sequence[bytes],
        scratch: tuple[int, ...],
        polls: tuple[bool, ...],
    ) -> None:
        self.kernels = kernels
        self.scratch = scratch
        """Scratch bytes per thread, for each kernel."""
        self.polls = polls
        """For each kernel whether it has loops so long that they ask whether to stop."""
        self._processor = processor
        self._objects = tuple(objects)
        symbols = [name for n in range(len(kernels.kernels)) for name in (f"kernel{n}", f"kernel{n}.all")]
        self.code = binding.LoadedCode(objects, symbols)

    def serialize(self) -> bytes:
        code = b"".join(self._objects)
        header = {
            "fingerprint": fingerprint(self._processor),
            "kernels": len(self.kernels.kernels),
            "scratch": self.scratch,
            "polls": self.polls,
            "objects": [len(o) for o in self._objects],
            "sha256": hashlib.sha256(code).hexdigest(),
        }
        return _MAGIC + json.dumps(header).encode() + b"\n" + code

    def source(self) -> str:
        """The LLVM IR of all kernels; longer ones are compiled in several modules of the same functions.

        "" for a library that was loaded without the kernels' bodies.
        """
        if is_outline(self.kernels):
            return ""
        from hal_llvm.emit.module import emit_module

        heads = [_head(number, kernel) for number, kernel in enumerate(self.kernels.kernels)]
        return "\n".join([*heads, emit_module(self.kernels.kernels, machine_for(self._processor)).text])

    def assembly(self) -> str:
        ir = self.source()
        return assembly(ir, self._processor) if ir else ""


def _head(number: int, kernel: Kernel) -> str:
    """A line of IR that says what people call a kernel."""
    return f"; @kernel{number} is {shown(kernel.title)}"


def assembly(ir: str, processor: binding.Processor) -> str:
    """Machine code of IR as text, for any processor LLVM knows."""
    module = binding.Module(ir, binding.target_machine(processor))
    try:
        return module.assembly()
    finally:
        module.close()


def fingerprint(processor: binding.Processor) -> str:
    """Everything that object code depends on besides the kernels."""
    llvmlite, llvm = binding.versions()
    features = hashlib.sha256(processor.used.encode()).hexdigest()[:16]
    return f"{_version()} llvmlite {llvmlite} llvm {llvm} {processor.triple} {processor.cpu} {features}"


def _version() -> str:
    """Sources that run without being installed have no version."""
    try:
        return f"hal-llvm {version('hal-llvm')}"
    except PackageNotFoundError:
        return "hal-llvm"


class LlvmCompiler(Compiler):
    """Compiles for this machine's processor, on up to `threads` threads."""

    def __init__(self, processor: binding.Processor, threads: int = 1) -> None:
        self.processor = processor
        self.threads = threads

    @cached_property
    def _machine(self) -> Machine:
        return machine_for(self.processor)

    def build(self, kernels: KernelList) -> LlvmLibrary:
        from hal_llvm.objects import object_files

        emitted: list[Emitted] = []
        try:
            with uncollected():
                objects = object_files(self._sources(kernels, emitted), self.processor, self.threads)
        except RuntimeError as problem:
            raise device_error(Code.BUILD, f"LLVM does not accept the kernels: {problem}") from problem
        scratch = tuple(n for module in emitted for n in module.scratch)
        return LlvmLibrary(kernels, self.processor, objects, scratch, tuple(p for m in emitted for p in m.polls))

    def _sources(self, kernels: KernelList, emitted: list[Emitted]) -> Iterator[str]:
        """IR of each module, which goes into `emitted` too."""
        rest = iter(kernels.kernels)
        for module in self._emit(kernels):
            for kernel in islice(rest, len(module.scratch)):
                check("machine code of", kernel.name)
            emitted.append(module)
            yield module.text

    def _emit(self, kernels: KernelList) -> Iterator[Emitted]:
        from hal_llvm.emit.module import emit_modules

        if Settings.from_environment().verify:
            from tile_ir.semtree.verify import verify

            for kernel in kernels.kernels:
                if kernel.function is not None:
                    verify(kernel.function, kernels.target.nodes)
        try:
            yield from emit_modules(kernels.kernels, self._machine)
        except KeyError as unknown:
            raise TileInternalError(f"the llvm device has no operation {unknown}") from unknown

    def deserialize(self, kernels: KernelList, data: bytes) -> LlvmLibrary:
        return self.load(kernels, data)

    def load(self, outline: KernelList, data: bytes) -> LlvmLibrary:
        if not data.startswith(_MAGIC):
            raise ValueError("these bytes are no compiled kernels of the llvm device")
        try:
            head, code = data[len(_MAGIC) :].split(b"\n", 1)
            header = json.loads(head)
            right = header["sha256"] == hashlib.sha256(code).hexdigest()
            scratch = tuple(int(n) for n in header["scratch"])
            polls = tuple(bool(p) for p in header["polls"])
            ends = [0, *accumulate(int(n) for n in header["objects"])]
        except (ValueError, KeyError, TypeError) as problem:
            raise ValueError("the compiled kernels are damaged") from problem
        if not right or not len(scratch) == len(polls) == len(outline.kernels):
            raise ValueError("the compiled kernels are damaged or belong to other kernels")
        if header.get("fingerprint") != self.fingerprint:
            raise ValueError("the kernels were compiled by another version or for another processor")
        try:
            objects = [code[start:stop] for start, stop in pairwise(ends)]
            return LlvmLibrary(outline, self.processor, objects, scratch, polls)
        except RuntimeError as problem:
            raise ValueError(f"the compiled kernels cannot be loaded: {problem}") from problem

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.processor)
