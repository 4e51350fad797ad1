"""Results whose subscripts several indexes move, such as gradients of strided convolutions: each cell is one item's."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from program_samples import random_inputs
from tensor_support import TENSOR, Sample, view_of
from test_to_stripe_programs import check
from tile_ir.dtype import DType
from tile_ir.program.nodes import Program, TensorType
from tile_ir.stripe.interpret import run
from tile_ir.stripe.nodes import Block
from tile_lang import bind, parse
from tile_lang.evaluate import evaluate
from tile_opt.kernel.view import open_kernel
from tile_opt.passes.base import kernels_of
from tile_opt.passes.kernels.tensor_tile import TensorTile
from tile_opt.translate import to_stripe

BF16, F32 = DType.BFLOAT16, DType.FLOAT32
SUM = "function (A[I, K], B[J, K]) -> (O) {{ O[{form} : {size}] = {agg}(A[i, k] * B[j, k]){rest}; }}"
BOTH = "function (A[N, X, O], B[U, I, O]) -> (R) {{ R[n, {form}, i : N, {size}, I] = +(A[n, x, o] * B[u, i, o]); }}"


def bound(text: str, dtype: DType, **shapes: tuple[int, ...]) -> Program:
    return bind(parse(text), {name: TensorType(dtype, shape) for name, shape in shapes.items()})


@pytest.mark.parametrize("dtype", [BF16, F32])
@pytest.mark.parametrize("agg", ["+", ">"])
@pytest.mark.parametrize(
    ("form", "size", "rest"),
    [
        ("2*i + j - 1", 15, ""),
        ("2*i + j - 1", 11, ""),
        ("3*i + 1", 24, ""),
        ("5*i + j", 40, ""),
        ("9 - i", 10, ""),
        ("2*i + j", 19, ", i + j < 5"),
        ("i + j", 10, " default D"),
    ],
    ids=["taps", "short", "holes", "blocks", "backwards", "tied", "default"],
)
def test_cells_are_right_wherever_tuples_fall(form: str, size: int, rest: str, agg: str, dtype: DType) -> None:
    text = SUM.format(form=form, size=size, agg=agg, rest=rest)
    shapes: dict[str, tuple[int, ...]] = {"A": (8, 3), "B": (3, 3)}
    if "D" in rest:
        text, shapes = text.replace("B[J, K])", "B[J, K], D[L])"), shapes | {"D": (size,)}
    check(bound(text, dtype, **shapes))


@pytest.mark.parametrize("dtype", [BF16, F32])
@pytest.mark.parametrize(("form", "size"), [("2*x + u - 1", 32), ("2*x + u - 1", 33), ("3*x + 2*u", 60)])
def test_no_item_keeps_a_whole_dimension(form: str, size: int, dtype: DType) -> None:
    """The partial results have a dimension for each index, all of which the kernel's items share."""
    program = bound(BOTH.format(form=form, size=size), dtype, A=(16, 16, 64), B=(3, 8, 64))
    views = [open_kernel(k) for k in kernels_of(to_stripe(program)) if isinstance(k, Block)]
    view = next(v for v in views if v is not None and v.allocs)
    (accumulator,) = view.allocs
    assert accumulator.type.dtype is F32 and prod(accumulator.type.sizes) <= 2 * 16 * size * 8
    cells = {s.name: next(u.forms for u in s.uses if u.buffer == accumulator.into) for s in view.stages[:3]}
    assert all(f.is_const or len(f.terms) == 1 for forms in cells.values() for f in forms)


@pytest.mark.parametrize("form", ["i + 1", "9 - i"])
def test_shifted_results_are_one_kernel_with_their_zeros(form: str) -> None:
    """Stencils written as shifts are joined cell by cell."""
    program = bound(f"function (A[I]) -> (O) {{ O[{form} : 10] = +(A[i]); }}", F32, A=(8,))
    assert len(list(kernels_of(to_stripe(program)))) == 1


@pytest.mark.parametrize(
    ("form", "size", "taps", "zeros"),
    [("2*x", 32, 1, slice(1, None, 2)), ("3*x + u - 1", 48, 3, slice(47, None))],
    ids=["between", "behind the last"],
)
def test_zeros_where_nothing_falls_are_a_kernel_of_their_own(form: str, size: int, taps: int, zeros: slice) -> None:
    program = bound(BOTH.format(form=form, size=size), BF16, A=(2, 16, 8), B=(taps, 4, 8))
    stripe = to_stripe(program)
    assert len(list(kernels_of(stripe))) == 2
    inputs = random_inputs(program)
    (name,) = evaluate(program, inputs)
    found = run(stripe, inputs)[name]
    assert not found[:, zeros].any() and np.count_nonzero(found) > 0.9 * (found.size - found[:, zeros].size)


@pytest.mark.parametrize("dtype", [BF16, F32])
def test_matrix_instructions_compute_them(dtype: DType) -> None:
    program = bound(BOTH.format(form="2*x + u - 1", size=64), dtype, A=(16, 32, 64), B=(3, 64, 64))
    sample = Sample(program, lambda x: (x["A"], x["B"]))
    plan = next(TensorTile().candidates(view_of(sample, TENSOR), TENSOR))
    assert plan.instruction is not None
