"""The values of a block while it is walked, and what stands for values that a device has none of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tile_ir.program.nodes import TensorType
from tile_runtime.ops.values import Value

from tile_jax.lowering.mlir import Node
from tile_jax.lowering.recorder import Recorder


class _Token:
    """A value that only orders operations."""


TOKEN = _Token()


class Poison:
    """What an operation that is not supported gives: whatever needs it is passed over."""


class Poisoned(Exception):
    """A region that cannot be converted: its operations were reported."""


@dataclass(frozen=True, slots=True)
class Row:
    """A result that is `value` with `update`, one cell long along axis 0, at `place`."""

    result: Value
    value: Value
    update: Value
    place: Value


@dataclass(frozen=True, slots=True)
class Pair:
    """A complex value, and the real and imaginary part that it was put together from."""

    value: Value
    parts: tuple[Value, Value]


@dataclass(slots=True, eq=False)
class Scope:
    """A block that is being walked: its values so far, and the block around it."""

    recorder: Recorder
    outer: Scope | None = None
    lifted: bool = False
    values: dict[Node, Value] = field(default_factory=dict[Node, Any])
    captured: dict[Node, Value] | None = None
    """In the outermost block of a program within a program: what it takes from around it, as inputs."""

    def find(self, key: Node) -> Value:
        """The value as the device program at hand sees it."""
        if key in self.values:
            return self.recorder.current(self.values[key])
        if self.outer is None:
            raise KeyError(str(key))
        found = self.outer.find(key)
        return found if self.captured is None else self._capture(key, found)

    def _capture(self, key: Node, found: Value) -> Value:
        if not hasattr(found, "dtype") or not hasattr(found, "source"):
            return found  # its numbers are known, or it has none
        assert self.captured is not None
        self.captured[key] = found
        self.values[key] = self.recorder.input(TensorType(found.dtype, found.shape))
        return self.values[key]
