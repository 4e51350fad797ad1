"""Functions of arrays for any size of one dimension: what Python makes of placeholders, made again for each size."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence

from tile_ir.program.nodes import Program, TensorType
from tile_ir.recent import Recent

from tile_runtime.function import PROGRAMS, BaseFunction


class Resizable(BaseFunction):
    """What a Python function makes of placeholders, made again for each size of a first dimension."""

    def __init__(
        self,
        first: BaseFunction,
        again: Callable[[Sequence[TensorType]], Program],
        dynamic: tuple[str, ...],
        key: Hashable,
    ) -> None:
        """`again` gives the program for types of the inputs, `first` what it is called; `dynamic` names inputs."""
        self.name, self.inputs, self.outputs = first.name, first.inputs, first.outputs
        self.dynamic, self.key = dynamic, key
        self._again = again
        self._programs: Recent[tuple[TensorType, ...], Program] = Recent(PROGRAMS)

    def bind(self, types: Mapping[str, TensorType]) -> Program:
        key = tuple(types[n] for n in self.inputs)
        return self._programs.get(key, lambda: self._again(key))
