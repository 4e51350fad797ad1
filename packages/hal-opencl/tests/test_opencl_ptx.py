"""Helpers in PTX inside OpenCL C: the instructions that they are."""

from __future__ import annotations

import pytest
from hal_opencl.emit import ptx
from hal_opencl.emit.dialect import PLAIN, Dialect
from hal_opencl.emit.printer import OpenCLPrinter
from tile_ir.dtype import DType
from tile_ir.ops import Aggregation
from tile_ir.semtree import parse_function
from tile_ir.semtree.errors import SemtreeError
from tile_ir.semtree.nodes import Space, Type


@pytest.mark.parametrize(("op", "lanes"), [("max", 1), ("min", 4)])
def test_extremes_are_one_instruction_a_lane(op: str, lanes: int) -> None:
    type = Type(DType.FLOAT32, lanes)
    text = ptx.extreme(f"f_{op}", op, type)
    assert text.count(f"{op}.NaN.f32") == lanes


@pytest.mark.parametrize(
    ("agg", "dtype", "instruction"),
    [
        (Aggregation.SUM, DType.INT64, "red.global.add.u64"),
        (Aggregation.MAX, DType.UINT32, "red.global.max.u32"),
        (Aggregation.MIN, DType.INT32, "red.global.min.s32"),
    ],
)
def test_integers_merge_in_memory_by_an_instruction_that_gives_nothing_back(
    agg: Aggregation, dtype: DType, instruction: str
) -> None:
    assert instruction in ptx.merge("f", agg, dtype)


@pytest.mark.parametrize(
    ("agg", "dtype", "found"),
    [
        (Aggregation.SUM, DType.INT64, ("atom.shared.add.u32 old, [%0], low", "addc.u32 high", "red.shared.add.u32 [%0+4], high")),
        (Aggregation.MAX, DType.UINT32, ("ld.volatile.shared.u32", "setp.lt.u32", "@beyond red.shared.max.u32")),
        (Aggregation.MIN, DType.INT64, ("ld.volatile.shared.s64", "setp.gt.s64", "@beyond red.shared.min.s64")),
    ],
)  # fmt: skip
def test_integers_merge_in_local_memory_by_words_and_where_they_change_something(
    agg: Aggregation, dtype: DType, found: tuple[str, ...]
) -> None:
    maker = ptx.merger(Space.LOCAL, agg, dtype.bits)
    assert maker is not None and all(part in maker("f", agg, dtype) for part in found)
    assert (
        ptx.merger(Space.LOCAL, Aggregation.SUM, 32) is None and ptx.merger(Space.LOCAL, Aggregation.PROD, 64) is None
    )


@pytest.mark.parametrize(
    ("dtype", "words"), [(DType.FLOAT32, 1), (DType.FLOAT16, 1), (DType.INT8, 1), (DType.BOOL, 1), (DType.FLOAT64, 2)]
)
def test_lanes_hand_on_words(dtype: DType, words: int) -> None:
    text = ptx.shuffle("f", "shuffle_xor", dtype)
    assert text.count("shfl.sync.bfly.b32") == words


@pytest.mark.parametrize(
    ("op", "instruction"), [("reduce_max", "redux.sync.max.s32"), ("shuffle_down", "shfl.sync.down.b32")]
)
def test_collectives_are_written_where_there_is_ptx(op: str, instruction: str) -> None:
    other = "" if op.startswith("reduce") else ", 1"
    text = f"""function f(write global int32* out, read global int32* a) group(32, 1, 1) subgroup(32) {{
        out[local_id(0)] = subgroup("{op}", a[local_id(0)]{other});
    }}"""
    function = parse_function(text)
    printer = OpenCLPrinter(dialect=Dialect(ptx=True))
    printer.program(function)
    assert any(instruction in helper for helper in printer.preamble.values())
    with pytest.raises(SemtreeError, match="needs PTX"):
        OpenCLPrinter(dialect=PLAIN).program(function)
