"""LSTM, GRU and RNN beside ONNX Runtime: directions, lengths, states, peepholes, activations, clipping."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tile_onnx
import tile_runtime as tile
from hypothesis import given, settings
from hypothesis import strategies as st
from peer import SEEDS, a_model, check, numbers, random

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}
PLAIN = ["Relu", "Tanh", "Sigmoid", "Softsign", "Softplus"]
WITH_PARAMETERS = ["HardSigmoid", "LeakyRelu", "Elu", "Affine", "ScaledTanh", "ThresholdedRelu"]
ACTIVATIONS = {"LSTM": 3, "GRU": 2, "RNN": 1}


def inputs_of(op: str, direction: str, moments: int, batch: int, parts: frozenset[str], seed: int) -> list[Any]:
    """X, W, R and those of the other inputs that `parts` names."""
    count, size, features, gates = DIRECTIONS[direction], 3, 4, GATES[op]

    def some(*shape: int, scale: float = 0.6) -> Any:
        return numbers("float32", shape, seed + len(shape) + sum(shape), scale=scale)

    lengths = random(seed).integers(1, moments + 1, batch).astype(np.int32)
    lengths[0] = moments
    found = [
        some(moments, batch, features),
        some(count, gates * size, features),
        some(count, gates * size, size),
        some(count, 2 * gates * size) if "bias" in parts else None,
        lengths if "lengths" in parts else None,
        some(count, batch, size) if "states" in parts else None,
    ]
    if op == "LSTM":
        found += [some(count, batch, size, scale=0.5) if "states" in parts else None]
        found += [some(count, 3 * size) if "peepholes" in parts else None]
    while found[-1] is None:
        found.pop()
    return found


@given(
    st.sampled_from(sorted(GATES)),
    st.sampled_from(sorted(DIRECTIONS)),
    st.integers(1, 4),
    st.integers(1, 3),
    st.frozensets(st.sampled_from(["bias", "lengths", "states", "peepholes"])),
    st.sampled_from([{}, {"clip": 0.4}, {"linear_before_reset": 1}, {"input_forget": 1}]),
    SEEDS,
)
@settings(max_examples=10)
def test_layers(op: str, direction: str, moments: int, batch: int, parts: Any, more: Any, seed: int) -> None:
    only = {"linear_before_reset": "GRU", "input_forget": "LSTM"}
    more = {name: value for name, value in more.items() if only.get(name, op) == op}
    attributes = {"hidden_size": 3, "direction": direction} | more
    inputs = inputs_of(op, direction, moments, batch, parts, seed)
    check(op, inputs, attributes, opset=14, outputs=3 if op == "LSTM" else 2, constant=(1, 2), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("op", sorted(GATES))
@pytest.mark.parametrize("names", [PLAIN, WITH_PARAMETERS])
def test_activations(op: str, names: list[str]) -> None:
    count = 2 * ACTIVATIONS[op]
    chosen = (names * count)[:count]
    attributes: dict[str, Any] = {"hidden_size": 3, "direction": "bidirectional", "activations": chosen}
    if names is WITH_PARAMETERS:
        attributes |= {"activation_alpha": [0.3 + 0.1 * k for k in range(count)], "activation_beta": [0.2] * count}
    inputs = inputs_of(op, "bidirectional", 3, 2, frozenset(["bias"]), 5)
    check(op, inputs, attributes, opset=14, constant=(1, 2), rtol=1e-3, atol=1e-4)


def test_a_function_that_is_not_known_is_named() -> None:
    model = a_model(
        "RNN", inputs_of("RNN", "forward", 2, 1, frozenset(), 0), {"hidden_size": 3, "activations": ["Sine"]}
    )
    with pytest.raises(tile.TileError, match="sine"):
        tile_onnx.load(model).run({f"x{k}": v for k, v in enumerate(inputs_of("RNN", "forward", 2, 1, frozenset(), 0))})
