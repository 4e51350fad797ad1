"""pool_constants: which kernels read their constants, and that the results keep their bits."""

from __future__ import annotations

import numpy as np
import pytest
from lowering_support import execute
from tile_ir.dtype import DType
from tile_ir.program.nodes import Elementwise, Literal, Op, Param, Program, TensorType
from tile_ir.stripe import interpret
from tile_ir.stripe.nodes import Program as Stripe
from tile_ir.target import PassConfig, Target
from tile_opt.lowering import lower
from tile_opt.pipeline import optimize
from tile_opt.translate import to_stripe

F = DType.FLOAT32
T = TensorType(F, (5,))
SPECIAL = (0.0, -0.0, float("nan"), float("inf"), 1e-45)


def clamped(values: list[tuple[float, float]]) -> Stripe:
    """One output for each pair: ``max(A * first, second)``."""
    ops: list[Op] = []
    for k, (scale, least) in enumerate(values):
        ops.append(Elementwise(f"M{k}", T, "mul", ("A", Literal(scale, F))))
        ops.append(Elementwise(f"B{k}", T, "max", (f"M{k}", Literal(least, F))))
    outputs = tuple((f"B{k}", f"B{k}") for k in range(len(values)))
    return to_stripe(Program("test", (Param("A", T),), tuple(ops), outputs))


def pooled(stripe: Stripe, least: int) -> Stripe:
    passes = (PassConfig("inline"), PassConfig("pool_constants", options={"least": least}))
    return optimize(stripe, Target("plain"), passes=passes, verify=True)


def test_kernels_that_differ_in_constants_alone_become_one() -> None:
    stripe = pooled(clamped([(k + 0.5, 2.0) for k in range(6)]), 6)
    kernels = lower(stripe, Target("plain"))
    assert len(kernels.kernels) == 1 and len(kernels.steps) == 6
    assert len(stripe.constants) == 6  # what is the same everywhere stays in the kernel


def test_few_kernels_keep_their_constants() -> None:
    assert not pooled(clamped([(k + 0.5, 2.0) for k in range(5)]), 6).constants


def test_many_kernels_of_few_constants_keep_them() -> None:
    assert not pooled(clamped([(k % 3 + 0.5, 2.0) for k in range(9)]), 6).constants


@pytest.mark.parametrize("shift", range(3))
def test_results_keep_their_bits(shift: int) -> None:
    values = [(a, b) for a in SPECIAL for b in SPECIAL]
    values = values[shift:] + values[:shift]
    plain = clamped(values)
    stripe = pooled(plain, 4)
    assert stripe.constants
    inputs = {"A": np.array([0.0, -0.0, 1.0, -3.0, np.inf], np.float32)}
    expected, got, run = (
        interpret.run(plain, inputs),
        interpret.run(stripe, inputs),
        execute(lower(stripe, Target("x")), inputs),
    )
    for name, value in expected.items():
        assert value.tobytes() == got[name].tobytes() == run[name].tobytes()
