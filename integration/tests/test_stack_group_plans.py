"""Plans and scheduled Stripe of contractions for graphics processors, as text: what changed when one of them changes.

``pytest --update-golden`` rewrites the expected files; look at the difference before you commit it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import tile_lang
from hal_opencl.families import family_target
from tile_ir.diagnostics import Source
from tile_ir.dtype import DType
from tile_ir.matrix import MATRIX_INSTRUCTIONS
from tile_ir.program.nodes import TensorType
from tile_ir.stripe.nodes import Program
from tile_ir.stripe.printer import print_program
from tile_ir.target import Options, Target
from tile_opt.passes.kernels.group_tile import GroupTile
from tile_opt.passes.kernels.tensor_tile import TensorTile
from tile_opt.pipeline import optimize
from tile_opt.plan.plan import Plan
from tile_opt.plan.text import print_plans
from tile_opt.translate import to_stripe

GOLDEN = Path(__file__).parent / "golden_group_plans"
Golden = Callable[[str, str], None]
FRONT = ("inline", "fuse", "merge", "accumulate")
MATMUL = "function (A[M, L], B[L, N]) -> (C) { C[i, j : M, N] = +(A[i, k] * B[k, j]); }"
CONV = """function (D[N, X, Y, CI], K[I, J, CI, CO]) -> (R) {
    O[n, x, y, co : N, X, Y, CO] = +(D[n, x+i-1, y+j-1, ci] * K[i, j, ci, co]); R = (O > 0 ? O : 0);
}"""
FIRST = "function (D[N, CI, X, Y], K[CO, CI, I, J]) -> (R) { R[n, co, x, y : N, CO, X, Y] = +(D[n, ci, x+i-1, y+j-1] * K[co, ci, i, j]); }"
DEPTHWISE = "function (D[N, X, Y, C], K[I, J, C]) -> (R) { R[n, x, y, c : N, X, Y, C] = +(D[n, x+i-1, y+j-1, c] * K[i, j, c]); }"
MAX_PLUS = MATMUL.replace("+(A", ">(A").replace(" * ", " + ")
CLASSES: dict[str, tuple[str, dict[str, tuple[int, ...]], DType]] = {
    "matmul": (MATMUL, {"A": (4096, 4096), "B": (4096, 4096)}, DType.FLOAT32),
    "odd matmul": (MATMUL, {"A": (1023, 1021), "B": (1021, 1025)}, DType.FLOAT32),
    "skinny matmul": (MATMUL, {"A": (64, 4096), "B": (4096, 4096)}, DType.FLOAT32),
    "half matmul": (MATMUL, {"A": (2048, 2048), "B": (2048, 2048)}, DType.FLOAT16),
    "max-plus": (MAX_PLUS, {"A": (1024, 1024), "B": (1024, 1024)}, DType.FLOAT32),
    "convolution": (CONV, {"D": (32, 28, 28, 128), "K": (3, 3, 128, 128)}, DType.FLOAT32),
    "channels first": (FIRST, {"D": (32, 128, 28, 28), "K": (128, 128, 3, 3)}, DType.FLOAT32),
    "depthwise": (DEPTHWISE, {"D": (32, 56, 56, 256), "K": (3, 3, 256)}, DType.FLOAT32),
}
SMALL: dict[str, tuple[str, dict[str, tuple[int, ...]], DType]] = {
    "matmul": (MATMUL, {"A": (96, 20), "B": (20, 64)}, DType.FLOAT32),
    "convolution": (CONV, {"D": (1, 7, 7, 8), "K": (3, 3, 8, 16)}, DType.FLOAT16),
}
VALID = """function (D[N, X, Y, CI], K[I, J, CI, CO]) -> (R) {
    R[n, x, y, co : N, 26, 26, CO] = +(D[n, x+i, y+j, ci] * K[i, j, ci, co]);
}"""
BATCH = "function (A[P, M, L], B[P, N, L]) -> (C) { C[b, i, j : P, M, N] = +(A[b, i, k] * B[b, j, k]); }"
MATRIX_CLASSES: dict[str, tuple[str, dict[str, tuple[int, ...]], DType]] = {
    "matmul": (MATMUL, {"A": (4096, 4096), "B": (4096, 4096)}, DType.FLOAT32),
    "half matmul": (MATMUL, {"A": (2048, 2048), "B": (2048, 2048)}, DType.FLOAT16),
    "ragged matmul": (MATMUL, {"A": (1000, 512), "B": (512, 520)}, DType.BFLOAT16),
    "skinny matmul": (MATMUL, {"A": (64, 4096), "B": (4096, 4096)}, DType.BFLOAT16),
    "transposed in a batch": (BATCH, {"A": (16, 512, 64), "B": (16, 512, 64)}, DType.BFLOAT16),
    "convolution without padding": (VALID, {"D": (32, 28, 28, 128), "K": (3, 3, 128, 128)}, DType.FLOAT32),
    "small": (MATMUL, {"A": (40, 32), "B": (32, 24)}, DType.FLOAT16),
}
FAMILIES = {"gpu-nvidia": 132, "gpu-amd": 104}


def front(source: str, shapes: dict[str, tuple[int, ...]], dtype: DType, target: Target) -> Program:
    types = {n: TensorType(dtype, s) for n, s in shapes.items()}
    program = tile_lang.bind(tile_lang.parse(Source(source, "golden.tile")), types, name="golden")
    return optimize(to_stripe(program), target, passes=[p for p in target.passes if p.name in FRONT])


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Asks whether a text is that of an expected file."""
    update = request.config.getoption("--update-golden")

    def ask(name: str, text: str) -> None:
        if update:
            (GOLDEN / name).write_text(text, encoding="utf-8")
        assert text == (GOLDEN / name).read_text(encoding="utf-8")

    return ask


@pytest.mark.parametrize("family", FAMILIES)
def test_plans(family: str, golden: Golden) -> None:
    target = family_target(family).resolved(cores=FAMILIES[family])
    plans: dict[str, Plan] = {}
    for name, (source, shapes, dtype) in CLASSES.items():
        (decision,) = GroupTile().schedule(front(source, shapes, dtype, target), target).decisions.values()
        plans[name] = decision.plan
    golden(f"{family}.plan", print_plans(plans))


def with_matrix_instructions() -> Target:
    """The family's target on a device whose compiler takes them, for a user who allows them."""
    target = family_target("gpu-nvidia").resolved(cores=FAMILIES["gpu-nvidia"])
    nodes = target.nodes | {"MatrixLoad", "Mma"}
    return replace(target, matrix=tuple(MATRIX_INSTRUCTIONS), nodes=nodes, options=Options(reduced_precision=True))


def test_plans_of_matrix_instructions(golden: Golden) -> None:
    target = with_matrix_instructions()
    plans: dict[str, Plan] = {}
    for name, (source, shapes, dtype) in MATRIX_CLASSES.items():
        (decision,) = TensorTile().schedule(front(source, shapes, dtype, target), target).decisions.values()
        plans[name] = decision.plan
    golden("gpu-nvidia-matrix.plan", print_plans(plans))


def test_scheduled_stripe_of_matrix_instructions(golden: Golden) -> None:
    target = with_matrix_instructions()
    made = TensorTile().schedule(front(*MATRIX_CLASSES["small"], target), target)
    golden("gpu-nvidia-matrix.stripe", print_program(made.program))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", SMALL)
def test_scheduled_stripe(name: str, family: str, golden: Golden) -> None:
    target = family_target(family).resolved(cores=FAMILIES[family])
    made = GroupTile().schedule(front(*SMALL[name], target), target)
    golden(f"{family}-{name}.stripe", print_program(made.program))
