"""The structural hash sees what a compiler sees, and no names or remarks."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from tile_ir.diagnostics import Source, Span
from tile_ir.dtype import DType
from tile_ir.ops import Aggregation
from tile_ir.stripe import nodes
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.hashing import structural_hash
from tile_ir.stripe.parser import parse_block

TEXT = """0: #kernel block [i:4, {z}:8] ( // outer
    // a remark
    in A[4*i, {z}] int32(4:8, 1:1)
    inout B = {b}[i, 0]:add int32(1:8, 8:1)
) {{
    0: #inner block [{a}:4, j = {z}] if [{z} - i >= 0] ( // inner
        {a} + j - 1 >= 0
        in A[{a}, j%2] int32(1:8, 1:1)
        inout B[0, {a}]:add int32(1:8, 1:1)
    ) {{ 0: ${x} = load(A) 1: $y = mul(${x}, ${x}) 2[1]: B = store($y) }}
}}"""
BASE = TEXT.format(z="z", b="B", a="a", x="x")


def test_names_tags_comments_and_origins_do_not_count() -> None:
    block = parse_block(BASE)
    assert structural_hash(block) == structural_hash(parse_block(BASE))
    # "z" sorts after "i" and "b0" before it: the order of an affine form's terms must not show.
    renamed = parse_block(TEXT.format(z="b0", b="T7", a="zz", x="other"))
    assert structural_hash(renamed) == structural_hash(block)
    plain = replace(block, name="", comment="", tags=frozenset(), origin=Span(Source("x"), 0, 1))
    assert structural_hash(plain) == structural_hash(block)


REF: dict[str, Any] = {
    "dir": nodes.Direction.OUT,
    "access": (Affine.var("i", 3), Affine.var("z")),
    "type": nodes.TensorType.row_major(DType.INT8, (4, 1)),
    "agg": Aggregation.MAX,
    "init": nodes.Init.IDENTITY,
    "acc": DType.INT64,
    "loc": nodes.Location("SRAM"),
    "offset": 4,
    "versions": 2,
    "bank_dim": 1,
    "const": True,
    "hint": "streaming",
}
BLOCK: dict[str, Any] = {
    "indexes": (nodes.Index("i", 4), nodes.Index("z", 8, bind=nodes.Bind.VECTOR, lanes=4)),
    "constraints": (Affine.var("z"),),
    "guard": (Affine.var("o"),),
    "refs": (),
    "body": (),
    "loc": nodes.Location("CONV"),
    "instr": nodes.Instr("dp4a"),
}


@pytest.mark.parametrize("name", list(REF))
def test_every_field_of_a_refinement_counts(name: str) -> None:
    block = parse_block(BASE)
    aggregating = replace(block.refs[1], agg=Aggregation.SUM)
    before = replace(block, refs=(block.refs[0], aggregating))
    after = replace(block, refs=(block.refs[0], replace(aggregating, **{name: REF[name]})))
    assert structural_hash(after) != structural_hash(before)
    assert {f.name for f in fields(nodes.Refinement)} == {*REF, "into", "source", "tags"}


@pytest.mark.parametrize("name", list(BLOCK))
def test_every_field_of_a_block_counts(name: str) -> None:
    block = parse_block(BASE)
    assert structural_hash(replace(block, **{name: BLOCK[name]})) != structural_hash(block)
    assert {f.name for f in fields(nodes.Block)} == {*BLOCK, "name", "tags", "comment", "deps", "origin"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("mul($x, $x)", "add($x, $x)"),
        ("2[1]:", "2[0]:"),
        ("a + j - 1", "a + j - 2"),
        ("j%2", "j/2"),
        ("if [z - i", "if [i - z"),
        ("A[a, j%2]", "A[j, a]"),
        ("i:4, z:8", "z:8, i:4"),
    ],
)
def test_changes_count(old: str, new: str) -> None:
    assert old in BASE
    assert structural_hash(parse_block(BASE.replace(old, new))) != structural_hash(parse_block(BASE))


def test_which_operand_is_which_counts() -> None:
    text = "0: block [] ( in A[] f32() in B[] f32() out C[] f32() ) {{ 0: $a = load(A) 1: $b = load(B) 2: $c = sub({}) 3: C = store($c) }}"
    hashes = {structural_hash(parse_block(text.format(args))) for args in ("$a, $b", "$b, $a", "$a, $a")}
    assert len(hashes) == 3


def test_the_same_buffer_twice_is_not_two_buffers() -> None:
    text = "0: block [] ( ) {{ 0: block [] ( in A = {}[] f32() in B = {}[] f32() ) {{ }} }}"
    assert structural_hash(parse_block(text.format("X", "X"))) != structural_hash(parse_block(text.format("X", "Y")))
