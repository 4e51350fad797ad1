"""Every code example of the tutorial, as printed there, through the public API."""

from __future__ import annotations

import numpy as np
import pytest
import tile_runtime as tile
from tile_hal.interfaces import Device
from tile_lang.examples import TUTORIAL, Example

ULPS = 8
"""Sums and products are exact on the examples' whole numbers; functions and divisions round a few times."""


@pytest.mark.parametrize("example", TUTORIAL, ids=[e.name for e in TUTORIAL])
def test_example_is_right(device: Device, example: Example) -> None:
    function = tile.Function(example.source, example.name)
    for seed in range(2):
        inputs = example.inputs(seed)
        answer = function(device=device, **inputs)
        expected = example.expected(inputs)[example.output]
        assert answer.shape == expected.shape
        error = np.abs(answer.astype(np.float64) - expected)
        assert np.all(error <= ULPS * 2.0**-23 * np.abs(expected)), (answer, expected)
