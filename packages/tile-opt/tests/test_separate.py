"""Windows of several dimensions, one at a time: the same results, fewer elements met, and nothing else is touched."""

from __future__ import annotations

import numpy as np
import pytest
from program_samples import random_inputs
from test_to_stripe_programs import assert_same
from tile_ir.dtype import DType
from tile_ir.frozen import replace
from tile_ir.program.nodes import Contraction, Program, TensorType
from tile_lang import bind, parse
from tile_lang.evaluate import evaluate
from tile_opt.program import SeparateWindows, rewrite
from tile_opt.translate import to_stripe

EAGER = SeparateWindows(gain=0.5, ragged=0.5, worth=0)
POOL = "function (I[N, C, H, W]) -> (O) {{ O[n, c, y, x : N, C, {y}, {x}] = {agg}(I[n, c, {form}]), i < 5, j < 4; }}"
BLOCK = "function (I[A, B, C]) -> (O) { O[x, y, z : 3, 4, 5] = +(I[x + i, 2*y + j - 1, z + k]), i < 3, j < 2, k < 4; }"


def bound(text: str, *shape: int, dtype: DType = DType.FLOAT32) -> Program:
    return bind(parse(text), {"I": TensorType(dtype, shape)})


def windows(program: Program) -> list[tuple[tuple[int, ...], int]]:
    """Shape and number of indexes that are aggregated over, of each contraction."""
    made = [op for op in program.ops if isinstance(op, Contraction)]
    return [(op.type.shape, len(op.indexes) - len(op.output)) for op in made]


def same(program: Program, after: Program) -> None:
    inputs = random_inputs(program)
    for name, array in evaluate(program, inputs).items():
        assert_same(evaluate(after, inputs)[name], array)
    assert to_stripe(after)


@pytest.mark.parametrize(
    "form", ["y + i - 2, x + j - 1", "2*y + i - 3, 3*x + j", "y + 2*i - 9, x - j", "y + i, 4*x + 2*j - 2"]
)
@pytest.mark.parametrize("agg", ["+", ">", "<", "*"])
def test_windows_of_rows_and_columns_are_aggregated_one_after_the_other(agg: str, form: str) -> None:
    """Also where windows lie outside in part, or whole: cells that nothing writes hold 0."""
    program = bound(POOL.format(agg=agg, form=form, y=6, x=7), 2, 3, 9, 11)
    after = EAGER.apply(program)
    assert windows(after) == [((2, 3, 6, 11), 1), ((2, 3, 6, 7), 1)]
    same(program, after)


def test_each_dimension_of_a_block_is_taken_by_itself() -> None:
    program = bound(BLOCK, 6, 9, 8, dtype=DType.INT32)
    after = EAGER.apply(program)
    assert [own for _, own in windows(after)] == [1, 1, 1]
    same(program, after)


def test_windows_along_memory_go_first_where_that_is_wanted() -> None:
    program = bound(POOL.format(agg=">", form="y + i - 2, x + j - 1", y=6, x=7), 2, 3, 9, 11)
    after = replace(EAGER, near=True).apply(program)
    assert windows(after) == [((2, 3, 9, 7), 1), ((2, 3, 6, 7), 1)]
    same(program, after)


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16])
def test_sums_of_halves_are_rounded_once(dtype: DType) -> None:
    """Their parts are float32."""
    program = bound(BLOCK, 6, 9, 8, dtype=dtype)
    after = EAGER.apply(program)
    parts = [op.type.dtype for op in after.ops if isinstance(op, Contraction)]
    assert parts == [DType.FLOAT32, DType.FLOAT32, dtype]
    same(program, after)


def test_narrow_results_in_ragged_rows_have_a_gain_of_their_own() -> None:
    text = "function (I[A, B]) -> (O) {{ O[y, x : 60, {}] = >(I[y + i, x + j]), i < 5, j < 5; }}"
    for width, parts in ((48, 2), (44, 1)):
        after = SeparateWindows(gain=2.0, ragged=9.0, worth=0).apply(
            bound(text.format(width), 64, 64, dtype=DType.INT8)
        )
        assert len(after.ops) == parts


def test_not_a_number_stays_in_its_windows() -> None:
    program = bound(POOL.format(agg=">", form="y + i - 2, x + j - 1", y=9, x=11), 1, 1, 9, 11)
    data = np.ones((1, 1, 9, 11), np.float32)
    data[0, 0, 4, 5] = np.nan
    for each in (program, EAGER.apply(program)):
        (found,) = evaluate(each, {"I": data}).values()
        assert np.isnan(found).sum() == 5 * 4


@pytest.mark.parametrize("text", [
    "function (I[A, B, C]) -> (O) { O[x, y, z : A, 4, 5] = +(I[x, y + i, z + j]), i < 3, j < 3, i + j < 4; }",
    "function (I[A, B, C]) -> (O) { O[x, y : A, 4] = +(I[x, y + i, y + j]), i < 3, j < 3; }",
    "function (I[A, B, C]) -> (O) { O[x, y, z : A, 4, 5] = +(I[x, y + i, z + i]), i < 3; }",
    "function (I[A, B, C]) -> (O) { O[x, y, z : A, 4, 5] = +(I[x, y + i, z + j] * I[x, y + i, z + j]), i < 3, j < 3; }",
    "function (I[A, B, C]) -> (O) { O[x : A] = +(I[x, i, j]); }",
    "function (I[A, B, C]) -> (O) { O[] = +(I[i, j, k]); }",
    "function (I[A, B, C]) -> (O) { O[x, y, z : A, 4, 5] = =(I[x, y, z]); }",
])  # fmt: skip
def test_what_is_not_a_product_of_windows_stays(text: str) -> None:
    program = bound(text, 2, 8, 8)
    assert EAGER.apply(program) is program


@pytest.mark.parametrize(("taps", "step", "parts"), [(2, 1, 1), (3, 1, 1), (3, 2, 1), (5, 1, 2), (5, 2, 2), (7, 3, 2)])
def test_windows_are_parted_where_that_is_worth_it(taps: int, step: int, parts: int) -> None:
    form = f"I[n, c, {step}*y + i, {step}*x + j]"
    size = (64 - taps) // step + 1
    text = f"function (I[N, C, H, W]) -> (O) {{ O[n, c, y, x : N, C, {size}, {size}] = >({form}), i < {taps}, j < {taps}; }}"
    assert len(rewrite(bound(text, 1, 8, 64, 64), (SeparateWindows(),)).ops) == parts
    assert len(rewrite(bound(text, 1, 8, 64, 64), (SeparateWindows(worth=1 << 30),)).ops) == 1
