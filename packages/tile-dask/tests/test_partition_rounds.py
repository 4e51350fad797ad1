"""Many rounds of a task as one loop in a frame compute what they do written out."""

from __future__ import annotations

import pytest
import tile_lang
from hypothesis import given, settings
from hypothesis import strategies as st
from program_samples import random_inputs
from test_partition import STENCIL, bound, grids, run, same
from tile_dask.partitions import GRAPHICS, PROCESSOR, Grid, Partition, Speed, partition
from tile_ir.dtype import DType
from tile_ir.program.nodes import Loop, Program, TensorType

SHAPE = (7, 9)
STEPS = {
    "zeros": STENCIL,
    "frames": """function (X[M, N]) -> (Y) {
        S[i, j : M, N] = +(X[clamp(i + a - 1), wrap(j + b - 1)]), a < 3, b < 3;
        Y = S * 0.125 + X;
    }""",
    "one way": "function (X[M, N]) -> (Y) { Y[i, j : M, N] = +(X[i + 2 - a, j + b]), a < 2, b < 2; }",
    "windows": "function (X[M, N]) -> (Y) { Y[i, j : M, N] = >(X[i + a - 2, j]), a < 4; }",
    "places": "function (X[M, N]) -> (Y) { R[i, j : M, N] = =(X[i, j + 1]); Y = R + 0.5 * index(X, 0) - index(X, 1); }",
    "other arrays": """function (X[M, N], C[M, N], D[N]) -> (Y) {
        S[i, j : M, N] = +(X[i - 1, j] * C[i, j + 1]);
        Y = S * D + X;
    }""",
    "rows": "function (X[M, N]) -> (Y) { S[i, 0 : M, 1] = >(X[i, j]); U[i, j : M, N] = =(X[i - 1, j]); Y = S - U; }",
    "turned": "function (X[M, N]) -> (Y) { Y[i, j : M, N] = =(X[reflect(i + 1), N - 1 - j]); }",
    "looked up": "function (X[M, N], I[N]) -> (Y) { U[i, j : M, N] = =(X[i - 1, j]); Y = gather(U, I, 1); }",
    "two values": """function (X[M, N], V[M, N]) -> (Y, Z) {
        L[i, j : M, N] = +(X[i + a - 1, j]), a < 3;
        Y = L * 0.25 + V;
        Z[i, j : M, N] = =(X[i, j - 1]);
    }""",
    "in turns": "function (X[M, N], V[M, N]) -> (Y, Z) { Y[i, j : M, N] = =(V[i - 1, j]); Z[i, j : M, N] = =(X[i, j + 1]); }",
}


FEW = Speed(1e10, written=1, most=32)
"""A device for which two rounds are many."""


def has_loops(part: Partition) -> bool:
    return any(isinstance(op, Loop) for s in part.stages for t in part.tasks(s) for op in part.kernel(s, t).ops)


@pytest.mark.parametrize("name", STEPS)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_rounds_in_a_frame_compute_what_they_compute_uncut(name: str, data: st.DataObject) -> None:
    """Any step, chunks thinner than what a round reads among them; whole numbers, so that sums are exact."""
    program = bound_step(STEPS[name])
    steps = data.draw(st.integers(2, 5), "steps")
    cuts = {p.name: data.draw(grids(p.type.shape), p.name) for p in program.inputs}
    cuts |= {p.name: cuts["X"] for p in program.inputs[: len(program.outputs)]}
    part = partition(program, cuts, steps=steps, exchange=data.draw(st.integers(2, steps), "exchange"), speed=FEW)
    arrays = random_inputs(program)
    want, outputs = dict(arrays), [public for public, _ in program.outputs]
    for _ in range(steps):
        want |= dict(zip(arrays, tile_lang.evaluate(program, want).values(), strict=False))
    assert has_loops(part) or any(stage.merge for stage in part.stages)
    same(run(part, arrays), dict(zip(outputs, want.values(), strict=False)))


def bound_step(source: str) -> Program:
    shapes = {"X": SHAPE, "V": SHAPE, "C": SHAPE, "D": SHAPE[1:], "I": SHAPE[1:]}
    parsed = tile_lang.parse(source)
    names = [i.name.id for i in parsed.inputs]
    kinds = {"I": DType.INT32}
    types = {n: TensorType(kinds.get(n, DType.FLOAT64), shapes[n]) for n in names}
    return tile_lang.bind(parsed, types)


def test_all_chunks_of_a_form_share_a_loop_of_a_few_operations() -> None:
    part = partition(bound(STENCIL, X=(400, 30)), {"X": Grid(((100,) * 4, (30,)))}, steps=60, exchange=30, speed=FEW)
    programs = {id(p): p for s in part.stages for p in (part.kernel(s, t) for t in part.tasks(s))}
    assert len(part.stages) == 2 and len(programs) == 3
    assert all([type(op).__name__ for op in p.ops] == ["Loop", "Gather"] for p in programs.values())


def test_a_task_reads_no_more_than_its_rounds_need() -> None:
    part = partition(bound(STENCIL, X=(400, 30)), {"X": Grid(((100,) * 4, (30,)))}, steps=20, exchange=20, speed=FEW)
    (stage,) = part.stages
    assert [task.needs.reads[0][1].shape[0] for task in part.tasks(stage)] == [120, 140, 140, 120]


@pytest.mark.parametrize(("speed", "stages"), [(PROCESSOR, 4), (GRAPHICS, 1)])
def test_graphics_processors_compute_more_rounds_between_two_messages(speed: Speed, stages: int) -> None:
    part = partition(bound(STENCIL, X=(32768, 32768)), {"X": Grid(((4096,) * 8, (32768,)))}, steps=100, speed=speed)
    assert len(part.stages) == stages and has_loops(part) == (speed is GRAPHICS)
