"""Lowering for groups of items: local memory, barriers, reductions and atomics."""

from __future__ import annotations

import pytest
from lowering_support import TARGET, check, only, wrap
from tile_ir.emit.walker import walk_all, walk_statements
from tile_ir.frozen import replace
from tile_ir.semtree.nodes import Alloc, Barrier, Space, SubgroupOp

LOCAL = wrap(
    "inputs A\noutputs B",
    {"in A": "f32(3:8, 8:1)", "out B": "f32(3:8, 8:1)"},
    """
block [g:3 #grid] ( in A[g,0] f32(1:8, 8:1) out B[g,0] f32(1:8, 8:1) none<LOCAL:group> t[0] f32(8:1) ) {
  block [i:8 #group] ( in A[0,i] f32(1:8, 1:1) out t[i] f32(1:1) ) { $a = load(A) t = store($a) }
  sync(scope=group)
  block [i:8 #group] ( in t[7 - i] f32(1:1) out B[0,i] f32(1:8, 1:1) ) { $a = load(t) B = store($a) }
}""",
)


def test_group_arrays_and_barriers() -> None:
    function = only(check(LOCAL))
    assert function.group_size == (8, 1, 1)
    assert sum(isinstance(s, Barrier) for s in walk_statements(function.body)) == 1
    (array,) = [s for s in walk_statements(function.body) if isinstance(s, Alloc)]
    assert array.type.space is Space.LOCAL


def test_one_thread_needs_no_barrier() -> None:
    function = only(check(LOCAL.replace(" #group", "")))
    assert not any(isinstance(s, Barrier) for s in walk_statements(function.body))
    assert all(s.type.space is Space.PRIVATE for s in walk_statements(function.body) if isinstance(s, Alloc))


def test_idle_threads_and_blocks_without_threads() -> None:
    check(
        wrap(
            "inputs A\noutputs B, C",
            {"in A": "f32(6:1)", "out B": "f32(6:1)", "out C": "f32(1:1)"},
            """
block [] ( in A[0] f32(6:1) out B[0] f32(6:1) out C[0] f32(1:1) none<LOCAL:group> t[0] f32(6:1) ) {
  block [i:2 #group, j:3 #group] ( in A[3*i+j] f32(1:1) out t[3*i+j] f32(1:1) ) { $a = load(A) t = store($a) }
  sync(scope=group)
  block [i:4 #group] ( in t[i + 2] f32(1:1) out B[i] f32(1:1) ) { $a = load(t) B = store($a) }
  block [i:2 #group] ( in t[i] f32(1:1) out B[i + 4] f32(1:1) ) { $a = load(t) B = store($a) }
  block [] ( out C[0] f32(1:1) ) { $z = (f32)0.0 C = store($z) }
  block [k:6] ( in t[k] f32(1:1) inout C[0]:add f32(1:1) ) { $a = load(t) C = store($a) }
}""",
        )
    )


@pytest.mark.parametrize("agg", ["add", "mul", "max", "min"])
@pytest.mark.parametrize("lanes", [4, 6])
def test_lanes_of_one_cell_combine_first(agg: str, lanes: int) -> None:
    check(
        wrap(
            "inputs A\noutputs S",
            {"in A": "f32(12:1)", "out S": "f32(1:1)"},
            f"""
block [] ( in A[0] f32(12:1) out S[0] f32(1:1) ) {{
  block [] ( out S[0] f32(1:1) ) {{ $z = (f32)0.5 S = store($z) }}
  block [v:12 #vector(lanes={lanes})] ( in A[v] f32(1:1) inout S[0]:{agg} f32(1:1) ) {{ $a = load(A) S = store($a) }}
}}""",
        )
    )


def test_reduce_statement_over_lanes_and_unrolled_indexes() -> None:
    check(
        wrap(
            "inputs A\noutputs B",
            {"in A": "f32(3:12, 12:1)", "out B": "f32(3:12, 12:1)"},
            """
block [] ( in A[0,0] f32(3:12, 12:1) out B[0,0] f32(3:12, 12:1) ) {
  block [r:3, u:3 #unroll, one:1, v:4 #vector(lanes=4)] (
    in A[r, 4*u + v + one] f32(1:12, 1:1)
    out B[r, 4*u + v] f32(1:12, 1:1)
  ) {
    $a = load(A)
    $m = reduce_max($a, over=[u, v])
    $d = sub($a, $m)
    $e = exp($d)
    $s = reduce_add($e, over=[u, v])
    $q = div($e, $s)
    B = store($q)
  }
}""",
        )
    )


@pytest.mark.parametrize("over", ["i", "j", "i, j", "i, j, u"])
def test_reduce_statement_over_threads(over: str) -> None:
    function = only(
        check(
            wrap(
                "inputs A\noutputs B",
                {"in A": "f32(5:24, 24:1)", "out B": "f32(5:24, 24:1)"},
                f"""
block [g:5 #grid] ( in A[g,0] f32(1:24, 24:1) out B[g,0] f32(1:24, 24:1) ) {{
  block [i:3 #group, j:4 #group, u:2 #unroll] (
    in A[0, 8*i + 2*j + u] f32(1:24, 1:1)
    out B[0, 8*i + 2*j + u] f32(1:24, 1:1)
  ) {{
    $a = load(A)
    $s = reduce_add($a, over=[{over}])
    $q = sub($a, $s)
    $m = reduce_max($q, over=[{over}])
    $r = mul($m, $a)
    B = store($r)
  }}
}}""",
            )
        )
    )
    assert function.group_size == (12, 1, 1)


SHARED = """
block [g:2 #grid] ( in A[g,0] f32(1:{n}, {n}:1) out B[g,0] f32(1:{n}, {n}:1) ) {{
  block [i:{i} #group, j:{j} #group] ( in A[0, {j}*i + j] f32(1:{n}, 1:1) out B[0, {j}*i + j] f32(1:{n}, 1:1) ) {{
    $a = load(A)
    $s = reduce_add($a, over=[{over}])
    $q = sub($a, $s)
    $m = reduce_max($q, over=[{over}])
    $r = mul($m, $a)
    B = store($r)
  }}
}}"""


@pytest.mark.parametrize(
    ("i", "j", "over", "shuffles", "waits"),
    [
        (4, 8, "j", True, False), (3, 8, "j", True, False), (1, 8, "j", True, False), (4, 4, "j", True, False),
        (16, 2, "i", True, True), (4, 8, "i, j", True, True), (2, 128, "j", True, True), (1, 256, "j", True, True),
        (4, 8, "i", False, True), (3, 8, "i", False, True), (2, 6, "j", False, True), (4, 3, "i", False, True),
    ],
)  # fmt: skip
def test_neighbouring_threads_exchange_by_instructions(i: int, j: int, over: str, shuffles: bool, waits: bool) -> None:
    """Eight at a time; what several eights have is merged through local memory."""
    target = replace(TARGET, settings=replace(TARGET.settings, shuffles=8))
    type, kernel = f"f32(2:{i * j}, {i * j}:1)", SHARED.format(n=i * j, i=i, j=j, over=over)
    function = only(check(wrap("inputs A\noutputs B", {"in A": type, "out B": type}, kernel), target=target))
    assert any(isinstance(e, SubgroupOp) for e in walk_all(function)) is shuffles
    assert any(isinstance(s, Barrier) for s in walk_statements(function.body)) is waits


def test_identity_is_stored_before_the_first_iteration() -> None:
    check(
        wrap(
            "inputs A\noutputs S",
            {"in A": "f32(5:7, 7:1)", "out S": "f32(5:1)"},
            """
block [] ( in A[0,0] f32(5:7, 7:1) out S[0] f32(5:1) ) {
  block [k:7, i:5] ( in A[i,k] f32(1:7, 1:1) inout S[i]:max f32(1:1) {init=identity} ) { $a = load(A) S = store($a) }
}""",
        )
    )
