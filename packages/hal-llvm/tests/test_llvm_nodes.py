"""Vector, memory and control-flow nodes of semtree on the llvm device."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hal_llvm.driver import LlvmDevice
from hal_llvm.emit.code import Machine
from hal_llvm.emit.module import emit_module
from hal_llvm.emit.types import held
from tile_ir.diagnostics import TileDeviceError, TileInternalError
from tile_ir.dtype import DType
from tile_ir.kernels import Kernel
from tile_ir.ops import Aggregation
from tile_ir.semtree.nodes import (
    Access,
    Alloc,
    Assign,
    AsyncCopy,
    AsyncWait,
    Atomic,
    Barrier,
    Binary,
    Block,
    CallFn,
    Cast,
    Comment,
    Compare,
    Const,
    Expr,
    Extract,
    For,
    Function,
    IdKind,
    If,
    Insert,
    Iota,
    Let,
    Limit,
    Load,
    Param,
    ReduceLanes,
    Return,
    Select,
    Shuffle,
    Space,
    Splat,
    Statement,
    Store,
    SubgroupOp,
    Type,
    Unroll,
    Var,
    While,
    WorkId,
)

I64, I32, F32, BOOL = Type(DType.INT64), Type(DType.INT32), Type(DType.FLOAT32), Type(DType.BOOL)


def pointer(place: int, dtype: DType = DType.FLOAT32) -> Var:
    return Var(f"p{place}", Type(dtype, ptr=True))


def number(value: int, type_: Type = I64) -> Const:
    return Const(value, type_)


def add(a: Expr, b: Expr) -> Binary:
    return Binary("add", a, b, a.type)


def less(a: Expr, b: Expr) -> Compare:
    return Compare("cmp_lt", a, b, BOOL)


def ramp(n: int, dtype: Any = np.float32) -> Any:
    return np.arange(n).astype(dtype)


def put(index: Expr | int, value: Expr, place: int = 0) -> Store:
    return Store(pointer(place, value.type.dtype), number(index) if isinstance(index, int) else index, value)


@pytest.mark.parametrize("dtype", DType, ids=str)
def test_vectors_move_lanes(launch: Any, dtype: DType) -> None:
    t, scalar = Type(dtype, 4), Type(dtype)
    x = Load(pointer(1, dtype), number(0), t)
    y = Load(pointer(1, dtype), number(4), t)
    odd = Type(dtype, 3)
    a, b = (Load(pointer(1, dtype), number(n), odd) for n in (0, 4))
    body = [
        put(0, Splat(Extract(x, 2, scalar), t)),
        put(4, Insert(x, 1, Extract(y, 3, scalar), t)),
        put(8, Shuffle(x, y, (7, 0, 5, 5, 2, 3), Type(dtype, 6))),
        put(14, Shuffle(x, y, (6,), scalar)),
        put(15, Extract(Shuffle(Extract(x, 1, scalar), Extract(y, 1, scalar), (1, 0), Type(dtype, 2)), 0, scalar)),
        put(16, Shuffle(a, b, (3, 0, 5), odd)),
    ]
    data = (np.arange(8) % 2 == 0 if dtype is DType.BOOL else ramp(8)).astype(dtype.numpy)
    got = launch(body, np.zeros(19, dtype.numpy), data)[0]
    picks = [2, 2, 2, 2, 0, 7, 2, 3, 7, 0, 5, 5, 2, 3, 6, 5, 4, 0, 6]
    np.testing.assert_array_equal(got.astype(np.float64), data[picks].astype(np.float64))


@pytest.mark.parametrize("lanes", [1, 2, 3, 4, 6, 8, 16])
def test_places_that_data_chooses(launch: Any, lanes: int) -> None:
    """Lanes of int32 leave as pairs of words; they may count backwards from where a part of the buffer begins."""
    words, wide = Type(DType.INT32, lanes), Type(DType.INT64, lanes)
    places = (5 * np.arange(lanes) % 7 - 3).astype(np.int32)
    lane = [Var(f"lane{n}", I64) for n in range(lanes)]
    body = [
        Let("start", Load(pointer(2, DType.INT64), number(0), I64)),
        Let("wide", Cast(Load(pointer(1, DType.INT32), number(0), words), wide)),
        *(Let(v.name, Extract(Var("wide", wide), n, I64)) for n, v in enumerate(lane)),
        *(put(n, Load(pointer(3), add(Var("start", I64), v), F32)) for n, v in enumerate(lane)),
        *(put(lanes + n, Load(pointer(3), add(v, number(20)), F32)) for n, v in enumerate(lane)),
    ]
    got = launch(body, np.zeros(2 * lanes, np.float32), places, np.array([9]), ramp(64))[0]
    np.testing.assert_array_equal(got, [*(9 + places), *(20 + places)])
    dtypes = (DType.FLOAT32, DType.INT32, DType.INT64, DType.FLOAT32)
    params = tuple(Param(f"p{n}", Type(d, ptr=True), Access.READWRITE, 1, 64) for n, d in enumerate(dtypes))
    function = Function("f", params, Block(tuple(body)))
    text = emit_module([Kernel("f", None, function, (1, 1, 1))], Machine()).text  # type: ignore[arg-type]
    assert lanes == 1 or f"extractelement <{held(lanes)} x i64>" not in text


@pytest.mark.parametrize("dtype", [d for d in DType if d is not DType.BOOL], ids=str)
def test_iota_and_limits(launch: Any, dtype: DType) -> None:
    t = Type(dtype, 8)
    body = [
        put(0, Iota(t)),
        put(8, Limit("min", t)),
        put(16, Limit("max", Type(dtype))),
        put(17, Const(-1, Type(dtype))),
    ]
    got = launch(body, np.zeros(18, dtype.numpy))[0]
    low, high = np.array(dtype.min_value).astype(dtype.numpy), np.array(dtype.max_value).astype(dtype.numpy)
    want = [*range(8), *[low] * 8, high, np.array(-1).astype(dtype.numpy)]
    assert [float(v) for v in got] == [float(v) for v in want]


@pytest.mark.parametrize("lanes", [1, 2, 5, 8, 16])
@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.FLOAT16, DType.INT16, DType.UINT64], ids=str)
def test_lanes_reduce_pairwise(launch: Any, dtype: DType, lanes: int) -> None:
    data = (np.random.default_rng(lanes).normal(0, 30, lanes)).astype(dtype.numpy)
    load = Load(pointer(1, dtype), number(0), Type(dtype, lanes))
    aggs = [Aggregation.SUM, Aggregation.PROD, Aggregation.MAX, Aggregation.MIN]
    body = [put(n, ReduceLanes(agg, load, Type(dtype))) for n, agg in enumerate(aggs)]
    got = launch(body, np.zeros(4, dtype.numpy), data)[0]
    with np.errstate(over="ignore"):
        want = [_tree(list(data), f) for f in (np.add, np.multiply, np.maximum, np.minimum)]
    np.testing.assert_array_equal(got, np.array(want, dtype.numpy))


def _tree(values: list[Any], merge: Any) -> Any:
    while len(values) > 1:
        half = len(values) // 2
        pairs = [merge(values[i], values[i + half]) for i in range(half)]
        values = pairs + values[2 * half :]
    return values[0]


@pytest.mark.parametrize("dtype", DType, ids=str)
@pytest.mark.parametrize("lanes", [1, 6, 16])
def test_masks_suppress_lanes(launch: Any, dtype: DType, lanes: int) -> None:
    t, mask_type = Type(dtype, lanes), Type(DType.BOOL, lanes)
    mask = Load(pointer(2, DType.BOOL), number(0), mask_type)
    body = [
        Store(pointer(0, dtype), number(0), Load(pointer(1, dtype), number(0), t, mask=mask)),
        Store(pointer(0, dtype), number(lanes), Load(pointer(1, dtype), number(0), t), mask=mask),
    ]
    data = (ramp(lanes) + 1).astype(dtype.numpy)
    picks = np.arange(lanes) % 3 == 1
    got = launch(body, np.full(2 * lanes, 5).astype(dtype.numpy), data, picks)[0].astype(np.float64)
    assert (got[:lanes] == np.where(picks, data, 0)).all()
    assert (got[lanes:] == np.where(picks, data, np.array(5).astype(dtype.numpy))).all()


@pytest.mark.parametrize("dtype", DType, ids=str)
def test_masks_that_are_known_suppress_lanes(launch_all: Any, dtype: DType) -> None:
    """One lane of a vector that is made from a wider one: what the compiler knows of a mask, it may use."""
    cases: list[Any] = []
    expected: list[Any] = []
    for source, lanes in itertools.product((DType.INT64, DType.INT32, DType.INT16), (2, 4, 8)):
        wide, narrow, many = Type(source, lanes), Type(dtype, lanes), Type(DType.INT32, lanes)
        data = np.full(lanes, -2, source.numpy)  # no byte of which is 0
        values = Cast(Load(pointer(1, source), number(0), wide), narrow)
        masks = [Compare("cmp_eq", Iota(many), Const(k, many), Type(DType.BOOL, lanes)) for k in range(lanes)]
        body = [Store(pointer(0, dtype), number(2 * k * lanes), values, mask=m) for k, m in enumerate(masks)]
        cases.append((body, [np.zeros(2 * lanes * lanes, dtype.numpy), data]))
        rows = np.zeros((lanes, 2 * lanes), dtype.numpy)
        rows[range(lanes), range(lanes)] = data.astype(dtype.numpy)
        expected.append(rows.ravel())
    for got, want in zip(launch_all(cases), expected, strict=True):
        np.testing.assert_array_equal(got, want)


PLACES = {0: 7, 7: 11, 18: 13, 31: 15, 46: 23}
"""Lanes by the element where they are stored."""


@pytest.mark.parametrize("dtype", [DType.BOOL, DType.INT8, DType.FLOAT16, DType.BFLOAT16, DType.INT32], ids=str)
def test_vectors_of_many_parts_are_loaded_and_stored_as_two(launch: Any, dtype: DType) -> None:
    """No vector is moved that LLVM would put together in memory, and all lanes are there."""
    data = (ramp(32) % (2 if dtype is DType.BOOL else 32)).astype(dtype.numpy)
    body = [put(at, Load(pointer(1, dtype), number(1), Type(dtype, n))) for at, n in PLACES.items()]
    np.testing.assert_array_equal(
        launch(body, np.zeros(69, dtype.numpy), data)[0], np.concatenate([data[1 : n + 1] for n in PLACES.values()])
    )
    params = tuple(Param(f"p{n}", Type(dtype, ptr=True), Access.READWRITE, 1, 69) for n in range(2))
    text = emit_module([Kernel("f", None, Function("f", params, Block(tuple(body))), (1, 1, 1))], Machine()).text  # type: ignore[arg-type]
    assert not any(f"{move} <{n} x" in text for n in PLACES.values() for move in ("load", "store"))


def test_scalar_condition_selects_vectors(launch: Any) -> None:
    t = Type(DType.FLOAT32, 4)
    body = [put(0, Select(less(number(1), number(2)), Const(1.0, t), Const(2.0, t), t))]
    assert launch(body, np.zeros(4, np.float32))[0].tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("unroll", Unroll)
@pytest.mark.parametrize(("start", "stop", "step"), [(0, 10, 1), (3, 11, 4), (5, 5, 1), (7, 2, 3)])
@pytest.mark.parametrize("dynamic", [False, True])
def test_loops(launch: Any, unroll: Unroll, start: int, stop: int, step: int, dynamic: bool) -> None:
    bound: Expr = number(stop)
    if dynamic:
        bound = Load(pointer(1, DType.INT64), number(0), I64)
    total = Var("total", F32)
    body = [
        Let("total", Const(0.0, F32), mutable=True),
        For("i", number(start), bound, step, Block((Assign("total", add(total, Load(pointer(2), Var("i", I64), F32))),)), unroll),
        put(0, total),
    ]  # fmt: skip
    got = launch(body, np.zeros(1, np.float32), np.array([stop]), ramp(16) + 1)[0]
    assert got[0] == sum(i + 1 for i in range(start, stop, step))


@pytest.mark.parametrize("dtype", [DType.INT8, DType.UINT8, DType.INT32, DType.UINT64], ids=str)
def test_loop_variables_of_any_integer(launch: Any, dtype: DType) -> None:
    t = Type(dtype)
    body = [For("i", Const(100, t), Const(127, t), 9, Block((put(0, Var("i", t)),)))]
    assert launch(body, np.zeros(1, dtype.numpy))[0][0] == 118


def test_if_else_while_return(launch: Any) -> None:
    n = Var("n", I64)
    body = [
        Comment("count up to 5, then leave"),
        Let("n", number(0), mutable=True),
        While(
            less(n, number(100)),
            Block((
                Assign("n", add(n, number(1))),
                If(less(n, number(3)), Block((put(n, number(1)),)), Block((put(n, number(2)),))),
                If(Compare("cmp_eq", n, number(5), BOOL), Block((Return(),))),
            )),
        ),
        put(0, number(9)),
    ]  # fmt: skip
    assert launch(body, np.zeros(8, np.int64))[0].tolist() == [0, 1, 1, 2, 2, 2, 0, 0]


def test_scopes_end(launch: Any) -> None:
    x = Var("x", I64)
    body = [
        Let("x", number(1)),
        Block((Let("x", number(2)), put(0, x))),
        put(1, x),
        If(less(x, number(5)), Block((Let("x", number(3), mutable=True), Assign("x", number(4)), put(2, x)))),
        put(3, x),
    ]
    assert launch(body, np.zeros(4, np.int64))[0].tolist() == [2, 1, 4, 1]
    with pytest.raises(TileInternalError, match="not defined"):
        launch([Block((Let("y", number(1)),)), put(0, Var("y", I64))], np.zeros(1, np.int64))


@pytest.mark.parametrize("dtype", DType, ids=str)
@pytest.mark.parametrize("lanes", [1, 8])
def test_mutable_variables(launch: Any, dtype: DType, lanes: int) -> None:
    t = Type(dtype, lanes)
    body = [
        Let("v", Load(pointer(1, dtype), number(0), t), mutable=True),
        For("i", number(0), number(3), 1, Block((Assign("v", Binary("max", Var("v", t), Load(pointer(1, dtype), number(8), t), t)),))),
        put(0, Var("v", t)),
    ]  # fmt: skip
    data = (np.arange(16) * 7 % 5).astype(dtype.numpy)
    got = launch(body, np.zeros(lanes, dtype.numpy), data)[0].astype(np.float64)
    assert got.tolist() == np.maximum(data[:lanes].astype(np.float64), data[8 : 8 + lanes].astype(np.float64)).tolist()


@pytest.mark.parametrize("count", [64, 100_000])
@pytest.mark.parametrize("space", [Space.PRIVATE, Space.LOCAL])
def test_private_arrays(launch: Any, count: int, space: Space) -> None:
    array = Var("t", Type(DType.FLOAT32, count=count, space=space))
    i = Var("i", I64)
    body = [
        Alloc("s", Type(DType.INT8, count=70_000)),
        Alloc("t", Type(DType.FLOAT32, count=count, space=space)),
        For("i", number(0), number(count), 1, Block((Store(array, i, Load(pointer(1), i, F32)),))),
        For("i", number(0), number(count), 1, Block((put(Binary("sub", number(count - 1), i, I64), Load(array, i, F32)),))),
    ]  # fmt: skip
    got = launch(body, np.zeros(count, np.float32), ramp(count))[0]
    assert (got == ramp(count)[::-1]).all()


@pytest.mark.parametrize("groups", [(1, 1, 1), (12, 1, 1), (1, 5, 1), (3, 4, 1), (2, 3, 4), (1, 3, 4), (0, 2, 1)])
@pytest.mark.parametrize("flops", [1, 10**9])
def test_work_groups_cover_the_grid(launch: Any, groups: tuple[int, int, int], flops: int) -> None:
    nx, ny, nz = groups
    x, y, z = (WorkId(IdKind.GROUP, axis) for axis in range(3))
    index = add(x, Binary("mul", number(nx, I32), add(y, Binary("mul", number(ny, I32), z, I32)), I32))
    store = Store(pointer(0, DType.INT32), index, add(index, WorkId(IdKind.LOCAL, 0)))
    total = nx * ny * nz
    got = launch([store], np.full(max(total, 1), -1, np.int32), groups=groups, flops=flops)[0]
    assert got.tolist() == (list(range(total)) or [-1])


@pytest.mark.parametrize("dtype", DType, ids=str)
@pytest.mark.parametrize("agg", [Aggregation.SUM, Aggregation.MAX, Aggregation.MIN, Aggregation.PROD], ids=str)
def test_atomics(launch: Any, dtype: DType, agg: Aggregation) -> None:
    value = Load(pointer(1, dtype), WorkId(IdKind.GROUP, 0, I64), Type(dtype))
    body = [Atomic(agg, pointer(0, dtype), number(0), value)]
    data = np.array([1, 2, 1, 3, 1, 1, 2, 1]).astype(dtype.numpy)
    got = launch(body, np.ones(1, dtype.numpy), data, groups=(8, 1, 1), flops=10**9)[0]
    f = {Aggregation.SUM: np.sum, Aggregation.MAX: np.max, Aggregation.MIN: np.min, Aggregation.PROD: np.prod}[agg]
    want = np.array(f(np.array([1, *data.astype(np.float64)]))).astype(dtype.numpy)
    assert float(got[0]) == float(want)


def test_copies_and_barriers(launch: Any) -> None:
    tile = Var("t", Type(DType.FLOAT32, count=16, space=Space.LOCAL))
    t16 = Type(DType.FLOAT32, 16)
    body = [
        Alloc("t", Type(DType.FLOAT32, count=16, space=Space.LOCAL)),
        Store(tile, number(0), Const(0.0, t16)),
        AsyncCopy(tile, number(0), pointer(1), number(4), 8),
        AsyncCopy(tile, number(8), pointer(1), number(4), 8, guard=Const(False, BOOL)),
        AsyncCopy(tile, number(4), pointer(1), number(400), 2, guard=Const(False, BOOL), fill=True),
        AsyncCopy(tile, number(6), pointer(1), number(10), 2, guard=Const(True, BOOL), fill=True),
        AsyncWait(),
        Barrier(),
        put(0, Load(tile, number(0), t16)),
    ]
    assert launch(body, np.zeros(16, np.float32), ramp(16))[0].tolist() == [
        *range(4, 8),
        0,
        0,
        *range(10, 12),
        *[0] * 8,
    ]


def test_helper_functions(launch: Any) -> None:
    params = (Param("dst", Type(DType.FLOAT32, ptr=True)), Param("where", I64))
    inner = Store(Var("dst", Type(DType.FLOAT32, ptr=True)), Var("where", I64), Const(7.0, F32))
    helper = Function("edge", params, Block((If(less(Var("where", I64), number(3)), Block((Return(),))), inner)))
    body = [For("i", number(0), number(5), 1, Block((CallFn("edge", (pointer(0), Var("i", I64))),)))]
    assert launch(body, np.zeros(5, np.float32), helpers=(helper,))[0].tolist() == [0, 0, 0, 7, 7]


def streaming(align: int, mask: Expr | None = None, hint: str = "streaming") -> Kernel:
    """Copies p1, 64 float32, to p0."""
    t = Type(DType.FLOAT32, 16)
    store = Store(pointer(0), Var("i", I64), Load(pointer(1), Var("i", I64), t), mask, align, hint)
    accesses = (Access.WRITE, Access.READ)
    params = tuple(Param(f"p{n}", Type(DType.FLOAT32, ptr=True), a, 1, 64) for n, a in enumerate(accesses))
    body = Block((For("i", number(0), number(64), 16, Block((store,))),))
    return Kernel("f", None, Function("f", params, body), (1, 1, 1))  # type: ignore[arg-type]


@pytest.mark.parametrize("align", [0, 4, 64])
@pytest.mark.parametrize("start", [0, 4, 16, 32])
def test_streaming_stores(device: LlvmDevice, build: Any, align: int, start: int) -> None:
    (kernel,) = build([streaming(align)])
    room = np.zeros(512, np.uint8)
    at = -room.ctypes.data % 64 + start
    result: Any = room[at : at + 256]
    given: Any = ramp(64)
    kernel.run([device.memory.wrap(memoryview(a)) for a in (result, given.view(np.uint8))]).wait()
    assert (result.view(np.float32) == given).all() and not room[:at].any() and not room[at + 256 :].any()


@pytest.mark.parametrize(("align", "masked", "past"), [(64, False, True), (16, False, False), (64, True, False)])
def test_a_second_body_stores_past_the_caches_where_buffers_begin_at_lines(
    align: int, masked: bool, past: bool
) -> None:
    mask = Splat(less(Var("i", I64), number(60)), Type(DType.BOOL, 16)) if masked else None
    text = emit_module([streaming(align, mask)], Machine()).text
    plain, *other = [t for t in text.split("define ") if t.startswith("internal void @body0")]
    assert ["!nontemporal" in t for t in (plain, *other)] == [False, True][: 1 + past]
    assert "align 64" not in plain and ("select i1 %lined" in text) == past


def test_what_is_stored_next_is_fetched_where_a_store_says_so() -> None:
    asked, other = (emit_module([streaming(4, hint=hint)], Machine()).text for hint in ("prefetch", ""))
    assert "call void @llvm.prefetch.p0" in asked and "prefetch" not in other and "!nontemporal" not in asked


ROW = Load(pointer(1), number(0), Type(DType.FLOAT32, 3))


@pytest.mark.parametrize(
    ("access", "elements", "row", "ahead"),
    [
        (Access.READ, 3, ROW, True),
        (Access.READ, 2, ROW, False),
        (Access.READWRITE, 3, ROW, False),
        (Access.READ, 30, Load(pointer(1), Var("i", I64), ROW.type), False),
    ],
    ids=["same", "too short", "written", "elsewhere"],
)
@pytest.mark.parametrize("inner", [False, True])
def test_loops_load_once_what_stays(access: Access, elements: int, row: Load, ahead: bool, inner: bool) -> None:
    """What is made of it goes ahead of them, too; loops around others leave the registers to those."""
    body: list[Statement] = [put(Var("i", I64), Shuffle(row, row, (0, 1, 2, 0, 1, 2), Type(DType.FLOAT32, 6)))]
    if inner:
        body.append(For("j", number(0), number(9), 1, Block((put(Var("j", I64), Const(1.0, F32)),))))
    loop = For("i", number(0), number(9), 1, Block(tuple(body)))
    params = Param("p0", pointer(0).type, Access.WRITE, 1, 30), Param("p1", pointer(1).type, access, 1, elements)
    text = emit_module([Kernel("f", None, Function("f", params, Block((loop,))), (1, 1, 1))], Machine()).text  # type: ignore[arg-type]
    before = text[: text.index("\nloop")]
    assert ("load <3 x float>" in before) == ("shufflevector" in before) == (ahead and not inner)


def test_depth_meets_no_recursion_limit(launch: Any) -> None:
    value: Expr = Const(1.0, F32)
    for _ in range(5000):
        value = add(value, Const(1.0, F32))
    block: Statement = put(0, value)
    for _ in range(2000):
        block = Block((block,))
    for _ in range(300):
        block = If(less(Load(pointer(1, DType.INT64), number(0), I64), number(9)), Block((block,)))
    assert launch([block], np.zeros(1, np.float32), np.zeros(1, np.int64))[0][0] == 5001


def test_shared_expressions_are_emitted_once(launch: Any) -> None:
    value: Expr = Load(pointer(1), number(0), F32)
    for _ in range(60):
        value = add(value, value)
    assert launch([put(0, value)], np.zeros(1, np.float32), np.ones(1, np.float32))[0][0] == 2.0**60


def test_nodes_of_other_devices_are_refused(launch: Any) -> None:
    with pytest.raises(TileInternalError, match="SubgroupOp"):
        launch([put(0, SubgroupOp("reduce_add", (Const(1.0, F32),), F32))], np.zeros(1, np.float32))


def test_groups_of_several_items_are_refused(device: Any) -> None:
    from tile_ir.kernels import Kernel, KernelList

    kernel = Kernel("k", None, Function("k", (), Block(), (8, 1, 1)), (1, 1, 1))  # type: ignore[arg-type]
    with pytest.raises(TileDeviceError, match="groups of"):
        device.compiler.build(KernelList((kernel,), (), (), device.target))
