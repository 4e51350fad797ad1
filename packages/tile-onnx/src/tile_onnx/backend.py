"""The interface of `onnx.backend`: for ONNX's own tests, and for programs that choose a backend by it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto
from onnx.backend.base import Backend, BackendRep, namedtupledict

from tile_onnx.model import Model, load


class TileBackendRep(BackendRep):
    """A model that is ready to run."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        """Outputs in the model's order, for inputs in the model's order or by name."""
        names = self.model.input_names
        feeds = dict(inputs) if isinstance(inputs, dict) else dict(zip(names, inputs, strict=False))
        found = self.model.run({n: v if v is None or isinstance(v, list) else np.asarray(v) for n, v in feeds.items()})
        return namedtupledict("Outputs", list(found))(*found.values())


class TileBackend(Backend):
    """Tile as a backend of ONNX: `device` is "CPU", for the default device, or the name of a device of Tile."""

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **_: Any) -> TileBackendRep:
        """The model, for `run`."""
        return TileBackendRep(load(model, None if device == "CPU" else device))

    @classmethod
    def run_node(
        cls, node: NodeProto, inputs: Any, device: str = "CPU", outputs_info: Sequence[Any] | None = None, **more: Any
    ) -> tuple[Any, ...]:
        """The outputs of a single node."""
        raise NotImplementedError

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether `device` can be used."""
        return device == "CPU"
