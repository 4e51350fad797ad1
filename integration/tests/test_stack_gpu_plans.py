"""What kernels that memory bounds become on two families of graphics processors: plan and scheduled Stripe, as text.

Make the texts again by ``python test_stack_gpu_plans.py``, and read the difference.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import tile_opt
import tile_runtime as tile
from hal_opencl.families import family_target
from stack import bind
from tile_ir.dtype import DType
from tile_ir.program.nodes import TensorType
from tile_ir.stripe.nodes import Block
from tile_ir.stripe.printer import print_program
from tile_opt.blocks.tree import kernels_of
from tile_opt.kernel.view import open_kernel
from tile_opt.passes import create
from tile_opt.passes.kernels.gpu_tile import GpuTile
from tile_opt.pipeline import optimize
from tile_opt.plan.text import print_plans
from tile_runtime.measuring import tuning

FOLDER = Path(__file__).parent / "golden_gpu"
FAMILIES = ("gpu-nvidia", "gpu-amd")
KERNELS: dict[str, tuple[str, dict[str, tuple[int, ...]], str]] = {
    "short-rows": ("function (X[M, N]) -> (R) { R = builtin_softmax(X, M, N); }", {"X": (65536, 256)}, "float32"),
    "odd-short-rows": ("function (X[M, N]) -> (R) { R = builtin_softmax(X, M, N); }", {"X": (1000003, 5)}, "float32"),
    "long-rows": ("function (X[M, N]) -> (R) { R = builtin_softmax(X, M, N); }", {"X": (512, 65536)}, "float16"),
    "kept-columns": (
        """function (X[M, N]) -> (R) {
            T[z, j : 1, N] = >(X[i, j]), z < 1; E = exp(X - T); S[z, j : 1, N] = +(E[i, j]), z < 1; R = E / S; }""",
        {"X": (2048, 16384)}, "float32",
    ),
    "columns": ("function (X[M, N]) -> (R) { R[j : N] = +(X[i, j]); }", {"X": (8192, 4096)}, "float32"),
    "statistics": (
        "function (X[N, C, H, W]) -> (R) { R[c : C] = +(X[n, c, h, w]); }", {"X": (64, 64, 112, 112)}, "bfloat16",
    ),
    "permutation": (
        "function (X[A, B, C, D]) -> (R) { R[a, c, d, b : A, C, D, B] = =(X[a, b, c, d]); }",
        {"X": (64, 64, 112, 112)}, "float32",
    ),
    "bytes": ("function (X) -> (R) { R = X + X; }", {"X": (100003,)}, "uint8"),
    "window": (
        "function (X[H, W]) -> (R) { R[y, x : H / 2, W / 2] = +(X[2 * y + i - 1, 2 * x + j - 1]), i < 3, j < 3; }",
        {"X": (4096, 4096)}, "float32",
    ),
    "shifts": (
        """function (X[H, W]) -> (R) {
            U[y, x : H, W] = +(X[y - 1, x]); D[y, x : H, W] = +(X[y + 1, x]); R = U + D - 2.0 * X; }""",
        {"X": (2272, 4349)}, "float32",
    ),
    "few-long-rows": ("function (X[M, N]) -> (R) { R = builtin_softmax(X, M, N); }", {"X": (64, 1 << 20)}, "float32"),
    "ragged-long-rows": (
        "function (X[M, N]) -> (R) { R = builtin_softmax(X, M, N); }", {"X": (999, 100003)}, "float32",
    ),
    "images": (
        """function (X[N, H, W, C]) -> (R) {
            T[a, b, c, k : 1, 1, 1, C] = +(X[n, h, w, k]), a < 1, b < 1, c < 1; D = X - T / 1000.0; Q = D * D;
            V[a, b, c, k : 1, 1, 1, C] = +(Q[n, h, w, k]), a < 1, b < 1, c < 1; R = D / sqrt(V); }""",
        {"X": (64, 112, 112, 64)}, "float32",
    ),
    "blur": (
        """function (X[H, W], K[T]) -> (R) {
            P[y, x : H, W] = +(X[y, x + t - 7] * K[t]); R[y, x : H, W] = +(P[y + t - 7, x] * K[t]); }""",
        {"X": (4096, 4094), "K": (15,)}, "float32",
    ),
    "scan-of-scans": ("function (X[N]) -> (R) { R[i : N] = +(X[k]), i - k < N; }", {"X": (1 << 24,)}, "float32"),
    "scan": (
        "function (X[M, N]) -> (R) { R[i, j : M, N] = +(X[i, k]), j - k < N; }", {"X": (65536, 512)}, "float32",
    ),
}  # fmt: skip


def scheduled(family: str, name: str) -> str:
    """The plans that the family's pass chooses, and what it makes of them."""
    base = family_target(family)
    on = base.resolved(cores=128)
    source, shapes, dtype = KERNELS[name]
    compiled = tile_opt.compile(bind(source, {n: TensorType(DType(dtype), s) for n, s in shapes.items()}), on)
    number = [p.name for p in on.passes].index("gpu_tile")
    flat = optimize(compiled.stripe_initial, on, passes=on.passes[:number], verify=False)
    found = [open_kernel(k) for k in kernels_of(flat) if isinstance(k, Block)]
    chosen = create(on.passes[number])
    assert isinstance(chosen, GpuTile)
    plans = {v.name: next(chosen.candidates(v, on)) for v in found if v is not None}
    return f"{print_plans(plans)}\n{print_program(compiled.stripe)}"


def path_of(family: str, name: str) -> Path:
    return FOLDER / f"{family}-{name}.stripe"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", KERNELS)
def test_plans_and_schedules_are_as_they_were(family: str, name: str) -> None:
    assert scheduled(family, name) == path_of(family, name).read_text(encoding="utf-8")


def test_every_text_belongs_to_a_kernel() -> None:
    assert set(FOLDER.iterdir()) == {path_of(family, name) for family in FAMILIES for name in KERNELS}


GROUPS = """function (D[N, X, Y, I], K[U, V, C, O]) -> (R) {
    R[n, x, y, 59*g + o : N, 19, 19, O] = +(D[n, x + u - 1, y + v - 1, 24*g + c] * K[u, v, c, 59*g + o]),
        g < 2, c < 24, o < 59; }"""


@pytest.mark.filterwarnings("error")
def test_tiles_beyond_a_group_of_channels_store_nothing_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """On an H200 work groups overwrote each other's results; one after the other, as in the interpreters, they hide it."""
    monkeypatch.setenv("TILE_VERIFY", "prove")
    shapes = {"D": (8, 19, 19, 48), "K": (3, 3, 24, 118)}
    program = bind(GROUPS, {n: TensorType(DType.FLOAT32, s) for n, s in shapes.items()})
    compiled = tile_opt.compile(program, family_target("gpu-nvidia"))
    assert "edge v3 pad" in str(compiled.plans) and compiled.proof is not None


def test_trials_of_a_split_product_are_timed_with_all_that_a_plan_adds() -> None:
    """The product goes by another name then, and another pass schedules the combination."""
    inputs = [tile.placeholder("float32", shape, name=n) for n, shape in (("A", (1024, 1024)), ("B", (1024, 1024)))]
    function = tile.Function("function (A[M, L], B[L, N]) -> (C) { C[i, j : M, N] = +(A[i, k] * B[k, j]); }")
    target = family_target("gpu-nvidia").resolved(cores=132)
    low = function.lower(*inputs, device=tile.device("null")).retargeted(target)
    names = [kernel.stripe.name for kernel in low.kernels.kernels]
    assert names == ["kernel_0_shares", "kernel_0_combine"]
    ((decision,),) = tuning._groups(low)
    assert decision.scheduled == "kernel_0_shares" and next(decision.others(target), None) is not None
    assert tuning._makers(low.compiled) == dict.fromkeys(names, "kernel_0")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for each in FAMILIES:
        for kernel in KERNELS:
            path_of(each, kernel).write_text(scheduled(each, kernel), encoding="utf-8")
