"""Kernels that do not wait for each other begin by one launch: the same results, and only where none of them loses by it."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
import tensor_support
import tile_lang
import tile_opt
from explain_support import GPU
from lowering_support import check, execute, random_inputs
from test_tensor_teams import TEAMS
from tile_ir.diagnostics import Source
from tile_ir.dtype import DType
from tile_ir.frozen import replace
from tile_ir.kernels import Kernel
from tile_ir.machine import Launch, LocalMemory
from tile_ir.program.nodes import Program, TensorType
from tile_ir.target import PassConfig, Target
from tile_opt.explain import report
from tile_opt.model.estimate import estimate
from tile_opt.plan.steps.groups.last_group import waits_for_all
from tile_opt.plan.steps.groups.together import parts_of_launch
from tile_opt.translate import to_stripe

TWO = "function (A[N], B[M]) -> (R, S) { R = A * 2.0; S = exp(B); }"
CHAIN = "function (A[N, M]) -> (R) { S[i : N] = +(A[i, j]); T[i : N] = >(A[i, j] * S[j]); R = T + S; }"
TRANSPOSED = "function (A[N, M], B[K, L]) -> (R, S) { R[j, i : M, N] = =(A[i, j]); S[j, i : L, K] = =(B[i, j]); }"
ROWS = "function (A[N, M], B[K, L]) -> (R, S) { R[j, i : M, N] = =(A[i, j]); S[i : K] = +(B[i, j]); }"
PRODUCTS = """function (A[M, K], B[K, N], C[P, Q], D[Q, R]) -> (S, T) {
    S[i, j : M, N] = +(A[i, k] * B[k, j]); T[i, j : P, R] = +(C[i, k] * D[k, j]);
}"""
SUMS = """function (A[N, M], B[K, L]) -> (R) {
    S[i : N] = +(A[i, j]); T[j, i : L, K] = =(B[i, j]); R[i, k : N, L] = +(S[i] * T[k, j]);
}"""
BEHIND = """function (A[N, M], B[K, L]) -> (R, S) {
    T[i : N] = +(A[i, j]); U[i : N] = >(A[i, j] * T[j]); R[i : N] = >(A[i, j] * U[j]); S[j, i : L, K] = =(B[i, j]);
}"""
BEFORE = "function (A[N], B[M], C[N]) -> (R, S) { S = A * 2.0; T[] = +(B[i]); R = C * T; }"


def target(together: bool = True, launch: float = 4e-6) -> Target:
    machine = replace(GPU.machine, local=LocalMemory(bytes=1 << 17), launch=Launch(kernel=launch))
    passes = (*GPU.passes, *([PassConfig("launch_together")] if together else []))
    return replace(GPU, settings=replace(GPU.settings, threads=32), machine=machine, passes=passes)


def bound(source: str, **shapes: tuple[int, ...]) -> Program:
    function = tile_lang.parse(Source(source, "sample.tile"))
    return tile_lang.bind(function, {n: TensorType(DType.FLOAT32, s) for n, s in shapes.items()})


def launched(source: str, on: Target, **shapes: tuple[int, ...]) -> tuple[Kernel, ...]:
    """The kernels of a program, whose results are those of the language."""
    program = bound(source, **shapes)
    compiled, stripe = tile_opt.compile(program, on, verify=True), to_stripe(program)
    check(compiled.stripe, random_inputs(stripe), on, reference=stripe)
    return compiled.kernels.kernels


@pytest.mark.parametrize(
    ("source", "shapes"),
    [
        pytest.param(TWO, {"A": (300,), "B": (501,)}, id="elementwise"),
        pytest.param(TRANSPOSED, {"A": (70, 50), "B": (33, 90)}, id="through local memory"),
        pytest.param(ROWS, {"A": (70, 50), "B": (33, 90)}, id="groups of another shape"),
    ],
)
def test_one_launch_has_the_results_of_two(source: str, shapes: dict[str, tuple[int, ...]]) -> None:
    apart = launched(source, target(together=False), **shapes)
    (one,) = launched(source, target(), **shapes)
    assert {p.name for p in parts_of_launch(one.stripe)} == {k.name for k in apart}
    assert prod(one.groups) == sum(prod(k.groups) for k in apart)
    assert estimate(one.stripe, target()).seconds < sum(estimate(k.stripe, target()).seconds for k in apart)


def test_what_waits_for_another_kernel_has_a_launch_of_its_own() -> None:
    assert not any(parts_of_launch(k.stripe) for k in launched(CHAIN, target(), A=(90, 90)))


@pytest.mark.parametrize(
    ("source", "shapes", "sizes"),
    [
        pytest.param(BEHIND, {"A": (90, 90), "B": (33, 90)}, [1, 1, 2], id="the last ones"),
        pytest.param(BEFORE, {"A": (300,), "B": (9,), "C": (300,)}, [1, 2], id="the first one moves behind another"),
    ],
)
def test_kernels_move_past_those_that_they_do_not_wait_for(
    source: str, shapes: dict[str, tuple[int, ...]], sizes: list[int]
) -> None:
    assert [max(1, len(parts_of_launch(k.stripe))) for k in launched(source, target(), **shapes)] == sizes


def test_what_groups_do_last_is_done_beside_others() -> None:
    """A launch has one kernel whose groups count each other: the counts of two would be one."""
    base = target()
    on = replace(base, nodes=base.nodes | {"LastGroup"}, machine=replace(base.machine, cores=1))
    (one,) = launched(
        "function (A[C, N], B[M, K]) -> (R, S) { P[c : C] = +(A[c, i]); R[] = +(P[c]); S[j, i : K, M] = =(B[i, j]); }",
        on,
        A=(9, 200),
        B=(33, 90),
    )
    assert [waits_for_all(p) is not None for p in parts_of_launch(one.stripe)] == [True, False]
    two = launched(
        "function (A[C, N], B[D, M]) -> (R, S) { P[c : C] = +(A[c, i]); R[] = +(P[c]); Q[d : D] = >(B[d, j]); S[] = >(Q[d]); }",
        on,
        A=(9, 200),
        B=(8, 300),
    )
    assert [waits_for_all(k.stripe) is not None for k in two] == [True, True]


def test_a_launch_has_no_more_groups_than_an_axis() -> None:
    base = target()
    on = replace(base, settings=replace(base.settings, dim_sizes=(6, 65535, 65535)))
    assert len(launched(TWO, on, A=(300,), B=(501,))) == 2


def test_products_of_teams_begin_together() -> None:
    """Each of the branches waits for products of its own, and has all of a group's local memory."""
    program = tensor_support.bound(PRODUCTS, DType.BFLOAT16, A=(128, 16), B=(16, 32), C=(128, 24), D=(24, 32))
    on = replace(TEAMS, passes=(*TEAMS.passes, PassConfig("launch_together"))).resolved(cores=8)
    (one,) = (kernels := tile_opt.compile(program, on, verify=True).kernels).kernels
    inputs = tensor_support.inputs_of(program)
    a, b, c, d = (inputs[name].astype(np.float32) for name in "ABCD")
    assert len(parts_of_launch(one.stripe)) == 2
    found = execute(kernels, inputs)
    for name, wanted in (("S", a @ b), ("T", c @ d)):
        np.testing.assert_allclose(found[name].astype(np.float32), wanted, rtol=1e-2, atol=1e-2)


def test_long_kernels_stay_apart_where_fewer_groups_would_run_at_once() -> None:
    shapes = {"A": (1 << 10, 1 << 10), "B": (1 << 9, 1 << 11)}
    assert len(tile_opt.compile(bound(ROWS, **shapes), target(launch=1e-9)).kernels.kernels) == 2


@pytest.mark.parametrize("seldom", [False, True])
def test_what_runs_seldom_has_a_launch_of_its_own(seldom: bool) -> None:
    program = bound(SUMS, A=(70, 50), B=(33, 90))
    program = replace(program, inputs=tuple(replace(p, bound=seldom and p.name == "A") for p in program.inputs))
    compiled = tile_opt.compile(program, target()).kernels
    assert [len(parts_of_launch(k.stripe)) for k in compiled.kernels] == ([0, 0, 0] if seldom else [2, 0])
    assert [s.bound for s in compiled.steps] == ([True, False, False] if seldom else [False, False])


def test_the_plan_of_each_part_is_explained() -> None:
    made = report(tile_opt.compile(bound(TWO, A=(300,), B=(501,)), target()))
    (kernel,) = made.kernels
    assert [name for name, _ in kernel.parts] == ["kernel_0", "kernel_1"] and kernel.plan.kind == "groups side by side"
