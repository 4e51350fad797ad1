"""Invokers: a function with inputs and outputs set one by one, as in PlaidML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tile_hal.interfaces import Device

from tile_runtime.arguments import unknown_name
from tile_runtime.checks import check_function, wrong_kind
from tile_runtime.function import BaseFunction


class Invoker:
    """Collects arguments by name; `invoke` runs the function and may be called again."""

    def __init__(self, function: BaseFunction, *, device: Device | str | None = None) -> None:
        check_function(function)
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
        """`set_input` for each pair; returns self."""
        if not isinstance(values, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise wrong_kind("the values of inputs are a mapping", values, "such as {'A': a}")
        for name, value in values.items():
            self.set_input(name, value)
        return self

    def set_output(self, name: str, value: Any) -> Invoker:
        """Give the array or Tensor that receives an output; returns self. Outputs not set are made anew."""
        self._check(name, self.function.results, "output")
        self._outputs[name] = value
        return self

    def invoke(self) -> Any:
        """Run; the results as a call of the function gives them. May be called again."""
        out = tuple(map(self._outputs.get, self.function.results)) if self._outputs else None
        return self.function(device=self._device, out=out, **self._inputs)

    def _check(self, name: str, names: tuple[str, ...], kind: str) -> None:
        if name not in names:
            raise unknown_name(self.function, kind, name, names)
