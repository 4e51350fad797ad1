"""Random programs: kernel lists on the semtree interpreter give what the Stripe interpreter gives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lowering_support import execute
from program_samples import programs, random_inputs
from tile_ir.program.nodes import Program
from tile_ir.semtree.verify import OPTIONAL_NODES, verify
from tile_ir.stripe.affine import Affine, Quasi
from tile_ir.stripe.interpret import run
from tile_ir.stripe.nodes import Bind, Block, Index, Load, LoadIndex, Order, Statement, Store
from tile_ir.stripe.nodes import Program as StripeProgram
from tile_ir.target import HardwareSettings, PassConfig, Target
from tile_opt.blocks.tree import kernels_of, with_kernels
from tile_opt.compiler import compile
from tile_opt.lower_kernels import lower_kernels
from tile_opt.lowering import lower
from tile_opt.semtree import legalise
from tile_opt.translate import to_stripe

SETTINGS = settings(max_examples=40, suppress_health_check=list(HealthCheck))
TINY = HardwareSettings(vec_size=4, vector_bytes=16, registers=16, l1_bytes=256, l2_bytes=1024, l3_bytes=64, cores=2)
SCHEDULED = Target(
    "tiny",
    TINY,
    passes=tuple(PassConfig(n, n) for n in ("inline", "fuse", "merge", "accumulate", "stream", "schedule_kernels")),
    nodes=OPTIONAL_NODES,
)


def same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype and found[name].shape == array.shape
        if array.dtype.kind == "f":
            rtol = 1e-5 if array.dtype.itemsize >= 4 else 1e-2
            np.testing.assert_allclose(found[name], array, rtol=rtol, atol=1e-5, err_msg=name)
        else:
            np.testing.assert_array_equal(found[name], array, err_msg=name)


@given(programs())
@SETTINGS
def test_unscheduled_programs(program: Program) -> None:
    stripe = to_stripe(program)
    inputs = random_inputs(program)
    kernels = lower(stripe, Target("plain"))
    for kernel in kernels.kernels:
        assert kernel.function is not None
        verify(kernel.function)
    same(execute(kernels, inputs), run(stripe, inputs))


def rebound(block: Block, draw: st.DrawFn) -> Block:
    """A stage with random bindings: loops tiled (with a constraint for the remainder), unrolled, vectorized."""
    indexes: list[Index] = []
    inner: list[Index] = []
    values: dict[str, Affine] = {}
    constraints: list[Quasi] = []
    for index in block.indexes:
        how = draw(st.sampled_from(("loop", "unroll", "tile", "vector")))
        lanes = draw(st.sampled_from((2, 3, 4)))
        if index.value is not None or how == "loop" or index.order is Order.ORDERED or index.range <= 1:
            indexes.append(index)
        elif how == "unroll" and index.range <= 6:
            inner.append(replace(index, bind=Bind.UNROLL))
        else:
            bind = Bind.VECTOR if how == "vector" else draw(st.sampled_from((Bind.UNROLL, Bind.NONE)))
            indexes.append(Index(index.name, -(-index.range // lanes)))
            inner.append(Index(f"{index.name}_v", lanes, bind=bind, lanes=lanes if bind is Bind.VECTOR else 1))
            values[index.name] = Affine.of({index.name: lanes, f"{index.name}_v": 1})
            if index.range % lanes:
                constraints.append(values[index.name] * -1 + (index.range - 1))
    return replace(
        block,
        indexes=(*indexes, *inner),
        constraints=(*(c.substitute(values) for c in block.constraints), *constraints),
        refs=tuple(replace(r, access=tuple(f.substitute(values) for f in r.access)) for r in block.refs),
        body=tuple(_substituted(s, values, draw) for s in block.body),
    )


def _substituted(statement: Statement, values: dict[str, Affine], draw: st.DrawFn) -> Statement:
    match statement:
        case Block() if statement.indexes or statement.refs:
            names = {i.name for i in statement.indexes if i.value is not None}
            assert not names, "stages of unscheduled kernels take no indexes from outside"
            return rebound(statement, draw)
        case LoadIndex():
            return replace(statement, value=statement.value.substitute(values))
        case Load() | Store() if statement.at:
            at = tuple(a if isinstance(a, str) else a.substitute(values) for a in statement.at)
            return replace(statement, at=at)
        case _:
            return statement


@st.composite
def rebound_programs(draw: st.DrawFn) -> tuple[Program, StripeProgram]:
    program = draw(programs(most_ops=3))
    stripe = to_stripe(program)
    kernels = tuple(rebound(k, draw) if isinstance(k, Block) else k for k in kernels_of(stripe))
    return program, with_kernels(stripe, kernels)


@given(rebound_programs())
@settings(SETTINGS, max_examples=80)
def test_any_binding_of_loops(case: tuple[Program, StripeProgram]) -> None:
    program, stripe = case
    inputs = random_inputs(program)
    expected = run(to_stripe(program), inputs)
    for masks in (False, True):
        target = Target("all", HardwareSettings(masks=masks), nodes=OPTIONAL_NODES)
        same(execute(lower_kernels(stripe, target, verify=True), inputs), expected)
    core = lower_kernels(stripe, Target("core", HardwareSettings(index_bits=32)), verify=True)
    for kernel in core.kernels:
        assert kernel.function is not None
        assert legalise(kernel.function, frozenset()) is kernel.function
    same(execute(core, inputs), expected)


@pytest.mark.parametrize("masks", [False, True])
@given(program=programs())
@SETTINGS
def test_scheduled_legal_simplified_programs(masks: bool, program: Program) -> None:
    compiled = compile(program, replace(SCHEDULED, settings=replace(TINY, masks=masks)), verify=True)
    inputs = random_inputs(program)
    same(execute(compiled.kernels, inputs), run(compiled.stripe_initial, inputs))
