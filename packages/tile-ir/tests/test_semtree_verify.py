"""Every structural rule of semtree has an example that breaks it and it alone."""

import pytest
from tile_ir.dtype import DType
from tile_ir.ops import Aggregation
from tile_ir.semtree import errors as err
from tile_ir.semtree import nodes as s
from tile_ir.semtree import parse_function
from tile_ir.semtree.verify import CORE_NODES, LISTED_FUNCTIONS, OPTIONAL_NODES, verify

HEAD = (
    "function f(write global float32* out, read global float32* in, readwrite global int32* n) group(%s, 1, 1) {\n"
    "let i = 0; let x = 1.0; let v = splat(x, 4); let c = true; var m = 0;\n%s\n}"
)


def function(body, threads=1):
    return parse_function(HEAD % (threads, body))


GOOD = [
    "out[i] = fma(x, x, in[i]) + (-x);",
    "out[i, mask=v < v]  = in[i, mask=v < 1f32x4]:float32x4;",
    "m = m + 1 % 3 << 2;",
    "let w = shuffle(v, v, 0, 7); let e = extract(w, 1); let q = reduce_max(insert(v, 3, e));",
    "{ let i = 1i64; { let i = 2; m = i; } }",
    "for (k = 0i64; k < 8i64; k += 2) { out[k] = 0.0; } for (k = 0; k < 8; k += 1) { let z = k; }",
    "alloc private float32[8] p; p[0] = 1.0; out[i] = p[i];",
    "atomic max n[i] = m; while (m < 3) { m = m + 1; } if (c & ~c) { return; } else { }",
    "let b = c + c; let k = int8(x); let h = float16x4(v); let z = pow(x, x); let f = 5u8 / 2u8;",
    "alloc local float32[8] t; async_copy t[0] = in[i], count=8, guard=c; async_wait(0, 0);",
    "let z = round_bits(v, 1) + round_bits(v, 22); alloc local float32[8] t; async_copy t[0] = in[i], count=8, align=16;",
    'let s = subgroup("broadcast", x, 0); let l = limit_min(int8x4); let a = mma(1, 1, 4, [v], [v], [x]);',
]


@pytest.mark.parametrize("body", GOOD)
def test_legal(body):
    verify(function(body))


BAD = [
    ("out[i] = y:float32;", err.UndeclaredName),
    ("{ let y = 1; } m = y:int32;", err.UndeclaredName),
    ("y = 1;", err.UndeclaredName),
    ("let a = b:float32; let b = 1.0;", err.UndeclaredName),
    ("for (k = 0; k < k:int32; k += 1) { }", err.UndeclaredName),
    ("let q = 1; let q = 2;", err.RedeclaredName),
    ("{ let q = 1; { let q = 2; } let q = 3; }", err.RedeclaredName),
    ("i = 1;", err.ImmutableAssignment),
    ("for (k = 0; k < 8; k += 1) { k = 1; }", err.ImmutableAssignment),
    ("out = 1.0;", err.ImmutableAssignment),
    ("m = 1i64;", err.TypeMismatch),
    ("let z = i + x;", err.TypeMismatch),
    ("let z = i:int64;", err.TypeMismatch),
    ("let z = (x + x):float64;", err.TypeMismatch),
    ("let z = x < i;", err.TypeMismatch),
    ("let z = (x < x):int32;", err.TypeMismatch),
    ("let z = fma(x, x, v);", err.TypeMismatch),
    ("out[i] = i;", err.TypeMismatch),
    ("let z = in[i]:float64;", err.TypeMismatch),
    ("let z = splat(i, 4):float32x4;", err.TypeMismatch),
    ("let z = select(c, x, i);", err.TypeMismatch),
    ("let z = insert(v, 0, i);", err.TypeMismatch),
    ("let z = group_id(0):float32;", err.TypeMismatch),
    ("let z = mma(1, 1, 4, [v], [v], [i]):float32;", err.TypeMismatch),
    ("let z = x & x;", err.IllegalDtype),
    ("let z = ~x;", err.IllegalDtype),
    ("let z = x << i;", err.IllegalDtype),
    ("let z = x % x;", err.IllegalDtype),
    ("let z = exp(i);", err.IllegalDtype),
    ("let z = fma(i, i, i);", err.IllegalDtype),
    ("let z = iota(float32x4);", err.IllegalDtype),
    ("let z = foo(x);", err.UnknownOperation),
    ("let z = exp(x, x);", err.UnknownOperation),
    ("let z = add(x, x);", err.UnknownOperation),
    ("let z = reduce_assign(v);", err.UnknownOperation),
    ('out[i, hint="later"] = x;', err.UnknownOperation),
    ('barrier("grid", "local");', err.UnknownOperation),
    ("let last = false; last_group(last, 0, 4);", err.ImmutableAssignment),
    ("var last = 1; last_group(last, 0, 4);", err.ImmutableAssignment),
    ("var last = false; last_group(last, 0, 0);", err.UnknownOperation),
    ('let z = subgroup("scan", x);', err.UnknownOperation),
    ("async_wait(0, 0); let z = float32x4(x);", err.IllegalCast),
    ("let z = x[i];", err.PointerExpected),
    ("let z = out;", err.PointerExpected),
    ("let z = in[x];", err.IndexTypeError),
    ("let z = in[2i8];", err.IndexTypeError),
    ("for (k = 0.0; k < 1.0; k += 1) { }", err.IndexTypeError),
    ("let z = in[iota(int32x4)];", err.IndexTypeError),
    ('let z = subgroup("shuffle", x, x);', err.IndexTypeError),
    ("let z = in[i, mask=c]:float32x4;", err.MaskMismatch),
    ("out[i, mask=v < v] = x;", err.MaskMismatch),
    ("let z = select(v < v, x, x);", err.MaskMismatch),
    ("if (i) { }", err.MaskMismatch),
    ("while (v < v) { }", err.MaskMismatch),
    ("let z = extract(v, 4);", err.LaneError),
    ("let z = shuffle(v, v, 8);", err.LaneError),
    ("let z = reduce_add(1f32x3);", err.LaneError),
    ("atomic add out[i] = v;", err.LaneError),
    ("let z = local_id(3);", err.AxisError),
    ("for (k = 0; k < 8i64; k += 1) { }", err.LoopError),
    ("for (k = 0; k < 8; k += 0) { }", err.LoopError),
    ("let z = in[i, align=3];", err.AlignmentValueError),
    ("in[i] = x;", err.AccessViolation),
    ("alloc global float32[4] p;", err.AllocationError),
    ("alloc private float32[0] p;", err.AllocationError),
    ("async_copy out[i] = in[i], count=4;", err.AllocationError),
    ("call g(i);", err.HelperError),
    ("let z = round_bits(i, 10);", err.IllegalDtype),
    ("let z = round_bits(x, 23);", err.UnknownOperation),
    ("let z = round_bits(v, 0);", err.UnknownOperation),
    ("alloc local float32[8] t; async_copy t[0] = in[i], count=8, align=3;", err.AlignmentValueError),
    ("let z = matrix_load(in, i):float32x2;", err.IllegalDtype),
    ("alloc local bfloat16[64] t; let z = matrix_load(t, i):bfloat16x8;", err.LaneError),
    ("let z = 300u8;", err.LiteralError),
    ("let z = 1.5i32;", err.LiteralError),
]


@pytest.mark.parametrize(("body", "error"), BAD)
def test_illegal(body, error):
    with pytest.raises(err.SemtreeError) as caught:
        verify(function(body))
    assert type(caught.value) is error


F32 = s.Type(DType.FLOAT32)


@pytest.mark.parametrize(
    ("expr", "error"),
    [
        (s.Unary("sqrt", s.Const(1.0, F32), F32), err.UnknownOperation),
        (s.Binary("pow", s.Const(1.0, F32), s.Const(1.0, F32), F32), err.UnknownOperation),
        (s.Compare("add", s.Const(1.0, F32), s.Const(1.0, F32), s.Type(DType.BOOL)), err.UnknownOperation),
        (s.Limit("mean", F32), err.UnknownOperation),
        (s.Const(1.0, s.Type(DType.FLOAT32, 0)), err.LaneError),
    ],
)
def test_illegal_without_text(expr, error):
    with pytest.raises(error):
        verify(s.Function("f", (), s.Block((s.Let("z", expr),))))


def test_parameters_and_groups():
    pointer = s.Type(DType.FLOAT32, space=s.Space.GLOBAL, ptr=True)
    for params, size, error in [
        ((s.Param("a", F32),), (1, 1, 1), err.SignatureError),
        ((s.Param("a", pointer, elements=-1),), (1, 1, 1), err.SignatureError),
        ((s.Param("a", pointer, alias_of="b"),), (1, 1, 1), err.SignatureError),
        ((s.Param("a", pointer, align=24),), (1, 1, 1), err.AlignmentValueError),
        ((s.Param("a", pointer), s.Param("a", pointer)), (1, 1, 1), err.RedeclaredName),
        ((), (1, 0, 1), err.SignatureError),
    ]:
        with pytest.raises(error):
            verify(s.Function("f", params, s.Block(), size))


HELPED = """function f(write global float32* out) group(%d, 1, 1) helpers {
    function one(write global float32* p, read float32 x) group(1, 1, 1) { p[0] = x; }
    function two(write global float32* p) group(1, 1, 1) { %s }
} { %s }"""


def test_helpers():
    verify(parse_function(HELPED % (1, "call one(p, 1.0);", "call two(out);")))
    for inner, outer in [
        ("call two(p);", "return;"),
        ("return;", "call one(out, 1);"),
        ("return;", "call one(out);"),
        ("return;", "alloc local float32[4] p; call two(p);"),
    ]:
        with pytest.raises(err.HelperError):
            verify(parse_function(HELPED % (1, inner, outer)))


DIVERGENT = [
    'if (local_id(0) < 4) { barrier("group", "local"); }',
    "var last = false; if (local_id(0) < 4) { last_group(last, 0, 4); }",
    'for (k = 0; k < global_id(0); k += 1) { barrier("group", "local"); }',
    'if (local_id(0) == 0) { m = 1; } if (m == 1) { barrier("group", "local"); }',
    'if (local_id(0) == 0) { return; } barrier("group", "local");',
    'alloc private int32[1] p; p[0] = local_id(0); if (p[0] == 0) { { barrier("group", "local"); } }',
    'let a = local_id(0); let b = a + 1; while (b < 3) { barrier("group", "local"); }',
]
UNIFORM = [
    'if (group_id(0) < 4) { barrier("group", "local"); }',
    'if (n[group_id(0)] == 0) { barrier("group", "local"); }',
    'for (k = 0; k < 8; k += 1) { m = m + k; if (m < 9) { barrier("group", "local"); } }',
]


@pytest.mark.parametrize("body", DIVERGENT)
def test_divergent_barriers(body):
    with pytest.raises(err.DivergentBarrier):
        verify(function(body, threads=8))
    verify(function(body, threads=1))


@pytest.mark.parametrize("body", UNIFORM)
def test_uniform_barriers(body):
    verify(function(body, threads=8))


def test_a_helper_with_a_barrier_counts_as_one():
    for outer, legal in [("call two(out);", True), ("if (local_id(0) < 1) { call two(out); }", False)]:
        helped = parse_function(HELPED % (8, 'barrier("group", "local");', outer))
        if legal:
            verify(helped)
        else:
            with pytest.raises(err.DivergentBarrier):
                verify(helped)


def test_optional_nodes_must_be_listed():
    fused = function("out[i] = fma(x, x, x);")
    verify(fused, nodes=frozenset({"Fma", "Splat"}))
    with pytest.raises(err.NodeNotAllowed, match="Splat"):
        verify(fused, nodes=frozenset({"Fma"}))
    assert "Fma" in OPTIONAL_NODES and not OPTIONAL_NODES & CORE_NODES
    assert len(OPTIONAL_NODES | CORE_NODES) == len(s.Expr.__args__) + len(s.Statement.__args__) + len(LISTED_FUNCTIONS)


def test_deep_and_shared_expressions():
    deep = shared = s.Const(1.0, F32)
    for _ in range(10_000):
        deep = s.Unary("neg", deep, F32)
    for _ in range(200):
        shared = s.Binary("add", shared, shared, F32)
    verify(s.Function("f", (), s.Block((s.Let("d", deep), s.Let("s", shared)))))
    for operand in (deep, shared):
        bad = s.ReduceLanes(Aggregation.ASSIGN, operand, F32)
        with pytest.raises(err.UnknownOperation) as caught:
            verify(s.Function("f", (), s.Block((s.Let("d", bad),))))
        assert len(str(caught.value)) < 300


ROUNDED = """function f() group(128, 1, 1) subgroup(32) {{
    alloc local {dtype}[4096] a;
    var c = 0.0f32x4;
    team_mma "{name}" = a[0, panels={left}, rounded=1] * a[0, panels={right}], (c, c, c, c);
}}"""


@pytest.mark.parametrize(
    ("name", "dtype", "left", "right", "says"),
    [
        ("wgmma_m64n32k8_tf32", "float32", 1024, 0, ""),
        ("wgmma_m64n32k8_tf32", "float32", 0, 1024, "along k alone"),
        ("wgmma_m64n32k16_bf16", "bfloat16", 0, 0, "not rounded"),
    ],
)
def test_a_first_factor_of_float32_may_be_rounded(name: str, dtype: str, left: int, right: int, says: str) -> None:
    item = parse_function(ROUNDED.format(name=name, dtype=dtype, left=left, right=right))
    if not says:
        verify(item)
        return
    with pytest.raises(err.IllegalDtype, match=says):
        verify(item)


TEAM = """function f() group(128, 1, 1) subgroup({subgroup}) {{
    alloc local {dtype}[4096] a;
    alloc {space} {second}[4096] b;
    {keyword} c = 0.0f32x4;
    var d = 0.0f32x4;
    var e = 0.0f32x4;
    var g = 0.0f32x{lanes};
    team_mma "{name}" = a[0] * b[0, panels=4096], (c, d, e{last});
}}"""
RIGHT = {
    "subgroup": "32", "dtype": "bfloat16", "second": "bfloat16", "space": "local", "keyword": "var", "lanes": "4",
    "name": "wgmma_m64n32k16_bf16", "last": ", g",
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({}, ""),
        ({"name": "mma_m16n8k16_bf16"}, "no team of sub-groups"),
        ({"subgroup": "16"}, "sub-groups of 32"),
        ({"dtype": "float16"}, "float16"),
        ({"name": "wgmma_m64n32k8_tf32", "dtype": "float32", "second": "float32"}, "along k alone"),
        ({"space": "private"}, "from local memory"),
        ({"keyword": "let"}, "no mutable variable"),
        ({"last": ""}, "32 columns in pieces"),
        ({"lanes": "2"}, "32 columns in pieces"),
    ],
)
def test_products_of_teams(change, says):
    function = parse_function(TEAM.format(**(RIGHT | change)))
    if not says:
        verify(function)
        return
    with pytest.raises(err.SemtreeError, match=says):
        verify(function)
