"""Kernels that go over whole tensors side by side: which they are, and that they join in one pass."""

from __future__ import annotations

import pytest
import tile_lang
from test_passes import PIPELINE, agree, target
from tile_ir.dtype import DType
from tile_ir.program.nodes import TensorType
from tile_ir.stripe.nodes import Block, Program
from tile_opt.blocks.tree import kernels_of
from tile_opt.kernel.pointwise import pointwise_sizes
from tile_opt.kernel.regroup import drop_unit_loops
from tile_opt.kernel.view import KernelView, open_kernel
from tile_opt.passes.kernels.fuse import ONE_PASS
from tile_opt.pipeline import schedule
from tile_opt.translate import to_stripe

SHAPES = {"A": (4, 6), "R": (6,), "C": (4, 1), "S": (6, 6)}


def stripe(body: str, outputs: str = "B") -> Program:
    header = "function (A[N, M], R[M], C[N, K], S[M, M])"
    types = {name: TensorType(DType.FLOAT32, shape) for name, shape in SHAPES.items()}
    return to_stripe(tile_lang.bind(tile_lang.parse(f"{header} -> ({outputs}) {{ {body} }}"), types))


def last_kernel(program: Program) -> KernelView:
    kernel = kernels_of(program)[-1]
    view = open_kernel(kernel) if isinstance(kernel, Block) else None
    assert view is not None
    return drop_unit_loops(view)


@pytest.mark.parametrize("body", ["B = A + 1;", "B = A + R;", "B = A * C;", "B = tanh(R) * A;", "B = index(A, 1);"])
def test_elementwise_kernels_go_over_their_result(body: str) -> None:
    assert pointwise_sizes(last_kernel(stripe(body))) == (4, 6)


@pytest.mark.parametrize(
    "body",
    [
        "B[i : N] = +(A[i, j]);",
        "B[j, i : M, N] = =(A[i, j]);",
        "B[i, j : N, M] = =(A[i, j + 1]);",
        "B[i : M] = =(S[i, i]);",
        "B = gather(A, index(R, 0) / 2);",
    ],
    ids=["reduction", "transpose", "shift", "diagonal", "gather"],
)
def test_kernels_that_do_more_do_not(body: str) -> None:
    assert pointwise_sizes(last_kernel(stripe(body))) is None


def test_what_is_read_twice_is_computed_in_one_pass() -> None:
    program = stripe("T = tanh(A); U = T * T + R; V = tanh(U - T); B = V * U * C + T;", "B, U")
    choices = schedule(program, target(*PIPELINE)).choices
    assert {c.reason for c in choices if c.chosen.value == "fused"} == {ONE_PASS}
    assert len(kernels_of(agree(program, PIPELINE))) == 1
