"""Composition: functions linked into one program, bound tensors, updates, constants."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import numpy as np
import pytest
import tile_runtime as tile
from tile_runtime.tensor import sharing

MATMUL = tile.Function("function (A[M, L], B[L, N]) -> (C) { C[i, j : M, N] = +(A[i, k] * B[k, j]); }")
RELU = tile.Function("function (X) -> (Y) { Y = (X > 0 ? X : 0); }")
ADD = tile.Function("function (A, B) -> (C) { C = A + B; }")
SUM = tile.Function("function (A[N]) -> (S) { S[] = +(A[i]); }")
BOTH = tile.Function("function (A) -> (S, P) { S = A + A; P = A * A; }")


def _data(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("device", ["interp", "llvm"])
def test_placeholders_only(device: str) -> None:
    x, w = tile.placeholder("float32", (4, 3), name="x"), tile.placeholder("float32", (3, 5), name="w")
    f = tile.compose([x, w], [RELU(MATMUL(x, w))])
    a, b = _data(4, 3), _data(3, 5)
    want = np.maximum(a @ b, 0)
    np.testing.assert_allclose(f(a, b, device=device), want, rtol=1e-5)
    np.testing.assert_allclose(f(w=b, x=a, device=device), want, rtol=1e-5)
    assert f.inputs == ("x", "w")
    assert tile.eval_shape(f, a, b).shape == (4, 5)


def test_bound_tensors_are_read_anew_on_each_call() -> None:
    w = tile.asarray(_data(3, 5), "llvm")
    x = tile.placeholder("float32", (4, 3), name="x")
    f = tile.compose([x], [MATMUL(x, w)])
    a = _data(4, 3)
    got = f(a)
    assert type(got) is np.ndarray
    np.testing.assert_allclose(got, a @ w.numpy(), rtol=1e-5)
    with w.mmap_discard() as view:
        view[...] = 1
    kept = f(tile.asarray(a, "llvm"))
    assert isinstance(kept, tile.Tensor)
    np.testing.assert_allclose(kept.numpy(), a @ np.ones((3, 5)), rtol=1e-5)
    out = np.zeros((4, 5), np.float32)
    assert f(a, out=out) is out
    np.testing.assert_allclose(out, a @ np.ones((3, 5)), rtol=1e-5)


def test_arrays_are_constants() -> None:
    table = _data(3, 5)
    x = tile.placeholder("float32", (4, 3), name="x")
    f = tile.compose([x], [MATMUL(x, table[:, ::-1])])
    a, want = _data(4, 3), _data(4, 3) @ table[:, ::-1]
    table[:] = 0
    for device in ("interp", "llvm"):
        np.testing.assert_allclose(f(a, device=device), want, rtol=1e-5)


@pytest.mark.parametrize("where", ["interp", "llvm", "late"])
def test_updates(late: Any, where: str) -> None:
    device = late if where == "late" else tile.device(where)
    total, count = tile.asarray(np.zeros(3, np.float32), device), tile.asarray(np.int32(0), device)
    x = tile.placeholder("float32", (3,), name="x")
    new, one = ADD(total, x), tile.placeholder("int32", (), name="one")
    step = tile.compose([x, one], [RELU(new)], updates=[(total, new), (count, ADD(count, one))])
    for n in range(1, 4):
        got = step(np.array([1, 2, -3], np.float32), 1)
        np.testing.assert_array_equal(got, [n, 2 * n, 0])
    np.testing.assert_array_equal(total.numpy(), [3, 6, -9])
    assert int(count.numpy()) == 3
    only = tile.compose([x], [], updates=[(total, ADD(total, x))])
    assert only(np.ones(3, np.float32)) == ()
    np.testing.assert_array_equal(total.numpy(), [4, 7, -8])


@pytest.mark.parametrize("where", ["llvm", "late"])
def test_no_update_of_a_thread_is_lost(late: Any, where: str) -> None:
    device = late if where == "late" else tile.device(where)
    total = tile.asarray(np.zeros(1, np.float32), device)
    x = tile.placeholder("float32", (1,), name="x")
    step = tile.compose([x], [], updates=[(total, ADD(total, x))])
    threads = [threading.Thread(target=lambda: [step(np.ones(1, np.float32)) for _ in range(10)]) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert total.numpy()[0] == 30


def test_compositions_nest_unless_they_update() -> None:
    x, w = tile.placeholder("float32", (3,), name="x"), tile.asarray(np.full(3, 2, np.float32), "llvm")
    inner = tile.compose([x], [ADD(x, w)])
    z = tile.placeholder("float32", (3,), name="z")
    outer = tile.compose([z], [inner(inner(z))])
    np.testing.assert_array_equal(outer(np.ones(3, np.float32)), 5)
    with pytest.raises(tile.TileTypeError, match=r"(?s)overlaps input 'W.*updates"):
        outer(tile.asarray(np.ones(3, np.float32), "llvm"), out=w)
    updating = tile.compose([x], [x], updates=[(w, ADD(w, x))])
    with pytest.raises(tile.TileTypeError, match="updates tensors, so it cannot be part"):
        updating(z)
    with pytest.raises(tile.TileTypeError, match="updates tensors, so it has no gradient"):
        tile.vjp(updating, wrt="x")


def test_swapping_updates_see_the_values_from_before() -> None:
    a, b = (tile.asarray(np.full(2, v, np.float32), "llvm") for v in (1, 2))
    zero = tile.placeholder("float32", (2,), name="zero")
    swap = tile.compose([zero], [], updates=[(a, ADD(b, zero)), (b, ADD(a, zero))])
    swap(np.zeros(2, np.float32))
    np.testing.assert_array_equal([a.numpy(), b.numpy()], [[2, 2], [1, 1]])


def test_several_outputs_shared_values_and_equal_names() -> None:
    x = tile.placeholder("float32", (3,), name="A")
    s, p = BOTH(x)
    s2, p2 = BOTH(s)
    f = tile.compose([x], [s, p, s2, p2, s])
    a = np.arange(3, dtype=np.float32)
    for got, want in zip(f(a), (2 * a, a * a, 4 * a, 4 * a * a, 2 * a), strict=True):
        np.testing.assert_array_equal(got, want)
    g = tile.compose([y := tile.placeholder("float32", (3,), name="A")], [ADD(*f(y)[:2])])
    np.testing.assert_array_equal(g(a), 2 * a + a * a)


def test_compositions_without_tensors_pickle() -> None:
    x = tile.placeholder("float32", (3,), name="x")
    f = pickle.loads(pickle.dumps(tile.compose([x], [ADD(x, np.ones(3, np.float32))])))
    np.testing.assert_array_equal(f(np.ones(3, np.float32)), 2)
    with pytest.raises(TypeError, match=r"pickle tensor\.numpy"):
        pickle.dumps(tile.compose([x], [ADD(x, tile.Tensor("interp", (3,), "float32"))]))


@pytest.mark.parametrize("device", ["interp", "llvm"])
def test_outputs_are_called_as_their_functions_call_them(device: str) -> None:
    x = tile.placeholder("float32", (3,), name="x")
    f = tile.compose([x], [BOTH(BOTH(x)[0])[0], BOTH(x)[0]])  # the inner S is another value than the output S
    assert f.outputs == ("S", "S_1")
    a = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(f(a, device=device)[0], 4 * a)
    np.testing.assert_array_equal(f(a, device=device)[1], 2 * a)
    named = tile.compose([y := tile.placeholder("float32", (3,), name="S")], [BOTH(y)[0]])
    assert named.outputs == ("S_1",)
    np.testing.assert_array_equal(named(S=a, device=device), 2 * a)


def test_a_placeholder_may_be_an_output() -> None:
    x = tile.placeholder("float32", (3,), name="x")
    f = tile.compose([x], [x, ADD(x, x)])
    a = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(f(a)[0], a)
    np.testing.assert_array_equal(f(a)[1], 2 * a)


NAMES = ("onnx::Conv_1.0", "a b", "", "$0", "π", "*/ /*", "x\ny", "int", "`q`", '"', "\\", "device")


@pytest.mark.parametrize("device", ["interp", "llvm"])
@pytest.mark.parametrize("name", NAMES)
def test_any_text_is_a_name(name: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILE_VERIFY", "1")
    x, y = (tile.placeholder("float32", (3,), n) for n in (name, name + "'"))
    c = tile.constant(np.ones(3, np.float32), name)
    f = tile.compose([x, y], {name: ADD(ADD(x, y), c), name + "!": x})
    assert (f.inputs, f.outputs) == ((name, name + "'"), (name, name + "!"))
    a, b = np.arange(3, dtype=np.float32), np.ones(3, np.float32)
    for _ in range(2):
        np.testing.assert_array_equal(f(a, b, device=device), [a + 2, a])
    gradient = tile.vjp(f, wrt=name)(a, b, a, b, device=device)
    np.testing.assert_array_equal(gradient, a + b)
    assert str(f.lower(a, b, device=device).stripe)
    with pytest.raises(tile.TileTypeError, match="composed for float32\\[3\\]") as error:
        f(a, b[:2], device=device)
    assert repr(name + "'") in str(error.value)


@pytest.mark.parametrize("device", ["interp", "llvm"])
def test_constants_are_values_of_compositions(device: str) -> None:
    table = _data(3, 5)
    held = tile.constant(table, "weights")
    want = table.copy()
    table[:] = 0
    x = tile.placeholder("float32", (4, 3), name="x")
    doubled = ADD(held, held)  # a symbol, although there is no placeholder
    f = tile.compose([x], {"y": MATMUL(x, held), "w": held, "2w": doubled, "again": held, "flag": tile.constant(True)})
    a = _data(4, 3)
    y, w, twice, again, flag = f(a, device=device)
    np.testing.assert_allclose(y, a @ want, rtol=1e-5)
    np.testing.assert_array_equal([w, again, twice / 2], [want] * 3)
    assert flag.shape == () and flag.dtype == np.bool_ and flag
    nothing = tile.compose([], [doubled])
    np.testing.assert_array_equal(nothing(device=device), 2 * want)


def test_read_only_arrays_are_constants_without_a_copy() -> None:
    own = _data(4)
    assert not np.shares_memory(tile.constant(own).known, own)
    hidden = own.view()
    hidden.flags.writeable = False
    assert not np.shares_memory(tile.constant(hidden).known, own), "its memory can be written to through `own`"
    own.flags.writeable = False
    assert tile.constant(own).known is own
    stored = np.frombuffer(own.tobytes(), np.float32)
    assert tile.constant(stored).known is stored
    writable = np.frombuffer(bytearray(own.tobytes()), np.float32)
    writable.flags.writeable = False
    assert not np.shares_memory(tile.constant(writable).known, writable)


def test_deep_compositions_need_no_recursion() -> None:
    y = x = tile.placeholder("float32", (2,), name="x")
    for _ in range(2000):
        y = ADD(y, x)
    assert len(tile.compose([x], [y]).program.ops) == 2000


def test_mistakes_are_named() -> None:
    x, z = tile.placeholder("float32", (3,), name="x"), tile.placeholder("float32", (3,), name="z")
    t = tile.Tensor("llvm", (3,), "float32")
    bad: list[tuple[str, Any]] = [
        ("placeholder 'z' is used but is not among the inputs", lambda: tile.compose([x], [ADD(x, z)])),
        ("needs an output or an update", lambda: tile.compose([x], [])),
        ("not a placeholder", lambda: tile.compose([ADD(x, x)], [x])),
        ("not used by the composition", lambda: tile.compose([x], [ADD(x, x)], updates=[(t, x)])),
        ("cannot update a tensor of float32\\[3\\]", lambda: tile.compose([x], [], updates=[(t, SUM(ADD(x, t)))])),
        ("misses input 'B'", lambda: ADD(x)),
        ("input 'x' is float32\\[4\\], composed for float32\\[3\\]", lambda: tile.compose([x], [ADD(x, x)])(np.zeros(4, np.float32))),
        ("takes no out", lambda: ADD(x, x, out=np.zeros(3, np.float32))),
        ("placeholder 'x' is listed twice", lambda: tile.compose([x, x], [x])),
        ("Tensor.*is not a placeholder", lambda: tile.compose([t], [x])),
        ("output.*ndarray is no Symbol(?s:.*)computes at once", lambda: tile.compose([x], [np.zeros(3)])),
        ("an output or update of list is no Symbol", lambda: tile.compose([x], [[x]])),
        ("the name of an output is text, not int 3", lambda: tile.compose([x], {3: x})),
        ("the name of a constant is text, not int 3", lambda: tile.constant(np.zeros(3), 3)),
        ("argument 'Const' holds no number|neither an array", lambda: tile.constant("text")),
        ("surrogate pair", lambda: tile.placeholder("float32", (3,), "\ud800")),
        ("is not a placeholder", lambda: tile.compose([tile.constant([1.0])], [x])),
        ("no element type|not understood|nonsense", lambda: tile.placeholder("nonsense", (3,), "x")),
        ("a pair \\(Tensor, Symbol\\)", lambda: tile.compose([x], [], updates=[(x, x)])),
    ]  # fmt: skip
    for message, call in bad:
        with pytest.raises(tile.TileTypeError, match=message):
            call()
    with pytest.raises(TypeError, match="no values yet"):
        np.asarray(x)


def test_closed_over_tensors_decide_the_device_and_are_named() -> None:
    x = tile.placeholder("float32", (3,), name="x")
    f = tile.compose([x], [ADD(x, tile.asarray(np.ones(3, np.float32), "interp"))])
    np.testing.assert_array_equal(f(np.ones(3, np.float32)), 2)
    with pytest.raises(
        tile.TileDeviceError, match="the composition's tensor 'W' is on device interp:0, the call runs on llvm:0"
    ):
        f(np.ones(3, np.float32), device="llvm")
    mixed = tile.compose(
        [x], [ADD(ADD(x, tile.Tensor("interp", (3,), "float32")), tile.Tensor("llvm", (3,), "float32"))]
    )
    with pytest.raises(tile.TileDeviceError, match=r"the composition's tensor 'W(_1)?' is on device"):
        mixed(np.ones(3, np.float32))


def test_weights_take_up_scales_where_that_is_allowed() -> None:
    scale = tile.Function("function (R, M, S, B) -> (Y) { Y = (R - M) * S + B; }")
    x = tile.placeholder("float32", (4, 3), name="x")
    f = tile.compose([x], [scale(MATMUL(x, _data(3, 5)), _data(5), _data(5) + 1, _data(5))])
    fold = tile.Evaluator("llvm", fold_scales=True)
    a = _data(4, 3)
    np.testing.assert_allclose(fold(f, a), f(a, device="llvm"), rtol=1e-4, atol=1e-5)
    assert "C_scaled" not in str(f.lower(a, device="llvm").stripe)
    assert "C_scaled" in str(fold.lower(f, a).stripe)
    with pytest.raises(tile.TileTypeError, match="fold_scales is True or False"):
        tile.Evaluator("llvm", fold_scales="no")  # pyright: ignore[reportArgumentType]


def test_large_read_only_constants_are_in_memory_once() -> None:
    table = np.random.default_rng(0).random((256, 1024), dtype=np.float32)
    table.flags.writeable = False
    x = tile.placeholder("float32", (256, 1), name="x")
    f = tile.compose([x], [tile.Function("function (X, T) -> (Y) { Y = X * T; }")(x, table)])
    a = _data(256, 1)
    np.testing.assert_allclose(f(a, device="interp"), a * table, rtol=1e-5)
    lowered = f.lower(a, device="interp")
    held = [np.frombuffer(c.data, np.float32) for c in (*lowered.kernels.constants, *f.program.ops[:1])]
    buffers = lowered.executable._prepared._constants.values()  # pyright: ignore[reportPrivateUsage]
    held += [np.frombuffer(b.map_current(), np.float32) for b in buffers]
    assert len(held) == 3 and all(np.shares_memory(h, table) for h in held)


def test_equal_applications_are_typed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    import tile_lang

    calls: list[Any] = []
    bind = tile_lang.bind
    monkeypatch.setattr(tile_lang, "bind", lambda *a, **k: calls.append(a) or bind(*a, **k))
    double = tile.Function("function (X) -> (Y) { Y = X + X; }")
    y = x = tile.placeholder("float32", (3,), name="x")
    for _ in range(5):
        y = double(y)
    z = double(tile.placeholder("float32", (4,), name="z"))
    assert len(calls) == 2 and z.shape == (4,)
    np.testing.assert_array_equal(tile.compose([x], [y])(np.ones(3, np.float32), device="interp"), 32)


def test_binding_fills_inputs_in_and_follows_what_is_written_to_them() -> None:
    x, w = tile.placeholder("float32", (2, 3), name="x"), tile.placeholder("float32", (4, 3), name="w")
    matmul = tile.Function("function (X[M, K], W[N, K]) -> (Y) { Y[m, n : M, N] = +(X[m, k] * W[n, k]); }")
    whole = tile.compose([x, w], [matmul(x, w)])
    rng = np.random.default_rng(0)
    a, b = rng.random((2, 3), np.float32), rng.random((4, 3), np.float32)
    weights = sharing(b, tile.device("llvm"))
    filled = whole.binding({"w": weights})
    assert filled.arguments == ("x",) and whole.arguments == ("x", "w")
    assert np.allclose(filled(a, device="llvm"), a @ b.T)
    b *= 2
    weights.writes += 1
    assert np.allclose(filled(a, device="llvm"), a @ b.T)
    for wrong in ({"v": weights}, {"x": weights}):
        with pytest.raises(tile.TileTypeError, match="TILE-E509"):
            whole.binding(wrong)
