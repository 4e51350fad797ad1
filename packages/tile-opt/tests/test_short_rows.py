"""Short rows side by side: when lanes go across them, that results stay the same, and that it costs what elements do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from explain_support import FRONT, NODES, SOFTMAX, compiled
from lowering_support import execute
from model_support import kernel, processor
from tile_ir.emit.walker import walk_all
from tile_ir.machine import VectorUnit
from tile_ir.semtree.nodes import Extract, Load, ReduceLanes
from tile_ir.semtree.printer import print_function
from tile_ir.semtree.verify import OPTIONAL_NODES
from tile_ir.stripe.interpret import run
from tile_ir.stripe.nodes import Bind
from tile_ir.stripe.walk import blocks_in
from tile_ir.target import HardwareSettings, PassConfig, Target
from tile_opt.lower_kernels import lower_kernels
from tile_opt.model.estimate import estimate
from tile_opt.plan.plan import Edge
from tile_opt.semtree import VECTOR_NODES

SUMS = "function (A[M, N], B[N]) -> (O) { P[m, n : M, N] = +(A[m, n] * B[n]); O[m : M] = +(P[m, n]); }"
SWAPPED = "function (A[B, M, N]) -> (O) { O[m, b : M, B] = +(A[b, m, n]); }"
REVERSED = "function (A[I, J, K, L]) -> (O) { O[l, k, j, i : L, K, J, I] = =(A[i, j, k, l]); }"
WINDOW = "function (A[N]) -> (O) { O[x : N - 2] = >(A[x + k]), k < 3; }"
FOUND = "function (T[N, W], I[K]) -> (O) { O = gather(T, as_int(I, 32)); }"
PADDED = "function (A[M, N]) -> (O) { O[i, j + 2 : M, N + 4] = =(A[i, j]); }"
BESIDE = """function (A[M, N]) -> (O) {
    L[i, j : M, 2 * N] = =(A[i, j]); R[i, N + j : M, 2 * N] = =(A[i, j]); O = L + R;
}"""
REASON = "short rows side by side"


def narrow(masks: bool) -> Target:
    """Four lanes, so that small shapes have rows that are short, and more than a few vectors of them."""
    passes = (*FRONT, PassConfig("schedule_kernels"))
    return Target("narrow", HardwareSettings(vector_bytes=16, registers=16, masks=masks), nodes=NODES, passes=passes)


def wide(name: str, cores: int = 1) -> Target:
    """A reference machine with 32 registers of 16 lanes, some of which may be masked."""
    found = processor(name, cores)
    machine = replace(found.machine, vector=VectorUnit(32, 64))
    return replace(found, machine=machine, settings=replace(found.settings, masks=True))


def reasons(source: str, target: Target, **shapes: tuple[int, ...]) -> set[str]:
    return {d.plan.reason for d in compiled(source, target, "sample", None, **shapes).decisions.values()}


@pytest.mark.parametrize("masks", [True, False])
@pytest.mark.parametrize(
    ("source", "shapes"),
    [
        (SOFTMAX, {"A": (16, 5)}),
        (SOFTMAX, {"A": (19, 6)}),
        (SOFTMAX, {"A": (21, 4)}),
        (SUMS, {"A": (18, 3), "B": (3,)}),
        (SWAPPED, {"A": (17, 3, 5)}),
    ],
)
def test_results_are_those_of_the_program(source: str, shapes: dict[str, tuple[int, ...]], masks: bool) -> None:
    made = compiled(source, narrow(masks), "sample", None, **shapes)
    assert REASON in {d.plan.reason for d in made.decisions.values()}
    plain = compiled(source, replace(narrow(masks), passes=FRONT), "sample", None, **shapes)
    rng = np.random.default_rng(0)
    inputs = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    found, expected = run(made.stripe, inputs), run(plain.stripe, inputs)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["zen4", "xeon"])
def test_lanes_go_across_rows_that_are_short_and_many(name: str) -> None:
    assert {n for n in (7, 15, 16, 17, 20) if REASON in reasons(SOFTMAX, wide(name), A=(4099, n))} == {
        7,
        15,
        16,
        17,
        20,
    }
    for shape in ((4099, 96), (48, 15)):
        assert REASON not in reasons(SOFTMAX, wide(name), A=shape)


@pytest.mark.parametrize("masks", [True, False])
def test_what_vectors_leave_of_a_row_counts_for_each_piece_it_goes_in(masks: bool) -> None:
    """Seven elements for four lanes: two vectors where the second is masked, else three, and two sums more."""
    assert (REASON in reasons(SOFTMAX, narrow(masks), A=(64, 7))) is not masks
    assert REASON not in reasons(SOFTMAX, narrow(masks), A=(64, 8))


def test_lanes_that_are_no_power_of_two_come_together_in_one_tree() -> None:
    """Those that are missing hold the identity."""
    target = replace(narrow(masks=False), nodes=OPTIONAL_NODES)
    kernels = lower_kernels(compiled(SUMS, target, "sample", None, A=(2, 3), B=(3,)).stripe, target, verify=True)
    functions = [k.function for k in kernels.kernels if k.function is not None]
    trees = [e for f in functions for e in walk_all(f) if isinstance(e, ReduceLanes)]
    assert [t.value.type.lanes for t in trees] == [4]
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    (found,) = execute(kernels, {"A": a, "B": np.array([1, 10, 100], np.float32)}).values()
    np.testing.assert_array_equal(found, [210, 543])


@pytest.mark.parametrize("source", [PADDED, BESIDE])
def test_pieces_of_rows_that_are_shorter_than_vectors_ask_nothing(source: str) -> None:
    """Where a border or a neighbour begins is known: no element asks which of them it is in."""
    target = replace(narrow(masks=False), nodes=OPTIONAL_NODES)
    kernels = lower_kernels(compiled(source, target, "sample", None, A=(8, 3)).stripe, target, verify=True)
    functions = [k.function for k in kernels.kernels if k.function is not None]
    assert functions and not any(" if " in print_function(f) for f in functions)
    a = np.arange(1, 25, dtype=np.float32).reshape(8, 3)
    (found,) = execute(kernels, {"A": a}).values()
    zeros = np.zeros((8, 2), np.float32)
    np.testing.assert_array_equal(found, np.hstack([zeros, a, zeros] if source is PADDED else [a, a]))


def test_rows_that_do_not_fill_a_vector_are_stored_as_masked_vectors() -> None:
    """What lanes took apart comes together by shuffles, whichever lanes of the last vector of a row take part."""
    target = replace(narrow(masks=True), nodes=OPTIONAL_NODES)
    made = compiled(SOFTMAX, target, "sample", None, A=(16, 3))
    kernels = lower_kernels(made.stripe, target, verify=True)
    functions = [k.function for k in kernels.kernels if k.function is not None]
    assert functions and not [e for f in functions for e in walk_all(f) if isinstance(e, Extract)]
    a = np.random.default_rng(0).standard_normal((16, 3), np.float32)
    (found,) = execute(kernels, {"A": a}).values()
    np.testing.assert_allclose(found, np.exp(a) / np.exp(a).sum(axis=1, keepdims=True), rtol=1e-5)


def test_what_is_read_again_at_once_stays_in_the_caches() -> None:
    """The copy that a result of many short rows is turned in is no stream, the result is."""
    passes = (*FRONT, PassConfig("stream"), PassConfig("schedule_kernels"))
    target = replace(wide("zen4"), passes=passes)
    scheduled = kernel(SOFTMAX, replace(target, settings=replace(target.settings, l3_bytes=1 << 14)), A=(4096, 16))
    streams = {r.loc.unit for b in blocks_in(scheduled) for r in b.refs if r.hint == "streaming"}
    assert streams == {"DRAM"}


def test_windows_that_slide_along_the_lanes_are_read_where_they_lie() -> None:
    """Lanes take a window's elements side by side as it is: copies with one row for each of its places would only cost."""
    made = compiled(WINDOW, wide("zen4"), "sample", None, A=(4099,))
    assert [d.plan.stagings for d in made.decisions.values()] == [()]


@pytest.mark.parametrize("name", ["zen4", "xeon"])
def test_time_grows_with_elements_not_with_vectors_of_them(name: str) -> None:
    target = wide(name)
    times = {n: estimate(kernel(SOFTMAX, target, A=(4096, n)), target).seconds / n for n in (15, 16, 17)}
    assert max(times.values()) < 1.3 * min(times.values())


def test_a_tile_goes_through_registers_without_a_guard_for_each_row() -> None:
    """Rows of whole tiles are known to be there, whatever the group."""
    scheduled = kernel(SOFTMAX, wide("zen4", cores=4), A=(20011, 15))
    copies = [b for b in blocks_in(scheduled) if b.name.endswith("_tile_copy")]
    assert copies and all(len(c.names) == 1 for b in copies for c in b.constraints)


@pytest.mark.parametrize("name", ["zen4", "xeon"])
def test_operands_of_short_runs_are_read_to_the_ends_of_their_lines(name: str) -> None:
    """Axes in reverse order: four elements are side by side in the operand, and each line holds four such runs."""
    target, shape = wide(name), (96, 41, 101, 4)
    near = dict(estimate(kernel(REVERSED, target, A=shape), target).traffic)["L1"]
    assert near < 1.1 * 3 * 4 * np.prod(shape)  # each line comes in, the result's go out again


def test_short_runs_are_turned_in_the_order_of_the_result() -> None:
    made = compiled(REVERSED, narrow(masks=True), "sample", None, A=(18, 3, 9, 2))
    assert {d.plan.reason for d in made.decisions.values()} == {"transposed in registers"}
    a = np.arange(18 * 3 * 9 * 2, dtype=np.float32).reshape(18, 3, 9, 2)
    np.testing.assert_array_equal(run(made.stripe, {"A": a})["O"], a.transpose())


def test_a_target_without_vectors_gets_elements() -> None:
    plain = replace(narrow(masks=False), nodes=NODES - VECTOR_NODES)
    made = compiled("function (A[M, N]) -> (O) { O = A + 1; }", plain, "sample", None, A=(40, 3))
    (k,) = lower_kernels(made.stripe, plain, verify=True).kernels
    assert k.function is not None
    assert {e.type.lanes for e in walk_all(k.function) if isinstance(e, Load)} == {1}


@pytest.mark.parametrize(("width", "lanes"), [(3, 4), (5, 8), (8, 8), (15, 16), (17, 16)])
def test_short_rows_that_are_found_by_number_need_no_mask(width: int, lanes: int) -> None:
    """Under one they would be moved lane by lane: those shorter than vectors are joined, longer ones are two that overlap."""
    made = compiled(FOUND, wide("zen4"), T=(9, width), I=(40,))
    (plan,) = made.plans.values()
    (vector,) = plan.bound(Bind.VECTOR)
    assert vector.lanes == lanes
    assert Edge.MASK not in dict(plan.edges).values()
    rng = np.random.default_rng(0)
    table, numbers = rng.random((9, width)).astype(np.float32), rng.integers(0, 9, 40).astype(np.float32)
    got = run(made.stripe, {"T": table, "I": numbers})["O"]
    np.testing.assert_array_equal(got, table[numbers.astype(np.int32)])
