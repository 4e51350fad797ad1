"""Fourier transforms beside NumPy's."""

from __future__ import annotations

import numpy as np
import pytest
import tile_onnx
from peer import a_model, check, numbers


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("length", [None, 4, 9])
@pytest.mark.parametrize("inverse", [0, 1])
def test_transforms(parts: int, length: int | None, inverse: int) -> None:
    values = numbers("float64", (2, 6, 3, parts), 0)
    inputs = [values, None if length is None else np.array(length), np.array(1)]
    model = a_model("DFT", inputs, {"inverse": inverse}, opset=20, constant=(1, 2))
    found = tile_onnx.load(model).run({"x0": values})["y0"]
    signal = values[..., 0] + (1j * values[..., 1] if parts == 2 else 0)
    wanted = (np.fft.ifft if inverse else np.fft.fft)(signal, length, axis=1)
    np.testing.assert_allclose(found[..., 0] + 1j * found[..., 1], wanted, atol=1e-12)


@pytest.mark.parametrize("length", [None, 7, 8])
def test_half_a_spectrum_and_back(length: int | None) -> None:
    values = numbers("float64", (3, 8, 1), 0)
    given = [values, None if length is None else np.array(length), np.array(-2)]
    half = tile_onnx.load(a_model("DFT", given, {"onesided": 1}, opset=20, constant=(1, 2))).run({"x0": values})["y0"]
    np.testing.assert_allclose(half[..., 0] + 1j * half[..., 1], np.fft.rfft(values[..., 0], length), atol=1e-12)
    model = a_model("DFT", [half, *given[1:]], {"onesided": 1, "inverse": 1}, opset=20, constant=(1, 2))
    back = tile_onnx.load(model).run({"x0": half})["y0"]
    np.testing.assert_allclose(back[..., 0], values[:, :length, 0], atol=1e-12)


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("window", [None, 8])
def test_of_windows(onesided: int, window: int | None) -> None:
    shape = None if window is None else np.hanning(window).astype(np.float32)
    inputs = [numbers("float32", (2, 30, 1), 0), np.array(3), shape, np.array(8)]
    check("STFT", inputs, {"onesided": onesided}, opset=17, constant=(1, 3), rtol=1e-4, atol=1e-4)
