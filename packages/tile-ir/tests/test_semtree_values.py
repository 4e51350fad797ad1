"""Values of the semtree interpreter: every operation, in scalars and lanes."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tile_ir import numerics
from tile_ir.dots import DOTS, WORD
from tile_ir.dtype import DType
from tile_ir.ops import OPS, Aggregation, Signature
from tile_ir.semtree import SemtreeError, launch
from tile_ir.semtree import nodes as s
from tile_ir.semtree.scalars import SHORT


def literal_pool(dtype):
    if dtype.is_float:
        return [0.0, -0.0, 1.5, -2.25, 3.0, 1e30, float("inf"), float("-inf"), float("nan")]
    return sorted(
        {
            v
            for v in (dtype.min_value, dtype.max_value, 0, 1, 2, 3, 7, 40, -1, -5)
            if dtype.min_value <= v <= dtype.max_value
        }
    )


def node_of(op, operands, t):
    match op.signature:
        case Signature.MATH | Signature.DOT:
            return s.Call(op.name, operands, t)
        case Signature.COMPARE:
            return s.Compare(op.name, *operands, s.Type(DType.BOOL, t.lanes))
        case Signature.SELECT:
            return s.Select(*operands, t)
        case Signature.CAST:
            return s.Cast(*operands, t)
        case Signature.BITCAST:
            return s.Bitcast(*operands, t)
        case _ if op.arity == 1:
            return s.Unary(op.name, *operands, t)
        case _:
            return s.Binary(op.name, *operands, t)


def evaluate(node, *buffers):
    """The value of an expression over parameters p0, p1 …"""
    t = node.type
    out = np.zeros(t.lanes, t.dtype.numpy)
    all_buffers = [out, *buffers]
    params = tuple(
        s.Param(f"p{i}", pointer(DType(b.dtype.name)), s.Access.WRITE if i == 0 else s.Access.READ)
        for i, b in enumerate(all_buffers)
    )
    body = s.Block((s.Store(s.Var("p0", params[0].type), index(0), node),))
    launch(s.Function("e", params, body), (1, 1, 1), all_buffers)
    return out


def pointer(dtype):
    return s.Type(dtype, space=s.Space.GLOBAL, ptr=True)


def index(i):
    return s.Const(i, s.Type(DType.INT64))


def operand(number, t, at=0):
    return s.Load(s.Var(f"p{number}", pointer(t.dtype)), index(at), t)


CASES = [
    (op, dtype)
    for op in OPS.values()
    for dtype in DType
    if op.name != "ident"
    and (op.signature is not Signature.MATH or dtype.is_float)
    and (op.signature not in (Signature.BITS, Signature.SHIFT) or not dtype.is_float)
    and (op.signature is not Signature.BITCAST or dtype is not DType.BOOL)
    and (op.signature is not Signature.DOT or dtype is WORD is DOTS[op.name].c)
]


def results(op, dtype):
    """Dtypes that an operation on `dtype` may give."""
    match op.signature:
        case Signature.CAST:
            return [*DType]
        case Signature.BITCAST:
            return [d for d in DType if d is not DType.BOOL and d.bits == dtype.bits]
        case Signature.COMPARE:
            return [DType.BOOL]
        case _:
            return [dtype]


@pytest.mark.parametrize(("op", "dtype"), CASES, ids=[f"{op.name}-{dtype}" for op, dtype in CASES])
def test_every_operation_agrees_with_numerics_in_scalars_and_lanes(op, dtype):
    with np.errstate(all="ignore"):
        pool = np.array(literal_pool(dtype)).astype(dtype.numpy)
    left, right = (part.ravel() for part in np.meshgrid(pool, pool))
    lanes = len(left)
    columns = [left, right][: op.arity]
    if op.signature is Signature.SELECT:
        columns = [np.arange(lanes) % 2 == 0, left, right]
    if op.signature is Signature.DOT:
        columns = [left, right, left ^ right]
    if op.signature is Signature.SHIFT and dtype is DType.BOOL:
        columns[1] = columns[1].astype(np.int32)
    for target in results(op, dtype):
        want = np.broadcast_to(numerics.apply(op.name, columns, target), lanes)
        result = s.Type(target if op.signature in (Signature.CAST, Signature.BITCAST) else dtype, lanes)
        vectors = tuple(operand(i + 1, s.Type(DType(c.dtype.name), lanes)) for i, c in enumerate(columns))
        same_bits(evaluate(node_of(op, vectors, result), *columns), want)
        for at in range(0, lanes, 7):
            scalars = tuple(operand(i + 1, s.Type(DType(c.dtype.name)), at) for i, c in enumerate(columns))
            same_bits(evaluate(node_of(op, scalars, result.scalar), *columns), want[at : at + 1])


def same_bits(got, want):
    assert got.dtype == want.dtype
    nan = (got != got) & (want != want)
    assert (nan | (got.view(f"u{got.itemsize}") == np.ascontiguousarray(want).view(f"u{got.itemsize}"))).all(), (
        got,
        want,
    )


def floats(width):
    return st.floats(width=width, allow_nan=False, allow_infinity=False)


def is_nearest(got, a, b, c):
    """Whether `got` is the correctly rounded fma, by rational arithmetic: no neighbour is closer, ties are even."""
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    near = [got, *(np.nextafter(got, got.dtype.type(end)) for end in (np.inf, -np.inf))]
    bits = f"u{got.itemsize}"
    errors = [(abs(Fraction(float(n)) - exact), int(np.asarray(n).view(bits)) & 1) for n in near]
    return min(errors) == errors[0]


@settings(max_examples=200)
@given(st.sampled_from([32, 64]).flatmap(lambda w: st.tuples(st.just(w), *[floats(w)] * 3)))
def test_fma_rounds_once(case):
    width, *values = case
    dtype = DType(f"float{width}")
    a, b, c = (dtype.numpy.type(v) for v in values)
    limit = 1e18 if width == 32 else 1e150
    if not all(1 / limit < abs(float(v)) < limit for v in (a, b)) or abs(float(c)) > limit**2:
        return
    t = s.Type(dtype)
    node = s.Fma(operand(1, t), operand(2, t), operand(3, t), t)
    got = evaluate(node, *(np.array([v]) for v in (a, b, c)))[0]
    assert is_nearest(got, a, b, c)
    for lanes in (2, 2 * SHORT):
        vector = s.Fma(*(s.Splat(operand(i, t), t.vector(lanes)) for i in (1, 2, 3)), t.vector(lanes))
        assert evaluate(vector, *(np.array([v]) for v in (a, b, c))).tolist() == [got] * lanes


def test_fma_by_hand():
    t = s.Type(DType.FLOAT32)
    eps = np.float32(2.0**-23)
    # (1+e)(1-e) - 1 = -e^2: lost when the product is rounded first.
    parts = [np.array([v], np.float32) for v in (1 + eps, 1 - eps, -1)]
    node = s.Fma(operand(1, t), operand(2, t), operand(3, t), t)
    assert evaluate(node, *parts)[0] == -(eps**2)
    wide = s.Type(DType.FLOAT64)
    node = s.Fma(*(operand(i, wide) for i in (1, 2, 3)), wide)
    for values, want in [((1e300, 1e300, -np.inf), -np.inf), ((1e300, -1e300, 0), -np.inf), ((-0.0, 1, -0.0), -0.0)]:
        got = evaluate(node, *(np.array([float(v)]) for v in values))[0]
        assert got == want and np.signbit(got) == np.signbit(want)


def test_lanes_are_reduced_as_a_tree():
    values = np.array([1e8, 1, -1e8, 1, 3, 5, 7, 9], np.float32)
    for agg, op in [(Aggregation.SUM, np.add), (Aggregation.MAX, np.maximum), (Aggregation.PROD, np.multiply)]:
        want = values
        while len(want) > 1:
            want = op(want[: len(want) // 2], want[len(want) // 2 :])
        node = s.ReduceLanes(agg, operand(1, s.Type(DType.FLOAT32, 8)), s.Type(DType.FLOAT32))
        assert evaluate(node, values)[0] == want[0]


def test_deep_and_shared_expressions():
    t = s.Type(DType.INT32)
    deep = shared = operand(1, t)
    for _ in range(10_000):
        deep = s.Binary("add", deep, s.Const(1, t), t)
    for _ in range(100):
        shared = s.Binary("add", shared, shared, t)
    assert evaluate(deep, np.array([5], np.int32))[0] == 10_005
    assert evaluate(s.Binary("mul", shared, deep, t), np.array([5], np.int32))[0] == 0
    block = s.Block()
    for _ in range(1000):
        block = s.Block((s.If(s.Const(True, s.Type(DType.BOOL)), block),))
    with pytest.raises(SemtreeError, match="nested statements"):
        launch(s.Function("f", (), block), (1, 1, 1), [])
