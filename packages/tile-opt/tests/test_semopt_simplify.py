"""Every simplifier rule is exact on a small domain; statement rewrites keep what a kernel computes."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from tile_ir import numerics
from tile_ir.dtype import DType
from tile_ir.emit.walker import same
from tile_ir.ops import OPS, Signature
from tile_ir.semtree.interpret import launch
from tile_ir.semtree.nodes import Binary, Const, Expr, Extract, Function, Insert, Select, Splat, Type, Var
from tile_ir.semtree.parser import parse_function
from tile_ir.semtree.printer import print_function
from tile_ir.semtree.verify import OPTIONAL_NODES, verify
from tile_opt.semtree import LegaliseError, legalise, simplify
from tile_opt.semtree.expressions import local, simplify_expr
from tile_opt.semtree.rules import RULES, Pattern, Rule

CHECKED = (DType.INT8, DType.UINT8, DType.INT32, DType.INT64, DType.BOOL, DType.FLOAT16, DType.FLOAT32, DType.FLOAT64)


def domain(dtype: DType) -> list[Any]:
    """Values where arithmetic goes wrong: extremes, zeros of both signs, NaN, infinities."""
    if dtype is DType.BOOL:
        return [False, True]
    if dtype.is_float:
        return [0.0, -0.0, 1.0, -1.0, 1.5, float("inf"), float("-inf"), float("nan"), 3e-8]
    return sorted(
        {
            dtype.min_value,
            dtype.max_value,
            0,
            1,
            2,
            3,
            7,
            8,
            dtype.max_value - 1,
            *((-1, -3) if dtype.is_signed else ()),
        }
    )


def names_of(pattern: Pattern) -> list[str]:
    if isinstance(pattern, tuple):
        return list(dict.fromkeys(n for p in pattern[1:] for n in names_of(p)))
    return [pattern] if isinstance(pattern, str) else []


def evaluate(pattern: Pattern, point: dict[str, Any], dtype: DType) -> np.ndarray[Any, Any]:
    """The pattern's value by the definition of its operations."""
    if isinstance(pattern, str):
        return np.asarray(point[pattern])
    if not isinstance(pattern, tuple):
        return np.asarray(pattern, dtype.numpy if not isinstance(pattern, bool) else np.bool_)
    name = str(pattern[0])
    args = [evaluate(p, point, dtype) for p in pattern[1:]]
    if name == "mod":
        return np.mod(*args)
    result = DType.BOOL if OPS[name].signature is Signature.COMPARE else dtype
    return numerics.apply(name, args, result)


def bits(value: Any) -> bytes:
    array = np.asarray(value)
    return b"nan" if array.dtype.kind == "f" and np.isnan(array) else array.tobytes()


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_rule_is_exact(rule: Rule) -> None:
    checked = 0
    for dtype in CHECKED:
        if dtype not in rule.dtypes:
            continue
        names = names_of(rule.pattern)
        values = [[False, True] if n == "c" else domain(dtype) for n in names]
        for chosen in product(*values):
            point = {
                n: np.asarray(v, np.bool_ if n == "c" else dtype.numpy) for n, v in zip(names, chosen, strict=True)
            }
            before, after = evaluate(rule.pattern, point, dtype), evaluate(rule.to, point, dtype)
            assert bits(before) == bits(np.asarray(after, before.dtype)), (rule.name, dtype, point)
            checked += 1
    assert checked


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_rule_fires(rule: Rule) -> None:
    """The pattern, built as an expression, does not survive."""
    dtype = next(d for d in (DType.INT32, DType.BOOL, DType.FLOAT32) if d in rule.dtypes)
    expr = build(rule.pattern, Type(dtype))
    assert not isinstance(expr, Const)
    assert simplify_expr(expr, {}) != expr


def build(pattern: Pattern, type: Type) -> Expr:
    from tile_ir.semtree.nodes import Compare, Select, Unary

    if isinstance(pattern, str):
        if pattern.startswith("#"):
            return Const(5 if pattern == "#a" else 9, type)
        return Var(pattern, Type(DType.BOOL) if pattern == "c" else type)
    if not isinstance(pattern, tuple):
        return Const(pattern, Type(DType.BOOL) if isinstance(pattern, bool) else type)
    name = str(pattern[0])
    args = [build(p, type) for p in pattern[1:]]
    if name == "cond":
        return Select(args[0], args[1], args[2], type)
    if len(args) == 1:
        return Unary(name, args[0], type)
    if name.startswith("cmp"):
        return Compare(name, args[0], args[1], Type(DType.BOOL))
    return Binary(name, args[0], args[1], type)


def test_floats_keep_their_signed_zeros() -> None:
    x = Var("x", Type(DType.FLOAT32))
    plus = Binary("add", x, Const(0.0, x.type), x.type)
    minus = Binary("sub", x, Const(-0.0, x.type), x.type)
    assert local(plus) is plus
    assert local(minus) is minus
    zeros = Const(0.0, x.type), Const(-0.0, x.type)
    either = Select(Var("c", Type(DType.BOOL)), *zeros, x.type)
    assert local(either) is either
    assert zeros[0] != zeros[1]
    assert not same(*zeros)


def test_vector_structure() -> None:
    x, v = Var("x", Type(DType.FLOAT32)), Var("v", Type(DType.FLOAT32, 4))
    assert local(Extract(Splat(x, v.type), 2, x.type)) is x
    assert local(Extract(Insert(v, 1, x, v.type), 1, x.type)) is x
    assert local(Extract(Insert(v, 1, x, v.type), 0, x.type)) == Extract(v, 0, x.type)
    assert local(Splat(Const(2.0, x.type), v.type)) == Const(2.0, v.type)


def test_deep_expressions_are_no_problem() -> None:
    type = Type(DType.INT32)
    expr: Expr = Var("x", type)
    for _ in range(20_000):
        expr = Binary("add", Const(0, type), expr, type)
    assert simplify_expr(expr, {}) == Var("x", type)


STATEMENTS = """
function f(readwrite global int32* A [elements=8]) group(1, 1, 1) {
    let four = 2 + 2;
    let same = four;
    let unused = A[0];
    if (same == 4) { A[1] = same; } else { A[2] = 9; }
    if (same < 4) { A[3] = 1; }
    for (i = 0; i < 1; i += 1) { let t = i + 5; A[4] = t; }
    for (j = 3; j < 3; j += 1) { A[5] = j; }
    for (k = 0; k < 4; k += 1) { }
    var total = 0;
    for (m = 0; m < 4; m += 1) { let twice = m * 2; total = total + twice * 1; }
    A[6] = total;
}
"""


def test_statements() -> None:
    function = parse_function(STATEMENTS)
    verify(function)
    small = simplify(function)
    verify(small)
    text = print_function(small)
    for gone in ("unused", "same", "if", "(i =", "(j =", "(k =", "* 1"):
        assert gone not in text, text
    assert run(function) == run(small) == [0, 4, 0, 0, 5, 0, 12, 0]


def run(function: Function) -> list[int]:
    data = np.zeros(8, np.int32)
    launch(function, (1, 1, 1), [data])
    return data.tolist()


def test_first_value_of_a_variable() -> None:
    function = parse_function("""
function f(readwrite global int32* A [elements=8]) group(1, 1, 1) {
    var x = 0;
    var y = 0;
    var z = A[0];
    x = 5;
    A[1] = y;
    y = 7;
    z = 3;
    A[2] = x + y + z;
}
""")
    small = simplify(function)
    assert run(small) == run(function) == [0, 0, 15, 0, 0, 0, 0, 0]
    text = print_function(small)
    assert "var x = 5" in text and "x = 5" in text and text.count("x =") == 1
    assert "var y = 0" in text and "var z = 3" in text


def test_shadowed_names_stay_apart() -> None:
    function = parse_function("""
function f(readwrite global int32* A [elements=8]) group(1, 1, 1) {
    let x = 1;
    for (i = 0; i < 1; i += 1) { let x = A[0] + 7; A[1] = x; }
    A[2] = x;
}
""")
    verify(simplify(function))
    assert run(simplify(function)) == run(function) == [0, 7, 1, 0, 0, 0, 0, 0]


VECTORS = """
function f(readwrite global float32* A [elements=16]) group(1, 1, 1) {
    let a = A[0]:float32x4;
    let b = splat(A[8], 4);
    var acc = fma(a, b, 0.5f32x4);
    acc = shuffle(acc, a, 3, 2, 1, 4);
    acc = insert(acc, 2, extract(acc, 0));
    A[4] = acc;
    A[12] = reduce_add(acc * b);
}
"""


def test_legalise_to_scalars() -> None:
    function = parse_function(VECTORS)
    verify(function)
    core = legalise(function, frozenset())
    verify(core, frozenset())
    results: list[Any] = []
    for f in (function, core):
        data = np.arange(16, dtype=np.float32)
        launch(f, (1, 1, 1), [data])
        results.append(data)
    np.testing.assert_array_equal(*results)
    assert legalise(function, OPTIONAL_NODES) is function


def test_what_the_core_cannot_say_is_an_error() -> None:
    function = parse_function("""
function f(readwrite global int32* A [elements=8]) group(4, 1, 1) {
    barrier("group", "global");
    A[int64(local_id(0))] = 1;
}
""")
    with pytest.raises(LegaliseError, match="Barrier"):
        legalise(function, frozenset())
