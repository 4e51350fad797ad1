"""Mutated sources through the whole stack: what binds compiles, differentiates and runs, or is refused by an error of ours.

`packages/tile-lang/tests/test_mutations.py` says what a mutant is.
"""

from __future__ import annotations

import random
import traceback
import warnings
from itertools import islice

import numpy as np
import pytest
import tile_runtime as tile
from tile_ir.diagnostics import TileError
from tile_lang.mutations import Mutant, mutants

MOST = 1 << 16
"""Elements of a tensor: larger mutants bind, and are left to the tests of limits."""


def run(mutant: Mutant) -> bool:
    """Whether the mutant was run on the default device; its first float input is differentiated, too."""
    try:
        function = tile.Function(mutant.text)
        given = {i.name.id: mutant.types[i.name.id] for i in function.syntax.inputs if i.name.id in mutant.types}
        if any(t.size > MOST for t in function.bind(given).types().values()):
            return False
        draw = np.random.default_rng(mutant.number)
        arrays = {n: (draw.standard_normal(t.shape) * 3).astype(t.dtype.numpy) for n, t in given.items()}
        function(**arrays)
        floats = [n for n, t in given.items() if t.dtype.is_float]
        if floats and mutant.number % 3 == 0:
            results = tile.eval_shape(function, **arrays)
            results = results if isinstance(results, tuple) and not hasattr(results, "shape") else (results,)
            tile.vjp(function, wrt=floats[0])(*arrays.values(), *(np.ones(r.shape, r.dtype.numpy) for r in results))
    except TileError as error:
        assert str(error)
        return False
    return True


def farm(seed: int, count: int) -> int:
    ran = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for mutant in islice(mutants(seed), count):
            try:
                ran += run(mutant)
            except Exception:
                pytest.fail(f"mutant {mutant.number} of seed {seed}:\n{mutant.text}\n{traceback.format_exc()}")
    return ran


def test_mutated_sources_run_or_are_refused() -> None:
    assert farm(7, 800) > 60


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(10))
def test_many_mutated_sources_run_or_are_refused(chunk: int) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}: {farm(seed, 10_000)} ran")
