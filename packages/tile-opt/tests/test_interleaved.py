"""Interleaved results: lanes along the loop around a short one, whatever the ends of the loops."""

from __future__ import annotations

from collections import Counter

import pytest
import tile_lang
from explain_support import NODES
from hypothesis import given, settings
from hypothesis import strategies as st
from test_widen import agree
from tile_ir.diagnostics import Source
from tile_ir.dtype import DType
from tile_ir.emit.walker import walk_statements
from tile_ir.frozen import replace
from tile_ir.program.nodes import TensorType
from tile_ir.semtree.nodes import Let, Load, Store
from tile_ir.stripe.nodes import Program
from tile_ir.target import HardwareSettings, PassConfig, Target
from tile_opt.lowering import lower
from tile_opt.pipeline import schedule
from tile_opt.semtree import join_stores
from tile_opt.translate import to_stripe

PASSES = tuple(map(PassConfig, ("inline", "in_place", "fuse", "merge", "stream", "schedule_kernels")))
SMALL, WIDER = (
    Target("small", HardwareSettings(registers=32, vector_bytes=n, cores=2), nodes=NODES, passes=PASSES)
    for n in (16, 32)
)
TEXTS = {
    "repeated": "function (A[R, N]) -> (O) {{ O[r, n, i : R, N, {0}] = =(A[r, n]); }}",
    "repeated twice": "function (A[R, N]) -> (O) {{ O[r, j, n, i : R, 2, N, {0}] = =(A[r, n]); }}",
    "columns": "function (A[R, N, M], B[M]) -> (O) {{ O = A * B; }}",
    "scaled": "function (A[R, N], B[M]) -> (O) {{ P[r, n, i : R, N, {0}] = =(A[r, n]); O = 2 * P; }}",
    "weighted": "function (A[R, N, M], W[N]) -> (O) {{ O[r, i : R, M] = +(W[n] * A[r, n, i]); }}",
    "from a row": "function (A[R, N, M], B[M]) -> (O) {{ D = A - B; O[r, i : R, M] = >(D[r, n, i]); }}",
}
PARTS = """function (A[N], B[N, M], C[N]) -> (O) {{
    O0[n, i : N, {0}] = =(B[n, i]);
    O1[n, {1} : N, {0}] = =(A[n]) default O0;
    O[n, {2} : N, {0}] = =(C[n]) default O1;
}}"""


def bound(text: str, rows: int, columns: int, short: int) -> Program:
    shape = (rows, columns, short) if "M]" in TEXTS[text].split(", B")[0] else (rows, columns)
    shapes = {"A": shape, "B": (short,), "W": (columns,)}
    return of(TEXTS[text].format(short), shapes)


def of(text: str, shapes: dict[str, tuple[int, ...]]) -> Program:
    syntax = tile_lang.parse(Source(text, "text.tile"))
    return to_stripe(
        tile_lang.bind(syntax, {p.name.id: TensorType(DType.FLOAT32, shapes[p.name.id]) for p in syntax.inputs})
    )


def parts(rows: int, first: int) -> Program:
    """Rows of `first` columns and two more, which three operands write."""
    text = PARTS.format(first + 2, first, first + 1)
    return of(text, {"A": (rows,), "B": (rows, first), "C": (rows,)})


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from(sorted(TEXTS)),
    st.integers(1, 5),
    st.integers(4, 40),
    st.integers(2, 9),
    st.sampled_from([SMALL, WIDER]),
)
def test_results_stay_the_same(text: str, rows: int, columns: int, short: int, target: Target) -> None:
    agree(bound(text, rows, columns, short), target)


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 40), st.integers(1, 4), st.sampled_from([SMALL, WIDER]))
def test_rows_that_several_operands_write_stay_the_same(rows: int, first: int, target: Target) -> None:
    agree(parts(rows, first), target)


@pytest.mark.parametrize("first", [1, 2, 3])
def test_parts_of_short_rows_are_written_together(first: int) -> None:
    (decision,) = schedule(parts(1000, first), WIDER).decisions.values()
    assert decision.plan.reason == "parts of rows interleaved"


def test_parts_of_long_rows_have_kernels_of_their_own() -> None:
    assert len(schedule(parts(1000, 100), WIDER).decisions) == 3


def test_rows_that_are_replaced_are_written_after_those_that_are_kept() -> None:
    text = "function (K[N, D], X[B, D]) -> (R) { R[i + 5, d : N, D] = =(X[i, d]) default K; }"
    assert len(schedule(of(text, {"K": (40, 8), "X": (9, 8)}), WIDER).decisions) == 2  # a donated K stays where it is


@pytest.mark.parametrize(("text", "rows", "columns", "short", "chosen"), [
    ("weighted", 1, 500, 2, True), ("weighted", 1, 500, 3, True), ("weighted", 1, 500, 4, True), ("weighted", 1, 500, 8, False),
    ("from a row", 1, 500, 3, True), ("weighted", 90, 500, 2, True),
    ("weighted", 90, 20, 2, True), ("weighted", 90, 20, 5, False), ("weighted", 90, 20, 7, False),  # many short sums
])  # fmt: skip
def test_sums_of_few_columns_have_lanes_along_the_sum(
    text: str, rows: int, columns: int, short: int, chosen: bool
) -> None:
    """Where that takes fewer cycles: shuffles grow as the columns' square, and what lanes hold is added at each sum's end."""
    (decision,) = schedule(bound(text, rows, columns, short), WIDER).decisions.values()
    assert (decision.plan.reason == "columns apart") is chosen


def test_columns_come_apart_out_of_the_same_loads() -> None:
    """Each vector is loaded once, and holds something of all columns."""
    target = replace(WIDER, settings=replace(WIDER.settings, cores=1))
    (kernel,) = lower(schedule(bound("weighted", 1, 64, 3), target).program, target).kernels
    assert kernel.function is not None
    wide = [s for s in walk_statements(kernel.function.body) if isinstance(s, Let) and isinstance(s.value, Load)]
    sides = Counter(s.value.type.lanes for s in wide if isinstance(s.value, Load))
    assert sides[8] == 8, "three of A and one of W, twice"


@pytest.mark.parametrize("short", [2, 3, 4, 5, 8])
def test_short_rows_are_turned_round_in_whole_vectors(short: int) -> None:
    text = "function (A[R, N, M]) -> (O) { O[r, n, i : R, N, M] = =(A[r, n, M - 1 - i]); }"
    (decision,) = schedule(of(text, {"A": (5, 33, short)}), WIDER).decisions.values()
    assert decision.plan.reason == "interleaved"
    agree(of(text, {"A": (2, 19, short)}), WIDER)


@pytest.mark.parametrize("short", [2, 3, 4, 5, 7])
def test_rows_of_few_columns_are_whole_vectors_together(short: int) -> None:
    target = replace(WIDER, settings=replace(WIDER.settings, cores=1))
    (kernel,) = lower(schedule(bound("columns", 5, 33, short), target).program, target).kernels
    assert kernel.function is not None
    joined = join_stores(kernel.function, target.settings.vector_bytes)
    assert Counter(s.value.type.lanes for s in walk_statements(joined.body) if isinstance(s, Store))[8] >= short


@pytest.mark.parametrize(("columns", "short", "chosen"), [(33, 2, True), (33, 3, True), (3, 2, False), (33, 16, False)])
def test_lanes_go_along_the_longer_loop(columns: int, short: int, chosen: bool) -> None:
    (decision,) = schedule(bound("repeated twice", 5, columns, short), SMALL).decisions.values()
    assert (decision.plan.reason == "interleaved") is chosen


def test_what_few_columns_share_is_computed_before() -> None:
    """In one kernel with it, it would be computed again for each row."""
    text = "function (A, B, C) -> (O) { O = pow(abs(A), 1.5) + erf(B) + log(abs(C) + 1.0); }"
    shapes = {"A": (45, 580, 3), "B": (45, 580, 1), "C": (1, 580, 3)}
    types = {name: TensorType(DType.FLOAT32, shape) for name, shape in shapes.items()}
    program = to_stripe(tile_lang.bind(tile_lang.parse(Source(text, "text.tile")), types))
    reasons = [d.plan.reason for d in schedule(program, WIDER).decisions.values()]
    assert len(reasons) == 3
