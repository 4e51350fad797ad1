"""Models: what `load` gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnx import ModelProto
from tile_ir import forking

from tile_onnx.engine import Engine, Language
from tile_onnx.reading import Imported, read

if TYPE_CHECKING:
    from tile_hal.interfaces import Device
    from tile_runtime.evaluator import Evaluator


def load(model: str | Path | bytes | ModelProto, device: Device | str | None = None) -> Model:
    """The model of a file, of its bytes, or of a message."""
    return Model(read(model), device)


class Model:
    """An imported model. Nothing is compiled before shapes are known; safe to use from any thread."""

    def __init__(self, imported: Imported, device: Device | str | None) -> None:
        self._device = device
        self._made: Evaluator | None = None
        self._lock = forking.lock()
        language = Language(imported.opsets, imported.functions)
        self._engine = Engine(imported.graph, language, lambda: self.evaluator)

    @property
    def input_names(self) -> tuple[str, ...]:
        """The inputs that a call gives, in order."""
        return self._engine.graph.inputs

    @property
    def evaluator(self) -> Evaluator:
        """What compiles and runs its programs; made, and its device opened, when first needed."""
        from tile_runtime.evaluator import Evaluator

        with self._lock:
            if self._made is None:
                self._made = Evaluator(self._device)
            return self._made

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None) -> dict[str, Any]:
        """Outputs by name."""
        wanted = tuple(outputs) if outputs is not None else self._engine.graph.outputs
        return self._engine.run(feeds, wanted)
