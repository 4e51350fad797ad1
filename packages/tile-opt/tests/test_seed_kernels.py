"""The two example kernels of the seed on code generation: same grid, local memory and reduction tree.

Settings: 32 work items a group, scalar accesses, and the operands of row reductions staged in local memory. What
fast math adds, `native_log` and `mad`, is in the OpenCL text (integration/tests/test_stack_seed_kernels.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from explain_support import FRONT, GPU, compiled
from lowering_support import execute
from tile_ir.kernels import Kernel
from tile_ir.semtree.nodes import Alloc, Assign, Barrier, Binary, Block, Compare, Const, If, Load, Statement, Store, Var
from tile_ir.target import PassConfig
from tile_opt.compiled import Compiled
from tile_opt.explain import report

STAGED = (*FRONT, PassConfig("gpu_tile", options={"stage_rows": True}))
SEED = replace(GPU, passes=STAGED, settings=replace(GPU.settings, threads=32, vec_size=1))
LOG = "function (I) -> (L) { L = log(I); }"
SUM = "function (A[X, Y], B[X, Y]) -> (R) { T[x : X] = +(A[x, y] * B[x, y]); R = -T; }"


def _kernel(made: Compiled) -> Kernel:
    (kernel,) = made.kernels.kernels
    return kernel


def _statements(kernel: Kernel) -> Iterator[Statement]:
    assert kernel.function is not None
    stack: list[Statement] = [kernel.function.body]
    while stack:
        statement = stack.pop()
        yield statement
        if isinstance(statement, Block):
            stack += reversed(statement.body)
        elif isinstance(statement, If):
            stack += [b for b in (statement.other, statement.then) if b is not None]


def _tree(kernel: Kernel) -> list[tuple[int, int]]:
    """(items that add, distance to their partner) of each step of the reduction."""
    steps: list[tuple[int, int]] = []
    for statement in _statements(kernel):
        match statement:
            case If(
                Compare("cmp_lt", _, Const(value=lower)),
                Block(
                    (
                        Store(
                            Var(into),
                            _,
                            Binary("add", Load(Var(first)), Load(Var(second), Binary("add", _, Const(value=far)))),
                        ),
                    )
                ),
            ):
                assert into == first == second
                steps.append((int(lower), int(far)))
            case _:
                pass
    return steps


def _guarded(kernel: Kernel) -> list[list[str]]:
    """What the 26 items that have an element fill or add to, guard by guard."""
    found: list[list[str]] = []
    for statement in _statements(kernel):
        match statement:
            case If(Compare("cmp_le", _, Const(value=25)), Block(body)):
                stores = [s.ptr.name for s in body if isinstance(s, Store) and isinstance(s.ptr, Var)]
                found.append(stores + [s.name for s in body if isinstance(s, Assign)])
            case _:
                pass
    return found


def test_log_has_nine_groups_of_32_and_a_guard_for_the_last_four() -> None:
    made = compiled(LOG, SEED, I=(10, 26))
    kernel = _kernel(made)
    assert kernel.function is not None
    assert (kernel.groups, kernel.function.group_size) == ((9, 1, 1), (32, 1, 1))
    assert sum(isinstance(s, If) for s in _statements(kernel)) == 1
    assert not any(isinstance(s, Barrier | Alloc) for s in _statements(kernel))
    values = {"I": np.linspace(0.5, 9, 260, dtype=np.float32).reshape(10, 26)}
    np.testing.assert_allclose(execute(made.kernels, values)["L"], np.log(values["I"]), rtol=1e-6)


def test_the_sum_has_a_group_per_row_and_rolls_up_32_partial_sums_of_staged_products() -> None:
    made = compiled(SUM, SEED, A=(10, 26), B=(10, 26))
    kernel = _kernel(made)
    assert kernel.function is not None
    assert (kernel.groups, kernel.function.group_size) == ((10, 1, 1), (32, 1, 1))
    local = [s for s in _statements(kernel) if isinstance(s, Alloc) and s.type.space.value == "local"]
    assert [s.type.count for s in local] == [26, 26, 32]
    assert _guarded(kernel) == [["A_local"], ["B_local"], ["T_partial"]]
    assert _tree(kernel) == [(16, 16), (8, 8), (4, 4), (2, 2), (1, 1)]
    rows = np.arange(260, dtype=np.float32).reshape(10, 26)
    got = execute(made.kernels, {"A": rows, "B": np.ones_like(rows)})["R"]
    np.testing.assert_array_equal(got, -rows.sum(axis=1))
    (explained,) = report(made).kernels
    assert explained.plan.kind == "rows through local memory, 26 elements at a time"
    assert {"stage A in LOCAL by group", "stage B in LOCAL by group"} <= {line.strip() for line in explained.plan.lines}
    assert explained.output_operations == ("R = neg(T)",)


def test_many_short_rows_have_a_group_each_too() -> None:
    kernel = _kernel(compiled(SUM, SEED, A=(4096, 26), B=(4096, 26)))
    assert kernel.groups == (4096, 1, 1) and _tree(kernel)[0] == (16, 16)
