"""ONNX's own backend suite; `tests/backend/` has a list per device of the cases that do not pass, and why.

By default the whole suite on llvm and a sample on the others; `--run-slow` runs everything. Networks of the kind "real"
take long.
"""

from __future__ import annotations

import time

import backend_cases
import pytest
import tile_runtime as tile

SAMPLE = 40
"""By default every so many-th case runs on devices but llvm."""
LIMIT = 10.0
"""CPU seconds that a case may take."""


def _parameters() -> list[object]:
    found: list[object] = []
    for device in ("llvm", "interp", "opencl"):
        for k, case in enumerate(backend_cases.cases().values()):
            slow = case.kind == "real" or (device != "llvm" and k % SAMPLE)
            found.append(
                pytest.param(device, case.name, id=f"{device}-{case.name}", marks=[pytest.mark.slow] * bool(slow))
            )
    return found


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


@pytest.mark.parametrize("device", ["llvm", "interp", "opencl"])
def test_lists_name_cases_that_exist(device: str) -> None:
    assert set(backend_cases.listed(device)) <= set(backend_cases.cases())
