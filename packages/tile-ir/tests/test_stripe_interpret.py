"""The Stripe interpreter: every statement type, both paths, and what it must refuse."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tile_ir import numerics
from tile_ir.contents import Contents
from tile_ir.diagnostics import TileTypeError
from tile_ir.dtype import DType
from tile_ir.ops import Aggregation
from tile_ir.stripe import nodes
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.interpret import poison, run, run_block
from tile_ir.stripe.parser import parse_block, parse_program
from tile_ir.stripe.verify import StripeError


def program(inputs: str, outputs: str, buffers: str, kernels: str) -> nodes.Program:
    """A program whose entry allocates `buffers` (``name type; …``) and hands all of them to `kernels`."""
    items = [item.strip().split(" ", 1) for item in buffers.split(";")]
    zeros = {name: ", ".join("0" for _ in range(type_.count(":"))) for name, type_ in items}
    allocs = "\n".join(f"none new@0x0<DRAM> {name}[{zeros[name]}] {type_}" for name, type_ in items)
    views = "\n".join(f"inout<DRAM> {name}[{zeros[name]}] {type_}" for name, type_ in items)
    header = (f"inputs {inputs}\n" if inputs else "") + f"outputs {outputs}\n"
    return parse_program(
        f"{header}0: block [] ( // program\n{allocs} ) {{ 0: block [] ( // main\n{views} ) {{ {kernels} }} }}"
    )


def both(p: nodes.Program, **inputs: Any) -> dict[str, Any]:
    """The outputs, after checking that the fast and the slow path agree bit for bit."""
    fast, slow = run(p, inputs), run(p, inputs, slow=True)
    assert {k: (v.dtype, v.tobytes()) for k, v in fast.items()} == {k: (v.dtype, v.tobytes()) for k, v in slow.items()}
    return fast


MATMUL = """0: block [i:4, j:5, k:3] ( // matmul
    in A[i, k] {t}(1:3, 1:1)
    in B[k, j] {t}(1:5, 1:1)
    inout C[i, j]:{agg} {t}(1:5, 1:1) {{init=identity}}
) {{ 0: $a = load(A) 1: $b = load(B) 2: $c = mul($a, $b) 3: C = store($c) }}"""


def matmul(dtype: str, agg: str = "add") -> nodes.Program:
    buffers = f"A {dtype}(4:3, 3:1); B {dtype}(3:5, 5:1); C {dtype}(4:5, 5:1)"
    return program("A, B", "C", buffers, MATMUL.format(t=dtype, agg=agg))


@pytest.mark.parametrize("dtype", [d for d in DType if d is not DType.BFLOAT16])
@pytest.mark.parametrize("agg", list(Aggregation))
def test_contractions_of_every_dtype_and_aggregation(dtype: DType, agg: Aggregation) -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.integers(0, 4, shape).astype(dtype.numpy) for shape in ((4, 3), (3, 5)))
    got = both(matmul(str(dtype), agg.value), A=a, B=b)["C"]
    products = numerics.apply("mul", (a[:, None, :], b.T[None, :, :]), dtype)
    assert got.tolist() == numerics.aggregate(agg, products, 2, dtype).tolist()


def test_bfloat16() -> None:
    bf16 = pytest.importorskip("ml_dtypes").bfloat16
    a, b = np.full((4, 3), 1.5, bf16), np.full((3, 5), 2.0, bf16)
    assert (both(matmul("bfloat16"), A=a, B=b)["C"] == np.full((4, 5), 9.0, bf16)).all()


def test_sums_round_in_the_buffer_dtype_in_iteration_order() -> None:
    p = program("A", "S", "A float32(64:1); S float32()", """0: block [i:64] (
        in A[i] float32(1:1)
        inout S[]:add float32() {init=identity}
    ) { 0: $a = load(A) 1: S = store($a) }""")  # fmt: skip
    a = (np.random.default_rng(0).random(64) * 1e3).astype(np.float32)
    total = np.float32(0)
    for value in a:
        total = np.float32(total + value)
    assert both(p, A=a)["S"] == total


def test_an_accumulator_dtype_rounds_once_per_block() -> None:
    p = program("A", "S", "A float16(4096:1); S float16()", """0: block [i:4096] (
        in A[i] float16(1:1)
        inout S[]:add float16() {init=identity, acc=float32}
    ) { 0: $a = load(A) 1: S = store($a) }""")  # fmt: skip
    assert both(p, A=np.ones(4096, np.float16))["S"] == 4096  # float16 alone stops at 2048


CONV = """0: block [x:8, i:3] ( // same convolution
    -1 + x + i >= 0
    8 - x - i >= 0
    in I[-1 + x + i] int32(1:1)
    in K[i] int32(1:1)
    inout O[x]:add int32(1:1) {init=identity}
) { 0: $i = load(I) 1: $k = load(K) 2: $o = mul($i, $k) 3: O = store($o) }"""
CONV_BUFFERS = "I int32(8:1); K int32(3:1); O int32(8:1)"


def test_constraints_bound_the_domain() -> None:
    i, k = np.arange(1, 9, dtype=np.int32), np.asarray([1, 10, 100], np.int32)
    got = both(program("I, K", "O", CONV_BUFFERS, CONV), I=i, K=k)["O"]
    assert got.tolist() == np.correlate(i, k, "same").tolist()


@pytest.mark.parametrize("slow", [False, True])
def test_an_access_out_of_bounds_is_an_error(slow: bool) -> None:
    unconstrained = CONV.replace("-1 + x + i >= 0", "")
    p = program("I, K", "O", CONV_BUFFERS, unconstrained)
    with pytest.raises(StripeError, match=r"main / same convolution: I is accessed at element \[-1\].* at x=0, i=0"):
        run(p, {"I": np.zeros(8, np.int32), "K": np.zeros(3, np.int32)}, slow=slow)


@pytest.mark.parametrize("slow", [False, True])
def test_a_view_limits_what_inner_blocks_reach(slow: bool) -> None:
    p = program("A", "B", "A int8(8:1); B int8(8:1)", """0: block [t:2] (
        in A[4*t] int8(4:1)
        inout B[4*t] int8(4:1)
    ) { 0: block [i:5] (
        in A[i] int8(1:1)
        inout B[i] int8(1:1)
    ) { 0: $a = load(A) 1: B = store($a) } }""")  # fmt: skip
    with pytest.raises(StripeError, match="outside"):
        run(p, {"A": np.zeros(8, np.int8)}, slow=slow)


def test_tiles_with_an_index_passed_down_and_a_guard() -> None:
    p = program("A", "B", "A int32(10:1); B int32(10:1)", """0: block [t:3] (
        in A[4*t] int32(4:1)
        inout B[4*t] int32(4:1)
    ) {
      0: block [i:4, o = 4*t] if [1 - t >= 0] ( // inner tiles
        in A[i] int32(1:1)
        inout B[i] int32(1:1)
      ) { 0: $a = load(A) 1: $o = load_index(o) 2: $b = add($a, $o) 3: B = store($b) }
      1: block [i:4, o = 4*t] if [t - 2 >= 0] ( // the edge
        9 - o - i >= 0
        in A[i] int32(1:1)
        inout B[i] int32(1:1)
      ) { 0: $a = load(A) 1: $o = load_index(o) 2: $b = add($a, $o) 3: B = store($b) }
    }""")  # fmt: skip
    a = np.arange(10, dtype=np.int32)
    assert both(p, A=a)["B"].tolist() == [v + v // 4 * 4 for v in range(10)]


def test_quasi_affine_forms_in_accesses_constraints_and_scalars() -> None:
    p = program("A", "B", "A int32(4:1); B int32(8:1)", """0: block [i:8] (
        i%3 - 1 >= 0
        in A[i/2] int32(1:1)
        inout B[7 - i] int32(1:1)
    ) { 0: $a = load(A) 1: $m = load_index(10*(i%3)) 2: $b = add($a, $m) 3: B = store($b) }""")  # fmt: skip
    a, kept = np.asarray([1, 2, 3, 4], np.int32), int(poison(DType.INT32, ()))
    expected = [a[i // 2] + 10 * (i % 3) if i % 3 else kept for i in range(8)]
    assert both(p, A=a)["B"].tolist() == expected[::-1]


def test_missing_initialisation_is_poison() -> None:
    p = program("A, B", "C", "A float32(4:3, 3:1); B float32(3:5, 5:1); C float32(4:5, 5:1)",
                MATMUL.format(t="float32", agg="add").replace("{init=identity}", ""))  # fmt: skip
    got = both(p, A=np.ones((4, 3), np.float32), B=np.ones((3, 5), np.float32))["C"]
    assert np.isnan(got).all()
    assert poison(DType.INT16, (1,)).tolist() == [np.uint16(0xA5A5).astype(np.int16)]
    assert poison(DType.BOOL, ()).tolist() is True


def test_an_ordered_index_sees_the_iteration_before() -> None:
    p = program("A", "S", "A int64(5:1); S int64(5:1)", """0: block [i:5 #ordered] (
        none new@0x0<REG:thread> unused[] int64()
        in A[i] int64(1:1)
        inout S[0] int64(5:1)
    ) {
      0: block [o = i] if [-i >= 0] (
          in A[0] int64(1:1)
          inout S[0] int64(5:1)
      ) { 0: $a = load(A) 1: S = store($a) }
      1: block [o = i] if [i - 1 >= 0] (
          in A[0] int64(1:1)
          inout S[0] int64(5:1)
      ) { 0: $a = load(A) 1: $s = load(S[o - 1]) 2: $t = add($a, $s) 3: S[o] = store($t) }
    }""")  # fmt: skip
    assert both(p, A=np.arange(1, 6))["S"].tolist() == [1, 3, 6, 10, 15]


def test_gather_and_scatter_clamp() -> None:
    p = program("A, P", "G, S", "A float32(4:1); P int32(6:1); G float32(6:1); S float32(4:1)", """0: block [i:6] (
        in A[0] float32(4:1)
        in P[i] int32(1:1)
        inout G[i] float32(1:1)
        inout S[0]:add float32(4:1) {init=identity}
    ) {
        0: $p = load(P) 1: $g = load(A[$p], clamp=true) 2: G = store($g)
        3: S[$p] = store($g, clamp=true, atomic=true)
    }""")  # fmt: skip
    a, where = np.asarray([1, 2, 3, 4], np.float32), np.asarray([-5, 0, 3, 99, 1, 1], np.int32)
    got = both(p, A=a, P=where)
    assert got["G"].tolist() == [1, 1, 4, 4, 2, 2]
    assert got["S"].tolist() == [2, 4, 0, 8]
    with pytest.raises(StripeError, match="outside"):
        run(program("A, P", "G", "A float32(4:1); P int32(6:1); G float32(6:1)", """0: block [i:6] (
            in A[0] float32(4:1)
            in P[i] int32(1:1)
            inout G[i] float32(1:1)
        ) { 0: $p = load(P) 1: $g = load(A[$p]) 2: G = store($g) }"""), {"A": a, "P": where})  # fmt: skip


def test_threads_meet_at_barriers_even_inside_serial_loops() -> None:
    p = program("A", "B", "A int32(2:4, 4:1); B int32(4:1)", """0: block [] (
        none new@0x0<LOCAL:group> T[0] int32(4:1)
        in A[0, 0] int32(2:4, 4:1)
        inout B[0] int32(4:1)
    ) { 0: block [t:4 #group] (
            in A[0, 0] int32(2:4, 4:1)
            inout T[0] int32(4:1)
            inout B[t]:add int32(1:1) {init=identity}
        ) { 0: block [k:2 #ordered, u = t] (
                in A[k, u] int32(1:4, 1:1)
                inout T[0] int32(4:1)
                inout B[0]:add int32(1:1)
            ) {
                0: $a = load(A) 1: T[u] = store($a)
                2: sync(scope=group, fence="local")
                3: $b = load(T[3 - u]) 4: B = store($b)
                5: sync(scope=group, fence="local")
            } } }""")  # fmt: skip
    a = np.asarray([[1, 2, 3, 4], [10, 20, 30, 40]], np.int32)
    assert both(p, A=a)["B"].tolist() == [44, 33, 22, 11]


def test_a_barrier_that_only_some_threads_reach_is_an_error() -> None:
    p = program("", "B", "B int32(4:1)", """0: block [t:4 #group] (
        inout B[t] int32(1:1)
    ) { 0: block [] if [1 - t >= 0] ( ) { 0: sync(scope=group, fence="local") } }""")  # fmt: skip
    with pytest.raises(StripeError, match="do not all reach"):
        run(p, {})


def test_reduce_over_bound_indexes_is_broadcast_to_them() -> None:
    p = program("A", "B", "A float32(3:4, 4:1); B float32(3:4, 4:1)", """0: block [r:3, l:4 #lane] (
        in A[r, l] float32(1:4, 1:1)
        inout B[r, l] float32(1:4, 1:1)
    ) { 0: $a = load(A) 1: $m = reduce_max($a, over=[l]) 2: $d = sub($a, $m) 3: B = store($d) }""")  # fmt: skip
    a = np.random.default_rng(2).random((3, 4)).astype(np.float32)
    assert (both(p, A=a)["B"] == a - a.max(1, keepdims=True)).all()


def test_double_buffering_with_transfers() -> None:
    p = program("A", "B", "A int16(4:3, 3:1); B int16(4:3, 3:1)", """0: block [] (
        none new@0x0<LOCAL:group> T[0, 0] int16(1:3, 3:1) {versions=2}
        in A[0, 0] int16(4:3, 3:1)
        inout B[0, 0] int16(4:3, 3:1)
    ) { 0: block [] (
            in A[0, 0] int16(1:3, 3:1)
            inout T[0, 0, 0] int16(1:3, 3:1)
        ) { 0: T = transfer(A, unit="DMA", group=1) }
        1: block [k:4 #ordered] (
            in Next = A[k + 1, 0] int16(1:3, 3:1)
            inout Ahead = T[(k + 1)%2, 0, 0] int16(1:3, 3:1)
            in Now = T[0, 0] int16(1:3, 3:1)
            out B[k, 0] int16(1:3, 3:1)
        ) {
            0: block [j = k] if [2 - k >= 0] (
                in Next[0, 0] int16(1:3, 3:1)
                inout Ahead[0, 0] int16(1:3, 3:1)
            ) { 0: Ahead = transfer(Next, group=1) }
            1: wait(group=1, pending=1)
            2: B = transfer(Now)
        } }""")  # fmt: skip
    a = np.arange(12, dtype=np.int16).reshape(4, 3)
    assert (both(p, A=a)["B"] == a).all()


def test_a_transfer_clears_where_its_source_does_not_count() -> None:
    p = program("A", "B", "A int8(4:1); B int8(6:1)", """0: block [k:6] (
        in src = A[k - 1] int8(1:1)
        out dst = B[k] int8(1:1)
    ) { 0: dst = transfer(src, where=[k - 1, 4 - k]) }""")  # fmt: skip
    assert both(p, A=np.array([1, 2, 3, 4], np.int8))["B"].tolist() == [0, 1, 2, 3, 4, 0]


def test_a_transfer_outside_the_buffer_is_an_error() -> None:
    p = program("A", "B", "A int8(4:1); B int8(4:1)", """0: block [] (
        in A[1] int8(4:1)
        inout B[0] int8(4:1)
    ) { 0: B = transfer(A) }""")  # fmt: skip
    with pytest.raises(StripeError, match="reaches outside"):
        run(p, {"A": np.zeros(4, np.int8)})


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_view_of_a_whole_buffer_may_reshape_it(order: Any) -> None:
    p = program("A", "B", "A int32(4:6, 6:1); B int32(2:12, 12:1)", """0: block [] (
        in A[0] int32(24:1)
        out B[0, 0, 0] int32(2:12, 3:4, 4:1)
    ) { 0: block [i:2, j:3, k:4] (
        in A[12*i + 4*j + k] int32(1:1)
        inout B[i, j, k]:add int32(1:12, 1:4, 1:1) {init=identity}
    ) { 0: $a = load(A) 1: B = store($a) } }
    1: block [i:24] (
        in A[i/6, i%6] int32(1:6, 1:1)
        inout B[0]:add int32(24:1)
    ) { 0: $a = load(A) 1: $i = load_index(i) 2: B[i] = store($a) }""")  # fmt: skip
    a = np.array(np.arange(24, dtype=np.int32).reshape(4, 6), order=order)
    assert (both(p, A=a)["B"] == 2 * a.reshape(2, 12)).all()


def test_specials_are_refused() -> None:
    p = program("", "B", "B int8(4:1)", """0: block [] (
        inout B[0] int8(4:1)
    ) { 0: special("vendor_sort", outs=[B], ins=[]) }""")  # fmt: skip
    with pytest.raises(StripeError, match="vendor_sort"):
        run(p, {})


def test_constants_size_zero_and_rank_zero() -> None:
    base = program("A", "B, E", "A float32(); W float32(2:1); B float32(2:1); E int8(0:3, 3:1)", """0: block [i:2] (
        in A[] float32()
        in W[i] float32(1:1)
        inout B[i] float32(1:1)
    ) { 0: $a = load(A) 1: $w = load(W) 2: $b = mul($a, $w) 3: B = store($b) }
    1: block [i:0, j:3] (
        inout E[i, j] int8(1:3, 1:1)
    ) { 0: $z = (int8)0 1: E = store($z) }""")  # fmt: skip
    data = np.asarray([3, 4], "<f4")
    constant = nodes.ConstantBuffer("W", nodes.TensorType.row_major(DType.FLOAT32, (2,)), Contents(data.tobytes()))
    got = both(replace(base, constants=(constant,)), A=np.float32(2))
    assert got["B"].tolist() == [6, 8]
    assert got["E"].shape == (0, 3)


def test_inputs_are_checked_and_left_alone() -> None:
    a, b = np.ones((4, 3), np.int32), np.ones((3, 5), np.int32)
    with pytest.raises(TileTypeError, match="input B is missing"):
        run(matmul("int32"), {"A": a})
    with pytest.raises(TileTypeError, match="input B is float64"):
        run(matmul("int32"), {"A": a, "B": b.astype(float)})
    with pytest.raises(TileTypeError, match=r"input A is int32\(3, 4\)"):
        run(matmul("int32"), {"A": a.T, "B": b})
    both(matmul("int32"), A=a, B=b)
    assert (a == 1).all()


def test_run_block_works_in_place_on_the_sources_of_a_kernel() -> None:
    kernel = parse_block(MATMUL.format(t="int64", agg="max"))
    a, b, c = np.arange(12).reshape(4, 3), np.arange(15).reshape(3, 5), np.zeros((4, 5), np.int64)
    run_block(kernel, {"A": a, "B": b, "C": c})
    assert (c == (a[:, None, :] * b.T).max(2)).all()


def test_tags_names_and_comments_carry_no_meaning() -> None:
    tagged = MATMUL.format(t="int32", agg="add").replace("0: block", "0: #kernel #contract #gpu_thread block")
    p = program("A, B", "C", "A int32(4:3, 3:1); B int32(3:5, 5:1); C int32(4:5, 5:1)", tagged)
    a, b = np.arange(12, dtype=np.int32).reshape(4, 3), np.arange(15, dtype=np.int32).reshape(3, 5)
    assert (both(p, A=a, B=b)["C"] == both(matmul("int32"), A=a, B=b)["C"]).all()


# --- random leaves: the vectorised path is the slow path ------------------------------------------


@st.composite
def leaves(draw: st.DrawFn) -> tuple[nodes.Program, dict[str, Any]]:
    """A strided, constrained two-index contraction over one input, of any aggregation and order of indexes."""
    dtype = draw(st.sampled_from([DType.INT8, DType.UINT16, DType.FLOAT32, DType.FLOAT16, DType.BOOL]))
    m, n, size = draw(st.integers(0, 5)), draw(st.integers(0, 5)), 16
    stride = [draw(st.integers(-2, 2)) for _ in range(2)]
    low = sum(min(0, s * (r - 1)) for s, r in zip(stride, (m, n), strict=True))
    access = Affine.of({"i": stride[0], "j": stride[1]}, draw(st.integers(-1, 2)) - low)
    out = draw(st.sampled_from([Affine.var("i"), Affine.var("j"), Affine.of({"i": 1, "j": 1}), Affine((), 3)]))
    unit = nodes.TensorType(dtype, (1,), nodes.Layout((1,)))
    indexes = [nodes.Index("i", m), nodes.Index("j", n)]
    if draw(st.booleans()):
        indexes.reverse()
    block = nodes.Block(
        "leaf", tuple(indexes), (Affine.of({"i": -1, "j": draw(st.integers(-1, 1))}, 3),),
        refs=(
            nodes.Refinement(nodes.Direction.IN, "A", "A", (access,), unit),
            nodes.Refinement(
                nodes.Direction.INOUT, "B", "B", (out,), unit,
                agg := draw(st.none() | st.sampled_from(Aggregation)),
                draw(st.sampled_from(nodes.Init)) if agg else nodes.Init.KEEP,
            ),
        ),
        body=(nodes.Load("$a", "A"), nodes.Op("$b", "mul", ("$a", "$a"), dtype), nodes.Store("B", "$b")),
    )  # fmt: skip
    base = program("A, B", "B", f"A {dtype}({size}:1); B {dtype}({size}:1)", "")
    main = base.entry.body[0]
    assert isinstance(main, nodes.Block)
    values = st.lists(st.integers(0, 9), min_size=size, max_size=size)
    inputs = {name: np.asarray(draw(values)).astype(dtype.numpy) for name in ("A", "B")}
    return replace(base, entry=replace(base.entry, body=(replace(main, body=(block,)),))), inputs


@settings(max_examples=120)
@given(leaves())
def test_random_leaves_agree_on_both_paths(case: tuple[nodes.Program, dict[str, Any]]) -> None:
    p, inputs = case
    try:
        run(p, inputs)
    except StripeError:
        with pytest.raises(StripeError, match="outside"):
            run(p, inputs, slow=True)
    else:
        both(p, **inputs)


def test_statements_beside_a_versioned_allocation_use_its_first_copy() -> None:
    text = """inputs A, Z outputs B, C
block [] ( none A[0] f32(4:1) none Z[] f32() none B[0] f32(4:1) none C[] f32() ) { block [] ( in A[0] f32(4:1) in Z[] f32() out B[0] f32(4:1) out C[] f32() ) {
  block [] ( in A[0] f32(4:1) in Z[] f32() out B[0] f32(4:1) out C[] f32() none T[0] f32(4:1) {versions=2} none U[] f32() {versions=2} ) {
    T = transfer(A) U = transfer(Z)
    block [i:4] ( in A[i] f32(1:1) inout T[i]:add f32(1:1) {init=identity} ) { $a = load(A) T = store($a) T = store($a) }
    block [] ( inout U[]:add f32() ) { $u = load(U) U = store($u) }
    B = transfer(T) C = transfer(U) } } }"""
    made = run(parse_program(text), {"A": np.arange(4, dtype=np.float32), "Z": np.float32(3)})
    assert made["B"].tolist() == [0, 2, 4, 6]
    assert made["C"] == 6


PASSED_ON = """0: block [] (
        none new@0x0<LOCAL:group> T[0] int32(2:1) {versions=3}
        in A[0, 0] int32(5:2, 2:1)
        inout B[0, 0] int32(5:2, 2:1)
    ) { 0: block [] (
            inout T[0] int32(2:1) {versions=3}
            in A[0, 0] int32(5:2, 2:1)
            inout B[0, 0] int32(5:2, 2:1)
        ) { 0: block [k:3] ( in A[k, 0] int32(1:2, 2:1) out U = T[FIRST, 0] int32(2:1) ) { 0: block [j:2] (
                in A[0, j] int32(1:2, 1:1) out U[j] int32(1:1)
            ) { 0: $a = load(A) 1: U = store($a) } }
            1: block [k:5] ( in T[k, 0] int32(2:1) out B[k, 0] int32(1:2, 2:1) ) { 0: block [j:2] (
                in T[j] int32(1:1) out B[0, j] int32(1:2, 1:1)
            ) { 0: $t = load(T) 1: B = store($t) } }
        } }"""
"""Rows of A to the versions of T, all of which the inner block is given, and back modulo their number."""


@pytest.mark.parametrize(
    ("first", "rows"),
    [("k", [0, 1, 2, 0, 1]), ("k + 1", [2, 0, 1, 2, 0]), ("2 - k", [2, 1, 0, 2, 1]), ("k + 5", [1, 2, 0, 1, 2])],
)
def test_a_view_with_its_sources_versions_passes_all_of_them_on(first: str, rows: list[int]) -> None:
    p = program("A", "B", "A int32(5:2, 2:1); B int32(5:2, 2:1)", PASSED_ON.replace("FIRST", first))
    a = np.arange(10, dtype=np.int32).reshape(5, 2)
    assert (both(p, A=a)["B"] == a[rows]).all()


def test_versions_are_passed_on_through_any_depth() -> None:
    inner = (
        "block [] ( inout T[0] int32(2:1) {versions=3} in A[0, 0] int32(5:2, 2:1) inout B[0, 0] int32(5:2, 2:1) ) { 0: "
    )
    text = PASSED_ON.replace("FIRST", "k").replace(
        "{ 0: block [] (\n            inout", f"{{ 0: {inner}block [] (\n            inout"
    )
    p = program("A", "B", "A int32(5:2, 2:1); B int32(5:2, 2:1)", text.rstrip() + " }")
    a = np.arange(10, dtype=np.int32).reshape(5, 2)
    assert (both(p, A=a)["B"] == a[[0, 1, 2, 0, 1]]).all()


def test_a_view_without_versions_is_one_of_them() -> None:
    """The inner block sees version 0 only: every row of A that is copied overwrites the one before."""
    text = PASSED_ON.replace("inout T[0] int32(2:1) {versions=3}", "inout T[0, 0] int32(2:1)").replace("FIRST", "k")
    text = text.replace("U = T[k, 0]", "U = T[0]").replace("in T[k, 0]", "in T[0]")
    p = program("A", "B", "A int32(5:2, 2:1); B int32(5:2, 2:1)", text)
    a = np.arange(10, dtype=np.int32).reshape(5, 2)
    assert (both(p, A=a)["B"] == a[2]).all()


def test_blocks_whose_points_use_one_copy_are_taken_at_once() -> None:
    """The copy is passed down to all points, or is that of the only iteration of a loop."""
    a = np.arange(10, dtype=np.int32).reshape(5, 2)
    for inner, copy in (("k = k, i:2", "k"), ("c:1, i:2", "c"), ("k = k, i:2", "2*k + 1"), ("i:2", "4")):
        text = f"""0: block [k:5 #ordered] (
            none new@0x0<LOCAL:group> T[0] int32(2:1) {{versions=3}}
            in A[k, 0] int32(1:2, 2:1) inout B[k, 0] int32(1:2, 2:1)
        ) {{ 0: block [{inner}] ( in A[0, i] int32(1:2, 1:1) out T[{copy}, i] int32(1:1) ) {{
                0: $a = load(A) 1: T = store($a) }}
            1: block [{inner}] ( in T[{copy}, i] int32(1:1) out B[0, i] int32(1:2, 1:1) ) {{
                0: $t = load(T) 1: B = store($t) }} }}"""
        p = program("A", "B", "A int32(5:2, 2:1); B int32(5:2, 2:1)", text)
        assert (both(p, A=a)["B"] == a).all(), copy
