"""Invokers: a function with inputs and outputs set one by one, as in PlaidML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tile_hal.interfaces import Device
from tile_ir.diagnostics import Diagnostic, TileTypeError

from tile_runtime.evaluator import default_evaluator
from tile_runtime.function import Callable_


class Invoker:
    """Collects arguments by name; `invoke` runs the function and may be called again."""

    def __init__(self, function: Callable_, *, device: Device | str | None = None) -> None:
        self.function = function
        self._device = device
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, Any] = {}

    def set_input(self, name: str, value: Any) -> Invoker:
        """Bind an input (array or Tensor); returns self. TileTypeError for an unknown name."""
        self._check(name, self.function.arguments, "input")
        self._inputs[name] = value
        return self

    def set_inputs(self, values: Mapping[str, Any]) -> Invoker:
        for name, value in values.items():
            self.set_input(name, value)
        return self

    def set_output(self, name: str, value: Any) -> Invoker:
        """Give the array or Tensor that receives an output; returns self."""
        self._check(name, self.function.outputs, "output")
        self._outputs[name] = value
        return self

    def invoke(self) -> Any:
        """Run; the results as a call of the function gives them."""
        out = None
        if self._outputs:
            missing = [n for n in self.function.outputs if n not in self._outputs]
            if missing:
                raise TileTypeError(
                    Diagnostic("TILE-E507", f"outputs {', '.join(missing)} are not set", hint="set all outputs or none")
                )
            out = tuple(self._outputs[n] for n in self.function.outputs)
        evaluator = default_evaluator(self._device, (), self._inputs)
        return evaluator(self.function, out=out, **self._inputs)

    def _check(self, name: str, names: tuple[str, ...], kind: str) -> None:
        if name not in names:
            message = f"function {self.function.name!r} has no {kind} {name!r}"
            raise TileTypeError(Diagnostic("TILE-E504", message, hint=f"its {kind}s are {', '.join(names)}"))
