"""What emitters share: names, walks and the C-like printer."""

import ctypes
import re
import shutil
import subprocess
import sys
from collections import deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tile_ir.dtype import DType
from tile_ir.emit.clike import CLikePrinter
from tile_ir.emit.names import C_KEYWORDS, NameAllocator, sanitize
from tile_ir.emit.walker import (
    assigned,
    blocks,
    children,
    map_block,
    map_expr,
    same,
    variables,
    walk_expr,
    walk_statements,
    with_children,
)  # fmt: skip
from tile_ir.semtree import launch, parse_function, print_function
from tile_ir.semtree import nodes as s
from tile_ir.semtree.errors import SemtreeError
from tile_ir.semtree.verify import verify

F32, I32 = s.Type(DType.FLOAT32), s.Type(DType.INT32)
IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")


@settings(max_examples=50)
@given(st.lists(st.text(max_size=60) | st.sampled_from([*sorted(C_KEYWORDS), "a", "a_1", "A"]), max_size=20))
def test_names_are_safe_and_unique(hints):
    names = NameAllocator(["exp"])
    given_names = [names.fresh(hint) for hint in [*hints, "exp"]]
    assert len({name.lower() for name in given_names}) == len(given_names)
    for name in given_names:
        assert IDENTIFIER.match(name) and "__" not in name
        assert name not in C_KEYWORDS and name != "exp"


def test_names_resemble_their_hint_and_are_kept_per_key():
    names = NameAllocator()
    assert [names.fresh("acc"), names.fresh("acc"), names.fresh("float")] == ["acc", "acc_1", "float_1"]
    assert names.get(("x", 1), "idx") == names.get(("x", 1), "other") == "idx"
    assert sanitize("ün/safe; name") == "n_safe_name"
    assert sanitize("1") == "v1" and sanitize("") == "v"


PROGRAM = parse_function("""function f(write global float32* out, read global float32* a) group(1, 1, 1) {
    let n = 8;
    var acc = 0.0;
    for (i = 0; i < n; i += 1) {
        if (i == 3) { acc = acc + a[i]; } else { { acc = acc - a[i]; } }
    }
    out[0] = acc;
}""")


def test_children_and_with_children_invert():
    load = s.Load(s.Var("a", F32), s.Var("i", I32), F32, s.Var("m", F32))
    assert [v.name for v in children(load)] == ["a", "i", "m"]
    swapped = with_children(load, (load.index, load.ptr, load.mask))
    assert (swapped.ptr, swapped.index, swapped.mask) == (load.index, load.ptr, load.mask)
    assert with_children(load, children(load)) is load
    mma = s.Mma((1, 1, 1), (load,), (load, swapped), (load,), F32)
    assert children(mma) == (load, load, swapped, load)
    assert with_children(mma, (swapped, load, load, load)).a == (swapped,)
    assert blocks(s.If(load, s.Block())) == (s.Block(),)


def test_walks_visit_everything_once_in_order():
    kinds = [type(x).__name__ for x in walk_statements(PROGRAM.body)]
    assert kinds == ["Let", "Let", "For", "If", "Assign", "Block", "Assign", "Store"]
    shared = x = s.Var("x", F32)
    for _ in range(100):
        shared = s.Binary("add", shared, shared, F32)
    assert len(list(walk_expr(shared))) == 101
    assert variables(shared) == {"x"}
    assert assigned(PROGRAM.body) == {"n", "acc", "i"}
    renamed = map_expr(shared, lambda e: s.Var("y", F32) if e == x else e)
    assert variables(renamed) == {"y"} and len(list(walk_expr(renamed))) == 101


def test_a_walk_calls_nothing_for_a_node_but_to_give_it():
    sums = s.Var("x", F32)
    for _ in range(100):
        sums = s.Binary("add", s.Var("y", F32), sums, F32)
    for _ in walk_expr(sums):
        pass  # what is made once for each class is there
    calls, before = 0, sys.getprofile()

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        nodes = deque(enumerate(walk_expr(sums), 1), 1)
    finally:
        sys.setprofile(before)
    leaves = 101
    assert nodes[0][0] == 100 + leaves
    assert calls <= 100 + 2 * leaves + 1, "those without operands are asked for them"


def test_map_block_rewrites_and_keeps_what_it_need_not_touch():
    assert map_block(PROGRAM.body, lambda e: e, lambda st: (st,)) is PROGRAM.body
    bound = map_block(PROGRAM.body, lambda e: s.Const(8, I32) if e == s.Var("n", I32) else e)
    dropped = map_block(bound, None, lambda st: () if isinstance(st, s.Let) and st.name == "n" else (st,))
    text = print_function(s.Function("f", PROGRAM.params, dropped))
    assert "n" not in {st.name for st in walk_statements(dropped) if isinstance(st, s.Let)}
    assert "i < 8;" in text
    verify(s.Function("f", PROGRAM.params, dropped))


def test_same_is_structural_at_any_depth():
    def tower(leaf):
        for _ in range(5000):
            leaf = s.Unary("neg", leaf, F32)
        return leaf

    nan = s.Const(float("nan"), F32)
    assert same(tower(nan), tower(s.Const(float("nan"), F32)))
    assert not same(tower(nan), tower(s.Const(1.0, F32)))
    assert not same(s.Call("exp", (nan,), F32), s.Call("exp", (nan, nan), F32))
    assert not same(s.Block(), s.Return())


def test_rewriting_deep_trees_does_not_recurse():
    deep = s.Var("x", F32)
    block = s.Block()
    for _ in range(5000):
        deep = s.Unary("neg", deep, F32)
        block = s.Block((s.If(s.Const(True, s.Type(DType.BOOL)), block),))
    assert variables(map_expr(deep, lambda e: s.Var("y", F32) if isinstance(e, s.Var) else e)) == {"y"}
    emptied = map_block(block, None, lambda st: (*blocks(st)[0].body, s.Return()))
    assert len(emptied.body) == 5000


class PlainC(CLikePrinter):
    functions = CLikePrinter.functions | {("max", DType.FLOAT32): "fmaxf", ("div", DType.INT32): "tile_div"}
    wraps_by_unsigned = True

    def special(self, expr):
        return (15, [f"tile_id_{expr.kind.value}"]) if isinstance(expr, s.WorkId) else None


SOURCE = parse_function("""function while_loop(write global int32* out, read global int32* float) group(1, 1, 1) {
    // a trailing backslash \\\\
    let int = float[0];
    var x = (int + 2147483647) * -int - (int - 3 - (int - 1));
    for (i = 0; i < 3; i += 1) {
        alloc private int8[4] tmp;
        tmp[i] = 127i8;
        let y = tmp[i] + tmp[i];
        if (y < 0i8) { x = x + select(bool(int) & (i != 1), int32(y), 5 ^ int | 3); } else { x = 0; }
    }
    while (x > 100) { x = x - 4096; }
    out[0] = x;
    out[1] = -2147483648 + int32(limit_min(int8)) + -(-2147483647 - int);
    return;
}""")


def test_c_text():
    text = PlainC().function(SOURCE)
    assert text.startswith("void while_loop(int32_t* restrict out, const int32_t* restrict float_1) {\n")
    assert "    // a trailing backslash\n" in text
    assert "const int32_t int_1 = float_1[0];" in text
    assert "const int8_t y = (int8_t)((uint32_t)tmp[i] + (uint32_t)tmp[i]);" in text
    assert not any(keyword_ in re.findall(r"[=(,]\s*(\w+)\b", text) for keyword_ in ("float", "int"))


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("value", [0, 7, -12345, 2**31 - 1])
def test_c_means_what_the_interpreter_says(value, tmp_path):
    source, library = tmp_path / "f.c", tmp_path / "f.so"
    source.write_text("#include <stdint.h>\n#include <stdbool.h>\n" + PlainC().function(SOURCE))
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, source], check=True, capture_output=True)
    got, want, given_value = np.zeros(2, np.int32), np.zeros(2, np.int32), np.array([value], np.int32)
    ctypes.CDLL(str(library)).while_loop(ctypes.c_void_p(got.ctypes.data), ctypes.c_void_p(given_value.ctypes.data))
    launch(SOURCE, (1, 1, 1), [want, given_value])
    assert got.tolist() == want.tolist()


def test_c_refuses_what_it_cannot_write():
    for body, message in [
        ("let v = splat(1.0, 4);", "no type float32 with 4 lanes|cannot write Splat"),
        ("let d = 5i8 / 2i8;", "no function for div of int8"),
        ("let c = int32(1.5);", "no function for cast_int32 of float32"),
        ('barrier("group", "local");', "cannot write Barrier"),
        ("let h = 1f16;", "no type float16"),
    ]:
        with pytest.raises(SemtreeError, match=message):
            PlainC().function(parse_function(f"function f() group(1, 1, 1) {{ {body} }}"))


def test_c_of_deep_expressions_and_special_nodes():
    deep = s.WorkId(s.IdKind.GROUP, 0)
    for _ in range(10_000):
        deep = s.Binary("div", deep, s.Const(3, I32), I32)
    printer = PlainC()
    assert printer.expression(deep).count("tile_div(") == 10_000
    assert printer.expression(s.Const(0.1, F32)) == "0x1.999999999999ap-4f"
    assert printer.expression(s.Unary("neg", s.Const(-1.0, F32), F32)) == "-(-0x1.0000000000000p+0f)"
    assert printer.expression(s.Limit("min", F32)) == "-INFINITY"


def test_importing_semtree_loads_no_parser():
    code = (
        "import sys, tile_ir.semtree, tile_ir.kernels, tile_ir.emit.clike, tile_ir.semtree.parser\n"
        "bad = {'lark', 'islpy', 'llvmlite', 'tile_ir.semtree.interpret'} & set(sys.modules)\n"
        "sys.exit(str(bad) if bad else 0)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
