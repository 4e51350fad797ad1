"""The plan and the scheduled Stripe of a kernel of each class, as text, for a processor of fixed numbers.

``pytest --update-golden`` rewrites the expected files; look at the difference before you commit it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import tile_opt
from hal_llvm.cpu import family_target
from stack import bind
from tile_ir.dtype import DType
from tile_ir.program.nodes import TensorType
from tile_ir.stripe.printer import print_program
from tile_ir.target import Target
from tile_opt.compiled import Compiled
from tile_opt.plan.text import parse_plans, print_plans

GOLDEN = Path(__file__).parent / "golden_plans"


@dataclass(frozen=True, slots=True)
class Case:
    """A function and the shapes of its inputs."""

    text: str
    shapes: dict[str, tuple[int, ...]]
    dtype: DType = DType.FLOAT32


MATMUL = "function (A[M, L], B[L, N]) -> (C) { C[i, j : M, N] = +(A[i, k] * B[k, j]); }"
TRANSPOSED = "function (A[M, L], B[N, L]) -> (C) { C[i, j : M, N] = +(A[i, k] * B[j, k]); }"
SQUARE = {"A": (256, 256), "B": (256, 256)}
COLUMNS = "function (A[N, M]) -> (R) { R[j : M] = +(A[i, j]); }"
CASES = {
    "columns_few": Case(COLUMNS, {"A": (65536, 32)}),
    "columns_odd": Case(COLUMNS, {"A": (50000, 7)}),
    "matmul": Case(MATMUL, SQUARE),
    "matmul_large": Case(MATMUL, {"A": (2048, 2048), "B": (2048, 2048)}),
    "matmul_deep": Case(MATMUL, {"A": (512, 16384), "B": (16384, 512)}),
    "matmul_transposed": Case(TRANSPOSED, {"A": (512, 512), "B": (512, 512)}),
    "matmul_few_rows": Case(TRANSPOSED, {"A": (20, 1024), "B": (8210, 1024)}),
    "max_plus": Case("function (A[M, L], B[L, N]) -> (C) { C[i, j : M, N] = >(A[i, k] + B[k, j]); }", SQUARE),
    "integers": Case(MATMUL, SQUARE, DType.INT32),
    "matrix_vector": Case(
        "function (A[M, L], B[L]) -> (C) { C[i : M] = +(A[i, k] * B[k]); }", {"A": (512, 512), "B": (512,)}
    ),
    "vector_matrix": Case(
        "function (A[L], B[L, N]) -> (C) { C[j : N] = +(A[k] * B[k, j]); }", {"A": (2048,), "B": (2048, 2048)}
    ),
    "convolution": Case(
        "function (I[N, H, W, CI], K[KH, KW, CI, CO]) -> (O)"
        " { O[n, y, x, co : N, H, W, CO] = +(I[n, y + i - 1, x + j - 1, ci] * K[i, j, ci, co]); }",
        {"I": (4, 28, 28, 64), "K": (3, 3, 64, 64)},
    ),
    "convolution_channels_first": Case(
        "function (I[N, CI, H, W], K[CO, CI, KH, KW]) -> (O)"
        " { O[n, co, y, x : N, CO, H, W] = +(I[n, ci, y + i - 1, x + j - 1] * K[co, ci, i, j]); }",
        {"I": (4, 64, 14, 14), "K": (64, 64, 3, 3)},
    ),
    "convolution_of_groups": Case(
        "function (I[N, H, W, CI], K[C, CO]) -> (O)"
        " { O[n, y, x, 32*g + o : N, H, W, CO] = +(I[n, y, x, 32*g + c] * K[c, 32*g + o]), g < 4, c < 32, o < 32; }",
        {"I": (4, 14, 14, 128), "K": (32, 128)},
    ),
    "convolution_of_each_channel": Case(
        "function (I[N, C, H, W], K[C, KH, KW]) -> (O)"
        " { O[n, c, y, x : N, C, 28, 28] = +(I[n, c, 2*y + i - 2, 2*x + j - 2] * K[c, i, j]); }",
        {"I": (2, 64, 56, 56), "K": (64, 5, 5)},
    ),
    "row_sums": Case("function (A[M, N]) -> (S) { S[i : M] = +(A[i, j]); }", {"A": (512, 1000)}),
    "column_sums": Case("function (A[M, N]) -> (S) { S[j : N] = +(A[i, j]); }", {"A": (4096, 2048)}),
    "softmax": Case(
        "function (A[M, N]) -> (R) { X[i, 0 : M, 1] = >(A[i, j]); E = exp(A - X);"
        " S[i, 0 : M, 1] = +(E[i, j]); R = E / S; }",
        {"A": (512, 1000)},
    ),
    "chain": Case("function (A, B) -> (R) { R = (A + B) * A - B * 0.5 + 1.0; }", {"A": (512, 512), "B": (512, 512)}),
    "transpose": Case("function (A[M, N]) -> (R) { R[j, i : N, M] = =(A[i, j]); }", {"A": (1024, 1000)}),
    "stencil": Case(
        "function (A[M, N]) -> (R) { U[i, j : M, N] = =(A[i - 1, j]); D[i, j : M, N] = =(A[i + 1, j]); R = U + D - A; }",
        {"A": (512, 512)},
    ),
}


@cache
def processor() -> Target:
    """A processor with AVX-512 and four cores, whatever this machine is."""
    return family_target("avx512").resolved(cores=4)


def compiled(case: Case, plans: str = "") -> Compiled:
    program = bind(case.text, {n: TensorType(case.dtype, shape) for n, shape in case.shapes.items()})
    return tile_opt.compile(program, processor(), plans=parse_plans(plans) if plans else None, verify=True)


def text(made: Compiled) -> str:
    return print_plans({name: d.plan for name, d in made.decisions.items()})


@pytest.mark.parametrize("name", CASES)
def test_plans_and_schedules_are_those_that_were_looked_at(name: str, request: pytest.FixtureRequest) -> None:
    made = compiled(CASES[name])
    found = f"{text(made)}\n{print_program(made.stripe)}"
    path = GOLDEN / f"{name}.txt"
    if request.config.getoption("--update-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(found, encoding="utf-8")
    assert found == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", CASES)
def test_a_printed_plan_is_taken_back(name: str) -> None:
    made = compiled(CASES[name])
    assert text(compiled(CASES[name], text(made))) == text(made)
