"""Reports as data and as text."""

from __future__ import annotations

import json
from dataclasses import replace
from math import prod

import pytest
from explain_support import CONV, CONV_SHAPES, COPY, CPU, GPU, MATMUL, SOFTMAX, compiled
from tile_ir.target import PassConfig, Target
from tile_opt.explain import explain, explain_html, report
from tile_opt.explain.text import duration, size
from tile_opt.passes.kernels.group_tile import GroupTile
from tile_opt.passes.kernels.schedule_kernels import ScheduleKernels
from tile_opt.plan.text import brief, parse_plans


def test_the_conv_has_the_tables_and_its_plan() -> None:
    made = compiled(CONV, CPU, **CONV_SHAPES)
    got = report(made)
    kernel = next(k for k in got.kernels if len(k.tables) > 1)
    acc = next(t for t in kernel.tables if t.aggregation == "add")
    assert dict(zip(acc.names, acc.ranges, strict=True)) == {"ci": 8, "co": 16, "i": 3, "j": 3, "x": 16, "y": 16}
    image = next(c for c in acc.columns if c.buffer == "D")
    assert dict(zip(acc.names, image.strides, strict=True)) == {"ci": 1, "co": 0, "i": 128, "j": 8, "x": 128, "y": 8}
    assert image.offset == -136
    assert len(acc.constraints) == 4 and {right for _, right in acc.constraints} == {-1, 16}
    assert kernel.output_operations[-1] == "R = cond(_T0_1, O, 0)"
    assert kernel.plan.kind == made.plans["kernel_0"].reason and "vector co:1 x8" in kernel.plan.lines
    assert kernel.plan.prediction is not None and 0 < (kernel.plan.prediction.share or 0) <= 1
    assert kernel.lines == (("sample.tile", 2), ("sample.tile", 3))
    assert got.sources == {"sample.tile": CONV}
    assert kernel.schedule.lanes == 8 and kernel.roofline is not None
    assert kernel.roofline.bound == "compute" and kernel.roofline.attainable == 1.0


@pytest.mark.parametrize("target", [CPU, GPU])
def test_constraints_that_the_others_imply_are_marked(target: Target) -> None:
    source = "function (I[A, B], J[C]) -> (O) { O[i/5+j : 150] = +(I[i/3+j, i/2] * J[i/18]); }"
    made = compiled(source, target, I=(150, 150), J=(150,))
    (table,) = [t for k in report(made).kernels for t in k.tables if t.aggregation == "add"]
    assert table.names == ("v0_0", "v0_1", "v1_0") and table.ranges == (12, 13, 13)
    assert len(table.constraints) == 3 and table.implied == (((1, 12, 0), 149),)
    lines = [line.strip() for line in explain(made).splitlines() if "Constraint:" in line]
    one = "Constraint: (1,12) <= 149"  # of the stage after the aggregation
    assert len(lines) == 5 and lines[-1] == one
    assert lines[-2] == "Constraint: (1,12,0) <= 149, implied by the others"


def test_memory_and_totals_add_up() -> None:
    made = compiled(MATMUL, CPU, A=(32, 16), B=(16, 64))
    got = report(made)
    assert (got.memory.inputs, got.memory.outputs) == (4 * (32 * 16 + 16 * 64), 4 * 32 * 64)
    assert got.memory.peak == got.memory.inputs + got.memory.outputs + got.memory.arena
    assert got.operations == 2 * 32 * 64 * 16
    assert got.bytes == sum(k.bytes for k in got.kernels)
    assert list(got.seconds) == list(made.timings)


@pytest.mark.parametrize(
    ("source", "shapes", "kind"),
    [
        (MATMUL, {"A": (128, 64), "B": (64, 128)}, "items with"),
        (SOFTMAX, {"A": (8, 256)}, "share a row"),
        (COPY, {"A": (128, 128)}, "goes through local memory"),
        ("function (A) -> (B) { B = A + 1; }", {"A": (1000,)}, "an item per element"),
    ],
)  # fmt: skip
def test_gpu_plans_are_those_of_the_schedule(source: str, shapes: dict[str, tuple[int, ...]], kind: str) -> None:
    (kernel,) = report(compiled(source, GPU, **shapes)).kernels
    assert kind in kernel.plan.kind and kernel.plan.lines[0].startswith("grid ")
    assert prod(i.range for i in kernel.schedule.items) == prod(kernel.group_size)
    assert prod(g.range for g in kernel.schedule.grid) == prod(kernel.groups)
    staged = any(" in LOCAL" in line for line in kernel.plan.lines)
    assert (kernel.schedule.local_bytes > 0) is (kernel.schedule.barriers > 0) is staged
    assert len(kernel.schedule.reductions) == (2 if kind == "share a row" else 0)


@pytest.mark.parametrize("target", [CPU, GPU], ids=["cpu", "gpu"])
def test_a_plan_is_shown_as_it_prints(target: Target) -> None:
    made = compiled(MATMUL, target, A=(96, 64), B=(64, 80))
    for kernel in report(made).kernels:
        text = "\n".join([f"plan {kernel.name} {{", *kernel.plan.lines, "}"])
        assert parse_plans(text)[kernel.name] == replace(made.plans[kernel.name], reason="")


def test_given_plans_are_shown_as_such() -> None:
    own = compiled(MATMUL, CPU, A=(96, 64), B=(64, 80))
    made = compiled(MATMUL, CPU, plans=own.plans, A=(96, 64), B=(64, 80))
    assert [k.plan.given for k in report(made).kernels] == [True] * len(own.plans)
    assert ", as given" in explain(made) and ", as given" not in explain(own)


def test_nothing_is_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [compiled(MATMUL, target, A=(96, 64), B=(64, 80)) for target in (CPU, GPU)]
    monkeypatch.setattr(ScheduleKernels, "candidates", None)
    monkeypatch.setattr(GroupTile, "candidates", None)
    for name in ("tile_opt.pipeline.schedule", "tile_opt.compiler.schedule", "tile_opt.compiler.lower_kernels"):
        monkeypatch.setattr(name, None)
    assert all(report(m).kernels and explain(m) and explain_html(m, candidates=False) for m in made)


def test_causes_add_up_and_measured_times_stand_beside_them() -> None:
    made = compiled(MATMUL, CPU, A=(128, 64), B=(64, 128))
    (kernel,) = report(made, measured={"kernel_0": 3e-5}).kernels
    found = kernel.plan.prediction
    assert found is not None and sum(c.seconds for c in found.causes) == pytest.approx(found.seconds)
    assert kernel.plan.measured == 3e-5
    text = explain(made, measured={"kernel_0": 3e-5})
    assert f"; 30 µs measured ({3e-5 / found.seconds:.2f} times the prediction)" in text
    assert all(f"    {c.name} " in text for c in found.causes)
    assert "measured" not in explain(made)


def test_measured_times_are_those_of_one_launch() -> None:
    twice = "function (A[M, L], B[L, N]) -> (C, D) { C[i, j : M, N] = +(A[i, k] * B[k, j]); D[x, y : M, N] = +(B[x, z] * A[z, y]); }"
    made = compiled(twice, CPU, A=(64, 64), B=(64, 64))
    (kernel,) = report(made, measured={"kernel_0": 2.0}).kernels
    assert kernel.launches == 2 and kernel.plan.measured == 1.0


def test_grid_forms_unpack_group_numbers() -> None:
    """Every packed loop takes each of its values, and together every combination once."""
    (kernel,) = report(compiled(COPY, GPU, A=(256, 192))).kernels
    combos = {
        tuple(eval(g.form.replace("/", "//"), {"group0": n}) for g in kernel.schedule.grid)
        for n in range(prod(kernel.groups))
    }
    assert len(combos) == prod(kernel.groups)
    assert {c[0] for c in combos} == set(range(kernel.schedule.grid[0].range))


def test_candidates_only_on_request_and_the_winner_first() -> None:
    made = compiled(MATMUL, CPU, A=(256, 64), B=(64, 256))
    assert all(not k.plan.candidates and not k.plan.search for k in report(made).kernels)
    (kernel,) = report(made, candidates=True).kernels
    assert kernel.plan.prediction is not None and len(kernel.plan.candidates) > 1
    assert kernel.plan.candidates[0].seconds == pytest.approx(kernel.plan.prediction.seconds)
    assert kernel.plan.candidates[0].plan == brief(made.plans["kernel_0"])
    staged = report(compiled(MATMUL, GPU, A=(256, 64), B=(64, 256)), candidates=True).kernels[0]
    assert staged.plan.search[0].startswith("Computing cost for tile size: [1, 1, 1]")


def test_the_text_has_every_part() -> None:
    made = compiled(CONV, CPU, **CONV_SHAPES)
    text = explain(made, candidates=True)
    for part in ("Kernel kernel_0", "// R = (O > 0 ? O : 0)", "Stage acc", "Constraint: (", "Output operations:",
                 "Plan: ", "vector co:1 x8", " predicted, ", "of peak arithmetic", "Candidates (", "Grid ", "Roofline: ", "Device buffers: ", "Compile time: "):  # fmt: skip
        assert part in text, part
    assert "Candidates" not in explain(made)


def test_to_dict_is_json_and_keeps_derived_numbers() -> None:
    made = compiled(MATMUL, GPU, A=(128, 64), B=(64, 128))
    document = json.loads(json.dumps(report(made, candidates=True).to_dict()))
    (kernel,) = document["kernels"]
    assert kernel["roofline"]["bound"] == "compute" and kernel["intensity"] > 0
    assert document["memory"]["peak"] == 4 * (128 * 64 * 2 + 128 * 128)
    assert kernel["plan"]["candidates"]


def test_targets_without_a_tiling_pass_are_explained_too() -> None:
    bare = Target("bare", nodes=CPU.nodes, passes=(PassConfig("inline"),))
    got = report(compiled(MATMUL, bare, A=(4, 4), B=(4, 4)))
    assert {k.plan.kind for k in got.kernels} == {"none"}
    assert "Kernel kernel_0" in explain(compiled(MATMUL, bare, A=(4, 4), B=(4, 4)))


def test_times_for_people() -> None:
    assert [duration(s) for s in (0, 1e-9, 3.31e-5, 0.0042, 1.5)] == ["0 ns", "1 ns", "33.1 µs", "4.2 ms", "1.5 s"]


def test_sizes_for_people() -> None:
    assert [size(n) for n in (0, 1023, 1536, 300 << 20, 5 << 40)] == ["0 B", "1023 B", "1.5 KiB", "300 MiB", "5.0 TiB"]


def test_one_kernel_of_a_whole_program_shows_the_statements_it_is_made_of() -> None:
    whole = replace(CPU, codegen="stripe", passes=(PassConfig("unstage"), PassConfig("scalarize")))
    made = compiled(CONV, whole, **CONV_SHAPES)
    (kernel,) = report(made).kernels
    assert [t.aggregation for t in kernel.tables].count("add") == 1
    assert any("K[i, j, co, ci]" in line for line in kernel.statements)
