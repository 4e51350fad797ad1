"""What a task runs: one program for all chunks of a form, compiled once in each process that meets it."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property

from tile_hal.interfaces import Device as RuntimeDevice
from tile_ir.diagnostics import TileDeviceError
from tile_ir.program.nodes import Program, TensorType
from tile_ir.recent import Recent
from tile_runtime.devices import device as find_device
from tile_runtime.function import BaseFunction
from tile_runtime.typed import program_digest

from tile_dask.partitions import GRAPHICS, PROCESSOR, Speed

Device = str | Callable[[], str] | None
"""A device's name; or what gives one where it is called, on the worker; None: the worker's default device."""
CODES = 1024
"""Programs that a process keeps."""


def speed_of(device: Device) -> Speed:
    """What the workers' devices are like, as far as it is known here.

    Who gives a function has devices to tell apart, and what is not here but on workers is what they are kept for: both are taken for
    graphics processors. It says how loops are cut, never what comes of them.
    """
    if not callable(device):
        with suppress(TileDeviceError):
            return GRAPHICS if find_device(device).target.machine.is_gpu else PROCESSOR
    return GRAPHICS


class Code:
    """A program as it travels: it is pickled once, and unpickled once by each process that runs it."""

    def __init__(self, digest: str, packed: bytes) -> None:
        self.digest, self.packed = digest, packed

    @staticmethod
    def of(program: Program) -> Code:
        return _packed.get(id(program), lambda: _Packed(program)).code

    @cached_property
    def program(self) -> Program:
        return pickle.loads(self.packed)

    def __reduce__(self) -> tuple[Callable[[str, bytes], Code], tuple[str, bytes]]:
        return (_arrived, (self.digest, self.packed))


def _arrived(digest: str, packed: bytes) -> Code:
    return _codes.get(digest, lambda: Code(digest, packed))


class _Packed:
    """The code of a program, which it keeps, so that no other has its identity."""

    def __init__(self, program: Program) -> None:
        self.program, self.code = program, Code(program_digest(program), pickle.dumps(program, protocol=5))


_codes: Recent[str, Code] = Recent(CODES)
"""By digest: what came by pickles."""
_packed: Recent[int, _Packed] = Recent(CODES)
"""By the identity of the program."""


class Kernel(BaseFunction):
    """A program as a function with one result."""

    def __init__(self, code: Code, of: str, device: Device = None) -> None:
        """`of` says in error messages what it computes a chunk of."""
        self.of = of
        self._code, self._device = code, device
        self.key = ("program", code.digest)

    @property
    def program(self) -> Program:
        return self._code.program

    @cached_property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride] (asked for where it runs, as all below)
        return self.program.name

    @cached_property
    def inputs(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return tuple(p.name for p in self.program.inputs)

    @cached_property
    def outputs(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return tuple(name for name, _ in self.program.outputs)

    def bind(self, types: Mapping[str, TensorType]) -> Program:
        return self.program

    @property
    def packed(self) -> int:
        """Bytes of its program on its way."""
        return len(self._code.packed)

    @property
    def device(self) -> RuntimeDevice:
        """Of the worker that asks; TileDeviceError where it has none of that name."""
        return find_device(self._device() if callable(self._device) else self._device)

    def __reduce__(self) -> tuple[type[Kernel], tuple[Code, str, Device]]:
        return (Kernel, (self._code, self.of, self._device))
