"""Stores past the caches: only of whole lines, whatever the kernel that stores."""

from __future__ import annotations

import pytest
from contraction_samples import contraction, p
from tile_ir.dtype import DType
from tile_ir.machine import Machine, VectorUnit
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import Param, Program, TensorType
from tile_ir.semtree.verify import OPTIONAL_NODES
from tile_ir.stripe.printer import print_program
from tile_ir.target import HardwareSettings, PassConfig, Target
from tile_opt.pipeline import optimize
from tile_opt.translate import to_stripe

PASSES = tuple(PassConfig(n) for n in ("fuse", "merge", "stream", "schedule_kernels"))
PROCESSOR = Target(
    "small",
    HardwareSettings(vector_bytes=64, registers=32, l3_bytes=1 << 14),
    nodes=OPTIONAL_NODES,
    passes=PASSES,
    machine=Machine(vector=VectorUnit(registers=32, bytes=64)),
)


def transpose(rows: int, columns: int) -> Program:
    i, j = p(i=1), p(j=1)
    made = contraction(([i, j], [rows, columns]), ([j, i], [columns, rows]), agg=Aggregation.ASSIGN)
    return Program("transpose", (Param("A", TensorType(DType.FLOAT32, (columns, rows))),), (made,), (("O", "O"),))


@pytest.mark.parametrize("rows", [512, 1000])
@pytest.mark.parametrize(("columns", "streams"), [(64, True), (16, True), (27, False), (30, False), (100, False)])
def test_a_transpose_streams_whole_lines_only(rows: int, columns: int, streams: bool) -> None:
    made = optimize(to_stripe(transpose(rows, columns)), PROCESSOR)
    assert ('hint="streaming"' in print_program(made)) == streams


@pytest.mark.parametrize(("columns", "fetched"), [(64, False), (27, False), (100, True)])
def test_lines_of_rows_that_go_on_later_are_fetched_before(columns: int, fetched: bool) -> None:
    """A vector in each of many rows at a time, none of which begins at a line; of short rows nothing is left to go on with."""
    made = print_program(optimize(to_stripe(transpose(1000, columns)), PROCESSOR))
    assert ('hint="prefetch"' in made) == fetched


@pytest.mark.parametrize(("rows", "streams"), [(47, False), (48, True)])
def test_what_the_cache_holds_whole_stays_in_it(rows: int, streams: bool) -> None:
    """A copy of rows of 128 bytes: three quarters of 16 KB are 48 rows that are read and 48 that are written."""
    i, j = p(i=1), p(j=1)
    made = contraction(([i, j], [rows, 32]), ([i, j], [rows, 32]), agg=Aggregation.ASSIGN)
    copied = Program("copied", (Param("A", TensorType(DType.FLOAT32, (rows, 32))),), (made,), (("O", "O"),))
    assert ('hint="streaming"' in print_program(optimize(to_stripe(copied), PROCESSOR))) == streams


@pytest.mark.parametrize(("read", "streams"), [(8, False), (60, True)])
def test_of_a_large_operand_what_is_read_counts(read: int, streams: bool) -> None:
    """Rows of 128 bytes from a table four times as large as the cache."""
    i, j = p(i=1), p(j=1)
    made = contraction(([i, j], [read, 32]), ([i, j], [512, 32]), agg=Aggregation.ASSIGN)
    copied = Program("copied", (Param("A", TensorType(DType.FLOAT32, (512, 32))),), (made,), (("O", "O"),))
    assert ('hint="streaming"' in print_program(optimize(to_stripe(copied), PROCESSOR))) == streams
