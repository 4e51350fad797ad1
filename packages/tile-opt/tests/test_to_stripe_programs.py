"""Random programs: the Stripe interpreter on the translation gives what the reference evaluator gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import HealthCheck, given, settings
from program_samples import programs, random_inputs
from tile_ir.dtype import DType
from tile_ir.program.nodes import Program, TensorType
from tile_ir.stripe.interpret import run
from tile_ir.stripe.nodes import Block
from tile_ir.stripe.parser import parse_program
from tile_ir.stripe.printer import print_program
from tile_lang import bind
from tile_lang.evaluate import evaluate
from tile_lang.parser import parse
from tile_opt.blocks.tree import main_of
from tile_opt.translate import to_stripe


def assert_same(found: npt.NDArray[Any], expected: npt.NDArray[Any]) -> None:
    """Equal integers; floats within rounding of sums in another order."""
    assert found.dtype == expected.dtype and found.shape == expected.shape
    if found.dtype.kind == "f":
        np.testing.assert_allclose(found, expected, rtol=1e-5 if found.dtype.itemsize >= 4 else 1e-3, atol=1e-6)
    else:
        np.testing.assert_array_equal(found, expected)


def check(program: Program, seed: int = 0) -> None:
    inputs = random_inputs(program, seed)
    with np.errstate(all="ignore"):
        found, expected = run(to_stripe(program), inputs), evaluate(program, inputs)
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert_same(found[name], array)


@given(programs())
@settings(max_examples=150, suppress_health_check=list(HealthCheck))
def test_translation_keeps_the_meaning(program: Program) -> None:
    check(program)


@given(programs(most_ops=2))
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
def test_translation_has_a_text_form(program: Program) -> None:
    stripe = to_stripe(program)
    text = print_program(stripe)
    assert print_program(parse_program(text)) == text


def test_what_no_output_needs_is_no_kernel() -> None:
    """An empty tensor is made of nothing, however much it names; views and results count as what they are of."""
    text = "function (A[N], B[M]) -> (O, P) { X = tanh(A); Y = exp(A); O[i, j : N, M] = =(X[i] * B[j]); P = reshape(Y, 2, 2); }"
    types = {"A": TensorType(DType.FLOAT32, (4,)), "B": TensorType(DType.FLOAT32, (0,))}
    made = to_stripe(bind(parse(text), types))
    assert [k.comment for k in main_of(made).body if isinstance(k, Block)] == ["Y = exp(A)", "P = reshape(Y)"]
    assert {r.into for r in main_of(made).refs}.isdisjoint({"X"})
