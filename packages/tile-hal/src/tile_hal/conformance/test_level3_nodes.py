"""Level 3, nodes: statements, memory, work items and the optional nodes, against the semtree interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from tile_ir.dtype import DType
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
    LastGroup,
    Let,
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
)  # fmt: skip

from tile_hal.conformance.kernels import (
    INT,
    I,
    add,
    assert_same,
    check,
    elementwise,
    function,
    lanes_of,
    launch,
    load,
    loop,
    mul,
    need,
    need_threads,
    number,
    param,
    pointer,
    splat,
    store,
    values,
)  # fmt: skip
from tile_hal.interfaces import Device

pytestmark = pytest.mark.takes("semtree")

F32, I32 = DType.FLOAT32, DType.INT32
N = 64
BOOL = Type(DType.BOOL)


def blank(dtype: DType = I32, count: int = N) -> np.ndarray:
    return np.zeros(count, dtype.numpy)


def out(dtype: DType = I32, count: int = N) -> Param:
    return param("out", dtype, count, Access.READWRITE)


def less(left: Expr, right: Expr) -> Compare:
    return Compare("cmp_lt", left, right, BOOL)


def var(name: str, dtype: DType = I32, lanes: int = 1) -> Var:
    return Var(name, Type(dtype, lanes))


def simple(*body: Statement) -> Function:
    return function([out()], *body)


# --- statements of the core ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [DType.INT32, DType.INT64])
@pytest.mark.parametrize(("start", "stop", "step"), [(0, 5, 1), (3, 3, 1), (5, 2, 1), (1, 20, 7), (-4, 4, 3)])
def test_for(tile_device: Device, dtype: DType, start: int, stop: int, step: int) -> None:
    need(tile_device, dtype)
    i = var("i", dtype)
    body = store("out", add(i, number(8, dtype)), add(Cast(i, INT), number(100)))
    check(tile_device, simple(loop("i", stop, body, start=start, step=step, dtype=dtype)), [blank()])


@pytest.mark.parametrize("unroll", list(Unroll))
def test_nested_loops_with_a_computed_bound(tile_device: Device, unroll: Unroll) -> None:
    j = var("j")
    inner = For(
        "j", number(0), add(I, number(1)), 1, Block((store("out", add(mul(I, number(8)), j), mul(I, j)),)), unroll
    )
    check(tile_device, simple(loop("i", 8, inner)), [blank()])


def test_if_and_else(tile_device: Device) -> None:
    odd = Compare("cmp_eq", Binary("bit_and", I, number(1), INT), number(1), BOOL)
    then = Block((store("out", I, number(1)),))
    other = Block((If(less(I, number(10)), Block((store("out", I, number(2)),))),))
    check(tile_device, simple(loop("i", N, If(odd, then, other))), [blank()])


def test_variables_and_scopes(tile_device: Device) -> None:
    x = var("x")
    body = (
        Comment("an inner x hides the outer one and goes away; \\ */ // ? ??/ \u00e9"),
        Let("x", number(5), mutable=True),
        Block((Let("x", number(7)), store("out", number(0), x))),
        store("out", number(1), x),
        loop("i", 4, Assign("x", add(x, I))),
        store("out", number(2), x),
        Let("y", mul(x, x)),
        Assign("x", number(-1)),
        store("out", number(3), var("y")),
        store("out", number(4), x),
    )
    assert check(tile_device, simple(*body), [blank()])[0][:5].tolist() == [7, 5, 11, 121, -1]


def test_names_of_every_kind(tile_device: Device) -> None:
    """Names that mean something to compilers and to C are only names here."""
    names = ["float", "int", "kernel", "global", "main", "exp", "get_global_id", "define", "entry", "br", "i32", "a_b"]
    body: list[Statement] = [Let(name, number(n)) for n, name in enumerate(names)]
    body += [store("out", number(n), var(name)) for n, name in enumerate(names)]
    got = check(tile_device, function([out()], *body, name="while"), [blank()])
    assert got[0][: len(names)].tolist() == list(range(len(names)))


@pytest.mark.parametrize("dtype", list(DType))
def test_private_arrays(tile_device: Device, dtype: DType) -> None:
    need(tile_device, dtype)
    array = Var("scratch", Type(dtype, count=N))
    body = (
        Alloc("scratch", Type(dtype, count=N)),
        loop("i", N, Store(array, I, load("a", dtype, I))),
        loop("i", N, store("out", I, Load(array, Binary("sub", number(N - 1), I, INT), Type(dtype)))),
    )
    item = function([param("out", dtype, N, Access.WRITE), param("a", dtype, N)], *body)
    check(tile_device, item, [blank(dtype), values(dtype, N)])


def test_in_place_update(tile_device: Device) -> None:
    item = simple(loop("i", N, store("out", I, add(load("out", I32, I), number(1)))))
    check(tile_device, item, [np.arange(N, dtype=np.int32)])


def test_cells_that_are_not_written_keep_their_value(tile_device: Device) -> None:
    item = simple(loop("i", N, store("out", I, number(0)), step=5))
    check(tile_device, item, [np.arange(N, dtype=np.int32)])


def test_deep_expressions(tile_device: Device) -> None:
    expr: Expr = load("a", I32, I)
    for n in range(300):
        expr = Binary("bit_xor", add(expr, number(n)), number(n * 7), INT)
    item = function([out(), param("a", I32, N)], loop("i", N, store("out", I, expr)))
    check(tile_device, item, [blank(), values(I32, N)])


def test_many_parameters(tile_device: Device) -> None:
    params = [out(), *(param(f"p{n}", I32, N) for n in range(20))]
    total: Expr = number(0)
    for n in range(20):
        total = add(total, load(f"p{n}", I32, I))
    item = function(params, loop("i", N, store("out", I, total)))
    check(tile_device, item, [blank(), *(values(I32, N, seed) for seed in range(20))])


def test_several_outputs(tile_device: Device) -> None:
    params = [param("x", I32, N, Access.WRITE), param("y", F32, N, Access.WRITE), param("a", I32, N)]
    value = load("a", I32, I)
    item = function(params, loop("i", N, store("x", I, add(value, value)), store("y", I, Cast(value, Type(F32)))))
    check(tile_device, item, [blank(), blank(F32), values(I32, N)])


# --- work items --------------------------------------------------------------------------------------


@pytest.mark.parametrize("groups", [(1, 1, 1), (5, 1, 1), (2, 3, 4), (1, 1, 64)])
def test_groups(tile_device: Device, groups: tuple[int, int, int]) -> None:
    """Every group runs once, with its own number in each axis."""
    x, y, z = (WorkId(IdKind.GROUP, axis) for axis in range(3))
    where = add(x, mul(number(groups[0]), add(y, mul(number(groups[1]), z))))
    item = simple(store("out", where, add(load("out", I32, where), add(where, number(1)))))
    got = check(tile_device, item, [blank()], groups)
    count = groups[0] * groups[1] * groups[2]
    assert got[0].tolist() == [n + 1 if n < count else 0 for n in range(N)]


@pytest.mark.parametrize("size", [(2, 1, 1), (4, 2, 1), (2, 2, 2)])
def test_local_and_global_numbers(tile_device: Device, size: tuple[int, int, int]) -> None:
    threads = size[0] * size[1] * size[2]
    if threads > tile_device.capabilities.max_group_size:
        pytest.skip(f"device has groups of at most {tile_device.capabilities.max_group_size}")
    groups = (2, 2, 2)
    at: Expr = number(0)
    local: Expr = number(0)
    for axis in (2, 1, 0):
        at = add(mul(at, number(groups[axis] * size[axis])), WorkId(IdKind.GLOBAL, axis))
        local = add(mul(local, number(10)), WorkId(IdKind.LOCAL, axis))
    item = function([out()], store("out", at, add(local, number(1))), group_size=size)
    check(tile_device, item, [blank()], groups)


def test_many_groups(tile_device: Device) -> None:
    count = 10_000
    group = WorkId(IdKind.GROUP, 0)
    item = function([out(count=count)], store("out", group, mul(group, number(3))))
    got = launch(tile_device, item, [blank(count=count)], (count, 1, 1))
    assert_same(got[0], np.arange(count, dtype=np.int32) * 3)


# --- vectors -----------------------------------------------------------------------------------------


def vector_width(device: Device, dtype: DType, node: str) -> int:
    need(device, node, "Splat", dtype)
    return lanes_of(device, dtype)


@pytest.mark.parametrize("dtype", list(DType))
def test_vector_load_store_splat(tile_device: Device, dtype: DType) -> None:
    """Unaligned vectors too: `align` 0 promises an element's alignment only."""
    lanes = vector_width(tile_device, dtype, "Splat")
    scalar = load("a", dtype, I)
    body = loop(
        "i", N - lanes, Store(pointer("out", dtype), add(I, number(1)), Splat(scalar, Type(dtype, lanes))), step=lanes
    )
    item = function([out(dtype), param("a", dtype, N)], body)
    check(tile_device, item, [values(dtype, N), values(dtype, N, 1)])
    item = elementwise(lambda v: v, dtype, [dtype], N, lanes=lanes)
    check(tile_device, item, [blank(dtype), values(dtype, N)])


@pytest.mark.parametrize("dtype", list(DType))
def test_extract_and_insert(tile_device: Device, dtype: DType) -> None:
    need(tile_device, "Extract")
    lanes = vector_width(tile_device, dtype, "Insert")

    def swap(vector: Expr) -> Expr:
        first, last = (Extract(vector, n, Type(dtype)) for n in (0, lanes - 1))
        return Insert(Insert(vector, 0, last, vector.type), lanes - 1, first, vector.type)

    check(tile_device, elementwise(swap, dtype, [dtype], N, lanes=lanes), [blank(dtype), values(dtype, N)])


@pytest.mark.parametrize("dtype", list(DType))
def test_shuffle(tile_device: Device, dtype: DType) -> None:
    lanes = vector_width(tile_device, dtype, "Shuffle")
    picks = tuple(2 * n + 1 for n in range(lanes))
    item = elementwise(lambda a, b: Shuffle(a, b, picks, a.type), dtype, [dtype, dtype], N, lanes=lanes)
    check(tile_device, item, [blank(dtype), values(dtype, N), values(dtype, N, 1)])


@pytest.mark.parametrize("dtype", [d for d in DType if d.is_integer])
def test_iota(tile_device: Device, dtype: DType) -> None:
    lanes = vector_width(tile_device, dtype, "Iota")
    item = elementwise(lambda a: add(a, Iota(a.type)), dtype, [dtype], N, lanes=lanes)
    check(tile_device, item, [blank(dtype), values(dtype, N)])


@pytest.mark.parametrize("agg", [a for a in Aggregation if a is not Aggregation.ASSIGN], ids=lambda a: a.name.lower())
@pytest.mark.parametrize("dtype", list(DType))
def test_reduce_lanes(tile_device: Device, dtype: DType, agg: Aggregation) -> None:
    """A fixed tree, so exact for floats too."""
    lanes = vector_width(tile_device, dtype, "ReduceLanes")
    vector = load("a", dtype, I, lanes)
    item = function([out(dtype), param("a", dtype, N)],
                    loop("i", N, store("out", I, ReduceLanes(agg, vector, Type(dtype))), step=lanes))  # fmt: skip
    data = values(dtype, N)
    if dtype.is_float:
        data[N // 2] = np.nan
    check(tile_device, item, [blank(dtype), data])


@pytest.mark.parametrize("dtype", list(DType))
def test_masked_load_and_store(tile_device: Device, dtype: DType) -> None:
    """A suppressed lane is not touched, not even at an address that does not exist."""
    lanes = vector_width(tile_device, dtype, "Iota")
    count = N - 1
    wide = Type(I32, lanes)
    where = add(splat(I, lanes), Iota(wide))
    mask = Compare("cmp_lt", where, Const(count, wide), Type(DType.BOOL, lanes))
    value = Load(pointer("a", dtype), I, Type(dtype, lanes), mask)
    body = loop("i", N, Store(pointer("out", dtype), I, value, mask), step=lanes)
    item = function([out(dtype, count), param("a", dtype, count)], body)
    check(tile_device, item, [values(dtype, count, 1), values(dtype, count)])


def test_masked_lanes_are_zero(tile_device: Device) -> None:
    lanes = vector_width(tile_device, F32, "Splat")
    never = Const(False, Type(DType.BOOL, lanes))
    value = Load(pointer("a", F32), I, Type(F32, lanes), never)
    item = function([out(F32), param("a", F32, N)], loop("i", N, Store(pointer("out", F32), I, value), step=lanes))
    check(tile_device, item, [values(F32, N, 1), values(F32, N)])


def test_vector_select(tile_device: Device) -> None:
    lanes = vector_width(tile_device, F32, "Splat")

    def larger(a: Expr, b: Expr) -> Expr:
        return Select(Compare("cmp_gt", a, b, Type(DType.BOOL, lanes)), a, b, a.type)

    item = elementwise(larger, F32, [F32, F32], N, lanes=lanes)
    check(tile_device, item, [blank(F32), values(F32, N), values(F32, N, 1)])


@pytest.mark.parametrize("hint", ["streaming", "prefetch"])
def test_hints_of_stores_change_no_value(tile_device: Device, hint: str) -> None:
    lanes = lanes_of(tile_device, F32)
    value = load("a", F32, I, lanes)
    body = Store(pointer("out", F32), I, value, align=value.type.lanes * 4, hint=hint)
    item = function([Param("out", pointer("out", F32).type, Access.WRITE, 64, N), param("a", F32, N)],
                    loop("i", N, body, step=lanes))  # fmt: skip
    check(tile_device, item, [blank(F32), values(F32, N)])


# --- other optional nodes ------------------------------------------------------------------------------


def test_while(tile_device: Device) -> None:
    need(tile_device, "While")
    x = var("x")
    body = (
        Let("x", number(1), mutable=True),
        While(less(x, number(N)), Block((store("out", x, x), Assign("x", mul(x, number(2)))))),
    )
    check(tile_device, simple(*body), [blank()])


def test_return_leaves_the_kernel(tile_device: Device) -> None:
    need(tile_device, "Return")
    group = WorkId(IdKind.GROUP, 0)
    item = simple(If(less(group, number(3)), Block((Return(),))), store("out", group, number(1)))
    check(tile_device, item, [blank()], (8, 1, 1))


def test_helper_functions(tile_device: Device) -> None:
    need(tile_device, "CallFn")
    helper = function(
        [param("dst", I32, 0, Access.WRITE), Param("n", INT)],
        store("dst", var("n"), mul(var("n"), var("n"))),
        name="square",
    )
    call = CallFn("square", (pointer("out", I32), I))
    item = function([out()], loop("i", N, call), helpers=(helper,))
    check(tile_device, item, [blank()])


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.INT32, DType.UINT8])
def test_barrier_and_local_memory(tile_device: Device, dtype: DType) -> None:
    """Each group reverses its share through local memory, twice, so that every barrier matters."""
    threads = 8
    need_threads(tile_device, threads, "Barrier", dtype)
    if tile_device.capabilities.local_bytes < threads * dtype.bytes:
        pytest.skip("device has too little local memory")
    me, group = WorkId(IdKind.LOCAL, 0), WorkId(IdKind.GROUP, 0)
    tile_type = Type(dtype, count=threads, space=Space.LOCAL)
    tile, other = Var("tile", tile_type), Binary("sub", number(threads - 1), me, INT)
    where = add(mul(group, number(threads)), me)
    item = function(
        [out(dtype), param("a", dtype, N)],
        Alloc("tile", tile_type),
        Store(tile, me, load("a", dtype, where)),
        Barrier(),
        Let("v", Load(tile, other, Type(dtype))),
        Barrier(),
        Store(tile, me, add(var("v", dtype), var("v", dtype))),
        Barrier(),
        store("out", where, Load(tile, other, Type(dtype))),
        group_size=(threads, 1, 1),
    )
    check(tile_device, item, [blank(dtype), values(dtype, N)], (N // threads, 1, 1))


def test_the_last_group_sees_what_all_have_stored(tile_device: Device) -> None:
    """Twice, so that groups are counted from zero again."""
    threads = 2
    need_threads(tile_device, threads, "LastGroup", I32)
    me, group, last = WorkId(IdKind.LOCAL, 0), WorkId(IdKind.GROUP, 0), Var("last", Type(DType.BOOL))
    where = add(mul(group, number(threads)), me)
    mine = Binary("mod", group, number(2), INT)
    theirs = load("b", I32, add(mul(I, number(2 * threads)), mul(mine, number(threads))))
    total = loop("i", N // threads // 2, store("out", mine, add(load("out", I32, mine), theirs)))
    memory = Type(I32, space=Space.GLOBAL, ptr=True)
    item = function(
        [
            Param("out", memory, Access.READWRITE, elements=2),
            Param("b", memory, Access.READWRITE, elements=N),
            param("a", I32, N),
        ],
        store("b", where, mul(load("a", I32, where), number(3))),
        Let("last", Const(False, Type(DType.BOOL)), mutable=True),
        LastGroup(last, mine, N // threads // 2),
        If(last, Block((If(less(me, number(1)), Block((total,))),))),
        group_size=(threads, 1, 1),
    )
    for _ in range(2):
        check(tile_device, item, [np.zeros(2, np.int32), blank(I32), values(I32, N)], (N // threads, 1, 1))


@pytest.mark.parametrize("agg", [Aggregation.SUM, Aggregation.MAX, Aggregation.MIN], ids=lambda a: a.name.lower())
@pytest.mark.parametrize("dtype", [DType.INT32, DType.UINT32, DType.FLOAT32])
def test_atomics(tile_device: Device, dtype: DType, agg: Aggregation) -> None:
    """Small whole numbers: exact in any order."""
    need(tile_device, "Atomic", dtype)
    group = WorkId(IdKind.GROUP, 0)
    at = Binary("mod", group, number(3), INT)
    item = function(
        [out(dtype, 3), param("a", dtype, N)], Atomic(agg, pointer("out", dtype), at, load("a", dtype, group))
    )
    data = (np.arange(N) * 7 % 23).astype(dtype.numpy)
    check(tile_device, item, [np.ones(3, dtype.numpy), data], (N, 1, 1))


def test_asynchronous_copies(tile_device: Device) -> None:
    need_threads(tile_device, 1, "AsyncCopy", "AsyncWait")
    tile_type = Type(F32, count=16, space=Space.LOCAL)
    tile, group = Var("tile", tile_type), WorkId(IdKind.GROUP, 0)
    start = mul(group, number(16))
    item = function(
        [out(F32), param("a", F32, N)],
        Alloc("tile", tile_type),
        AsyncCopy(tile, number(0), pointer("a", F32), start, 16),
        AsyncWait(0, 0),
        loop("i", 16, store("out", add(start, I), Load(tile, Binary("sub", number(15), I, INT), Type(F32)))),
    )
    check(tile_device, item, [blank(F32), values(F32, N)], (4, 1, 1))


def test_copies_that_clear_what_is_not_there(tile_device: Device) -> None:
    """The guard decides for each of them; nothing is read where it is false."""
    need_threads(tile_device, 1, "AsyncCopy", "AsyncWait")
    tile_type = Type(F32, count=16, space=Space.LOCAL)
    tile, group = Var("tile", tile_type), WorkId(IdKind.GROUP, 0)
    start = mul(group, number(16))
    copies = (
        AsyncCopy(
            tile, number(at), pointer("a", F32), add(start, number(at)), 4, less(group, number(at // 4)), fill=True
        )
        for at in range(0, 16, 4)
    )
    item = function(
        [out(F32), param("a", F32, N)],
        Alloc("tile", tile_type),
        *copies,
        AsyncWait(0, 0),
        loop("i", 16, store("out", add(start, I), Load(tile, I, Type(F32)))),
    )
    check(tile_device, item, [blank(F32), values(F32, N)], (4, 1, 1))


@pytest.mark.parametrize("op", ["reduce_add", "reduce_max", "reduce_min"])
def test_subgroup_reduction(tile_device: Device, op: str) -> None:
    need(tile_device, "SubgroupOp")
    width = tile_device.capabilities.subgroup
    if width < 2:
        pytest.skip("device has no sub-groups")
    where = WorkId(IdKind.GLOBAL, 0)
    value = SubgroupOp(op, (load("a", I32, where),), INT)
    item = function([out(), param("a", I32, N)], store("out", where, value), group_size=(width, 1, 1), subgroup=width)
    check(tile_device, item, [blank(), values(I32, N)], (max(1, N // width), 1, 1))
