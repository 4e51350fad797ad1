"""Every check of the Stripe verifier accepts the good program and names what is wrong with each bad one."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest
from tile_ir.diagnostics import TileError
from tile_ir.dtype import DType
from tile_ir.stripe import nodes
from tile_ir.stripe.parser import parse_program
from tile_ir.stripe.verify import CHECKS, PROGRAM_CHECKS, StripeError, verify

GOOD = """inputs A, P
outputs B
constant K int32(1:1) = "AQAAAA=="
0: #program block [] ( // program
    none new@0x0<DRAM> A[0, 0] float32(4:8, 8:1)
    none new@0x0<DRAM> P[0] int32(8:1)
    none new@0x0<DRAM> K[0] int32(1:1)
    none new@0x0<DRAM> B[0, 0] float32(4:8, 8:1)
) {
  0: #main block [] ( // main
      in<DRAM> A[0, 0] float32(4:8, 8:1)
      in<DRAM> P[0] int32(8:1)
      in<DRAM> K[0] int32(1:1) {const=true}
      out<DRAM> B[0, 0] float32(4:8, 8:1)
  ) {
    0: #kernel block [i:4 #grid, v:8 #vector(lanes=4)] ( // kernel
        7 - v >= 0
        none new@0x0<LOCAL:group> T[0] float32(2:1) {versions=2}
        in<DRAM> A[i, 0] float32(1:8, 8:1)
        in<DRAM> P[v] int32(1:1)
        inout<DRAM> B[i, v]:add float32(1:8, 1:1) {init=identity}
    ) {
      0: $p = load(P)
      1: $a = load(A[0, $p], clamp=true)
      2: $c = (float32)2.5
      3: $n = load_index(v/2):int32
      4: $f = cast($n):float32
      5[1, 2]: $b = mul($a, $c):float32
      6: $t = cmp_lt($b, $f):bool
      7: $m = cond($t, $b, $f):float32
      8: $s = bit_left($n, $p):int32
      9: $e = exp($m):float32
      10: $r = reduce_max($e, over=[v])
      11: B = store($r)
      12: wait(group=0, pending=0)
      13: sync(scope=group, fence="local")
      14: block [j:2, u = v] if [v - i >= 0] ( // inner
          in<LOCAL> T[u%2, 0] float32(2:1)
          out<LOCAL> Q = T[0] float32(2:1)
      ) { 0: Q = transfer(T) }
    }
  }
}"""

BAD = {
    "unique_names": [
        ("[i:4 #grid, v:8 #vector(lanes=4)]", "[i:4, i:8, v:8]", "two index names are 'i'"),
        ("in<DRAM> P[v]", "in<DRAM> A = P[v]", "two refinement names are 'A'"),
    ],
    "index_fields": [
        ("lanes=4", "lanes=3", "no multiple of its 3 lanes"),
        ("i:4 #grid", "i:4 #grid(axis=3)", "axis 3"),
        ("i:4 #grid", "i:4 #grid(lanes=2)", "2 lanes and binding grid"),
        ("u = v", "u:2 = v", "has a value and range 2"),
        ("[i:4", "[i:-4", "range -4"),
    ],
    "known_index_names": [
        ("7 - v >= 0", "7 - w >= 0", "the constraint, 7 - w, mentions unknown index w"),
        ("A[i, 0] float32(1:8", "A[j, 0] float32(1:8", "access of A"),
        ("if [v - i >= 0]", "if [u >= 0]", "the guard, u,"),
        ("u = v", "u = j", "value of index u"),
        ("load_index(v/2)", "load_index(q)", "statement 3"),
        ("in<LOCAL> T", "in<LOCAL[x]> T", "location of T"),
    ],
    "allocations": [
        ("none new@0x0<DRAM> P[0]", "none new@0x0<DRAM> P = A[0]", "allocation P has source 'A'"),
        ("in<DRAM> P[v]", "in<DRAM> P = ``[v]", "refinement P has source ''"),
        ("none new@0x0<DRAM> P[0]", "none new@0x0<DRAM> P[1]", "does not start at zero"),
        ("B[i, v]:add float32(1:8, 1:1) {init=identity}", "B[i, v]:add float32(1:8, 1:1) {versions=2}", "2 versions"),
        ("out<LOCAL> Q = T[0] float32(2:1)", "out<LOCAL> Q = T[0] float32(2:1) {versions=2}", None),
        ("out<LOCAL> Q = T[0] float32(2:1)", "out<LOCAL> Q = T[0] float32(2:1) {versions=3}", "refinement Q has 3 versions"),
        ("out<LOCAL> Q = T[0] float32(2:1)", "out<LOCAL> Q = T[0] float32(2:1) {versions=0}", "refinement Q has 0 versions"),
    ],
    "ranks": [
        ("A[i, 0] float32(1:8, 8:1)", "A[i] float32(1:8, 8:1)", "2 sizes, 2 strides, 1 accesses"),
        ("in<DRAM> P[v] int32(1:1)", "in<DRAM> P[v, 0] int32(1:1, 1:1)", "its source P rank 1"),
        ("P[v] int32(1:1)", "P[v] int32(-1:1)", "negative size"),
        ("{versions=2}", "{bank=1}", "banked over dimension 1"),
    ],
    "sources": [
        ("in<DRAM> P[v]", "in<DRAM> P = Z[v]", "refers to Z, which the enclosing block does not have"),
        ("in<DRAM> P[v] int32", "in<DRAM> P[v] int64", "is int64, its source P int32"),
        ("in<DRAM> P[v]", "inout<DRAM> P[v]", "writes P, which is read-only"),
        ("in<DRAM> A[i, 0] float32(1:8, 8:1)", "in<DRAM> A[i, 0] float32(1:9, 8:1)", "strides (9, 1)"),
    ],
    "aggregations": [
        ("B[i, v]:add", "B[i, v]", "init or acc but no aggregation"),
        ("in<DRAM> P[v] int32", "in<DRAM> P[v]:max int32", "aggregates but is read-only"),
    ],
    "scalars": [
        ("mul($a, $c)", "mul($a, $d)", "uses $d before its definition"),
        ("9: $e = exp", "9: $m = exp", "defines '$m', which is defined already"),
        ("mul($a, $c):float32", "mul($a, $c):float64", "does not fit T.. -> T"),
        ("mul($a, $c)", "mul($a, $n)", "mul(float32, int32):float32"),
        ("mul($a, $c)", "mul($a)", "mul takes 2 operands, not 1"),
        ("mul($a, $c)", "mull($a, $c)", "no operation is called 'mull'"),
        ("cmp_lt($b, $f):bool", "cmp_lt($b, $f):float32", "does not fit T, T -> bool"),
        ("cond($t,", "cond($b,", "does not fit bool, T, T -> T"),
        ("bit_left($n, $p)", "bit_left($n, $b)", "does not fit integer or bool T, any integer -> T"),
        ("exp($m):float32", "exp($n):int32", "does not fit float T.. -> T"),
        ("load(A[0, $p]", "load(A[0, 0]", None),
        ("B = store($r)", "B = store($n)", "stores int32 $n into float32 B"),
        ("$c = (float32)2.5", "$c = (int32)2.5", "constant 2.5 is no int32"),
        ("$c = (float32)2.5", "$c = (uint8)300", "constant 300 is outside uint8"),
        ("load_index(v/2):int32", "load_index(v/2):int16", "int32 or int64, not int16"),
        ("8: $s = bit_left($n, $p):int32", "8: $s = load(A[0, $b])", "subscript $b is float32"),
    ],
    "dependencies": [("5[1, 2]:", "5[1, 6]:", "statement 5 waits for statement 6")],
    "buffers": [
        ("load(P)", "load(Z)", "names Z, which is no refinement"),
        ("B = store($r)", "A = store($r)", "writes A, which is read-only here"),
        ("inout<DRAM> B[i, v]", "out<DRAM> B[i, v]", None),
        ("load(A[0, $p], clamp=true)", "load(A[$p])", "has 1 subscripts for 2 dimensions"),
        ("Q = transfer(T)", "T = transfer(Q)", "reads Q, which is write-only here"),
        ("Q = T[0] float32(2:1)", "Q = T[0] float32(1:1)", "copies float32(2,) to float32(1,)"),
    ],
    "reductions": [
        ("over=[v]", "over=[w]", "reduces over w"),
        ("over=[v]", "over=[]", "reduces over nothing"),
    ],
    "entry_buffers": [
        ("inputs A, P", "inputs A, Z", "input Z is not allocated"),
        ("inputs A, P", "inputs A, A", "listed twice"),
        ("inputs A, P", "inputs A, K", "both an input and a constant"),
        ("none new@0x0<DRAM> P[0]", "in<DRAM> P[0]", "it can only allocate"),
    ],
    "constants": [
        ("constant K int32(1:1)", "constant K int32(2:1)", "has 4 bytes, not 8"),
        ("constant K int32(1:1)", "constant K float32(1:1)", "differ in type"),
        ("constant K", "constant W", "constant W is not allocated"),
    ],
}  # fmt: skip


def test_the_good_program_passes() -> None:
    verify(parse_program(GOOD))


CASES = [(check, *case) for check, cases in BAD.items() for case in cases]


@pytest.mark.parametrize(("check", "old", "new", "message"), CASES, ids=[f"{c}-{m or n}" for c, _, n, m in CASES])
def test_a_mistake_is_found_by_its_check(check: str, old: str, new: str, message: str | None) -> None:
    assert old in GOOD
    # Replace the last occurrence: the innermost block is where most mistakes are made.
    head, _, tail = GOOD.rpartition(old)
    program = parse_program(head + new + tail)
    if message is None:
        verify(program)
        return
    with pytest.raises(StripeError) as caught:
        verify(program)
    assert message in caught.value.message
    assert caught.value.check == check


def test_every_check_has_a_mistake_that_it_finds() -> None:
    names = {check.__name__ for check in (*CHECKS, *PROGRAM_CHECKS)}
    assert names == set(BAD) | {"nesting"}


def test_deep_nesting_is_an_error_not_a_recursion_error() -> None:
    block = nodes.Block("leaf")
    for _ in range(20_000):
        block = nodes.Block("", body=(block,))
    with pytest.raises(StripeError) as caught:
        verify(nodes.Program(block))
    assert caught.value.check == "nesting"


def test_the_error_says_where() -> None:
    program = parse_program(GOOD.replace("Q = transfer(T)", "Z = transfer(T)"))
    with pytest.raises(StripeError) as caught:
        verify(program)
    error = caught.value
    assert error.path == ("program", "main", "kernel", "inner")
    assert str(error).splitlines() == [
        "program / main / kernel / inner: statement 0, '0: Z = transfer(T)', names Z, "
        "which is no refinement of its block [buffers]",
        "  block [j:2, u = v] if [-i + v >= 0] ( // inner",
    ]
    assert not isinstance(error, TileError)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_scalar_names_start_with_a_dollar() -> None:
    program = parse_program(GOOD)
    entry = replace(program.entry, body=(nodes.Const("x", 1, DType.INT32),))
    with pytest.raises(StripeError, match="no scalar's name"):
        verify(replace(program, entry=entry))
