"""Row reductions whose operands go through local memory: what is staged, when, and that results stay the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import tile_lang
from explain_support import FRONT, GPU, SOFTMAX, compiled
from hypothesis import given, settings
from hypothesis import strategies as st
from lowering_support import check
from tile_ir.diagnostics import Source
from tile_ir.dtype import DType
from tile_ir.program.nodes import Program, TensorType
from tile_ir.stripe import interpret
from tile_ir.stripe.nodes import Block, Order, Sync
from tile_ir.stripe.walk import blocks_in
from tile_ir.target import HardwareSettings, PassConfig, Target
from tile_opt.blocks.tree import kernels_of
from tile_opt.explain import report
from tile_opt.explain.data import PlanReport
from tile_opt.pipeline import optimize
from tile_opt.translate import to_stripe

DOT = "function (A[X, Y], B[X, Y]) -> (T) { T[x : X] = +(A[x, y] * B[x, y]); }"
WEIGHED = """function (A[X, Y], B[X, Y]) -> (S) {
    M[x, 0 : X, 1] = >(A[x, y]);
    E = exp(A - M);
    T[x, 0 : X, 1] = +(E[x, y] * B[x, y]);
    S = E / T;
}
"""
"""A softmax with weights: the row of A is read twice and kept by the items, that of B goes through local memory."""


def staging(threads: int = 32, **more: Any) -> Target:
    """The GPU target with rows staged in local memory; its accesses are four elements wide where rows are aligned."""
    passes = (*FRONT, PassConfig("gpu_tile", options={"stage_rows": True}))
    return replace(GPU, passes=passes, settings=replace(GPU.settings, threads=threads, **more))


def plan(source: str, target: Target, **shapes: tuple[int, ...]) -> PlanReport:
    return report(compiled(source, target, "sample", **shapes)).kernels[-1].plan


def steps_of(kernel: Block) -> list[Block]:
    """The loops over staged pieces."""
    return [b for b in blocks_in(kernel) if sum(isinstance(s, Sync) for s in b.body) == 2]


def locals_of(kernel: Block) -> dict[str, tuple[int, ...]]:
    """Names and sizes of the group's memory."""
    return {r.into: r.type.sizes for r in kernel.refs if not r.source}


# --- what is staged --------------------------------------------------------------------------------


def test_a_row_of_one_step_needs_no_loop() -> None:
    (kernel,) = kernels_of(compiled(DOT, staging(vec_size=1), A=(10, 26), B=(10, 26)).stripe)
    assert isinstance(kernel, Block) and locals_of(kernel) == {"A_local": (26,), "B_local": (26,)}
    (steps,) = steps_of(kernel)
    assert all(i.value is not None for i in steps.indexes)
    assert [type(s).__name__ for s in steps.body] == ["Block", "Block", "Sync", "Block", "Sync"]


def test_a_single_row_in_local_memory_may_have_one_item() -> None:
    agree(
        sample(
            "function (A[X, Y], B[X, Y]) -> (R) { R[x, 0 : X, 1] = +(A[x, y] * B[x, y]); }",
            staging(1, vec_size=1),
            1,
            16,
        )
    )


def test_a_long_row_comes_in_pieces() -> None:
    (kernel,) = kernels_of(compiled(DOT, staging(), A=(3, 1001), B=(3, 1001)).stripe)
    assert isinstance(kernel, Block) and locals_of(kernel) == {"A_local": (32,), "B_local": (32,)}
    (loop,) = [i for i in steps_of(kernel)[0].indexes if i.value is None]
    assert (loop.range, loop.order) == (32, Order.ORDERED)
    assert plan(DOT, staging(), A=(3, 1001), B=(3, 1001)).kind == "rows through local memory, 32 elements at a time"


def test_scalar_accesses_are_what_the_target_asks_for() -> None:
    shapes = {"A": (10, 64), "B": (10, 64)}
    assert "vector y:1 x4" in plan(DOT, staging(), **shapes).lines
    narrow = plan(DOT, staging(vec_size=1), **shapes).lines
    assert not any(line.startswith("vector") for line in narrow) and "serial y:1" in narrow


def test_an_operand_read_twice_at_one_place_is_staged_once() -> None:
    (kernel,) = kernels_of(
        compiled("function (A[X, Y]) -> (T) { T[x : X] = +(A[x, y] * A[x, y]); }", staging(), A=(4, 40)).stripe
    )
    assert isinstance(kernel, Block) and list(locals_of(kernel)) == ["A_local"]


def test_rows_that_items_keep_are_not_staged_and_unroll_the_steps() -> None:
    (kernel,) = kernels_of(compiled(WEIGHED, staging(), A=(4, 71), B=(4, 71)).stripe)
    assert isinstance(kernel, Block) and list(locals_of(kernel)) == ["B_local"]
    (loop,) = [i for i in steps_of(kernel)[0].indexes if i.value is None]
    assert (loop.range, loop.bind.value) == (3, "unroll")


def test_the_default_is_to_read_rows_where_they_are() -> None:
    (kernel,) = kernels_of(compiled(DOT, GPU, A=(10, 26), B=(10, 26)).stripe)
    assert isinstance(kernel, Block) and not locals_of(kernel)


@pytest.mark.parametrize(
    ("source", "inputs", "hardware", "reason"),
    [
        (DOT, "AB", {"max_mem": 335, "vec_size": 1}, "staging takes 336 bytes of local memory, the target has 335"),
        (DOT, "AB", {"use_global": True}, "the target's use_global asks for it"),
        (SOFTMAX, "A", {}, "no reduction reads a row of memory that is its own"),
    ],
)
def test_what_stays_in_memory_says_why(source: str, inputs: str, hardware: dict[str, Any], reason: str) -> None:
    shapes = dict.fromkeys(inputs, (10, 26))
    (kernel,) = kernels_of(compiled(source, staging(**hardware), "sample", **shapes).stripe)
    assert isinstance(kernel, Block) and not locals_of(kernel)
    assert plan(source, staging(**hardware), **shapes).kind.endswith(f"; straight from memory: {reason}")


def test_local_memory_that_just_suffices_is_used() -> None:
    # Two pieces of 26 elements and 32 partial results.
    kind = plan(DOT, staging(max_mem=336, vec_size=1), A=(10, 26), B=(10, 26)).kind
    assert kind.startswith("rows through local memory")


# --- results ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sample:
    """A program with row reductions, and where to run it."""

    program: Program
    target: Target
    inputs: Mapping[str, Any]


def sample(source: str, target: Target, rows: int, columns: int, dtype: DType = DType.FLOAT32) -> Sample:
    """Inputs A and B are matrices, V is a row, M a column, and W is wider than A by one."""
    sizes = {"A": (rows, columns), "B": (rows, columns), "V": (columns,), "M": (rows, 1), "W": (rows, columns + 1)}
    function = tile_lang.parse(Source(source, "sample.tile"))
    types = {i.name.id: TensorType(dtype, sizes[i.name.id]) for i in function.inputs}
    rng = np.random.default_rng(rows * 1000 + columns)
    ends = (0.5, 1.5) if dtype.is_float else (-3, 4)
    values = {n: rng.uniform(*ends, t.shape).astype(dtype.numpy) for n, t in types.items()}
    return Sample(tile_lang.bind(function, types), target, values)


def agree(case: Sample) -> Any:
    """The scheduled program on both interpreters against the unscheduled one; the result."""
    stripe = to_stripe(case.program)
    scheduled = optimize(stripe, case.target, verify=True)
    expected, got = interpret.run(stripe, case.inputs), interpret.run(scheduled, case.inputs)
    np.testing.assert_allclose(got["R"], expected["R"], rtol=2e-5)
    check(scheduled, case.inputs, case.target, reference=stripe)
    return got["R"]


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    dtype = draw(st.sampled_from([DType.FLOAT32, DType.FLOAT32, DType.FLOAT64, DType.INT32]))
    # Floats are positive and never subtracted: sums in another order would differ by more than a relative tolerance.
    away = "/" if dtype.is_float else "-"
    heads = ["P = A;", "P = A + B;", "P = A * A;", f"P = A {away} M;", *(["P = exp(A) * V;"] if dtype.is_float else [])]
    tails = ["R = -T;", "R = T * T + M;", f"R = A {away} T;", "U[x, 0 : X, 1] = >(B[x, y]); R = T + U;"]
    first, second = (
        draw(st.sampled_from(["A", "P"])),
        draw(st.sampled_from(["", "B[x, y]", "V[y]", "W[x, y + 1]", "M[x, 0]"])),
    )
    reduced = f"{first}[x, y]" + (f" * {second}" if second else "")
    agg = draw(st.sampled_from("+*><"))
    source = f"""function (A[X, Y], B[X, Y], V[Y], M[X, Q], W[X, Z]) -> (R) {{
        {draw(st.sampled_from(heads))} T[x, 0 : X, 1] = {agg}({reduced}); {draw(st.sampled_from(tails))}
    }}"""
    hardware = HardwareSettings(
        threads=draw(st.sampled_from([1, 4, 16, 32])), vec_size=draw(st.sampled_from([1, 4])), use_global=False,
        max_mem=draw(st.sampled_from([512, 32768])), buffer_align=draw(st.sampled_from([1, 64])), index_bits=32,
    )  # fmt: skip
    target = replace(staging(), settings=hardware)
    return sample(source, target, draw(st.integers(1, 4)), draw(st.integers(16, 140)), dtype)


@settings(max_examples=30)
@given(samples())
def test_random_row_reductions_keep_their_meaning(case: Sample) -> None:
    agree(case)


@pytest.mark.diagonal(3)
@pytest.mark.parametrize("columns", [16, 26, 32, 33, 64, 127, 600])
@pytest.mark.parametrize(("agg", "merged"), [("+", np.sum), ("*", np.prod), (">", np.max), ("<", np.min)])
def test_every_aggregation_gives_what_numpy_gives(agg: str, merged: Any, columns: int) -> None:
    source = f"function (A[X, Y], B[X, Y]) -> (R) {{ T[x : X] = {agg}(A[x, y] * B[x, y]); R = -T; }}"
    case = sample(source, staging(), 5, columns)
    product = case.inputs["A"].astype(np.float64) * case.inputs["B"]
    np.testing.assert_allclose(agree(case), -merged(product, axis=1), rtol=1e-4)


@pytest.mark.parametrize("columns", [26, 70, 300])
def test_staged_rows_beside_kept_ones(columns: int) -> None:
    case = sample(WEIGHED.replace("(S)", "(R)").replace("S =", "R ="), staging(threads=16), 3, columns)
    raised = np.exp(case.inputs["A"] - case.inputs["A"].max(axis=1, keepdims=True))
    np.testing.assert_allclose(agree(case), raised / (raised * case.inputs["B"]).sum(axis=1, keepdims=True), rtol=1e-4)
