"""Tiles of vectors transposed by shuffles, for every shape and element size."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np
import pytest
import tile_lang
import tile_opt
from explain_support import compiled
from model_support import processor
from tile_ir.diagnostics import Source
from tile_ir.dtype import DType
from tile_ir.program.nodes import TensorType
from tile_ir.semtree.nodes import Expr, Let, Shuffle, Type, Var
from tile_ir.semtree.printer import print_function
from tile_ir.stripe.interpret import run
from tile_ir.stripe.nodes import Bind
from tile_ir.stripe.walk import blocks_in
from tile_opt.lowering.builder import Builder
from tile_opt.lowering.transpose import columns
from tile_opt.plan.text import parse_plans


def _evaluated(builder: Builder, values: dict[str, list[int]]) -> dict[str, list[int]]:
    """What every variable of the builder's statements holds, from the rows."""
    for statement in builder.scope.statements:
        assert isinstance(statement, Let)
        shuffle = statement.value
        assert isinstance(shuffle, Shuffle)
        assert isinstance(shuffle.left, Var)
        assert isinstance(shuffle.right, Var)
        both = values[shuffle.left.name] + values[shuffle.right.name]
        values[statement.name] = [both[lane] for lane in shuffle.lanes]
        assert shuffle.type.lanes == len(shuffle.lanes)
    return values


def _names(found: Sequence[Expr]) -> list[str]:
    assert all(isinstance(vector, Var) for vector in found)
    return [vector.name for vector in found if isinstance(vector, Var)]


@pytest.mark.parametrize("dtype", [DType.UINT8, DType.FLOAT16, DType.FLOAT64])
@pytest.mark.parametrize("width", [1, 2, 4, 8, 16, 32])
def test_columns_hold_an_element_of_each_row(dtype: DType, width: int) -> None:
    for count in range(1, width + 1):
        builder = Builder(DType.INT64)
        rows = [Var(f"row{r}", Type(dtype, width)) for r in range(count)]
        found = _names(columns(builder, rows))
        values = _evaluated(builder, {f"row{r}": [r * 100 + c for c in range(width)] for r in range(count)})
        assert [values[name] for name in found] == [[r * 100 + c for r in range(count)] for c in range(width)]


def test_a_square_takes_as_many_shuffles_as_steps_times_rows() -> None:
    builder = Builder(DType.INT64)
    columns(builder, [Var(f"row{r}", Type(DType.FLOAT32, 16)) for r in range(16)])
    assert len(builder.scope.statements) == 16 * 4


@pytest.mark.parametrize("width", [3, 5, 8, 9, 12, 13, 15])
def test_rows_of_any_length_are_transposed_whole(width: int) -> None:
    """Each row of a tile is one vector, and shuffles alone make its columns."""
    source = "function (A[M, N]) -> (O) { O[j, i : N, M] = =(A[i, j]); }"
    plan = """
        plan kernel_0 {
          serial j:16
          serial i:16
            stage A in REG as [i, j]
          unroll j:1
          vector i:1 x16
        }"""
    made = compiled(source, replace(processor("zen4"), codegen="semtree"), plans=parse_plans(plan), A=(64, width))
    (kernel,) = made.kernels.kernels
    assert kernel.function is not None
    code = print_function(kernel.function)
    assert "shuffle" in code and "insert" not in code
    assert f"float32x{width}" in code


@pytest.mark.parametrize("shape", [(3, 9, 20), (2, 17, 5), (5, 3, 2), (7, 33, 16)])
def test_short_runs_of_a_result_are_transposed_too(shape: tuple[int, ...]) -> None:
    """Channels that go last: a run of few elements, and beside it the run of the next point."""
    source = "function (A[C, Y, X]) -> (O) { O[x, y, c : X, Y, C] = =(A[c, y, x]); }"
    made = compiled(source, processor("zen4"), A=shape)
    assert {d.plan.reason for d in made.decisions.values()} == {"transposed in registers"}
    value = np.arange(prod(shape), dtype=np.float32).reshape(shape)
    np.testing.assert_array_equal(run(made.stripe, {"A": value})["O"], value.transpose(2, 1, 0))


@pytest.mark.parametrize(("side", "innermost"), [(513, "i"), (723, "j"), (1025, "j")])
def test_crowded_sets_make_tiles_follow_each_other_along_the_result(side: int, innermost: str) -> None:
    """Rows of 2,052 bytes: those of a block lose their lines before the next tile comes, those of a tile find room."""
    source = "function (A[N, M]) -> (O) { O[j, i : M, N] = =(A[i, j]); }"
    made = compiled(source, processor("zen4"), A=(side, side))
    (decision,) = made.decisions.values()
    assert [level.covers[-1].loop for level in decision.plan.levels if level.bind is Bind.NONE][-1] == innermost


@pytest.mark.parametrize("name", ["zen4", "xeon"])
@pytest.mark.parametrize(
    ("shape", "copied", "rows"),
    [
        ((1023, 704), True, 16),
        ((1023, 1023), True, 8),
        ((704, 1023), False, 8),
        ((723, 723), False, 16),
        ((3001, 2048), False, 8),
    ],
)
def test_rows_that_share_a_set_are_few_in_a_tile_and_leave_by_a_copy(
    name: str, shape: tuple[int, int], copied: bool, rows: int
) -> None:
    """Operands are read fewer rows at a time; results that the caches hold are put together in the first one."""
    source = "function (A[N, M]) -> (O) { O[j, i : M, N] = =(A[i, j]); }"
    made = compiled(source, processor(name, cores=4), A=shape)
    (decision,) = made.decisions.values()
    assert [s.operand for s in decision.plan.stagings] == (["O", "A"] if copied else ["A"])
    assert decision.plan.levels[-1].lanes == rows


@pytest.mark.parametrize(("shape", "whole"), [((400, 104, 96), True), ((2, 1040, 960), False)])
def test_rows_stay_whole_where_the_loops_around_make_the_groups(shape: tuple[int, ...], whole: bool) -> None:
    source = "function (A[L, N, M]) -> (O) { O[l, j, i : L, M, N] = =(A[l, i, j]); }"
    made = compiled(source, processor("zen4"), A=shape)
    (decision,) = made.decisions.values()
    (grid,) = [level.covers for level in decision.plan.levels if level.bind is Bind.GRID]
    assert ({c.loop for c in grid} == {"l"}) == whole


@pytest.mark.parametrize(("rows", "outermost"), [(1024, "i"), (1001, "i"), (16, "j")])
def test_permuted_rows_are_read_as_they_lie_where_they_leave_the_caches(rows: int, outermost: str) -> None:
    source = "function (A[N, M, K]) -> (O) { O[j, i, k : M, N, K] = =(A[i, j, k]); }"
    made = compiled(source, processor("zen4"), A=(160, 160, rows))
    (decision,) = made.decisions.values()
    walk = [c.loop for level in decision.plan.levels for c in level.covers if c.loop in "ij"]
    assert walk[0] == outermost


@pytest.mark.parametrize(
    ("dtype", "columns", "strip"),
    [(DType.UINT8, 512, 64), (DType.FLOAT16, 512, 32), (DType.FLOAT32, 512, 16), (DType.UINT8, 520, 16)],
)
def test_tiles_of_narrow_elements_fill_the_lines_of_the_result(dtype: DType, columns: int, strip: int) -> None:
    text = Source("function (A[N, M]) -> (O) { O[j, i : M, N] = =(A[i, j]); }", "transpose.tile")
    program = tile_lang.bind(tile_lang.parse(text), {"A": TensorType(dtype, (columns, 704))}, name="transpose")
    (decision,) = tile_opt.compile(program, processor("zen4")).decisions.values()
    inside = [level.covers[0] for level in decision.plan.levels if level.bind is Bind.NONE]
    assert next(c.size for c in inside if c.loop == "i") == strip


@pytest.mark.parametrize("shape", [(130, 90), (128, 64), (77, 200), (193, 33)])
def test_a_copy_of_the_result_leaves_in_whole_rows(shape: tuple[int, int]) -> None:
    """Blocks that end inside a copy, and rows that end inside a vector, are stored as far as they go."""
    source = "function (A[N, M]) -> (O) { O[j, i : M, N] = =(A[i, j]); }"
    plan = """
        plan kernel_0 {
          grid j:64 i:64
          serial j:32
          serial i:64
            stage O in L1 as [j, i] pad 16
          serial i:8
          serial j:16
            stage A in REG as [i, j]
          unroll j:1
          vector i:1 x8
        }"""
    made = compiled(source, processor("zen4"), plans=parse_plans(plan), A=shape)
    value = np.arange(prod(shape), dtype=np.float32).reshape(shape)
    np.testing.assert_array_equal(run(made.stripe, {"A": value})["O"], value.T)
    (kernel,) = made.kernels.kernels
    stores = [b for b in blocks_in(kernel.stripe) if b.name == "O_l1_store"]
    assert stores
    for block in stores:
        vectors = {i.name for i in block.indexes if i.bind is Bind.VECTOR}
        assert vectors.isdisjoint({n for c in block.constraints for n in c.names})


@pytest.mark.parametrize(
    ("shape", "innermost"), [((100003, 48), "i"), ((1003, 48), "j"), ((2003, 3001), "j"), ((300001, 16), "i")]
)
def test_results_in_memory_are_written_a_few_rows_at_a_time(shape: tuple[int, int], innermost: str) -> None:
    """Where a block of the operand lies on few pages, whose lines wait in the second cache."""
    source = "function (A[N, M]) -> (O) { O[j, i : M, N] = =(A[i, j]); }"
    made = compiled(source, processor("zen4"), A=shape)
    (decision,) = made.decisions.values()
    assert [level.covers[-1].loop for level in decision.plan.levels if level.bind is Bind.NONE][-1] == innermost


def test_a_factor_for_each_row_leaves_rows_whole() -> None:
    """Lines of what is read across rows are no group's alone; one number a row is no line."""
    made = compiled(
        "function (A[M, N], S[M]) -> (O) { O[i, j : M, N] = =(A[i, j] * S[i]); }",
        processor("zen4"),
        A=(240, 16384),
        S=(240,),
    )
    (decision,) = made.decisions.values()
    grid = next(level for level in decision.plan.levels if level.bind is Bind.GRID)
    assert [cover.loop for cover in grid.covers] == ["i"]
