"""The reference names everything there is, and its examples come to what it says."""

import numpy as np
import pytest
from tile_ir.diagnostics import Source
from tile_ir.dtype import from_numpy
from tile_ir.ops import OPS, Aggregation
from tile_ir.program.nodes import TensorType
from tile_lang import bind, evaluate, parse
from tile_lang.borders import MODES
from tile_lang.builtins import BUILTINS
from tile_lang.reference import AGGREGATIONS, BORDERS, GROUPS, OPERATORS, Entry
from tile_lang.reference import BUILTINS as DESCRIBED

ENTRIES = [pytest.param(e, id=f"{group}: {name}") for group, found in GROUPS.items() for name, e in found.items()]


def test_nothing_is_left_out() -> None:
    assert DESCRIBED.keys() == BUILTINS.keys()
    assert {op.symbol for op in OPS.values() if op.symbol} == {name.partition(" ")[0] for name in OPERATORS}
    assert {a.symbol for a in Aggregation} == AGGREGATIONS.keys()
    assert {*MODES} == BORDERS.keys()


@pytest.mark.parametrize("entry", ENTRIES)
def test_example_comes_to_what_it_says(entry: Entry) -> None:
    types = {name: TensorType(from_numpy(a.dtype), a.shape) for name, a in entry.arrays.items()}
    found = evaluate(bind(parse(Source(entry.source, "example")), types), entry.arrays)["Z"]
    if entry.gives is None:
        assert found.shape == (3,) and 0 <= found.min() < found.max() < 1
    else:
        np.testing.assert_allclose(found, np.asarray(entry.gives), rtol=2e-6, atol=1e-6)
    assert not entry.says.endswith(".")
