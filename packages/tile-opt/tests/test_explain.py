"""Reports as data and as text."""

from __future__ import annotations

import json
from dataclasses import replace
from math import prod

import pytest
from explain_support import CONV, CONV_SHAPES, COPY, CPU, GPU, MATMUL, SOFTMAX, TILED, compiled
from tile_ir.target import PassConfig, Target
from tile_opt.explain import explain, report
from tile_opt.explain.text import size


def test_the_conv_has_the_blogs_tables_and_its_plan() -> None:
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
    assert kernel.plan.kind == "register tile" and 0 < (kernel.plan.predicted or 0) <= 1
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
    assert len(lines) == 4 and lines[-1] == "Constraint: (1,12,0) <= 149, implied by the others"


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
        (COPY, {"A": (128, 128)}, "a tile of 64 x 64 goes through local memory"),
        ("function (A) -> (B) { B = A + 1; }", {"A": (1000,)}, "an item per element"),
    ],
)  # fmt: skip
def test_gpu_plans_are_those_of_the_schedule(source: str, shapes: dict[str, tuple[int, ...]], kind: str) -> None:
    got = report(compiled(source, TILED if source is MATMUL else GPU, **shapes))
    (kernel,) = got.kernels
    assert kind in kernel.plan.kind
    assert prod(i.range for i in kernel.schedule.items) == prod(kernel.group_size)
    assert prod(g.range for g in kernel.schedule.grid) == prod(kernel.groups)
    local = kind == "items with" or "local memory" in kind
    assert (kernel.schedule.local_bytes > 0) is (kernel.schedule.barriers > 0) is local
    assert len(kernel.schedule.reductions) == (2 if kind == "share a row" else 0)


@pytest.mark.parametrize(
    ("source", "kind"), [(COPY, "squares"), (MATMUL, "register tile"), (SOFTMAX, "rows"), (COPY.replace("B[n, m : N, M]", "B[m, n : M, N]"), "register tile")]
)  # fmt: skip
def test_cpu_plans_follow_what_operands_run_along(source: str, kind: str) -> None:
    (kernel,) = report(
        compiled(source, CPU, **({"A": (512, 512), "B": (512, 512)} if "B[K" in source else {"A": (512, 512)}))
    ).kernels
    assert kernel.plan.kind == kind


def test_grid_forms_unpack_group_numbers() -> None:
    """Every packed loop takes each of its values, and together every combination once."""
    (kernel,) = report(compiled(COPY, GPU, A=(256, 192))).kernels
    combos = {
        tuple(eval(g.form.replace("/", "//"), {"group0": n}) for g in kernel.schedule.grid)
        for n in range(prod(kernel.groups))
    }
    assert len(combos) == prod(kernel.groups)
    assert {c[0] for c in combos} == set(range(kernel.schedule.grid[0].range))


def test_candidates_only_on_request_and_the_winner_among_them() -> None:
    made = compiled(CONV, CPU, **CONV_SHAPES)
    assert all(not k.plan.candidates and not k.plan.search for k in report(made).kernels)
    kernel = next(k for k in report(made, candidates=True).kernels if k.plan.kind == "register tile")
    assert kernel.plan.predicted is not None
    assert max(c.rate for c in kernel.plan.candidates) == pytest.approx(kernel.plan.predicted, rel=1e-3)
    assert all(c.verdict == "over registers" for c in kernel.plan.candidates if c.rate == 0)
    staged = report(compiled(MATMUL, TILED, A=(256, 64), B=(64, 256)), candidates=True).kernels[0]
    assert staged.plan.search[0].startswith("Computing cost for tile size: [1, 1, 1]")


def test_the_text_has_every_part() -> None:
    made = compiled(CONV, CPU, **CONV_SHAPES)
    text = explain(made, candidates=True)
    for part in ("Kernel kernel_0", "// R = (O > 0 ? O : 0)", "Stage acc", "Constraint: (", "Output operations:",
                 "Plan: register tile, predicted", "Candidates (", "Grid ", "Roofline: ", "Device buffers: ", "Compile time: "):  # fmt: skip
        assert part in text, part
    assert "Candidates" not in explain(made)


def test_to_dict_is_json_and_keeps_derived_numbers() -> None:
    made = compiled(MATMUL, GPU, A=(128, 64), B=(64, 128))
    document = json.loads(json.dumps(report(made, candidates=True).to_dict()))
    (kernel,) = document["kernels"]
    assert kernel["roofline"]["bound"] == "compute" and kernel["intensity"] > 0
    assert document["memory"]["peak"] == 4 * (128 * 64 * 2 + 128 * 128)
    assert kernel["plan"]["search"]


def test_targets_without_a_tiling_pass_are_explained_too() -> None:
    bare = Target("bare", nodes=CPU.nodes, passes=(PassConfig("inline"),))
    got = report(compiled(MATMUL, bare, A=(4, 4), B=(4, 4)))
    assert {k.plan.kind for k in got.kernels} == {"none"}
    assert "Kernel kernel_0" in explain(compiled(MATMUL, bare, A=(4, 4), B=(4, 4)))


def test_the_plan_is_that_of_the_passes_in_the_list() -> None:
    tiled, plain = (
        report(compiled(MATMUL, target, A=(128, 64), B=(64, 128))).kernels[0]
        for target in (TILED, replace(TILED, passes=GPU.passes))
    )
    assert "items with" in tiled.plan.kind and tiled.schedule.local_bytes > 0
    assert "items with" not in plain.plan.kind and plain.schedule.local_bytes == 0


def test_sizes_for_people() -> None:
    assert [size(n) for n in (0, 1023, 1536, 300 << 20, 5 << 40)] == ["0 B", "1023 B", "1.5 KiB", "300 MiB", "5.0 TiB"]


def test_one_kernel_of_a_whole_program_shows_the_statements_it_is_made_of() -> None:
    whole = replace(CPU, codegen="stripe", passes=(PassConfig("unstage"), PassConfig("scalarize")))
    made = compiled(CONV, whole, **CONV_SHAPES)
    (kernel,) = report(made).kernels
    assert [t.aggregation for t in kernel.tables].count("add") == 1
    assert any("K[i, j, co, ci]" in line for line in kernel.statements)
