"""ONNX Runtime: the model that PyTorch's exporter makes of a case's expression."""

from __future__ import annotations

import io
import logging
import os
import warnings
from typing import Any

import onnxruntime
import torch
from classes import Work

from peers import Arrays, Contestants, pytorch


class _Module(torch.nn.Module):
    def __init__(self, work: Work) -> None:
        super().__init__()
        self.run = pytorch.function(work)

    def forward(self, *tensors: torch.Tensor) -> Any:
        return self.run(*tensors)


def contestants(work: Work, arrays: Arrays) -> Contestants:
    """One contestant. Raises what the exporter and the runtime do where they do not know an operation."""
    if not work.torch or work.gradients or work.eager:
        return {}
    tensors = next(iter(pytorch.operands(work, pytorch.on_host(arrays)).values()))
    session = onnxruntime.InferenceSession(_exported(work, tensors), _options(), providers=["CPUExecutionProvider"])
    given = {i.name: t.numpy() for i, t in zip(session.get_inputs(), tensors, strict=True)}
    return {"ONNX Runtime": lambda: session.run(None, given)[0]}


def _exported(work: Work, tensors: list[torch.Tensor]) -> bytes:
    file: Any = io.BytesIO()  # the old exporter takes one, whatever the annotation of the new one says
    names = list(work.inputs)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(_Module(work), tuple(tensors), file, input_names=names, dynamo=False, opset_version=17)
    return file.getvalue()


def _options() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ["OMP_NUM_THREADS"])
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options
