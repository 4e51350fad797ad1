"""What the emitter writes; no device is needed."""

from __future__ import annotations

import ast
import re
import sys

import pytest
from hal_opencl.emit.dialect import PLAIN, Dialect
from hal_opencl.emit.intervals import Intervals
from hal_opencl.emit.prepare import prepare
from hal_opencl.emit.source import Source, emit_kernel
from hal_opencl.emit.split import pieces
from hal_opencl.emit.types import comment_text, rounded, safe_hint
from hypothesis import given, settings
from hypothesis import strategies as st
from tile_ir.dtype import DType
from tile_ir.emit.shallow import MAX_DEPTH
from tile_ir.emit.walker import children, walk_expr, walk_statements
from tile_ir.kernels import Kernel
from tile_ir.ops import Aggregation
from tile_ir.semtree.errors import SemtreeError
from tile_ir.semtree.nodes import (
    Access,
    Alloc,
    Assign,
    Atomic,
    Barrier,
    Binary,
    Block,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Fma,
    For,
    Function,
    IdKind,
    If,
    Let,
    Load,
    Param,
    ReduceLanes,
    Select,
    Space,
    Splat,
    Statement,
    Store,
    Type,
    Unroll,
    Var,
    While,
    WorkId,
)  # fmt: skip
from tile_ir.stripe import nodes as stripe

F32, I32, F16, BF16 = DType.FLOAT32, DType.INT32, DType.FLOAT16, DType.BFLOAT16
INT = Type(I32)
I = Var("i", INT)  # noqa: E741


def pointer(name: str, dtype: DType, space: Space = Space.GLOBAL) -> Var:
    return Var(name, Type(dtype, space=space, ptr=True))


def load(name: str, dtype: DType, index: Expr, lanes: int = 1, align: int = 0) -> Load:
    return Load(pointer(name, dtype), index, Type(dtype, lanes), None, align)


def emit(
    *body: Statement,
    params: dict[str, DType] | None = None,
    groups: tuple[int, int, int] = (1, 1, 1),
    comment: str = "",
    dialect: Dialect | None = None,
    size: tuple[int, int, int] = (1, 1, 1),
) -> Source:
    chosen = params or {"out": F32, "a": F32}
    made = tuple(
        Param(name, pointer(name, dtype).type, Access.READ if n else Access.WRITE, dtype.bytes, 64)
        for n, (name, dtype) in enumerate(chosen.items())
    )
    function = Function("f", made, Block(body), size)
    return emit_kernel(Kernel("f", stripe.Block("f", comment=comment), function, groups), dialect or Dialect())


def value_line(value: Expr, dtype: DType | None = None, **params: DType) -> str:
    """The line that stores a value."""
    text = emit(
        Store(pointer("out", value.type.dtype), Const(0, INT), value), params={"out": value.type.dtype, **params}
    ).text
    return text.strip().splitlines()[-2].strip()


def test_a_whole_kernel() -> None:
    wide = Type(F32, 8)
    total = Fma(load("a", F32, I, 8, 32), Splat(load("b", F32, I), wide), Const(1.5, wide), wide)
    loop = For(
        "i", Const(0, INT), Const(64, INT), 8, Block((Store(pointer("out", F32), I, total, None, 32),)), Unroll.FULL
    )
    source = emit(
        loop, params={"out": F32, "a": F32, "b": F32}, comment="C = A * B;\n  Range  out\ni 64 1", size=(4, 1, 1)
    )
    assert source.entry == "f"
    assert (
        source.text
        == """#pragma OPENCL FP_CONTRACT OFF

// C = A * B;
//   Range  out
// i 64 1
kernel __attribute__((reqd_work_group_size(4, 1, 1)))
void f(global float* restrict out, global const float* restrict a, global const float* restrict b) {
    #pragma unroll
    for (int i = 0; i < 64; i += 8) {
        *(global float8*)(out + i) = fma(*(global const float8*)(a + i), (float8)(b[i]), (float8)(1.5f));
    }
}
"""
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Binary("add", load("a", I32, Const(0, INT)), Const(1, INT), INT), "out[0] = (int)((uint)a[0] + (uint)1);"),
        (Binary("add", WorkId(IdKind.GROUP, 0), Const(1, INT), INT), "out[0] = (int)get_group_id(0) + 1;"),
        (Binary("max", load("a", I32, Const(0, INT)), Const(1, INT), INT), "out[0] = max(a[0], 1);"),
        (Binary("div", load("a", I32, Const(0, INT)), Const(3, INT), INT), "out[0] = a[0] / 3;"),
        (Binary("div", load("a", I32, Const(0, INT)), Const(-1, INT), INT), "out[0] = tile_div_int32(a[0], -1);"),
        (Cast(Const(1.0, Type(F32)), INT), "out[0] = tile_int32_from_float32(1.0f);"),
        (Const(int(DType.INT64.min_value), Type(DType.INT64)), "out[0] = -9223372036854775807L - 1;"),
        (Const(2**64 - 1, Type(DType.UINT64)), "out[0] = 18446744073709551615UL;"),
        (Const(float("-inf"), Type(F32)), "out[0] = -INFINITY;"),
        (Const(0.1, Type(F16)), "vstore_half_rte(0x1.9980000000000p-4f, 0, out);"),
        (Const(0.1, Type(BF16)), "out[0] = (ushort)(as_uint(0x1.9a00000000000p-4f) >> 16);"),
    ],
)  # fmt: skip
def test_scalars(value: Expr, expected: str) -> None:
    assert value_line(value, a=I32) == expected


def test_half_types_are_computed_in_float_and_rounded() -> None:
    for dtype, read in ((F16, "vload_half(0, a)"), (BF16, "as_float((uint)a[0] << 16)")):
        total = Binary("mul", load("a", dtype, Const(0, INT)), Const(2.0, Type(dtype)), Type(dtype))
        text = emit(Store(pointer("out", dtype), Const(0, INT), total), params={"out": dtype, "a": dtype}).text
        assert f"tile_round_{dtype.value}({read} * 2.0f)" in text
        assert "cl_khr_fp16" not in text


@pytest.mark.parametrize("dtype", [F16, BF16])
def test_vectors_of_halves_wait_as_words_on_nvidia(dtype: DType) -> None:
    """The assembler takes what is loaded as 16-bit elements apart at once, and waits for it."""
    t, zero = Type(dtype, 4), Const(0, INT)
    wide = Type(F32, 4)
    body = (
        Let("held", Splat(Const(0, Type(dtype)), t), mutable=True),
        Assign("held", Load(pointer("a", dtype), zero, t, align=8)),
        Store(pointer("out", F32), zero, Cast(Var("held", t), wide), align=16),
    )
    params = {"out": F32, "a": dtype}
    text = emit(*body, params=params, dialect=Dialect(ptx=True)).text
    assert "uint2 held = (uint2)(0);" in text and "held = *(global const uint2*)(a);" in text
    assert f"= tile_floats_of_{dtype.value}x4(held);" in text and "ushort4" not in text
    assert "ushort4 held" in emit(*body, params=params).text


@pytest.mark.parametrize("dtype", [F16, BF16])
def test_halves_that_are_only_moved_stay_bits(dtype: DType) -> None:
    """Neither converted on the way nor rounded again, unless something computes with them, too."""
    t, zero = Type(dtype), Const(0, INT)
    held, x = Var("held", t), Var("x", t)
    moved = (
        Let("held", Const(0, t), mutable=True),
        Assign("held", load("a", dtype, zero)),
        Let("x", held),
        Store(pointer("out", dtype), zero, x),
    )
    params = {"out": dtype, "a": dtype}
    text = emit(*moved, params=params).text
    assert "const ushort x = held;" in text and "*(global ushort*)(out) = x;" in text
    assert not any(word in text for word in ("float", "vload_half", "vstore_half"))
    computed = emit(*moved, Store(pointer("out", dtype), Const(1, INT), Binary("mul", x, x, t)), params=params).text
    assert "const float x =" in computed


@pytest.mark.parametrize("dtype", [F16, BF16])
def test_vectors_of_halves_go_from_local_memory_to_memory_as_bits(dtype: DType) -> None:
    part = Type(dtype, count=64, space=Space.LOCAL)
    x = Let("x", Load(Var("part", part), Const(8, INT), Type(dtype, 8), align=16))
    body = (Alloc("part", part), x, Store(pointer("out", dtype), Const(0, INT), Var("x", x.value.type), align=16))
    text = emit(*body, params={"out": dtype}).text
    assert "const ushort8 x = *(local const ushort8*)" in text and "*(global ushort8*)(out) = x;" in text
    assert "float" not in text and "vload" not in text


def test_the_fp64_extension_appears_only_with_float64() -> None:
    wide = Store(pointer("out", DType.FLOAT64), Const(0, INT), Const(1.0, Type(DType.FLOAT64)))
    assert "cl_khr_fp64" in emit(wide, params={"out": DType.FLOAT64}).text
    assert "cl_khr_fp64" not in emit(Store(pointer("out", F32), Const(0, INT), Const(1.0, Type(F32)))).text


def test_nothing_is_contracted_or_approximated_by_default() -> None:
    x = load("a", F32, Const(0, INT))
    total = Binary("add", Binary("mul", x, x, x.type), Call("exp", (x,), x.type), x.type)
    store = Store(pointer("out", F32), Const(0, INT), total)
    plain, fast = emit(store).text, emit(store, dialect=Dialect(fast_math=True)).text
    assert "FP_CONTRACT OFF" in plain and "mad(" not in plain and "native_" not in plain
    assert "mad(" in fast and "native_exp(" in fast


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16])
@pytest.mark.parametrize("lanes", [1, 4])
def test_functions_of_halves_are_the_processors(dtype: DType, lanes: int) -> None:
    """float16's logarithm of what is beside 1 is not: it would lose the last place."""

    def made(name: str, dialect: Dialect) -> str:
        call = Call(name, (load("a", dtype, Const(0, INT), lanes),), Type(dtype, lanes))
        return emit(Store(pointer("out", dtype), Const(0, INT), call), dialect=dialect).text

    own = {"exp": "ex2.approx.f32", "sqrt": "sqrt.approx.f32", "tanh": "rcp.approx.f32", "recip": "rcp.approx.f32"}
    own |= {"log": "lg2.approx.f32"} if dtype is DType.BFLOAT16 else {}
    for name, instruction in own.items():
        assert made(name, Dialect(ptx=True)).count(instruction) == lanes and "asm" not in made(name, Dialect())
    assert ("log(" in made("log", Dialect(ptx=True)).replace("tile_log", "")) is (dtype is DType.FLOAT16)


def test_math_by_lane() -> None:
    wide = Type(F32, 4)
    store = Store(pointer("out", F32), Const(0, INT), Call("exp", (load("a", F32, Const(0, INT), 4),), wide))
    assert "exp(a.s0), exp(a.s1), exp(a.s2), exp(a.s3)" in emit(store, dialect=Dialect(math_by_lane=True)).text
    assert "= exp(vload4(0, a))" in emit(store).text.replace(
        "vstore4(exp(vload4(0, a)), 0, out)", "= exp(vload4(0, a))"
    )


def test_local_arrays_move_to_the_outermost_scope() -> None:
    tile = Type(F32, count=16, space=Space.LOCAL)
    inner = (Alloc("tile", tile), Store(Var("tile", tile), I, load("a", F32, I)), Barrier())
    text = emit(For("i", Const(0, INT), Const(16, INT), 1, Block(inner))).text
    head, loop = text.split("for (")
    assert "local float tile[16] __attribute__((aligned(64)));" in head and "tile[i] = a[i];" in loop
    assert "barrier(CLK_LOCAL_MEM_FENCE);" in loop


def test_local_arrays_of_branches_that_exclude_each_other_share_memory() -> None:
    """The larger one's, each aligned as it asks; what both branches have beside them is there with each."""
    first, second = (
        Alloc(name, Type(dtype, 1, count, Space.LOCAL), align)
        for name, dtype, count, align in (("x", F32, 160, 64), ("y", F16, 100, 128))
    )
    own = Alloc("z", Type(F32, 1, 3, Space.LOCAL), 16)
    group = Compare("cmp_lt", WorkId(IdKind.GROUP, 0), Const(3, INT), Type(DType.BOOL))
    text = emit(own, If(group, Block((first,)), Block((second,)))).text
    assert "local uchar memory[704] __attribute__((aligned(128)));" in text
    places = dict(re.findall(r"local \w+\* const (\w+) = \(local \w+\*\)\(memory \+ (\d+)\);", text))
    assert places == {"z": "0", "x": "64", "y": "128"}


def test_local_arrays_of_items_that_part_ways_lie_apart() -> None:
    """Some items have those of one branch while others have those of the other."""
    first, second = (Block((Alloc(name, Type(F32, 1, 16, Space.LOCAL)),)) for name in "xy")
    item = Compare("cmp_lt", WorkId(IdKind.LOCAL, 0), Const(3, INT), Type(DType.BOOL))
    text = emit(If(item, first, second)).text
    assert "local float x[16]" in text and "local float y[16]" in text


@pytest.mark.parametrize(
    ("dtype", "lanes", "moved"),
    [
        (BF16, 8, "uint4"),
        (F16, 8, "uint4"),
        (DType.UINT8, 16, "uint4"),
        (DType.UINT8, 8, "uint2"),
        (BF16, 4, ""),
        (F32, 8, ""),
    ],
    ids=str,
)
def test_long_vectors_of_narrow_elements_are_moved_as_words(dtype: DType, lanes: int, moved: str) -> None:
    """NVIDIA's compiler moves four elements at once: eight halves were two stores, each of half a sector."""
    value = load("a", dtype, Const(0, INT), lanes, 16)
    body = Store(pointer("out", dtype), Const(0, INT), value, None, 16)
    texts = {ptx: emit(body, params={"out": dtype, "a": dtype}, dialect=Dialect(ptx=ptx)).text for ptx in (False, True)}
    if not moved:
        assert texts[True] == texts[False]
        return
    for text in (f"*(global {moved}*)(out) = as_{moved}(", f"*(global const {moved}*)(a)"):
        assert text in texts[True] and text not in texts[False]


def test_vector_select_uses_the_comparison_as_it_is() -> None:
    wide = Type(F32, 4)
    a = load("a", F32, Const(0, INT), 4)
    chosen = Select(Compare("cmp_gt", a, Const(0.0, wide), Type(DType.BOOL, 4)), a, Const(0.0, wide), wide)
    assert "select((float4)(0.0f), vload4(0, a), vload4(0, a) > (float4)(0.0f))" in emit(
        Store(pointer("out", F32), Const(0, INT), chosen)
    ).text.replace("t1", "vload4(0, a)")


@pytest.mark.parametrize(("lanes", "expected"), [(16, [16]), (32, [16, 16]), (6, [4, 2]), (7, [4, 2, 1]), (1, [1])])
def test_lane_counts_opencl_lacks_are_cut(lanes: int, expected: list[int]) -> None:
    assert [width for _, width in pieces(lanes)] == expected


def test_wide_vectors_are_split() -> None:
    wide = Type(F32, 32)
    total = Let("v", Binary("add", load("a", F32, Const(0, INT), 32), Const(1.0, wide), wide))
    reduced = ReduceLanes(Aggregation.SUM, Var("v", wide), Type(F32))
    text = emit(
        total,
        Store(pointer("out", F32), Const(0, INT), Var("v", wide)),
        Store(pointer("out", F32), Const(40, INT), reduced),
    ).text
    assert text.count("const float16 ") == 4 and "float32" not in re.sub(r"tile_\w+", "", text)


@pytest.mark.parametrize(("dtype", "lanes"), [(F32, 8), (DType.FLOAT64, 4), (DType.INT8, 16)], ids=str)
def test_vectors_are_no_wider_than_the_compiler_takes(dtype: DType, lanes: int) -> None:
    store = Store(pointer("out", dtype), Const(0, INT), load("a", dtype, Const(0, INT), 16))
    text = emit(store, params={"out": dtype, "a": dtype}, dialect=Dialect(vector_bytes=32)).text
    assert {int(w) for w in re.findall(r"vload(\d+)", text)} == {lanes}


def test_deep_and_shared_expressions_become_variables() -> None:
    value: Expr = load("a", I32, Const(0, INT))
    for _ in range(200):
        value = Binary("bit_xor", value, value, INT)
    text = emit(Store(pointer("out", I32), Const(0, INT), value), params={"out": I32, "a": I32}).text
    assert len(text) < 20_000
    assert max(line.count("(") for line in text.splitlines()) <= 2 * MAX_DEPTH


def test_a_loop_condition_is_computed_every_time() -> None:
    cond: Expr = load("a", I32, Const(0, INT))
    for n in range(60):
        cond = Binary("bit_or", cond, Const(n, INT), INT)
    function = Function("f", (), Block((While(Cast(cond, Type(DType.BOOL)), Block()),)))
    loops = [s for s in walk_statements(prepare(function, PLAIN).body) if isinstance(s, While)]
    assert len(loops) == 1 and isinstance(loops[0].cond, Var)
    assert any(isinstance(e, Load) for s in walk_statements(loops[0].body) for c in children(s) for e in walk_expr(c))


@given(st.text(max_size=60))
@settings(max_examples=200)
def test_comments_cannot_be_left(text: str) -> None:
    for line in comment_text(text):
        assert all(" " <= c <= "~" for c in line)
        assert "*/" not in line and "/*" not in line and "??" not in line and not line.endswith("\\")


@given(st.text(max_size=30))
@settings(max_examples=200)
def test_names_are_plain_identifiers_that_mean_nothing(name: str) -> None:
    hint = safe_hint(name)
    assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", hint)
    assert not re.match(r"(tile_|convert_|as_|vload|get_|native_)", hint)


@pytest.mark.parametrize(
    "name",
    ["exp", "kernel", "float4", "get_global_id", "tile_round_float16", "M_PI", "CLK_LOCAL_MEM_FENCE", "uint", "linux"],
)
def test_names_of_the_language_are_avoided(name: str) -> None:
    text = emit(
        Let(name, Const(1, INT)), Store(pointer("out", I32), Const(0, INT), Var(name, INT)), params={"out": I32}
    ).text
    (declared,) = re.findall(r"const int (\w+) = 1;", text)
    assert declared != name and f"out[0] = {declared};" in text


def test_hostile_comments_stay_comments() -> None:
    text = emit(comment="A = B; */ evil(); /*\n#define float int\r\x0b\\\n\u2028kernel ??/").text
    body = [line for line in text.splitlines() if "evil" in line or "define" in line]
    assert body and all(line.startswith("//") for line in body)


def test_atomics_of_floats_compare_and_exchange() -> None:
    text = emit(Atomic(Aggregation.MAX, pointer("out", F32), Const(0, INT), Const(1.0, Type(F32)))).text
    assert "atomic_cmpxchg" in text and "tile_max_float32(old, x)" in text
    text = emit(Atomic(Aggregation.SUM, pointer("out", I32), Const(0, INT), Const(1, INT)), params={"out": I32}).text
    assert "atomic_add(out, 1);" in text


def test_what_cannot_be_written_is_an_error() -> None:
    with pytest.raises(SemtreeError):
        emit(Store(pointer("out", F32), Const(0, INT), Var("nowhere", Type(F32))))
    with pytest.raises(SemtreeError):
        emit(
            Store(
                pointer("out", F32),
                Const(0, INT),
                Binary("frobnicate", Const(1, Type(F32)), Const(1, Type(F32)), Type(F32)),
            )
        )


def test_rounding_of_literals() -> None:
    assert rounded(0.1, BF16) == 0.10009765625 and rounded(0.1, F16) == 0.0999755859375
    assert rounded(1e9, F16) == float("inf") and rounded(1.00390625, BF16) == 1.0


def test_emission_loads_no_opencl() -> None:
    import subprocess

    code = "import sys, hal_opencl.plugin, hal_opencl.emit.source; print('pyopencl' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ast.literal_eval(done.stdout) is False


def test_ranges_of_shared_parts_are_found_once_until_names_change():
    index = Type(DType.INT64)
    ranges = Intervals((1, 1, 1))
    ranges.known["x"] = 0, 1
    doubled: Expr = Var("x", index)
    for _ in range(60):
        doubled = Binary("add", doubled, doubled, index)
    assert ranges.of(doubled, str) == (0, 1 << 60)
    ranges.known["x"] = 0, 0
    ranges.forget()
    assert ranges.of(doubled, str) == (0, 0)
