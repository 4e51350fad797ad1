"""Models that PyTorch's two exporters write, beside ONNX Runtime; where PyTorch and ONNX Runtime are (`python3 dev.py models`)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tile_onnx

ort = pytest.importorskip("onnxruntime", reason="the peer is ONNX Runtime")
pytest.importorskip("torch", reason="PyTorch exports these models")
pytest.importorskip("onnxscript", reason="PyTorch's exporter needs onnxscript")
exported = pytest.importorskip("exported")

UNTRACED = ("transformer",)
"""What PyTorch's older exporter cannot trace."""
CASES = [
    pytest.param(name, dynamo, id=f"{name}-{'exported' if dynamo else 'traced'}")
    for name in exported.MODULES
    for dynamo in (False, True)
    if dynamo or name not in UNTRACED
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "dynamo"), CASES)
def test_an_exported_module(name: str, dynamo: bool, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    calls = exported.export(name, str(path), dynamo=dynamo)
    model, peer = tile_onnx.load(path, "llvm"), ort.InferenceSession(str(path))
    for call in calls:
        feeds = {n: v.numpy() for n, v in call.items()}
        for found, wanted in zip(model.run(feeds).values(), peer.run(None, feeds), strict=True):
            assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
            scale = float(np.abs(wanted).max(initial=1e-30))
            np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-5 * scale)
