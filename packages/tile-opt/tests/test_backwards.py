"""Kernels that walk what the one before has just walked through begin at its end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tile_lang
from explain_support import GPU
from lowering_support import random_inputs
from tile_ir.diagnostics import Source
from tile_ir.dtype import DType
from tile_ir.program.nodes import TensorType
from tile_ir.stripe import interpret
from tile_ir.stripe.nodes import Bind, Block, Program
from tile_ir.target import PassConfig, Target
from tile_opt.blocks.tree import kernels_of
from tile_opt.pipeline import schedule
from tile_opt.plan.text import parse_plans
from tile_opt.translate import to_stripe

AGAIN = "function (X[M, N]) -> (R, S, T) { R = X + 1; S = X * 2; T = X - 3; }"
APART = "function (X[M, N], Y[M, N], Z[M, N]) -> (R, S, T) { R = X + 1; S = Y * 2; T = Z - 3; }"
CHAIN = "function (X[M, N]) -> (R, S, T) { R = X + 1; S = R * 2; T = S - 3; }"
SHAPE = (9, 50)
PLANS = parse_plans(
    Source(
        "\n".join(
            f"plan kernel_{n} {{\n grid i0:2 i1:16\n group i0:1 i1:4\n vector i1:1 x4\n edge i0 peel\n edge i1 peel\n}}"
            for n in range(3)
        ),
        "plans",
    )
)


def target(last_cache: int) -> Target:
    caches = (*GPU.machine.caches[:-1], replace(GPU.machine.caches[-1], bytes=last_cache))
    passes = (PassConfig("gpu_tile"), PassConfig("backwards"))
    return replace(GPU, passes=passes, machine=replace(GPU.machine, caches=caches))


def made(source: str, last_cache: int) -> tuple[Program, Program]:
    function = tile_lang.parse(Source(source, "sample.tile"))
    types = {n: TensorType(DType.FLOAT32, SHAPE) for n in "XYZ" if f"{n}[" in source}
    stripe = to_stripe(tile_lang.bind(function, types, name="sample"))
    return stripe, schedule(stripe, target(last_cache), verify=True, plans=PLANS).program


def turned(program: Program) -> list[bool]:
    """Whether each kernel's grid runs backwards: steps are forms that fall with it."""
    return [_falls(kernel) for kernel in kernels_of(program) if isinstance(kernel, Block)]


def _falls(kernel: Block) -> bool:
    grid = {i.name for i in kernel.indexes if i.bind is Bind.GRID}
    assert grid
    passed = [i.value for b in kernel.body if isinstance(b, Block) for i in b.indexes if i.value is not None]
    return any(c < 0 for form in passed for n, c in form.terms if n in grid)


@pytest.mark.parametrize(
    ("source", "last_cache", "wanted"),
    [
        (AGAIN, 2000, [False, True, False]), (CHAIN, 2000, [False, True, False]), (APART, 2000, [False] * 3),
        (AGAIN, 1 << 20, [False] * 3),
    ],
)  # fmt: skip
def test_each_kernel_begins_where_the_one_before_ended(source: str, last_cache: int, wanted: list[bool]) -> None:
    stripe, scheduled = made(source, last_cache)
    assert turned(scheduled) == wanted
    inputs = random_inputs(stripe)
    for name, want in interpret.run(stripe, inputs).items():
        np.testing.assert_array_equal(interpret.run(scheduled, inputs)[name], want)
