"""Narrow stores become whole vectors where nothing comes between them, and write what they wrote."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tile_ir.emit.walker import walk_statements
from tile_ir.semtree.interpret import launch
from tile_ir.semtree.nodes import Function, Store
from tile_ir.semtree.parser import parse_function
from tile_ir.semtree.verify import OPTIONAL_NODES, verify
from tile_opt.semtree import join_stores, simplify

LANES, REGISTERS = 4, 3


def function(statements: Sequence[str]) -> Function:
    loads = [f"let x{k} = A[{LANES * k}i64, align=4]:float32x{LANES};" for k in range(REGISTERS)]
    body = "\n    ".join([*loads, *statements])
    head = "readwrite global float32* A [elements=16], write global float32* B [elements=64]"
    return parse_function(f"function f({head}) group(1, 1, 1) {{\n    {body}\n}}")


def written(made: Function) -> list[float]:
    verify(made, OPTIONAL_NODES)
    arrays = [np.arange(16, dtype=np.float32), np.full(64, -1, np.float32)]
    launch(made, (1, 1, 1), arrays)
    return [*arrays[0].tolist(), *arrays[1].tolist()]


def stores(made: Function) -> int:
    return sum(isinstance(s, Store) for s in walk_statements(made.body))


def checked(statements: Sequence[str]) -> Function:
    made = function(statements)
    joined = simplify(join_stores(made, 4 * LANES))
    assert written(joined) == written(made)
    return joined


def one(offset: int, register: int, lane: int) -> str:
    return f"B[{offset}i64] = extract(x{register}, {lane});"


LANE = st.tuples(st.integers(0, REGISTERS - 1), st.integers(0, LANES - 1))


@settings(max_examples=40, deadline=None)
@given(st.permutations(range(12)), st.lists(LANE, min_size=12, max_size=12), st.sets(st.integers(0, 11)))
def test_any_order_and_any_gaps(order: list[int], lanes: list[tuple[int, int]], gaps: set[int]) -> None:
    checked([one(n, *lanes[n]) for n in order if n not in gaps])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 8), LANE, st.booleans()), min_size=4, max_size=16))
@example([*((n, (0, n % LANES), False) for n in range(1, 5)), (0, (1, 0), True)])
def test_cells_that_are_written_twice_keep_the_last_value(written: list[tuple[int, tuple[int, int], bool]]) -> None:
    pairs = {True: "B[{0}i64] = splat(extract(x{1}, {2}), 2);", False: "B[{0}i64] = extract(x{1}, {2});"}
    checked([pairs[pair].format(offset, *lane) for offset, lane, pair in written])


def test_two_registers_in_turn_are_whole_vectors() -> None:
    assert stores(checked([one(2 * n + k, k, n) for k in range(2) for n in range(LANES)])) == 2


def test_short_registers_in_turn_are_whole_vectors() -> None:
    """Vectors of half as many lanes as the device has, of more than two registers."""
    halves = [f"let h{k} = shuffle(x{k}, x{k}, 0, 1);" for k in range(REGISTERS)]
    made = function(
        [*halves, *(f"B[{REGISTERS * n + k}i64] = extract(h{k}, {n});" for k in range(REGISTERS) for n in range(2))]
    )
    assert stores(made) == 2 * REGISTERS


def test_pairs_join_where_that_saves_more_than_a_shuffle() -> None:
    pairs = [f"B[{2 * n}i64] = shuffle(x0, x1, {n}, {n + LANES});" for n in range(LANES)]
    assert stores(checked(pairs)) == LANES
    again = [f"B[{2 * n}i64] = splat(extract(x2, {n}), 2);" for n in range(LANES)]
    assert stores(checked(again)) == LANES // 2


@pytest.mark.parametrize(
    "between",
    ["let y = B[0i64];\n    A[0i64] = y;", "B[1i64] = 7.0;", "A[1i64] = 7.0;"],
    ids=["read", "written", "other"],
)
def test_what_comes_between_sees_what_was_written(between: str) -> None:
    checked([*(one(n, 0, n) for n in range(3)), between, *(one(n, 1, n) for n in range(LANES))])


def test_a_register_that_changes_is_what_it_was() -> None:
    early = ["let e = extract(x0, 0);", "var r = x1;", "let a = extract(r, 1);", "r = x2;"]
    checked([*early, "B[0i64] = e;", "B[1i64] = a;", "B[2i64] = extract(r, 1);", "B[3i64] = extract(r, 2);"])


def test_vectors_that_need_many_registers_stay_apart() -> None:
    assert stores(checked([one(n, n % REGISTERS, 0) for n in range(LANES)])) == LANES
