"""Random cases of every family of operations against JAX's own CPU; thousands of them with --run-slow."""

from __future__ import annotations

import zlib

import element_cases  # noqa: F401
import index_cases  # noqa: F401
import numpy as np
import pytest
import tensor_cases  # noqa: F401
from drawing import FAMILIES, Case
from running import check

MANY = 80
"""Cases of each family in the long run."""


def drawn(name: str, number: int) -> Case:
    return FAMILIES[name](np.random.default_rng([zlib.crc32(name.encode()), number]))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_few_cases_of_each_family(name: str) -> None:
    check(drawn(name, 0))


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_many_cases_of_each_family(name: str) -> None:
    failed: list[str] = []
    for number in range(1, MANY):
        try:
            check(drawn(name, number))
        except Exception as problem:
            failed.append(f"{number}: {type(problem).__name__}: {str(problem)[:300]}")
    assert not failed, "\n".join(failed)
