"""Mistakes of whoever calls a model, or loads what is none: each is named, with what would help."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tile_onnx
from onnx import TensorProto, helper, numpy_helper
from tile_ir.diagnostics import TileError

X, B = np.ones((2, 4), np.float32), np.ones(3, np.float32)


@pytest.fixture(scope="module")
def model() -> Any:
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "b"], ["y"])],
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4]), helper.make_tensor_value_info("b", TensorProto.FLOAT, [3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3])],
        [numpy_helper.from_array(np.ones((4, 3), np.float32), "w")],
    )  # fmt: skip
    return tile_onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), "interp")


class Unwilling:
    def __array__(self, *_: object, **__: object) -> np.ndarray[Any, Any]:
        raise RuntimeError("call detach() first")


FEEDS: dict[str, tuple[Any, str]] = {
    "another dtype": (
        {"x": X.astype("f8"), "b": B},
        r"float32\[N, 4\], float64\[2, 4\] was given(.|\n)*astype\('float32'\)",
    ),
    "truth values": ({"x": X > 0, "b": B}, r"bool\[2, 4\] was given"),
    "texts": ({"x": np.array([["a"] * 4]), "b": B}, r"was given(.|\n)*give an array, a Tensor or numbers"),
    "objects": ({"x": np.array([[1, None]], object), "b": B}, "an array of objects was given"),
    "nothing": ({"x": None, "b": B}, "NoneType was given"),
    "one that refuses": ({"x": Unwilling(), "b": B}, r"call detach\(\) first"),
    "ragged lists": ({"x": [[1, 2], [3]], "b": B}, "list was given"),
    "another rank": ({"x": X[0], "b": B}, "it has 2 dimensions, 1 were given"),
    "another size": ({"x": X[:, :3], "b": B}, "dimension 1 is 4, not 3"),
    "another case": (
        {"X": X, "b": B},
        r"no input 'X'(.|\n)*did you mean 'x'(.|\n)*input 'x', float32\[N, 4\], is missing",
    ),
    "one too many": ({"x": X, "b": B, "c": B}, "no input 'c'"),
    "no mapping": ([X, B], "a mapping from input names"),
}


@pytest.mark.parametrize("name", FEEDS)
def test_feeds(name: str, model: Any) -> None:
    feeds, message = FEEDS[name]
    with pytest.raises(TileError, match=message):
        model.run(feeds)


@pytest.mark.parametrize(
    "call",
    [lambda m: m(X, B, B), lambda m: m(X, x=X), lambda m: m.run({"x": X, "b": B}, 5), lambda m: m.run({"x": X, "b": B}, ["z"]),
     lambda m: m.prepare({"q": (2, 4)}), lambda m: m.prepare({"x": (-2, 4)}), lambda m: m.prepare()],
)  # fmt: skip
def test_calls(call: Callable[[Any], object], model: Any) -> None:
    with pytest.raises(TileError):
        call(model)


def test_arrays_of_any_layout(model: Any) -> None:
    wanted = X @ np.ones((4, 3), np.float32) + B
    for x in (X.tolist(), np.asfortranarray(X)[::-1], X.astype(">f4"), np.ma.masked_array(X, X > 5), X[:0]):
        np.testing.assert_array_equal(model.run({"x": x, "b": B})["y"], wanted[: len(x)])


LOOKS = {
    b"version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 12345\n": "Git LFS",
    b"PK\x03\x04" + bytes(90): "ZIP archive",
    b"<!DOCTYPE html><html>": "page of the web",
    b'{"irVersion": 8}': "JSON",
    b"\x1c\x00\x00\x00TFL3" + bytes(90): "TensorFlow Lite",
    b"hello": "onnx.save",
}


@pytest.mark.parametrize("content", LOOKS)
def test_files_that_are_no_models(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(TileError, match=rf"no ONNX model(.|\n)*{LOOKS[content]}"):
        tile_onnx.load(path)
    with pytest.raises(TileError, match="is a folder"):
        tile_onnx.load(tmp_path)


@pytest.mark.parametrize("opset", [18, 20])
def test_deprecated_operators_run(opset: int) -> None:
    """GroupNormalization of opset 18 has a scale for each group; LayerNormalization stands in models of older opsets."""
    x = np.arange(16, dtype=np.float32).reshape(1, 4, 4)
    graph = helper.make_graph(
        [helper.make_node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=2)], "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, x.shape)],
        [numpy_helper.from_array(np.array([1, 2], np.float32), "s"), numpy_helper.from_array(np.zeros(2, np.float32), "b")],
    )  # fmt: skip
    made = tile_onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]), "interp")(x)["y"]
    groups = x.reshape(1, 2, 8)
    wanted = (groups - groups.mean(2, keepdims=True)) / groups.std(2, keepdims=True) * np.array([[[1], [2]]])
    np.testing.assert_allclose(made, wanted.reshape(x.shape), rtol=1e-4)
    node = helper.make_node("LayerNormalization", ["x", "g"], ["y"])
    old = helper.make_graph([node], "n", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
                            [onnx.ValueInfoProto(name="y")], [numpy_helper.from_array(np.ones(4, np.float32), "g")])  # fmt: skip
    layer = tile_onnx.load(helper.make_model(old, opset_imports=[helper.make_opsetid("", 11)]), "interp")(x)["y"]
    np.testing.assert_allclose(
        layer, (x - x.mean(2, keepdims=True)) / np.sqrt(x.var(2, keepdims=True) + 1e-5), rtol=1e-4
    )
