"""Tile functions from text: tutorial forms and the conformance cases of the language, translated and run."""

from __future__ import annotations

import numpy as np
import pytest
from program_samples import random_inputs
from test_to_stripe_programs import assert_same, check
from tile_ir.diagnostics import TileTypeError
from tile_ir.dtype import DType
from tile_ir.program.nodes import Program, TensorType
from tile_ir.stripe.interpret import run
from tile_lang import bind, parse
from tile_opt.program import DropDead, ShareCommon, SplitReduction, rewrite
from tile_opt.translate import to_stripe

Shapes = dict[str, tuple[int, ...]]
F32 = DType.FLOAT32


def bound(text: str, shapes: Shapes, dtype: DType = F32) -> Program:
    return bind(parse(text), {name: TensorType(dtype, shape) for name, shape in shapes.items()})


FUNCTIONS: dict[str, tuple[str, Shapes]] = {
    "matmul": (
        "function (A[M, L], B[L, N]) -> (C) { C[i, j: M, N] = +(A[i, k] * B[k, j]); }",
        {"A": (4, 3), "B": (3, 5)},
    ),
    "global max": ("function (I) -> (O) { O[] = >(I[i, j, k]); }", {"I": (3, 4, 2)}),
    "global min": (
        "function (I) -> (O) { Neg = -I; O_Neg[] = >(Neg[i, j, k]); O = -O_Neg; }",
        {"I": (3, 4, 2)},
    ),
    "mean": (
        "function (I[X, Y]) -> (O) { Sum[y: Y] = +(I[x, y]); O = Sum / X; }",
        {"I": (5, 4)},
    ),
    "max pool": ("function (I[N]) -> (O) { O[i: N / 2] = >(I[2 * i + j]), j < 2; }", {"I": (10,)}),
    "ragged max pool": ("function (I[N]) -> (O) { O[i: (N + 1) / 2] = >(I[2 * i + j]), j < 2; }", {"I": (5,)}),
    "skipping": ("function (I[N, M]) -> (O) { O[2 * i: N] = +(I[2 * i, j]); }", {"I": (7, 3)}),
    "skipping max": ("function (I[N, M]) -> (O) { O[2 * i: N] = >(I[2 * i, j]); }", {"I": (7, 3)}),
    "cumulative sum": ("function (I[N]) -> (O) { O[i: N] = +(I[k]), i - k < N; }", {"I": (9,)}),
    "cumulative sum by offsets": ("function (I[N]) -> (O) { O[i: N] = +(I[i - j]), j < N; }", {"I": (9,)}),
    "convolution": (
        "function (D[N, X, Y, CI], K[I, J, CO, CI]) -> (R) {"
        " O[n, x, y, co : N, X, Y, CO] = +(D[n, x+i-1, y+j-1, ci] * K[i, j, co, ci]); R = (O > 0 ? O : 0); }",
        {"D": (2, 5, 6, 3), "K": (3, 3, 4, 3)},
    ),
    "dilated": (
        "function (I[N, L, CI], K[LK, CI, CO]) -> (O) { O[n, x, co: N, L - 2, CO] = +(I[n, x+2*k, ci]*K[k, ci, co]); }",
        {"I": (1, 7, 2), "K": (2, 2, 3)},
    ),
    "transposed": (
        "function (A[N, M], K[P, Q]) -> (O) { O[x, y: 5, 5] = +(A[(x-i+1)/2, (y-j+1)/2] * K[2-i, 2-j]); }",
        {"A": (3, 3), "K": (3, 3)},
    ),
    "fractional copy": ("function (I[N]) -> (O) { O[x: 6] = +(I[(x - 1) / 2]); }", {"I": (3,)}),
    "halves of a sum": ("function (I[N], K[M]) -> (O) { O[i: 2*N] = +(I[i/2+k/2] * K[k]); }", {"I": (6,), "K": (5,)}),
    "reshape": (
        "function (I[J, K]) -> (O) { F[3*j+k: 12] = >(I[j, k]); O[p, q: 6, 2] = >(F[2*p+q]); }",
        {"I": (4, 3)},
    ),
    "softmax": ("function (A[N, M]) -> (O) { O = builtin_softmax(A, N, M); }", {"A": (3, 5)}),
    "log softmax": ("function (A[N, M]) -> (O) { O = builtin_logsoftmax(A, N, M); }", {"A": (3, 5)}),
    "conditional body": (
        "function (A[N], B[N], C[N]) -> (O) { O[i: N] = +(A[i] == B[j] ? C[j]); }",
        {"A": (6,), "B": (6,), "C": (6,)},
    ),
    "one hot": (
        "function (A[N]) -> (O) { I = index(A, 0); O[i, j: N, N] = =(A[i] == I[j]); }",
        {"A": (4,)},
    ),
    "default": ("function (I[N], D[M]) -> (O) { O[2*i: 7] = +(I[i]) default D; }", {"I": (3,), "D": (7,)}),
    "counting": ("function (I[N]) -> (O) { One = 1.0; O[i: N] = +(One[]), i - k < N, k < N; }", {"I": (5,)}),
    "two outputs": (
        "function (A[N], B[N]) -> (S, P, A2) { S = A + B; P = A * B; A2 = A; }",
        {"A": (4,), "B": (4,)},
    ),
    "coupled fractions": (
        "function (I[N, M], J[L]) -> (O) { O[i/5+j: 30] = +(I[i/3+j, i/2] * J[i/18]); }",
        {"I": (30, 30), "J": (30,)},
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_agrees_with_the_evaluator(name: str) -> None:
    check(bound(*FUNCTIONS[name]))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_rewritten_function_agrees(name: str) -> None:
    program = bound(*FUNCTIONS[name])
    after = rewrite(program, (ShareCommon(), DropDead(), SplitReduction(chunk_points=4, max_chunks=3)))
    inputs = random_inputs(program)
    found, expected = run(to_stripe(after), inputs), run(to_stripe(program), inputs)
    for output, array in expected.items():
        assert_same(found[output], array)


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16, DType.INT8, DType.UINT16, DType.FLOAT64])
def test_matmul_of_other_dtypes(dtype: DType) -> None:
    pytest.importorskip("ml_dtypes")
    check(bound(*FUNCTIONS["matmul"], dtype))


def test_repeated_assignment_points_at_the_contraction() -> None:
    text = "function (A[N, K], B[K, M]) -> (O) {\n  O[i, j: N, M] = =(A[i, k] * B[k, j]);\n}"
    check(bound(text, {"A": (5, 1), "B": (1, 5)}))
    with pytest.raises(TileTypeError) as caught:
        to_stripe(bound(text, {"A": (1, 5), "B": (5, 1)}))
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.span is not None and (diagnostic.span.line, diagnostic.span.column) == (2, 3)


def test_comments_are_the_statements() -> None:
    stripe = to_stripe(bound(*FUNCTIONS["convolution"]))
    (main,) = stripe.entry.body
    comments = [kernel.comment for kernel in getattr(main, "body", ())]
    assert comments[0].startswith("O[n, x, y, co : N, X, Y, CO] = +(") and comments[-1].startswith("R = ")


def test_selected_values() -> None:
    data = np.float32([7, 8, 9])
    found = run(to_stripe(bound(*FUNCTIONS["fractional copy"])), {"I": data})["O"]
    np.testing.assert_array_equal(found, [0, 7, 0, 8, 0, 9])
