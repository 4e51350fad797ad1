"""Every scheduling pass, in any order, leaves results alone: Stripe interpreter and semtree interpreter agree."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from contraction_samples import contraction, contractions, p
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from lowering_support import check, random_inputs
from tile_ir.diagnostics import TileError
from tile_ir.dtype import DType
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import Contraction, Elementwise, Literal, Op, Param, Program, TensorType
from tile_ir.stripe import interpret
from tile_ir.stripe.nodes import Block
from tile_ir.stripe.nodes import Program as Stripe
from tile_ir.stripe.walk import blocks_in
from tile_ir.target import HardwareSettings, PassConfig, Target
from tile_opt.blocks.tree import main_of
from tile_opt.passes import PASSES
from tile_opt.pipeline import optimize
from tile_opt.translate import to_stripe

F = DType.FLOAT32
PIPELINE = ("inline", "fuse", "merge", "accumulate", "stream", "schedule_kernels")
TINY = HardwareSettings(vec_size=4, vector_bytes=16, registers=16, l1_bytes=256, l2_bytes=1024, l3_bytes=64, cores=2)


def target(*passes: str, group_ops: int = 64) -> Target:
    """A machine small enough that small tensors meet every kind of tile."""
    options = {"schedule_kernels": {"group_ops": group_ops}}
    return Target("tiny", TINY, passes=tuple(PassConfig(n, n, options.get(n, {})) for n in passes))


def tail(c: Contraction) -> list[Op]:
    """A few elementwise operations on a contraction's result."""
    t = c.type
    return [
        Elementwise("T", TensorType(DType.BOOL, t.shape), "cmp_gt", (c.name, Literal(0.25, F))),
        Elementwise("U", t, "mul", (c.name, Literal(0.5, F))),
        Elementwise("R", t, "cond", ("T", c.name, "U")),
    ]


def program(c: Contraction, ops: list[Op], out: str) -> Program:
    shapes: dict[str, list[int]] = {}
    at = len(c.output)
    for load in c.loads:
        assert isinstance(load.tensor, str)
        shapes[load.tensor] = [k.size for k in c.constraints[at : at + len(load.formulas)]]
        at += len(load.formulas)
    inputs = tuple(Param(n, TensorType(F, tuple(s))) for n, s in shapes.items())
    return Program("test", inputs, (c, *ops), ((out, out),))


def agree(stripe: Stripe, passes: tuple[str, ...], lowered: bool = True) -> Stripe:
    """Run before the passes and after them, as kernels where they can be lowered; outputs must be equal."""
    tiny = target(*passes)
    scheduled = optimize(stripe, tiny, verify=True)
    inputs = random_inputs(stripe)
    if lowered:
        check(scheduled, inputs, tiny, reference=stripe)
        return scheduled
    expected, got = interpret.run(stripe, inputs), interpret.run(scheduled, inputs)
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value, rtol=2e-5, atol=2e-5, err_msg=name)
    return scheduled


def conv(n: int, x: int, y: int, ci: int, co: int) -> Contraction:
    """The seeds' 3×3 "same" convolution."""
    data = [p(n=1), p(-1, x=1, i=1), p(-1, y=1, j=1), p(ci=1)]
    return contraction(
        ([p(n=1), p(x=1), p(y=1), p(co=1)], (n, x, y, co)),
        (data, (n, x, y, ci)),
        ([p(i=1), p(j=1), p(co=1), p(ci=1)], (3, 3, co, ci)),
    )


def matmul(m: int, n: int, k: int) -> Contraction:
    return contraction(([p(i=1), p(j=1)], (m, n)), ([p(i=1), p(k=1)], (m, k)), ([p(k=1), p(j=1)], (k, n)))


CASES = {
    "matmul": matmul(10, 13, 6),
    "matmul_tall": matmul(33, 4, 5),
    "matmul_narrow": matmul(5, 3, 7),
    "conv": conv(2, 5, 7, 3, 6),
    "conv_wide": conv(1, 3, 19, 2, 4),
    "row_sum": contraction(([p(i=1)], (6,)), ([p(i=1), p(k=1)], (6, 23))),
    "column_sum": contraction(([p(j=1)], (23,)), ([p(k=1), p(j=1)], (6, 23))),
    "all_max": contraction(([], ()), ([p(i=1), p(j=1)], (7, 9)), agg=Aggregation.MAX),
    "pool": contraction(([p(i=1)], (5,)), ([p(i=2, j=1)], (10,)), user=[(p(j=1), 2)], agg=Aggregation.MAX),
    "blur": contraction(([p(x=1)], (37,)), ([p(-1, x=1, j=1)], (37,)), ([p(j=1)], (3,))),
    "cumsum": contraction(([p(i=1)], (9,)), ([p(k=1)], (9,)), user=[(p(i=1, k=-1), 9)]),
    "transpose": contraction(([p(i=1), p(j=1)], (6, 9)), ([p(j=1), p(i=1)], (9, 6)), agg=Aggregation.ASSIGN),
    "strided_out": contraction(([p(i=2)], (9,)), ([p(i=2), p(j=1)], (9, 5))),
    "strided_gradient": contraction(
        ([p(n=1), p(-1, i=1, x=2), p(c=1)], (2, 8, 6)),
        ([p(n=1), p(x=1), p(o=1)], (2, 4, 3)),
        ([p(i=1), p(o=1), p(c=1)], (3, 3, 6)),
    ),
    "strided_gradient_packed": contraction(
        ([p(n=1), p(-1, i=1, x=2), p(c=1)], (5, 12, 8)),
        ([p(n=1), p(x=1), p(o=1)], (5, 6, 4)),
        ([p(i=1), p(c=1), p(o=1)], (3, 8, 4)),
    ),
    "product": contraction(([p(i=1)], (4,)), ([p(i=1), p(k=1)], (4, 6)), agg=Aggregation.PROD),
}


@pytest.mark.diagonal(2)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("fused", [False, True], ids=["alone", "with_tail"])
def test_the_pipeline_keeps_the_meaning(name: str, fused: bool) -> None:
    c = CASES[name]
    made = program(c, tail(c) if fused else [], "R" if fused else c.name)
    agree(to_stripe(made), PIPELINE)


@pytest.mark.parametrize("name", CASES)
def test_work_items_keep_the_meaning(name: str) -> None:
    c = CASES[name]
    gpu = replace(target("inline", "fuse", "merge", "accumulate", "gpu_tile"), settings=replace(TINY, threads=8))
    stripe = to_stripe(program(c, tail(c), "R"))
    scheduled = optimize(stripe, gpu, verify=True)
    check(scheduled, random_inputs(stripe), gpu, reference=stripe)


@pytest.mark.parametrize("shape", [(64, 64), (70, 130)])
def test_transposes_go_through_local_memory(shape: tuple[int, int]) -> None:
    rows, columns = shape
    c = contraction(([p(i=1), p(j=1)], (rows, columns)), ([p(j=1), p(i=1)], (columns, rows)), agg=Aggregation.ASSIGN)
    hardware = replace(TINY, threads=256, use_global=False, buffer_align=64, index_bits=32)
    gpu = replace(target("inline", "fuse", "merge", "accumulate", "gpu_tile"), settings=hardware)
    stripe = to_stripe(program(c, [], c.name))
    scheduled = optimize(stripe, gpu, verify=True)
    assert any(r.into.endswith("_tile") for r in kernels(scheduled)[0].refs)
    check(scheduled, random_inputs(stripe), gpu, exact=True, reference=stripe)


@pytest.mark.parametrize(("rows", "columns"), [(2, 9), (64, 64), (70, 130), (8, 600), (600, 600)])
def test_transposes_on_cpus_go_through_registers(rows: int, columns: int) -> None:
    c = contraction(([p(i=1), p(j=1)], (rows, columns)), ([p(j=1), p(i=1)], (columns, rows)), agg=Aggregation.ASSIGN)
    cpu = replace(
        target("inline", "fuse", "merge", "accumulate", "schedule_kernels"),
        settings=replace(TINY, cores=4, vector_bytes=32, l3_bytes=1 << 25),
    )
    stripe = to_stripe(program(c, [], c.name))
    scheduled = optimize(stripe, cpu, verify=True)
    registers = [r for b in blocks_in(kernels(scheduled)[0]) for r in b.refs if r.loc.unit == "REG" and not r.source]
    assert any(r.type.sizes == (min(8, columns), min(8, rows)) for r in registers)
    check(scheduled, random_inputs(stripe), cpu, exact=True, reference=stripe)


@pytest.mark.parametrize("columns", [32, 40, 67, 300])
def test_rows_on_work_items_keep_the_meaning(columns: int) -> None:
    hardware = replace(TINY, threads=16, use_global=False, buffer_align=64, index_bits=32)
    gpu = replace(target("inline", "fuse", "merge", "accumulate", "gpu_tile"), settings=hardware)
    stripe = to_stripe(softmax(5, columns))
    scheduled = optimize(stripe, gpu, verify=True)
    assert len(kernels(scheduled)) == 1
    inputs = random_inputs(stripe)
    np.testing.assert_allclose(interpret.run(scheduled, inputs)["R"], interpret.run(stripe, inputs)["R"], rtol=2e-5)
    check(scheduled, inputs, gpu, reference=stripe)


@settings(max_examples=40)
@given(st.permutations(PIPELINE), st.integers(0, len(PIPELINE)), st.sampled_from(sorted(CASES)))
def test_passes_in_any_order_keep_the_meaning(order: list[str], count: int, name: str) -> None:
    c = CASES[name]
    agree(to_stripe(program(c, tail(c), "R")), tuple(order[:count]))


def test_partial_results_that_no_cell_wants_are_set_all_the_same() -> None:
    c = CASES["strided_gradient"]
    agree(to_stripe(program(c, tail(c), "R")), ("inline", "merge", "accumulate", "schedule_kernels"))


@settings(max_examples=80)
@given(contractions())
def test_random_contractions_keep_their_meaning(c: Contraction) -> None:
    try:
        stripe = to_stripe(program(c, tail(c), "R"))
    except (TileError, AssertionError):
        assume(False)
        return
    agree(stripe, PIPELINE)


def kernels(stripe: Stripe) -> tuple[Block, ...]:
    return tuple(k for k in main_of(stripe).body if isinstance(k, Block))


def test_a_convolution_with_its_tail_is_one_kernel() -> None:
    c = conv(2, 5, 7, 3, 8)
    scheduled = agree(to_stripe(program(c, tail(c), "R")), PIPELINE)
    assert [k.name for k in kernels(scheduled)] == ["kernel_0"]


def test_a_tensor_read_twice_is_packed_for_one_of_its_uses_only() -> None:
    gram = contraction(
        ([p(i=1), p(j=1)], (210, 210)), ([p(i=1), p(k=1)], (210, 5)), ([p(j=1), p(k=1)], (210, 5)), inputs="AA"
    )
    scheduled = agree(to_stripe(program(gram, tail(gram), "R")), PIPELINE)
    reads = {r.source for b in blocks_in(kernels(scheduled)[0]) if b.name == "acc" for r in b.refs}
    assert "A" in reads and any(name.startswith("A_l2") for name in reads)


def test_long_bodies_are_not_recomputed_and_many_stages_not_joined() -> None:
    kind = TensorType(F, (4,))
    steps: list[Op] = [Elementwise("T0", kind, "add", ("A", "A"))]
    steps += [Elementwise(f"T{n}", kind, "add", (f"T{n - 1}", f"T{max(n - 2, 0)}")) for n in range(1, 100)]
    stripe = to_stripe(Program("long", (Param("A", kind),), tuple(steps), (("R", "T99"),)))
    scheduled = agree(stripe, PIPELINE, lowered=False)
    assert 2 <= len(kernels(scheduled)) <= 8


def softmax(rows: int, columns: int) -> Program:
    whole, row = TensorType(F, (rows, columns)), TensorType(F, (rows, 1))

    def reduced(name: str, agg: Aggregation, source: str) -> Contraction:
        return contraction(
            ([p(i=1), p(z=1)], (rows, 1)), ([p(i=1), p(j=1)], (rows, columns)), agg=agg, name=name, inputs=[source]
        )

    ops: tuple[Op, ...] = (
        reduced("M", Aggregation.MAX, "X"),
        Elementwise("S", whole, "sub", ("X", "M")),
        Elementwise("E", whole, "exp", ("S",)),
        reduced("Z", Aggregation.SUM, "E"),
        Elementwise("R", whole, "div", ("E", "Z")),
    )
    assert row.size == rows
    return Program("softmax", (Param("X", whole),), ops, (("R", "R"),))


@pytest.mark.parametrize("columns", [3, 16, 21])
def test_softmax_is_one_kernel(columns: int) -> None:
    scheduled = agree(to_stripe(softmax(12, columns)), PIPELINE)
    assert len(kernels(scheduled)) == 1
    assert not [r for r in main_of(scheduled).refs if "tmp" in r.tags], "rows stay in local buffers"


def test_a_chain_of_elementwise_operations_is_one_kernel() -> None:
    whole = TensorType(F, (5, 37))
    ops = [Elementwise(f"T{k}", whole, "mul", (f"T{k - 1}" if k else "X", Literal(0.5 + k, F))) for k in range(8)]
    made = Program("chain", (Param("X", whole),), tuple(ops), (("T7", "T7"),))
    scheduled = agree(to_stripe(made), PIPELINE)
    assert len(kernels(scheduled)) == 1


def test_tags_carry_no_meaning_after_scheduling() -> None:
    c = CASES["conv"]
    stripe = to_stripe(program(c, tail(c), "R"))
    scheduled = optimize(stripe, target(*PIPELINE))
    check(_untagged(scheduled), random_inputs(stripe), target(), reference=stripe)


def _untagged(stripe: Stripe) -> Stripe:
    def bare(block: Block) -> Block:
        refs = tuple(replace(r, tags=frozenset()) for r in block.refs)
        body = tuple(bare(s) if isinstance(s, Block) else s for s in block.body)
        return replace(block, tags=frozenset(), refs=refs, body=body)

    return replace(stripe, entry=bare(stripe.entry))


def test_every_registered_pass_can_be_made() -> None:
    from tile_opt.passes import create

    assert {create(PassConfig(n)).name for n in PASSES} == set(PASSES)
