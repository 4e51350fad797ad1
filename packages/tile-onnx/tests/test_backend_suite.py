"""ONNX's own backend suite; `tests/backend/` has a list per device of the cases that do not pass, and why.

By default a fifth of what has the same operators on llvm, so that each is met, and a sample of that on the others;
`--run-slow` runs everything. Networks of the kind "real" take long.
"""

from __future__ import annotations

import time
from collections import Counter
from itertools import product

import backend_cases
import numpy as np
import pytest
import tile_runtime as tile

SAMPLE = {"llvm": 1, "interp": 14, "opencl": 14}
"""By default every so many-th case of a sixth of the suite runs on a device."""
ALIKE = 10
"""By default every so many-th case with the same operators runs at all."""
WRITTEN_OUT = 24
"""The same of those that write out, as other operators, what another case has as one."""
LIMIT = 10.0
"""CPU seconds that a case may take."""


def _parameters() -> list[object]:
    met: Counter[object] = Counter()
    sampled: list[str] = []
    for case in backend_cases.cases().values():
        operators = backend_cases.operators(case)
        every = WRITTEN_OUT if case.name.endswith("_expanded") else ALIKE
        if case.kind != "real" and met[operators] % every == 0:
            sampled.append(case.name)
        met[operators] += 1
    quick = {(device, name) for device, every in SAMPLE.items() for name in sampled[::every]}
    return [
        pytest.param(*each, id="-".join(each), marks=() if each in quick else pytest.mark.slow)
        for each in product(SAMPLE, backend_cases.cases())
    ]


@pytest.fixture(scope="session")
def present() -> set[str]:
    """Backends with a device on this machine."""
    return {device.id.partition(":")[0] for device in tile.devices()}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("device", "name"), _parameters())
def test_case(device: str, name: str, present: set[str]) -> None:
    if device not in present:
        pytest.skip(f"no device of {device} here")
    case = backend_cases.cases()[name]
    known = backend_cases.listed(device).get(name)
    if known is not None and known.startswith(backend_cases.SLOW):
        pytest.skip(known)
    start = time.process_time()
    why = backend_cases.failure(case, device)
    if known is None:
        assert why is None
    else:
        assert why is not None, f"it passes: take it out of tests/backend/{device}.txt ({known})"
    assert case.kind == "real" or time.process_time() - start < LIMIT


@pytest.mark.parametrize("kind", backend_cases.POOLS)
def test_windows_pooled_at_once_are_those_pooled_one_by_one(kind: str) -> None:
    values = np.random.default_rng(0).standard_normal((1, 2, 5, 4)).astype(np.float32)
    given = values, values.shape, (2, 3), (2, 1), (2, 2), kind
    found, wanted = (pool(*given, p=3) for pool in (backend_cases.pool, backend_cases.their_pool))
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize("device", SAMPLE)
def test_lists_name_cases_that_exist(device: str) -> None:
    assert set(backend_cases.listed(device)) <= set(backend_cases.cases())
