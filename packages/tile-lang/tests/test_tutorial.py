"""The tutorial's examples mean what they say, on the reference evaluator."""

from __future__ import annotations

import numpy as np
import pytest
import tile_lang
from tile_ir.dtype import from_numpy
from tile_lang.examples import TUTORIAL, Example


def types_of(inputs: dict[str, np.ndarray]) -> dict[str, tile_lang.TensorType]:
    return {n: tile_lang.TensorType(from_numpy(a.dtype), a.shape) for n, a in inputs.items()}


@pytest.mark.parametrize("example", TUTORIAL, ids=lambda e: e.name)
def test_tutorial(example: Example) -> None:
    inputs = example.inputs()
    program = tile_lang.bind(tile_lang.parse(example.source), types_of(inputs))
    found = tile_lang.evaluate(program, inputs)
    for name, want in example.expected(inputs).items():
        assert found[name].shape == want.shape
        np.testing.assert_allclose(found[name], want.astype(found[name].dtype), rtol=3e-7)


def test_examples_have_distinct_names() -> None:
    assert len({e.name for e in TUTORIAL}) == len(TUTORIAL)
