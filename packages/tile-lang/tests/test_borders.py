"""Border modes of subscripts, against NumPy's pad."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import tile_lang
from bind_support import program, run
from hypothesis import given, settings
from hypothesis import strategies as st
from tile_ir.program.nodes import Constraint, Gather, Poly
from tile_lang.borders import MODES, bounds, pieces
from tile_lang.build import BORDERS
from tile_lang.domain import tuples

PAD = {"clamp": "edge", "reflect": "reflect", "symmetric": "symmetric", "wrap": "wrap", "zero": "constant"}


def test_the_grammar_knows_the_modes() -> None:
    assert set(BORDERS) == set(MODES) == set(PAD)


@pytest.mark.parametrize(
    ("mode", "size", "taps"), [(m, n, k) for m in PAD for n, k in ((5, 3), (4, 7), (1, 3), (2, 30))]
)
def test_shifted_sums_are_those_of_the_padded_array(mode: str, size: int, taps: int) -> None:
    a = np.arange(3 * size).reshape(size, 3) ** 2
    before = taps // 2
    padded = np.pad(a, ((before, taps - 1 - before), (0, 0)), PAD[mode])
    source = f"function (A[N, M]) -> (B) {{ B[i, j : N, M] = +(A[{mode}(i + k - {before}), j]), k < {taps}; }}"
    np.testing.assert_array_equal(run(source, A=a), sum(padded[k : k + size] for k in range(taps)))


def test_two_axes_strides_flips_and_data() -> None:
    a, rows = np.arange(48).reshape(6, 8) % 7, np.array([4, 0], np.int32)
    largest = "function (A[N, M]) -> (B) { B[i, j : N, 4] = >(A[wrap(1 - i), reflect(3*j - b - 1)]), b < 3; }"
    wide = np.pad(np.pad(a, ((0, 0), (3, 3)), "reflect"), ((4, 0), (0, 0)), "wrap")
    cells = [[max(wide[4 + 1 - i, 3 + 3 * j - b - 1] for b in range(3)) for j in range(4)] for i in range(6)]
    np.testing.assert_array_equal(run(largest, A=a), cells)
    beside = "function (A[N, M], I[K]) -> (B) { B[k, j : K, M] = =(A[I[clamp(k - 1)], clamp(j + 1)]); }"
    found = run(beside, A=a, I=rows)
    np.testing.assert_array_equal(found, a[rows[[0, 0]]][:, [1, 2, 3, 4, 5, 6, 7, 7]])


def test_of_a_dimension_with_one_place_nothing_else_is_copied() -> None:
    source = "function (A[C, N]) -> (B) { B[i : N] = =(A[2, wrap(i - 1)]); }"
    assert {op.type.shape for op in program(source, "A=float32[9, 5]").ops} == {(1, 5), (1, 6), (5,)}
    np.testing.assert_array_equal(run(source, A=np.arange(15).reshape(3, 5)), [14, 10, 11, 12, 13])
    assert run(source, A=np.ones((2, 5), np.int64)).tolist() == [0] * 5  # there is no such place


def test_a_row_of_many_pieces_is_a_table() -> None:
    source = "function (A[N]) -> (B) { B[i : 100] = =(A[wrap(i)]); }"
    assert any(isinstance(op, Gather) for op in program(source, "A=float32[3]").ops)
    np.testing.assert_array_equal(run(source, A=np.arange(3)), np.arange(100) % 3)


def test_zero_counts_where_a_plain_subscript_leaves_out() -> None:
    a = np.array([-3, -2, -1])
    assert run("function (A[N]) -> (B) { B[i : N] = >(A[zero(i + k)]), k < 2; }", A=a).tolist() == [-2, -1, 0]
    assert run("function (A[N]) -> (B) { B[i : N] = >(A[i + k]), k < 2; }", A=a).tolist() == [-2, -1, -1]


@settings(max_examples=40)
@given(st.lists(st.integers(0, 9), max_size=12), st.integers(0, 3))
def test_pieces_are_the_row(row: list[int], start: int) -> None:
    found = pieces(np.array(row, np.int64), start)
    assert [p.first + p.step * k for p in found for k in range(p.count)] == row
    assert [p.start + k for p in found for k in range(p.count)] == list(range(start, start + len(row)))
    assert all(p.step in (-1, 0, 1) for p in found)


FORMS = st.builds(lambda a, b, c: Poly.of({"x": a, "y": b}, c), *[st.integers(-2, 2)] * 3)


@settings(max_examples=60)
@given(st.lists(st.builds(Constraint, FORMS, st.integers(1, 5)), min_size=2, max_size=4))
def test_bounds_hold_for_every_tuple(constraints: list[Constraint]) -> None:
    found = bounds(constraints)
    if {"x", "y"} <= found.keys():
        for row, (k, name) in product(tuples(constraints, ("x", "y")), enumerate("xy")):
            assert found[name][0] <= row[k] <= found[name][1]


def test_borders_print_and_parse() -> None:
    text = "function (A[N, M]) -> (B) {\n    B[i, j : N, M] = +(A[clamp(i + k - 1), wrap(2 * j)]), k < 3;\n}\n"
    assert tile_lang.print_function(tile_lang.parse(text)) == text == tile_lang.format_source(text)
