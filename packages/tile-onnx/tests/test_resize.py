"""Resize beside ONNX's reference, which defines what ONNX Runtime only approximates; beside ONNX Runtime where it is exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tile_onnx
from hypothesis import given, settings
from hypothesis import strategies as st
from peer import SEEDS, a_model, check, numbers, reference

COORDINATES = [
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize",
]  # fmt: skip
NEAREST = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
NONE = np.zeros(0, np.float32)


def agree(inputs: list[Any], attributes: dict[str, Any], opset: int = 19) -> None:
    """Tile gives what the reference gives."""
    model = a_model("Resize", inputs, attributes, opset=opset, constant=(1, 2, 3))
    wanted = reference(model, {"x0": inputs[0]})
    (found,) = tile_onnx.load(model).run({"x0": inputs[0]}).values()
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@st.composite
def settings_of(draw: Any) -> dict[str, Any]:
    mode = draw(st.sampled_from(["nearest", "linear", "cubic"]))
    attributes: dict[str, Any] = {
        "mode": mode, "coordinate_transformation_mode": draw(st.sampled_from(COORDINATES)), "extrapolation_value": 2.5,
    }  # fmt: skip
    match mode:
        case "nearest":
            attributes["nearest_mode"] = draw(st.sampled_from(NEAREST))
        case "linear":
            attributes["antialias"] = draw(st.integers(0, 1))
        case _:
            attributes |= {
                "exclude_outside": draw(st.integers(0, 1)),
                "cubic_coeff_a": draw(st.sampled_from([-0.75, -0.5])),
            }
    return attributes


@given(settings_of(), st.lists(st.sampled_from([0.4, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0]), min_size=2, max_size=2), SEEDS)
@settings(max_examples=10)
def test_scales(attributes: dict[str, Any], scales: list[float], seed: int) -> None:
    region = np.array([0, 0, 0.1, -0.2, 1, 1, 0.9, 1.2], np.float32)
    image = numbers("float32", (1, 2, 5, 6), seed)
    agree([image, region, np.array([1, 1, *scales], np.float32)], attributes)


@given(
    settings_of(),
    st.lists(st.integers(1, 11), min_size=2, max_size=2),
    st.sampled_from(["stretch", "not_larger", "not_smaller"]),
    SEEDS,
)
@settings(max_examples=10)
def test_sizes_of_some_axes(attributes: dict[str, Any], sizes: list[int], policy: str, seed: int) -> None:
    image = numbers("float32", (5, 2, 6), seed)
    attributes |= {"axes": [2, 0], "keep_aspect_ratio_policy": policy}
    region = np.array([0.1, -0.2, 0.9, 1.2], np.float32)
    agree([image, region, None, np.array(sizes, np.int64)], attributes)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scale", [2.0, 4.0])
def test_as_networks_enlarge(mode: str, scale: float) -> None:
    scales = np.array([1, 1, scale, scale], np.float32)
    for coordinates in ("asymmetric", "half_pixel", "align_corners"):
        attributes = {"mode": mode, "coordinate_transformation_mode": coordinates, "nearest_mode": "floor"}
        inputs = [numbers("float32", (1, 3, 4, 5), 1), NONE, scales]
        check("Resize", inputs, attributes, opset=13, constant=(1, 2), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32"])
def test_nearest_of_integers(dtype: str) -> None:
    inputs = [numbers(dtype, (1, 2, 4, 5), 2), NONE, np.array([1, 1, 1.5, 2], np.float32)]
    check("Resize", inputs, {"mode": "nearest"}, opset=13, constant=(1, 2))


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "float16"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "asymmetric"])
def test_sums_along_both_axes_are_rounded_once(dtype: str, coordinates: str) -> None:
    inputs = [numbers(dtype, (1, 2, 4, 5), 2), NONE, np.array([1, 1, 4, 2], np.float32)]
    attributes = {"mode": "linear", "coordinate_transformation_mode": coordinates}
    check("Resize", inputs, attributes, opset=13, constant=(1, 2), **({"rtol": 6e-4} if dtype == "float16" else {}))


@pytest.mark.parametrize("opset", [9, 10])
def test_older_forms(opset: int) -> None:
    inputs = [numbers("float32", (1, 2, 4, 5), 2), np.array([1, 1, 2, 3], np.float32)]
    check("Upsample" if opset == 9 else "Resize", inputs, {"mode": "nearest"}, opset=opset, constant=(1,))


def test_upsample_by_attribute() -> None:
    attributes = {"mode": "nearest", "scales": [1.0, 1.0, 2.0, 2.0]}
    check("Upsample", [numbers("float32", (1, 2, 4, 5), 2)], attributes, opset=7)
