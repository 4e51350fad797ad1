"""Plans that do not fit are refused where they are wrong, in sentences, and before anything is built."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tile_ir.diagnostics import Source, TilePlanError, TilePlanWarning
from tile_ir.dtype import DType
from tile_ir.machine import LocalMemory, Machine, Occupancy
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Bind, Block, Direction, Index, Location, Refinement, Scope, TensorType
from tile_ir.stripe.parser import parse_block
from tile_ir.target import HardwareSettings, Target
from tile_opt.kernel.view import KernelView, open_kernel
from tile_opt.plan.check import PlanCheck
from tile_opt.plan.plan import Across, Cover, Edge, Instruction, Level, Plan, Reduction, Staging
from tile_opt.plan.text import parse_plans, print_plans

CPU = Target("cpu", HardwareSettings(threads=1, max_mem=32768))
GPU = Target(
    "gpu",
    HardwareSettings(threads=256, max_mem=49152),
    machine=Machine(local=LocalMemory(), occupancy=Occupancy()),
    matrix=("mma_m16n8k8_tf32",),
)
MATMUL = """
#kernel block [m:64 n:96] ( in A[0,0] f32(64:32, 32:1) in B[0,0] f32(32:96, 96:1) out C[0,0] f32(64:96, 96:1)
                            none acc[0] f32(1:1) ) {
  block [k:32 m=m n=n] ( in a=A[m,k] f32(1:32, 1:1) in b=B[k,n] f32(1:96, 1:1) out o=acc[0]:add f32(1:1) ) {
    $a = load(a) $b = load(b) $c = mul($a, $b) o = store($c) }
  block [m=m n=n] ( in o=acc[0] f32(1:1) out c=C[m,n] f32(1:96, 1:1) ) { $o = load(o) c = store($o) } }
"""
LAST = MATMUL.replace(":add", ":assign")


def view(text: str = MATMUL) -> KernelView:
    found = open_kernel(replace(parse_block(text), name="C"))
    assert found is not None
    return found


def refused(lines: str, target: Target = GPU, kernel: str = MATMUL) -> str:
    text = "plan C {\n" + "".join(f"  {line.strip()}\n" for line in lines.strip().split(";")) + "}\n"
    plans = parse_plans(Source(text, "my.plan"))
    with pytest.raises(TilePlanError) as caught:
        PlanCheck(view(kernel), plans["C"], target, plans).before()
    return str(caught.value)


MISTAKES = {
    "grid q:4": ("E631", "the kernel 'C' has no loop 'q'", "q", "its loops: m, n, k"),
    "edge nn mask": ("E631", "no loop 'nn'", "nn", "did you mean 'n'?"),
    "grid m:4; stage Bx in LOCAL": ("E632", "no operand 'Bx'", "Bx", "did you mean 'B'?"),
    "grid m:4; stage B in LOCL": ("E633", "gpu has no memory 'LOCL'", "LOCL", "did you mean 'LOCAL'?"),
    "instruction mma": ("E634", "gpu has no instruction 'mma'", "mma", "its instructions: mma_m16n8k8_tf32"),
    "instruction mma_m16n8k8_tf32": ("E634", "rounds otherwise", "mma_m16n8k8_tf32", "reduced_precision=True"),
    "grid m:0": ("E635", "a point covers at least 1 iteration of 'm'", ":0", ""),
    "group m:16/3": ("E635", "pieces of 3 do not make up 16 iterations", "/3", ""),
    "vector n:1 x0": ("E635", "at least 1 lane", "x0", ""),
    "grid m:4; stage B in LOCAL versions 0": ("E635", "at least 1 version", "0", ""),
    "reduce k across lanes x0": ("E635", "1 to 4096 partial results side by side", "x0", ""),
    "grid m:4 m:2": ("E636", "covers 'm' twice", "m", ""),
    "edge m mask; edge m peel": ("E636", "a line above says 'edge' of 'm' already", "m", ""),
    "grid m:16; serial m:32": ("E637", "covers 32 iterations of 'm', one of the level outside it only 16", "m:32", ""),
    "serial k:8; grid m:4": ("E638", "grid levels stand outside all others", "grid", ""),
    "grid m:4; stage B in LOCAL at 3": ("E639", "there is no level 3: the plan has 1, from 0", "at 3", ""),
    "grid n:4 x4": ("E640", "only a vector level has lanes", "x4", ""),
    "serial n:12; vector n:1 x8": ("E640", "tiles of 12 iterations of 'n' are no whole vectors of 8", "x8", "cover 8"),
    "vector n:1 x12": ("E640", "gpu has no vectors of 12 elements", "x12", "powers of two up to 16"),
    "group m:2 n:2": ("E641", "a group of 1536 items is more than the 256 that gpu runs", "group m:2 n:2", ""),
    "unroll m:1 n:1": ("E642", "6144 copies of the body", "unroll m:1 n:1", "let a serial level"),
    "reduce m across lanes": ("E643", "'m' is no reduction", "m", ""),
    "grid k:8": ("E644", "iterations of 'k' that run at once write the same cells", "k", "reduce k across groups"),
    "vector k:1 x8; reduce k across serial x8": ("E644", "write the same cells", "k", "reduce k across lanes"),
    "grid n:32; vector n:4 x4; edge n overlap": ("E645", "two that run at once", "overlap", "peel"),
    "serial k:24; edge k overlap": ("E645", "'k' is a reduction, and iterations would count twice", "overlap", "peel"),
    "serial k:1; serial n:36; edge n overlap": ("E645", "overlap within a reduction", "overlap", "peel"),
    "grid m:4; stage B in LOCAL to bfloat16": ("E646", "bfloat16 does not hold every float32", "bfloat16", "reduced"),
    "grid m:4; stage B in LOCAL to floot32": ("E646", "no element type is called 'floot32'", "floot32", "'float32'"),
}  # fmt: skip


@pytest.mark.parametrize("lines", MISTAKES)
def test_a_mistake_has_its_place_and_a_sentence(lines: str) -> None:
    code, message, word, hint = MISTAKES[lines]
    found = refused(lines)
    assert found.count(": error ") == 1
    assert f"error TILE-{code}: " in found and message in found and hint in found
    line, marks = found.splitlines()[1:3]
    assert line[marks.index("^") :].startswith(word) and marks.count("^") == len(word)


def test_every_mistake_is_told_at_once() -> None:
    assert refused("grid m:0; stage X in L9; edge q mask").count(": error ") == 4


def test_a_processor_runs_no_groups_of_items() -> None:
    assert "a group of 64 items is more than the 1 that cpu runs" in refused("group m:1", CPU)
    assert "cpu has no memory 'LOCAL'" in refused("grid m:4; stage B in LOCAL", CPU)


def test_results_that_replace_one_another_are_not_split() -> None:
    assert "there are no partial results to combine" in refused("vector k:1 x8; reduce k across lanes x8", kernel=LAST)


def test_an_order_is_kept() -> None:
    text = MATMUL.replace("k:32", "k:32 #ordered")
    assert "the iterations of 'k' have an order" in refused("vector k:1 x8; reduce k across lanes x8", kernel=text)


def test_without_a_text_the_printed_plan_is_the_place() -> None:
    plan = Plan((Level(Bind.GRID, (Cover("m", 4), Cover("q", 2))),))
    with pytest.raises(TilePlanError) as caught:
        PlanCheck(view(), plan, GPU, {"C": plan}).before()
    assert str(caught.value).splitlines()[:3] == [
        "<plan C>:2:12: error TILE-E631: the kernel 'C' has no loop 'q'",
        "    2 |   grid m:4 q:2",
        "      |            ^",
    ]


FITTING = """plan C {
  grid m:64 n:32
  serial k:16
    stage A in LOCAL by group
    stage B in LOCAL as [k, n] by group pad 4 versions 2 to float64
  group m:4 n:4/2
  unroll m:1 k:1
  vector n:1 x4
  reduce k across serial
  edge m mask
  edge n mask
}
"""


def test_a_fitting_plan_passes() -> None:
    plans = parse_plans(FITTING)
    PlanCheck(view(), plans["C"], GPU, plans).before()


def built(scope: Scope, elements: int) -> Block:
    type = TensorType.row_major(DType.FLOAT32, (elements,))
    loc = Location("LOCAL" if scope is Scope.GROUP else "REG", scope=scope)
    return Block("C", refs=(Refinement(Direction.ALLOC, "copy", "", (Affine(),), type, loc=loc, versions=2),))


def test_local_memory_is_counted_in_what_was_built() -> None:
    plans = parse_plans(FITTING)
    check = PlanCheck(view(), plans["C"], GPU, plans)
    check.after(built(Scope.GROUP, 6144))
    with pytest.raises(TilePlanError, match="take 49160 bytes of local memory, gpu has 49152"):
        check.after(built(Scope.GROUP, 6145))


def test_the_grid_runs_whole_kernels() -> None:
    plans = parse_plans(FITTING)
    inner = Block("acc", indexes=(Index("k_g", 4, bind=Bind.GRID),))
    with pytest.raises(TilePlanError, match=r"plan>:2:3: error TILE-E650: (.|\n)* about 'acc' alone"):
        PlanCheck(view(), plans["C"], GPU, plans).after(Block("C", body=(inner,)))


def test_a_tile_too_large_for_the_registers_is_a_warning() -> None:
    plans = parse_plans(FITTING)
    with pytest.warns(TilePlanWarning, match="a thread keeps 8000 bytes at once, more than the 256 of its registers"):
        PlanCheck(view(), plans["C"], CPU, plans).after(built(Scope.THREAD, 1000))


def test_what_is_no_valid_stripe_is_refused() -> None:
    block = built(Scope.THREAD, 1)
    twice = dataclasses.replace(block, refs=block.refs * 2)
    plans = parse_plans("plan C {}")
    with pytest.raises(TilePlanError, match="TILE-E649: the plan of 'C' cannot be built: C: two refinement names"):
        PlanCheck(view(), plans["C"], CPU, plans).after(twice)


LOOPS = st.sampled_from(["m", "n", "k", "q"])
SIZES = st.integers(-2, 200)
LEVELS = st.builds(
    Level,
    st.sampled_from(Bind),
    st.lists(st.builds(Cover, LOOPS, SIZES, st.integers(-1, 4)), max_size=3).map(tuple),
    st.sampled_from([-1, 0, 1, 2, 3, 4, 16, 64, 128]),
    st.booleans(),
)
PLANS = st.builds(
    Plan,
    st.lists(LEVELS, max_size=5).map(tuple),
    st.lists(
        st.builds(
            Staging, st.sampled_from(["A", "B", "acc", "C", "x"]), st.integers(-3, 6), st.sampled_from(["LOCAL", "L2", "?"]),
            st.lists(LOOPS, max_size=3).map(tuple), st.sampled_from(Scope), SIZES, st.none(), SIZES,
            st.sampled_from(["", "float32", "bfloat16", "?"]),
        ),
        max_size=3,
    ).map(tuple),
    st.lists(st.builds(Reduction, LOOPS, st.sampled_from(Across), SIZES), max_size=3).map(tuple),
    st.lists(st.tuples(LOOPS, st.sampled_from(Edge)), max_size=3).map(tuple),
    st.none() | st.builds(Instruction, st.sampled_from(["fma", "mma_m16n8k8_tf32"]), st.just((("m", "q"),))),
)  # fmt: skip


@given(PLANS, st.sampled_from([CPU, GPU]), st.booleans())
def test_no_plan_makes_a_traceback(plan: Plan, target: Target, printed: bool) -> None:
    plans = parse_plans(print_plans({"C": plan})) if printed else {"C": plan}
    try:
        PlanCheck(view(), plan, target, plans).before()
    except TilePlanError as error:
        assert all(d.span is not None and d.span.end > d.span.start for d in error.diagnostics)
