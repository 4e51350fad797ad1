"""The farm itself: some hundred cases of it, and that it finds, reduces and reports what is planted."""

from __future__ import annotations

import os
import time
from pathlib import Path
from random import Random

import pytest
import tile_hal
from farm import workers
from farm.draft import Draft
from farm.draw import draw
from farm.failures import Failure, Symptom
from farm.judge import Trial, Verdict
from farm.machines import FAMILIES
from farm.reduce import forked, reduce
from farm.report import markdown, regression_test
from farm.sample import Sample
from farm.turned import turned
from farm.ways import BACKENDS, Way, ways
from farm.workers import Farm, Harvest
from tile_ir.diagnostics import TileError
from tile_ir.dtype import DType
from tile_ir.program.nodes import TensorType


def test_some_hundred_cases() -> None:
    harvest = Farm(20_260, BACKENDS, 1, 3600.0, 0, 14).run()
    assert not harvest.failures, markdown(harvest, harvest.failures, "found by the default run")
    assert harvest.total("same") > 80


@pytest.mark.skipif("opencl:0" not in {d.id for d in tile_hal.devices()}, reason="no OpenCL device")
@pytest.mark.parametrize("seeds", [range(5), pytest.param(range(5, 200), marks=pytest.mark.slow)], ids=["few", "many"])
def test_operands_that_run_other_ways_meet_in_kernels_of_graphics_processors(seeds: range) -> None:
    for seed in seeds:
        for family in FAMILIES:
            assert _turned(seed).check(Way("opencl", family)) is Verdict.SAME


def _turned(seed: int) -> Trial:
    draft = Draft(Random(f"turned {seed}"), DType.FLOAT32, ())
    turned(draft)
    return Trial(Sample(draft.text(draft.unused), draft.inputs, seed, kind="turned"))


def test_a_program_follows_from_its_number_alone() -> None:
    for number in range(40):
        first, second = draw(3, number), draw(3, number)
        assert first == second
        if first is not None and second is not None:
            several = [[*ways(s, Random(number), 2, BACKENDS)] for s in (first, second)]
            assert several[0] == several[1]


def test_programs_are_of_every_kind() -> None:
    drawn = [s for n in range(400) if (s := draw(1, n)) is not None]
    kinds = {s.kind for s in drawn}
    assert {"contraction", "matmul", "window", "rows", "scan", "gather", "scatter", "mutated source"} <= kinds
    assert {s.order for s in drawn} == {0, 1, 2}
    sizes = {size for s in drawn for t in s.types.values() for size in t.shape}
    assert {0, 1, 13, 16, 31, 64} <= sizes
    assert len({t.dtype for s in drawn for t in s.types.values()}) >= 12
    assert _refused(drawn) < len(drawn) // 20


def _refused(samples: list[Sample]) -> int:
    count = 0
    for sample in samples:
        try:
            assert sample.program
        except TileError:
            count += 1
    return count


# --- what is planted -------------------------------------------------------------------------------------

LARGE = """function (A[M, K], B[K, N], C[N], D[M]) -> (P, Q) {
    X[i, j : M, N] = +(A[i, k] * B[k, j]), i - j < 4;
    Y = relu(X + C) * 2 - tanh(X);
    P[i : M] = >(Y[i, j]);
    Z = reshape(A, K, M);
    Q = D * P + gather(P, as_int(D, 32));
}
"""
TYPES = {n: TensorType(DType.FLOAT32, s) for n, s in {"A": (5, 7), "B": (7, 8), "C": (8,), "D": (5,)}.items()}
WAY = Way("llvm", "small", ("fuse", "inline", "merge"), form="compiled", threads=3)


def planted(sample: Sample, way: Way) -> Symptom | None:
    """The defect: a maximum over more than one column, compiled with the pass `inline`."""
    passes = way.passes or ()
    hit = ">(" in sample.source and any(len(t.shape) > 1 and t.shape[1] > 1 for t in sample.types.values())
    return Symptom("wrong result") if hit and "inline" in passes and _binds(sample) else None


def _binds(sample: Sample) -> bool:
    try:
        return bool(sample.program)
    except TileError:
        return False


def test_a_planted_defect_is_reduced_to_a_minimal_program() -> None:
    failure = Failure(1, 2, Sample(LARGE, TYPES, kind="planted"), WAY, Symptom("wrong result"))
    less = reduce(failure, planted, 3600.0)
    assert less.sample.source.count(";") == 1 and len(less.sample.source) < 80
    assert sum(t.size for t in less.sample.types.values()) <= 2
    assert less.way == Way("stripe", "small", ("inline",))


def crashes(sample: Sample, way: Way) -> Symptom | None:
    if "tanh" in sample.source and _binds(sample):
        os._exit(7)
    return None


def test_a_crash_is_reduced_in_children_of_its_own() -> None:
    source = "function (A[N]) -> (X, Y) { X = A + 1; Y = tanh(X * 2); }"
    sample = Sample(source, {"A": TensorType(DType.FLOAT32, (3,))}, kind="planted")
    less = reduce(Failure(1, 2, sample, Way("stripe"), Symptom("crash")), forked(3600.0, crashes), 3600.0)
    assert less.symptom.kind == "crash"
    assert less.sample.source.count(";") == 1 and "tanh" in less.sample.source


def test_workers_that_crash_or_hang_do_not_end_the_farm(monkeypatch: pytest.MonkeyPatch) -> None:
    def attempt(job: workers.Job, number: int, say: workers.Say) -> None:
        say({"at": number, "way": 0})
        if number == 3:
            os._exit(7)
        if number == 5:
            time.sleep(1000)
        say({"counts": {"same: stripe: planted: 0": 1}})

    monkeypatch.setattr(workers, "attempt", attempt)
    harvest = Farm(1, ("stripe",), 2, 3600.0, 0, 9, deadline=3.0).run()
    assert sorted((f.number, f.symptom.kind) for f in harvest.failures) == [(3, "crash"), (5, "hang")]
    assert harvest.total("same") == 7


def test_a_report_has_counts_commands_and_a_test_that_runs(tmp_path: Path) -> None:
    sample = Sample(
        "function (A[N]) -> (B) { B = A + 1; }\n", {"A": TensorType(DType.FLOAT32, (3,))}, kind="elementwise"
    )
    failure = Failure(7, 8, sample, Way("stripe", "small"), Symptom("wrong result", "", "B differs"))
    harvest = Harvest(failures=[failure], programs=1, seconds=2.0)
    harvest.counts.update({"same: stripe, small: elementwise: 0": 4, "failed: stripe, small: elementwise: 0": 1})
    page = markdown(harvest, [failure], "Farm")
    assert "4 cases equal to the reference, 1 failed" in page and "2 cases a second" in page
    assert "python3 dev.py farm --seed 7 --number 8`" in page and "B = A + 1" in page
    written = tmp_path / "test_it.py"
    written.write_text(regression_test(failure), "utf-8")
    assert pytest.main(["-q", "-p", "no:cacheprovider", str(written)]) == 0
