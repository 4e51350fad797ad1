"""Prefix aggregations: recognised by what cells take in, computed in linear time, with the language's results."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from lowering_support import check
from program_samples import random_array
from test_passes import PIPELINE, target
from tile_ir.diagnostics import Source, TileError
from tile_ir.dtype import DType
from tile_ir.program.nodes import Program, TensorType
from tile_ir.stripe import interpret
from tile_ir.stripe.nodes import Block
from tile_ir.stripe.nodes import Program as Stripe
from tile_lang import bind, parse
from tile_lang.evaluate import evaluate
from tile_opt.blocks.tree import main_of
from tile_opt.kernel.view import open_kernel
from tile_opt.passes.kernels.scan import Scan
from tile_opt.pipeline import optimize
from tile_opt.translate import to_stripe

F = DType.FLOAT32
N, M = 12, 5
LINEAR = {
    "tutorial": "O[i : N] = +(I[i - j]), j < N;",
    "by_constraint": "O[i : N] = +(I[k]), i - k < N;",
    "reversed": "O[i : N] = +(I[i + j]), j < N;",
    "exclusive": "O[i : N] = +(I[i - j - 1]), j < N;",
    "exclusive_reversed": "O[i : N] = +(I[i + j + 2]), j < N;",
    "everything": "O[i : N] = +(I[j]);",
    "of_a_shift": "O[i - j : N] = +(I[i]), j < N;",
    "backwards_out": "O[N - 1 - i : N] = +(I[i - j]), j < N;",
    "mirrored_in": "O[i : N] = +(I[N - 1 - i + j]), j < N;",
    "strided_out": "O[2*i : N] = +(I[i - j]), j < N;",
    "longer_than_in": "O[i : 2*N] = +(I[i - j]), j < 2*N;",
    "two_for_each_cell": "O[i : N/2] = +(I[2*i - j]), j < N;",
    "three_ahead": "O[i : N] = +(I[3*i + j]), j < N;",
    "two_loads": "O[i : N] = +(I[i - j] * I[i - j]), j < N;",
    "two_steps_to_a_cell": "O[i : N] = +(I[i/2 - j]), j < N;",
}
"""Of a vector."""
SQUARE = {
    "columns": "O[i, k : N, M] = +(I[i - j, k]), j < N;",
    "rows": "O[k, i : N, M] = +(I[k, i - j]), j < M;",
    "rows_mirrored": "O[i, k : N, M] = +(I[i - j, M - 1 - k]), j < N;",
    "transposed": "O[i, k : M, N] = +(I[k, i - j]), j < M;",
    "diagonal": "O[i : M] = +(I[i - j, i - j]), j < M;",
    "of_row_sums": "O[k : N] = +(I[i, j]), k - i < N;",
    "summed_area": "O[i, k : N, M] = +(I[i - j, k - l]), j < N, l < M;",
    "summed_area_exclusive": "O[i, k : M, N] = +(I[k - l, i - j - 1]), j < M, l < N;",
    "broadcast_of_totals": "O[k, l : N, 3] = +(I[k, j]), l - j < M;",
}
"""Of a matrix."""
NOT = {
    "window": "O[i : N] = +(I[i - j]), j < 3;",
    "long_window": "O[i : N] = +(I[i - j + 3]), j < N;",
    "weights_by_cell": "O[i : N] = +(I[i - j] * I[i]), j < N;",
    "every_second": "O[i : N] = +(I[i - 2*j]), j < N;",
}


DTYPES = (F, DType.INT8, DType.UINT8, DType.FLOAT16, DType.BFLOAT16, DType.INT32, DType.BOOL)


def bound(statement: str, shape: tuple[int, ...], dtype: DType = F, agg: str = "+") -> Program:
    text = f"function (I[{', '.join('NM'[: len(shape)])}]) -> (O) {{ {statement.replace('= +(', f'= {agg}(')} }}"
    return bind(parse(Source(text, "scan.tile")), {"I": TensorType(dtype, shape)}, name="scan")


def scanned(program: Program, block: int = 1 << 20) -> Stripe:
    """After the pass; scans are cut into blocks of about `block` elements."""
    return optimize(to_stripe(program), target(), passes=[Scan(block=block, hand_off=1)], verify=True)


def points(stripe: Stripe) -> int:
    """Iterations of all stages, before constraints."""
    views = [open_kernel(k) for k in main_of(stripe).body if isinstance(k, Block)]
    return sum(prod(i.range for i in s.loops) for v in views if v is not None for s in v.stages)


def agree(program: Program, stripe: Stripe, inputs: dict[str, npt.NDArray[Any]]) -> None:
    """To the bit: the inputs are small integers."""
    with np.errstate(all="ignore"):
        expected, found = evaluate(program, inputs), interpret.run(stripe, inputs)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


@pytest.mark.parametrize(("name", "shape"), [*((n, (N,)) for n in LINEAR), *((n, (N, M)) for n in SQUARE)])
def test_every_form_takes_linear_time(name: str, shape: tuple[int, ...]) -> None:
    """Twice the elements take at most twice the iterations, and a few."""
    statement = (LINEAR | SQUARE)[name]
    small = points(scanned(bound(statement, shape)))
    large = points(scanned(bound(statement, (4 * shape[0], *shape[1:]))))
    wide = points(scanned(bound(statement, (*shape[:-1], 4 * shape[-1]))))
    assert max(large, wide) <= 4 * small + 16


@pytest.mark.diagonal(4)
@pytest.mark.parametrize("block", [1 << 20, 2, 3], ids=["whole", "in_twos", "in_threes"])
@pytest.mark.parametrize("agg", "+*><")
@pytest.mark.parametrize(("name", "shape"), [*((n, (N,)) for n in LINEAR), *((n, (N, M)) for n in SQUARE)])
def test_every_form_keeps_the_rules(name: str, shape: tuple[int, ...], agg: str, block: int) -> None:
    """First cells, cells that no index reaches, sums that wrap, NaN through max and min."""
    rng = np.random.default_rng(len(name))
    for dtype in (F, DType.INT8, DType.FLOAT16, DType.BOOL):
        program = bound((LINEAR | SQUARE)[name], shape, dtype, agg)
        values = random_array(TensorType(dtype, shape), rng)
        if dtype is F and agg in "><":
            values[..., 3] = np.nan
        agree(program, scanned(program, block), {"I": values})


@pytest.mark.parametrize("name", NOT)
def test_what_is_no_prefix_stays(name: str) -> None:
    stripe = to_stripe(bound(NOT[name], (N,)))
    assert optimize(stripe, target(), passes=[Scan()]) is stripe


@pytest.mark.parametrize("block", [1 << 20, 2], ids=["whole", "in_twos"])
@pytest.mark.parametrize("agg", "+>")
@pytest.mark.parametrize("rows", ["O[r, s, i : 4, 5, 7] = +(I[r, s, k]), i - k < 7, r + s < 5;",
                                  "O[r + s, i : 8, 7] = +(I[r, s, k]), i - k < 7;",
                                  "O[r + s, i : 5, 7] = +(I[r, s, k]), i - k < 7;"],
                         ids=["limited", "shared", "cut"])  # fmt: skip
def test_rows_of_two_loops(rows: str, agg: str, block: int) -> None:
    """Of which constraints leave some out, or several of which have the same cells."""
    text = f"function (I) -> (O) {{ {rows.replace('= +(', f'= {agg}(')} }}"
    program = bind(parse(Source(text, "scan.tile")), {"I": TensorType(F, (4, 5, 7))}, name="scan")
    agree(program, scanned(program, block), {"I": random_array(TensorType(F, (4, 5, 7)), np.random.default_rng(5))})


@given(st.data())
@settings(max_examples=150)
def test_random_accesses_keep_the_meaning(data: st.DataObject) -> None:
    """Whatever the pass takes for a scan is one."""
    a, b, c = (data.draw(st.integers(-3, 3)) for _ in range(3))
    size, cells, limit = (data.draw(st.integers(1, 9)) for _ in range(3))
    link = data.draw(st.sampled_from(["j", "i - j", "j - i", "2*i - j", "i + j", "i + j - 3", "j + 2"]))
    agg = data.draw(st.sampled_from("+*><"))
    dtype = data.draw(st.sampled_from(DTYPES))
    statement = f"O[i : {cells}] = +(I[{a}*i + {b}*j + {c}]), {link} < {limit};"
    try:
        program = bound(statement, (size,), dtype, agg)
        stripe = scanned(program, data.draw(st.sampled_from([2, 1 << 20])))
    except TileError:
        assume(False)
        return
    values = random_array(TensorType(dtype, (size,)), np.random.default_rng(size))
    agree(program, stripe, {"I": values})


@pytest.mark.parametrize("block", [1 << 20, 2], ids=["whole", "in_twos"])
@pytest.mark.parametrize("name", ["rows", "columns", "summed_area_exclusive"])
@pytest.mark.parametrize(
    "passes", [PIPELINE, ("inline", "fuse", "merge", "accumulate", "gpu_tile")], ids=["cpu", "gpu"]
)
def test_scans_are_scheduled_and_lowered(name: str, passes: tuple[str, ...], block: int) -> None:
    """With elementwise operations before and after."""
    text = f"function (A[N, M]) -> (R) {{ I = exp(A); {SQUARE[name]} R = O * 2; }}"
    program = bind(parse(Source(text, "scan.tile")), {"A": TensorType(F, (N, M))}, name="scan")
    stripe = scanned(program, block)
    inputs = {"A": np.random.default_rng(1).standard_normal((N, M), np.float32)}
    check(optimize(stripe, target(*passes), verify=True), inputs, target(*passes), reference=to_stripe(program))


def test_half_precision_carries_single() -> None:
    """A sum of many small numbers does not stop at the accuracy of its cells."""
    program = bound(LINEAR["tutorial"], (4000,), DType.FLOAT16)
    values = np.full(4000, 0.25, np.float16)
    found = interpret.run(scanned(program), {"I": values})["O"]
    np.testing.assert_array_equal(found, np.cumsum(values, dtype=np.float32).astype(np.float16))


def test_a_long_scan_is_cut_into_blocks_of_one_size() -> None:
    """How it is cut depends on sizes only, so that results have the same bits on any number of threads."""
    stripe = optimize(to_stripe(bound(LINEAR["tutorial"], (10**6,))), target(), passes=[Scan()])
    names = [k.name.removeprefix("kernel_0_") for k in main_of(stripe).body if isinstance(k, Block)]
    assert names == ["totals", "ends", "blocks"]
    assert points(stripe) < 2.1 * 10**6
