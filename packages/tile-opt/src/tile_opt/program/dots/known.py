"""Values that are known while compiling: constants, and what a few plain operations make of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from tile_ir import numerics
from tile_ir.ops import OPS
from tile_ir.program.liveness import defined_by
from tile_ir.program.nodes import ConstantTensor, Elementwise, Literal, Loop, Op, Operand, Reshape

Array = npt.NDArray[Any]

LARGEST = 1 << 16
"""Elements of a value that is still computed while compiling."""


@dataclass(slots=True)
class Known:
    """The elements of a program's values, found when first asked for."""

    made: Mapping[str, Op]
    found: dict[str, Array | None] = field(default_factory=dict[str, "Array | None"])

    @staticmethod
    def of(ops: Iterable[Op]) -> Known:
        return Known({name: op for op in ops for name in defined_by(op)})

    def value(self, operand: Operand) -> Array | None:
        """The elements of a value, or of a literal; None where a run may change them, or they are many."""
        if isinstance(operand, Literal):
            return np.asarray(operand.value, operand.dtype.numpy)
        if operand not in self.found:
            self.found[operand] = None
            self.found[operand] = self._computed(self.made.get(operand))
        return self.found[operand]

    def number(self, operand: Operand) -> float | int | None:
        """The one value that all elements have; None for others."""
        value = self.value(operand)
        if value is None or not value.size or (value != value.flat[0]).any():
            return None
        return value.flat[0].item()

    def _computed(self, op: Op | None) -> Array | None:
        if op is None or isinstance(op, Loop) or op.type.size > LARGEST:
            return None
        match op:
            case ConstantTensor(type=type):
                return np.frombuffer(op.data, type.dtype.numpy).reshape(type.shape)
            case Reshape(type=type, arg=arg):
                value = self.value(arg)
                return None if value is None else value.reshape(type.shape)
            case Elementwise(type=type, fn=fn, args=args) if fn in OPS and not op.params:
                values = [self.value(a) for a in args]
                given = [v for v in values if v is not None]
                made = len(given) == len(values)
                return np.broadcast_to(numerics.apply(fn, given, type.dtype), type.shape) if made else None
            case _:
                return None
