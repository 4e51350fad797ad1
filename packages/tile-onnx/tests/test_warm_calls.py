"""Calls like an earlier one: other numbers, the same answers and mistakes; whatever else differs is looked at afresh."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tile_onnx
import tile_onnx.engine
import tile_onnx.model
import tile_runtime as tile
from onnx import TensorProto, helper
from tile_ir.diagnostics import TileTypeError
from tile_onnx.newcomers import Newcomers
from tile_onnx.segments import Segment

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def loaded(nodes: list[Any], inputs: dict[str, tuple[int, list[Any]]], *outputs: str) -> tile_onnx.Model:
    given = [helper.make_tensor_value_info(n, dtype, shape) for n, (dtype, shape) in inputs.items()]
    made = [helper.make_tensor_value_info(n, FLOAT, None) for n in outputs]
    graph = helper.make_graph(nodes, "g", given, made)
    opsets = [helper.make_opsetid("", 19)]
    return tile_onnx.load(helper.make_model(graph, opset_imports=opsets, ir_version=9))


def affine() -> tile_onnx.Model:
    nodes = [helper.make_node("Mul", ["x", "y"], ["p"]), helper.make_node("Add", ["p", "x"], ["q"])]
    return loaded(nodes, {"x": (FLOAT, ["n", 3]), "y": (FLOAT, [3])}, "p", "q")


X, Y = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([2, 3, 4], np.float32)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows by a name whenever a walk's program is run, or inputs are checked; no call waits for its program."""
    found: list[str] = []

    def noting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any, **named: Any) -> Any:
            found.append(name)
            return function(*arguments, **named)

        return noted

    monkeypatch.setattr(Newcomers, "wait", lambda *_: False)  # pyright: ignore[reportUnknownLambdaType]
    monkeypatch.setattr(Segment, "run", noting("run", Segment.run))
    monkeypatch.setattr(tile_onnx.model, "checked", noting("checked", tile_onnx.model.checked))
    return found


def test_numbers_may_differ(runs: list[str]) -> None:
    m = affine()
    for scale in (1, 2, 3):
        found = m.run({"x": X * scale, "y": Y})
        assert list(found) == ["p", "q"]
        np.testing.assert_allclose(found["p"], X * scale * Y)
        np.testing.assert_allclose(found["q"], X * scale * Y + X * scale)
    assert runs == ["checked", "run", "run", "run"]


def test_inputs_in_another_order_and_fewer_outputs(runs: list[str]) -> None:
    m = affine()
    for _ in range(2):
        np.testing.assert_allclose(m.run({"y": Y, "x": X})["p"], X * Y)
        np.testing.assert_allclose(m.run({"x": X, "y": Y}, "q")["q"], X * Y + X)
        assert list(m.run({"x": X, "y": Y}, ["q"])) == ["q"]
    assert runs.count("checked") == 4  # lists of outputs are looked at each time


@pytest.mark.parametrize("wrong", [
    {"x": X[:, :2], "y": Y}, {"x": X.astype(np.float64), "y": Y}, {"x": X}, {"x": X, "y": Y, "z": Y}, {"x": "text", "y": Y},
])  # fmt: skip
def test_mistakes_are_found_after_calls_that_were_right(wrong: dict[str, Any]) -> None:
    m = affine()
    for _ in range(2):
        m.run({"x": X, "y": Y})
        with pytest.raises(TileTypeError):
            m.run(wrong)


def test_tensors_lists_and_foreign_byte_orders_are_taken_as_before() -> None:
    m = affine()
    for _ in range(2):
        m.run({"x": X, "y": Y})
        np.testing.assert_allclose(m.run({"x": X.astype(">f4"), "y": Y})["p"], X * Y)
        np.testing.assert_allclose(m.run({"x": X.tolist(), "y": Y})["p"], X * Y)
        found = m.run({"x": tile.asarray(X, device=m.evaluator.device), "y": Y})["p"]
        assert isinstance(found, tile.Tensor)
        np.testing.assert_allclose(found.numpy(), X * Y)


def test_shapes_that_numbers_decide_are_followed() -> None:
    m = loaded([helper.make_node("Reshape", ["x", "s"], ["y"])], {"x": (FLOAT, [6]), "s": (INT64, [2])}, "y")
    for shape in ((2, 3), (3, 2), (2, 3), (6, 1), (3, 2)):
        assert m.run({"x": X.reshape(6), "s": np.array(shape)})["y"].shape == shape


def test_results_that_no_program_makes() -> None:
    m = loaded(
        [helper.make_node("Identity", ["x"], ["y"]), helper.make_node("Neg", ["x"], ["z"])],
        {"x": (FLOAT, [6])},
        "y",
        "z",
    )
    for k in range(3):
        found = m.run({"x": X.reshape(6) + k})
        np.testing.assert_allclose(found["y"], X.reshape(6) + k)
        np.testing.assert_allclose(found["z"], -X.reshape(6) - k)


def choosing() -> tile_onnx.Model:
    """Twice the sum of x where that is positive, else x turned round."""
    twice = helper.make_graph(
        [helper.make_node("Add", ["s", "s"], ["a"])], "t", [], [helper.make_tensor_value_info("a", FLOAT, None)]
    )
    turned = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["b"])], "e", [], [helper.make_tensor_value_info("b", FLOAT, None)]
    )
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("CastLike", ["s", "no"], ["i"]),
        helper.make_node("Greater", ["i", "no"], ["c"]),
        helper.make_node("If", ["c"], ["y"], then_branch=twice, else_branch=turned),
    ]
    return loaded(nodes, {"x": (FLOAT, ["n"]), "no": (INT64, [])}, "y")


def test_ways_between_programs_are_known_after_the_first_time(runs: list[str]) -> None:
    m = choosing()
    for sign in (1, -1, 1, -1, -1, 1):
        x, no = np.full(3, 2 * sign, np.float32), np.array(0)
        np.testing.assert_allclose(m.run({"x": x, "no": no})["y"], 12 if sign > 0 else -x)
    assert m._engine.walks == 3  # pyright: ignore[reportPrivateUsage]
    assert runs.count("checked") == 2  # the first call found that the number `no` is one of those that matter


def test_ways_are_forgotten_with_their_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tile_onnx.engine, "PIECES", 2)
    m = choosing()
    for size in (1, 2, 3, 1, 2):
        for sign in (1, -1):
            x = np.full(size, 2 * sign, np.float32)
            np.testing.assert_allclose(m.run({"x": x, "no": np.array(0)})["y"], 4 * size if sign > 0 else -x)
            assert len(m._engine._pieces) <= 2  # pyright: ignore[reportPrivateUsage]
