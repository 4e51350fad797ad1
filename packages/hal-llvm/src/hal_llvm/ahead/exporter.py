"""Object files of a program: its kernels' modules, its constants, and the C function."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from tile_hal.ahead import Entry, Exported, Exporter, ObjectFile
from tile_hal.errors import Code, device_error
from tile_ir.kernels import BufferKind, KernelList
from tile_ir.target import Target

from hal_llvm import binding
from hal_llvm.ahead import levels
from hal_llvm.cpu import host_target

if TYPE_CHECKING:
    from hal_llvm.emit.module import Emitted

_KERNEL = re.compile(r'@"?(kernel\d+(?:\.all)?)"?\(')
_ESCAPES = np.array([f"\\{byte:02X}" for byte in range(256)], "S3")


class LlvmExporter(Exporter):
    """Object files for the processors of this machine's architecture."""

    def __init__(self, threads: int) -> None:
        """`threads` generate code at once."""
        self._threads = threads

    @property
    def targets(self) -> Mapping[str, str]:
        return levels.names(binding.host().triple)

    def target(self, name: str, threads: int) -> Target:
        processor = levels.processor(name)
        if name == levels.HOST:
            return host_target(processor.triple, processor.features, threads)
        # The level's own numbers: those of the machine that builds say nothing of the one that runs.
        return host_target(processor.triple, processor.features, threads, (), Path("/nowhere"))

    def export(self, kernels: KernelList, entry: Entry, name: str) -> Exported:
        from hal_llvm.ahead.entry import Compiled, entry_ir
        from hal_llvm.objects import object_files

        processor = levels.processor(name)
        binding.accept_inline_assembly()
        emitted: list[Emitted] = []
        modules = list(self._modules(kernels, entry.name, processor, emitted))
        scratch = tuple(n for module in emitted for n in module.scratch)
        whole = levels.fits_ir(entry.name, processor) + entry_ir(entry, Compiled(kernels, scratch))
        plain = [whole, *_constants(kernels, entry.name)]
        try:
            codes = [
                *object_files(plain, levels.plain(processor), 1),
                *object_files(modules, processor, self._threads),
            ]
        except RuntimeError as problem:
            raise device_error(Code.BUILD, f"LLVM does not accept the program: {problem}") from problem
        texts = (*plain, *modules)
        return Exported(tuple(ObjectFile(c, _defined(text)) for c, text in zip(codes, texts, strict=True)))

    def _modules(
        self, kernels: KernelList, name: str, processor: binding.Processor, emitted: list[Emitted]
    ) -> Iterator[str]:
        """The kernels' IR, its symbols the program's own: two libraries may be linked into one."""
        from hal_llvm.compiler import machine_for
        from hal_llvm.emit.module import emit_modules

        for module in emit_modules(kernels.kernels, machine_for(processor)):
            emitted.append(module)
            text = _KERNEL.sub(rf'@"{name}.\1"(', module.text)
            yield text.replace(f'define void @"{name}.', f'define hidden void @"{name}.')


_DEFINED = re.compile(r'^(?:define(?: hidden)? \S+ |)@"?([\w.$]+)"?(?:\(| = hidden constant)', re.MULTILINE)


def _defined(text: str) -> tuple[str, ...]:
    """The symbols of a module that others see."""
    return tuple(_DEFINED.findall(text))


def _constants(kernels: KernelList, name: str) -> Iterator[str]:
    """IR of the constants' bytes."""
    data = {c.name: c.data for c in kernels.constants}
    used = [b for b in kernels.buffers if b.kind is BufferKind.CONST and b.name in data]
    for info in used:
        text = _ESCAPES[np.frombuffer(data[info.name], np.uint8)].tobytes().decode()
        yield f'@"{name}.constant{info.id}" = hidden constant [{info.bytes} x i8] c"{text}", align 64\n'
