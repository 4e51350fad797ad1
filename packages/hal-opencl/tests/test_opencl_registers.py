"""Which kernels let NVIDIA's compiler have all registers of an item."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hal_opencl.emit.dialect import PLAIN, Dialect
from hal_opencl.emit.registers import HINTED, STATED, size_attribute
from hal_opencl.emit.source import emit_kernel
from tile_ir.dtype import DType
from tile_ir.kernels import Kernel
from tile_ir.semtree import nodes as s
from tile_ir.stripe.nodes import Block

PTX = Dialect(ptx=True)
INT = s.Type(DType.INT32)
INNER = s.For("i", s.Const(0, INT), s.Const(8, INT), 1, s.Block())
LOOP = s.For("k", s.Const(0, INT), s.Const(8, INT), 1, s.Block((s.Barrier(),)))
TILE = s.Var("tile", s.Type(DType.FLOAT32, ptr=True, space=s.Space.LOCAL))
FILL = s.For(
    "k",
    s.Const(0, INT),
    s.Const(8, INT),
    1,
    s.Block((s.Store(TILE, s.Const(0, INT), s.Const(0.0, s.Type(DType.FLOAT32))),)),
)
FILLED = s.For("k", s.Const(0, INT), s.Const(8, INT), 1, s.Block((s.Barrier(), *FILL.body.body)))
AROUND = s.For("k", s.Const(0, INT), s.Const(8, INT), 1, s.Block((s.Barrier(), INNER)))


def kernel(*, items: int = 256, flops: int = 1000, loops: tuple[s.For, ...] = (LOOP,), subgroup: int = 0) -> Kernel:
    function = s.Function("f", (), s.Block(loops), (items, 1, 1), subgroup)
    return Kernel("f", Block("f"), function, (1, 1, 1), flops, bytes=100)


def attribute(made: Kernel, dialect: Dialect = PTX) -> str:
    assert made.function is not None
    return size_attribute(made, made.function, dialect)


@pytest.mark.parametrize(
    "loops",
    [(), (LOOP,), (INNER, INNER), (s.For("i", s.Const(0, INT), s.Const(8, INT), 1, s.Block((FILLED,))),)],
    ids=["straight", "steps", "loops of items", "steps in a loop"],
)
def test_arithmetic_has_the_registers(loops: tuple[s.For, ...]) -> None:
    assert attribute(kernel(loops=loops)) == HINTED


@pytest.mark.parametrize(
    "made",
    [
        kernel(flops=400),
        kernel(items=512),
        kernel(loops=(LOOP, LOOP)),
        kernel(loops=(AROUND,)),
        kernel(loops=(FILL,)),
        kernel(subgroup=32),
        replace(kernel(), flops=0, bytes=0),
    ],
    ids=[
        "bound by memory",
        "a large group",
        "several versions",
        "steps of loops",
        "boxes in local memory",
        "matrix instructions",
        "unknown",
    ],
)
def test_others_have_the_compilers_guess(made: Kernel) -> None:
    assert attribute(made) == STATED


def test_other_makers_are_told_the_size() -> None:
    assert attribute(kernel(), PLAIN) == STATED
    assert "reqd_work_group_size(256, 1, 1)" in emit_kernel(kernel(), PLAIN).text
    assert "work_group_size_hint(256, 1, 1)" in emit_kernel(kernel(), PTX).text
