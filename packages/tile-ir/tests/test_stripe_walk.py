"""What statements define, use and mention, on one block that holds every kind."""

from dataclasses import fields
from typing import get_args

import pytest
from tile_ir.stripe import nodes
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.walk import (
    blocks_in,
    buffers_named,
    buffers_read,
    buffers_written,
    defined,
    forms_in,
    index_names,
    scalars_used,
    with_indexes,
    with_scalars,
)

ROW = Affine.var("i")
F32 = nodes.TensorType.row_major(nodes.DType.FLOAT32, (4,))
INNER = nodes.Block(
    "inner",
    indexes=(nodes.Index("i", 1, ROW), nodes.Index("j", 2)),
    guard=(ROW,),
    refs=(
        nodes.Refinement(nodes.Direction.IN, "a", "A", (ROW,), F32),
        nodes.Refinement(nodes.Direction.INOUT, "b", "B", (ROW,), F32),
        nodes.Refinement(nodes.Direction.ALLOC, "own", "", (Affine(),), F32),
    ),
)
SAMPLES: dict[type, tuple[nodes.Statement, str | None, tuple[str, ...], set[str], set[str], set[str]]] = {
    nodes.Load: (nodes.Load("$x", "A", (ROW, "$k")), "$x", ("$k",), {"A"}, set(), {"i"}),
    nodes.Store: (nodes.Store("A", "$x", ("$k", ROW)), None, ("$x", "$k"), set(), {"A"}, {"i"}),
    nodes.Const: (nodes.Const("$c", 1, nodes.DType.INT32), "$c", (), set(), set(), set()),
    nodes.LoadIndex: (nodes.LoadIndex("$n", ROW), "$n", (), set(), set(), {"i"}),
    nodes.Op: (nodes.Op("$y", "mul", ("$x", "$x"), nodes.DType.INT32), "$y", ("$x", "$x"), set(), set(), set()),
    nodes.Reduce: (nodes.Reduce("$r", "$x", nodes.Aggregation.SUM, ("i",)), "$r", ("$x",), set(), set(), set()),
    nodes.Transfer: (nodes.Transfer("B", "A"), None, (), {"A"}, {"B"}, set()),
    nodes.Wait: (nodes.Wait(), None, (), set(), set(), set()),
    nodes.Sync: (nodes.Sync(), None, (), set(), set(), set()),
    nodes.Special: (nodes.Special("f", ("B",), ("A",)), None, (), {"A"}, {"B"}, set()),
    nodes.Block: (INNER, None, (), {"A", "B"}, {"B"}, {"i"}),
}
"""Kind -> a statement, what it defines, the scalars it reads, buffers read and written, index names."""


def test_every_kind_of_statement_has_a_sample() -> None:
    assert set(SAMPLES) == set(get_args(nodes.Statement))


@pytest.mark.parametrize("kind", SAMPLES, ids=lambda k: k.__name__)
def test_what_a_statement_defines_and_uses(kind: type) -> None:
    statement, name, scalars, read, written, indexes = SAMPLES[kind]
    assert defined(statement) == name
    assert scalars_used(statement) == scalars
    assert (set(buffers_read(statement)), set(buffers_written(statement))) == (read, written)
    assert buffers_named(statement) == read | written
    assert index_names(statement) == indexes


@pytest.mark.parametrize("kind", SAMPLES, ids=lambda k: k.__name__)
def test_scalars_and_indexes_are_replaced_and_nothing_else_changes(kind: type) -> None:
    statement, _, scalars, *_, indexes = SAMPLES[kind]
    renamed = with_scalars(statement, {"$x": "$x2", "$k": "$k2"})
    assert scalars_used(renamed) == tuple(f"{s}2" for s in scalars)
    assert {f.name for f in fields(renamed) if getattr(renamed, f.name) != getattr(statement, f.name)} <= {
        "src",
        "at",
        "args",
    }
    moved = with_indexes(statement, {"i": Affine.var("outer", 4) + 1})
    assert index_names(moved) == ({"outer"} if indexes else set())
    assert len(forms_in(moved)) == len(forms_in(statement))


def test_blocks_come_outermost_first() -> None:
    a = nodes.Block("a", body=(nodes.Block("b", body=(nodes.Sync(),)), nodes.Wait()))
    main = nodes.Block("main", body=(a, nodes.Block("c")))
    assert [b.name for b in blocks_in(main)] == ["main", "a", "b", "c"]
