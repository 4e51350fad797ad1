"""The text form of semtree: every node and field survives printing and parsing."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tile_ir.diagnostics import TileSyntaxError
from tile_ir.dtype import DType
from tile_ir.emit.walker import same, walk_all, walk_functions, walk_statements
from tile_ir.ops import Aggregation
from tile_ir.semtree import nodes as s
from tile_ir.semtree import parse_function, print_function
from tile_ir.semtree.printer import BINARY_SYMBOLS, COMPARE_SYMBOLS, FUNCTIONS, KEYWORDS, print_expr

F32, I32, I64, BOOL = (s.Type(d) for d in (DType.FLOAT32, DType.INT32, DType.INT64, DType.BOOL))
WORDS = [*sorted(KEYWORDS), *sorted(FUNCTIONS), "float32", "int8x4", "a", "i", "x_1", "weird name`\\\n", "", "2a", "éa"]

names = st.sampled_from(WORDS)
types = st.builds(s.Type, st.sampled_from(DType), st.sampled_from([1, 1, 2, 8]))
memory_types = st.builds(
    s.Type,
    st.sampled_from(DType),
    st.sampled_from([1, 4]),
    st.sampled_from([0, 16]),
    st.sampled_from(s.Space),
    st.booleans(),
)
any_types = types | types | memory_types
numbers = (
    st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.booleans()
    | st.sampled_from([math.inf, -math.inf, -0.0, 1e-300])
)
texts = st.text(max_size=8)


def leaves():
    return (
        st.builds(s.Const, numbers, any_types)
        | st.builds(s.Var, names, any_types)
        | st.builds(s.Iota, types)
        | st.builds(s.Limit, st.sampled_from(["min", "max"]), any_types)
        | st.builds(s.WorkId, st.sampled_from(s.IdKind), st.integers(0, 3), types)
    )


def inner(e):
    many = st.lists(e, max_size=3).map(tuple)
    lanes = st.integers(0, 9)
    return (
        st.builds(s.Load, e, e, any_types, st.none() | e, st.sampled_from([0, 64]))
        | st.builds(s.Unary, st.sampled_from(["neg", "abs", "bit_not"]), e, any_types)
        | st.builds(s.Binary, st.sampled_from([*BINARY_SYMBOLS, "max", "min"]), e, e, any_types)
        | st.builds(s.Compare, st.sampled_from(list(COMPARE_SYMBOLS)), e, e, any_types)
        | st.builds(s.Fma, e, e, e, any_types)
        | st.builds(s.Select, e, e, e, any_types)
        | st.builds(s.Cast, e, any_types)
        | st.builds(s.Call, names, many, any_types)
        | st.builds(s.Splat, e, any_types)
        | st.builds(s.Extract, e, lanes, any_types)
        | st.builds(s.Insert, e, lanes, e, any_types)
        | st.builds(s.Shuffle, e, e, st.lists(lanes, max_size=4).map(tuple), any_types)
        | st.builds(s.ReduceLanes, st.sampled_from(Aggregation), e, any_types)
        | st.builds(s.SubgroupOp, texts, many, any_types)
        | st.builds(s.Round, e, lanes, any_types)
        | st.builds(s.MatrixLoad, e, e, st.booleans(), any_types)
        | st.builds(s.Mma, st.tuples(lanes, lanes, lanes), many, many, many, any_types)
    )


exprs = st.recursive(leaves(), inner, max_leaves=6)


def natural(expr):
    """The same node with the type that the text leaves out."""
    from tile_ir.semtree.typing import natural_type

    t = natural_type(expr)
    return (
        expr
        if t is None or not hasattr(expr, "type")
        else type(expr)(**{f: getattr(expr, f) for f in expr.__slots__} | {"type": t})
    )


mixed = exprs | exprs.map(natural)


def simple_statements():
    small = st.integers(0, 99)
    return (
        st.builds(s.Let, names, mixed, st.booleans())
        | st.builds(s.Assign, names, mixed)
        | st.builds(
            s.Store,
            mixed,
            mixed,
            mixed,
            st.none() | mixed,
            st.sampled_from([0, 4]),
            st.sampled_from(["", "streaming", '"']),
        )
        | st.builds(s.Alloc, names, any_types, st.sampled_from([4, 64]))
        | st.builds(s.Barrier, texts, texts)
        | st.builds(s.Atomic, st.sampled_from(Aggregation), mixed, mixed, mixed)
        | st.builds(s.AsyncCopy, mixed, mixed, mixed, mixed, small, st.none() | mixed, small, st.sampled_from([0, 16]))
        | st.builds(s.TensorCopy, mixed, mixed, mixed, st.tuples(mixed), *[st.tuples(small)] * 4, small)
        | st.builds(s.AsyncWait, small, small)
        | st.builds(s.TileStep, st.just("tile_load"), st.tuples(small), mixed, mixed, small)
        | st.builds(s.TileStep, st.just("tdpbusd"), st.tuples(small, small, small))
        | st.builds(s.CallFn, names, st.lists(mixed, max_size=3).map(tuple))
        | st.builds(s.Comment, texts)
        | st.just(s.Return())
    )


def blocks_of(statements):
    return st.lists(statements, max_size=4).map(tuple).map(s.Block)


def compound(statement):
    body = blocks_of(statement)
    return (
        body
        | st.builds(s.For, names, mixed, mixed, st.integers(-2, 9), body, st.sampled_from(s.Unroll))
        | st.builds(s.If, mixed, body, st.none() | body)
        | st.builds(s.While, mixed, body)
    )


bodies = blocks_of(st.recursive(simple_statements(), compound, max_leaves=6))
params = st.builds(
    s.Param, names, any_types, st.sampled_from(s.Access), st.integers(0, 64), st.integers(0, 9), st.none() | names
)


def functions_with(helpers):
    return st.builds(
        s.Function, names, st.lists(params, max_size=3).map(tuple), bodies,
        st.tuples(*[st.integers(1, 9)] * 3), st.integers(0, 32), helpers,
    )  # fmt: skip


functions = functions_with(st.lists(functions_with(st.just(())), max_size=1).map(tuple))


@settings(max_examples=40)
@given(functions)
def test_parse_inverts_print(function):
    text = print_function(function)
    again = parse_function(text)
    assert again == function, text
    assert print_function(again) == text


def sample() -> s.Function:
    """A sensible function that has every node."""
    return parse_function(SAMPLE)


SAMPLE = """\
function every(write global float32* out [align=64, elements=128], read global float32* in [alias_of="out"]) group(8, 1, 1) subgroup(8) helpers {
    function scale(readwrite local float32* tile, read float32 by) group(1, 1, 1) {
        tile[0] = tile[0] * by;
        return;
    }
} {
    // every node once
    let lane = local_id(0);
    let wide = in[0, align=64]:float32x8;
    var sum = fma(wide, wide, splat(-1.5, 8));
    let bits = bitcast(int32x8, wide * 2f32x8) & 7i32x8;
    alloc local float32[64] tile;
    alloc local bfloat16[64] half;
    for (i = 0; i < 64; i += 8) unroll("full") {
        tile[i, mask=iota(int32x8) < 8i32x8] = select(wide < 0f32x8, 0f32x8, wide);
    }
    while (lane > 3) {
        sum = insert(sum, 0, reduce_add(shuffle(sum, sum, 0, 9, 2, 11))) + limit_min(float32x8);
    }
    if (lane == 0) {
        call scale(tile, exp(-extract(sum, 1)));
    } else {
        atomic add out[0i64] = subgroup("reduce_add", float32(lane));
    }
    {
        async_copy tile[0] = in[lane], count=8, guard=true, group=1, align=16, fill=1;
        team_mma "wgmma_m64n32k16_bf16" = half[0] * half[lane * 8, panels=64], (sum, sum);
        team_mma "wgmma_m64n32k8_tf32" = tile[0, panels=64, rounded=1] * tile[lane], (sum, sum);
        tensor_copy tile[0] = in, (lane, 4, 8, 2, 1), (8, 8, 1, 32, 1), 1;
        async_wait(1, 0);
    }
    tile_step tile_load(4), in[lane, pitch=16];
    tile_step tdpbf16ps(0, 4, 6);
    barrier("group", "local");
    var last = false;
    last_group(last, group_id(0) % 2, 4);
    let a = matrix_load(half, lane * 8):bfloat16x8;
    let b = matrix_load_transposed(half, lane * 8):bfloat16x4;
    sum = mma(16, 8, 16, [a], [b], [wide]);
    out[1, hint="streaming"] = mma(1, 1, 2, [sum], [sum], [round_bits(0.1, 10)]);
    return;
}
"""


def test_sample_text_is_a_fixed_point_and_has_every_node():
    function = sample()
    text = print_function(function)
    assert text == SAMPLE
    found = {type(n).__name__ for f in walk_functions(function) for n in (*walk_all(f), *walk_statements(f.body))}
    every = {c.__name__ for c in (*s.Expr.__args__, *s.Statement.__args__)}
    assert found == every


def test_variables_need_a_declaration_or_a_type():
    with pytest.raises(TileSyntaxError, match="2:10: error SEMTREE-E001: b is not declared"):
        parse_function("function f() group(1, 1, 1) {\n let a = b; }")
    function = parse_function("function f() group(1, 1, 1) {\n let a = b:float32x2; }")
    assert function.body.body[0].value == s.Var("b", F32.vector(2))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("function f( {", "1:13.*'{' does not fit"),
        ("function f() group(1,1,1) { let = 3; }", "1:33.*'=' does not fit"),
        ("function f() group(1,1,1) { let a = 3;", "the end of the text does not fit"),
        ("function f() group(1,1,1) { let a = 3 ? 4; }", "does not fit"),
        ("function f() size(1,1,1) { }", "makes no sense"),
        ("function f() group(1,1,1) { let a = splat(1.0); }", "2 arguments belong here, not 1"),
        ("function f() group(1,1,1) { for (i = 0; j < 3; i += 1) {} }", "a loop has one variable"),
        ('function f() group(1,1,1) { barrier("group", "local") }', "does not fit"),
    ],
)
def test_bad_text_is_a_diagnostic(text, message):
    with pytest.raises(TileSyntaxError, match=message):
        parse_function(text)


def test_deep_expressions_do_not_recurse():
    x = s.Var("x", F32)
    left = right = other = x
    for _ in range(10_000):
        left, right = s.Binary("add", left, x, F32), s.Binary("sub", x, right, F32)
        other = s.Unary("neg", s.Cast(other, F32), F32)
    body = s.Block(tuple(s.Let(n, e) for n, e in (("l", left), ("r", right), ("o", other))))
    function = s.Function("deep", (s.Param("x", F32),), body)
    assert same(parse_function(print_function(function)), function)


def test_deep_statements_do_not_recurse():
    block = s.Block((s.Return(),))
    for _ in range(3000):
        block = s.Block((s.If(s.Const(True, BOOL), block),))
    function = s.Function("deep", (), block)
    assert same(parse_function(print_function(function)), function)


def test_print_expr_of_one_expression():
    a, i = s.Var("a", s.Type(DType.FLOAT32, space=s.Space.GLOBAL, ptr=True)), s.Var("i", I64)
    index = s.Binary("mul", s.Binary("add", i, s.Const(1, I64), I64), s.Const(4, I64), I64)
    assert print_expr(s.Load(a, index, F32)) == "a[(i + 1i64) * 4i64]"
