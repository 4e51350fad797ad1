"""Fields of scheduled Stripe one by one: bindings, guards, allocations, subscripts, reductions."""

from __future__ import annotations

import re

import numpy as np
import pytest
from lowering_support import TARGET, check, copy, only, wrap
from tile_ir.dtype import DType
from tile_ir.emit.walker import walk_all, walk_expr, walk_statements
from tile_ir.kernels import OUTPUT_ALIGN
from tile_ir.semtree.nodes import Alloc, Binary, For, If, Insert, Let, Load, Space, Splat, Store
from tile_ir.stripe.parser import parse_program
from tile_ir.target import HardwareSettings, Target
from tile_opt.lowering import LoweringError, lower


def test_grid_indexes_share_axes_last_one_fastest() -> None:
    kernels = check(copy("i = i, j = j, k = k", "", "12*i + 4*j + k", "12*i + 4*j + k",
                         outer="i:2 #grid(axis=1), j:3 #grid, k:4 #grid"))  # fmt: skip
    assert kernels.kernels[0].groups == (12, 2, 1)


@pytest.mark.parametrize("limits", [(5, 4, 4), (3, 3, 3), (24, 1, 1), (2, 2, 8)])
def test_grids_beyond_a_dimension_limit_are_spread(limits: tuple[int, int, int]) -> None:
    target = Target("small", HardwareSettings(dim_sizes=limits))
    kernels = check(copy("i = i, j = j, k = k", "", "12*i + 4*j + k", "12*i + 4*j + k",
                         outer="i:2 #grid(axis=1), j:3 #grid, k:4 #grid"), target=target)  # fmt: skip
    groups = kernels.kernels[0].groups
    assert all(g <= limit for g, limit in zip(groups, limits, strict=True))


def test_grid_too_large_for_the_device() -> None:
    text = copy("i = i", "", "i", "i", outer="i:24 #grid")
    with pytest.raises(LoweringError, match="larger than the device"):
        lower(parse_program(text), Target("tiny", HardwareSettings(dim_sizes=(2, 2, 2))))


def test_vector_with_stride_one_loads_and_stores_vectors() -> None:
    function = only(check(copy("i:3, v:8 #vector(lanes=8)", "", "8*i + v", "8*i + v")))
    loads = [e for e in walk_all(function) if isinstance(e, Load)]
    assert [e.type.lanes for e in loads] == [8]
    (store,) = [s for s in walk_statements(function.body) if isinstance(s, Store)]
    assert store.align == OUTPUT_ALIGN == 16


MASKS = Target("masks", HardwareSettings(masks=True))


@pytest.mark.parametrize(("target", "masked"), [(TARGET, 0), (MASKS, 2)])
def test_lanes_that_disagree_are_masked_or_done_one_by_one(target: Target, masked: int) -> None:
    function = only(check(copy("v:8 #vector(lanes=4)", "4 - v >= 0", "v", "v", n="5:1"), target=target))
    stores = [s for s in walk_statements(function.body) if isinstance(s, Store)]
    loads = [e for e in walk_all(function) if isinstance(e, Load)]
    assert len(stores) == len(loads) == 2
    assert sum(n.mask is not None for n in (*stores, *loads)) == masked


@pytest.mark.parametrize(
    ("bound", "cut", "kept"),
    [
        ("4 - i - j >= 0", "4 - v >= 0", False),
        ("4 - i - j >= 0", "2*i - v >= 0", False),
        ("4 - i - j >= 0", "i - v - 1 >= 0", False),
        ("5 - i - j >= 0", "i - v - 1 >= 0", True),
        ("4 - i >= 0", "4 - i - j - v >= 0", True),
    ],
)
def test_what_all_lanes_read_is_where_it_says_if_some_lane_or_the_loops_keep_it_there(
    bound: str, cut: str, kept: bool
) -> None:
    """A lane that takes part reads it; where all lanes may be cut off, the bounds of the loops have to say that it is there."""
    text = copy("i:4, j:4, v:8 #vector(lanes=8)", f"{bound}\n{cut}\n", "2*i + 2*j", "v", n="9:1")
    function = only(lower(parse_program(text), MASKS))
    loads = [e for e in walk_all(function) if isinstance(e, Load)]
    assert {e.mask for e in loads} == {None}
    clamped = [e for load in loads for e in walk_expr(load.index) if isinstance(e, Binary) and e.op == "min"]
    assert bool(clamped) is kept


def test_other_strides_load_lane_by_lane() -> None:
    function = only(check(copy("i:6, v:4 #vector(lanes=4)", "", "i + 6*v", "23 - 4*i - v")))
    assert sum(isinstance(e, Insert) for e in walk_all(function)) == 3
    assert sum(isinstance(s, Store) for s in walk_statements(function.body)) == 4


def test_odd_vector_lengths() -> None:
    check(copy("i:8, v:3 #vector(lanes=3)", "", "3*i + v", "3*i + v"))


def test_remainder_by_constraint_falls_back_to_lanes() -> None:
    function = only(check(copy("i:4, v:8 #vector(lanes=8)", "23 - 8*i - v >= 0", "8*i + v", "8*i + v")))
    assert any(isinstance(s, If) for s in walk_statements(function.body))


def test_constraint_of_static_indexes_leaves_no_condition() -> None:
    function = only(check(copy("i:5 #unroll, j:6 #unroll", "23 - 5*j - i >= 0", "i + 5*j", "i + 5*j")))
    assert not any(isinstance(s, If) for s in walk_statements(function.body))
    assert sum(isinstance(s, Store) for s in walk_statements(function.body)) == 24


def test_bounds_divide_with_floor_and_ceiling() -> None:
    function = only(
        check(
            wrap(
                "inputs A\noutputs B",
                {"in A": "f32(200:1)", "out B": "f32(200:1)"},
                """
block [] ( in A[0] f32(200:1) out B[0] f32(200:1) ) {
  block [i:200] ( out B[i] f32(1:1) ) { $z = (f32)1.0 B = store($z) }
  block [i:4, j:30] (
    3*j - 2*i - 1 >= 0
    17 - 3*j + i >= 0
    in A[i + 4*j] f32(1:1)
    out B[i + 4*j] f32(1:1)
  ) { $a = load(A) B = store($a) }
}""",
            )
        )
    )
    assert not any(isinstance(s, If) for s in walk_statements(function.body))


def test_guards_of_siblings() -> None:
    check(
        wrap(
            "inputs A\noutputs B",
            {"in A": "f32(10:1)", "out B": "f32(10:1)"},
            """
block [g:5 #grid] ( in A[0] f32(10:1) out B[0] f32(10:1) ) {
  block [g = g, i:2] if [2 - g >= 0] ( in A[2*g+i] f32(1:1) out B[2*g+i] f32(1:1) ) { $a = load(A) B = store($a) }
  block [g = g, i:2] if [g - 3 >= 0] ( in A[2*g+i] f32(1:1) out B[2*g+i] f32(1:1) ) {
    $a = load(A) $b = add($a, $a) B = store($b) }
}""",
        )
    )


def test_guard_that_lanes_disagree_on() -> None:
    check(
        wrap(
            "inputs A\noutputs B",
            {"in A": "f32(8:1)", "out B": "f32(8:1)"},
            """
block [] ( in A[0] f32(8:1) out B[0] f32(8:1) ) {
  block [v:8 #vector(lanes=4)] ( in A[v] f32(1:1) out B[v] f32(1:1) ) {
    block [] if [v - 2 >= 0] ( in A[0] f32(1:1) out B[0] f32(1:1) ) { $a = load(A) B = store($a) }
    block [] if [1 - v >= 0] ( in A[0] f32(1:1) out B[0] f32(1:1) ) { $a = load(A) $b = neg($a) B = store($b) }
  }
}""",
        )
    )


def test_blocks_inside_unrolled_and_vector_blocks_have_their_own_registers() -> None:
    function = only(
        check(
            wrap(
                "inputs A\noutputs S",
                {"in A": "f32(7:16, 16:1)", "out S": "f32(16:1)"},
                """
block [] ( in A[0,0] f32(7:16, 16:1) out S[0] f32(16:1) ) {
  block [u:2 #unroll, v:8 #vector(lanes=8)] (
    in A[0, 8*u + v] f32(7:16, 1:1)
    out S[8*u + v] f32(1:1)
    none<REG:thread> sum[0] f32(1:1)
  ) {
    block [] ( out sum[0] f32(1:1) ) { $z = (f32)0.0 sum = store($z) }
    block [k:7] ( in A[k, 0] f32(1:16, 1:1) inout sum[0]:add f32(1:1) ) { $a = load(A) sum = store($a) }
    block [] ( in sum[0] f32(1:1) out S[0] f32(1:1) ) { $a = load(sum) S = store($a) }
  }
}""",
            )
        )
    )
    mutable = [s for s in walk_statements(function.body) if isinstance(s, Let) and s.mutable]
    assert [s.value.type.lanes for s in mutable] == [8, 8]


def test_lanes_with_loops_of_different_length_share_a_vector_register() -> None:
    check(
        wrap(
            "inputs A\noutputs S",
            {"in A": "f32(8:9, 9:1)", "out S": "f32(8:1)"},
            """
block [] ( in A[0,0] f32(8:9, 9:1) out S[0] f32(8:1) ) {
  block [v:8 #vector(lanes=4)] (
    in A[v,0] f32(1:9, 9:1)
    out S[v] f32(1:1)
    none<REG:thread> sum[0] f32(1:1)
    none<LOCAL:thread> seen[0] f32(9:1)
  ) {
    block [] ( out sum[0] f32(1:1) ) { $z = (f32)0.0 sum = store($z) }
    block [v = v, k:9] ( v - k >= 0  in A[0,k] f32(1:9, 1:1)  out seen[k] f32(1:1) inout sum[0]:add f32(1:1) ) {
      $a = load(A) seen = store($a) sum = store($a) }
    block [v = v] ( in sum[0] f32(1:1) in seen[v] f32(1:1) out S[0] f32(1:1) ) {
      $a = load(sum) $b = load(seen) $c = mul($a, $b) S = store($c) }
  }
}""",
        )
    )


@pytest.mark.parametrize("unit", ["REG", "LOCAL"])
def test_fresh_allocations_in_every_iteration(unit: str) -> None:
    """A loop around an allocation, an unrolled one around that, and views of views with offsets."""
    check(
        wrap(
            "inputs A\noutputs B",
            {"in A": "f32(4:12, 12:1)", "out B": "f32(4:12, 12:1)"},
            f"""
block [] ( in A[0,0] f32(4:12, 12:1) out B[0,0] f32(4:12, 12:1) ) {{
  block [r:4] ( in A[r,0] f32(1:12, 12:1) out B[3 - r,0] f32(1:12, 12:1) ) {{
    block [u:3 #unroll] ( in A[0,4*u] f32(1:12, 4:1) out B[0,8 - 4*u] f32(1:12, 4:1) none<{unit}:thread> t[0,0] f32(2:2, 2:1) ) {{
      block [i:2 #unroll, j:2 #unroll] ( in A[0, 2*i + j] f32(1:12, 1:1) out t[j, i] f32(1:2, 1:1) ) {{
        $a = load(A) t = store($a) }}
      block [j:4 #vector(lanes=4)] ( in t[0, 0] f32(2:2, 2:1) out B[0, j] f32(1:12, 1:1) ) {{
        $a = load(t[j/2, (j)%2]) B = store($a) }}
    }}
  }}
}}""",
        )
    )


def test_registers_with_moving_positions_become_an_array() -> None:
    function = only(
        check(
            wrap(
                "inputs A\noutputs B",
                {"in A": "f32(6:1)", "out B": "f32(6:1)"},
                """
block [] ( in A[0] f32(6:1) out B[0] f32(6:1) none<REG:thread> r[0] f32(6:1) ) {
  block [i:6] ( in A[i] f32(1:1) out r[i] f32(1:1) ) { $a = load(A) r = store($a) }
  block [i:6] ( in r[5 - i] f32(1:1) out B[i] f32(1:1) ) { $a = load(r) B = store($a) }
}""",
            )
        )
    )
    (array,) = [s for s in walk_statements(function.body) if isinstance(s, Alloc)]
    assert array.type.count == 6 and array.type.space is Space.PRIVATE


def test_registers_read_at_other_widths() -> None:
    check(
        wrap(
            "inputs A\noutputs B",
            {"in A": "f32(8:1)", "out B": "f32(8:1)"},
            """
block [] ( in A[0] f32(8:1) out B[0] f32(8:1) none<REG:thread> r[0] f32(8:1) ) {
  block [v:8 #vector(lanes=8)] ( in A[v] f32(1:1) out r[v] f32(1:1) ) { $a = load(A) r = store($a) }
  block [v:4 #vector(lanes=4)] ( inout r[v]:add f32(1:1) ) { $a = (f32)1.0 r = store($a) }
  block [i:2 #unroll, v:4 #vector(lanes=4)] ( in r[2*v + 1 - i] f32(1:1) out B[2*v + i] f32(1:1) ) {
    $a = load(r) B = store($a) }
}""",
        )
    )


def test_gather_clamps_and_scatter_merges() -> None:
    buffers = {"in A": "f32(6:1)", "in I": "i64(9:1)", "out B": "f32(9:1)", "out C": "f32(4:1)"}
    text = wrap(
        "inputs A, I\noutputs B, C",
        buffers,
        """
block [] ( in A[0] f32(6:1) in I[0] i64(9:1) out B[0] f32(9:1) out C[0] f32(4:1) ) {
  block [i:9 BIND] ( in A[0] f32(6:1) in I[i] i64(1:1) out B[i] f32(1:1) ) {
    $i = load(I) $a = load(A[$i], clamp=true) B = store($a) }
  block [i:4] ( out C[i] f32(1:1) ) { $z = (f32)0.0 C = store($z) }
  block [i:9 BIND] ( in A[0] f32(6:1) in I[i] i64(1:1) inout C[0]:add f32(4:1) ) {
    $i = load(I) $a = load(A[i - 1], clamp=true) C[$i] = store($a, clamp=true) }
}""",
    )
    inputs = {"A": np.arange(6.0), "I": np.array([3, -7, 2, 2, 1 << 40, 5, 0, 3, -(1 << 62)])}
    for bind in ("", "#unroll", "#vector(lanes=3)"):
        for bits in (32, 64):
            check(text.replace("BIND", bind), inputs, Target("t", HardwareSettings(index_bits=bits)))


def test_atomic_scatter() -> None:
    buffers = {"in I": "i32(8:1)", "out C": "i32(4:1)"}
    check(
        wrap(
            "inputs I\noutputs C",
            buffers,
            """
block [] ( out C[0] i32(4:1) ) { block [i:4] ( out C[i] i32(1:1) ) { $z = (i32)0 C = store($z) } }
block [g:8 #grid] ( in I[0] i32(8:1) out C[0] i32(4:1) ) {
  block [g = g] ( in I[g] i32(1:1) inout C[0]:add i32(4:1) ) {
    $i = load(I) $o = (i32)1 C[$i] = store($o, clamp=true, atomic=true) }
}""",
        ),
        {"I": np.array([0, 1, 1, 3, 9, -2, 1, 0])},
    )


@pytest.mark.parametrize("bind", ["", "#unroll", "#vector(lanes=4)", "#vector(lanes=3)"])
def test_quasi_affine_accesses(bind: str) -> None:
    check(
        wrap(
            "inputs A\noutputs B, C",
            {"in A": "f32(4:6, 6:1)", "out B": "f32(24:1)", "out C": "i32(24:1)"},
            f"""
block [] ( in A[0,0] f32(4:6, 6:1) out B[0] f32(24:1) out C[0] i32(24:1) ) {{
  block [o:2, i:12 {bind}] ( in A[(12*o + i)/6, (i)%6] f32(1:6, 1:1) out B[12*o + i] f32(1:1) ) {{
    $a = load(A) B = store($a) }}
  block [o:2, i:12 {bind}] ( out C[12*o + i] i32(1:1) ) {{
    $n = load_index(2*((i - 7)/3) + o):i32  C = store($n) }}
}}""",
        )
    )


def test_places_of_vectors_side_by_side_are_counted_from_one_number_in_all_lanes() -> None:
    """What lies between them is part of a constant: a processor would put each number into a register of its own."""
    function = only(
        check(
            wrap(
                "outputs C",
                {"out C": "i32(24:1)"},
                """
block [] ( out C[0] i32(24:1) ) {
  block [o:2, k:3 #unroll, i:4 #vector(lanes=4)] ( out C[12*o + 4*k + i] i32(1:1) ) {
    $n = load_index(12*o + 4*k + i):i32  C = store($n) }
}""",
            )
        )
    )
    assert len({e.value for e in walk_all(function) if isinstance(e, Splat)}) == 1


DTYPES = [d for d in DType if d is not DType.BOOL]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("bind", ["", "#vector(lanes=4)"])
def test_every_dtype_loads_computes_and_stores(dtype: DType, bind: str) -> None:
    if dtype is DType.BFLOAT16:
        pytest.importorskip("ml_dtypes")
    check(
        wrap(
            "inputs A\noutputs B, C",
            {"in A": f"{dtype}(8:1)", "out B": f"{dtype}(8:1)", "out C": "bool(8:1)"},
            f"""
block [] ( in A[0] {dtype}(8:1) out B[0] {dtype}(8:1) out C[0] bool(8:1) ) {{
  block [i:8 {bind}] ( in A[i] {dtype}(1:1) out B[i] {dtype}(1:1) out C[i] bool(1:1) ) {{
    $a = load(A)
    $two = ({dtype})2
    $s = add($a, $two)
    $p = mul($s, $a)
    $c = cmp_lt($p, $two)
    $r = cond($c, $a, $p)
    B = store($r)
    C = store($c)
  }}
}}""",
        ),
        exact=True,
    )


def test_shift_counts_of_another_dtype() -> None:
    buffers = {"in A": "u8(6:1)", "in N": "i32(6:1)", "out B": "u8(6:1)"}
    check(
        wrap(
            "inputs A, N\noutputs B",
            buffers,
            """
block [] ( in A[0] u8(6:1) in N[0] i32(6:1) out B[0] u8(6:1) ) {
  block [i:6] ( in A[i] u8(1:1) in N[i] i32(1:1) out B[i] u8(1:1) ) {
    $a = load(A) $n = load(N) $b = bit_left($a, $n) B = store($b) }
}""",
        ),
        {"A": np.full(6, 3), "N": np.array([0, 1, 300, 257, -1, 7])},
    )


def test_bool_shifts_are_those_of_a_byte() -> None:
    buffers = {"in A": "bool(6:1)", "in N": "i8(6:1)", "out B": "bool(6:1)", "out C": "bool(6:1)"}
    check(
        wrap(
            "inputs A, N\noutputs B, C",
            buffers,
            """
block [] ( in A[0] bool(6:1) in N[0] i8(6:1) out B[0] bool(6:1) out C[0] bool(6:1) ) {
  block [i:6] ( in A[i] bool(1:1) in N[i] i8(1:1) out B[i] bool(1:1) out C[i] bool(1:1) ) {
    $a = load(A) $n = load(N)
    $b = bit_left($a, $n):bool B = store($b)
    $c = bit_right($a, $n):bool C = store($c) }
}""",
        ),
        {"A": np.array([1, 1, 1, 1, 1, 0]), "N": np.array([0, 1, 7, 8, -1, 1])},
    )


def test_streaming_hint_reaches_the_store() -> None:
    text = copy("i:24", "", "i", "i").replace("out B[i] f32(1:1)", 'out B[i] f32(1:1) {hint="streaming"}')
    (store,) = [s for s in walk_statements(only(check(text)).body) if isinstance(s, Store)]
    assert store.hint == "streaming"


def test_a_streaming_store_states_its_alignment_in_a_buffer_that_begins_at_a_line() -> None:
    text = copy("i:3, v:8 #vector(lanes=8)", "", "8*i + v", "8*i + v")
    hinted = re.sub(r"out B\[([^]]*)\] f32\(1:1\)", r'out B[\1] f32(1:1) {hint="streaming"}', text)
    (store,) = [s for s in walk_statements(only(check(hinted)).body) if isinstance(s, Store)]
    assert (store.hint, store.align) == ("streaming", 32)


def test_hundreds_of_loops_of_one_iteration() -> None:
    indexes = ", ".join(f"i{n}:1" for n in range(400))
    function = only(lower(parse_program(copy(f"{indexes}, x:24", "", "x", "x")), TARGET))
    assert sum(isinstance(s, For) for s in walk_statements(function.body)) == 1


def test_broken_conventions_are_internal_errors() -> None:
    grid_inside = copy("i:24 #grid", "", "i", "i")
    with pytest.raises(LoweringError, match="bound to the grid"):
        lower(parse_program(grid_inside), TARGET)
