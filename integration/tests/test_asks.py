"""What users of such systems ask for: docs/asks.md has a test for each row, and those that no package has are here."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
import tile_autodiff
import tile_runtime as tile
from stack import PACKAGES, ROOT
from tile_autodiff import rules

PAGE = (ROOT / "docs" / "asks.md").read_text("utf-8")
ROW = re.compile(r"^\| (\d+) \|.*\| `([\w/.-]+\.py)::(\w+)` \|$", re.MULTILINE)
RNG = np.random.default_rng(0)
MATMUL = tile.Function("function (A[M, L], B[L, N]) -> (C) { C[i, j : M, N] = +(A[i, k] * B[k, j]); }", "matmul.tile")


def drawn(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


def test_every_row_names_a_test_that_there_is() -> None:
    rows = ROW.findall(PAGE)
    assert [int(number) for number, _, _ in rows] == [*range(1, 21)]
    for _, file, test in rows:
        assert re.search(rf"^ *def {test}\(", (ROOT / file).read_text("utf-8"), re.MULTILINE), (file, test)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda p: p.name)
def test_wheels_are_for_every_system_and_version(package: Path) -> None:
    """Sources are Python alone, so that hatchling's wheels are ``py3-none-any``; no upper bound on Python."""
    found = tomllib.loads((package / "pyproject.toml").read_text("utf-8"))
    assert found["project"]["requires-python"] == ">=3.11" and "hooks" not in str(found.get("tool"))
    assert not [f for f in package.glob("src/**/*") if f.suffix in {".so", ".pyd", ".dll", ".dylib", ".c", ".pyx"}]


def test_explain_says_what_was_vectorised_and_what_bounds_it() -> None:
    report = MATMUL.lower(drawn(64, 64), drawn(64, 64), device="llvm").report()
    (kernel,) = report.kernels
    assert any(line.startswith("vector j:1") for line in kernel.plan.lines) and kernel.plan.prediction.causes
    assert (
        kernel.roofline.bound in ("compute", "memory")
        and "Plan: " in MATMUL.lower(drawn(64, 64), drawn(64, 64)).explain()
    )


def test_scheduling_needs_no_asking_and_repeats_itself() -> None:
    a, b = drawn(96, 80), drawn(80, 64)
    first, second = (str(MATMUL.lower(a, b, device="llvm").plans) for _ in range(2))
    assert first == second and "vector" in first


def test_a_mistake_is_a_sentence_with_a_place() -> None:
    with pytest.raises(tile.TileError) as caught:
        MATMUL(drawn(3, 4), drawn(5, 6))
    lines = str(caught.value).splitlines()
    assert (
        len(lines) <= 8
        and "TILE-E107" in lines[0]
        and "matmul.tile:1:" in lines[0]
        and any("^" in line for line in lines)
    )


def test_every_operation_has_a_derivative() -> None:
    assert rules.missing() == []
    whole = "function (X[N]) -> (Y) { S = sort(X, 0); I = argsort(X, 0); G = gather(S, I); Y = cumsum(scatter(G, I, X), 0); }"
    program = tile.Function(whole).lower(drawn(5)).program
    assert [name for name, _ in tile_autodiff.gradient(program, ("X",)).outputs] == ["d_X"]


def test_arrays_pass_without_copies() -> None:
    tensor = tile.asarray(drawn(8, 8), device="llvm")
    view = np.from_dlpack(tensor)
    assert np.shares_memory(view, np.from_dlpack(tensor))

    class Foreign:
        """An array that knows nothing but the protocol."""

        __dlpack__, __dlpack_device__ = view.__dlpack__, view.__dlpack_device__

    assert np.array_equal(tile.from_dlpack(Foreign()).numpy(), view)
