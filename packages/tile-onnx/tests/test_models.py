"""Loading, calling and explaining models; graphs whose shapes or branches depend on data."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import tile_onnx
import tile_runtime as tile
from onnx_models import model, peer
from tile_onnx.engine import PIECES

X = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)
RELU = "(float[N, 3] x) => (float[N, 3] y) { y = Relu(x) }"


def agrees(proto: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> tile_onnx.Model:
    made = tile_onnx.load(proto, "llvm")
    found, wanted = made.run(feeds), peer(proto, feeds)
    assert list(found) == list(wanted)
    for name, value in wanted.items():
        assert found[name].dtype == value.dtype
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6)
    return made


def test_calls_by_name_and_position() -> None:
    made = tile_onnx.load(model(RELU), "llvm")
    assert (made.inputs[0].name, made.inputs[0].dtype, made.inputs[0].shape) == ("x", "float32", ("N", 3))
    for found in (made(X), made(x=X), made.run({"x": X}), made.run({"x": X}, "y"), made(X.tolist())):
        np.testing.assert_array_equal(found["y"], np.maximum(X, 0))


def test_an_evaluator_brings_its_own_options() -> None:
    evaluator = tile.Evaluator("llvm", fast_math=True)
    made = tile_onnx.load(model(RELU), evaluator)
    np.testing.assert_array_equal(made(X)["y"], np.maximum(X, 0))
    assert made.evaluator is evaluator


def test_tensors_stay_on_the_device() -> None:
    device = tile.device("llvm")
    found = tile_onnx.load(model(RELU), device)(tile.asarray(X, device))["y"]
    assert isinstance(found, tile.Tensor)
    np.testing.assert_array_equal(found.numpy(), np.maximum(X, 0))


@pytest.mark.parametrize(
    ("feeds", "words"),
    [
        ({}, "input 'x', float32[N, 3], is missing"),
        ({"x": X[:, :2]}, "input 'x' is float32[N, 3], float32[2, 2] was given"),
        ({"x": X.astype(np.float64)}, "float64[2, 3] was given"),
        ({"x": X[0]}, "it has 2 dimensions, 1 were given"),
        ({"x": X, "z": X}, "the model has no input 'z'"),
        ({"x": "text"}, "float32[N, 3]"),
        ({"x": object()}, "object was given"),
        (3, "feeds are a mapping"),
    ],
)
def test_wrong_feeds_name_the_input(feeds: object, words: str) -> None:
    with pytest.raises(tile.TileTypeError) as caught:
        tile_onnx.load(model(RELU), "llvm").run(feeds)  # pyright: ignore[reportArgumentType]
    assert words in str(caught.value)


def test_every_unsupported_node_is_named_at_once() -> None:
    text = "(float[3] x) => (float[3] y) { a = local.Strange(x) b = RandomNormalLike(a) y = Add(a, b) }"
    with pytest.raises(tile.TileTypeError) as caught:
        tile_onnx.load(model(text))
    assert "Strange (local, opset 1)" in str(caught.value)
    assert "RandomNormalLike (ai.onnx, opset 17)" in str(caught.value)
    assert len(caught.value.diagnostics) == 2


def test_strings_are_refused_by_name() -> None:
    with pytest.raises(tile.TileTypeError, match="input 's' is string"):
        tile_onnx.load(model("(string[2] s, string[2] t) => (bool[2] y) { y = Equal(s, t) }", opset=19))


def test_inputs_that_shapes_depend_on_are_values() -> None:
    proto = model(
        "(float[N, 3] x, int64[2] s) => (float[A, B] y) { d = Add(s, s) h = Div(d, s) t = Mul(s, h) e = Div(t, h) y = Reshape(x, e) }"
    )
    made = agrees(proto, {"x": X, "s": np.array([3, 2])})
    assert made.run({"x": X, "s": np.array([6, 1])})["y"].shape == (6, 1)
    assert "Values, a program for each: s" in made.explain({"x": (2, 3), "s": np.array([3, 2])})


def test_shapes_that_depend_on_data_end_a_program() -> None:
    proto = model(
        "(float[N, 3] x) => (float[K] y) { r = Relu(x) n = NonZero(r) t = Transpose<perm = [1, 0]>(n) g = GatherND(r, t) y = Add(g, g) }"
    )
    made = agrees(proto, {"x": X})
    agrees(proto, {"x": -X})
    assert made.run({"x": np.ones_like(X)})["y"].shape == (6,)
    text = made.explain({"x": (2, 3)})
    assert "On the host: NonZero" in text
    assert "What follows depends on" in text


BRANCH = """(float[N, 3] x) => (float[N, 3] y) {
    s = ReduceSum<keepdims = 0>(x) z = Constant<value_float = 0.0>() c = Greater(s, z)
    y = If(c) <then_branch = yes () => (float[N, 3] p) { p = Add(x, x) },
               else_branch = no () => (float[N, 3] q) { q = Sub(x, s) }> }"""


def test_branches_that_depend_on_data() -> None:
    made = tile_onnx.load(model(BRANCH), "llvm")
    for x in (X + 1, X - 1, X + 1):
        np.testing.assert_allclose(made(x)["y"], x + x if x.sum() > 0 else x - x.sum(), rtol=1e-5)


LOOP = """(float[3] x, int64 m) => (float[3] y, float[T, 3] all) {
    go = Constant<value = bool {1}>() limit = Constant<value_float = 100.0>()
    y, all = Loop(m, go, x) <body = step (int64 i, bool c, float[3] v) => (bool d, float[3] w, float[3] row) {
        w = Add(v, v) row = Mul(v, x) s = ReduceSum<keepdims = 0>(w) d = Less(s, limit) }> }"""


@pytest.mark.parametrize("trips", [3, 50])
def test_loops_that_only_a_run_ends(trips: int) -> None:
    agrees(model(LOOP), {"x": np.array([1, 2, 3], np.float32), "m": np.array(trips)})


def test_loops_of_known_length_become_one_program() -> None:
    text = LOOP.replace("d = Less(s, limit)", "d = Identity(c)")
    made = agrees(model(text), {"x": np.array([1, 2, 3], np.float32), "m": np.array(4)})
    assert "1. A program" in made.explain({"x": (3,), "m": np.array(4)})


def test_functions_of_the_model_are_inlined() -> None:
    proto = model("(float[N, 3] x) => (float[N, 3] y) { y = local.Twice(x) }")
    body = onnx.parser.parse_function('<opset_import: ["" : 17], domain: "local"> Twice (a) => (b) { b = Add(a, a) }')
    proto.functions.append(body)
    agrees(proto, {"x": X})


def test_initializers_are_defaults_of_inputs() -> None:
    proto = model("(float[3] x, float[3] w) => (float[3] y) { y = Mul(x, w) }", w=np.arange(3, dtype=np.float32))
    made = tile_onnx.load(proto, "llvm")
    np.testing.assert_array_equal(made(np.ones(3, np.float32))["y"], [0, 1, 2])
    np.testing.assert_array_equal(made(np.ones(3, np.float32), np.ones(3, np.float32))["y"], [1, 1, 1])


def test_only_what_is_asked_for_is_computed() -> None:
    proto = model("(float[3] x) => (float[3] y, float[3] z) { y = Relu(x) z = Neg(x) }")
    assert list(tile_onnx.load(proto, "llvm").run({"x": np.ones(3, np.float32)}, ["z"])) == ["z"]


def test_kept_programs_are_bounded() -> None:
    made = tile_onnx.load(model("(float[N] x) => (int64[1] y) { y = Shape(x) }"), "llvm")
    for size in range(PIECES + 10):
        made.prepare({"x": (size,)})
        assert made(np.zeros(size, np.float32))["y"] == size
    assert len(made._engine._pieces) == PIECES  # pyright: ignore[reportPrivateUsage]


def test_prepared_shapes_are_not_compiled_again() -> None:
    made = tile_onnx.load(model(RELU), "llvm")
    made.prepare({"x": (2, 3)})
    assert len(made.evaluator.programs) == 1
    made(X)
    assert len(made.evaluator.programs) == 1
    with pytest.raises(tile.TileTypeError, match="which shape"):
        made.prepare()


def test_kernels_are_timed_by_node() -> None:
    (kernel,) = tile_onnx.load(model(RELU), "llvm").profile({"x": X})
    assert kernel.seconds > 0
    assert kernel.nodes == ("y",)


def test_models_have_gradients() -> None:
    w = np.arange(6, dtype=np.float32).reshape(3, 2)
    made = tile_onnx.load(model("(float[N, 3] x) => (float[N, 2] y) { y = MatMul(x, w) }", w=w), "llvm")
    gradient = tile.vjp(made.function({"x": (2, 3)}, ["w"]), wrt="w")
    np.testing.assert_allclose(gradient(X, w, np.ones((2, 2), np.float32), device="llvm"), X.T @ np.ones((2, 2)))
    with pytest.raises(tile.TileTypeError, match="did you mean 'w'"):
        made.function({"x": (2, 3)}, ["W"])


def test_importing_opens_no_device() -> None:
    code = "import sys, tile_onnx, tile_onnx.model, tile_onnx.cli, tile_hal.discovery as d; print({'llvmlite', 'islpy', 'pyopencl', 'hal_llvm'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_external_data(tmp_path: Path) -> None:
    w = np.arange(3000, dtype=np.float32)
    proto = model("(float[3000] x) => (float[3000] y) { y = Mul(x, w) }", w=w)
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    np.testing.assert_array_equal(tile_onnx.load(tmp_path / "m.onnx", "llvm")(np.ones(3000, np.float32))["y"], w)


def test_nodes_of_one_name_are_told_apart() -> None:
    proto = model("(float[N, 3] x) => (float[A] y, float[B] z) { y = local.Kept(x) m = Neg(x) z = local.Kept(m) }")
    text = '<opset_import: ["" : 17], domain: "local"> Kept (a) => (b) { r = Relu(a) n = NonZero(r) t = Transpose<perm = [1, 0]>(n) b = GatherND(r, t) }'
    proto.functions.append(onnx.parser.parse_function(text))
    for node in proto.graph.node:
        node.name = "same"
    found = tile_onnx.load(proto, "llvm")(X)
    np.testing.assert_array_equal(found["y"], X[X > 0])
    np.testing.assert_array_equal(found["z"], -X[X < 0])


def test_weights_written_as_nodes_are_parameters() -> None:
    text = (
        "(float[N, 3] x) => (float[N, 2] y) { w = Constant<value = float[3, 2] {1, 2, 3, 4, 5, 6}>() y = MatMul(x, w) }"
    )
    made = tile_onnx.load(model(text), "llvm")
    gradient = tile.vjp(made.function({"x": (2, 3)}, ["w"]), wrt="w")
    w = made.graph.constants["w"]
    np.testing.assert_allclose(gradient(X, w, np.ones((2, 2), np.float32), device="llvm"), X.T @ np.ones((2, 2)))


def test_constants_of_a_branch_are_seen_inside_it() -> None:
    text = """(bool c, float[3] x) => (float[3] y) { y = If(c) <
        then_branch = yes () => (float[3] p) { one = Constant<value = float[1] {1}>() p = If(c) <
            then_branch = a () => (float[3] q) { q = Add(x, one) }, else_branch = b () => (float[3] r) { r = Neg(x) }> },
        else_branch = no () => (float[3] s) { s = Constant<value = float[3] {7, 8, 9}>() }> }"""
    for choice in (True, False):
        agrees(model(text), {"c": np.array(choice), "x": np.arange(3, dtype=np.float32)})


def test_metadata() -> None:
    proto = model(RELU)
    onnx.helper.set_model_props(proto, {"labels": "cat\ndog"})
    assert tile_onnx.load(proto).metadata == {"labels": "cat\ndog"}
