"""Building programs ahead of time: what a C function is called and takes, and what a device writes for it.

`tile_runtime.build` asks a device's `Exporter`; the files need neither Python nor this package when they run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import field
from enum import IntEnum
from math import prod

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.kernels import KernelList
from tile_ir.target import Target

C_TYPES: Mapping[DType, str] = {
    DType.BOOL: "uint8_t", DType.FLOAT16: "uint16_t", DType.BFLOAT16: "uint16_t", DType.FLOAT32: "float",
    DType.FLOAT64: "double",
} | {d: f"{d}_t" for d in DType if d.is_integer}  # fmt: skip
"""Booleans are bytes that are 0 or 1; 16-bit floats are their bits."""

ABI = 1
"""The version of the calling convention, which the function ``<name>_abi`` returns: what a header declares."""


class Status(IntEnum):
    """What a C function returns."""

    OK = 0
    PROCESSOR = 1
    """The processor lacks instructions that the code was built for."""
    NULL = 2
    """A pointer is null."""
    ALIGNMENT = 3
    """An address is no multiple of what the header states."""
    OVERLAP = 4
    """An output has memory in common with an input or another output."""
    MEMORY = 5
    """Memory for intermediate results could not be allocated."""
    DEVICE = 6
    """The device, or its driver, refused something."""


@frozen
class Parameter:
    """One parameter of a C function."""

    name: str
    """A C identifier, unlike the others."""
    dtype: DType
    shape: tuple[int, ...]
    buffer: int | None
    """The kernel list's buffer; None for an input that nothing reads."""
    output: bool = False
    align: int = 1
    """What the address is a multiple of, in bytes."""

    @property
    def by_value(self) -> bool:
        """Numbers are passed themselves."""
        return not self.output and not self.shape

    @property
    def declaration(self) -> str:
        kind = C_TYPES[self.dtype]
        if self.by_value:
            return f"{kind} {self.name}"
        return f"{kind} *{self.name}" if self.output else f"const {kind} *{self.name}"

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.bytes


@frozen
class Entry:
    """A C function: the inputs, then the outputs."""

    name: str
    parameters: tuple[Parameter, ...]
    threads: int = 1
    """Threads that a call may use, the caller's among them."""

    @property
    def signature(self) -> str:
        """The parameters as C declares them."""
        return ", ".join(p.declaration for p in self.parameters) or "void"

    @property
    def prototype(self) -> str:
        return f"int32_t {self.name}({self.signature});"


@frozen
class ObjectFile:
    """A relocatable object file, and the symbols that others refer to."""

    code: bytes
    symbols: tuple[str, ...]


@frozen
class Exported:
    """What a device writes: object files to be linked, or files of text by suffix."""

    objects: tuple[ObjectFile, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict[str, str])


class Exporter(ABC):
    """Writes a program for use without Python; the `exporter` of a device that can do so."""

    links: bool = True
    """It writes object files, which are linked into a library, and no texts."""

    @property
    @abstractmethod
    def targets(self) -> Mapping[str, str]:
        """What code can be written for: names, and a sentence on each; the first is the default."""

    @abstractmethod
    def target(self, name: str, threads: int) -> Target:
        """What programs are compiled for; `name` is one of `targets`."""

    @abstractmethod
    def export(self, kernels: KernelList, entry: Entry, name: str) -> Exported:
        """The files for kernels compiled for the target `name`; none of the steps is to be done once (`tile_hal.folding`)."""
