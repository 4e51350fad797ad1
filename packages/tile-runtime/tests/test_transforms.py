"""jit, value_and_grad and vmap of Python functions, alone and within each other, beside finite differences and loops."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest
import tile_runtime as tile
from tile_runtime import numpy as tnp
from tile_runtime.trees import flatten, flatten_arguments

RNG = np.random.default_rng(0)
MATMUL = tile.Function("function (A[M, L], B[L, N]) -> (C) { C[i, j : M, N] = +(A[i, k] * B[k, j]); }")


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(np.float32)


@dataclass
class Layer:
    weights: Any
    bias: Any
    kind: str = field(default="tanh", metadata={"static": True})


class Pair(NamedTuple):
    first: Any
    second: Any


class Box:
    def __init__(self, inside: Any) -> None:
        self.inside = inside


tile.register_tree(Box, lambda b: ([b.inside], None), lambda _, parts: Box(parts[0]))


def loss(layer: Layer, x: Any, y: Any) -> Any:
    assert layer.kind == "tanh"
    return ((tnp.tanh(x @ layer.weights + layer.bias) - y) ** 2).mean()


# --- gradients --------------------------------------------------------------------------------------------


def test_a_gradient_has_the_form_of_its_argument_and_agrees_with_differences() -> None:
    layer, x, y = Layer(normal(4, 3), normal(3)), normal(8, 4), normal(8, 3)
    value_and_grad = tile.value_and_grad(loss)
    value, slope = value_and_grad(layer, x, y)
    assert isinstance(slope, Layer) and isinstance(slope.weights, np.ndarray)
    step = np.zeros((4, 3), np.float32)
    step[1, 2] = 1e-2
    ends = [float(value_and_grad(Layer(layer.weights + s, layer.bias), x, y)[0]) for s in (step, -step)]
    assert slope.weights[1, 2] == pytest.approx((ends[0] - ends[1]) / 2e-2, rel=1e-2, abs=1e-4)
    np.testing.assert_allclose(tile.grad(loss)(layer, x, y).bias, slope.bias)
    assert float(value) == pytest.approx(float(tile.jit(loss)(layer, x, y)))


def test_several_arguments_and_aux() -> None:
    def both(x: Any, y: Any) -> Any:
        return (x * y).sum(), {"sum": x + y}

    x, y = normal(3), normal(3)
    (value, aux), (dx, dy) = tile.value_and_grad(both, argnums=(0, 1), has_aux=True)(x, y)
    np.testing.assert_allclose([value, *aux["sum"]], [(x * y).sum(), *(x + y)], rtol=1e-6)
    np.testing.assert_array_equal(dx, y)
    np.testing.assert_array_equal(dy, x)
    slope, aux = tile.grad(both, has_aux=True)(x, y)
    np.testing.assert_array_equal(slope, y)


def test_gradients_of_gradients_and_through_scans() -> None:
    assert float(tile.grad(tile.grad(lambda x: x**3))(2.0)) == pytest.approx(12)
    inner = tile.grad(lambda x: tile.grad(lambda y: y**3)(x) * x)  # the inner one is of a symbol of the outer
    assert float(inner(2.0)) == pytest.approx(36)

    def powered(x: Any) -> Any:
        return tile.repeat(lambda c: c * x, tnp.ones(()), 4)

    value, slope = tile.value_and_grad(powered)(3.0)
    assert (float(value), float(slope)) == (81, 108)


def test_the_forward_loop_runs_once() -> None:
    def rolled(w: Any, xs: Any) -> Any:
        return tile.scan(lambda c, x: (tnp.tanh(c * w + x), None), tnp.zeros(3), xs)[0].sum()

    program = tile.value_and_grad(rolled).lower(normal(3), normal(5, 3)).program
    assert sum(type(op).__name__ == "Loop" for op in program.ops) == 2


# --- jit --------------------------------------------------------------------------------------------------


def test_a_function_is_traced_once_for_each_form_shapes_and_dtypes() -> None:
    traces: list[Any] = []

    @tile.jit
    def twice(tree: Any, scale: Any = 2) -> Any:
        traces.append(tree)
        return tile.tree_map(lambda v: v * scale, tree)

    for _ in range(2):
        np.testing.assert_array_equal(twice({"a": np.float32([1, 2])})["a"], [2, 4])
    assert len(traces) == 1
    found = twice(Pair(tile.asarray(normal(2)), (None, [1.5])), scale=3)
    assert isinstance(found, Pair) and isinstance(found.first, tile.Tensor) and found.second[0] is None
    assert float(twice(Box(1.5)).inside.item()) == 3
    assert len(traces) == 3


def test_calls_in_turn_find_the_program_of_their_own_arguments() -> None:
    """That of the call before is tried first: other shapes, dtypes, forms and counts are not taken for it."""
    f = tile.jit(lambda *args, **named: (args, named, sum(leaf * 2 for leaf in args if not isinstance(leaf, tuple))))
    one, two, whole = np.ones((2, 3), np.float32), np.ones((3, 2), np.float32), np.ones((2, 3), np.int32)
    for args, named in 2 * [
        ((one,), {}),
        ((two,), {}),
        ((whole,), {}),
        ((one, one), {}),
        ((one, (one,)), {}),
        ((one,), {"b": one}),
    ]:
        for _ in range(2):
            again, also, total = f(*args, **named)
            assert flatten((again, also))[1] == flatten((args, named))[1]
            assert total.dtype == args[0].dtype
            np.testing.assert_array_equal(total, args[0] * (2 * sum(a is args[0] for a in args)))


def test_the_form_of_arguments_that_are_leaves_is_one_object() -> None:
    """So that a warm call neither makes nor compares it."""
    made = [flatten_arguments((np.ones(n), np.ones(2)), {}) for n in (1, 2)]
    assert made[0][1] is made[1][1]
    assert made[0][1] == flatten(((np.ones(1), np.ones(2)), {}))[1]
    assert flatten_arguments((np.ones(1), [np.ones(2)]), {})[1] == flatten(((np.ones(1), [np.ones(2)]), {}))[1]


def test_a_call_like_the_last_one_goes_straight_to_its_program(monkeypatch: pytest.MonkeyPatch) -> None:
    f = tile.jit(lambda x, y: {"sum": x + y})
    x, y = normal(6), normal(6)
    f(x, y), f(x, y)
    with monkeypatch.context() as patch:
        patch.setattr(f, "_taken_apart", lambda *_: pytest.fail("arguments were looked at"))
        for a, b in ((x, y), (y, y)):
            np.testing.assert_array_equal(f(a, b)["sum"], a + b)
        tensor = f(*map(tile.asarray, (x, y)))["sum"]
        assert isinstance(tensor, tile.Tensor)
        np.testing.assert_array_equal(tensor.numpy(), x + y)


def test_a_call_unlike_the_last_one_does_not() -> None:
    f = tile.jit(lambda x, y: x + (y if not isinstance(y, tuple) else y[0] - y[1]))
    x, y = normal(6), normal(6)
    f(x, y), f(x, y)
    for a, b in ((x[:3], y[:3]), (x[::-1], y), (x.astype(np.float64), y), (x, 2), (x, tile.asarray(y)), (x, x[0])):
        np.testing.assert_array_equal(
            np.asarray(f(a, b)), np.asarray(a) + np.asarray(b, dtype=getattr(b, "dtype", a.dtype))
        )
        np.testing.assert_array_equal(f(x, y), x + y)
    np.testing.assert_array_equal(f(x, (y, x)), x + (y - x))
    np.testing.assert_array_equal(tile.jit(lambda z: f(x, y) + f(z, y))(y), (x + y) + (y + y))
    with pytest.raises(TypeError):
        f(x)


def test_static_arguments_and_decisions_by_shape() -> None:
    @tile.jit(static=("mode", "axis"))
    def reduced(x: Any, mode: str, axis: int = 0) -> Any:
        return x.sum(axis) if mode == "sum" else x.max(axis)

    x = normal(3, 4)
    np.testing.assert_allclose(reduced(x, "sum"), x.sum(0), rtol=1e-6)
    np.testing.assert_allclose(reduced(x, mode="max", axis=1), x.max(1))


def test_static_values_that_are_equal_but_not_the_same_make_programs_of_their_own() -> None:
    scaled = tile.jit(lambda x, k: x * k[0], static="k", device="interp")
    whole, ones = np.int32([1, -2]), np.float32([1, 1])
    assert scaled(whole, (1,)).dtype == np.int32
    assert scaled(whole, (1.0,)).dtype == np.float32
    assert not np.signbit(scaled(ones, (0.0,))).any()
    assert np.signbit(scaled(ones, (-0.0,))).all()
    assert not np.signbit(scaled(ones, (np.float32(0),))).any()
    assert np.signbit(scaled(ones, (np.float32(-0.0),))).all()


def test_donated_tensors_receive_the_results() -> None:
    @tile.jit(donate="weights")
    def step(weights: Any, x: Any) -> Any:
        return tile.tree_map(lambda w: w + x, weights), x * 2

    weights = {"a": tile.asarray(np.float32([1, 2])), "b": tile.asarray(np.float32([[3]]))}
    for k in range(3):
        after, _ = step(weights, np.float32(1))
        assert after["a"] is weights["a"]
        np.testing.assert_array_equal(after["a"].numpy(), [2 + k, 3 + k])


def test_a_tensor_that_is_donated_and_given_twice_is_only_read() -> None:
    @tile.jit(donate="state", device="interp")
    def step(state: Any, x: Any) -> Any:
        return tuple(s + k + x for k, s in enumerate(state))

    first, second = (tile.asarray(np.float32([k, k]), device="interp") for k in (1, 2))
    for _ in range(2):
        after = step((first, second, first), first)
        assert after[1] is second and after[0] is not first and after[2] is not first
        np.testing.assert_array_equal([a.numpy()[0] for a in (*after, first)], [2, second.numpy()[0], 4, 1])
    np.testing.assert_array_equal(second.numpy(), [6, 6])


def test_tensors_closed_over_are_read_at_each_call_and_arrays_are_constants() -> None:
    tensor, array = tile.asarray(np.float32([1, 2])), np.float32([10, 20])
    added = tile.jit(lambda x: x + tensor + array)
    np.testing.assert_array_equal(added(np.float32([0, 0])), [11, 22])
    with tensor.mmap_discard() as view:
        view[:] = 5
    np.testing.assert_array_equal(added(np.float32([0, 0])), [15, 25])


def test_what_a_trace_makes_of_nothing_belongs_to_no_device() -> None:
    made = tile.jit(
        lambda x: x + tnp.arange(3) + tnp.ones(3) * tnp.eye(3).sum(0) + tnp.asarray([1, 2, 3]), device="interp"
    )
    np.testing.assert_array_equal(made(np.zeros(3, np.float32)), [2, 4, 6])


def test_so_does_what_a_step_or_a_gradient_by_hand_makes() -> None:
    start = np.zeros(3, np.float32)
    twice = tile.jit(lambda c: tile.repeat(lambda c: c + tnp.arange(3), c, 2), device="interp")
    np.testing.assert_array_equal(twice(start), [0, 2, 4])
    source = tile.Function("function (X) -> (Y) { Y = X * 2; }")
    ones = tile.custom_vjp(source, lambda x, y, dy: tnp.full((3,), 7.0))
    np.testing.assert_array_equal(tile.jit(tile.grad(lambda x: ones(x).sum()), device="interp")(start), [7, 7, 7])


# --- vmap -------------------------------------------------------------------------------------------------


def rnn(weights: Any, xs: Any) -> Any:
    return tile.scan(lambda c, x: (tnp.tanh(c @ weights + x),) * 2, tnp.zeros(3), xs)


STATES = np.random.default_rng(1).integers(1, 2**32, (2, 3, 2048), np.uint32)
DRAWN = tile.Function("function (S) -> (V, T) { P = prng_step(S, 4); V = prng_value(P); T = prng_state(P); }")


CASES: dict[str, tuple[Any, tuple[Any, ...], Any, Any]] = {
    "contraction": (MATMUL, (normal(5, 3, 4), normal(5, 4, 2)), 0, 0),
    "one side": (lambda a, b: MATMUL(a, b), (normal(3, 4), normal(4, 5, 2)), (None, 1), 2),
    "broadcast": (lambda x, y: x + y, (normal(5), normal(2, 3)), (0, None), -1),
    "softmax": (lambda x: tnp.softmax(x) * 2 + x.sum(), (normal(5, 4),), 0, 1),
    "gather": (lambda x, i: x[i], (normal(7), np.int32([[0, 6], [2, 2]])), (None, 0), 0),
    "gather both": (lambda x, i: x[i], (normal(2, 7), np.int32([[0, 6], [2, 2]])), 0, 0),
    "sort": (lambda x: (tnp.sort(x), tnp.argsort(x, axis=0, descending=True)), (normal(4, 7, 2),), 0, 0),
    "top_k": (lambda x: tnp.top_k(x, 3), (normal(4, 7),), 0, 0),
    "running": (lambda x: (tnp.cumulative_sum(x), tnp.argmax(x)), (normal(4, 7),), 0, 0),
    "scatter": (tile.grad(lambda x, i: (x[i] ** 2).sum()), (normal(3, 7), np.int32([1, 1, 4])), (0, None), 0),
    "states": (lambda s: DRAWN(s), (STATES,), 0, 0),
    "loop of rows": (rnn, (normal(3, 3), normal(4, 5, 3)), (None, 0), 0),
    "loop of captured": (rnn, (normal(4, 3, 3), normal(5, 3)), (0, None), 0),
    "gradient of a loop": (tile.grad(lambda w, xs: rnn(w, xs)[1].sum()), (normal(3, 3), normal(2, 4, 3)), (None, 0), 0),
}


def at(value: Any, axis: int | None, k: int) -> Any:
    return value if axis is None else np.ascontiguousarray(np.take(value, k, axis))


@pytest.mark.parametrize("name", CASES)
def test_many_at_once_are_each_by_itself(name: str) -> None:
    function, args, in_axes, out_axes = CASES[name]
    axes = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(args)
    size = next(a.shape[x] for a, x in zip(args, axes, strict=True) if x is not None)
    one = tile.jit(lambda *given: function(*given))
    rows = [one(*(at(a, x, k) for a, x in zip(args, axes, strict=True))) for k in range(size)]
    many = tile.vmap(function, in_axes, out_axes)(*args)
    for k, row in enumerate(rows):
        for want, got in zip(tile.tree_leaves(row), tile.tree_leaves(many), strict=True):
            np.testing.assert_allclose(np.take(got, k, out_axes), want, rtol=2e-5, atol=1e-5)


def test_pairs_by_two_axes_and_a_jacobian() -> None:
    a, b = normal(4, 3), normal(5, 3)
    pairs = tile.vmap(lambda p: tile.vmap(lambda q: ((p - q) ** 2).sum())(b))(a)
    np.testing.assert_allclose(pairs, ((a[:, None] - b) ** 2).sum(-1), rtol=1e-5)
    row = tile.vmap(lambda e, x: tile.grad(lambda v: (tnp.sin(v) * e).sum())(x), (0, None))
    np.testing.assert_allclose(row(np.eye(3, dtype=np.float32), a[0]), np.diag(np.cos(a[0])), atol=1e-6)


def test_a_gradient_given_by_hand_adds_up_what_is_the_same_for_all() -> None:
    source = tile.Function("function (X, W) -> (Y) { Y = X * W; }")
    product = tile.custom_vjp(source, lambda x, w, y, dy: (dy * w * 7, dy * x))
    x, w = normal(5, 4), normal(4)
    total = tile.grad(lambda x, w: tile.vmap(product, (0, None))(x, w).sum(), (0, 1))
    dx, dw = total(x, w)
    np.testing.assert_allclose(dx, np.broadcast_to(7 * w, x.shape), rtol=1e-6)
    np.testing.assert_allclose(dw, x.sum(0), rtol=1e-5)


def test_a_mapped_tile_function_is_a_tile_function() -> None:
    many = tile.vmap(MATMUL, {"A": 0})
    a, b = normal(5, 3, 4), normal(4, 2)
    np.testing.assert_allclose(many(a, b), a @ b, rtol=1e-5, atol=1e-6)
    assert tile.vjp(many, wrt="B")(a, b, normal(5, 3, 2)).shape == b.shape
    assert tile.eval_shape(many, a, b).shape == (5, 3, 2)


# --- wrong use --------------------------------------------------------------------------------------------

X = np.ones((3, 2), np.float32)
ITSELF: list[Any] = []
ITSELF.append(ITSELF)
WRONG = {
    "a vector": (lambda: tile.grad(lambda x: x)(X), "TILE-E543", "float32[3, 2]"),
    "integers": (lambda: tile.grad(lambda n: n.sum())(np.arange(3)), "TILE-E543", "n is int64[3]"),
    "a pair": (lambda: tile.grad(lambda x: (x.sum(), 1))(X), "TILE-E543", "has_aux"),
    "no pair": (lambda: tile.grad(lambda x: x.sum(), has_aux=True)(X), "TILE-E543", "pair"),
    "too few arguments": (lambda: tile.grad(lambda x: x.sum(), argnums=1)(X), "TILE-E543", "argnums 1"),
    "a decision": (lambda: tile.jit(lambda x: 1 if x.sum() > 0 else 2)(X), "TILE-E542", "where"),
    "an object": (lambda: tile.jit(lambda thing: 1)(object()), "TILE-E541", "tile.register_tree"),
    "a number": (lambda: tile.jit(lambda x: float(x.sum()))(X), "TILE-E542", "no values yet"),
    "NumPy": (lambda: tile.jit(lambda x: np.partition(x, 1))(X), "TILE-E542", "tile_runtime.numpy"),
    "a text": (lambda: tile.jit(lambda x, mode: x)(X, "relu"), "TILE-E541", "mode is str 'relu'"),
    "no such parameter": (lambda: tile.jit(lambda x: x, static="k"), "TILE-E541", "'k'"),
    "no hash": (lambda: tile.jit(lambda x, k: x, static="k")(X, [1]), "TILE-E541", "k is list"),
    "a text as result": (lambda: tile.jit(lambda x: {"a": "b"})(X), "TILE-E541", "result['a'] is str"),
    "no such axis": (lambda: tile.vmap(lambda x: x)(np.float32(1)), "TILE-E544", "x has 0 dimensions"),
    "other sizes": (lambda: tile.vmap(lambda x, y: x)(X, X.T), "TILE-E544", "x: 3, y: 2"),
    "depends": (lambda: tile.vmap(lambda x: x, out_axes=None)(X), "TILE-E544", "depends"),
    "nothing to map": (lambda: tile.vmap(lambda x: x, None)(X), "TILE-E544", "no argument"),
    "axis": (lambda: tile.vmap(lambda x: x, "a")(X), "TILE-E515", "an axis is a number"),
    "other trees": (lambda: tile.tree_map(max, {"a": 1}, {"b": 1}), "TILE-E540", "{'a': *}"),
    "itself": (lambda: tile.jit(lambda tree: 1)(ITSELF), "TILE-E540", "holds itself"),
    "itself as result": (lambda: tile.jit(lambda x: ITSELF)(X), "TILE-E540", "holds itself"),
    "twice": (lambda: tile.register_tree(Box, lambda b: ([], None), lambda r, p: None), "TILE-E540", "already"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_use_is_told(name: str) -> None:
    call, code, text = WRONG[name]
    with pytest.raises(tile.TileError) as caught:
        call()
    assert code in str(caught.value) and text in str(caught.value)


def test_shapes_of_functions_of_arrays_are_trees_and_nothing_is_compiled() -> None:
    @tile.jit
    def halves(pair: dict[str, Any]) -> Any:
        return {"sum": pair["a"] + pair["b"], "rows": (pair["a"][0], 2 * pair["b"].sum())}

    large = tile.placeholder("float32", (1 << 20, 1 << 10), "large")
    found = tile.eval_shape(halves, {"a": large, "b": np.float16(1)})
    assert found["sum"] == ((1 << 20, 1 << 10), "float32")
    assert [(s.shape, str(s.dtype)) for s in found["rows"]] == [((1 << 10,), "float32"), ((), "float16")]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: tile.fori_loop, r"no attribute 'fori_loop': tile\.repeat"),  # type: ignore[attr-defined]
        (lambda: tile.cond, "no attribute 'cond': .*where"),  # type: ignore[attr-defined]
        (lambda: tile.repaet, r"no attribute 'repaet': did you mean repeat\?"),  # type: ignore[attr-defined]
        (lambda: tile.zzz, r"no attribute 'zzz'$"),  # type: ignore[attr-defined]
        (lambda: tile.jit(lambda x: x)(np.ones(2), device="llvm"), r"tile\.jit\(f, device="),
        (lambda: tile.Evaluator("llvm").prepare(tile.jit(abs), np.ones(2)), "tile.compose makes one"),  # type: ignore[arg-type]
    ],
)
def test_what_is_written_elsewhere_is_told(wrong: Any, message: str) -> None:
    with pytest.raises((AttributeError, tile.TileError), match=message):
        wrong()
