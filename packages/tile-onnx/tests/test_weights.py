"""Weights are read where they lie in the file, and are what protobuf would have read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
import tile_onnx
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from tile_ir.diagnostics import TileError
from tile_onnx.weights import LARGE, lifted

RANDOM = np.random.default_rng(11)
ARRAYS: dict[str, np.ndarray[Any, Any]] = {
    "w": RANDOM.standard_normal((40, 30)).astype(np.float32),
    "small": RANDOM.standard_normal((1, 30)).astype(np.float32),
    "half": RANDOM.standard_normal((50, 60)).astype(np.float16),
    "brain": RANDOM.standard_normal((50, 60)).astype(ml_dtypes.bfloat16),
    "bytes": RANDOM.integers(0, 255, (5, 1000)).astype(np.uint8),
    "four": RANDOM.integers(-8, 8, (99, 100)).astype(ml_dtypes.int4),
    "many": RANDOM.integers(0, 9, 1000),
    "empty": np.zeros((0, 4096), np.float32),
}


def model() -> onnx.ModelProto:
    tensors = [numpy_helper.from_array(a, n) for n, a in ARRAYS.items()]
    tensors.append(helper.make_tensor("listed", TensorProto.FLOAT, (2000,), np.arange(2000.0)))
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "small"], ["y"])],
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("N", 40))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ("N", 30))],
        tensors,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)])


CONTENT = model().SerializeToString()


def test_large_ones_are_views(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(CONTENT)
    parts = lifted(memoryview(CONTENT))
    large = [k for k, a in enumerate(ARRAYS.values()) if a.nbytes >= LARGE and a.dtype != ml_dtypes.int4]
    assert set(large) < set(parts.data)
    assert len(parts.message) < len(CONTENT) - sum(len(d) for d in parts.data.values())
    for source in (path, CONTENT, bytearray(CONTENT), model()):
        loaded = tile_onnx.load(source, "interp")
        for name, array in ARRAYS.items():
            found = loaded.graph.constants[name]
            assert (found.dtype, found.shape) == (array.dtype, array.shape)
            assert found.tobytes() == array.tobytes()
            assert not found.flags.writeable
        x = RANDOM.standard_normal((3, 40)).astype(np.float32)
        np.testing.assert_allclose(loaded(x)["y"], x @ ARRAYS["w"] + ARRAYS["small"], rtol=1e-5, atol=1e-5)


def test_a_file_may_be_replaced(tmp_path: Path) -> None:
    path, other = tmp_path / "model.onnx", tmp_path / "other.onnx"
    path.write_bytes(CONTENT)
    loaded = tile_onnx.load(path, "interp")
    other.write_bytes(b"another model")
    other.replace(path)
    assert loaded(np.ones((1, 40), np.float32))["y"].shape == (1, 30)


def test_bytes_may_change_later() -> None:
    content = bytearray(CONTENT)
    loaded = tile_onnx.load(content, "interp")
    content[:] = bytes(len(content))
    assert np.array_equal(loaded.graph.constants["w"], ARRAYS["w"])


@given(st.integers(0, len(CONTENT) - 1), st.binary(min_size=0, max_size=12), st.integers(0, 12))
def test_damaged_files(at: int, new: bytes, gone: int) -> None:
    """What protobuf reads is what is read; what it does not read is an error of ours."""
    content = CONTENT[:at] + new + CONTENT[at + gone :]
    try:
        wanted = onnx.ModelProto.FromString(content)
    except Exception:
        with pytest.raises(TileError):
            tile_onnx.load(content)
        return
    parts = lifted(memoryview(content))
    found = onnx.ModelProto.FromString(parts.message)
    for k, data in parts.data.items():
        found.graph.initializer[k].raw_data = bytes(data)
    assert found.SerializeToString(deterministic=True) == wanted.SerializeToString(deterministic=True)


@pytest.mark.parametrize(
    "content", [b"", b"\x00", b"\x3a", b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x3a\x02\x2a\x80"]
)
def test_what_is_no_model(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    for source in (content, path):
        with pytest.raises(TileError, match="no ONNX model"):
            tile_onnx.load(source)
