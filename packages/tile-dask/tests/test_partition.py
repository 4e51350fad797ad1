"""Tasks over chunks compute what the whole program computes: random programs, random grids, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tile_lang
from hypothesis import given, settings
from hypothesis import strategies as st
from program_samples import programs, random_inputs
from tile_dask.partitions import Box, Grid, Partition, partition, traffic
from tile_dask.partitions.partition import combining
from tile_ir.diagnostics import TileTypeError
from tile_ir.dtype import DType
from tile_ir.program.nodes import Elementwise, Literal, Loop, Param, Program, TensorType

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]

MATMUL = "function (A[M, L], B[L, N]) -> (C) { C[i, j : M, N] = +(A[i, k] * B[k, j]); }"
STENCIL = """
function (X[M, N]) -> (Y) {
    U[i, j : M, N] = =(X[i - 1, j]);
    D[i, j : M, N] = =(X[i + 1, j]);
    L[i, j : M, N] = =(X[i, j - 1]);
    R[i, j : M, N] = =(X[i, j + 1]);
    Y = (X + U + D + L + R) * 0.125;
}"""
SOFTMAX = """
function (X[M, N]) -> (R) {
    T[i, 0 : M, 1] = >(X[i, j]);
    E = exp(X - T);
    S[i, 0 : M, 1] = +(E[i, j]);
    R = E / S;
}"""


def bound(source: str, **shapes: tuple[int, ...]) -> Program:
    types = {name: TensorType(DType.FLOAT32, shape) for name, shape in shapes.items()}
    return tile_lang.bind(tile_lang.parse(source), types)


def whole_numbers(program: Program) -> dict[str, Array]:
    return random_inputs(program)


def run(part: Partition, arrays: Arrays) -> dict[str, Array]:
    """Every task by the reference evaluator, arrays as they are needed."""
    have = dict(arrays)
    for name, (type, contents) in part.constants.items():
        have[name] = np.frombuffer(contents.view, type.dtype.numpy).reshape(type.shape)
    for stage in part.stages:
        have[stage.name] = np.empty(stage.type.shape, stage.type.dtype.numpy)
        partial: dict[tuple[int, ...], list[Array]] = {}
        for task in part.tasks(stage):
            program = part.kernel(stage, task)
            given = [_whole(part, have, stage.reads[n])[_slices(box)] for n, box in task.needs.reads]
            given += [np.asarray(n, np.int32) for n in task.needs.numbers]
            inputs = {p.name: a for p, a in zip(program.inputs, given, strict=True)}
            partial.setdefault(task.place, []).append(tile_lang.evaluate(program, inputs)["R"])
        for place, results in partial.items():
            chunk = results[0]
            if stage.merge:
                program = combining(stage, len(results), chunk.shape, last=True)
                chunk = tile_lang.evaluate(program, {f"P{n}": r for n, r in enumerate(results)})["R"]
            have[stage.name][_slices(stage.grid.box(place))] = chunk
    return {public: _whole(part, have, value) for public, value in part.outputs}


def _whole(part: Partition, have: Arrays, array: str) -> Array:
    rows = part.stacks.get(array)
    return have[array] if rows is None else np.concatenate([have[row] for row in rows])


def _slices(box: Box) -> tuple[slice, ...]:
    return tuple(slice(a, b) for a, b in zip(box.low, box.high, strict=True))


@st.composite
def grids(draw: st.DrawFn, shape: tuple[int, ...]) -> Grid:
    """Up to four chunks along each axis, of any sizes."""
    return Grid(tuple(Grid.cut(n, draw(st.lists(st.integers(0, n), max_size=3))) for n in shape))


def same(got: Arrays, want: Arrays) -> None:
    for name, array in want.items():
        assert got[name].dtype == array.dtype
        np.testing.assert_array_equal(got[name], array)


@given(st.data(), programs())
@settings(max_examples=60, deadline=None)
def test_tasks_compute_what_the_program_computes(data: st.DataObject, program: Program) -> None:
    inputs = random_inputs(program)
    types = program.types()
    given_grids = {p.name: data.draw(grids(p.type.shape), p.name) for p in program.inputs}
    wanted = {
        public: data.draw(grids(types[value].shape)) for public, value in program.outputs if data.draw(st.booleans())
    }
    part = partition(program, given_grids, {n: wanted[n] for n in wanted if _alone(program, n)})
    same(run(part, inputs), tile_lang.evaluate(program, inputs))


def _alone(program: Program, output: str) -> bool:
    """No other output is the same value, and it is the result of an operation."""
    values = [value for _, value in program.outputs]
    mine = dict(program.outputs)[output]
    return values.count(mine) == 1 and mine not in {p.name for p in program.inputs}


@given(st.data())
@settings(max_examples=20, deadline=None)
@pytest.mark.parametrize("steps", [2, 5])
def test_steps_between_exchanges_compute_what_single_steps_do(steps: int, data: st.DataObject) -> None:
    program = bound(STENCIL, X=(7, 9))
    grid, exchange = data.draw(grids((7, 9))), data.draw(st.integers(1, steps))
    x = whole_numbers(program)["X"]
    found = run(partition(program, {"X": grid}, steps=steps, exchange=exchange), {"X": x})["Y"]
    for _ in range(steps):
        x = tile_lang.evaluate(program, {"X": x})["Y"]
    np.testing.assert_array_equal(found, x)


def scanned(count: int, inner: int, reverse: bool) -> Program:
    """Rounds that blur what they carry, add a row, and stack both what they carry and what rounds inside of them stack."""
    state, row = TensorType(DType.FLOAT32, (5, 4)), TensorType(DType.FLOAT32, (4,))
    small = TensorType(DType.FLOAT32, (inner, 4))
    halved = Elementwise("H", row, "mul", ("R", Literal(0.5, DType.FLOAT32)))
    halves = Program("halves", (Param("R", row),), (halved,), (("H", "H"), ("K", "R")))
    step = "function (C[M, N], R[N]) -> (D) { B[i, j : M, N] = +(C[i - 1 + a, j]), a < 3; D = B + R; }"
    blurred = tile_lang.bind(tile_lang.parse(step), {"C": state, "R": row})
    loop = Loop(("S", "Rows"), (row, small), halves, inner, ("R",))
    body = Program("body", blurred.inputs, (loop, *blurred.ops), (*blurred.outputs, ("D2", "D"), ("Rows", "Rows")))
    stacks = (state, *(TensorType(DType.FLOAT32, (count, *t.shape)) for t in (state, small)))
    rounds = Loop(("E", "Ds", "All"), stacks, body, count, ("X",), ("Z",), (), reverse)
    given = (Param("X", state), Param("Z", TensorType(DType.FLOAT32, (count, 4))))
    square = Elementwise("Q", stacks[1], "mul", ("Ds", "Ds"))
    return Program("f", given, (rounds, square), (("E", "E"), ("Ds", "Ds"), ("Q", "Q"), ("All", "All")))


@given(st.data(), st.integers(1, 3), st.integers(0, 2), st.booleans())
@settings(max_examples=25, deadline=None)
def test_loops_that_stack_compute_what_they_compute_uncut(
    data: st.DataObject, count: int, inner: int, reverse: bool
) -> None:
    program = scanned(count, inner, reverse)
    inputs, types = random_inputs(program), program.types()
    given_grids = {p.name: data.draw(grids(p.type.shape), p.name) for p in program.inputs}
    wanted = {name: data.draw(grids(types[name].shape)) for name in ("Ds", "Q") if data.draw(st.booleans())}
    part = partition(program, given_grids, wanted, exchange=data.draw(st.sampled_from([None, 1, 2])))
    same(run(part, inputs), tile_lang.evaluate(program, inputs))
    assert all(part.grids[dict(part.outputs)[name]] == grid for name, grid in wanted.items())


def test_rounds_that_stack_share_their_kernels_and_rows_are_no_copies() -> None:
    few, part = (partition(scanned(n, 0, False), {"X": Grid(((1,) * 5, (4,)))}, {}) for n in (4, 40))
    kernels = [{id(p.kernel(stage, task)) for stage in p.stages for task in p.tasks(stage)} for p in (few, part)]
    assert len(kernels[0]) == len(kernels[1])
    assert part.home("Ds", (7, 2, 0)) == (part.stacks["Ds"][7], (0, 2, 0))
    assert not {"Ds", "All"} & {stage.name for stage in part.stages}


def test_a_task_reads_its_chunk_and_the_neighbours_cells() -> None:
    part = partition(bound(STENCIL, X=(12, 12)), {"X": Grid(((4,) * 3, (4,) * 3))})
    (stage,) = part.stages
    reads = {task.place: task.needs.reads for task in part.tasks(stage)}
    assert reads[(0, 0)] == ((0, Box((0, 0), (5, 5))),)
    assert reads[(1, 1)] == ((0, Box((3, 3), (9, 9))),)
    assert reads[(2, 1)] == ((0, Box((7, 3), (12, 9))),)


def test_three_steps_read_three_cells_further() -> None:
    part = partition(bound(STENCIL, X=(30, 30)), {"X": Grid(((10,) * 3, (30,)))}, steps=3, exchange=3)
    (stage,) = part.stages
    middle = next(task for task in part.tasks(stage) if task.place == (1, 0))
    assert middle.needs.reads == ((0, Box((7, 0), (23, 30))),)


def test_chunks_away_from_the_borders_share_a_kernel() -> None:
    part = partition(bound(STENCIL, X=(800, 800)), {"X": Grid(((8,) * 100, (8,) * 100))})
    (stage,) = part.stages
    kernels = {id(part.kernel(stage, task)) for task in part.tasks(stage)}
    assert len(kernels) == 9


def test_a_sum_over_chunks_becomes_partial_sums() -> None:
    part = partition(bound(MATMUL, A=(6, 8), B=(8, 4)), {"A": Grid(((3, 3), (4, 4))), "B": Grid(((4, 4), (2, 2)))})
    (stage,) = part.stages
    assert (stage.grid.counts, stage.splits.counts) == ((2, 2), (2,))


@pytest.mark.parametrize(("depth", "splits"), [(8, 1), (16, 1), (64, 2), (512, 16)])
def test_short_chunks_of_a_sum_are_read_together_while_that_is_little_beside_the_result(
    depth: int, splits: int
) -> None:
    rows, along = (32, 32), (4,) * (depth // 4)
    part = partition(bound(MATMUL, A=(64, depth), B=(depth, 64)), {"A": Grid((rows, along)), "B": Grid((along, rows))})
    (stage,) = part.stages
    assert stage.splits.chunks == splits
    region = stage.walker.region(stage.middle)
    assert sum(box.size for _, box in region.reads) <= 2 * 32 * 32


def test_a_matrix_read_by_rows_and_by_columns_is_read_in_two_boxes() -> None:
    program = bound("function (X[M, K]) -> (C) { C[i, j : M, M] = +(X[i, k] * X[j, k]); }", X=(60, 4))
    part = partition(program, {"X": Grid(((20,) * 3, (4,)))})
    (stage,) = part.stages
    corner = next(task for task in part.tasks(stage) if task.place == (0, 2))
    assert [box.low for _, box in corner.needs.reads] == [(0, 0), (40, 0)]


def test_what_is_cheap_is_computed_again_and_what_is_dear_handed_on() -> None:
    cheap = partition(bound(SOFTMAX, X=(64, 64)), {"X": Grid(((32, 32), (16,) * 4))})
    assert [s.name for s in cheap.stages] == ["T_below", "R"]
    twice = "function (A[N, N], B[N, N]) -> (D) { C[i, j : N, N] = +(A[i, k] * B[k, j]); D[i, j : N, N] = +(C[i, k] * B[k, j]); }"
    rows = Grid(((1024,) * 4, (4096,)))
    dear = partition(bound(twice, A=(4096, 4096), B=(4096, 4096)), {"A": rows, "B": Grid(((4096,), (1024,) * 4))})
    assert [s.name for s in dear.stages] == ["C", "D"]


def test_maxima_of_cells_that_no_point_writes_are_zeros() -> None:
    program = bound("function (X[M, N]) -> (C) { C[i : M] = >(X[i, j]), i + j < 5; }", X=(8, 8))
    x = -1 - np.abs(whole_numbers(program)["X"])
    found = run(partition(program, {"X": Grid(((4, 4), (3, 5)))}), {"X": x})
    same(found, tile_lang.evaluate(program, {"X": x}))


def test_workers_exchange_edges_only() -> None:
    part = partition(bound(STENCIL, X=(4000, 4000)), {"X": Grid(((100,) * 40, (100,) * 40))})
    found = traffic(part, 10)
    assert (found.tasks, found.ratio) == (1600, 1.0)
    lines, crossings = 4 + 1, 4 * 1  # between five by two blocks of chunks
    assert found.moved == 4 * (2 * 4000 * lines + 4 * crossings)


@pytest.mark.parametrize("workers", [1, 10, 100, 1000])
def test_bytes_moved_are_near_the_fewest(workers: int) -> None:
    stencil = partition(bound(STENCIL, X=(3200, 3200)), {"X": Grid(((100,) * 32, (100,) * 32))}, steps=4, exchange=4)
    cut = Grid(((128,) * 8, (128,) * 8))
    product = partition(bound(MATMUL, A=(1024, 1024), B=(1024, 1024)), {"A": cut, "B": cut})
    assert traffic(stencil, workers).ratio <= 1.1
    assert traffic(product, workers).ratio <= 1.1


def test_the_table_names_stages_and_splits() -> None:
    text = partition(bound(SOFTMAX, X=(64, 64)), {"X": Grid(((32, 32), (16,) * 4))}).explain()
    assert text.splitlines()[0].split()[:5] == ["array", "type", "chunks", "splits", "tasks"]
    assert text.splitlines()[1].split()[:1] == ["T_below"]


def test_the_table_says_what_workers_exchange_and_hold() -> None:
    part = partition(bound(STENCIL, X=(64, 64)), {"X": Grid(((32, 32), (64,)))})
    assert part.explain(workers=2).splitlines()[-1] == (
        "2 workers: 2 tasks; 512 B moved, 512 B at least;"
        " at most 32.2 KiB on one, with all its chunks of every array and its largest task."
    )
    assert traffic(part, 2).held == 4 * (2 * 32 * 64 + 33 * 64 + 32 * 64)


@pytest.mark.parametrize(
    ("source", "shapes", "message"),
    [
        ("function (S[P, Q]) -> (R) { R = prng_value(prng_step(S, 8)); }", {"S": (3, 2048)}, "random numbers"),
    ],
)
def test_what_cannot_be_cut_is_refused(source: str, shapes: Mapping[str, tuple[int, ...]], message: str) -> None:
    types = {n: TensorType(DType.UINT32, s) for n, s in shapes.items()}
    program = tile_lang.bind(tile_lang.parse(source), types)
    with pytest.raises(TileTypeError, match=message):
        partition(program, {})


def test_grids_that_do_not_fit_are_refused() -> None:
    program = bound(MATMUL, A=(6, 8), B=(8, 4))
    with pytest.raises(TileTypeError, match=r"add up to \[6, 7\]"):
        partition(program, {"A": Grid(((6,), (7,)))})
    with pytest.raises(TileTypeError, match="no output 'D'"):
        partition(program, {}, {"D": Grid(((6,), (4,)))})


def test_steps_need_outputs_that_fit_the_inputs() -> None:
    with pytest.raises(TileTypeError, match="steps give each output"):
        partition(bound(MATMUL, A=(6, 8), B=(8, 4)), {}, steps=2)
