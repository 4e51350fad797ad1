"""Hand-written Stripe, unscheduled and scheduled, against the Stripe interpreter."""

from __future__ import annotations

from lowering_support import check, wrap
from tile_ir.emit.walker import walk_all, walk_statements
from tile_ir.semtree.nodes import Fma, If, Let, ReduceLanes
from tile_ir.semtree.printer import print_function

MATMUL_BUFFERS = {"in A": "f32(13:20, 20:1)", "in B": "f32(20:40, 40:1)", "out C": "f32(13:40, 40:1)"}
MATMUL_REFS = """
  in A[0,0] f32(13:20, 20:1)
  in B[0,0] f32(20:40, 40:1)
  out C[0,0] f32(13:40, 40:1)
"""
MATMUL = wrap(
    "inputs A, B\noutputs C",
    MATMUL_BUFFERS,
    f"""
block [] ( // mm
{MATMUL_REFS}
) {{
  block [i:13, j:40] ( out C[i,j] f32(1:40, 1:1) ) {{ $z = (f32)0.0  C = store($z) }}
  block [i:13, j:40, k:20] (
    in A[i,k] f32(1:20, 1:1)
    in B[k,j] f32(1:40, 1:1)
    inout C[i,j]:add f32(1:40, 1:1)
  ) {{ $a = load(A) $b = load(B) $p = mul($a, $b) C = store($p) }}
}}
""",
)


def tile(name: str, rows: int, i: str, guard: str, lanes: int, cols: int) -> str:
    """One register-tiled sibling of a matmul: rows x cols accumulators."""
    bind = f"#vector(lanes={lanes})" if lanes > 1 else "#unroll"
    inner = f"m:{rows} #unroll, n:{cols} {bind}"
    return f"""
  block [ig = ig, jg = jg] {guard} ( // {name}
    in A[{i},0] f32({rows}:20, 20:1)
    in B[0,{cols}*jg] f32(20:40, {cols}:1)
    out C[{i},{cols}*jg] f32({rows}:40, {cols}:1)
    none<REG:thread> acc[0,0] f32({rows}:{cols}, {cols}:1)
  ) {{
    block [{inner}] ( out acc[m,n] f32(1:{cols}, 1:1) ) {{ $z = (f32)0.0  acc = store($z) }}
    block [k:20, {inner}] (
      in A[m,k] f32(1:20, 1:1)
      in B[k,n] f32(1:40, 1:1)
      inout acc[m,n]:add f32(1:{cols}, 1:1)
    ) {{ $a = load(A) $b = load(B) $p = mul($a, $b) acc = store($p) }}
    block [{inner}] ( in acc[m,n] f32(1:{cols}, 1:1)  out C[m,n] f32(1:40, 1:1) ) {{ $r = load(acc) C = store($r) }}
  }}"""


TILED = wrap(
    "inputs A, B\noutputs C",
    MATMUL_BUFFERS,
    f"""
block [ig:4 #grid, jg:5 #grid] ( // mm
{MATMUL_REFS}
) {{
  {tile("whole", 4, "4*ig", "if [2 - ig >= 0]", 4, 8)}
  {tile("rest", 1, "4*ig", "if [ig - 3 >= 0]", 4, 8)}
}}
""",
)


def test_unscheduled_matmul_is_one_kernel_with_fused_multiply_add() -> None:
    kernels = check(MATMUL)
    (kernel,) = kernels.kernels
    assert kernel.function is not None
    assert kernel.flops == 2 * 13 * 40 * 20
    assert kernel.bytes == 4 * (13 * 20 + 20 * 40 + 13 * 40)
    assert [p.name for p in kernel.function.params] == ["C", "A", "B"]
    assert sum(isinstance(e, Fma) for e in walk_all(kernel.function)) == 1


def test_register_tiles_share_loads_and_keep_accumulators_in_variables() -> None:
    kernels = check(TILED)
    (kernel,) = kernels.kernels
    assert kernel.groups == (20, 1, 1)
    function = kernel.function
    assert function is not None
    text = print_function(function)
    loads = [line for line in text.splitlines() if "= A[" in line or "= vload" in line]
    fmas = sum(isinstance(e, Fma) for e in walk_all(function))
    assert fmas == 8 + 2, text
    lets = [s for s in walk_statements(function.body) if isinstance(s, Let) and s.mutable]
    assert len(lets) == 8 + 2, loads


ROWS = wrap(
    "inputs X\noutputs S",
    {"in X": "f32(5:24, 24:1)", "out S": "f32(5:1)"},
    """
block [i:5 #grid] ( // rows
  in X[i,0] f32(1:24, 24:1)
  out S[i] f32(1:1)
) {
  block [] (
    in X[0,0] f32(1:24, 24:1)
    out S[0] f32(1:1)
    none<REG:thread> lane[0] f32(8:1)
    none<REG:thread> total[0] f32(1:1)
  ) {
    block [v:8 #vector(lanes=8)] ( out lane[v] f32(1:1) ) { $z = (f32)0.0 lane = store($z) }
    block [k:3, v:8 #vector(lanes=8)] (
      in X[0, 8*k + v] f32(1:24, 1:1)
      inout lane[v]:add f32(1:1)
    ) { $x = load(X) lane = store($x) }
    block [] ( out total[0] f32(1:1) ) { $z = (f32)0.0 total = store($z) }
    block [v:8 #vector(lanes=8)] ( in lane[v] f32(1:1)  inout total[0]:add f32(1:1) ) { $x = load(lane) total = store($x) }
    block [] ( in total[0] f32(1:1) out S[0] f32(1:1) ) { $x = load(total) S = store($x) }
  }
}
""",
)


def test_row_sum_adds_lanes_once_at_the_end() -> None:
    (kernel,) = check(ROWS).kernels
    assert kernel.function is not None
    assert sum(isinstance(e, ReduceLanes) for e in walk_all(kernel.function)) == 1


CONV = wrap(
    "inputs D, K\noutputs O",
    {"in D": "f32(10:3, 3:1)", "in K": "f32(3:3, 3:1)", "out O": "f32(10:1)"},
    """
block [] ( // conv
  in D[0,0] f32(10:3, 3:1)
  in K[0,0] f32(3:3, 3:1)
  out O[0] f32(10:1)
) {
  block [x:10] ( out O[x] f32(1:1) ) { $z = (f32)0.0  O = store($z) }
  block [x:10, i:3, c:3] (
    x + i - 1 >= 0
    10 - x - i >= 0
    in D[x + i - 1, c] f32(1:3, 1:1)
    in K[i, c] f32(1:3, 1:1)
    inout O[x]:add f32(1:1)
  ) { $d = load(D) $k = load(K) $p = mul($d, $k) O = store($p) }
}
""",
)


def test_boundary_constraints_become_loop_bounds() -> None:
    (kernel,) = check(CONV).kernels
    assert kernel.function is not None
    assert not any(isinstance(s, If) for s in walk_statements(kernel.function.body))
    assert "max" in print_function(kernel.function)
