"""Programs on the simulated accelerator: right answers, nothing outside placement, memories never over their size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tile_opt
from hypothesis import HealthCheck, assume, given, settings
from program_samples import programs, random_inputs
from tile_ir.diagnostics import TileError
from tile_ir.dtype import DType
from tile_ir.program.nodes import Program
from tile_lang import evaluate
from tile_sim import Report, simulate, target
from tile_sim.sweep import convolution, program_of

CONV = convolution(20, 14, 8, 16)
TEXTS = {
    "two_convs": (
        "function (I[X, Y, C], K[A, B, C, D], L[D, E]) -> (P) {"
        " O[x, y, d : X, Y, D] = +(I[x+a-1, y+b-1, c] * K[a, b, c, d]); P[x, y, e : X, Y, E] = +(O[x, y, d] * L[d, e]); }",
        {"I": "int8[10x9x4]", "K": "int8[3x3x4x8]", "L": "int8[8x5]"},
    ),
    "softmax": (
        "function (X[I, J]) -> (R) { M[i, 0 : I, 1] = >(X[i, j]); E = exp(X - M); S[i, 0 : I, 1] = +(E[i, j]); R = E / S; }",
        {"X": "float32[13x40]"},
    ),
    "pool": ("function (X[I, J]) -> (R) { R[i, j : I / 2, J] = >(X[2*i + k, j]), k < 2; }", {"X": "float32[20x30]"}),
    "chain": ("function (X[I, J], Y[J]) -> (R, B) { A = X + Y; B = A * A; R = exp(B) - X; }", {"X": "float32[50x60]", "Y": "float32[60]"}),
    "gather": ("function (X, Y) -> (R) { R = gather(X, Y); }", {"X": "float32[10x4]", "Y": "int32[6]"}),
}  # fmt: skip


def inputs_of(program: Program, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {p.name: rng.integers(-3, 4, p.type.shape).astype(p.type.dtype.numpy) for p in program.inputs}


def agrees(program: Program, data: dict[str, Any], **design: Any) -> Report:
    kernels = tile_opt.compile(program, target(**design), verify=True).kernels
    outputs, report = simulate(kernels, data)
    expected = list(evaluate(program, data).values())
    for got, want in zip(outputs.values(), expected, strict=True):
        if want.dtype.kind in "fV":
            # half precision may round a sum in another order once
            tight = 2e-5 if want.dtype.itemsize > 2 else 1e-2
            np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=tight, atol=tight)
        else:
            np.testing.assert_array_equal(got, want)
    size = design.get("SRAM_SIZE_KIB", 256) * 1024
    assert all(peak <= size for name, peak in report.peak_bytes.items() if name.startswith("SRAM"))
    assert all(0 <= share <= 1 for share in report.utilisation.values())
    return report


@pytest.mark.diagonal(4)
@pytest.mark.parametrize("sram", [1, 2, 8, 64])
@pytest.mark.parametrize("conv", [1, 3, 4])
def test_the_slides_convolution_is_right_on_every_machine(sram: int, conv: int) -> None:
    report = agrees(CONV, inputs_of(CONV), SRAM_SIZE_KIB=sram, NUM_CONV=conv)
    assert report.peak_bytes["SRAM[0]"] > 0
    assert report.ops["CONV"] >= 20 * 14 * 9 * 8 * 16


@pytest.mark.diagonal(2)
@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("sram", [0.25, 1, 64])
def test_programs_are_right(name: str, sram: float) -> None:
    program = program_of(*TEXTS[name])
    agrees(program, inputs_of(program), SRAM_SIZE_KIB=sram, NUM_SRAM=2, PIPELINE_DEPTH=1 + (sram > 1))


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(programs())
def test_random_programs_are_right(program: Program) -> None:
    assume(all(p.type.dtype is not DType.BFLOAT16 for p in program.inputs))
    try:
        evaluate(program, random_inputs(program))
        tile_opt.to_stripe(program)
    except TileError:
        assume(False)
    agrees(program, random_inputs(program), SRAM_SIZE_KIB=0.25, NUM_SRAM=2)


def test_time_without_data_is_the_time_with_data() -> None:
    kernels = tile_opt.compile(CONV, target(SRAM_SIZE_KIB=8)).kernels
    outputs, dry = simulate(kernels)
    assert outputs == {}
    assert dry == simulate(kernels, inputs_of(CONV))[1]
