"""Operators of several steps round float16 once: what they compute in float32 of the same numbers, rounded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tile_onnx
from peer import Array, a_model, numbers

IMAGE, SEQUENCE = (2, 3, 7, 9), (6, 2, 5)
CASES: list[tuple[str, list[tuple[int, ...]], dict[str, Any], int]] = [
    ("AveragePool", [IMAGE], {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1]}, 19),
    ("GlobalAveragePool", [IMAGE], {}, 1),
    ("GlobalLpPool", [IMAGE], {"p": 3}, 2),
    ("GRU", [SEQUENCE, (1, 12, 5), (1, 12, 4), (1, 24)], {"hidden_size": 4}, 14),
    ("LayerNormalization", [IMAGE, (9,), (9,)], {}, 17),
    ("LpPool", [IMAGE], {"kernel_shape": [2, 3], "p": 2}, 18),
    ("LSTM", [SEQUENCE, (2, 16, 5), (2, 16, 4)], {"hidden_size": 4, "direction": "bidirectional"}, 14),
    ("Mish", [IMAGE], {}, 18),
    ("RMSNormalization", [IMAGE, (9,)], {}, 23),
    ("Softmax", [IMAGE], {}, 13),
]


def halves(
    op: str, inputs: list[Array], attributes: dict[str, Any], opset: int, constant: tuple[int, ...] = ()
) -> None:
    found: list[Array] = []
    for dtype in (np.float32, np.float16):
        given = [v.astype(dtype) if v.dtype == np.float16 else v for v in inputs]
        model = tile_onnx.load(a_model(op, given, attributes, opset, constant=constant), "llvm")
        feeds = {f"x{k}": v for k, v in enumerate(given) if k not in constant}
        found.append(model.run(feeds)["y0"])
    exact, half = found
    assert half.dtype == np.float16
    assert np.all(np.abs(half.astype(np.float32) - exact) <= 0.51 * np.spacing(np.abs(exact).astype(np.float16)))


@pytest.mark.parametrize(("op", "shapes", "attributes", "opset"), CASES, ids=[case[0] for case in CASES])
def test_float16_is_rounded_once(
    op: str, shapes: list[tuple[int, ...]], attributes: dict[str, Any], opset: int
) -> None:
    inputs = [numbers("float16", shape, seed, scale=1.0) for seed, shape in enumerate(shapes)]
    halves(op, inputs, attributes, opset)


def test_resized_float16_is_rounded_once() -> None:
    scales = np.array([1, 1, 1, 2.5], np.float32)
    inputs = [numbers("float16", IMAGE, 0), np.zeros(0, np.float32), scales]
    halves("Resize", inputs, {"mode": "linear"}, 13, (1, 2))
