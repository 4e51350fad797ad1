"""Inputs of any size in programs of few sizes: padded where that is exact, refused by name where it is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import tile_onnx
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from tile_ir.diagnostics import TileError
from tile_runtime.tensor import Tensor, asarray

Array = np.ndarray[Any, Any]
RANDOM = np.random.default_rng(3)


def drawn(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


def model(*nodes: onnx.NodeProto, dims: tuple[Any, ...], weights: dict[str, Array], outputs: tuple[str, ...] = ("y",)) -> onnx.ModelProto:  # fmt: skip
    """Nodes from x to the outputs."""
    graph = helper.make_graph(
        list(nodes),
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
        [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs],
        [numpy_helper.from_array(a, n) for n, a in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), name=f"{op}_{outputs}", **attributes)


PERCEPTRON = model(
    node("Gemm", "x w b", "h"), node("Relu", "h", "a"), node("Softmax", "a", "y"),
    dims=("N", 8), weights={"w": drawn(8, 5), "b": drawn(5)},
)  # fmt: skip
IMAGES = model(
    node("Conv", "x w b", "h", pads=[1, 1, 1, 1], strides=[2, 2]),
    node("Relu", "h", "a"),
    node("MaxPool", "a", "p", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    node("Conv", "p v", "q", pads=[1, 1, 1, 1]),
    node("GlobalAveragePool", "q", "y"),
    dims=("N", 3, 6, "W"), weights={"w": drawn(4, 3, 3, 3), "b": drawn(4), "v": drawn(6, 4, 3, 3)}, outputs=("y", "q"),
)  # fmt: skip
ATTENTION = model(
    node("MatMul", "x w", "q"), node("Transpose", "x", "t", perm=[0, 2, 1]), node("MatMul", "q t", "s"),
    node("Softmax", "s", "p", axis=-1), node("MatMul", "p x", "o"), node("Shape", "o", "z"),
    node("ReduceMean", "o one", "y", keepdims=0),
    dims=("N", "T", 8), weights={"w": drawn(8, 8), "one": np.array([1])}, outputs=("y", "o", "z"),
)  # fmt: skip


@settings(deadline=None, max_examples=12)
@given(batch=st.integers(1, 6), width=st.integers(3, 16))
@pytest.mark.parametrize("name", ["perceptron", "images", "attention"])
def test_padded_as_unpadded(name: str, batch: int, width: int, networks: dict[str, tuple[Any, Any]]) -> None:
    plain, padded = networks[name]
    shape = {"perceptron": (batch, 8), "images": (batch, 3, 6, width), "attention": (batch, width, 8)}[name]
    x = drawn(*shape)
    wanted, found = plain.run({"x": x}), padded.run({"x": x})
    assert {n: a.shape for n, a in found.items()} == {n: a.shape for n, a in wanted.items()}
    for key, array in wanted.items():
        np.testing.assert_allclose(found[key], array, rtol=2e-5, atol=2e-5)


@pytest.fixture(scope="module")
def networks() -> dict[str, tuple[Any, Any]]:
    buckets: dict[str, Any] = {"N": [2, 4], "W": [8, 16], "T": [5, 16]}
    made: dict[str, tuple[Any, Any]] = {}
    for name, proto in (("perceptron", PERCEPTRON), ("images", IMAGES), ("attention", ATTENTION)):
        dims = {d for a in tile_onnx.load(proto).inputs for d in a.shape or () if isinstance(d, str)}
        padded = tile_onnx.load(proto, "interp", buckets={d: buckets[d] for d in dims})
        made[name] = tile_onnx.load(proto, "interp"), padded
    return made


def test_one_program_serves_the_sizes_of_a_bucket() -> None:
    padded = tile_onnx.load(PERCEPTRON, "interp", buckets={"N": [4, 8]})
    for size in (1, 3, 4, 2, 5, 8, 7):
        padded(drawn(size, 8))
    assert len({s.function for p in padded._buckets._programs.values() for s in p.sizes.values() if s}) == 2  # pyright: ignore
    assert padded(drawn(9, 8))["y"].shape == (9, 5)  # beyond the last bucket: a program of its own


def test_tensors_stay_tensors() -> None:
    padded = tile_onnx.load(PERCEPTRON, "interp", buckets={"N": [4]})
    x = drawn(3, 8)
    found = padded(asarray(x, padded.evaluator.device))["y"]
    assert isinstance(found, Tensor)
    np.testing.assert_array_equal(found.numpy(), padded(x)["y"])


def test_prepare_compiles_for_the_bucket() -> None:
    padded = tile_onnx.load(PERCEPTRON, "interp", buckets={"N": [4]})
    padded.prepare({"x": (3, 8)})
    assert padded(drawn(2, 8))["y"].shape == (2, 5)


LAST = model(node("Gather", "x end", "y", axis=1), dims=("N", "T"), weights={"end": np.array([-1])})
CHOSEN = model(
    node("Cast", "x", "i", to=TensorProto.INT64), node("GatherElements", "x i", "y", axis=1), dims=("N", "T"), weights={}
)  # fmt: skip
BACKWARDS = model(
    node("Slice", "x first last axis step", "y"), dims=("N", "T"),
    weights={"first": np.array([-1]), "last": np.array([-(2**31)]), "axis": np.array([1]), "step": np.array([-1])},
)  # fmt: skip


@pytest.mark.parametrize(("proto", "name"), [(CHOSEN, "GatherElements_y"), (BACKWARDS, "Slice_y")])
def test_what_depends_on_the_end_is_refused(proto: onnx.ModelProto, name: str) -> None:
    assert tile_onnx.load(proto, "interp", buckets={"N": [4]})(drawn(3, 5))["y"].shape[0] == 3
    with pytest.raises(TileError, match=rf"'T' from \d+ to 8 cannot be padded: node '{name}': ") as caught:
        tile_onnx.load(proto, "interp", buckets={"N": [4], "T": [8]})
    assert caught.value.diagnostics[0].code == "TILE-E906"


def test_the_last_step() -> None:
    """An index that counts from the end is a number that depends on the size."""
    padded = tile_onnx.load(LAST, "interp", buckets={"N": [4], "T": [8]})
    for size in (3, 8, 6):
        x = drawn(3, size)
        np.testing.assert_array_equal(padded(x)["y"], x[:, -1:])


@pytest.mark.parametrize(
    ("buckets", "message"),
    [
        ({"M": [1]}, "no input has a dimension 'M'"),
        ({"N": []}, "whole numbers above 0"),
        ({"N": 4}, "whole numbers above 0"),
        ({"N": [0, 4]}, "whole numbers above 0"),
        ({"N": [2.5]}, "whole numbers above 0"),
        ({"N": [True]}, "whole numbers above 0"),
        ([4], "a mapping"),
    ],
)
def test_wrong_buckets(buckets: Any, message: str) -> None:
    with pytest.raises(TileError, match=message):
        tile_onnx.load(PERCEPTRON, "interp", buckets=buckets)


def test_contradicting_inputs() -> None:
    graph = helper.make_graph(
        [node("Add", "x v", "y")], "sum",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", 2]) for n in ("x", "v")],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )  # fmt: skip
    padded = tile_onnx.load(helper.make_model(graph), "interp", buckets={"N": [4]})
    with pytest.raises(TileError, match="dimension 'N' is 3 of input 'x' and 2 of input 'v'"):
        padded(drawn(3, 2), drawn(2, 2))


def recurrent(direction: str, outputs: str) -> onnx.ModelProto:
    """An LSTM over [T, N, 3]."""
    both = 2 if direction == "bidirectional" else 1
    weights = {"w": drawn(both, 16, 3), "r": drawn(both, 16, 4), "b": drawn(both, 32)}
    lstm = node("LSTM", "x w r b", outputs, hidden_size=4, direction=direction)
    return model(lstm, dims=("T", "N", 3), weights=weights, outputs=tuple(filter(None, outputs.split())))


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_batches_of_sequences(direction: str) -> None:
    proto = recurrent(direction, "y h")
    plain, padded = tile_onnx.load(proto, "interp"), tile_onnx.load(proto, "interp", buckets={"N": [4]})
    for size in (3, 2, 4):
        x = drawn(9, size, 3)
        wanted, found = plain(x), padded(x)
        for name, array in wanted.items():
            np.testing.assert_allclose(found[name], array, rtol=2e-5, atol=2e-6)
    assert all(size is not None for p in padded._buckets._programs.values() for size in p.sizes.values())  # pyright: ignore


def test_lengths_of_sequences() -> None:
    proto = recurrent("forward", "y")
    plain, padded = tile_onnx.load(proto, "interp"), tile_onnx.load(proto, "interp", buckets={"T": [16]})
    for size in (9, 12):
        x = drawn(size, 2, 3)
        np.testing.assert_allclose(padded(x)["y"], plain(x)["y"], rtol=2e-5, atol=2e-6)
    reverse = tile_onnx.load(recurrent("reverse", "y"), "interp", buckets={"T": [16]})
    with pytest.raises(TileError, match=r"'T' from 9 to 16 cannot be padded"):
        reverse(drawn(9, 2, 3))
