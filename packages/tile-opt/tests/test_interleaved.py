"""Interleaved results: lanes along the loop around a short one, whatever the ends of the loops."""

from __future__ import annotations

import pytest
import tile_lang
from explain_support import NODES
from hypothesis import given, settings
from hypothesis import strategies as st
from test_widen import agree
from tile_ir.diagnostics import Source
from tile_ir.dtype import DType
from tile_ir.program.nodes import TensorType
from tile_ir.stripe.nodes import Program
from tile_ir.target import HardwareSettings, PassConfig, Target
from tile_opt.pipeline import schedule
from tile_opt.translate import to_stripe

PASSES = tuple(map(PassConfig, ("inline", "fuse", "merge", "stream", "schedule_kernels")))
SMALL, WIDER = (
    Target("small", HardwareSettings(registers=32, vector_bytes=n, cores=2), nodes=NODES, passes=PASSES)
    for n in (16, 32)
)
TEXTS = {
    "repeated": "function (A[R, N]) -> (O) {{ O[r, n, i : R, N, {0}] = =(A[r, n]); }}",
    "repeated twice": "function (A[R, N]) -> (O) {{ O[r, j, n, i : R, 2, N, {0}] = =(A[r, n]); }}",
    "columns": "function (A[R, N, M], B[M]) -> (O) {{ O = A * B; }}",
    "scaled": "function (A[R, N], B[M]) -> (O) {{ P[r, n, i : R, N, {0}] = =(A[r, n]); O = 2 * P; }}",
}


def bound(text: str, rows: int, columns: int, short: int) -> Program:
    shape = (rows, columns, short) if text == "columns" else (rows, columns)
    types = {"A": TensorType(DType.FLOAT32, shape), "B": TensorType(DType.FLOAT32, (short,))}
    syntax = tile_lang.parse(Source(TEXTS[text].format(short), "text.tile"))
    return to_stripe(tile_lang.bind(syntax, {p.name.id: types[p.name.id] for p in syntax.inputs}))


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


@pytest.mark.parametrize(("short", "chosen"), [(2, True), (3, True), (4, False)])
def test_few_columns_are_read_with_gaps(short: int, chosen: bool) -> None:
    (decision,) = schedule(bound("columns", 5, 33, short), WIDER).decisions.values()
    assert (decision.plan.reason == "interleaved") is chosen


@pytest.mark.parametrize(("columns", "short", "chosen"), [(33, 2, True), (33, 3, True), (3, 2, False), (33, 16, False)])
def test_lanes_go_along_the_longer_loop(columns: int, short: int, chosen: bool) -> None:
    (decision,) = schedule(bound("repeated twice", 5, columns, short), SMALL).decisions.values()
    assert (decision.plan.reason == "interleaved") is chosen


def test_what_few_columns_share_is_computed_before() -> None:
    """In one kernel with it, lanes would go along three columns; by itself what reads it has full vectors."""
    text = "function (A, B, C) -> (O) { O = pow(abs(A), 1.5) + erf(B) + log(abs(C) + 1.0); }"
    shapes = {"A": (45, 580, 3), "B": (45, 580, 1), "C": (1, 580, 3)}
    types = {name: TensorType(DType.FLOAT32, shape) for name, shape in shapes.items()}
    program = to_stripe(tile_lang.bind(tile_lang.parse(Source(text, "text.tile")), types))
    reasons = [d.plan.reason for d in schedule(program, WIDER).decisions.values()]
    assert len(reasons) == 3 and reasons.count("interleaved") == 1
