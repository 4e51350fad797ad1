"""Plans as users meet them: on what was lowered, given to an evaluator, and refused with their place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tile_runtime as tile
from tile_hal import Device
from tile_opt.plan.plan import Plan
from tile_opt.plan.text import Plans, parse_plans
from tile_runtime.plans import read_plans

A = np.arange(64, dtype=np.float32).reshape(8, 8)
TEXT = "plan kernel_0 {\n  serial i:3\n}\n"


def covered(plans: Plans) -> int:
    return plans["kernel_0"].levels[0].covers[0].size


def test_lowered_has_the_plans_that_were_chosen(planned: Device, matmul: tile.Function) -> None:
    plans = matmul.lower(A, A, device=planned).plans
    assert covered(plans) == 4
    assert str(plans).splitlines()[:3] == [
        "// C[i, j : M, N] = +(A[i, k] * B[k, j]);",
        "// loops i: 8, j: 8, k: 8",
        "// operands C, A, B",
    ]
    assert parse_plans(str(plans)) == plans


def test_an_evaluator_takes_plans_in_every_form(planned: Device, matmul: tile.Function, tmp_path: Path) -> None:
    file = tmp_path / "my.plan"
    file.write_text(f"\ufeff{TEXT}", encoding="utf-8")
    for given in (TEXT, file, parse_plans(TEXT), dict(parse_plans(TEXT))):
        evaluator = tile.Evaluator(planned, plans=given)
        np.testing.assert_array_equal(evaluator(matmul, A, A), A @ A)
        low = evaluator.lower(matmul, A, A)
        assert covered(low.plans) == 3 and low.compiled.decisions["kernel_0"].given
    own = matmul.lower(A, A, device=planned)
    assert tile.Evaluator(planned, plans=own.plans).lower(matmul, A, A).kernels == own.kernels


def test_a_plan_that_does_not_fit_names_its_line(planned: Device, matmul: tile.Function, tmp_path: Path) -> None:
    file = tmp_path / "my.plan"
    file.write_text(TEXT.replace("i:3", "ii:3"), encoding="utf-8")
    with pytest.raises(tile.TilePlanError) as caught:
        tile.Evaluator(planned, plans=file)(matmul, A, A)
    assert str(caught.value).startswith(f"{file}:2:10: error TILE-E631: the kernel 'kernel_0' has no loop 'ii'")
    with pytest.raises(tile.TilePlanError, match=r"no kernel 'C' is planned here(.|\n)*kernels: kernel_0"):
        tile.Evaluator(planned, plans={"C": Plan(())})(matmul, A, A)


@pytest.mark.parametrize("given", [3, {"C": "plan"}, {1: Plan(())}, [Plan(())]])
def test_what_is_no_plan_is_an_error_of_its_own(given: object) -> None:
    with pytest.raises(tile.TileTypeError, match="TILE-E517: plans are Plan values by kernel name"):
        read_plans(given)  # pyright: ignore


def test_text_that_is_no_plan_and_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(tile.TileSyntaxError, match="did you mean 'serial'"):
        tile.Evaluator("interp", plans=TEXT.replace("serial", "sereal"))
    (tmp_path / "latin.plan").write_bytes(b"\xe9")
    with pytest.raises(tile.TileSyntaxError, match="is not UTF-8"):
        tile.Evaluator("interp", plans=tmp_path / "latin.plan")
    with pytest.raises(FileNotFoundError):
        tile.Evaluator("interp", plans=tmp_path / "none.plan")


def test_stripe_after_a_pass_runs_nothing_more(
    planned: Device, matmul: tile.Function, monkeypatch: pytest.MonkeyPatch
) -> None:
    low = tile.Evaluator(planned, plans=TEXT).lower(matmul, A, A)
    monkeypatch.setattr("tile_opt.compiler.lower_kernels", None)
    assert "#scheduled" not in str(low.stripe_after("merge"))
    assert "i:3" in str(low.stripe_after("pieces")) and str(low.stripe_after("initial"))
    with pytest.raises(tile.TileTypeError, match="its passes are initial, inline, fuse, merge, pieces"):
        low.stripe_after("mrge")
