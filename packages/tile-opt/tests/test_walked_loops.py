"""Loops whose rounds treat every element by itself: one kernel, in which an element goes through all rounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tile_lang
import tile_opt
from explain_support import GPU, MULTIPROCESSOR
from lowering_support import execute
from tensor_support import bound
from tile_ir.dtype import DType
from tile_ir.machine import Occupancy
from tile_ir.program.nodes import Loop, Param, Program, TensorType
from tile_ir.semtree.verify import OPTIONAL_NODES

MACHINE = replace(MULTIPROCESSOR, occupancy=Occupancy(group_items=256))
TARGET = replace(GPU, nodes=OPTIONAL_NODES, machine=MACHINE).resolved(cores=4)
COUNT, LONG, SIZE = 6, 100, 40


def looped(
    source: str, carries: int, rows: int, reverse: bool = False, dtype: DType = DType.FLOAT32, count: int = COUNT
) -> Program:
    """A loop over a body whose inputs are A, B … : what is carried, then the rows, then what is captured."""
    body = bound(source, dtype, **dict.fromkeys([*"ABCD"][: source.split("->")[0].count("[N]")], (SIZE,)))
    names = [p.name for p in body.inputs]
    one, stack = TensorType(dtype, (SIZE,)), TensorType(dtype, (count, SIZE))
    types = tuple(one if k < carries else stack for k in range(len(body.outputs)))
    results = tuple(f"R{k}" for k in range(len(types)))
    given = tuple(Param(n, stack if carries <= k < carries + rows else one) for k, n in enumerate(names))
    cut, taken = tuple(names[carries : carries + rows]), tuple(names[carries + rows :])
    loop = Loop(results, types, body, count, tuple(names[:carries]), cut, taken, reverse)
    return Program("loop", given, (loop,), tuple((r, r) for r in results))


BLEND = "function (A[N], B[N], C[N]) -> (D, E) { D = A * B + C; E = D * 2; }"
FIBONACCI = "function (A[N], B[N]) -> (C, A) { C = A + B; }"
GATED = "function (A[N], B[N], C[N]) -> (D, E) { D = A - B * (A - C) / 2; E = A * D; }"
SUMS = "function (A[N], B[N], C[N]) -> (D, E) { D = A + C; E = B + C; }"
SQUARED = "function (A[N], B[N], C[N]) -> (D) { D = 0.5 * A * A + B * C; }"
SHIFTED = "function (A[N], B[N]) -> (C) { C[i : N] = +(A[i + k] * B[i]), k < 2; }"


def given(program: Program) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    return {p.name: rng.uniform(0.5, 1, p.type.shape).astype(p.type.dtype.numpy) for p in program.inputs}


@pytest.mark.parametrize(
    "program",
    [
        looped(BLEND, 1, 2),
        looped(BLEND, 1, 1, reverse=True),
        looped(BLEND, 1, 0),
        looped(FIBONACCI, 2, 0),
        looped(BLEND, 1, 2, dtype=DType.FLOAT16),
    ],
    ids=["rows", "reversed", "captured", "handed on", "rounded"],
)
def test_all_rounds_are_one_kernel(program: Program) -> None:
    kernels = tile_opt.compile(program, TARGET, verify=True).kernels
    assert len(kernels.kernels) == len(kernels.steps) == 1
    inputs = given(program)
    found = execute(kernels, inputs)
    for name, wanted in tile_lang.evaluate(program, inputs).items():
        np.testing.assert_allclose(found[name], wanted, rtol=2e-6 if wanted.dtype == np.float32 else 2e-3)


def another_size(program: Program) -> Program:
    """The same with a second value that is carried, of another size, and left as it is."""
    (loop,) = [op for op in program.ops if isinstance(op, Loop)]
    other = Param("Z", TensorType(DType.FLOAT32, (3,)))
    inputs, outputs = loop.body.inputs, loop.body.outputs
    body = replace(loop.body, inputs=(inputs[0], other, *inputs[1:]), outputs=(outputs[0], ("Z", "Z"), *outputs[1:]))
    results, types = ((x[0], z, *x[1:]) for x, z in ((loop.results, "Last"), (loop.types, other.type)))
    more = replace(loop, body=body, carries=(*loop.carries, "Z"), results=results, types=types)
    return replace(program, inputs=(*program.inputs, other), ops=(more,))


@pytest.mark.parametrize(
    "program", [looped(SHIFTED, 1, 0), another_size(looped(BLEND, 1, 2))], ids=["neighbours", "sizes"]
)
def test_other_loops_go_round_by_round(program: Program) -> None:
    kernels = tile_opt.compile(program, TARGET).kernels
    assert any(step.loop is not None for step in kernels.steps)


def scans(program: Program) -> bool:
    """Whether the items of a group share the rounds of an element; whether or not, results are what they shall be."""
    compiled = tile_opt.compile(program, TARGET, verify=True)
    inputs = given(program)
    found = execute(compiled.kernels, inputs)
    for name, wanted in tile_lang.evaluate(program, inputs).items():
        np.testing.assert_allclose(found[name], wanted, rtol=1e-5)
    return "across scan" in str(compiled.plans)


@pytest.mark.parametrize("source", [BLEND, GATED], ids=["blend", "gated"])
def test_rounds_that_are_linear_in_what_they_carry_are_shared(source: str) -> None:
    assert scans(looped(source, 1, 2, count=LONG))


@pytest.mark.parametrize(("source", "carries"), [(SUMS, 2), (SQUARED, 1)], ids=["two values", "a square"])
def test_other_rounds_are_not(source: str, carries: int) -> None:
    assert not scans(looped(source, carries, 1, count=LONG))
