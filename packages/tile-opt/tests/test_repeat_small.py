"""Small reductions repeated by groups that read their results: one kernel less, the same results, and only where that pays."""

from __future__ import annotations

import numpy as np
import pytest
import tile_lang
from explain_support import FRONT, GPU
from lowering_support import check, random_inputs
from tile_ir.diagnostics import Source
from tile_ir.dtype import DType
from tile_ir.frozen import replace
from tile_ir.machine import Launch, LocalMemory
from tile_ir.program.nodes import TensorType
from tile_ir.stripe import interpret
from tile_ir.stripe.nodes import Program
from tile_ir.target import PassConfig, Target
from tile_opt.blocks.tree import kernels_of
from tile_opt.kernel.repeated import Repeated, repeated, stretches
from tile_opt.kernel.view import KernelView, close_kernel, open_kernel
from tile_opt.passes.choosing import Chosen
from tile_opt.passes.kernels.repeat_small import RepeatSmall
from tile_opt.pipeline import optimize
from tile_opt.translate import to_stripe

APART = PassConfig("fuse", options={"min_parallel": 1 << 20, "min_shared": 1 << 20})
PASSES = (FRONT[0], APART, *FRONT[2:], PassConfig("repeat_small"), PassConfig("gpu_tile"))
COLUMNS = """function (P[K, N], A[M, N]) -> (O) {
    R[j : N] = >(P[k, j]); O[i, j : M, N] = =(A[i, j] * R[j]);
}"""
ROWS = """function (P[K, N], A[N, M]) -> (O) {
    R[j : N] = +(P[k, j]); O[j, i : N, M] = =(A[j, i] * R[j]);
}"""
IMAGES = """function (P[K, N], A[Z, N, M]) -> (O) {
    R[j : N] = +(P[k, j]); O[z, j, i : Z, N, M] = =(A[z, j, i] + R[j]);
}"""
TWO = """function (P[K, L, N], A[M, N]) -> (O) {
    R[j : N] = +(P[k, l, j]); O[i, j : M, N] = =(A[i, j] * R[j]);
}"""
SEEN = "function (P[K, N], A[M, N]) -> (O, R) { R[j : N] = +(P[k, j]); O[i, j : M, N] = =(A[i, j] * R[j]); }"


def target(cores: int = 1) -> Target:
    machine = replace(GPU.machine, local=LocalMemory(), cores=cores, launch=Launch(kernel=4e-6))
    return replace(GPU, settings=replace(GPU.settings, threads=32), machine=machine, passes=PASSES)


def stripe_of(source: str, **shapes: tuple[int, ...]) -> Program:
    function = tile_lang.parse(Source(source, "sample.tile"))
    return to_stripe(tile_lang.bind(function, {n: TensorType(DType.FLOAT32, s) for n, s in shapes.items()}))


def kernels_before(stripe: Program, on: Target) -> Program:
    """What the pass is given."""
    return optimize(stripe, on, passes=PASSES[:-2], verify=False)


@pytest.mark.parametrize(
    ("source", "shapes"),
    [
        pytest.param(COLUMNS, {"P": (5, 8), "A": (700, 8)}, id="columns"),
        pytest.param(COLUMNS, {"P": (3, 7), "A": (641, 7)}, id="a ragged last stretch"),
        pytest.param(ROWS, {"P": (5, 3), "A": (3, 2000)}, id="rows"),
        pytest.param(IMAGES, {"P": (4, 3), "A": (9, 3, 150)}, id="images"),
        pytest.param(IMAGES, {"P": (90, 3), "A": (41, 3, 70)}, id="more than a stretch's longest loop has"),
        pytest.param(TWO, {"P": (9, 2, 4), "A": (900, 4)}, id="two loops"),
    ],
)
def test_one_kernel_has_the_results_of_two(source: str, shapes: dict[str, tuple[int, ...]]) -> None:
    stripe, on = stripe_of(source, **shapes), target()
    scheduled = optimize(stripe, on, verify=True)
    assert len(list(kernels_of(scheduled))) == 1
    inputs = random_inputs(stripe)
    expected = interpret.run(stripe, inputs)
    assert np.any(expected["O"])
    check(scheduled, inputs, on, expected=expected)


@pytest.mark.parametrize(
    ("source", "shapes", "cores"),
    [
        pytest.param(SEEN, {"P": (5, 8), "A": (700, 8)}, 1, id="an output"),
        pytest.param(COLUMNS, {"P": (2000, 8), "A": (700, 8)}, 1, id="too long a reduction"),
        pytest.param(COLUMNS, {"P": (5, 8), "A": (700, 8)}, 132, id="too few groups"),
    ],
)
def test_what_stays_apart(source: str, shapes: dict[str, tuple[int, ...]], cores: int) -> None:
    on = target(cores)
    before = kernels_before(stripe_of(source, **shapes), on)
    assert RepeatSmall().choose(before, on).program is before


MADE = """function (X[K, L, N], A[M, N]) -> (O) {
    P[k, j : K, N] = >(X[k, l, j]); R[j : N] = >(P[k, j]); O[i, j : M, N] = =(A[i, j] * R[j]);
}"""


def test_what_a_last_group_may_put_together_is_not_repeated_beside_columns() -> None:
    on = target()
    before = kernels_before(stripe_of(MADE, X=(5, 40, 8), A=(700, 8)), on)
    assert len(list(kernels_of(before))) == 3
    assert len(list(kernels_of(RepeatSmall().choose(before, on).program))) == 2
    counting = replace(on, nodes=on.nodes | {"LastGroup"})
    assert RepeatSmall().choose(before, counting).program is before


def test_a_choice_says_what_it_was_made_by() -> None:
    on = target()
    made = RepeatSmall().choose(kernels_before(stripe_of(ROWS, P=(5, 3), A=(3, 2000)), on), on)
    (choice,) = made.choices
    assert choice.chosen is Chosen.FUSED and choice.together is not None and choice.apart is not None
    assert choice.together < choice.apart


def views(source: str, **shapes: tuple[int, ...]) -> tuple[KernelView, KernelView]:
    maker, reader = (open_kernel(k) for k in kernels_of(kernels_before(stripe_of(source, **shapes), target())))  # type: ignore[arg-type]
    assert maker is not None and reader is not None
    return maker, reader


def test_stretches_are_no_longer_than_asked_for() -> None:
    maker, reader = views(IMAGES, P=(4, 3), A=(9, 3, 150))
    found = list(stretches(maker, reader, 512, 32))
    assert [f.size for f in found] == [450, 150, 75, 50] and found[0].whole == found[1].whole == (found[0].whole[0],)


def test_stages_of_both_kernels_share_the_loops_around() -> None:
    maker, reader = views(COLUMNS, P=(5, 8), A=(700, 8))
    how: Repeated = next(stretches(maker, reader, 1 << 12, 32))
    view = repeated(maker, reader, how)
    assert open_kernel(close_kernel(view)) is not None and view.reads() == {"P", "A"} and view.writes() == {"O"}
    assert len({s.loops[0].range for s in view.stages if s.loops}) == 1
