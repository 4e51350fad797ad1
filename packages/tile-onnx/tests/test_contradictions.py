"""Nodes whose shapes contradict one another are refused by name, before anything runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tile_onnx
import tile_runtime as tile
from peer import a_model


def some(*shape: int, dtype: str = "float32") -> Any:
    return np.zeros(shape, dtype)


def places(*shape: int) -> Any:
    return some(*shape, dtype="int64")


CASES: dict[str, tuple[str, list[Any], dict[str, Any], str]] = {
    "channels": ("Conv", [some(1, 3, 5, 5), some(4, 4, 3, 3)], {}, "3 channels, the weights are for 4"),
    "groups": ("Conv", [some(1, 4, 5, 5), some(3, 2, 3, 3)], {"group": 2}, "do not divide into 2 groups"),
    "axes": ("Conv", [some(1, 4, 5), some(3, 4, 3, 3)], {}, "3 dimensions and weights of 4"),
    "spread": ("ConvTranspose", [some(1, 3, 5, 5), some(4, 2, 3, 3)], {}, "3 channels, the weights are for 4"),
    "joined": ("Concat", [some(2, 3), some(2, 4)], {"axis": 0}, r"differ beside axis 0: \[2, 3\], \[2, 4\]"),
    "order": ("Transpose", [some(2, 3)], {"perm": [0, 0]}, r"perm \[0, 0\]"),
    "along": ("GatherElements", [some(2, 3), places(3, 2)], {"axis": 1}, "along axis 1"),
    "tuples": ("GatherND", [some(2, 3), places(4, 3)], {}, "3 indices and 0 batch axes for 2 dimensions"),
    "updates": ("ScatterElements", [some(4, 3), places(2, 3), some(2, 2)], {}, r"updates of shape \[2, 2\]"),
    "slabs": ("ScatterND", [some(4, 3), places(2, 1), some(2, 2)], {}, r"\[2, 2\] instead of \[2, 3\]"),
    "grid": ("GridSample", [some(1, 2, 4, 4), some(2, 3, 3, 2)], {}, r"a grid of shape \[2, 3, 3, 2\]"),
    "states": ("GRU", [some(2, 1, 3), some(1, 12, 3), some(1, 12, 5)], {"hidden_size": 4}, "input 2 is of shape"),
}


@pytest.mark.parametrize("name", CASES)
def test_is_refused(name: str) -> None:
    op, inputs, attributes, message = CASES[name]
    model = a_model(op, inputs, attributes, opset=20)
    with pytest.raises(tile.TileError, match=message):
        tile_onnx.load(model).run({f"x{k}": value for k, value in enumerate(inputs)})


def test_parts_that_are_not_the_whole() -> None:
    model = a_model("Split", [some(2, 5), np.array([2, 2], np.int64)], {"axis": 1}, opset=13, outputs=2, constant=(1,))
    with pytest.raises(tile.TileError, match="5 cells in 2 parts"):
        tile_onnx.load(model).run({"x0": some(2, 5)})
