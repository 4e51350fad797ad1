"""The interface of `onnx.backend`: for ONNX's own tests, and for programs that choose a backend by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import onnx
from onnx import ModelProto, NodeProto, helper
from onnx.backend.base import Backend, BackendRep, namedtupledict

from tile_onnx.dtypes import element_type
from tile_onnx.model import Model, load
from tile_onnx.segments import type_of


class TileBackendRep(BackendRep):
    """A model that is ready to run."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        """Outputs in the model's order, for a list of inputs in the model's order or inputs by name."""
        names = [a.name for a in self.model.inputs]
        found = self.model.run(_by_name(names, inputs))
        return namedtupledict("Outputs", list(found))(*found.values())


class TileBackend(Backend):
    """Tile as a backend of ONNX: `device` is "CPU", for the default device, or a device of Tile such as "opencl:0"."""

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **_: Any) -> TileBackendRep:
        """The model, for `run`."""
        return TileBackendRep(load(model, None if device == "CPU" else device))

    @classmethod
    def run_node(
        cls, node: NodeProto, inputs: Any, device: str = "CPU", outputs_info: Sequence[Any] | None = None, **more: Any
    ) -> tuple[Any, ...]:
        """The outputs of a single node of the newest operator set, or of `opset_version`."""
        arrays = _by_name([n for n in node.input if n], inputs)
        infos = [_info(n, v) for n, v in arrays.items()]
        outputs = [onnx.ValueInfoProto(name=o) for o in node.output if o]
        version = int(more.get("opset_version", onnx.defs.onnx_opset_version()))
        graph = helper.make_graph([node], "node", infos, outputs)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid(node.domain, version)])
        return cls.prepare(model, device).run(arrays)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether `device` can be used; it is opened to find out."""
        from tile_ir.diagnostics import TileError
        from tile_runtime.devices import device as find

        try:
            find(None if device == "CPU" else device.lower())
        except TileError:
            return False
        return True


def _by_name(names: Sequence[str], inputs: Any) -> Mapping[str, Any]:
    if isinstance(inputs, Mapping):
        return cast("Mapping[str, Any]", inputs)
    return dict(zip(names, inputs, strict=False))


def _info(name: str, value: Any) -> onnx.ValueInfoProto:
    dtype, shape = type_of(value)
    return helper.make_tensor_value_info(name, element_type(dtype), shape)


prepare = TileBackend.prepare
run_model = TileBackend.run_model
run_node = TileBackend.run_node
supports_device = TileBackend.supports_device
