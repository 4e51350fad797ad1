"""`tile_runtime.numpy` against NumPy: every function, operators, indexing; on Tensors and in compositions."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tile_runtime as tile
from tile_ir.diagnostics import TileTypeError
from tile_runtime import numpy as tnp
from tile_runtime.ops.elementwise import OPERATORS

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]
RNG = np.random.default_rng(7)
FLOATS = RNG.uniform(-2, 2, (3, 4, 5)).astype(np.float32)
POSITIVE = RNG.uniform(0.5, 2, (3, 4, 5)).astype(np.float32)
WITHIN = RNG.uniform(-0.9, 0.9, (3, 4, 5)).astype(np.float32)
INTEGERS = RNG.integers(-9, 9, (3, 4, 5), np.int32)
COUNTS = RNG.integers(1, 5, (4, 1), np.int32)
SMALL, COLUMN, ACOSH = INTEGERS % 4, FLOATS[:, :1].copy(), POSITIVE + 1
TRUTHS = RNG.integers(0, 2, (3, 4, 5)).astype(np.bool_)


def agree(found: Any, expected: Any, rtol: float = 1e-4) -> None:
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=1e-6)


Case = tuple[Function, Function, tuple[Array, ...]]

POSITIVES = {"log", "log2", "log10", "sqrt", "log1p", "acosh"}
ANGLES = {"atan2", "hypot", "logaddexp"}
INSIDE = {"asin", "acos", "atanh"}
THEIRS: dict[str, Function] = {
    "square": np.square,
    "erf": lambda x: np.vectorize(__import__("math").erf)(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: x / 2 * (1 + np.vectorize(__import__("math").erf)(x / np.sqrt(2))),
    "softplus": lambda x: np.logaddexp(x, 0),
    "relu": lambda x: np.maximum(x, 0),
    "abs": np.abs,
    "round": np.rint,
}
UNARY = [n for n, o in OPERATORS.items() if "X1" not in o.text and "bitwise" not in n]
BINARY = [n for n, o in OPERATORS.items() if "X1" in o.text and "X2" not in o.text and "bitwise" not in n]


def of_one(name: str) -> Case:
    given = ACOSH if name == "acosh" else POSITIVE if name in POSITIVES else WITHIN if name in INSIDE else FLOATS
    return getattr(tnp, name), THEIRS.get(name) or getattr(np, name), (given,)


def of_two(name: str, left: Array, right: Array) -> Case:
    return getattr(tnp, name), {"pow": np.power, "atan2": np.arctan2}.get(name) or getattr(np, name), (left, right)


def aggregation(name: str, axis: Any, keepdims: bool, given: Array) -> Case:
    exact = np.float64 if given is FLOATS else given.dtype
    return (
        lambda x: getattr(x, name)(axis=axis, keepdims=keepdims),
        lambda x: getattr(np, name)(x.astype(exact), axis=axis, keepdims=keepdims),
        (given,),
    )


def bits(name: str, *arrays: Array) -> Case:
    return getattr(operator, name), getattr(operator, name), arrays


def index(seed: int) -> Case:
    """Integers, slices of any direction, None and Ellipsis, drawn."""
    rng = np.random.default_rng(seed)
    keys: list[Any] = []
    for size in FLOATS.shape[: rng.integers(1, 4)]:
        start, stop = sorted(rng.integers(-size, size, 2).tolist())
        step = int(rng.choice([-2, -1, 1, 2]))
        pieces = [int(rng.integers(-size, size)), slice(start, stop, step), slice(None, None, step), slice(None)]
        keys.append(pieces[rng.integers(4)])
    for one in (None, Ellipsis):
        if rng.random() < 0.3:
            keys.insert(int(rng.integers(len(keys) + 1)), one)
    key = tuple(keys)
    return lambda x: x[key], lambda x: x[key], (FLOATS,)


MOVES: dict[str, tuple[Function, Function]] = {
    "reshape": (lambda x: x.reshape(4, -1), lambda x: x.reshape(4, -1)),
    "T": (lambda x: x.T, lambda x: x.T),
    "mT": (lambda x: x.mT, lambda x: x.swapaxes(1, 2)),
    "moveaxis": (lambda x: tnp.moveaxis(x, 0, -1), lambda x: np.moveaxis(x, 0, -1)),
    "flatten": (lambda x: x.flatten(), lambda x: x.flatten()),
    "expand": (lambda x: tnp.squeeze(tnp.expand_dims(x, axis=-2), -2), lambda x: x),
    "broadcast": (lambda x: tnp.broadcast_to(x, (2, 3, 4, 5)), lambda x: np.broadcast_to(x, (2, 3, 4, 5))),
    "concat": (lambda x: tnp.concat([x, x + 1], axis=1), lambda x: np.concatenate([x, x + 1], axis=1)),
    "stack": (lambda x: tnp.stack([x, -x], axis=-1), lambda x: np.stack([x, -x], axis=-1)),
    "flip": (lambda x: tnp.flip(x, axis=(0, 2)), lambda x: np.flip(x, axis=(0, 2))),
    "roll": (lambda x: tnp.roll(x, (1, -2), axis=(0, 2)), lambda x: np.roll(x, (1, -2), axis=(0, 2))),
    "roll all": (lambda x: tnp.roll(x, 7), lambda x: np.roll(x, 7)),
    "repeat": (lambda x: tnp.repeat(x, 3, axis=1), lambda x: np.repeat(x, 3, axis=1)),
    "tile": (lambda x: tnp.tile(x, (2, 1, 1, 2)), lambda x: np.tile(x, (2, 1, 1, 2))),
    "pad": (
        lambda x: tnp.pad(x, [(1, 0), (0, 2), (1, 1)], mode="reflect"),
        lambda x: np.pad(x, [(1, 0), (0, 2), (1, 1)], mode="reflect"),
    ),
    "clip": (lambda x: tnp.clip(x, -1, 0.5), lambda x: np.clip(x, -1, 0.5)),
    "where": (lambda x: tnp.where(x > 0, x, 2 * x), lambda x: np.where(x > 0, x, 2 * x)),
    "tril": (tnp.tril, np.tril),
    "triu": (lambda x: tnp.triu(x, k=1), lambda x: np.triu(x, 1)),
    "matmul": (lambda x: x @ x.mT, lambda x: x @ x.swapaxes(1, 2)),
    "einsum": (lambda x: tnp.einsum("abc,abd->cd", x, x), lambda x: np.einsum("abc,abd->cd", x, x)),
    "tensordot": (
        lambda x: tnp.tensordot(x, x, axes=((0, 1), (0, 1))),
        lambda x: np.tensordot(x, x, axes=((0, 1), (0, 1))),
    ),
    "trace": (lambda x: tnp.trace(x, offset=1), lambda x: np.trace(x, 1, 1, 2)),
    "softmax": (lambda x: tnp.softmax(x), lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)),
    "cumsum": (lambda x: x.cumsum(1), lambda x: np.cumsum(x, 1)),
    "cumprod": (lambda x: tnp.cumulative_prod(x, axis=2), lambda x: np.cumprod(x, 2)),
    "argmax": (lambda x: x.argmax(axis=1), lambda x: x.argmax(1)),
    "argmin of all": (lambda x: x.argmin(), lambda x: x.argmin()),
    "sort": (lambda x: tnp.sort(x, axis=1), lambda x: np.sort(x, axis=1)),
    "argsort": (lambda x: tnp.argsort(x, descending=True), lambda x: np.argsort(-x)),
    "top_k": (lambda x: tnp.top_k(x, 2)[0], lambda x: -np.sort(-x)[..., :2]),
    "smallest": (lambda x: tnp.top_k(x, 2, axis=0, largest=False)[0], lambda x: np.sort(x, 0)[:2]),
    "take": (lambda x: tnp.take(x, np.array([2, -1, 0]), axis=1), lambda x: np.take(x, [2, -1, 0], 1)),
    "searchsorted": (
        lambda x: tnp.searchsorted(tnp.sort(x.flatten()), x[0]),
        lambda x: np.searchsorted(np.sort(x.flatten()), x[0]),
    ),
    "astype": (lambda x: x.astype("int8"), lambda x: x.astype(np.int8)),
    "power": (lambda x: x**2 + 2.0**x, lambda x: x**2 + 2.0**x),
    "reflected": (lambda x: (1 - x) / (3 + abs(x)) // 0.25, lambda x: (1 - x) / (3 + abs(x)) // 0.25),
}


NUMBERS, PLACES = np.array([[2, 0], [-1, 1]]), np.array([1, -1], np.int32)
CASES: dict[str, Case] = {
    **{name: of_one(name) for name in UNARY},
    **{f"{name} of floats": of_two(name, POSITIVE, COLUMN) for name in BINARY},
    **{f"{name} of integers": of_two(name, INTEGERS, COUNTS) for name in BINARY if name not in ANGLES},
    **{f"bits {name}": bits(name, INTEGERS, COUNTS) for name in ("and_", "or_", "xor", "lshift", "rshift")},
    **{f"truths {name}": bits(name, TRUTHS, TRUTHS[:1].copy()) for name in ("and_", "or_", "xor")},
    "bits invert": bits("invert", INTEGERS),
    "truths invert": bits("invert", TRUTHS),
    **{
        f"{name} over {axis}{' kept' * kept} of {given.dtype}": aggregation(name, axis, kept, given)
        for name in ("sum", "prod", "max", "min", "mean", "any", "all", "var", "std")
        for axis, kept in ((None, False), (0, True), (-1, False), ((0, 2), True))
        for given in (FLOATS, SMALL, TRUTHS)
        if given is not TRUTHS or name in ("sum", "prod", "mean", "any", "all")
    },
    **{name: (ours, theirs, (FLOATS,)) for name, (ours, theirs) in MOVES.items()},
    **{f"index {seed}": index(seed) for seed in range(24)},
    "integers at an axis": (lambda x: x[:, NUMBERS, 1:], lambda x: x[:, NUMBERS, 1:], (FLOATS,)),
    "integers computed": (lambda x, i: x[i], lambda x, i: x[i], (FLOATS, PLACES)),
}
ON_TENSORS = ("exp", "floor_divide of integers", "sum over (0, 2) kept of float32", "concat", "matmul", "top_k", "pad")


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    """What every case gives, of Symbols, in one composition."""
    symbols: dict[int, tuple[tile.Symbol, Array]] = {}

    def symbol(array: Array) -> tile.Symbol:
        fresh = tile.placeholder(array.dtype, array.shape, f"x{len(symbols)}")
        return symbols.setdefault(id(array), (fresh, array))[0]

    made = {name: ours(*map(symbol, arrays)) for name, (ours, _, arrays) in CASES.items()}
    function = tile.compose([s for s, _ in symbols.values()], made)
    return dict(zip(made, function(*(a for _, a in symbols.values())), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_in_a_composition(name: str, results: dict[str, Any]) -> None:
    _, theirs, arrays = CASES[name]
    agree(results[name], theirs(*arrays))


@pytest.mark.parametrize("name", [*ON_TENSORS, "index 3", "integers computed"])
def test_on_tensors(name: str) -> None:
    ours, theirs, arrays = CASES[name]
    agree(ours(*map(tile.asarray, arrays)), theirs(*arrays))


@pytest.mark.parametrize("exponent", [-2, 0, 3, 7])
def test_powers_of_integers(exponent: int) -> None:
    expected = np.array([[float(b) ** exponent for b in (1, -1, 2, 3)]])
    agree(tile.asarray(np.array([[1, -1, 2, 3]], np.int32)) ** exponent, np.trunc(expected))


def test_creation() -> None:
    agree(tnp.arange(2, 11, 3), np.arange(2, 11, 3))
    agree(tnp.linspace(0, 1, 5), np.linspace(0, 1, 5))
    agree(tnp.eye(3, 4, k=1), np.eye(3, 4, 1))
    agree(tnp.ones_like(tile.asarray(INTEGERS)), np.ones_like(INTEGERS))
    for ours, theirs in zip(
        tnp.meshgrid(tnp.arange(3), tnp.arange(2)), np.meshgrid(np.arange(3), np.arange(2)), strict=True
    ):
        agree(ours, theirs)
    assert tnp.zeros((2, 3)).dtype == np.float32
    assert tnp.full(2, True).dtype == "bool"


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("int32", 1, "int32"),
        ("int32", 0.5, "float32"),
        ("float64", 2, "float64"),
        ("bool", 2, "int32"),
        ("float16", 0.1, "float16"),
    ],
)
def test_numbers_take_the_dtype_that_they_meet(left: str, right: float, expected: str) -> None:
    assert (tile.asarray(np.ones(3, left)) * right).dtype == expected


def test_what_is_wrong_is_said() -> None:
    x = tile.asarray(FLOATS)
    for wrong, error, message in (
        (lambda: x[5], IndexError, "index 5 of an axis of 3"),
        (lambda: x[0, 0, 0, 0], IndexError, "4 indexes"),
        (lambda: x[x > 0], IndexError, "where"),
        (lambda: x["a"], TypeError, "not str"),
        (lambda: x.reshape(7, -1), ValueError, "60 elements"),
        (lambda: x.sum(axis=3), IndexError, "axis 3"),
        (lambda: x.max(axis=(0, 0)), ValueError, "twice"),
        (lambda: bool(x), ValueError, "60 elements"),
        (lambda: tnp.zeros((0, 2)).max(), ValueError, "no elements"),
        (lambda: x + "a", TypeError, "unsupported operand"),
        (lambda: x.__setitem__(0, 1), TypeError, "where"),
        (lambda: bool(tile.placeholder("float32", (), "x") > 0), TypeError, "no values yet"),
        (lambda: tile.asarray(np.ones(2, np.int8)) + 1000, OverflowError, "1000 does not fit int8"),
        (lambda: x @ np.ones((4, 2), np.float32), ValueError, "cannot meet"),
        (lambda: tnp.finfo(np.int32), ValueError, "limits of floats, not of int32"),
        (lambda: tnp.iinfo(x), ValueError, "limits of integers, not of float32"),
        (lambda: x.std(ddof="a"), TypeError, "correction is a number or several, not str 'a'"),
        (lambda: tnp.quantile(x, "a"), TypeError, "q is a number"),
        (lambda: tnp.percentile(x, None), TypeError, "q is a number"),
        (lambda: tnp.linspace("a", 1, 5), TypeError, "start is a number"),
        (lambda: tnp.linspace(0, 1, 2.5), TypeError, "num is an integer, not float 2.5"),
        (lambda: tnp.histogram(x, 3, (1,)), ValueError, "range is two numbers"),
        (lambda: tnp.histogram(x, 3, ("a", 2)), TypeError, "range is a number or several"),
        (lambda: tnp.pad(x, "a"), TypeError, "width is an integer or several, not str 'a'"),
        (lambda: tnp.pad(x, 2.5), TypeError, "width is an integer or several, not float"),
        (lambda: tnp.pad(x, (1, 2, 3)), ValueError, "for each of 3 axes"),
        (lambda: tnp.roll(x, None), TypeError, "shift is an integer or several, not None"),
        (lambda: tnp.repeat(x, -1), ValueError, "repeats is at least 0, not -1"),
        (lambda: tnp.tile(x, -1), ValueError, "repetitions is at least 0, not -1"),
        (lambda: tnp.diff(x, -1), ValueError, "n is at least 0, not -1"),
        (lambda: tnp.take(x, x), TypeError, "indices are integers, not float32"),
        (lambda: tnp.bincount(x, length=3), TypeError, "are integers, not float32"),
        (lambda: tnp.tensordot(x, x, "a"), TypeError, "axes is an integer or two lists"),
        (lambda: tnp.tensordot(x, x, ([0, 1], [0])), ValueError, "other sizes"),
        (lambda: tnp.tensordot(x, x, ([0], [0], [1])), TypeError, "two lists"),
        (lambda: tnp.tensordot(x, x[:1], ([0], [0])), ValueError, "other sizes"),
        (lambda: tnp.round(x, 0.5), TypeError, "decimals is an integer"),
    ):
        with pytest.raises(error, match=message):
            wrong()


def test_a_comparison_with_what_is_no_tensor_is_false() -> None:
    x = tile.asarray(FLOATS)
    assert (x == None) is False  # noqa: E711
    assert (x != "a") is True
    assert x in [x]


EDGES = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.1, -0.1, 3.0, 7.0, 1e30, -1e30], np.float32)


@pytest.mark.parametrize("name", ["floor_divide", "remainder", "logaddexp", "hypot", "power"])
def test_quotients_and_lengths_at_the_edges(name: str) -> None:
    left, right = (np.ascontiguousarray(a.ravel()) for a in np.meshgrid(EDGES, EDGES))
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(left, right)
    found = getattr(tnp, "pow" if name == "power" else name)(tile.asarray(left), tile.asarray(right)).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    signed = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found)[signed], np.signbit(expected)[signed])


def test_what_nothing_gives_and_what_dtypes_powers_have() -> None:
    nothing, whole, truths = (tile.asarray(a) for a in (np.ones((0, 3), np.float32), np.arange(4), TRUTHS))
    np.testing.assert_array_equal(nothing.prod(axis=0).numpy(), [1, 1, 1])
    assert bool(nothing.all()) and not bool(nothing.any()) and float(nothing.sum()) == 0
    assert tnp.all(nothing, axis=0).numpy().tolist() == [True] * 3
    assert [t.dtype.value for t in (whole**2, whole**2.0, whole**0.5, truths**1)] == [
        "int64",
        "float32",
        "float32",
        "int32",
    ]
    np.testing.assert_array_equal((tile.asarray(EDGES) ** 0).numpy(), np.ones_like(EDGES))
    np.testing.assert_array_equal(tnp.tril(truths).numpy(), np.tril(TRUTHS))


@pytest.mark.parametrize("wrong", [None, "a", {1: 2}])
def test_what_is_no_tensor_is_named(wrong: object) -> None:
    x = tile.asarray(np.ones(3, np.float32))
    for call in (lambda: tnp.exp(wrong), lambda: tnp.where(x > 0, 1, wrong), lambda: tnp.maximum(x, wrong)):
        with pytest.raises(TypeError, match="a tensor or an array is wanted, not"):
            call()


X = tile.asarray(np.ones((2, 3), np.float32))
TENSORS = ("x", "x1", "x2", "y", "xp", "fp")
GIVEN = {"axis": 0, "axes": (1, 0), "shape": (3, 2), "dtype": "float32", "equation": "ij->ji", "count": 2, "k": 1, "key": 0, "width": 1,
         "q": 0.5, "sections": 1, "repetitions": 2, "repeats": 2, "shift": 1, "n": 2, "source": 0, "destination": 1, "axis1": 0, "axis2": 1,
         "fill_value": 1, "arrays": [X, X]}  # fmt: skip


def _wanted(name: str) -> list[inspect.Parameter]:
    """The arguments that a function cannot do without."""
    parameters = inspect.signature(getattr(tnp, name)).parameters.values()
    return [p for p in parameters if p.default is p.empty and p.kind is not p.VAR_POSITIONAL]


OF_TENSORS = [
    n
    for n in tnp.__all__
    if n != "clip" and inspect.isfunction(getattr(tnp, n)) and {p.name for p in _wanted(n)} & {*TENSORS}
]


@pytest.mark.parametrize("wrong", [None, "a", ["a", "b"], object()], ids=["none", "text", "texts", "object"])
def test_no_function_ends_in_an_error_of_its_inside_for_what_is_no_tensor(wrong: object) -> None:
    assert len(OF_TENSORS) > 150
    for name in OF_TENSORS:
        arguments = [GIVEN.get(p.name, X) for p in _wanted(name)]
        for place in (k for k, p in enumerate(_wanted(name)) if p.name in TENSORS):
            # No AttributeError, and no error in the text of a program.
            with pytest.raises((TypeError, ValueError, TileTypeError)):
                getattr(tnp, name)(*arguments[:place], wrong, *arguments[place + 1 :])


@pytest.mark.parametrize("wrong", [None, "a", ["a"], object(), 1.5], ids=["none", "text", "texts", "object", "float"])
def test_integers_that_are_none_are_named(wrong: object) -> None:
    for call in (
        lambda: tnp.reshape(X, wrong), lambda: tnp.broadcast_to(X, wrong), lambda: tnp.zeros(wrong), lambda: tnp.tile(X, wrong),
        lambda: tnp.repeat(X, wrong), lambda: tnp.diff(X, wrong), lambda: tnp.diagonal(X, wrong), lambda: tnp.tril(X, wrong),
        lambda: tnp.top_k(X, wrong), lambda: tnp.rot90(X, wrong), lambda: tnp.indices(wrong), lambda: tnp.tile(X, (2, wrong)),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=r"is an integer( or several)?, not .*: such as"):
            call()


@pytest.mark.parametrize("axis", [-3, 2, 9])
def test_axes_that_are_not_there_are_named(axis: int) -> None:
    for function in (
        tnp.sum,
        tnp.mean,
        tnp.argmax,
        tnp.sort,
        tnp.flip,
        tnp.softmax,
        tnp.cumsum,
        tnp.unstack,
        tnp.median,
        tnp.squeeze,
    ):
        with pytest.raises(IndexError, match=f"axis {axis} of a tensor with 2 dimensions"):
            function(X, axis=axis)


def test_equations_and_lists_that_are_none_are_named() -> None:
    with pytest.raises(TypeError, match="an equation is a text, not None"):
        tnp.einsum(None, X)
    with pytest.raises(TypeError, match="a tensor or an array is wanted, not None"):
        tnp.einsum("ij->ji", None)
    for wrong in (None, "ab", object()):
        for joined in (tnp.concat, tnp.stack, tnp.vstack, tnp.hstack, tnp.column_stack):
            with pytest.raises(TypeError, match="several tensors are wanted, not"):
                joined(wrong)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int64])
def test_powers_of_integers_wrap_for_exponents_of_any_size(dtype: Any) -> None:
    bases, exponents = np.array([0, 1, 2, 3, 6, 7], dtype)[:, None], np.array([0, 1, 8, 9, 33, 64, 100], dtype)
    np.testing.assert_array_equal(tnp.pow(tile.asarray(bases), tile.asarray(exponents)).numpy(), bases**exponents)
    np.testing.assert_array_equal((tile.asarray(bases) ** 100).numpy(), bases**100)


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint8])
def test_quotients_of_extreme_integers(dtype: Any) -> None:
    ends = np.iinfo(dtype)
    values = np.array([ends.min, ends.min + 1, ends.max // 7, 0, 3, 7, ends.max], dtype)
    divisors = np.array([ends.min or 1, ends.min // 3 + 1, 2, ends.max], dtype)[:, None]
    found = tnp.floor_divide(tile.asarray(values), tile.asarray(divisors)).numpy()
    np.testing.assert_array_equal(found, values // divisors)
    assert found.dtype == dtype
