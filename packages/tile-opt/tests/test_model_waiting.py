"""What the model says of demands that overlap, of results that are waited for, and of stores past the caches."""

from __future__ import annotations

from dataclasses import replace

import pytest
from explain_support import SOFTMAX
from hypothesis import given
from hypothesis import strategies as st
from model_support import kernel, processor
from tile_ir.machine import Machine
from tile_ir.stripe.nodes import Block, Direction
from tile_ir.target import Target
from tile_opt.model.arithmetic import FORWARD
from tile_opt.model.causes import Cause, overlapped
from tile_opt.model.estimate import estimate
from tile_opt.plan.text import parse_plans

TURNED = "function (A[N, M]) -> (B) { B[i, j : M, N] = =(A[j, i]); }"
NARROW = replace(processor("zen4"), machine=Machine())
"""Vectors of four floats."""
PRODUCTS = "function (A[I, K], B[K, J]) -> (C) { C[i, j : I, J] = +(A[i, k] * B[k, j]); }"
CHAIN = "function (A, B) -> (C) { C = A * B + A; }"
PRODUCT = "function (X[N]) -> (R) { R[] = *(X[i]); }"


@given(st.lists(st.floats(1e-9, 1e-3), min_size=1, max_size=6), st.floats(0.05, 0.9))
def test_demands_take_at_least_the_longest_and_at_most_all_in_a_row(seconds: list[float], exposed: float) -> None:
    found = overlapped([Cause(str(n), s) for n, s in enumerate(seconds)], exposed)
    total = sum(c.seconds for c in found)
    assert max(seconds) * 0.999 <= total <= sum(seconds) * 1.001
    assert all(c.seconds <= seconds[int(c.name)] * 1.001 for c in found)


def test_two_equal_demands_expose_what_the_machine_says() -> None:
    found = overlapped([Cause("a", 3.0), Cause("b", 3.0)], 0.25)
    assert sum(c.seconds for c in found) == pytest.approx(3.0 * 1.25)
    assert overlapped([Cause("a", 0.0)], 0.25) == []


@pytest.mark.parametrize(("source", "keeps"), [(PRODUCTS, True), (CHAIN, False)])
def test_what_stays_in_registers_is_hidden_better_behind_what_moves(source: str, keeps: bool) -> None:
    target = processor("zen4")
    ports = replace(target.machine.ports, exposed_kept=target.machine.ports.exposed / 4)
    block = kernel(source, target, A=(192, 192), B=(192, 192))
    usual, hidden = (
        estimate(block, replace(target, machine=replace(target.machine, ports=p)))
        for p in (target.machine.ports, ports)
    )
    assert hidden.seconds < usual.seconds * 0.99 if keeps else hidden.seconds == pytest.approx(usual.seconds)
    assert sum(c.seconds for c in hidden.causes) == pytest.approx(hidden.seconds)


def cause(block: Block, target: Target, name: str) -> float:
    return sum(c.seconds for c in estimate(block, target).causes if c.name == name)


def with_window(target: Target, window: int) -> Target:
    machine = target.machine
    return replace(target, machine=replace(machine, ports=replace(machine.ports, window=window)))


def test_short_rows_wait_for_their_own_sums_and_a_wider_window_waits_less() -> None:
    target = processor("zen4")
    block = kernel(SOFTMAX, target, A=(256, 128))
    narrow, usual, wide = (cause(block, with_window(target, w), "latency") for w in (64, 320, 1 << 16))
    assert narrow > usual > wide


def test_the_longer_a_loop_the_likelier_its_end_is_missed() -> None:
    """A product of so many steps: each cell's loop ends once."""
    target = processor("xeon")
    plan = parse_plans("plan kernel_0 {\n  serial i:1\n  serial j:16\n  serial k:1\n  vector j:1 x16\n}")
    at_end = {
        steps: cause(kernel(PRODUCTS, target, plan, A=(64, steps), B=(steps, 64)), target, "loop ends")
        for steps in (4, 8, 16, 64, 128)
    }
    assert at_end[8] > 1.8 * at_end[4] > 0 and at_end[16] > 1.8 * at_end[8]
    assert at_end[128] == pytest.approx(at_end[64])


def test_a_chain_takes_its_latency() -> None:
    target = processor("zen4")
    block = kernel(PRODUCT, replace(target, passes=()), X=(1 << 15,))
    machine = target.machine
    each = machine.ports.fma_latency + FORWARD + machine.caches[0].latency  # the cell is in memory without a schedule
    chain = (1 << 15) * each / (machine.clock_ghz * 1e9)
    assert 0.9 * chain <= estimate(block, target).seconds <= 1.3 * chain


def past_the_caches(columns: int, lanes: int) -> Block:
    """A kernel whose results pass the caches, `columns` of a row at a time."""
    target = replace(NARROW, settings=replace(NARROW.settings, l3_bytes=1 << 10))
    plan = f"plan kernel_0 {{\n  grid i:512\n  serial j:{columns}\n  serial i:1\n  vector j:1 x{lanes}\n}}"
    return streamed(kernel(TURNED, target, parse_plans(plan), A=(64, 512)))


def streamed(block: Block) -> Block:
    """Every result stored past the caches, which the compiler does only where it fills lines."""
    refs = tuple(replace(r, hint="streaming") if r.dir is Direction.OUT else r for r in block.refs)
    body = tuple(streamed(s) if isinstance(s, Block) else s for s in block.body)
    return replace(block, refs=refs, body=body)


def test_pieces_of_lines_cost_more_than_whole_lines_past_the_caches() -> None:
    pieces, whole = (cause(past_the_caches(n, n), NARROW, "memory") for n in (4, 16))
    assert pieces > 3 * whole


def test_whole_lines_with_none_beside_them_cost_more_past_the_caches() -> None:
    """Lines of one column of lines after another, and of one row after another."""
    source = "function (A[N, M], C[M]) -> (B) { B = A + C; }"
    plans = (
        f"plan kernel_0 {{\n  serial {loops}\n  vector i1:1 x16\n}}" for loops in ("i1:16\n  serial i0:1", "i0:1 i1:64")
    )
    blocks = (streamed(kernel(source, NARROW, parse_plans(plan), A=(512, 64), C=(64,))) for plan in plans)
    lone, rows = (cause(block, NARROW, "memory") for block in blocks)
    assert lone > 1.5 * rows


def test_dividing_by_a_power_of_two_is_a_product() -> None:
    target = processor("xeon")
    half, third = (
        estimate(kernel(f"function (X) -> (Y) {{ Y = X / {c}; }}", target, X=(4096,)), target).seconds
        for c in ("2.0", "3.0")
    )
    product = estimate(kernel("function (X) -> (Y) { Y = X * 0.5; }", target, X=(4096,)), target).seconds
    assert half == pytest.approx(product) and third > 1.5 * product


@pytest.mark.parametrize("by", ["13", "I"])
def test_short_integers_are_divided_in_all_lanes_at_once(by: str) -> None:
    """By a product, or as floats: one by one they would take as long with vectors as without."""
    target = processor("xeon")
    short, long = (
        estimate(kernel(f"function (X) -> (Y) {{ I = as_int(X, {b}); Y = I / {by}; }}", target, X=(4096,)), target)
        for b in (32, 64)
    )
    assert short.seconds < 0.8 * long.seconds


def test_a_quotient_is_waited_for_as_long_as_the_divider_takes_and_no_polynomial() -> None:
    """Each row's softmax has one division of a scalar: not the chain of multiply-adds that its cost is counted in."""
    target = processor("xeon")
    functions = replace(target.machine.functions, div=5)
    quick = replace(target, machine=replace(target.machine, functions=functions))
    block = kernel(SOFTMAX, target, A=(256, 128))
    assert cause(block, target, "latency") < 1.5 * cause(block, quick, "latency")
