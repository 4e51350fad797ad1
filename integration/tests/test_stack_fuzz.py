"""Random graphs of array operations through each front end that is installed, and that the fuzzer finds what is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fuzz.__main__ import smaller, tried
from fuzz.front_ends import FRONT_ENDS
from fuzz.graphs import OPS, Graph, Step, differences, drawn

FEW = {"tensors": 6, "onnx": 8, "torch": 2, "jax": 4}
MANY = 300


@pytest.mark.parametrize("many", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["few", "many"])
@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_every_front_end_gives_what_numpy_does(front_end: str, many: bool) -> None:
    if front_end in ("torch", "jax"):
        pytest.importorskip(front_end)
        pytest.importorskip(f"tile_{front_end}")
    for number in range(MANY if many else FEW[front_end]):
        graph = drawn([20_261, number])
        assert not (problem := tried(front_end, graph)), "\n".join(map(str, smaller(front_end, graph, problem)))


def test_graphs_follow_from_their_seeds_and_meet_every_operation() -> None:
    graphs = [drawn([7, n]) for n in range(120)]
    assert str(drawn([7, 5])) == str(graphs[5])
    assert {s.op for g in graphs for s in g.steps} == OPS.keys()
    assert all(a.dtype in (np.float32, np.int32, np.bool_) for g in graphs for a in g.expected)
    assert sum(b == 0 for g in graphs for b in g.bounds) > sum(b > 0 for g in graphs for b in g.bounds) / 2


def test_what_is_wrong_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(graph: Graph) -> list[list[Any]]:
        results = [r.copy() for r in graph.expected]
        if "flip" in {s.op for s in graph.steps}:
            results[-1] = results[-1] + 1
        return [results]

    monkeypatch.setitem(FRONT_ENDS, "wrong", wrong)
    one = np.arange(6, dtype=np.float32).reshape(2, 3)
    steps = Step("abs", (0,)), Step("flip", (1,), (0,)), Step("times", (2,), (3,)), Step("negative", (0,))
    graph = Graph((one,), steps, (3, 4))
    problem = tried("wrong", graph)
    assert "v4 is off by 1.0, and may be by 0.0" in problem
    less, why = smaller("wrong", graph, problem)
    assert [s.op for s in less.steps] == ["abs", "flip"] and "v2 is off" in why
    assert "v3 is float64[2, 3] instead of float32[2, 3]" in "".join(
        differences(graph, [graph.expected[0].astype(float), graph.expected[1]])
    )
