"""Operations on narrow vectors side by side become operations on whole ones, and compute what they computed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tile_ir.emit.walker import walk_statements
from tile_ir.semtree.interpret import launch
from tile_ir.semtree.nodes import Function, Store
from tile_ir.semtree.parser import parse_function
from tile_ir.semtree.printer import print_function
from tile_ir.semtree.verify import OPTIONAL_NODES, verify
from tile_opt.semtree import join_stores, simplify

REGISTER = 32
HEAD = (
    "{0} global float32* A [elements=512], read global float32* B [elements=16], write global float32* Y [elements=512]"
)
ROW = """let a{row} = A[{start}i64, align=4]:float32x{lanes};
let c{row} = B[{row}i64, align=4]:float32;
let p{row} = a{row} * b;
let s{row} = p{row} + splat(c{row}, {lanes});
Y[{place}i64, align=4] = max(s{row}, {least}f32x{lanes});"""


def rows(count: int, lanes: int, apart: int, access: str = "read", least: str = "0.0") -> Function:
    """Rows that lie `apart` in A, each times a row of B, and an element of B."""
    texts = [
        ROW.format(
            row=n, start=n * apart, place=n * lanes, lanes=lanes, least="-0.0" if least == "mixed" and n % 2 else "0.0"
        )
        for n in range(count)
    ]
    body = "\n".join([f"let b = B[0i64, align=4]:float32x{lanes};", *texts])
    return parse_function(f"function f({HEAD.format(access)}) group(1, 1, 1) {{\n{body}\n}}")


def written(made: Function) -> bytes:
    verify(made, OPTIONAL_NODES)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(n).astype(np.float32) for n in (512, 16, 512)]
    launch(made, (1, 1, 1), arrays)
    return arrays[2].tobytes()


def widths(made: Function, aligned: bool = False) -> list[int]:
    joined = simplify(join_stores(made, REGISTER, aligned))
    assert written(joined) == written(made)
    return [s.value.type.lanes for s in walk_statements(joined.body) if isinstance(s, Store)]


@pytest.mark.parametrize(("count", "lanes", "stored"), [(8, 5, [8] * 5), (8, 3, [8] * 3), (4, 6, [8] * 3), (2, 4, [8])])
def test_rows_that_follow_each_other_are_whole_vectors(count: int, lanes: int, stored: list[int]) -> None:
    assert widths(rows(count, lanes, lanes)) == stored


def test_the_last_vector_reaches_back_over_what_the_one_before_it_wrote() -> None:
    assert widths(rows(5, 5, 5)) == [8, 8, 8, 8]


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 12), st.integers(2, 7), st.integers(0, 6), st.sampled_from(["0.0", "mixed"]))
def test_any_rows(count: int, lanes: int, more: int, least: str) -> None:
    widths(rows(count, lanes, lanes + more, least=least))


@pytest.mark.parametrize(
    ("count", "lanes", "align", "stored"),
    [
        pytest.param(4, 6, 32, [8] * 3, id="multiples of whole vectors"),
        pytest.param(4, 6, 4, [6] * 4, id="anywhere"),
        pytest.param(5, 5, 32, [5] * 5, id="a last vector that reaches back"),
    ],
)
def test_vectors_that_have_to_be_aligned_are(count: int, lanes: int, align: int, stored: list[int]) -> None:
    """Element by element they would take longer than the rows."""
    made = parse_function(print_function(rows(count, lanes, lanes)).replace("align=4] = max", f"align={align}] = max"))
    assert widths(made, aligned=True) == stored


def test_rows_far_apart_are_loaded_one_by_one() -> None:
    assert widths(rows(8, 5, 40)) == [5] * 8


def test_what_may_be_written_meanwhile_is_not_loaded_again() -> None:
    assert widths(rows(8, 5, 5, access="readwrite")) == [5] * 8
