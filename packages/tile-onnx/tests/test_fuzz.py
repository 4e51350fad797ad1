"""Mutated models: an error of ours or a model, never anything else; and the ways to be malformed, one by one."""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import backend_cases
import numpy as np
import onnx
import pytest
import tile_onnx
from onnx import ModelProto, NodeProto, TensorProto, helper
from onnx_models import model
from tile_ir.diagnostics import TileError

SECONDS = 10.0
"""CPU seconds that reading and walking a mutated model may take."""
BASES = (
    "test_if", "test_loop11", "test_scan9_sum", "test_conv_with_strides_padding", "test_averagepool_2d_ceil", "test_lstm_defaults",
    "test_resize_upsample_scales_linear", "test_slice", "test_gather_0", "test_top_k", "test_concat_2d_axis_0", "test_layer_normalization_2d_axis0",
    "test_attention_3d", "test_einsum_batch_matmul", "test_quantizelinear", "test_constant_pad", "test_reshape_extended_dims", "test_constantofshape_float_ones",
    "test_split_to_sequence_1", "test_expand_dim_changed", "test_tile", "test_range_int32_type_negative_delta", "test_onehot_with_axis",
    "test_convtranspose_output_shape", "test_scatternd_add", "test_gemm_all_attributes", "test_cast_FLOAT_to_FLOAT16", "test_instancenorm_example",
)  # fmt: skip


def tried(content: bytes | ModelProto) -> None:
    """Reads and walks a model; nothing but our errors may come out."""
    start = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = tile_onnx.load(content)
            made.check({a.name: np.zeros(()) for a in made.inputs if a.shape == ()})
    except TileError:
        pass
    assert time.process_time() - start < SECONDS


def mutants(count: int) -> Iterator[bytes | ModelProto]:
    draw = random.Random(0)
    bases = [backend_cases.model_of(backend_cases.cases()[name]) for name in BASES]
    for _ in range(count):
        base = draw.choice(bases)
        if draw.random() < 0.4:
            yield _bytes(draw, base.SerializeToString())
        else:
            copy = ModelProto()
            copy.CopyFrom(base)
            for _ in range(draw.randint(1, 3)):
                draw.choice(CHANGES)(draw, copy)
            yield copy


def _bytes(draw: random.Random, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(draw.randint(1, 8)):
        changed[draw.randrange(len(changed))] = draw.randrange(256)
    return bytes(changed[: draw.randrange(len(changed))] if draw.random() < 0.2 else changed)


NUMBERS = (-(2**63), -(2**31), -7, -1, 0, 1, 2, 3, 17, 2**31 - 1, 2**31, 2**40, 2**62)


def _node(draw: random.Random, proto: ModelProto) -> NodeProto:
    return draw.choice(proto.graph.node) if proto.graph.node else NodeProto()


def _change_name(draw: random.Random, proto: ModelProto) -> None:
    node = _node(draw, proto)
    names = [n for other in proto.graph.node for n in (*other.input, *other.output)] + ["", "nobody"]
    target = draw.choice((node.input, node.output))
    if target:
        target[draw.randrange(len(target))] = draw.choice(names)


def _change_operator(draw: random.Random, proto: ModelProto) -> None:
    kinds = (
        "Add",
        "Conv",
        "Reshape",
        "Loop",
        "If",
        "Concat",
        "Nothing",
        "",
        "Softmax",
        "Gather",
        "Identity",
        "Slice",
        "LSTM",
        "Split",
    )
    _node(draw, proto).op_type = draw.choice(kinds)


def _change_attribute(draw: random.Random, proto: ModelProto) -> None:
    node = _node(draw, proto)
    if not node.attribute:
        node.attribute.append(helper.make_attribute("axis", draw.choice(NUMBERS[2:-1])))
        return
    attribute = draw.choice(node.attribute)
    if draw.random() < 0.3:
        attribute.type = draw.choice((1, 2, 3, 4, 5, 6, 7, 8))
    attribute.i = draw.choice(NUMBERS)
    for k in range(len(attribute.ints)):
        attribute.ints[k] = draw.choice(NUMBERS)


def _change_shape(draw: random.Random, proto: ModelProto) -> None:
    for info in draw.sample(list(proto.graph.input), min(1, len(proto.graph.input))):
        dims = info.type.tensor_type.shape.dim
        if dims and draw.random() < 0.7:
            draw.choice(dims).dim_value = draw.choice(NUMBERS)
        else:
            dims.add().dim_value = draw.choice(NUMBERS)


def _change_type(draw: random.Random, proto: ModelProto) -> None:
    for info in draw.sample(list(proto.graph.input), min(1, len(proto.graph.input))):
        info.type.tensor_type.elem_type = draw.randrange(-1, 30)


def _change_constant(draw: random.Random, proto: ModelProto) -> None:
    names = [n for node in proto.graph.node for n in node.input if n]
    if names:
        dims = [draw.choice(NUMBERS) for _ in range(draw.randint(0, 3))]
        values = [draw.choice(NUMBERS) for _ in range(draw.randint(0, 4))]
        proto.graph.initializer.append(TensorProto(name=draw.choice(names), data_type=7, dims=dims, int64_data=values))


def _change_nodes(draw: random.Random, proto: ModelProto) -> None:
    nodes = list(proto.graph.node)
    draw.shuffle(nodes)
    del proto.graph.node[:]
    proto.graph.node.extend(nodes[draw.randint(0, 1) :] + nodes[: draw.randint(0, 1)])


def _change_opset(draw: random.Random, proto: ModelProto) -> None:
    for opset in proto.opset_import:
        opset.version = draw.choice((-1, 0, 1, 5, 7, 9, 11, 13, 18, 23, 28, 99, 2**40))


CHANGES: tuple[Callable[[random.Random, ModelProto], None], ...] = (
    _change_name, _change_operator, _change_attribute, _change_shape, _change_type, _change_constant, _change_nodes, _change_opset,
)  # fmt: skip


def test_mutated_models() -> None:
    for mutant in mutants(200):
        tried(mutant)


@pytest.mark.slow
def test_ten_thousand_mutated_models() -> None:
    for mutant in mutants(10_000):
        tried(mutant)


def refused(proto: ModelProto | bytes | Path, words: str) -> None:
    with pytest.raises(TileError, match=words):
        tile_onnx.load(proto)


def test_cycles() -> None:
    refused(model("(float[3] x) => (float[3] y) { a = Add(x, b) b = Relu(a) y = Relu(b) }"), "has a cycle")


def test_nodes_in_any_order_are_sorted() -> None:
    made = tile_onnx.load(model("(float[3] x) => (float[3] y) { y = Relu(a) a = Neg(x) }"), "llvm")
    np.testing.assert_array_equal(made(-np.ones(3, np.float32))["y"], np.ones(3))


def test_names_that_nothing_makes() -> None:
    refused(model("(float[3] x) => (float[3] y) { y = Add(x, w) }"), "uses 'w', which nothing makes")
    refused(model("(float[3] x) => (float[3] y) { z = Relu(x) }"), "output 'y' of graph 'main' is made by nothing")


def test_names_that_are_made_twice() -> None:
    refused(model("(float[3] x) => (float[3] y) { y = Relu(x) y = Neg(x) }"), "makes 'y' twice")


def test_functions_that_stand_for_more_nodes_with_each_level() -> None:
    """A kilobyte for a billion nodes."""
    proto = model("(float[3] x) => (float[3] y) { y = local.F29(x) }")
    for level in range(30):
        inner = f"local.F{level - 1}" if level else "Relu"
        text = f'<opset_import: ["" : 17, "local" : 1], domain: "local"> F{level} (a) => (b) {{ c = {inner}(a) b = {inner}(c) }}'
        proto.functions.append(onnx.parser.parse_function(text))
    refused(proto, "stand for 2147483646 nodes")


def test_functions_that_call_themselves() -> None:
    proto = model("(float[3] x) => (float[3] y) { y = local.F(x) }")
    proto.functions.append(
        onnx.parser.parse_function(
            '<opset_import: ["" : 17, "local" : 1], domain: "local"> F (a) => (b) { b = local.F(a) }'
        )
    )
    refused(proto, "calls itself")


def test_no_model() -> None:
    refused(b"", "it has no graph")
    refused(b"\x00\xff" * 40, "no ONNX model")
    with pytest.raises(TileError, match="not int"):
        tile_onnx.load(3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(FileNotFoundError):
        tile_onnx.load("/nowhere/model.onnx")


@pytest.mark.parametrize("dims", [[-1], [2**40, 2**40], [5]])
def test_tensors_whose_data_do_not_fit(dims: list[int]) -> None:
    proto = model("(float[3] x) => (float[3] y) { y = Add(x, w) }")
    proto.graph.initializer.append(TensorProto(name="w", data_type=1, dims=dims, raw_data=bytes(12)))
    refused(proto, "tensor 'w'")


def test_gigantic_results_are_refused_by_name() -> None:
    proto = model("(float[1] x, int64[2] s) => (float[A, B] y) { y = Expand(x, s) }")
    made = tile_onnx.load(proto)
    with pytest.raises(TileError, match=r"Expand .*node 'y'.*more than the memory of this machine"):
        made.check({"s": np.array([2**20, 2**17])})


def test_gigantic_inputs_are_refused_by_name() -> None:
    made = tile_onnx.load(
        model("(float[1, 1, 2147483647, 400] x) => (float[A, B, C, D] y) { y = AveragePool<kernel_shape = [3, 3]>(x) }")
    )
    with pytest.raises(TileError, match=r"input 'x' is float32\[1,1,2147483647,400\], more than the memory"):
        made.check()


@pytest.mark.parametrize(
    ("location", "more", "words"),
    [
        ("../secret.bin", {}, "outside the model's folder"),
        ("/etc/passwd", {}, "outside the model's folder"),
        ("none.bin", {}, "has no file"),
        ("w.bin", {"offset": "8"}, "12 bytes, 20 are wanted"),
        ("w.bin", {"offset": "-4"}, "cannot be negative"),
        ("w.bin", {"length": "8"}, "takes 12 bytes; there are 8"),
        ("w.bin", {"length": "many"}, "are numbers"),
        ("link.bin", {}, "outside the model's folder"),
        ("w\0.bin", {}, "external data"),
    ],
)
def test_external_data_that_do_not_fit(tmp_path: Path, location: str, more: dict[str, str], words: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "w.bin").write_bytes(bytes(12))
    (tmp_path / "secret.bin").write_bytes(bytes(12))
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    proto = model("(float[3] x) => (float[3] y) { y = Add(x, w) }")
    tensor = proto.graph.initializer.add(name="w", data_type=1, dims=[3], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, "length": "12", **more}.items():
        tensor.external_data.add(key=key, value=value)
    (folder / "m.onnx").write_bytes(proto.SerializeToString())
    refused(folder / "m.onnx", words)
    refused(proto, "load the model by its path")


def test_what_the_host_cannot_do_is_told() -> None:
    made = tile_onnx.load(
        model("(float[2, 3] x, bool[2] c) => (float[K] y) { y = Compress<axis = -7>(x, c) }"), "interp"
    )
    with pytest.raises(TileError, match="cannot take what it was given"):
        made(x=np.ones((2, 3), np.float32), c=np.array([True, False]))
