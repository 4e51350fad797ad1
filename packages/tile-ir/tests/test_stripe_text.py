"""The text form of Stripe: every field round-trips, the slides' examples parse, mistakes have positions."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tile_ir.contents import Contents
from tile_ir.diagnostics import Source, Span, TileLimitError, TileSyntaxError
from tile_ir.dtype import DType
from tile_ir.ops import OPS, Aggregation
from tile_ir.stripe import nodes, parser
from tile_ir.stripe.affine import Affine, DivMod, DivModOp
from tile_ir.stripe.parser import parse_block, parse_program
from tile_ir.stripe.printer import print_block, print_program, print_statement

# --- random trees over every field of nodes.py ---------------------------------------------------

NAMES = st.sampled_from(
    [
        "i",
        "x",
        "K1",
        "_T0",
        "O.1",
        "in",
        "block",
        "load",
        "axis",
        "inf",
        "nan",
        "true",
        "align",
        "odd name",
        "O!",
        "if",
        "new",
    ]
)
SCALARS = st.sampled_from(["$x", "$1", "$a.b", "$odd name", "$in"])
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=8)
LINES = st.lists(st.text("ab /:\"'`(){}\t", max_size=6), max_size=3).map("\n".join)
SMALL = st.integers(-5, 70)
NATURAL = st.integers(0, 9)
AFFINES = st.builds(Affine.of, st.dictionaries(NAMES, SMALL, max_size=3), SMALL)
FORMS = st.one_of(
    AFFINES, st.builds(DivMod, AFFINES, st.integers(1, 9), st.sampled_from(DivModOp), st.integers(-2, 3), AFFINES)
)


def tuples(items: st.SearchStrategy[Any], size: int = 3) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(items, max_size=size).map(tuple)


INDEXES = st.builds(
    nodes.Index,
    NAMES,
    NATURAL,
    st.none() | AFFINES,
    st.sampled_from(nodes.Order),
    st.sampled_from(nodes.Bind),
    NATURAL,
    NATURAL,
)
SWIZZLES = st.builds(nodes.Swizzle, NATURAL, NATURAL, NATURAL)
FRAGMENTS = st.builds(nodes.Fragment, tuples(FORMS), tuples(FORMS))


@st.composite
def types(draw: st.DrawFn) -> nodes.TensorType:
    rank = draw(st.integers(0, 3))
    sizes, strides = (tuple(draw(st.lists(SMALL, min_size=rank, max_size=rank))) for _ in range(2))
    layout = nodes.Layout(strides, draw(st.integers(1, 64)), draw(st.none() | SWIZZLES), draw(st.none() | FRAGMENTS))
    return nodes.TensorType(draw(st.sampled_from(DType)), sizes, layout)


LOCATIONS = st.builds(
    nodes.Location, st.sampled_from(["", "DRAM", "SRAM", "LO CAL"]), tuples(FORMS, 2), st.sampled_from(nodes.Scope)
)
TAGS = st.frozensets(st.sampled_from(["tmp", "user", "agg_op_add", "a=b c"]))
REFINEMENTS = st.builds(
    nodes.Refinement,
    dir=st.sampled_from(nodes.Direction),
    into=NAMES,
    source=st.just("") | NAMES,
    access=tuples(FORMS),
    type=types(),
    agg=st.none() | st.sampled_from(Aggregation),
    init=st.sampled_from(nodes.Init),
    acc=st.none() | st.sampled_from(DType),
    loc=LOCATIONS,
    offset=st.integers(0, 1 << 40),
    versions=NATURAL,
    bank_dim=st.none() | NATURAL,
    const=st.booleans(),
    hint=st.sampled_from(["", "streaming", 'a "quoted" one']),
    tags=TAGS,
)
AT = tuples(FORMS | SCALARS)
FLOATS = st.floats(allow_nan=False)
LITERALS = st.booleans() | st.integers(-(2**63), 2**64) | FLOATS
PARAMS = tuples(st.tuples(NAMES, st.integers(-9, 9) | FLOATS | TEXT), 2).filter(
    lambda p: len({k for k, _ in p}) == len(p)
)
LEAVES = st.one_of(
    st.builds(nodes.Load, SCALARS, NAMES, AT, st.booleans()),
    st.builds(nodes.Store, NAMES, SCALARS, AT, st.booleans(), st.booleans()),
    st.builds(nodes.Const, SCALARS, LITERALS, st.sampled_from(DType)),
    st.builds(nodes.LoadIndex, SCALARS, FORMS, st.sampled_from([DType.INT32, DType.INT64])),
    st.builds(nodes.Op, SCALARS, st.sampled_from(sorted(OPS)), tuples(SCALARS), st.sampled_from(DType)),
    st.builds(nodes.Reduce, SCALARS, SCALARS, st.sampled_from(Aggregation), tuples(NAMES), st.booleans()),
    st.builds(nodes.Transfer, NAMES, NAMES, TEXT, NATURAL),
    st.builds(nodes.Wait, NATURAL, NATURAL),
    st.builds(nodes.Sync, st.sampled_from(nodes.Scope), TEXT),
    st.builds(nodes.Special, TEXT, tuples(NAMES), tuples(NAMES), PARAMS),
)


INSTRS = st.builds(
    nodes.Instr,
    st.sampled_from(["dp4a", "mma.16x8x8", 'a"b']),
    tuples(st.tuples(st.sampled_from(["i", "co", "k_0"]), st.integers(-1, 64))),
    tuples(st.integers(-1, 32), 2),
)


@st.composite
def blocks(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> nodes.Block:
    body = draw(st.lists(inner, max_size=4))
    deps = [tuple(draw(st.sets(st.integers(0, i - 1), max_size=2))) if i else () for i in range(len(body))]
    return nodes.Block(
        name=draw(st.sampled_from(["", "main", "kernel_0(A, B)", "a // b", '"q"', " padded ", "two\nlines"])),
        indexes=draw(tuples(INDEXES)),
        constraints=draw(tuples(FORMS)),
        guard=draw(tuples(FORMS, 2)),
        refs=draw(tuples(REFINEMENTS, 2)),
        body=tuple(replace(s, deps=d) for s, d in zip(body, deps, strict=True)),
        loc=draw(st.none() | LOCATIONS),
        instr=draw(st.none() | INSTRS),
        tags=draw(TAGS),
        comment=draw(LINES),
    )


BLOCKS = blocks(st.recursive(LEAVES, blocks, max_leaves=6))
CONSTANTS = st.builds(nodes.ConstantBuffer, NAMES, types(), st.binary(max_size=9).map(Contents))
PROGRAMS = st.builds(nodes.Program, BLOCKS, tuples(CONSTANTS, 2), tuples(NAMES), tuples(NAMES))


@settings(max_examples=50)
@given(PROGRAMS)
def test_programs_round_trip(program: nodes.Program) -> None:
    assert parse_program(print_program(program)) == program


@settings(max_examples=50)
@given(BLOCKS, st.integers(0, 12))
def test_blocks_round_trip_with_any_number(block: nodes.Block, number: int) -> None:
    assert parse_block(print_block(block, number)) == block


@settings(max_examples=50)
@given(LEAVES)
def test_a_statement_is_one_line(statement: Any) -> None:
    assert "\n" not in print_statement(statement, 3)


def test_the_strategy_covers_every_statement_of_the_data_model() -> None:
    assert {c.__name__ for c in nodes.Statement.__args__} == {
        "Load", "Store", "Const", "LoadIndex", "Op", "Reduce", "Transfer", "Wait", "Sync", "Special", "Block",
    }  # fmt: skip


def field_changes() -> list[tuple[str, Any]]:
    """One non-default value for every field of a refinement and a block."""
    one = Affine.var("k")
    return [
        *(("Refinement", {name: value}) for name, value in {
            "dir": nodes.Direction.INOUT, "into": "J", "source": "S", "access": (one,), "agg": Aggregation.MAX,
            "type": nodes.TensorType.row_major(DType.INT8, (3,)), "init": nodes.Init.PARTIAL, "acc": DType.FLOAT64,
            "loc": nodes.Location("REG", (one,), nodes.Scope.THREAD), "offset": 64, "versions": 2, "bank_dim": 0,
            "const": True, "hint": "streaming", "tags": frozenset({"t"}),
        }.items()),
        *(("Block", {name: value}) for name, value in {
            "name": "n", "indexes": (nodes.Index("k", 3),), "constraints": (one,), "guard": (one,), "refs": (),
            "body": (), "loc": nodes.Location("CONV"), "instr": nodes.Instr("dp4a"), "tags": frozenset({"t"}), "comment": "c", "deps": (0,),
        }.items()),
    ]  # fmt: skip


def test_every_field_changes_the_text() -> None:
    ref = nodes.Refinement(nodes.Direction.IN, "I", "I", (Affine(),), nodes.TensorType.row_major(DType.FLOAT32, (1,)))
    block = nodes.Block("", refs=(ref,), body=(nodes.Load("$x", "I"),))
    seen: dict[str, set[str]] = {"Refinement": {"dir"}, "Block": {"origin"}}
    for owner, change in field_changes():
        changed = replace(block, refs=(replace(ref, **change),)) if owner == "Refinement" else replace(block, **change)
        assert print_block(changed) != print_block(block), change
        assert parse_block(print_block(changed)) == changed, change
        seen[owner] |= change.keys()
    assert seen["Refinement"] == {f.name for f in fields(nodes.Refinement)}
    assert seen["Block"] == {f.name for f in fields(nodes.Block)}


# --- the slides' examples (as printed; line ends after a comment are restored where the extraction joined lines) ----

LAYER_TEST7 = """
0: #program block [] ( // layer_test7
none new@0x00000000<[0]> I[0, 0, 0] i8(1024:32768, 1024:32, 32:1) none new@0x00000000<[0]> K1[0, 0, 0, 0] i8(3:6144, 3:2048, 32:64, 64:1) … none new@0x00000000<[0]> O3[0, 0, 0] i8(1024:65536, 1024:64, 64:1) ) { 0: #main block [] ( // main
in<[0]> I[0, 0, 0] i8(1024:32768, 1024:32, 32:1) in<[0]> K1[0, 0, 0, 0] i8(3:6144, 3:2048, 32:64, 64:1)
none new@0x00000000<[0]> O1[0, 0, 0] i8(1024:65536, 1024:64, 64:1) ) { 0: #agg_op_add #comb_op_mul #contraction #kernel block [ci:32, co:64, kx:3, ky:3, x:1024, y:1024] ( // O1[x, y, co : X, Y, C2] = +(I[-1 + kx + x, -1 + ky + y, ci] * K1[kx, ky, ci, co])
1024 - kx - x >= 0
1024 - ky - y >= 0
in<[0]> I[-1 + kx + x, -1 + ky + y, ci] i8(1:32768, 1:32, 1:1) in<[0]> K1[kx, ky, ci, co] i8(1:6144, 1:2048, 1:64, 1:1) ) { 0: $I = load(I) 1: $K1 = load(K1) 2: $O1 = mul($I, $K1) 3: O1 = store($O1) } 1: … } }
"""
TENSORIZE_BEFORE = """
0: #agg_op_add #comb_op_mul #contraction #kernel block [ci:32, co:64, kx:3, ky:3, x:1024, y:1024] ( // kernel_0 // O1[x, y, co : X, Y, C2] = +(I[-1 + kx + x, -1 + ky + y, ci] * K1[kx, ky, ci, co])
in<[0]> I[-1 + kx + x, -1 + ky + y, ci] i8(1:32768, 1:32, 1:1) in<[0]> K1[kx, ky, ci, co] i8(1:6144, 1:2048, 1:64, 1:1) ) { 0: $I = load(I); 1: $K1 = load(K1); 2: $O1 = mul($I, $K1); 3: O1 = store($O1) }
"""
TENSORIZE_AFTER = """
0: #agg_op_add #comb_op_mul #contraction #CONV #kernel block [ci:1, co:1, kx:1, ky:1, x:256, y:256] ( // kernel_0 // O1[x, y, co : X, Y, C2] = +(I[-1 + kx + x, -1 + ky + y, ci] * K1[kx, ky, ci, co])
in<DRAM[0]> I[kx + 4*x, ky + 4*y, 32*ci] i8(4:32768, 4:32, 32:1) in<DRAM[0]> K1[kx, ky, 32*ci, 16*co] i8(1:6144, 1:2048, 32:1, 16:32) ) { 0: #CONV_inner block [ci:32, co:64, kx:3, ky:3, x:4, y:4] ( // kernel_0
in<DRAM[0]> I[-1 + kx + x, -1 + ky + y, ci] i8(1:32768, 1:32, 1:1) in<DRAM[0]> K1[kx, ky, ci, co] i8(1:6144, 1:2048, 1:1, 1:32) ) { 0: $I = load(I); 1: $K1 = load(K1); 2: $O1 = mul($I, $K1); 3: O1 = store($O1) }}
"""
AUTOTILE_BEFORE = """
0: #conv block<CONV[0]> [ci:32, co:64, kx:3, ky:3, x:256, y:256] (
in<DRAM[0]> I[kx + x - 1, ky + y - 1, ci] i8(4:32768, 4:32, 32:1) in<DRAM[0]> K1[kx, ky, ci, co] i8(1:6144, 1:2048, 32:1, 64:32) ) { 0: $I = load(I); 1: $K1 = load(K1); 2: $O1 = mul($I, $K1); 3: O1 = store($O1) }
"""
AUTOTILE_AFTER = """
0: #conv block<CONV[0]> [ci:1, co:16, kx:3, ky:3, x:32, y:32] ( // kernel_0

in<DRAM[0]> I[kx + 8*x, ky + 8*y, ci] i8(16:32768, 16:32, 32:1) in<DRAM[0]> K1[kx, ky, ci, 4*co] i8(1:6144, 1:2048, 32:1, 64:32) ) { 0: <Elided memory xfers> 1: #conv_inner block<CONV[0]> [ci:32, co:4, kx:1, ky:1, x:8, y:8] ( // No halos as the tiling makes lots of 1x1 convolutions
in<SRAM[0]> I[-1 + kx + x, -1 + ky + y, ci] i8(1:32768, 1:32, 32:1) in<SRAM[0]> K1[kx, ky, ci, co] i8(1:6144, 1:2048, 32:1, 4:32) ) { 0: $I = load(I); 1: $K1 = load(K1); 2: $O1 = mul($I, $K1); 3: O1 = store($O1) } }
"""
FUSION_BEFORE = """
0: block [] ( // main
) {
0: #agg_op_add #comb_op_mul #CONV #contraction #kernel block [ci:64, co:128, i:3, j:3 x:100, y:100] ( // kernel_0 // O1[x, y, co : X, Y, CO1] = +(In[-1 + i + x, -1 + j + y, ci] * K1[i, j, ci, co])
) { 0: $In = load(In); 1: $K1 = load(K1); 2: $O1 = mul($In, $K1); 3: O1 = store($O1) } 1: #agg_op_add #comb_op_mul #CONV #contraction #kernel block [ci:128, co:128, x:100, y:100] ( // kernel_1 // O2[x, y, co : X, Y, CO2] = +(O1[i + x, j + y, ci] * K2[i, j, ci, co])
) { 0: $O1 = load(O1); 1: $K2 = load(K2); 2: $O2 = mul($O1, $K2); 3: O2 = store($O2) }
}
"""
FUSION_AFTER = """
0: #fused block [co:8, x:100, y:100] ( // kernel_0+kernel_1
… ) { 0: block [ci:64, co:16, i:3, j:3, x:1, y:1] (…
in<[0]> In[-1 + i + x, -1 + j + y, ci] fp32(1:640000, 1:6400, 1:64, 1:1) in<[0]> K1[i, j, ci, co] fp32(1:24576, 1:8192, 1:128, 1:1) ) { 0: $In = load(In); 1: $K1 = load(K1); 2: $O1 = mul($In, $K1); 3: O1 = store($O1) } 1: block [ci:64, co:16, x:1, y:1] (…
in<SRAM[0]> O1[x, y, ci] fp32(1:16, 1:16, 1:16, 1:1) in<[0]> K2[0, 0, ci, co] fp32(1:16384, 1:16384, 1:128, 1:1) ) { 0: $O1 = load(O1); 1: $K2 = load(K2); 2: $O2 = mul($O1, $K2); 3: O2 = store($O2) } }
"""
SLIDES = {
    "layer_test7": LAYER_TEST7, "tensorize_before": TENSORIZE_BEFORE, "tensorize_after": TENSORIZE_AFTER,
    "autotile_before": AUTOTILE_BEFORE, "autotile_after": AUTOTILE_AFTER,
    "fusion_before": FUSION_BEFORE, "fusion_after": FUSION_AFTER,
}  # fmt: skip


@pytest.mark.parametrize("name", list(SLIDES))
def test_the_slides_parse(name: str) -> None:
    block = parse_block(SLIDES[name])
    assert block.body
    assert parse_block(print_block(block)) == block


def test_the_fields_of_a_slide() -> None:
    program = parse_block(LAYER_TEST7)
    assert (program.name, program.tags) == ("layer_test7", {"program"})
    assert [r.into for r in program.refs] == ["I", "K1", "O3"]
    main = program.body[0]
    assert isinstance(main, nodes.Block)
    kernel = main.body[0]
    assert isinstance(kernel, nodes.Block)
    assert kernel.constraints == (Affine((("kx", -1), ("x", -1)), 1024), Affine((("ky", -1), ("y", -1)), 1024))
    assert kernel.refs[0].type.dtype is DType.INT8
    assert kernel.body[2] == nodes.Op("$O1", "mul", ("$I", "$K1"), DType.INT8)
    fused = parse_block(FUSION_AFTER).body[0]
    assert isinstance(fused, nodes.Block) and fused.body[2] == nodes.Op("$O1", "mul", ("$In", "$K1"), DType.FLOAT32)
    outer = parse_block(AUTOTILE_AFTER)
    assert outer.loc == nodes.Location("CONV", (Affine(),))
    assert len(outer.body) == 1


@pytest.mark.parametrize("scope", nodes.Scope)
def test_every_scope_has_a_name_of_its_own(scope: nodes.Scope) -> None:
    ref = nodes.Refinement(
        nodes.Direction.ALLOC, "F", "", (Affine(),), nodes.TensorType.row_major(DType.FLOAT32, (1,)),
        loc=nodes.Location("REG", scope=scope),
    )  # fmt: skip
    block = nodes.Block("b", refs=(ref,), body=(nodes.Sync(scope),))
    text = print_block(block)
    assert parse_block(text) == block
    assert (f"REG:{scope.value}" in text) == (scope is not nodes.Scope.DEVICE)
    assert f"scope={scope.value}" in text


# --- mistakes ------------------------------------------------------------------------------------

MISTAKES = {
    "0: block [i:32 ( ) { }": (1, 16, "cannot stand here"),
    "0: block [i:4] ( in A[i*i] f32(1:1) ) { }": (1, None, "not affine"),
    "0: block [i:4] ( in A[i] f33(1:1) ) { }": (1, 26, "no element type is called 'f33'"),
    "0: block [] ( ) {\n 0: $x = load(A, clmp=true) }": (2, 18, "no option 'clmp'"),
    "0: block [] ( ) {\n 0: frob(A) }": (2, 5, "'frob' is not a statement"),
    "0: block [] ( ) {\n 1[0]: $x = load(A) }": (None, None, "depends on 0"),
    "0: block [] ( ) { 0: $x = load(A) 0: $y = load(A) }": (None, None, "two statements"),
    "0: block [i] ( ) { }": (1, 11, "needs a range or a value"),
    "0: block [] ( ": (1, 15, "ends in the middle"),
    "0: block [] ( ) { 0: $x = (int32)foo }": (1, 34, "not a literal"),
    "0: block [i:" + "9" * 1000 + "] ( ) { }": (1, 13, "too many digits"),
    "0: wait(group=0)": (None, None, "a block is expected"),
    "0: block [] ( in A[] f32() {init=3} ) { }": (None, None, "a name is expected"),
    "0: block [] ( in A[]:plus f32() ) { }": (1, 22, "'plus' is not an aggregation"),
    "0: block [] ( ) { ? }": (1, 19, "no Stripe token"),
}


@pytest.mark.parametrize("text", list(MISTAKES), ids=lambda t: t[:30])
def test_mistakes_are_diagnosed(text: str) -> None:
    line, column, message = MISTAKES[text]
    with pytest.raises(TileSyntaxError) as caught:
        parse_block(text)
    (diagnostic,) = caught.value.diagnostics
    assert message in diagnostic.message
    assert (diagnostic.span and diagnostic.span.line) == line
    if column is not None:
        assert diagnostic.span and diagnostic.span.column == column


def test_deep_text_is_a_limit_error_not_a_recursion_error() -> None:
    with pytest.raises(TileLimitError):
        parse_block("0: block [] ( ) { " * 10_000)
    with pytest.raises(TileLimitError):
        parse_block("0: block [] ( " + "(" * 100_000)


def test_deep_blocks_print() -> None:
    block = nodes.Block("leaf")
    for _ in range(2_000):
        block = nodes.Block("b", body=(block,))
    assert print_block(block).count("block") == 2_001


# --- robustness ----------------------------------------------------------------------------------

TOKENS = [
    "(", ")", "[", "]", "{", "}", ",", ":", "=", "#", "$", "`", '"', "//", "/", "%", "*", "-", ">= 0", "0", "9", "0.5", "inf",
    "block", "if", "instr", "in", "none", "new@", "load", "store", "$x", "A", "x", "…", "fragment={lane=[x]}", "swizzle=[1]",
    'params=3', "outs=x", "hint=3", "init=[x]", "acc=0", "over=x", 'special("s", outs=3)', '// "', "transfer(A, unit=x)", "\n", "\\",
]  # fmt: skip
EVERYTHING = """0: #t block<CONV[0]> [i:32, j = 4*k #ordered, v:8 #vector(lanes=4)] if [k - 1 >= 0] instr "dp4a" ( // name
    8 - i%3 >= 0
    #tmp none new@0x40<LOCAL:group> T[0] int8(64:1) {align=64, swizzle=[1, 2, 3], fragment={lane=[d0], register=[]}, panel=8, versions=2}
    inout<SRAM[i]> A = P[i, 4*j]:add float32(16:64, 4:1) {init=identity, acc=float64, hint="x", bank=0, const=true}
) {
  0: $x = load(A[$i, j + 1], clamp=true)
  1[0]: A[$i] = store($x, atomic=true)
  2: $c = (float32)-0.5
  3: $m = reduce_max($x, over=[v], broadcast=false)
  4: T = transfer(A, unit="DMA", group=1, where=[i - 1, 7 - i%3])
  5: wait(group=1, pending=0)
  6: sync(scope=group, fence="local")
  7: special("s", outs=[A], ins=[T], params={k=1, w="x", f=0.5})
  8: $y = mul($x, $c):float32
}"""


@settings(max_examples=150)
@given(
    st.lists(
        st.tuples(st.integers(0, len(EVERYTHING)), st.integers(0, 12), st.sampled_from(TOKENS)), min_size=1, max_size=3
    )
)
def test_damaged_text_gives_a_diagnostic_or_a_block(edits: list[tuple[int, int, str]]) -> None:
    text = EVERYTHING
    for start, length, token in edits:
        text = text[:start] + token + text[start + length :]
    try:
        block = parse_block(text)
    except (TileSyntaxError, TileLimitError) as error:
        assert str(error)
    else:
        assert parse_block(print_block(block)) == block


VALUES = [
    "3",
    "x",
    "0.5",
    '"s"',
    "[x]",
    "[]",
    "[1, 2]",
    "{lane=3}",
    "{lane=3, register=[$x]}",
    "{}",
    "A[x]",
    "$x",
    "x + 1",
    "i%2",
]


@pytest.mark.parametrize("option", re.findall(r"(\w+)=(?:\[[^]]*\]|{.*?}(?!])|[^,)}{\[]+)[,)}]", EVERYTHING))
def test_an_option_of_the_wrong_kind_is_diagnosed(option: str) -> None:
    refused = 0
    for value in VALUES:
        text = re.sub(
            rf"\b{option}=(\[[^]]*\]|{{.*?}}(?=[,)])|[^,)}}{{\[]+)",
            lambda _, v=value: f"{option}={v}",
            EVERYTHING,
            count=1,
        )
        assert text != EVERYTHING
        try:
            parse_block(text)
        except TileSyntaxError as error:
            refused += bool(str(error))
    assert refused


def test_origins_are_not_part_of_the_text() -> None:
    block = parse_block(EVERYTHING)
    located = replace(block, origin=Span(Source("x"), 0, 1))
    assert print_block(located) == print_block(block)
    assert block.origin is None


def test_a_form_with_many_terms_is_read_quickly_or_refused() -> None:
    many = " + ".join(f"x{i}" for i in range(50_000))
    with pytest.raises(TileSyntaxError, match="too many terms"):
        parse_block(f"0: block [] ( {many} >= 0 ) {{ }}")


def test_the_grammar_is_written_out_into_few_rules() -> None:
    """The tables are made when a process reads its first text: a rule with seven parts that may be missing is 128."""
    assert len(parser._lark().rules) < 250  # pyright: ignore[reportPrivateUsage]
