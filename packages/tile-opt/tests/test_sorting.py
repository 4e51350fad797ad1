"""Sorting, by every algorithm: what unscheduled Stripe gives is what the reference evaluator says, for every dtype."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tile_ir.dtype import DType
from tile_ir.program.nodes import Argsort, Param, Program, TensorType
from tile_ir.stripe.interpret import run
from tile_ir.target import HardwareSettings, Target
from tile_lang.evaluate import evaluate
from tile_opt.translate import counting, ranking, to_stripe

ONE = Target("one core", HardwareSettings(vector_bytes=16), nodes=frozenset(("Bitcast",)))
MACHINES = {
    "one core": ONE,
    "many cores": ONE.resolved(cores=4),
    "work items": ONE.resolved(threads=64),
    "no words": replace(ONE, nodes=frozenset()),
}
DTYPES = [d for d in DType if d is not DType.BOOL]


def sorting(shape: tuple[int, ...], axis: int, wanted: int, dtype: DType, descending: bool) -> Program:
    type_ = TensorType(DType.INT32, (*shape[:axis], wanted, *shape[axis + 1 :]))
    op = Argsort("S", type_, "A", axis, descending)
    return Program("sort", (Param("A", TensorType(dtype, shape)),), (op,), (("S", "S"),))


def keys(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    """Few values, so that many are equal, with the extreme ones among them."""
    found = rng.integers(0, 5, shape)
    values: list[float] = [dtype.min_value, 0, 1, 7, dtype.max_value]
    if dtype.is_float:
        values = [float("-inf"), -0.0, 0.0, -1.5, float("nan")]
    return np.array(values, dtype.numpy)[found]


@pytest.fixture(autouse=True, scope="module")
def short_pieces():
    """So that lines of a few elements are cut into pieces, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "PIECE", 8)
        patch.setattr(ranking, "RUN", 8)
        yield


@settings(max_examples=40, deadline=None)
@given(data=st.data(), machine=st.sampled_from(sorted(MACHINES)), dtype=st.sampled_from(DTYPES), down=st.booleans())
def test_every_algorithm_gives_what_the_language_says(
    data: st.DataObject, machine: str, dtype: DType, down: bool
) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 3), max_size=2)))
    axis = data.draw(st.integers(0, len(shape)))
    shape = (*shape[:axis], data.draw(st.integers(1, 40)), *shape[axis:])
    wanted = data.draw(st.one_of(st.just(shape[axis]), st.integers(1, min(shape[axis], 40))))
    program = sorting(shape, axis, wanted, dtype, down)
    given_keys = keys(np.random.default_rng(prod(shape)), dtype, shape)
    expected = evaluate(program, {"A": given_keys})["S"]
    got = run(to_stripe(program, MACHINES[machine]), {"A": given_keys})["S"]
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(("dtype", "count"), [(DType.FLOAT32, 64 * 3 * 4), (DType.INT32, 1003)])
def test_parts_of_a_line_are_walked_together(dtype: DType, count: int) -> None:
    program = sorting((2, count), 1, 3, dtype, True)
    given_keys = keys(np.random.default_rng(count), dtype, (2, count))
    made = to_stripe(program, ONE.resolved(cores=2))
    assert "S_codes" in {r.into for b in made.entry.body for r in getattr(b, "refs", ())}
    np.testing.assert_array_equal(run(made, {"A": given_keys})["S"], evaluate(program, {"A": given_keys})["S"])


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.INT32, DType.FLOAT16, DType.UINT16])
@pytest.mark.parametrize(("shape", "axis", "down"), [((2, 165), 1, False), ((2052, 1), 0, True)])
def test_what_is_wanted_is_chosen_before_it_is_sorted(
    dtype: DType, shape: tuple[int, int], axis: int, down: bool
) -> None:
    program = sorting(shape, axis, 40, dtype, down)
    rng = np.random.default_rng(shape[0])
    few, many = keys(rng, dtype, shape), rng.integers(0, 200, shape).astype(dtype.numpy)
    given_keys = np.where(rng.integers(0, 2, shape), few, many).astype(dtype.numpy)
    made = to_stripe(program, ONE)
    assert "S_kept" in {r.into for b in made.entry.body for r in getattr(b, "refs", ())}
    np.testing.assert_array_equal(run(made, {"A": given_keys})["S"], evaluate(program, {"A": given_keys})["S"])
