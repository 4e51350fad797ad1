"""What a task runs: one program for all chunks of a form, compiled once in each process that meets it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from tile_ir.diagnostics import TileError
from tile_ir.program.nodes import Program, TensorType
from tile_runtime.function import BaseFunction
from tile_runtime.typed import program_digest

Device = str | Callable[[], str] | None
"""A device's name; or what gives one where it is called, on the worker; None: the worker's default device."""


class Kernel(BaseFunction):
    """A program as a function with one result."""

    def __init__(self, program: Program, of: str, device: Device = None) -> None:
        """`of` says in error messages what it computes a chunk of."""
        self.program, self.of, self._device = program, of, device
        self.name = program.name
        self.inputs = tuple(p.name for p in program.inputs)
        self.outputs = tuple(name for name, _ in program.outputs)

    @cached_property
    def key(self) -> tuple[str, str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return ("program", program_digest(self.program))

    def bind(self, types: Mapping[str, TensorType]) -> Program:
        return self.program

    def run(
        self, arrays: Sequence[np.ndarray[Any, Any]], numbers: Sequence[int], place: object
    ) -> np.ndarray[Any, Any]:
        """The chunk at `place`, from boxes of arrays and the numbers that tell chunks of one form apart.

        A TileError of the device gets a note that says which chunk of what it is about.
        """
        device = self._device() if callable(self._device) else self._device
        try:
            return np.asarray(self(*arrays, *map(np.int32, numbers), device=device))
        except TileError as problem:
            problem.add_note(f"in chunk {place} of {self.of}")
            raise

    def __reduce__(self) -> tuple[type[Kernel], tuple[Program, str, Device]]:
        return (Kernel, (self.program, self.of, self._device))
