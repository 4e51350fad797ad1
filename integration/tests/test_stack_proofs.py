"""Schedules of random programs are proved: the pass lists of the CPU and of two families of graphics processors.

Interpreters and devices run the items of a group one after the other, so that a race between them may never show;
here it is refuted by sets, and so is a product that is missing or there twice.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from time import process_time

import pytest
import tile_autodiff
import tile_hal
import tile_opt
from hal_opencl.families import family_target
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from stack import bind
from tile_hal.conformance import strategies
from tile_hal.conformance.strategies import Case
from tile_ir.dtype import DType
from tile_ir.program.nodes import TensorType
from tile_ir.target import HardwareSettings, Target
from tile_opt.proof import Verdict, prove, prove_steps

SMALL = HardwareSettings(vec_size=4, vector_bytes=16, registers=16, l1_bytes=256, l2_bytes=1024, l3_bytes=64, cores=2)
CPU = tile_hal.device("llvm").target
"""A machine so small that small tensors meet every kind of tile."""
TARGETS: dict[str, Target] = {
    "cpu": Target("small", SMALL, passes=tuple(
        replace(p, options={**p.options, "group_ops": 64}) if p.name == "schedule_kernels" else p for p in CPU.passes
    ), nodes=CPU.nodes),
    "gpu-nvidia": family_target("gpu-nvidia").resolved(cores=8),
    "gpu-amd": family_target("gpu-amd").resolved(cores=8),
}  # fmt: skip
BATCH_NORM = """function (X[N, C, H, W], G[C]) -> (O, V) {
    S[c : C] = +(X[n, c, y, x]); D = X - reshape(S / (N * H * W), C, 1, 1); Q = D * D; V[c : C] = +(Q[n, c, y, x]);
    O = D * reshape(G / sqrt(V / (N * H * W) + 0.00001), C, 1, 1); }"""
"""Statistics that are outputs, beside others that are not."""
RESHAPED = {
    "function (A[], B[]) -> (O) { O[2*j, k + 1, i : 10, 8, 3] = =(A[] + B[]); }": "every other row",
    "function (A[], B[]) -> (O) { O[3*j, k + 1, i : 10, 8, 3] = +(A[] * B[]), j < 3, k < 7; }": "every third row, one column not",
    "function (A[], B[]) -> (O) { O[i, 5 - 2*j, 2*k + 1 : 4, 6, 8] = >(A[] + B[]); }": "backwards",
}
"""Merged loops see the result under another shape, so that subscripts in it are quotients; rows between are zeros."""
LEAST = 0.99
"""The share of kernels that has to be proved; the rest must be answers that did not come in time."""


SECONDS = 300.0
"""For each claim: what comes of it does not depend on how busy the machine is."""


def explore(examples: int) -> tuple[Counter[Verdict], dict[str, float]]:
    """What became of the kernels of random programs, and CPU seconds by stage."""
    verdicts: Counter[Verdict] = Counter()
    spent = {"compile": 0.0, "prove": 0.0}

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), phases=(Phase.generate,))
    @given(strategies.contractions(tuple(DType)), st.sampled_from(sorted(TARGETS)))
    def run(case: Case, target: str) -> None:
        start = process_time()
        compiled = tile_opt.compile(bind(case.source, case.inputs), TARGETS[target])
        middle = process_time()
        report = prove(compiled.stripe_initial, compiled.stripe, seconds=SECONDS)
        spent["compile"] += middle - start
        spent["prove"] += process_time() - middle
        verdicts.update(report.kernels().values())
        assert not report.of(Verdict.REFUTED), f"{target}: {report}\n{case}"
        steps = prove_steps(compiled.kernels)
        assert steps.proved, f"{target}: {steps}\n{case}"

    run()
    return verdicts, spent


def test_a_hundred_random_schedules(capsys: pytest.CaptureFixture[str]) -> None:
    _check(100, capsys)


@pytest.mark.slow
def test_many_random_schedules(capsys: pytest.CaptureFixture[str]) -> None:
    _check(10_000, capsys)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", RESHAPED, ids=list(RESHAPED.values()))
def test_rows_that_a_merged_loop_leaves_out(source: str, target: str) -> None:
    scalars = {name: TensorType(DType.UINT16, ()) for name in "AB"}
    compiled = tile_opt.compile(bind(source, scalars), TARGETS[target])
    report = prove(compiled.stripe_initial, compiled.stripe, seconds=SECONDS)
    assert set(report.kernels().values()) == {Verdict.PROVED}, str(report)


@pytest.mark.diagonal(2)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", [(4, 3, 5, 6), (2, 40, 8, 8)], ids=str)
def test_norms_and_their_gradients(shape: tuple[int, ...], target: str) -> None:
    types = {"X": TensorType(DType.FLOAT32, shape), "G": TensorType(DType.FLOAT32, shape[1:2])}
    program = bind(BATCH_NORM, types)
    for each in (program, tile_autodiff.gradient(program, ("X", "G"))):
        compiled = tile_opt.compile(each, TARGETS[target])
        report = prove(compiled.stripe_initial, compiled.stripe, seconds=SECONDS)
        assert set(report.kernels().values()) == {Verdict.PROVED}, str(report)


def _check(examples: int, capsys: pytest.CaptureFixture[str]) -> None:
    verdicts, spent = explore(examples)
    total = sum(verdicts.values())
    with capsys.disabled():
        counts = ", ".join(f"{n} {verdict.value}" for verdict, n in verdicts.items())
        times = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in spent.items())
        print(f"\n{total} kernels of {examples} random programs: {counts}; CPU seconds: {times}")
    assert verdicts[Verdict.EXCLUDED] == 0
    assert verdicts[Verdict.PROVED] >= LEAST * total
