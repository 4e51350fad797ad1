"""The semtree interpreter: values, work groups, and everything it must refuse."""

import numpy as np
import pytest
from tile_ir.dtype import DType
from tile_ir.semtree import SemtreeError, SemtreeRuntimeError, launch, parse_function
from tile_ir.semtree import nodes as s

MATMUL = """function matmul(write global float32* o [elements=64], read global float32* a, read global float32* b) group(4, 1, 1) {
    let row = group_id(0);
    let t = local_id(0);
    alloc local float32[8] tile;
    for (k = 0; k < 2; k += 1) { tile[t * 2 + k] = a[row * 8 + t * 2 + k]; }
    barrier("group", "local");
    for (j = 0; j < 2; j += 1) {
        var acc = 0.0;
        for (k = 0; k < 8; k += 1) { acc = acc + tile[k] * b[k * 8 + t * 2 + j]; }
        o[row * 8 + t * 2 + j] = acc;
    }
}"""


def arrays(*sizes):
    rng = np.random.default_rng(7)
    return [rng.integers(-9, 9, n).astype(np.float32) for n in sizes]


def test_a_tiled_matmul():
    o, a, b = arrays(64, 64, 64)
    launch(parse_function(MATMUL), (8, 1, 1), [o, a, b])
    assert np.array_equal(o.reshape(8, 8), a.reshape(8, 8) @ b.reshape(8, 8))


def test_a_missing_barrier_is_reported():
    # Without the barrier the first work item reads what the others have not written yet.
    function = parse_function(MATMUL.replace('barrier("group", "local");', ""))
    with pytest.raises(
        SemtreeRuntimeError, match=r"nothing has written.* at tile\[2\] by work item \(0, 0, 0\) of group \(0, 0, 0\)"
    ):
        launch(function, (8, 1, 1), arrays(64, 64, 64))


def run(body, buffers, groups=(1, 1, 1), threads=1, check_races=True, subgroup=0):
    """Run statements over buffers b0, b1 … (all writable)."""
    space = "readwrite global %s* b%d"
    params = ", ".join(space % (b.dtype.name, i) for i, b in enumerate(buffers))
    text = f"function f({params}) group({threads}, 1, 1) subgroup({subgroup}) {{\n{body}\n}}"
    launch(parse_function(text.replace(" subgroup(0)", "")), groups, buffers, check_races)
    return buffers[0]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "b0[global_id(0)] = 1.0; let x = b0[3 - global_id(0)];",
            r"write after read by work item 1 .*its group.* at b0\[2\] by work item \(2, 0, 0\)",
        ),
        ("b0[0] = 1.0;", r"write after write by work item 0 .* at b0\[0\] by work item \(1, 0, 0\)"),
        ("let x = b0[0]; if (local_id(0) == 3) { b0[0] = 2.0; }", r"write after read by several work items"),
        ("alloc local float32[4] t; t[0] = 1.0;", r"write after write .* at t\[0\]"),
        ("if (local_id(0) < 2) { atomic add b0[0] = 1.0; } else { b0[0] = 1.0; }", "write after atomic"),
        ('b0[local_id(0)] = 1.0; barrier("group", "local"); let x = b0[0];', "read after write"),
    ],
)
def test_races_within_a_group(body, message):
    with pytest.raises(SemtreeRuntimeError, match=message):
        run(body, [np.zeros(4, np.float32)], threads=4)
    run(body, [np.zeros(4, np.float32)], threads=4, check_races=False)


@pytest.mark.parametrize(
    "body",
    [
        'b0[local_id(0)] = 1.0; barrier("group", "global"); let x = b0[0];',
        'b0[local_id(0)] = 1.0; barrier("group", "all"); b0[3 - local_id(0)] = 2.0;',
        "atomic add b0[0] = 1.0;",
        "let x = b0[0];",
        "let x = b0[0]; b0[1 + global_id(0)] = x;",
    ],
)
def test_what_is_no_race(body):
    run(body, [np.zeros(8, np.float32)], threads=4)


@pytest.mark.parametrize(
    "body", ["b0[0] = 1.0;", "b0[group_id(0)] = b0[1];", "atomic add b0[0] = b0[1 - group_id(0)];"]
)
def test_races_between_groups(body):
    with pytest.raises(SemtreeRuntimeError, match=r"data race.*another group"):
        run(body, [np.zeros(2, np.float32)], groups=(2, 1, 1))


def test_aliased_buffers_race_too():
    storage = np.zeros(8, np.float32)
    with pytest.raises(SemtreeRuntimeError, match=r"write after read .*another group.*at b0\[4\]"):
        run("b0[4] = 1.0; let x = b1[0];", [storage, storage[4:]], groups=(2, 1, 1))
    run("b0[group_id(0)] = b1[group_id(0)];", [storage, storage[4:]], groups=(2, 1, 1))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "let x = b0[4];",
            r"read out of bounds \(4 elements\) at b0\[4\] by work item \(0, 0, 0\) of group \(0, 0, 0\)",
        ),
        ("b0[-1] = 1.0;", r"write out of bounds .* at b0\[-1\]"),
        ("let x = b0[1]:float32x4;", r"read out of bounds .* at b0\[4\]"),
        ("b0[3] = splat(1.0, 2);", r"at b0\[4\]"),
        ("atomic add b0[7] = 1.0;", r"atomic update out of bounds .* at b0\[7\]"),
        ("alloc private float32[4] p; let x = p[2];", r"nothing has written .* at p\[2\]"),
        ("alloc private float32[4] p; p[0] = 1.0; let x = p[0]:float32x2;", r"at p\[1\]"),
        (
            "for (i = 0; i < 2; i += 1) { alloc private float32[1] p; if (i == 1) { let x = p[0]; } p[0] = 1.0; }",
            "nothing",
        ),
        ("alloc local float32[4] t; async_copy t[0] = b0[0], count=4; let x = t[0];", "a copy still fills"),
        ("alloc local float32[4] t; async_copy t[0] = b0[1], count=4;", r"read out of bounds .* at b0\[4\]"),
    ],
)
def test_memory_errors(body, message):
    with pytest.raises(SemtreeRuntimeError, match=message):
        run(body, [np.zeros(4, np.float32)])


def test_masked_lanes_touch_nothing():
    mask = "iota(int32x4) < 2i32x4"
    out = run(f"b0[2, mask={mask}] = b0[2, mask={mask}]:float32x4 + 1f32x4;", [np.zeros(4, np.float32)])
    assert out.tolist() == [0, 0, 1, 1]
    out = run("let x = b0[3, mask=iota(int32x4) < 1i32x4]:float32x4; b0[0] = x;", [np.arange(1, 5, dtype=np.float32)])
    assert out.tolist() == [4, 0, 0, 0]


BARRIER_UNDER_LOAD = """function f(readwrite global int32* b0) group(2, 1, 1) {
    atomic add b0[0] = 1;
    if (b0[0] == 1) { barrier("group", "local"); }
}"""


def test_barriers_must_be_reached_by_all():
    # To the verifier one cell holds one value for all threads; here each sees another one.
    with pytest.raises(SemtreeRuntimeError, match=r"work item \(0, 0, 0\) .* waits at a Barrier that 1 finished"):
        launch(parse_function(BARRIER_UNDER_LOAD), (1, 1, 1), [np.zeros(1, np.int32)], check_races=False)
    with pytest.raises(SemtreeRuntimeError, match=r"read after atomic|atomic after read"):
        launch(parse_function(BARRIER_UNDER_LOAD), (1, 1, 1), [np.zeros(1, np.int32)])


LAST = "var last = false; last_group(last, %s, %d); "
COUNT = "let i = global_id(0); b1[i] = i + 1; "


@pytest.mark.parametrize("threads", [1, 2])
def test_the_last_group_sees_what_all_have_stored(threads: int) -> None:
    last = LAST % ("0", 8 // threads)
    body = f"{COUNT}{last}if (last) {{ if (local_id(0) == 0) {{ for (k = 0; k < 8; k += 1) {{ b0[0] = b0[0] + b1[k]; }} }} }}"
    for _ in range(2):  # a second launch counts anew
        found = run(body, [np.zeros(1, np.int32), np.zeros(8, np.int32)], (8 // threads, 1, 1), threads)
        assert found.tolist() == [36]


def test_each_set_of_groups_has_its_last() -> None:
    add = "for (k = 0; k < 4; k += 1) { b0[group_id(0) % 2] = b0[group_id(0) % 2] + b1[2 * k + group_id(0) % 2]; }"
    body = f"{COUNT}{LAST % ('group_id(0) % 2', 4)}if (last) {{ {add} }}"
    assert run(body, [np.zeros(2, np.int32), np.zeros(8, np.int32)], (8, 1, 1)).tolist() == [16, 20]


def test_groups_that_are_not_the_last_see_nothing_of_others() -> None:
    body = f"{COUNT}{LAST % ('0', 4)}b0[i] = b1[7 - i];"
    with pytest.raises(SemtreeRuntimeError, match=r"read after write|write after read"):
        run(body, [np.zeros(8, np.int32), np.zeros(8, np.int32)], (4, 1, 1), 2)


def test_collectives():
    x = np.arange(8, dtype=np.float32)
    lane = "let l = local_id(0); let v = b0[l]; "
    for op, want in [
        ('subgroup("reduce_add", v)', [6, 6, 6, 6, 22, 22, 22, 22]),
        ('subgroup("reduce_max", -v)', [0, 0, 0, 0, -4, -4, -4, -4]),
        ('subgroup("broadcast", v, 1)', [1, 1, 1, 1, 5, 5, 5, 5]),
        ('subgroup("shuffle_xor", v, 1)', [1, 0, 3, 2, 5, 4, 7, 6]),
        ('subgroup("shuffle_up", v, 1)', [0, 0, 1, 2, 4, 4, 5, 6]),
        ('subgroup("shuffle_down", v, 2)', [2, 3, 2, 3, 6, 7, 6, 7]),
        ('subgroup("shuffle", v, 3 - l % 4)', [3, 2, 1, 0, 7, 6, 5, 4]),
    ]:
        assert run(f"{lane} b0[l] = {op} + 0.0;", [x.copy()], threads=8, subgroup=4).tolist() == want
    with pytest.raises(SemtreeRuntimeError, match="reads lanes"):
        run(f'{lane} b0[l] = subgroup("shuffle", v, 4);', [x.copy()], threads=8, subgroup=4)


def test_statements():
    x = np.arange(8, dtype=np.int32)
    assert run("var m = 0; while (b0[m] < 5) { m = m + 1; } b0[0] = m;", [x.copy()])[0] == 5
    assert run("for (i = 0; i < 8; i += 3) { b0[i] = i * 10; if (i == 3) { return; } }", [x.copy()]).tolist() == [
        0,
        1,
        2,
        30,
        4,
        5,
        6,
        7,
    ]
    assert run("if (b0[0] > 0) { b0[1] = 5; } else { b0[1] = 6; }", [x.copy()])[1] == 6
    assert run("atomic max b0[3] = 9; atomic assign b0[4] = 8; atomic mul b0[2] = -3;", [x.copy()]).tolist() == [
        0,
        1,
        -6,
        9,
        8,
        5,
        6,
        7,
    ]


# --- copies that run ahead ---------------------------------------------------------------------------

COPY = "async_copy t[{n}] = b0[{n}], count=1;"
SECOND = "async_copy t[{n}] = b0[{n}], count=1, group=1;"


def arrived(body, count=4):
    """Which of the local elements can be read after `body`; element n is copied from global element n."""
    found = []
    for n in range(count):
        data = np.arange(10, 10 + count, dtype=np.int32)
        try:
            value = run(f"alloc local int32[{count}] t; {body} b0[0] = t[{n}];", [data])[0]
        except SemtreeRuntimeError as problem:
            assert "a copy still fills" in str(problem) and f"t[{n}]" in str(problem)
        else:
            assert value == 10 + n
            found.append(n)
    return found


def copies(*numbers, text=COPY):
    return " ".join(text.format(n=n) for n in numbers)


def wait(pending, group=0):
    return f" async_wait({group}, {pending}); "


def test_copies_between_two_waits_are_one_batch():
    assert arrived(copies(0, 1) + wait(1)) == []
    assert arrived(copies(0, 1) + wait(0)) == [0, 1]


@pytest.mark.parametrize(("pending", "complete"), [(0, [0, 1, 2]), (1, [0, 1]), (2, [0]), (3, []), (9, [])])
def test_pending_counts_batches_from_the_latest(pending, complete):
    body = copies(0) + wait(9) + copies(1) + wait(9) + copies(2) + wait(pending)
    assert arrived(body) == complete


def test_a_wait_closes_an_empty_batch():
    assert arrived(copies(0) + wait(1)) == []
    assert arrived(copies(0) + wait(1) + wait(1)) == [0]
    assert arrived(wait(1) + copies(0) + wait(1)) == []


def test_the_last_steps_of_a_pipeline_wait_without_copies():
    """Three stages: two steps are copied ahead, and each wait lets the oldest one arrive."""
    body = copies(0) + wait(1) + copies(1) + wait(1)
    assert arrived(body, 3) == [0]
    body += copies(2) + wait(1)
    assert arrived(body, 3) == [0, 1]
    assert arrived(body + wait(1), 3) == [0, 1, 2]


def test_groups_of_copies_have_batches_of_their_own():
    body = copies(0) + copies(1, text=SECOND)
    assert arrived(body + wait(0)) == [0]
    assert arrived(body + wait(0, group=1)) == [1]
    assert arrived(body + wait(0, group=1) + wait(1)) == [1]


def test_a_guard_leaves_the_copy_out_but_not_the_batch():
    body = "alloc local int32[4] t; t[0] = 5; async_copy t[0] = b0[1], count=1, guard=b0[2] > 0; async_wait(0, 0); b0[0] = t[0];"
    assert run(body, [np.array([0, 7, 1], np.int32)])[0] == 7
    assert run(body, [np.array([0, 7, 0], np.int32)])[0] == 5
    cleared = body.replace("count=1,", "count=1, fill=1,")
    assert run(cleared, [np.array([0, 7, 1], np.int32)])[0] == 7
    assert run(cleared, [np.array([9, 7, 0], np.int32)])[0] == 0
    never = "async_copy t[1] = b0[1], count=1, guard=b0[0] < 0;"
    assert arrived(copies(0) + wait(1) + never + wait(1)) == [0]


def test_what_a_copy_clears_is_known_once_it_is_waited_for():
    body = "alloc local int32[4] t; async_copy t[0] = b0[99], count=2, guard=b0[0] > 0, fill=1; {} b0[0] = t[1];"
    assert run(body.format("async_wait(0, 0);"), [np.array([0], np.int32)])[0] == 0
    with pytest.raises(SemtreeRuntimeError, match="a copy still fills"):
        run(body.format(""), [np.array([0], np.int32)])


def test_a_copy_that_is_left_out_may_reach_outside():
    run("alloc local int32[4] t; async_copy t[9] = b0[9], count=4, guard=b0[0] > 0;", [np.zeros(4, np.int32)])


def test_a_copy_reads_when_it_starts():
    body = "alloc local int32[4] t; async_copy t[0] = b0[1], count=1; b0[1] = 3; async_wait(0, 0); b0[0] = t[0];"
    assert run(body, [np.array([0, 7], np.int32)])[0] == 7


def test_each_work_item_waits_for_its_own_copies():
    body = """alloc local int32[2] t;
    let l = local_id(0);
    async_copy t[l] = b0[l], count=1;
    if (l == 0) { async_wait(0, 0); }
    barrier("group", "local");
    b0[2 + l] = t[%s];"""
    with pytest.raises(SemtreeRuntimeError, match=r"still fills.* at t\[1\]"):
        run(body % "1", [np.zeros(4, np.int32)], threads=2)
    whole = body.replace("if (l == 0) { async_wait(0, 0); }", "async_wait(0, 0);")
    assert run(whole % "1 - l", [np.array([3, 4, 0, 0], np.int32)], threads=2).tolist() == [3, 4, 4, 3]


def test_helpers_and_pointers():
    text = """function f(readwrite global int32* o) group(2, 1, 1) helpers {
        function bump(readwrite global int32* p, read int32 at, read int32 by) group(1, 1, 1) {
            if (by == 0) { return; }
            p[at] = p[at] + by;
            barrier("group", "global");
        }
    } { call bump(o, local_id(0), 3); call bump(o, 1 - local_id(0), 4); }"""
    o = np.array([10, 20], np.int32)
    launch(parse_function(text), (1, 1, 1), [o])
    assert o.tolist() == [17, 27]


def test_mma_is_a_matrix_product():
    rng = np.random.default_rng(3)
    a, b, c = (rng.integers(-4, 4, n).astype(np.float32) for n in (8, 8, 4))
    body = "b0[0] = mma(2, 2, 4, [b1[0]:float32x4, b1[4]:float32x4], [b2[0]:float32x8], [b0[0]:float32x4]):float32x4;"
    want = c.reshape(2, 2) + a.reshape(2, 4) @ b.reshape(4, 2)
    assert np.array_equal(run(body, [c.copy(), a, b]).reshape(2, 2), want)


def test_launch_names_the_wrong_buffer():
    function = parse_function("function f(write global float32* out [elements=8]) group(1, 1, 1) { out[0] = 1.0; }")
    good = np.zeros(8, np.float32)
    for buffers, message in [
        ([], "takes 1 buffers"),
        ([good.astype(np.float64)], "buffer out is a one-dimensional float32"),
        ([good.reshape(2, 4)], "one-dimensional"),
        ([good[:4]], "has 4 values, the kernel needs 8"),
    ]:
        with pytest.raises(SemtreeRuntimeError, match=message):
            launch(function, (1, 1, 1), buffers)
    good.flags.writeable = False
    with pytest.raises(SemtreeRuntimeError, match="read-only array"):
        launch(function, (1, 1, 1), [good])
    with pytest.raises(SemtreeError, match="not declared"):
        launch(s.Function("f", (), s.Block((s.Assign("x", s.Const(1, s.Type(DType.INT32))),))), (1, 1, 1), [])


def test_vector_nodes():
    x = np.arange(4, dtype=np.float32)
    assert run("b0[0] = shuffle(b0[0]:float32x4, 9f32x4, 3, 4, 0, 1);", [x.copy()]).tolist() == [3, 9, 0, 1]
    assert run("b0[0] = insert(splat(extract(b0[0]:float32x4, 2), 4), 1, 7.0);", [x.copy()]).tolist() == [2, 7, 2, 2]
    assert run("b0[0] = float32x4(iota(int32x4) % 2i32x4) + limit_max(float32x4);", [x.copy()]).tolist() == [np.inf] * 4
    assert run("b0[0] = float32(-7 % 3) + float32(5 % 0);", [x.copy()])[0] == 2


def test_work_item_numbers():
    out = np.zeros(24, np.int32)
    text = """function ids(write global int32* o) group(2, 3, 1) {
        let i = global_id(0) + 4 * global_id(1);
        o[i] = group_id(0) * 100 + local_id(0) * 10 + local_id(1) + group_id(1) * 1000;
    }"""
    launch(parse_function(text), (2, 2, 1), [out])
    want = [(y // 3) * 1000 + (x // 2) * 100 + (x % 2) * 10 + y % 3 for y in range(6) for x in range(4)]
    assert out.tolist() == want


def between_barriers(scope, reader, written):
    """Each of eight items, of two sub-groups, stores a number, reads another's and stores once more: both behind a barrier."""
    barrier = f'barrier("{scope}", "local");'
    body = f"alloc local int32[8] t; let l = local_id(0); t[l] = l; {barrier} out[l] = t[{reader}]; {barrier} t[{written}] = 9;"
    out = np.zeros(8, np.int32)
    kernel = parse_function(f"function f(write global int32* out) group(8, 1, 1) subgroup(4) {{ {body} }}")
    launch(kernel, (1, 1, 1), [out])
    return out.tolist()


def test_a_barrier_of_a_subgroup_orders_its_own_items_alone():
    assert between_barriers("subgroup", "l ^ 1", "l ^ 2") == [1, 0, 3, 2, 5, 4, 7, 6]
    assert between_barriers("group", "l ^ 4", "l ^ 5") == [4, 5, 6, 7, 0, 1, 2, 3]
    with pytest.raises(SemtreeRuntimeError, match="race: read after write by work item 4"):
        between_barriers("subgroup", "l ^ 4", "l")
    with pytest.raises(SemtreeRuntimeError, match="race: write after read by several work items"):
        between_barriers("subgroup", "l / 4 * 4", "l ^ 4")
