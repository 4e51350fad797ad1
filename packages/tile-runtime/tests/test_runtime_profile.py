"""Profiles: what is measured, what is told of it, and that nothing is measured outside."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tile_runtime as tile
from tile_ir.program.provenance import origins
from tile_runtime.measuring import profiling
from tile_runtime.recording import RECORDERS

MATMUL = tile.Function("function (A[M, L], B[L, N]) -> (C) { C[i, j : M, N] = +(A[i, k] * B[k, j]); }", "mm.tile")
SOFTMAX = tile.Function("""function (X[N, M]) -> (Y) {
    P[n, 0 : N, 1] = >(X[n, m]);
    E = exp(X - P);
    S[n, 0 : N, 1] = +(E[n, m]);
    Y = E / S;
}""")
DATA = np.random.default_rng(3).standard_normal((32, 32)).astype(np.float32)


def _network() -> Any:
    x = tile.placeholder("float32", (32, 32), name="x")
    with tile.provenance("Gemm_1"):
        y = MATMUL(x, DATA)
    z = tile.placeholder("float32", (32, 32), name="z")
    with tile.provenance("Gemm_2"):
        w = MATMUL(y, z)
    return tile.compose([x, z], {"y": y, "w": w})


def test_a_run_in_a_handler_is_noted_while_another_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a signal's handler may run Tile at any moment, also while a profile takes note."""
    handler = iter([lambda: SOFTMAX(DATA, device="llvm")])

    def interrupted(program: Any) -> Any:
        for run in handler:
            run()
        return origins(program)

    monkeypatch.setattr(profiling, "origins", interrupted)
    with tile.profile() as p:
        MATMUL(DATA, DATA, device="llvm")
    assert {k.program for k in p.kernels} == {MATMUL.name, SOFTMAX.name}


@pytest.mark.parametrize("device", ["interp", "llvm"])
def test_kernels_are_measured_and_results_stay(device: str) -> None:
    f = _network()
    want = f(DATA, DATA, device=device)
    with tile.profile() as p:
        got = f(DATA, DATA, device=device)
        again = f(DATA, DATA, device=device)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(again, want)
    kernels = f.lower(DATA, DATA, device=device).kernels
    assert len(p.launches) == 2 * len([s for s in kernels.steps if not s.once])
    assert sum(k.operations for k in p.kernels) == 2 * sum(kernels.kernels[s.kernel].flops for s in kernels.steps)
    assert {label for k in p.kernels for label in k.labels} == {"Gemm_1", "Gemm_2"}
    assert {line for k in p.kernels for line in k.lines} == {"mm.tile:1"}
    assert all(launch.seconds >= 0 and launch.device == f"{device}:0" for launch in p.launches)
    assert p.seconds == pytest.approx(sum(k.seconds for k in p.kernels))
    assert (device == "interp") == all(k.roofline is None for k in p.kernels)


def test_nothing_is_measured_outside_and_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), tile.profile() as p:
        SOFTMAX(DATA, device="llvm")
        1 / 0  # noqa: B018
    count = len(p.launches)
    SOFTMAX(DATA, device="llvm")
    assert count and len(p.launches) == count and not RECORDERS


def test_profiles_nest_and_hear_of_tensors_outputs_and_updates() -> None:
    t = tile.asarray(DATA, "llvm")
    out = np.empty_like(DATA)
    add = tile.Function("function (A, B) -> (C) { C = A + B; }")
    x = tile.placeholder("float32", (32, 32), name="x")
    step = tile.compose([x], [], updates=[(t, add(t, x))])
    with tile.profile() as outer:
        made = SOFTMAX(t)
        with tile.profile() as inner:
            assert SOFTMAX(DATA, out=out, device="llvm") is out
            step(DATA)
    assert isinstance(made, tile.Tensor)
    np.testing.assert_array_equal(out, SOFTMAX(DATA, device="llvm"))
    np.testing.assert_array_equal(out, made.numpy())
    np.testing.assert_array_equal(t.numpy(), 2 * DATA)
    assert 0 < len(inner.launches) < len(outer.launches)


def test_bound_tensors_that_are_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    w = tile.asarray(np.ones((64, 32), np.float32), "llvm")
    product = tile.Function("function (A[M, L], B[N, L]) -> (C) { C[i, j : M, N] = +(A[i, k] * B[j, k]); }")
    x = tile.placeholder("float32", (32, 32), name="x")
    f = tile.compose([x], [product(x, w)])
    with tile.profile() as p:
        got = f(DATA)
    np.testing.assert_allclose(got, DATA.sum(1, keepdims=True) * np.ones(64), rtol=1e-4, atol=1e-5)
    assert p.launches


def test_programs_from_the_disk_cache_say_where_they_come_from(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("TILE_CACHE_DIR", str(tmp_path))
    MATMUL(DATA, DATA, device=None)
    with tile.profile() as p:
        tile.Evaluator("llvm")(MATMUL, DATA, DATA)
    assert {line for k in p.kernels for line in k.lines} == {"mm.tile:1"}
    assert {k.program for k in p.kernels} == {"mm"}


def test_tables_documents_and_traces(tmp_path: Path) -> None:
    f = _network()
    with tile.profile() as p:
        f(DATA, DATA, device="llvm")
    table = str(p)
    assert "Gemm_1" in table and "GFLOP/s" in table and "composition on llvm:0" in table
    p.to_json(tmp_path / "p.json")
    document = json.loads((tmp_path / "p.json").read_text())
    assert len(document["launches"]) == len(p.launches) and document["kernels"][0]["seconds"] >= 0
    p.to_trace(tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    complete = [e for e in events if e["ph"] == "X"]
    assert len(complete) == len(p.launches) and {e["name"] for e in complete} <= {"Gemm_1", "Gemm_2", "Gemm_1, Gemm_2"}
    assert all(a["ts"] <= b["ts"] for a, b in pairwise(complete))
    assert str(tile.Profile())  # of nothing: headings alone
