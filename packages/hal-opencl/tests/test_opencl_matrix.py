"""Matrix instructions, rounding and asynchronous copies: their texts, and the portable ones on every device."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hal_opencl.emit.dialect import PLAIN, Dialect
from hal_opencl.emit.source import emit_kernel
from tile_ir.dtype import DType
from tile_ir.kernels import Kernel
from tile_ir.semtree.errors import SemtreeError
from tile_ir.semtree.nodes import (
    Access,
    Alloc,
    Assign,
    AsyncCopy,
    AsyncWait,
    Barrier,
    Binary,
    Block,
    Comment,
    Compare,
    Const,
    Expr,
    Extract,
    For,
    Function,
    IdKind,
    If,
    Let,
    Load,
    MatrixLoad,
    Mma,
    Param,
    Round,
    Select,
    Space,
    Statement,
    Store,
    Type,
    Var,
    WorkId,
)  # fmt: skip
from tile_ir.stripe import nodes as stripe

F64, F32, F16, BF16 = DType.FLOAT64, DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16
INT, BOOL = Type(DType.INT32), Type(DType.BOOL)
F4 = Type(F32, 4)
PTX = Dialect(ptx=True)
ITEM = WorkId(IdKind.LOCAL, 0)
ZERO = Const(0, INT)
COMMIT = 'asm volatile("cp.async.commit_group;" ::: "memory");'


def pointer(name: str, dtype: DType, space: Space = Space.GLOBAL) -> Var:
    return Var(name, Type(dtype, space=space, ptr=True))


def array(dtype: DType, count: int = 1024) -> Type:
    return Type(dtype, count=count, space=Space.LOCAL)


def load(name: str, lanes: int = 1, index: Expr = ZERO) -> Load:
    return Load(pointer(name, F32), index, Type(F32, lanes))


def out(value: Expr, mask: Expr | None = None) -> Store:
    return Store(pointer("out", value.type.dtype), ZERO, value, mask)


def made(*body: Statement, dtype: DType = F32, threads: int = 32, subgroup: int = 32, elements: int = 0) -> Function:
    params = (
        Param("out", pointer("out", F32).type, Access.READWRITE, 4, elements),
        Param("a", pointer("a", dtype).type, Access.READ, 1, elements),
    )
    return Function("f", params, Block(body), (threads, 1, 1), subgroup=subgroup)


def emit(*body: Statement, dialect: Dialect = PTX, dtype: DType = F32, subgroup: int = 32) -> str:
    return emit_kernel(
        Kernel("f", stripe.Block("f"), made(*body, dtype=dtype, subgroup=subgroup), (1, 1, 1)), dialect
    ).text


def lines(text: str) -> list[str]:
    """What the kernel does, without its preamble and declarations of arrays."""
    body = text[text.index("kernel ") :].splitlines()
    return [line.strip() for line in body[2:-1] if "aligned" not in line]


TILE = Var("tile", array(BF16))
ALLOC = Alloc("tile", TILE.type)
BF_A = MatrixLoad(TILE, ITEM, False, Type(BF16, 8))
BF_B = MatrixLoad(TILE, ITEM, True, Type(BF16, 4))
ACC = Var("acc", F4)
START = Let("acc", Const(0.0, F4), mutable=True)


def bf16(a: Expr = BF_A, b: Expr = BF_B) -> Mma:
    return Mma((16, 8, 16), (a,), (b,), (ACC,), F4)


# --- texts -----------------------------------------------------------------------------------------


def test_a_product_of_bfloat16() -> None:
    a, b = Var("a0", BF_A.type), Var("b0", BF_B.type)
    body = (ALLOC, START, Let("a0", BF_A), Let("b0", BF_B), Assign("acc", bf16(a, b)), out(ACC))
    assert (
        emit(*body)
        == """#pragma OPENCL FP_CONTRACT OFF

float8 tile_load_matrices_bfloat16x8(local const void* row) {
    uint r0, r1, r2, r3;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3) : "r"((uint)(size_t)row) : "memory");
    return (float8)(as_float(r0 << 16), as_float(r0 & 0xffff0000u), as_float(r1 << 16), as_float(r1 & 0xffff0000u), as_float(r2 << 16), as_float(r2 & 0xffff0000u), as_float(r3 << 16), as_float(r3 & 0xffff0000u));
}

float4 tile_load_matrices_bfloat16x4_transposed(local const void* row) {
    uint r0, r1;
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
        : "=r"(r0), "=r"(r1) : "r"((uint)(size_t)row) : "memory");
    return (float4)(as_float(r0 << 16), as_float(r0 & 0xffff0000u), as_float(r1 << 16), as_float(r1 & 0xffff0000u));
}

float4 tile_mma_m16n8k16_bf16(float8 a, float4 b, float4 c) {
    float d0, d1, d2, d3;
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
        : "=f"(d0), "=f"(d1), "=f"(d2), "=f"(d3)
        : "r"((as_uint(a.s0) >> 16) | (as_uint(a.s1) & 0xffff0000u)), "r"((as_uint(a.s2) >> 16) | (as_uint(a.s3) & 0xffff0000u)), "r"((as_uint(a.s4) >> 16) | (as_uint(a.s5) & 0xffff0000u)), "r"((as_uint(a.s6) >> 16) | (as_uint(a.s7) & 0xffff0000u)),
          "r"((as_uint(b.s0) >> 16) | (as_uint(b.s1) & 0xffff0000u)), "r"((as_uint(b.s2) >> 16) | (as_uint(b.s3) & 0xffff0000u)),
          "f"(c.s0), "f"(c.s1), "f"(c.s2), "f"(c.s3));
    return (float4)(d0, d1, d2, d3);
}

kernel __attribute__((reqd_work_group_size(32, 1, 1)))
void f(global float* restrict out, global const float* restrict a) {
    local ushort tile[1024] __attribute__((aligned(64)));
    float4 acc = (float4)(0.0f);
    const float8 a0 = tile_load_matrices_bfloat16x8(tile + (int)get_local_id(0));
    const float4 b0 = tile_load_matrices_bfloat16x4_transposed(tile + (int)get_local_id(0));
    acc = tile_mma_m16n8k16_bf16(a0, b0, acc);
    vstore4(acc, 0, out);
}
"""
    )


def test_a_product_of_float16_converts_its_operands() -> None:
    """Registers hold float16 as floats: a word of two is unpacked after the load and packed for the product."""
    tile = Var("tile", array(F16))
    a, b = (Let(name, MatrixLoad(tile, ITEM, False, Type(F16, lanes))) for name, lanes in (("a0", 8), ("b0", 4)))
    product = Mma((16, 8, 16), (Var("a0", a.value.type),), (Var("b0", b.value.type),), (Const(0.0, F4),), F4)
    text = emit(Alloc("tile", tile.type), a, b, Let("d", product))
    assert "float4 tile_load_matrices_float16x4(local const void* row) {" in text
    assert "    return (float4)(tile_unpack_halves(r0), tile_unpack_halves(r1));" in text
    assert '"r"(tile_pack_halves(b.s0, b.s1)), "r"(tile_pack_halves(b.s2, b.s3)),' in text
    assert (
        text.count("float2 tile_unpack_halves(uint word) {")
        == text.count("uint tile_pack_halves(float low, float high) {")
        == 1
    )


def test_a_product_of_float32_from_parts() -> None:
    """Operands are the parts one after another."""
    halves = tuple(load("a", 2, Const(n, INT)) for n in (0, 8))
    text = emit(Let("d", Mma((16, 8, 8), halves, (load("a"), load("a")), (Const(0.0, F4),), F4)))
    assert (
        """float4 tile_mma_m16n8k8_tf32(float4 a, float2 b, float4 c) {
    float d0, d1, d2, d3;
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
        : "=f"(d0), "=f"(d1), "=f"(d2), "=f"(d3)
        : "r"(as_uint(a.s0)), "r"(as_uint(a.s1)), "r"(as_uint(a.s2)), "r"(as_uint(a.s3)),
          "r"(as_uint(b.s0)), "r"(as_uint(b.s1)),
          "f"(c.s0), "f"(c.s1), "f"(c.s2), "f"(c.s3));
    return (float4)(d0, d1, d2, d3);
}
"""
        in text
    )
    assert lines(text)[-1].endswith(
        "= tile_mma_m16n8k8_tf32((float4)(vload2(0, a), vload2(0, a + 8)), (float2)(a[0], a[0]), (float4)(0.0f));"
    )


def test_products_of_float64() -> None:
    """Registers are operands as they are; a single one is no vector."""
    x, y = (Load(pointer("a", F64), ZERO, Type(F64, lanes)) for lanes in (4, 2))
    text = emit(Let("d", Mma((16, 8, 8), (x,), (y,), (Const(0.0, Type(F64, 4)),), Type(F64, 4))), dtype=F64)
    expected = """double4 tile_mma_m16n8k8_f64(double4 a, double2 b, double4 c) {
    double d0, d1, d2, d3;
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
        : "=d"(d0), "=d"(d1), "=d"(d2), "=d"(d3)
        : "d"(a.s0), "d"(a.s1), "d"(a.s2), "d"(a.s3),
          "d"(b.s0), "d"(b.s1),
          "d"(c.s0), "d"(c.s1), "d"(c.s2), "d"(c.s3));
    return (double4)(d0, d1, d2, d3);
}
"""
    assert expected in text
    one, two = Load(pointer("a", F64), ZERO, Type(F64)), Const(0.0, Type(F64, 2))
    short = emit(Let("d", Mma((8, 8, 4), (one,), (one,), (two,), Type(F64, 2))), dtype=F64)
    assert "double2 tile_mma_m8n8k4_f64(double a, double b, double2 c) {" in short
    assert """        : "d"(a),\n          "d"(b),\n          "d"(c.s0), "d"(c.s1));""" in short


def test_rounding_by_the_instruction() -> None:
    text = emit(out(Round(load("a", 2), 10, Type(F32, 2))), out(Round(load("a"), 10, Type(F32))))
    assert (
        """float2 tile_round_10_float32x2(float2 x) {
    uint r0, r1;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r0) : "f"(x.s0));
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r1) : "f"(x.s1));
    return as_float2((uint2)(r0, r1));
}

float tile_round_10_float32(float x) {
    uint r0;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r0) : "f"(x));
    return as_float(r0);
}
"""
        in text
    )
    assert lines(text) == [
        "vstore2(tile_round_10_float32x2(vload2(0, a)), 0, out);",
        "out[0] = tile_round_10_float32(a[0]);",
    ]


@pytest.mark.parametrize("dialect", [PLAIN, PTX])
def test_rounding_by_bits(dialect: Dialect) -> None:
    text = emit(
        out(Round(load("a", 2), 7, Type(F32, 2))), out(Round(load("a"), 7, Type(F32))), dialect=dialect, subgroup=0
    )
    wide = "as_float2((as_uint2(x) + (uint2)(0x8000u)) & (uint2)(0xffff0000u))"
    assert (
        f"float2 tile_round_7_float32x2(float2 x) {{ return select(x, {wide}, fabs(x) < (float2)(INFINITY)); }}" in text
    )
    one = "as_float((as_uint(x) + 0x8000u) & 0xffff0000u)"
    assert f"float tile_round_7_float32(float x) {{ return fabs(x) < INFINITY ? {one} : x; }}" in text
    assert "asm" not in text
    assert lines(emit(out(Round(load("a"), 23, Type(F32)))))[-1] == "out[0] = a[0];"


WHOLE = Var("tile", array(F32))


@pytest.mark.parametrize(
    ("body", "options", "message"),
    [
        ((ALLOC, Let("x", BF_A)), {"dialect": PLAIN}, "needs PTX"),
        ((ALLOC, START, Let("x", bf16())), {"dialect": PLAIN}, "needs PTX"),
        ((ALLOC, Let("x", BF_A)), {"subgroup": 0}, "sub-groups of 32"),
        ((ALLOC, Let("x", BF_A)), {"subgroup": 16}, "sub-groups of 32"),
        ((Alloc("tile", WHOLE.type), Let("x", MatrixLoad(WHOLE, ITEM, False, Type(F32, 8)))), {}, "float32"),
        ((Let("x", MatrixLoad(pointer("a", BF16), ITEM, False, BF_A.type)),), {"dtype": BF16}, "global"),
        ((ALLOC, Let("x", MatrixLoad(TILE, ITEM, False, Type(BF16, 16)))), {}, "16 lanes"),
        ((Let("x", Mma((16, 16, 8), (load("a", 4),), (load("a", 2),), (load("a", 4),), F4)),), {}, "no matrix instruction"),
        ((Let("x", Mma((16, 8, 8), (load("a", 8),), (load("a", 2),), (load("a", 4),), F4)),), {}, "4 elements of this operand, not 8"),
        ((out(Round(Load(pointer("a", F16), ZERO, Type(F16)), 4, Type(F16))),), {"dtype": F16}, "float16 is not rounded"),
    ],
)  # fmt: skip
def test_what_has_no_instruction_is_an_error(
    body: tuple[Statement, ...], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(SemtreeError, match=message):
        emit(*body, **options)


# --- collectives stay whole ------------------------------------------------------------------------


FIRST = Compare("cmp_eq", ITEM, ZERO, BOOL)
ELEMENT = Extract(bf16(), 1, Type(F32))


@pytest.mark.parametrize(
    "use",
    [
        out(ELEMENT, FIRST),
        out(Select(FIRST, ELEMENT, Const(0.0, Type(F32)), Type(F32))),
        out(Binary("add", ELEMENT, ELEMENT, Type(F32))),
        If(Compare("cmp_gt", ELEMENT, Const(0.0, Type(F32)), BOOL), Block((out(Const(1.0, Type(F32))),))),
        For("i", ZERO, Const(4, INT), 1, Block((Assign("acc", bf16()),))),
    ],
)  # fmt: skip
def test_all_lanes_execute_a_collective_once_where_it_stands(use: Statement) -> None:
    """Texts like a masked store or ``?:`` evaluate their operands in some lanes only."""
    body = lines(emit(ALLOC, START, use))
    for name in (
        "tile_load_matrices_bfloat16x8(",
        "tile_load_matrices_bfloat16x4_transposed(",
        "tile_mma_m16n8k16_bf16(",
    ):
        (line,) = [line for line in body if name in line]
        assert re.match(r"(const float\d|acc\b).* = tile_\w+\([^?]*\);$", line)


# --- asynchronous copies ---------------------------------------------------------------------------


def copy(count: int = 4, align: int = 16, group: int = 0, guard: Expr | None = None, dtype: DType = F32) -> AsyncCopy:
    return AsyncCopy(
        Var("tile", array(dtype)),
        ITEM,
        pointer("a", dtype),
        Binary("mul", ITEM, Const(4, INT), INT),
        count,
        guard,
        group,
        align,
    )


def copied(*body: Statement, dtype: DType = F32, dialect: Dialect = PTX) -> list[str]:
    return lines(emit(Alloc("tile", array(dtype)), *body, dtype=dtype, dialect=dialect))


CP16 = "tile_copy_async_16(tile + (int)get_local_id(0), a + (int)get_local_id(0) * 4);"


def wait(groups: int) -> str:
    return f'asm volatile("cp.async.wait_group {groups};" ::: "memory");'


@pytest.mark.parametrize(
    ("dtype", "count", "align", "nbytes"),
    [
        (F32, 4, 16, 16), (F32, 4, 64, 16), (F32, 2, 8, 8), (F32, 1, 4, 4), (F32, 1, 0, 4), (BF16, 8, 16, 16), (BF16, 2, 4, 4),
        (DType.INT64, 1, 0, 8), (F16, 8, 16, 16), (DType.BOOL, 4, 4, 4),
        (F32, 4, 8, 0), (F32, 4, 0, 0), (F32, 3, 16, 0), (F32, 8, 32, 0), (BF16, 1, 16, 0), (BF16, 2, 0, 0),
    ],
)  # fmt: skip
def test_copies_of_fitting_size_and_alignment_are_asynchronous(
    dtype: DType, count: int, align: int, nbytes: int
) -> None:
    body = copied(copy(count, align, dtype=dtype), AsyncWait(), dtype=dtype)
    if not nbytes:
        assert len(body) == 1 and body[0].startswith("for (")
        return
    assert body[0].startswith(f"tile_copy_async_{nbytes}(") and body[1:] == [COMMIT, wait(0)]


def test_constants_of_places_stand_behind_what_copies_have_in_common() -> None:
    """Summed up with the rest they take two instructions each; added to a pointer, none."""
    there = replace(
        copy(), dst_index=Binary("add", ITEM, Const(256, INT), INT), src_index=Binary("add", ITEM, Const(64, INT), INT)
    )
    item = "(int)get_local_id(0)"
    assert copied(there)[0] == f"tile_copy_async_16(tile + {item} + 256, a + {item} + 64);"


def test_a_copy_that_fills_reads_no_bytes_where_its_guard_is_false() -> None:
    there = Compare("cmp_lt", ITEM, Const(5, INT), BOOL)
    node = replace(copy(guard=there), fill=True)
    body = copied(node, AsyncWait())
    assert body[0] == CP16.replace("copy_async_16", "copy_async_16_or_clear").replace(
        ");", ", (int)get_local_id(0) < 5);"
    )
    text = emit(Alloc("tile", array(F32)), node)
    assert (
        """void tile_copy_async_16_or_clear(local void* to, global const void* from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"((uint)(size_t)to), "l"((ulong)(size_t)from), "r"(there ? 16 : 0) : "memory");
}
"""
        in text
    )
    (plain,) = copied(node, dialect=PLAIN)
    assert "(int)get_local_id(0) < 5 ? a[" in plain and plain.endswith(": 0;")


def test_the_copying_functions() -> None:
    text = emit(Alloc("tile", array(F32)), copy(2), copy())
    assert (
        """void tile_copy_async_8(local void* to, global const void* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" :: "r"((uint)(size_t)to), "l"((ulong)(size_t)from) : "memory");
}

void tile_copy_async_16(local void* to, global const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"((uint)(size_t)to), "l"((ulong)(size_t)from) : "memory");
}
"""
        in text
    )


def test_a_wait_commits_the_batch_before_it_and_no_copy_does() -> None:
    body = copied(
        copy(),
        Comment("x"),
        copy(),
        Barrier(),
        If(FIRST, Block((copy(),))),
        AsyncWait(0, 2),
        copy(guard=FIRST),
        AsyncWait(0, 1),
    )
    head = "if ((int)get_local_id(0) == 0) {"
    barrier = "barrier(CLK_LOCAL_MEM_FENCE);"
    guarded = f"if ((int)get_local_id(0) == 0) {CP16}"
    assert body == [CP16, "// x", CP16, barrier, head, CP16, "}", COMMIT, wait(2), guarded, COMMIT, wait(1)]


LOOPED = copy(3)
"""No instruction copies so much at once."""


def test_a_kernel_whose_copies_are_loops_has_nothing_to_wait_for() -> None:
    assert wait(0) not in copied(LOOPED, AsyncWait())


def test_the_kinds_of_batches_share_one_sequence_so_that_waits_are_for_all() -> None:
    body = copied(copy(group=0), AsyncWait(0, 1), copy(group=1), AsyncWait(1, 1))
    assert body == [CP16, COMMIT, wait(0), CP16, COMMIT, wait(0)]


@pytest.mark.parametrize(
    ("dialect", "line"),
    [(PTX, 'asm volatile("bar.warp.sync 0xffffffff;" ::: "memory");'), (PLAIN, "barrier(CLK_LOCAL_MEM_FENCE);")],
)
def test_lanes_wait_for_their_own_sub_group_where_the_compiler_can_say_so(dialect: Dialect, line: str) -> None:
    assert line in emit(Barrier("subgroup", "local"), dialect=dialect)


def test_without_ptx_copies_are_loops_and_nothing_waits() -> None:
    (line,) = copied(copy(), AsyncWait(), dialect=PLAIN)
    assert line.startswith("for (int k = 0; k < 4; ++k) tile[")


# --- on devices ------------------------------------------------------------------------------------

Launch = Callable[..., list[Any]]


def rounded(x: np.ndarray, bits: int) -> np.ndarray:
    """By the definition, in float64, which is exact: ties away from zero in units of the last bit kept."""
    with np.errstate(all="ignore"):
        wide = np.where(np.isfinite(x), x, 0).astype(np.float64)
        exponent = np.maximum(np.frexp(wide)[1] - 1, -126)
        unit = np.ldexp(1.0, exponent - bits)
        whole = np.copysign(np.floor(np.abs(wide) / unit + 0.5) * unit, wide)
        return np.where(np.isfinite(x), whole.astype(np.float32), x)


EDGES = np.array(
    [0x00000000, 0x80000000, 0x00000001, 0x00001000, 0x80000FFF, 0x007FFFFF, 0x3F801000, 0x3F800FFF, 0xBF801000, 0x3F803000,
     0x7F7FFFFF, 0xFF7FFFFF, 0x7F7FEFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFF802000, 0x7FBFFFFF, 0x7FFFFFFF, 0xFFFFFFFF,
     0x7FFFE000], np.uint32,
).view(np.float32)  # fmt: skip


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("bits", [0, 7, 10, 22, 23])
def test_rounding_on_a_device(device: Any, launch: Launch, bits: int, lanes: int) -> None:
    noise = np.random.default_rng(bits).integers(0, 1 << 32, 1007, np.uint32).view(np.float32)
    data = np.concatenate([EDGES, noise])
    i, t = Var("i", INT), Type(F32, lanes)
    step = Store(pointer("out", F32), i, Round(Load(pointer("a", F32), i, t), bits, t))
    loop = For("i", ZERO, Const(data.size, INT), lanes, Block((step,)))
    found, _ = launch(device, made(loop, threads=1, subgroup=0, elements=data.size), [np.zeros_like(data), data])
    expected = rounded(data, bits) if bits < 23 else data
    number = ~np.isnan(expected)
    np.testing.assert_array_equal(found.view(np.uint32)[number], expected.view(np.uint32)[number])
    assert np.isnan(found[~number]).all()


def test_asynchronous_copies_on_a_device(device: Any, launch: Launch) -> None:
    """Two stages: the second is under way while the first is used; guarded copies leave what was there."""
    threads, tile = 8, Var("tile", array(F32, 64))
    at = Binary("mul", ITEM, Const(4, INT), INT)
    then = Binary("add", at, Const(32, INT), INT)
    odd = Compare("cmp_eq", Binary("mod", ITEM, Const(2, INT), INT), Const(1, INT), BOOL)
    clear = [Store(tile, index, Const(-1.0, F4), None, 16) for index in (at, then)]
    stages = [
        AsyncCopy(tile, index, pointer("a", F32), index, 4, guard, 0, 16) for index, guard in ((at, None), (then, odd))
    ]
    moves = [Store(pointer("out", F32), index, Load(tile, index, F4, None, 16), None, 16) for index in (at, then)]
    body = (
        Alloc("tile", tile.type),
        *clear,
        stages[0],
        AsyncWait(0, 1),
        stages[1],
        AsyncWait(0, 1),
        moves[0],
        AsyncWait(),
        moves[1],
    )
    data = np.arange(64, dtype=np.float32)
    found, _ = launch(device, made(*body, threads=threads, subgroup=0, elements=64), [np.zeros_like(data), data])
    guarded = np.where(np.arange(32) // 4 % 2 == 1, data[32:], -1)
    np.testing.assert_array_equal(found, np.concatenate([data[:32], guarded]))
