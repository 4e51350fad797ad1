"""Small models for tests, written in ONNX's own text form."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser


def model(text: str, *, opset: int = 17, **constants: np.ndarray) -> onnx.ModelProto:
    """The model of ``(float[N] x) => (float[N] y) { y = Relu(x) }``, with arrays by name as initializers."""
    made = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}, "local" : 1]> main {text}')
    made.graph.initializer.extend(onnx.numpy_helper.from_array(v, n) for n, v in constants.items())
    return made


def peer(proto: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What ONNX Runtime makes of it."""
    import onnxruntime

    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))
