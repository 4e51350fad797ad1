"""`tile_runtime.numpy` beyond the array API: NumPy's functions by NumPy's names, parameters by place, and NumPy called itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import attrgetter
from typing import Any, cast

import numpy as np
import pytest
import tile_runtime as tile
from tile_ir.kernels import BufferKind
from tile_runtime import numpy as tnp

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(11)
X, M, V, W = (RNG.standard_normal(s).astype(np.float32) for s in ((4, 5, 6), (5, 5), (7,), (4,)))
HOLES = X.copy()
HOLES[0, 1, 2], HOLES[1], HOLES[2, 0, 0], HOLES[2, 0, 1] = np.nan, np.nan, np.inf, -np.inf
NUMBERS = RNG.integers(0, 9, 50)
AMOUNTS = RNG.random((50, 3)).astype(np.float32)
POINTS, HEIGHTS = np.sort(RNG.random(9)).astype(np.float32), RNG.random(9).astype(np.float32)
OCTETS = np.array([3, 15, 25, 35, 249, 0, 99], np.uint8)
WHOLE = np.array([-25, 25, 15, -15, 50, -50, 14, -36, 0], np.int32)
LARGE = np.array([[2**24 + 1, 2**24], [2**24 + 3, -(2**24) - 1]], np.int32)
MATRICES = RNG.standard_normal((3, 4, 5, 5)).astype(np.float32)
POSITIVE = MATRICES @ MATRICES.swapaxes(-1, -2) + np.eye(5, dtype=np.float32)


def parts(value: Any) -> tuple[Any, ...]:
    return tuple(cast("tuple[Any, ...]", value)) if isinstance(value, (tuple, list)) else (value,)


def agree(found: Any, expected: Any) -> None:
    for ours, theirs in zip(parts(found), parts(expected), strict=True):
        assert np.shape(ours) == np.shape(theirs) and np.asarray(ours).dtype.kind == np.asarray(theirs).dtype.kind
        np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-3, atol=1e-5)


def on_device(value: Any) -> Any:
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return [on_device(v) for v in items]
    return tile.asarray(cast("Array", value)) if isinstance(value, np.ndarray) else value


SAME: tuple[tuple[str, tuple[Any, ...], dict[str, Any]], ...] = (
    ("transpose", (X, (1, 0, 2)), {}), ("swapaxes", (X, 0, -1), {}), ("split", (X, [1, 3], 1), {}), ("array_split", (V, 3), {}),
    ("vstack", ([V, V],), {}), ("hstack", ([V, W],), {}), ("column_stack", ([V, V],), {}), ("rot90", (X, 3), {}),
    ("diagonal", (X, 1, 0, 2), {}), ("diagonal", (M, -7), {}), ("diag", (V, -2), {}), ("indices", ((2, 3),), {}),
    ("cumsum", (X,), {}), ("cumprod", (X, 2), {}), ("ptp", (X, 1), {}), ("average", (X, 1), {"weights": M[0] ** 2}),
    ("nansum", (HOLES, 1), {}), ("nanmean", (HOLES[[0, 1, 3]], 2), {}), ("nanmax", (HOLES, 2), {}), ("nanmin", (HOLES,), {}),
    ("nanmax", (LARGE, 1), {}), ("nanmin", (LARGE,), {}),
    ("quantile", (X, [0.1, 0.5, 1.0], 1), {"keepdims": True}), ("percentile", (X, 25), {}), ("median", (HOLES, 2), {}),
    ("cov", (M,), {}), ("corrcoef", (M,), {}), ("isclose", (HOLES, HOLES), {"equal_nan": True}), ("nan_to_num", (HOLES,), {}),
    ("digitize", (V, POINTS), {"right": True}), ("gradient", (V,), {}), ("gradient", (X,), {}),
    ("gradient", (X, 2.0, 3.0), {"axis": (2, 0)}), ("gradient", (X, POINTS[:5] * 3, 0.5), {"axis": (1, 0)}), ("gradient", (M, 0.5), {}),
    ("gradient", (OCTETS,), {}), ("gradient", (V, OCTETS[[4, 2, 0, 1, 3, 5, 6]]), {}), ("round", (OCTETS, -1), {}), ("round", (WHOLE, -1), {}),
    ("round", (WHOLE, -2), {}), ("round", (WHOLE, 1), {}), ("round", (WHOLE.astype(np.int8), -2), {}), ("round", (OCTETS, -3), {}),
    ("linalg.matrix_power", (WHOLE.reshape(3, 3), 3), {}), ("linalg.matrix_power", (WHOLE.reshape(3, 3), 0), {}),
    ("clip", (OCTETS, 3, 300), {}), ("clip", (OCTETS, -3, 100), {}), ("clip", (WHOLE, -(2**40), 2**40), {}),
    ("trapezoid", (X,), {"dx": 0.3, "axis": 1}),
    ("digitize", (X, POINTS[::-1]), {}), ("digitize", (X, POINTS[::-1]), {"right": True}), ("gradient", (V, np.cumsum(V**2 + 0.1)), {}),
    ("gradient", (X, POINTS[:5] * 3), {"axis": 1}), ("fmod", (X, 0.7), {}), ("fmod", (X.astype(np.int32), -3), {}),
    ("histogram", (X, 5), {}), ("histogram", (X, POINTS), {}), ("histogram", (X * 0 + 3,), {}), ("histogram", (X[:0],), {}), ("histogram", (X, 3, (2, 2)), {}),
    ("linspace", ([0, 1], [2, 3], 5), {}), ("tensordot", (M, M, (0, 1)), {}), ("roll", (V, np.array(2)), {}),
    ("diff", (X,), {"axis": 1, "prepend": 0.5}), ("diff", (X[:, :0],), {"axis": 1, "append": 2, "prepend": 1}), ("outer", (X, M), {}),
    ("interp", (X, POINTS, HEIGHTS), {}), ("convolve", (W, V, "same"), {}), ("correlate", (W, V, "same"), {}),
    ("correlate", (V, W), {}), ("fmax", (HOLES, X), {}), ("exp2", (X,), {}), ("fmod", (X, X[::-1]), {}), ("dot", (X, X.swapaxes(1, 2)), {}),
    ("inner", (M, M), {}), ("vdot", (M, M), {}), ("kron", (V, M), {}), ("cross", (X[..., :3], X[..., 3:]), {}),
    ("pad", (X, 1, "edge"), {}), ("pad", (X, (1, 2)), {"constant_values": 3}), ("round", (X, 1), {}), ("squeeze", (X[:1],), {}),
    ("concatenate", ([X, X], 1), {}), ("stack", ([V, V], 1), {}), ("expand_dims", (X, 1), {}), ("tile", (V, 3), {}),
    ("roll", (X, 1, 1), {}), ("repeat", (X, 2, 1), {}), ("sum", (X, 1), {}), ("diff", (X, 2, 0), {}), ("std", (X,), {"ddof": 1}),
    ("linalg.solve", (MATRICES, M[:, :2]), {}), ("linalg.inv", (MATRICES,), {}), ("linalg.det", (MATRICES,), {}),
    ("linalg.cholesky", (POSITIVE,), {}), ("linalg.matrix_power", (M, -3), {}), ("linalg.norm", (X, 3, 1), {}),
    ("linalg.norm", (M, -np.inf), {}), ("linalg.norm", (X,), {}), ("linalg.matrix_norm", (X,), {"ord": 1}),
    ("linalg.diagonal", (X,), {"offset": 1}), ("linalg.slogdet", (MATRICES,), {}),
)  # fmt: skip

PLACES, ANGLES = np.array([0, 3, 4, 12, -18, 35], np.int32), np.cumsum(RNG.uniform(-4, 4, (3, 9)), 1).astype(np.float32)
EDGES = np.float32([0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -3e-40, 1.5, -2, 8, 1e30, 27])
FLOATS = (EDGES, EDGES.astype(np.float64) * 1e-5, np.clip(EDGES, -9, 9).astype(np.float16))
QUANTILES = (
    "lower",
    "higher",
    "nearest",
    "midpoint",
    "interpolated_inverted_cdf",
    "hazen",
    "weibull",
    "median_unbiased",
    "normal_unbiased",
)

COMPOSED: tuple[tuple[str, tuple[Any, ...], dict[str, Any]], ...] = (
    *((name, (x,), {}) for name in ("fix", "cbrt", "modf", "frexp", "isneginf", "isposinf") for x in FLOATS[: 3 if name == "frexp" else 1]),
    *((name, (PLACES, PLACES[:, None]), {}) for name in ("gcd", "lcm")), ("gcd", (PLACES.astype(np.int64) * 10**12, 10**9), {}),
    ("gcd", (OCTETS, OCTETS[:, None]), {}), ("lcm", (OCTETS[:3], OCTETS[2]), {}), ("divmod", (PLACES, -5), {}), ("divmod", (X, 0.3), {}),
    ("float_power", (X**2, 1.5), {}), ("heaviside", (EDGES, 0.5), {}), ("logaddexp2", (X * 200, X[::-1]), {}), ("sinc", (X,), {}),
    ("around", (X, 1), {}), ("bitwise_not", (PLACES,), {}), ("true_divide", (X, 3), {}), ("fabs", (EDGES,), {}),
    ("nanprod", (HOLES, 1), {}), ("nancumsum", (HOLES[1:3],), {}), ("nancumprod", (HOLES, 2), {}), ("nanvar", (HOLES[[0, 1, 3]], 2), {}),
    ("nanstd", (HOLES[[0, 1, 3]],), {"ddof": 1}), ("nanvar", (HOLES[[0, 1, 3]], (0, 1)), {"keepdims": True, "ddof": 1}),
    ("append", (X, W), {}), ("append", (X, X, 1), {}), *(("atleast_3d", (x,), {}) for x in (np.float32(3), V, M, X)),
    ("dstack", ([V, V],), {}), ("dstack", ([X, X],), {}), ("hsplit", (X, [1, 3]), {}), ("hsplit", (W, 2), {}), ("vsplit", (X, 2), {}),
    ("dsplit", (X, 3), {}), ("diagflat", (M[:2, :2], 1), {}), ("ediff1d", (M,), {}), ("vander", (V, 3), {}), ("vander", (W,), {"increasing": True}),
    ("matvec", (MATRICES, MATRICES[:, :, 0]), {}) if hasattr(np, "matvec") else ("ediff1d", (X,), {}),
    ("vecmat", (MATRICES[:, :, 0], MATRICES), {}) if hasattr(np, "vecmat") else ("ediff1d", (X,), {}),
    ("polyval", (W, X), {}), ("select", ([X > 1, X > 0], [X, -X]), {"default": 3}), ("unwrap", (ANGLES,), {}), ("unwrap", (ANGLES, 4.0, 0), {}),
    ("unwrap", (ANGLES,), {"period": 3.0}), *(("quantile", (X, [0.0, 0.13, 0.5, 0.99], 1), {"method": m}) for m in QUANTILES),
    ("percentile", (X, 40), {"method": "nearest"}), ("cov", (X[0], X[1]), {}), ("cov", (M,), {"rowvar": False, "bias": True}), ("cov", (V,), {}),
    ("cov", (M,), {"ddof": 2}), ("corrcoef", (V, V**2), {}), ("corrcoef", (M, None, False), {}), ("corrcoef", (V,), {}),
    ("average", (X, 1, M[0] ** 2), {"keepdims": True}), ("average", (X,), {"keepdims": True}), ("bincount", (NUMBERS,), {"minlength": 20}),
    ("bincount", (NUMBERS, AMOUNTS[:, 0], 3), {}), ("histogram", (X, 5), {"density": True}), ("histogram", (V, POINTS), {"density": True}),
    ("interp", (X, POINTS, HEIGHTS, -1.0, 2.0), {}), ("interp", (X, POINTS, HEIGHTS), {"right": 3}),
)  # fmt: skip


def named(home: Any, name: str) -> Callable[..., Any]:
    for part in name.split("."):
        home = getattr(home, part)
    return home


LEAST = np.array([-128, 127, 0, 6, -12, -1], np.int8)

EDGED: tuple[tuple[str, tuple[Any, ...], dict[str, Any]], ...] = (
    ("gcd", (LEAST, LEAST[1:, None]), {}), ("lcm", (np.uint8([3, 200]), np.int8([-128, -127])), {}),
    ("gcd", (np.zeros((0, 3), np.int32), PLACES[:3]), {}), ("append", (V, 5), {}), ("append", (NUMBERS, 2.5), {}),
    ("append", (V, NUMBERS), {}), ("diag", (M,), {"k": 1}), ("diagflat", (V[:3],), {"k": -1}), ("vander", (V,), {"N": 2}),
    ("bincount", (np.uint8([3, 200]),), {}), ("bincount", (np.zeros(0, np.uint8),), {"minlength": 300}),
    ("cov", (M[:, :2],), {"ddof": 2}), ("cov", (M[:, :0],), {}), ("cov", (np.zeros((0, 3), np.float32),), {}),
    ("diff", (V > 0,), {}),
)  # fmt: skip
"""The least integers, numbers beside tensors, nothing at all."""


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("name", "given", "more"), EDGED, ids=[f"{k}-{case[0]}" for k, case in enumerate(EDGED)])
def test_functions_are_numpys_at_the_edges_of_tensors_and_of_arrays(
    name: str, given: tuple[Any, ...], more: dict[str, Any]
) -> None:
    expected = named(np, name)(*given, **more)
    agree(named(tnp, name)(*map(on_device, given), **more), expected)
    agree(named(tnp, name)(*given, **more), expected)


@pytest.mark.parametrize(
    ("name", "given", "more"),
    [
        *[case for case in (*SAME, *COMPOSED) if case[0] in ("unwrap", "gradient", "diff", "nan_to_num")],
        ("pad", (V, 2), {"constant_values": 3}),
    ],
)
def test_arrays_that_are_no_tensors_have_dtypes_too(name: str, given: tuple[Any, ...], more: dict[str, Any]) -> None:
    agree(named(tnp, name)(*given, **more), named(np, name)(*given, **more))


def test_gradients_where_a_function_has_a_case_of_its_own() -> None:
    x = np.array([0.0, -1.0, 0.5])
    gradient = np.asarray(tile.grad(lambda v: tnp.sum(tnp.sinc(v)))(x))
    np.testing.assert_allclose(gradient, [0, 1, -4 / np.pi], atol=1e-12)
    both = tile.grad(lambda v: tnp.sum(tnp.logaddexp(v, 3 * v)))(x)
    np.testing.assert_allclose(np.asarray(both), [2, 1 + 2 / (1 + np.exp(2)), 3 - 2 / (1 + np.exp(1))])


def test_parts_are_one_at_least_and_so_are_choices() -> None:
    for split in (tnp.split, tnp.array_split, tnp.hsplit):
        for sections in (0, -1):
            with pytest.raises(ValueError, match="at least one part, not"):
                split(tile.asarray(V), sections)
    with pytest.raises(ValueError, match="0 conditions for 0 choices"):
        tnp.select([], [])
    with pytest.raises(TypeError, match="a tensor or an array is wanted, not list"):
        tnp.average(tile.asarray(V), 0, [1] * len(V))  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    ("name", "given", "more"), (*SAME, *COMPOSED), ids=[f"{k}-{case[0]}" for k, case in enumerate((*SAME, *COMPOSED))]
)
def test_functions_are_numpys(name: str, given: tuple[Any, ...], more: dict[str, Any]) -> None:
    ours = named(tnp, name)(*map(on_device, given), **{k: on_device(v) for k, v in more.items()})
    expected = named(np, name)(*given, **more)
    agree(ours, expected)


def test_integers_beyond_a_dtype_compare_as_they_are() -> None:
    def compared(xp: Any, x: Any) -> Any:
        functions = (xp.equal, xp.not_equal, xp.less, xp.less_equal, xp.greater, xp.greater_equal)
        return xp.stack(
            [f(*pair) for f in functions for beyond in (-1, 300, 2**70) for pair in ((x, beyond), (beyond, x))]
        )

    agree(compared(tnp, tile.asarray(OCTETS)), compared(np, OCTETS))


def test_functions_with_shapes_for_data() -> None:
    numbers, amounts = tile.asarray(NUMBERS), tile.asarray(AMOUNTS)
    agree(tnp.bincount(numbers, length=12), np.bincount(NUMBERS, minlength=12))
    agree(tnp.bincount(numbers), np.bincount(NUMBERS))
    agree(tnp.segment_sum(amounts, numbers - 1, 6), np.array([AMOUNTS[k + 1 == NUMBERS].sum(0) for k in range(6)]))
    agree(tnp.segment_max(amounts, numbers, 10)[9], np.full(3, -np.inf))
    agree(tnp.segment_min(amounts, numbers, 3), np.array([AMOUNTS[k == NUMBERS].min(0) for k in range(3)]))
    agree(tnp.histogram(tile.asarray(HOLES), 8, (-1.0, 2.0)), np.histogram(HOLES, 8, (-1.0, 2.0)))
    agree(tnp.one_hot(tile.asarray(NUMBERS % 5), 5), np.eye(5)[NUMBERS % 5])
    agree(tnp.cummax(tile.asarray(X), 1), np.maximum.accumulate(X, 1))
    agree(tnp.logsumexp(tile.asarray(X * 1000), 1), np.logaddexp.reduce(X * 1000, 1))
    agree(tnp.erfc(tile.asarray(V)), np.vectorize(math.erfc)(V))


def test_running_sums_of_narrow_integers_are_as_wide_as_sums() -> None:
    mask, octets = V > 0, np.full(5, 200, np.uint8)
    assert np.asarray(tnp.cumsum(tile.asarray(mask))).tolist() == np.cumsum(mask).tolist()
    assert np.asarray(tile.asarray(octets).cumsum()).tolist() == [200, 400, 600, 800, 1000]
    assert np.asarray(tnp.cumulative_prod(tile.asarray(octets[:3]))).tolist() == [200, 40000, 8000000]
    assert tnp.cumulative_sum(tile.asarray(octets), dtype=np.uint8).dtype == np.uint8
    assert np.asarray(tnp.segment_sum(tile.asarray(octets), np.zeros(5, np.int32), 1)).tolist() == [1000]


def several(x: Any, y: Any) -> tuple[Any, ...]:
    return (
        np.exp(x) + np.sum(x, axis=1, keepdims=True), np.concatenate([x, y], axis=1), np.pad(x, 1, mode="edge"),
        np.einsum("ij,ij->i", x, y), np.linalg.norm(x, axis=1), np.arctan2(x, y), np.std(x, ddof=1), np.shape(x)[0] * x,
    )  # fmt: skip


def test_numpys_functions_of_symbols_are_tiles() -> None:
    agree(tile.jit(several)(M, M[::-1]), several(M, M[::-1]))


def test_a_copy_is_apart_from_what_is_updated_later() -> None:
    def grown(x: Any) -> tuple[Any, Any]:
        before = x.copy()
        x += 1
        return before, x

    agree(tile.jit(grown)(V), (V, V + 1))
    x = tile.asarray(V)
    agree((x.copy(), x), (V, V))


def test_numpys_functions_of_tensors_look_at_numbers() -> None:
    agree(several(tile.asarray(M), tile.asarray(M[::-1])), several(M, M[::-1]))
    found: Any = (
        np.sum(tile.asarray(X), axis=1),
        np.concatenate([tile.asarray(V), V]),
        np.partition(tile.asarray(V), 3),
    )
    assert all(isinstance(v, np.ndarray) for v in found)
    assert np.allclose(tile.asarray(V), V) is True
    assert f"{tile.asarray(V)[0]:.3f}" == f"{V[0]:.3f}"


ROWS, CELLS = np.array([0, -1, 2]), np.array([[1], [4]])
KEYS = (
    np.s_[ROWS, ROWS], np.s_[ROWS, :, ROWS], np.s_[0, :, ROWS], np.s_[0, ROWS], np.s_[:, CELLS, ROWS], np.s_[..., ROWS], np.s_[None, ROWS, ..., None], np.s_[ROWS, None, ROWS],
    np.s_[[0, 1], [1, 2], [3, 4]], np.s_[:, [1], None, ROWS], np.s_[[]], np.s_[:, [], 1], np.s_[ROWS[::2].astype(np.uint64)],
)  # fmt: skip


@pytest.mark.parametrize("key", KEYS, ids=range(len(KEYS)))
def test_several_integer_tensors_index_as_in_numpy(key: Any) -> None:
    agree(tile.asarray(X)[key], X[key])


def test_what_several_integer_tensors_take_has_a_gradient() -> None:
    def squares(x: Any) -> Any:
        return (x[ROWS, np.array([1, 1, 1])] ** 2).sum()

    found = tile.grad(squares)(X)
    expected = np.zeros_like(X)
    np.add.at(expected, (ROWS, np.ones_like(ROWS)), 2 * X[ROWS, 1])
    agree(found, expected)


@pytest.mark.parametrize(
    ("name", "says"),
    [("nonzero", "the shape of the result depends on data"), ("cumulitive_sum", "did you mean cumulative_sum?"),
     ("random", "tile_runtime.random draws numbers from keys"), ("fft", "there are no complex numbers")],
)  # fmt: skip
def test_a_name_that_is_not_there_says_why(name: str, says: str) -> None:
    with pytest.raises(AttributeError, match=f"no {name}: ") as caught:
        getattr(tnp, name)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("name", "says"), [("at", "segment_sum"), ("backward", "tile_runtime.grad"), ("cuda", "asarray")]
)
def test_what_arrays_elsewhere_have_is_told(name: str, says: str) -> None:
    for array in (tile.asarray(V), tile.placeholder("float32", (3,), "x")):
        assert not hasattr(array, name)
        with pytest.raises(AttributeError, match=f"has no attribute '{name}'; .*{says}"):
            getattr(array, name)
    with pytest.raises(AttributeError, match=r"has no attribute 'shap'$"):
        attrgetter("shap")(tile.asarray(V))


def test_what_no_function_takes_is_refused() -> None:
    with pytest.raises(ValueError, match="equal parts"):
        tnp.split(tile.asarray(V), 3)
    with pytest.raises(ValueError, match="square"):
        tnp.linalg.inv(tile.asarray(V))
    with pytest.raises(ValueError, match="singular values"):
        tnp.linalg.norm(tile.asarray(M), 2, (0, 1))


def test_what_is_not_finite_stays_in_its_cells() -> None:
    """No sum is of products with zeros: infinity times zero is NaN."""
    cells, weights = np.array([[1, np.inf], [np.nan, 2]], np.float32), np.array([1, 3], np.float32)
    assert tnp.trace(tile.asarray(cells)).item() == 3
    assert tnp.average(tile.asarray(cells[0]), weights=tile.asarray(weights)).item() == np.inf


REFUSED: list[Callable[[Any, Any], Any]] = [
    lambda xp, x: xp.concatenate([x, x.T]),
    lambda xp, x: xp.concatenate([]),
    lambda xp, x: xp.stack([x, x[:2]]),
    lambda xp, x: xp.einsum("ij->k", x),
    lambda xp, x: xp.einsum("ij->ii", x),
    lambda xp, x: xp.pad(x, -1),
    lambda xp, x: xp.interp(x[0], x[0], x[0, :2]),
    lambda xp, x: xp.gradient(x[:1], axis=0),
    lambda xp, x: xp.gradient(x, x[0], axis=0),
    lambda xp, x: xp.gradient(x[:1]),
    lambda xp, x: xp.histogram(x, 0, (0, 1)),
    lambda xp, x: xp.percentile(x, 101),
    lambda xp, x: xp.linalg.solve(x[:3, :3], x[0]),
    lambda xp, x: xp.matmul(x, 2),
    lambda xp, x: x @ xp.asarray(2.0),
]


@pytest.mark.parametrize("mode", ["linear_ramp", "mean", "maximum", "empty", "nothing"])
def test_padding_by_what_no_old_cell_holds_is_refused(mode: str) -> None:
    with pytest.raises(ValueError, match="edge, reflect"):
        tnp.pad(tile.asarray(V), (2, 0), mode)


@pytest.mark.parametrize("refused", REFUSED)
def test_what_numpy_refuses_for_its_shape_or_range_gives_no_numbers(refused: Callable[[Any, Any], Any]) -> None:
    x = np.ones((3, 4), np.float32)
    for xp, given in ((np, x), (tnp, tile.asarray(x))):
        with pytest.raises(ValueError):
            refused(xp, given)


def test_shifts_and_axes_broadcast() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for shift, axis in (((1, 2), 0), (1, (0, 1)), ((1, -1), (1, 0)), (5, None)):
        np.testing.assert_array_equal(tnp.roll(x, shift, axis=axis), np.roll(x, shift, axis=axis))


def test_rolling_several_axes_is_one_pass_and_any_number_of_them_is_right() -> None:
    x = tile.placeholder("float32", (64, 96), "x")
    both = tile.compose([x], [tnp.roll(x, (3, -5), axis=(0, 1))])
    given = RNG.random((64, 96)).astype(np.float32)
    np.testing.assert_array_equal(both(given), np.roll(given, (3, -5), axis=(0, 1)))
    temporaries = [b for b in both.lower(given).kernels.buffers if b.kind is BufferKind.TEMP]
    assert not temporaries
    many = RNG.random((2, 3, 1, 4, 3)).astype(np.float32)
    for shifts in ((1, 2, 3, -1, -7), (0, 1, 0, 2, 1), (0, 0, 5, 0, 0)):
        axes = (0, 1, 2, 3, -1)
        np.testing.assert_array_equal(tnp.roll(tile.asarray(many), shifts, axis=axes), np.roll(many, shifts, axes))


def test_common_divisors_of_symbols_and_of_what_has_none() -> None:
    """In a traced function the rounds are counted beforehand: those of neighbours in Fibonacci's series are the most."""
    near = np.array([1134903170, 701408733, 0, -12], np.int32)
    further = np.array([1836311903, 1134903170, 5, 18], np.int32)
    agree(
        tile.jit(lambda a, b: (tnp.gcd(a, b), tnp.lcm(a // 7, 6)))(near, further),
        (np.gcd(near, further), np.lcm(near // 7, 6)),
    )
    with pytest.raises(TypeError, match="common divisors are of integers, not of float32"):
        tnp.gcd(tile.asarray(V), 2)
    with pytest.raises(ValueError, match="no method 'inverted_cdf' of quantiles: linear"):
        tnp.quantile(tile.asarray(V), 0.5, method="inverted_cdf")
    with pytest.raises(ValueError, match="1 conditions for 2 choices"):
        tnp.select([V > 0], [V, V])
