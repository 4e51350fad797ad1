"""Random programs and their gradients for many inputs at once are what they are for each by itself (`tile_autodiff.batched`)."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
import tile_autodiff
import tile_lang
from farm.draw import draw
from tile_ir.diagnostics import TileError

COUNT = 100
LARGEST = 5000
"""Elements of all values of a program."""


def drawn(number: int) -> tuple[Any, dict[str, Any]] | None:
    """A program of some inputs, and those."""
    try:
        sample = draw(31, number)
        program = None if sample is None else sample.program
    except TileError:
        return None
    if sample is None or program is None or sum(t.size for t in program.types().values()) > LARGEST:
        return None
    return (program, dict(sample.inputs)) if program.inputs else None


@pytest.mark.parametrize("number", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in range(1, 20))])
def test_many_at_once_are_each_by_itself(number: int) -> None:
    for case in range(number * COUNT, (number + 1) * COUNT):
        found = drawn(case)
        if found is not None:
            check(Random(case), *found)


def check(random: Random, program: Any, inputs: dict[str, Any]) -> None:
    size, names = random.choice((1, 2, 3)), [p.name for p in program.inputs]
    axes = {n: random.randrange(inputs[n].ndim + 1) for n in random.sample(names, random.randrange(1, len(names) + 1))}
    mixed = np.random.default_rng(0)
    rows = [inputs, *({**inputs, **{n: shuffled(mixed, inputs[n]) for n in axes}} for _ in range(size - 1))]
    ends = {public: random.randrange(len(program.types()[v].shape) + 1) for public, v in program.outputs}
    many = {**inputs, **{n: np.stack([row[n] for row in rows], axis) for n, axis in axes.items()}}
    with np.errstate(all="ignore"):
        made = tile_lang.evaluate(tile_autodiff.batched(program, axes, size, ends), many)
        alone = [tile_lang.evaluate(program, row) for row in rows]
    for public, axis in ends.items():
        want = np.stack([one[public] for one in alone], axis)
        assert (made[public].shape, made[public].dtype) == (want.shape, want.dtype)
        same(made[public], want)


def shuffled(mixed: np.random.Generator, array: Any) -> Any:
    return mixed.permutation(array.reshape(-1)).reshape(array.shape)


def same(found: Any, want: Any) -> None:
    if want.dtype.kind in "biu":
        np.testing.assert_array_equal(found, want)
        return
    tolerance = 2e-3 if want.dtype.itemsize < 4 else 1e-4  # sums of broadcast values may be taken in another order
    np.testing.assert_allclose(found.astype(np.float64), want.astype(np.float64), rtol=tolerance, atol=1e-4)
