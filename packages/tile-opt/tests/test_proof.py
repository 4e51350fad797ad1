"""Schedules are proved, by all three pass lists and under given plans; wrong ones are refused with a witness."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import tile_lang
from hypothesis import given, settings
from hypothesis import strategies as st
from tensor_support import SMALL, matmul, on_matrix, scheduled
from test_plan_given import PROGRAMS, TARGETS, kernels, plans
from tile_ir.diagnostics import Source, TilePlanError
from tile_ir.dtype import DType
from tile_ir.program.nodes import TensorType
from tile_ir.stripe.affine import Affine, DivMod, DivModOp
from tile_ir.stripe.nodes import Block, Program
from tile_ir.stripe.nodes import TensorType as Cells
from tile_ir.stripe.parser import parse_program
from tile_ir.stripe.printer import print_program
from tile_opt.compiler import compile
from tile_opt.pipeline import schedule
from tile_opt.proof import ProofError, ProofWarning, Verdict, check, prove, run
from tile_opt.proof.flow import flow
from tile_opt.proof.sites import Access, Buffer, Loop, Site
from tile_opt.proof.spaces import Spaces
from tile_opt.translate import to_stripe


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_compilers_own_schedules_are_proved(name: str, target: str) -> None:
    stripe, _ = kernels(name, target)
    report = prove(stripe, schedule(stripe, TARGETS[target]).program)
    assert report.proved, str(report)


@pytest.mark.filterwarnings("ignore::tile_ir.diagnostics.TilePlanWarning")
@pytest.mark.diagonal(2)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PROGRAMS)
@settings(max_examples=4)
@given(data=st.data())
def test_schedules_by_random_plans_are_proved(name: str, target: str, data: st.DataObject) -> None:
    stripe, decisions = kernels(name, target)
    kernel = data.draw(st.sampled_from(sorted(decisions)))
    try:
        made = schedule(stripe, TARGETS[target], plans={kernel: data.draw(plans(decisions[kernel], target))})
    except TilePlanError:
        return
    report = prove(stripe, made.program)
    assert report.proved, f"{report}\n{print_program(made.program)}"


def test_a_schedule_on_matrix_instructions_is_proved() -> None:
    sample = matmul("nn", DType.BFLOAT16, 64, 32, 32)
    made = scheduled(sample.program, SMALL)
    assert on_matrix(made)
    report = prove(to_stripe(sample.program), made)
    assert report.proved, str(report)


def test_copies_that_leave_zeros_are_proved() -> None:
    """Rows of 40 in tiles of 32, and 48 products in steps of 32: zeros count as no products."""
    sample = matmul("nn", DType.BFLOAT16, 40, 32, 48)
    made = scheduled(sample.program, SMALL)
    report = prove(to_stripe(sample.program), made)
    assert report.proved, str(report)


def test_what_a_kernel_hands_on_that_no_proof_covers_is_given() -> None:
    """The subscripts of a gather are data; the first of what it found are those of the same cells."""
    text = "function (X, I) -> (P) { Y = gather(X, I); T = top_k(Y, 2, 0); P = element(T, 1); }"
    types = {"X": TensorType(DType.UINT8, (99, 2)), "I": TensorType(DType.INT32, (64,))}
    target = replace(TARGETS["cpu"], nodes=TARGETS["cpu"].nodes | {"Bitcast"})
    stripe = to_stripe(tile_lang.bind(tile_lang.parse(text), types), target)
    report = prove(stripe, schedule(stripe, target).program)
    verdicts = {(f.kernel, f.claim): f.verdict for f in report.findings}
    assert verdicts["kernel_0", "result Y"] is Verdict.EXCLUDED
    assert verdicts["kernel_1", "result P_codes"] is Verdict.PROVED, str(report)


@pytest.mark.parametrize(("last", "says"), [(38, "is missing"), (40, "outside")])
def test_copies_that_leave_too_many_zeros_or_too_few_are_refuted(last: int, says: str) -> None:
    sample = matmul("nn", DType.BFLOAT16, 40, 32, 48)
    text = print_program(scheduled(sample.program, SMALL))
    assert text.count(" + 39") > 1
    report = prove(to_stripe(sample.program), parse_program(text.replace(" + 39", f" + {last}")))
    assert "refuted" in str(report) and says in str(report)


# --- wrong schedules ---------------------------------------------------------------------------------

SCHEDULES = Path(__file__).parent / "proof_schedules"
SYNC = 'sync(scope=group, fence="local")'
MUTANTS = {
    "a mask too narrow": ("masked", "25 - j >= 0\n            in<DRAM> A", "24 - j >= 0\n            in<DRAM> A", r"C\[0, 89\]: A\[0, 69\] \* B\[69, 89\] is missing"),
    "a mask too wide": ("masked", "25 - j >= 0\n            in<DRAM> A", "26 - j >= 0\n            in<DRAM> A", r"B = load.* takes B\[\d+, 90\], outside"),
    "the last share of a loop forgotten": ("masked", "i_t:2] if [1 - j_g >= 0]", "i_t:1] if [1 - j_g >= 0]", r"C\[\d+, \d+\]: A\[\d+, 0\] \* B\[0, \d+\] is missing"),
    "a region that no block covers": ("masked", "if [-2 + j_g >= 0]", "if [-3 + j_g >= 0]", r"C\[\d+, \d+\]: A.* is missing"),
    "a region that two blocks cover": ("masked", "if [-2 + j_g >= 0]", "if [-1 + j_g >= 0]", r"C\[0, 64\] from different work groups"),
    "a reduction one too short": ("masked", "k:70, i:10", "k:69, i:10", r"C\[\d+, \d+\]: A\[\d+, 69\] \* B\[69, \d+\] is missing"),
    "tiles that overlap": ("masked", "A[i + 20*i_g + 10*i_t, k]", "A[i + 20*i_g + 9*i_t, k]", r"A\[90, 0\] \* B\[0, 0\] is missing"),
    "an accumulator that starts at one": ("masked", "$c = (float32)0.0\n", "$c = (float32)1.0\n", r"C\[0, 0\]: 1.0 is there without need"),
    "an accumulator that starts twice": ("masked", "k:70, i:10 #unroll, j:32 #vector(lanes=16)] ( // acc", "k:70, twice:2, i:10 #unroll, j:32 #vector(lanes=16)] ( // acc", r"A\[\d+, \d+\] \* B\[\d+, \d+\] contributes 2 times instead of 1"),
    "results stored beside their cells": ("masked", "`out` = C[i + 20*i_g", "`out` = C[i + 21*i_g", r"takes C\[100, \d+\], outside"),
    "a reduction on the grid": ("masked", "k:70, i:10", "k:70 #grid, i:10", r"meet in C_acc\[.*\] from different work groups"),
    "a store across lanes": ("masked", "[i_g = i_g, j_g = j_g, i_t = i_t, i:10 #unroll, j:32 #vector(lanes=16)] ( // C_store\n            in<REG:thread> acc = C_acc[0, i, j] float32(1:320, 1:32, 1:1) {align=64}\n            out<DRAM> `out` = C[i + 20*i_g + 10*i_t, j + 32*j_g]", "[i_g = i_g, j_g = j_g, i_t = i_t, i:10 #unroll, j:32 #vector(lanes=16)] ( // C_store\n            in<REG:thread> acc = C_acc[0, i, j] float32(1:320, 1:32, 1:1) {align=64}\n            out<DRAM> `out` = C[i + 20*i_g + 10*i_t, 32*j_g]", r"meet in C\[0, 0\] from different lanes"),
    "a staged copy too short": ("staged", "k:1024, j:64 #vector(lanes=16)] ( // B_l2_copy", "k:1023, j:64 #vector(lanes=16)] ( // B_l2_copy", r"A\[\d+, 1023\] \* B\[1023, 1023\] is missing"),
    "a staged copy too narrow": ("staged", "k:1024, j:64 #vector(lanes=16)] ( // B_l2_copy", "k:1024, j:48 #vector(lanes=16)] ( // B_l2_copy", r"C\[\d+, 1008\]: .* is missing"),
    "a staged copy from elsewhere": ("staged", "B[k, j + 64*j_g]", "B[k, j + 63*j_g]", r"B\[1023, 1023\] is missing"),
    "the last tile forgotten": ("staged", "i_t:170] ( // kernel_0", "i_t:169] ( // kernel_0", r"C\[1014, 0\]: A\[1014, 1023\]"),
    "an edge that reaches back": ("staged", "A[1020 + i, k]", "A[1019 + i, k]", r"C\[\d+, \d+\]: A\[\d+, 1023\] \* B\[1023, \d+\] is missing"),
    "threads too few": ("rows", "n_i:8 #group", "n_i:7 #group", r"S\[0\]: exp\(X\[0, 252\]\) is missing"),
    "every thread stores the sum": ("rows", "            -n_i >= 0\n", "", r"meet in S\[0\] from different threads"),
    "a sum over the wrong threads": ("rows", "over=[n_i]", "over=[m_i]", r"exp\(X\[0, \d+\]\) is missing"),
    "a row too long": ("rows", "n_u:8 #unroll", "n_u:9 #unroll", r"takes X\[0, 256\], outside"),
    "another function": ("rows", "$E = exp($X)", "$E = log($X)", r"exp\(X\[0, \d+\]\) is missing"),
    "no barrier after a copy": ("scan", f"          1: {SYNC}", "          1: wait(group=0, pending=0)", r"meet in A_tile\[.*\] from different threads"),
    "no barrier before the next copy": ("scan", f"          3: {SYNC}", "          3: wait(group=0, pending=0)", r"meet in .*_tile\[.*\] from different threads"),
    "a barrier of other sub-groups": ("scan", f"          1: {SYNC}", f"          1: {SYNC.replace('group', 'subgroup')}", r"meet in A_tile\[.*\] from different threads"),
    "a scan that stops early": ("scan", "n_t:8 #ordered", "n_t:7 #ordered", r"S\[0, 448\]: A\[0, \d+\] is missing"),
    "a carry that misses an element": ("scan", "n_c:64 #ordered", "n_c:63 #ordered", r"A\[0, \d+\] is missing"),
    "threads that copy over one another": ("scan", "A_tile[8*row_t + row_u, item + 32*piece]", "A_tile[8*row_t + row_u, item + 31*piece]", r"meet in A_tile\[.*\] from different threads"),
    "no barrier in a pipeline": ("tiles", f"        4: {SYNC}", "        4: wait(group=0, pending=0)", r"meet in [AB]_local\[.*\] from different threads"),
    "results given away by half": ("tiles", "out_c_0:2, out_c_e:2", "out_c_0:1, out_c_e:2", r"C\[\d+, \d+\]: A.* is missing"),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_schedule_is_refuted_with_its_witness(name: str) -> None:
    schedule, old, new, message = MUTANTS[name]
    text = (SCHEDULES / f"{schedule}.stripe").read_text("utf-8")
    assert old in text
    report = prove(_before(schedule), parse_program(text.replace(old, new, 1)))
    refuted = report.of(Verdict.REFUTED)
    assert any(re.search(message, f.message) for f in refuted), str(report)
    assert all("stored by" in f.message or " in kernel_" in f.message for f in refuted)


def test_a_wrong_schedule_is_an_error() -> None:
    schedule, old, new, _ = next(iter(MUTANTS.values()))
    text = (SCHEDULES / f"{schedule}.stripe").read_text("utf-8")
    with pytest.raises(ProofError, match="the schedule is wrong: kernel_"):
        check(_before(schedule), parse_program(text.replace(old, new, 1)))


@pytest.mark.parametrize("name", ["masked", "staged", "rows", "scan", "tiles"])
def test_the_schedules_that_mutants_are_made_of_are_proved(name: str) -> None:
    report = prove(_before(name), parse_program((SCHEDULES / f"{name}.stripe").read_text("utf-8")))
    assert report.proved, str(report)


def test_lanes_may_wait_for_their_own_sub_group() -> None:
    text = (SCHEDULES / "scan.stripe").read_text("utf-8").replace(SYNC, SYNC.replace("group", "subgroup"))
    report = prove(_before("scan"), parse_program(text.replace("item:32 #group", "item:32 #lane")))
    assert report.proved, str(report)


def _before(name: str) -> Program:
    return parse_program((SCHEDULES / f"{name}.before.stripe").read_text("utf-8"))


# --- bounds and settings -----------------------------------------------------------------------------


def test_what_cannot_be_decided_in_time_is_not_taken_for_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "OPERATIONS", 50)
    text = parse_program((SCHEDULES / "masked.stripe").read_text("utf-8"))
    report = prove(_before("masked"), text, seconds=0.0)
    assert not report.proved
    assert "no answer within 0 seconds" in str(report)
    monkeypatch.setenv("TILE_ANALYSIS_SECONDS", "0")
    with pytest.warns(ProofWarning, match="not proved: kernel_0, .*no answer"):
        check(_before("masked"), text)


def test_hard_claims_are_decided_by_the_process_with_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "OPERATIONS", 50)
    report = prove(_before("rows"), parse_program((SCHEDULES / "rows.stripe").read_text("utf-8")), seconds=60)
    assert report.proved, str(report)


def test_the_setting_proves_what_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    source, shapes = PROGRAMS["matmul"]
    types = {n: TensorType(DType.FLOAT32, s) for n, s in shapes.items()}
    program = tile_lang.bind(tile_lang.parse(Source(f"function {source}", "matmul")), types)
    assert compile(program, TARGETS["cpu"]).proof is None
    monkeypatch.setenv("TILE_VERIFY", "prove")
    report = compile(program, TARGETS["cpu"]).proof
    assert report is not None and report.proved
    assert str(report).startswith("1 kernels: 1 proved")


def test_gathers_are_excluded_and_say_so() -> None:
    types = {"A": TensorType(DType.FLOAT32, (5, 3)), "I": TensorType(DType.INT32, (4,))}
    source = "function (A[M, N], I[K]) -> (S) { G = gather(A, I); S[j : N] = +(G[i, j]); }"
    stripe = to_stripe(tile_lang.bind(tile_lang.parse(Source(source, "gather")), types))
    report = prove(stripe, stripe)
    assert {f.verdict for f in report.findings} == {Verdict.PROVED, Verdict.EXCLUDED}
    assert "subscripts that are data" in str(report)


def test_outputs_of_gathers_are_excluded_not_refuted() -> None:
    types = {"A": TensorType(DType.FLOAT32, (5, 3)), "I": TensorType(DType.INT32, (4,))}
    stripe = to_stripe(tile_lang.bind(tile_lang.parse("function (A[M, N], I[K]) -> (G) { G = gather(A, I); }"), types))
    assert {f.verdict for f in prove(stripe, stripe).findings} == {Verdict.EXCLUDED}


def test_an_output_that_no_kernel_writes_is_refuted() -> None:
    before = _before("rows")
    main = before.entry.body[0]
    assert isinstance(main, Block)
    nothing = replace(before, entry=replace(before.entry, body=(replace(main, body=()),)))
    (found,) = prove(before, nothing).of(Verdict.REFUTED)
    assert "is missing" in found.message


def test_planes_written_as_one_long_row_are_seen_whole() -> None:
    """Their cells are asked for first: pairs of points have quotients that ISL took minutes for."""
    spaces, plane = Spaces(operations=30_000), Buffer("P", Cells(DType.FLOAT32, (23, 88, 88), (88 * 88, 88, 1)))
    sizes = {"n": 23, "y": 121, "row": 16, "s": 4}
    place = Affine((("n", 88 * 88), ("row", 1), ("s", 16), ("y", 64)))
    writing = Site(0, 0, (), tuple(Loop(*pair) for pair in sizes.items()), (), (0, *sizes))
    store = Access(writing, 0, plane, tuple(_digit(place, 88**k, n) for k, n in ((2, 23), (1, 88), (0, 88))), "v")
    reading = Site(1, 1, (), tuple(Loop(f"c{k}", n) for k, n in enumerate(plane.shape)), (), (1, "c0", "c1", "c2"))
    load = Access(reading, 0, plane, tuple((Affine.var(f"c{k}"),) for k in range(3)))
    assert flow(spaces, load, [store]).unwritten.is_empty()


def _digit(place: Affine, unit: int, size: int) -> tuple[DivMod, ...]:
    return DivMod(place, unit, DivModOp.DIV), DivMod(place, unit * size, DivModOp.DIV, scale=-size)
